"""Does the past of sensor u help to predict sensor v, beyond v's own past and that of all other sensors?

Each reading of v is a row. Its target is the change since v's previous reading; its columns are values of every sensor
at several lags before the row (`past.py`), their squares, and products of two sensors. A ridge regression predicts the
target out of fold (`ridge.py`). Removing all columns of u shows how much worse v is predicted without u. Errors are
summed over about thirty blocks of rows: stretches of time, or groups of samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raindrop.graphs.past import Floats, Past, Positions, Rows
from raindrop.graphs.ridge import Regression, Ridge

BLOCKS, FOLDS = 30, 5
MIN_ROWS = 60  # with fewer readings, a sensor is not tested as a receiver
MAX_ROWS = 20_000  # of more, so many are drawn
MAX_SENDERS = 24  # in one regression: those that inform most on their own
MAX_SCREENED = 2 * MAX_SENDERS  # of more, those whose values are most correlated are looked at
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
    residual: Floats  # (n,) of the rows, standardised readings minus what the past predicts, weighted
    rows: Rows
    gain_sums: Floats  # (samples, u) the gain summed over the rows of each sample; no rows where not asked for


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
        order, block = _blocks(self.rows, group)
        by_fold = np.argsort(block % FOLDS, kind="stable")  # so that a fold is a slice
        order, self.block = order[by_fold], block[by_fold]
        bounds = np.searchsorted(self.block % FOLDS, np.arange(FOLDS + 1))
        self.folds = [slice(start, stop) for start, stop in itertools.pairwise(bounds.tolist())]
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
        M, v, samples = self.past.num_sensors, self.sensor, len(self.past.first)
        senders = self._screened([u for u in range(M) if u != v])
        parts, latest = zip(*(self.columns_of(u, self.rows) for u in senders), strict=True)
        states = [(v, self.now), *zip(senders, latest, strict=True)][:MAX_PRODUCTS]
        columns, pair = self._assemble(senders, list(parts), states)
        regression = Regression.of(columns, self.target, self.folds)
        penalty, squares, solutions = regression.best(PENALTIES)
        _, own_squares, own_solutions = regression.best(PENALTIES, (pair == v).all(1))
        full, base = self._by_block(squares), self._by_block(own_squares)
        ridge = Ridge(regression, penalty)
        dealt = set(self.rng.permutation(len(senders))[:DEALT].tolist())
        gain, error, statistic, lag = (np.full(M, np.nan) for _ in range(4))
        gain_sums = np.zeros((samples if by_sample else 0, M))
        by_chance = []
        for at, u in enumerate(senders):
            without = ridge.without((pair == u).any(1))
            losses = self._by_block(without.squares)
            gain[u], error[u], statistic[u] = _summary(losses - full, base)
            if by_sample:
                grows = (without.squares - squares) * len(self.rows) / base.sum()
                gain_sums[:, u] = np.bincount(self.rows.sample, grows, minlength=samples)
            if at in dealt:  # its readings dealt anew: what chance alone gives
                new = self._columns_with_products(u, self.past.dealt_anew(self.rows, self.rng), states)
                chance = self._by_block(without.replaced([new])[0])
                by_chance.append(_summary(losses - chance, chance)[2])
            if statistic[u] > MIN_STATISTIC:
                candidates = self._at_lags(u, [state for sensor, state in states if sensor != u])
                best = np.argmin([squares.sum() for squares in without.replaced(candidates)])
                lag[u] = LAG_CHOICES[int(best)] * self.past.interval
        residual = self._residual(regression, solutions if full.sum() < base.sum() else own_solutions)
        explained = max(0.0, 1 - float(full.sum() / base.sum()))
        return Lagged(gain, error, statistic, np.array(by_chance), lag, explained, residual, self.rows, gain_sums)

    def _by_block(self, squares: Floats) -> Floats:
        total: Floats = np.bincount(self.block, squares).astype(np.float64, copy=False)
        return total

    def _residual(self, regression: Regression, solutions: Sequence[Floats]) -> Floats:
        """(n,) readings minus their prediction out of fold; the readings themselves where that is no better.

        Weighted: after a long gap a residual is larger, and says less about who moved with whom.
        """
        residual: Floats = self.target - regression.predicted(solutions)
        value: Floats = (self.value - self.value.mean()) * self.weight
        return residual if (residual**2).sum() < (value**2).sum() else value

    def _screened(self, senders: list[int]) -> list[int]:
        """The senders that inform most on their own, strongest first."""
        own = Regression.of(self.own, self.target, self.folds).squares(0.01)
        if len(senders) > MAX_SCREENED:
            senders = self._most_correlated(senders)
        gains = []
        for u in senders:
            columns = np.concatenate([self.own, self.columns_of(u, self.rows)[0]], axis=1)
            gains.append((own - Regression.of(columns, self.target, self.folds).squares(0.01)).sum())
        return [senders[at] for at in np.argsort(-np.array(gains), kind="stable")[:MAX_SENDERS]]

    def _most_correlated(self, senders: list[int]) -> list[int]:
        """The senders whose earlier values, or their squares, are most correlated with what v's own past leaves."""
        own = Regression.of(self.own, self.target, self.folds)
        left = self.target - own.predicted(own.solve(0.01))
        left = left / np.sqrt((left**2).sum())
        score = np.zeros(self.past.num_sensors)
        for values in self.past.on_grid(self.rows):  # (n, sensor)
            for columns in (values, values**2):
                scaled = self.scale(columns)
                score += (left @ scaled) ** 2 / np.maximum((scaled**2).sum(0), 1e-9)
        return [senders[at] for at in np.argsort(-score[senders], kind="stable")[:MAX_SCREENED]]

    def _assemble(
        self, senders: list[int], parts: list[Floats], states: list[tuple[int, Floats]]
    ) -> tuple[Floats, Positions]:
        """All columns, and (column, 2) the sensors of each."""
        pair = [np.full((self.own.shape[1], 2), self.sensor)]
        pair += [np.full((part.shape[1], 2), u) for u, part in zip(senders, parts, strict=True)]
        products = [(i, j, x * y) for at, (i, x) in enumerate(states) for j, y in states[:at]]
        pair.append(np.array([(i, j) for i, j, _ in products], dtype=np.int64).reshape(-1, 2))
        product_columns = [self.scale(np.stack([x for *_, x in products], axis=1))] if products else []
        return np.concatenate([self.own, *parts, *product_columns], axis=1), np.concatenate(pair)

    def _columns_with_products(self, sender: int, rows: Rows, states: list[tuple[int, Floats]]) -> Floats:
        """All columns of one sender, as of these rows."""
        part, now = self.columns_of(sender, rows)
        products = [now * state for sensor, state in states if sensor != sender]
        if sender not in [sensor for sensor, _ in states] or not products:
            return part
        return np.concatenate([part, self.scale(np.stack(products, axis=1))], axis=1)

    def _at_lags(self, sender: int, states: list[Floats]) -> list[Floats]:
        """For each lag, the columns that stand for the sender's value at that lag alone."""
        values = self.past.values(sender, self.rows, LAG_CHOICES)
        return [self.scale(np.stack([x, x**2, *(x * state for state in states)], axis=1)) for x in values.T]


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
