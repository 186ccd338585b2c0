"""Does the past of sensor u help to predict sensor v, beyond v's own past and that of all other sensors?

Each reading of v is a row. Its target is the change since v's previous reading; its columns are values of every sensor
at several lags before the row (`past.py`), their squares, and products of two sensors. A ridge regression predicts the
target out of fold. Removing all columns of u shows how much worse v is predicted without u. All of it is computed from
the Gram matrices of about thirty blocks of rows: stretches of time, or groups of samples.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from raindrop.graphs.past import Floats, Past, Positions, Rows

BLOCKS, FOLDS = 30, 5
MIN_ROWS = 60  # with fewer readings, a sensor is not tested as a receiver
MAX_ROWS = 20_000  # of more, so many are drawn
MAX_SENDERS = 24  # in one regression: those that inform most on their own
MAX_PRODUCTS = 12  # sensors whose products are columns
PENALTIES = 10.0 ** np.arange(-3.0, 0.6, 0.5)  # per row
LAG_CHOICES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # in typical intervals
MIN_STATISTIC = 1.5  # below, a sender is no edge, and its lag is of no interest
DEALT = 6  # senders of each receiver whose readings are dealt anew


@dataclass(frozen=True, eq=False)
class Lagged:
    """What the regression of one receiver found, by sender; NaN for senders that were not tested."""

    gain: Floats  # (u,) how much lower the error is with u, as a share of the error from v's own past alone
    error: Floats  # (u,) its standard error
    statistic: Floats  # (u,) gain / error
    by_chance: Floats  # (k,) the statistic of senders whose readings were dealt anew
    lag: Floats  # (u,) at which u informs best, in units of time
    explained: float  # by all senders together
    residual: Floats  # (n,) of the rows, standardised readings minus what the past predicts
    rows: Rows
    gain_sums: Floats  # (samples, u) the gain summed over the rows of each sample; no rows where not asked for


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the rows of each block, from which any regression is solved."""

    gram: Floats  # (block, column, column)
    cross: Floats  # (block, column)
    square: Floats  # (block,)
    count: Floats  # (block,)

    @classmethod
    def of(cls, columns: Floats, target: Floats, block: Positions) -> Self:
        bounds = np.searchsorted(block, np.arange(block[-1] + 2))
        parts = [(columns[i:j], target[i:j]) for i, j in itertools.pairwise(bounds)]
        return cls(
            np.stack([x.T @ x for x, _ in parts]),
            np.stack([x.T @ y for x, y in parts]),
            np.array([y @ y for _, y in parts]),
            np.diff(bounds).astype(np.float64),
        )

    @cached_property
    def _left_gram(self) -> list[Floats]:
        """(column, column) of all blocks but those of each fold."""
        total = self.gram.sum(0)
        return [total - self.gram[fold::FOLDS].sum(0) for fold in range(FOLDS)]

    def losses(self, penalty: float, columns: NDArray[np.bool_]) -> tuple[Floats, list[Floats]]:
        """(block,) squared error of each block, predicted by a ridge regression on the other folds; and those."""
        index = np.flatnonzero(columns)
        square = np.ix_(index, index)
        losses, solutions = np.empty(len(self.square)), []
        for fold in range(FOLDS):
            held = np.arange(fold, len(self.square), FOLDS)
            left = self._left_gram[fold][square]
            left.flat[:: len(index) + 1] += penalty * (self.count.sum() - self.count[held].sum())
            solution = np.linalg.solve(left, (self.cross.sum(0) - self.cross[held].sum(0))[index])
            full = np.zeros(len(columns))
            full[index] = solution
            solutions.append(full)
            losses[held] = self.square[held] - 2 * self.cross[held] @ full + (self.gram[held] @ full) @ full
        return losses, solutions

    def best(self, columns: NDArray[np.bool_]) -> tuple[float, Floats, list[Floats]]:
        """The penalty with the lowest error out of fold, with its `losses`."""
        results = [(penalty, *self.losses(penalty, columns)) for penalty in PENALTIES]
        return min(results, key=lambda result: float(result[1].sum()))


class Receiver:
    """The rows of one receiver, and its columns of each sender."""

    def __init__(self, past: Past, sensor: int, group: Positions, rng: np.random.Generator, limit: int = MAX_ROWS):
        """`group` (samples,): samples of a group stay in one block."""
        self.past, self.sensor, self.rng = past, sensor, rng
        rows, value = past.readings_of(sensor)
        usable = np.flatnonzero(np.isfinite(past.age(sensor, rows)))
        if len(usable) > limit:
            usable = np.sort(rng.choice(usable, limit, replace=False))
        self.rows, self.value = Rows(rows.sample[usable], rows.time[usable]), value[usable]
        if not self.testable:
            return
        order, self.block = _blocks(self.rows, group)
        self.rows, self.value = Rows(self.rows.sample[order], self.rows.time[order]), self.value[order]
        self.age = past.age(sensor, self.rows) / past.interval
        own = past.values(sensor, self.rows)
        self.now = own[:, 0]
        change = self.value - self.now
        slope = np.polyfit(np.log(self.age), np.log(change**2 + 1e-3), 1)[0] if np.ptp(self.age) > 0 else 0.0
        weight = self.age**-slope  # a change over a long gap is less certain
        self.weight = np.sqrt(weight / weight.mean())
        log_age = np.log1p(self.age)[:, None]
        self.own = self.scale(np.concatenate([own, own**2, log_age, log_age * own[:, :2]], axis=1))
        self.mean_change = float(np.average(change, weights=self.weight**2))
        self.target = (change - self.mean_change) * self.weight

    @property
    def testable(self) -> bool:
        return len(self.rows) >= MIN_ROWS and float(np.ptp(self.value)) > 0

    def scale(self, columns: Floats) -> Floats:
        """Standardised and weighted."""
        square = self.weight[:, None] ** 2
        mean = (columns * square).mean(0)
        spread = np.sqrt(((columns - mean) ** 2 * square).mean(0))
        scaled: Floats = (columns - mean) / np.where(spread > 1e-9, spread, 1.0) * self.weight[:, None]
        return scaled

    def columns_of(self, sender: int, rows: Rows) -> tuple[Floats, Floats]:
        """The sender's columns, and its latest value, as of these rows."""
        values = self.past.values(sender, rows)
        return self.scale(np.concatenate([values, values**2], axis=1)), values[:, 0]

    # ---------------------------------------------------------------- the test

    def test(self, *, by_sample: bool = False) -> Lagged:
        """Every sender; `by_sample` also sums its gains over the rows of each sample."""
        M, v = self.past.num_sensors, self.sensor
        senders = self._screened([u for u in range(M) if u != v])
        parts, latest = zip(*(self.columns_of(u, self.rows) for u in senders), strict=True)
        columns, pair = self._assemble(senders, list(parts), list(latest))
        sums = Sums.of(columns, self.target, self.block)
        own = (pair == v).all(1)
        penalty, full, solutions = sums.best(np.ones(len(pair), dtype=bool))
        _, base, own_solutions = sums.best(own)
        gain, error, statistic, lag = (np.full(M, np.nan) for _ in range(4))
        samples = len(self.past.first)
        gain_sums = np.zeros((samples if by_sample else 0, M))
        squares = self._squares(columns, solutions) if by_sample else self.target
        for u in senders:
            losses, without = sums.losses(penalty, ~(pair == u).any(1))
            gain[u], error[u], statistic[u] = _summary(losses - full, base)
            if by_sample:
                grows = (self._squares(columns, without) - squares) * len(self.rows) / base.sum()
                gain_sums[:, u] = np.bincount(self.rows.sample, grows, minlength=samples)
        by_chance = self._dealt_anew(senders, list(parts), list(latest), penalty)
        states = [(v, self.now), *zip(senders, latest, strict=True)][:MAX_PRODUCTS]
        for u in senders:
            if statistic[u] > MIN_STATISTIC:
                others = [state for sensor, state in states if sensor != u]
                lag[u] = self._lag(columns, pair, u, others, penalty)
        residual = self._residual(columns, solutions if full.sum() < base.sum() else own_solutions)
        explained = max(0.0, 1 - float(full.sum() / base.sum()))
        return Lagged(gain, error, statistic, by_chance, lag, explained, residual, self.rows, gain_sums)

    def _residual(self, columns: Floats, solutions: list[Floats]) -> Floats:
        """(n,) readings minus their prediction out of fold; the readings themselves where that is no better."""
        residual: Floats = (self.target - self._fitted(columns, solutions)) / self.weight
        value = self.value - self.value.mean()
        return residual if ((residual * self.weight) ** 2).sum() < ((value * self.weight) ** 2).sum() else value

    def _fitted(self, columns: Floats, solutions: list[Floats]) -> Floats:
        """(n,) predictions of the target, out of fold."""
        fitted = np.empty(len(self.target))
        for fold, solution in enumerate(solutions):
            held = self.block % FOLDS == fold
            fitted[held] = columns[held] @ solution
        return fitted

    def _squares(self, columns: Floats, solutions: list[Floats]) -> Floats:
        """(n,) squared errors out of fold."""
        squares: Floats = (self.target - self._fitted(columns, solutions)) ** 2
        return squares

    def _screened(self, senders: list[int]) -> list[int]:
        """The senders that inform most on their own, strongest first."""
        gains = []
        own = np.ones(self.own.shape[1], dtype=bool)
        base = Sums.of(self.own, self.target, self.block).losses(0.01, own)[0].sum()
        for u in senders:
            columns = np.concatenate([self.own, self.columns_of(u, self.rows)[0]], axis=1)
            loss = Sums.of(columns, self.target, self.block).losses(0.01, np.ones(columns.shape[1], dtype=bool))[0]
            gains.append(base - loss.sum())
        return [senders[at] for at in np.argsort(-np.array(gains), kind="stable")[:MAX_SENDERS]]

    def _assemble(self, senders: list[int], parts: list[Floats], latest: list[Floats]) -> tuple[Floats, Positions]:
        """All columns, and (column, 2) the sensors of each."""
        v = self.sensor
        pair = [np.full((self.own.shape[1], 2), v)]
        pair += [np.full((part.shape[1], 2), u) for u, part in zip(senders, parts, strict=True)]
        states = [(v, self.now), *zip(senders, latest, strict=True)][:MAX_PRODUCTS]
        products = [(i, j, x * y) for at, (i, x) in enumerate(states) for j, y in states[:at]]
        pair.append(np.array([(i, j) for i, j, _ in products], dtype=np.int64).reshape(-1, 2))
        product_columns = [self.scale(np.stack([x for *_, x in products], axis=1))] if products else []
        return np.concatenate([self.own, *parts, *product_columns], axis=1), np.concatenate(pair)

    def _dealt_anew(self, senders: list[int], parts: list[Floats], latest: list[Floats], penalty: float) -> Floats:
        """The statistic of some senders with their readings dealt anew: what chance alone gives."""
        statistics = []
        for at in self.rng.permutation(len(senders))[:DEALT]:
            other = self.past.dealt_anew(self.rows, self.rng)
            part, now = self.columns_of(senders[at], other)
            columns, pair = self._assemble(
                senders, [*parts[:at], part, *parts[at + 1 :]], [*latest[:at], now, *latest[at + 1 :]]
            )
            sums = Sums.of(columns, self.target, self.block)
            full = sums.losses(penalty, np.ones(len(pair), dtype=bool))[0]
            difference = sums.losses(penalty, ~(pair == senders[at]).any(1))[0] - full
            statistics.append(_summary(difference, full)[2])
        return np.array(statistics)

    def _lag(self, columns: Floats, pair: Positions, sender: int, states: list[Floats], penalty: float) -> float:
        """The lag whose value, in place of all columns of the sender, leaves the lowest error."""
        others = columns[:, ~(pair == sender).any(1)]
        values = self.past.values(sender, self.rows, LAG_CHOICES)
        candidates = [self.scale(np.stack([x, x**2, *(x * state for state in states)], axis=1)) for x in values.T]
        width = candidates[0].shape[1]
        sums = Sums.of(np.concatenate([others, *candidates], axis=1), self.target, self.block)
        losses = []
        for at in range(len(candidates)):
            kept = np.zeros(sums.cross.shape[1], dtype=bool)
            kept[: others.shape[1]] = True
            kept[others.shape[1] + at * width : others.shape[1] + (at + 1) * width] = True
            losses.append(sums.losses(penalty, kept)[0].sum())
        return LAG_CHOICES[int(np.argmin(losses))] * self.past.interval


def _summary(difference: Floats, base: Floats) -> tuple[float, float, float]:
    """Mean gain as a share of the base loss, its standard error over blocks, and their ratio."""
    scale = float(base.mean())
    mean, error = float(difference.mean()), float(difference.std(ddof=1)) / np.sqrt(len(difference))
    return mean / scale, error / scale, mean / max(error, 1e-12 * scale)


def _blocks(rows: Rows, group: Positions) -> tuple[Positions, Positions]:
    """An order of the rows, and (n,) their blocks, rising: groups of samples, or stretches of time of a few samples."""
    owner = group[rows.sample]
    number = len(np.unique(owner))
    if number >= BLOCKS:
        order = np.lexsort([rows.time, rows.sample, owner])
        rank = np.unique(owner[order], return_inverse=True)[1]
        starts = np.flatnonzero(np.diff(rank, prepend=-1))
        block = (starts * BLOCKS // len(rows))[rank]  # whole groups, about the same number of rows in each block
        return order, np.unique(block, return_inverse=True)[1]
    order = np.lexsort([rows.time, rows.sample])
    return order, np.arange(len(rows)) * BLOCKS // len(rows)
