"""Which sensors move together at the same time, beyond what the past of all sensors predicts?

The residuals of the lagged regressions (`lagged.py`) at common times are the part that no sensor's past predicted. How
much u's residual explains of v's is averaged over all orders in which sensors may be added (the Shapley value, or LMG),
so that two sensors with the same information share it. The test is of the partial correlation of u and v given all
other sensors. Neither has a direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from raindrop.graphs.lagged import Lagged
from raindrop.graphs.past import CLIP, Floats, Positions
from raindrop.graphs.receiver import BLOCKS

MIN_SHARED = 60  # minimum number of times at which two sensors are both read, to compare them
CHUNK = 20_000  # with more times, each block is a chunk
ORDERS = 40  # random orders, for the Shapley value
SHRINKAGE = 0.1  # of correlations towards 0
SURROGATES = 300  # pairs that are also tested with a surrogate of one sensor


@dataclass(frozen=True, eq=False)
class SameTime:
    """Pairs of sensors at the same time; NaN for pairs that were not tested."""

    gain: Floats  # (u, v) share of v's residual variance that u explains, mean over orders
    error: Floats  # (u, v) its standard error
    statistic: Floats  # (u, v) symmetric: of the partial correlation, by its standard error over blocks
    by_chance: Floats  # (k,) the same for pairs with a surrogate of one sensor
    explained: Floats  # (v,) share of v's residual variance that all others explain


def same_time(receivers: Sequence[Lagged | None], rng: np.random.Generator) -> SameTime:
    """Compare the residuals of all sensors; None is a sensor that was not tested."""
    M, times = len(receivers), Times.of(receivers)
    sums, counts = np.zeros((BLOCKS, M, M)), np.zeros((BLOCKS, M, M))
    for value, observed, blocks in times.chunks():
        for at, rows in blocks:
            sums[at] = value[rows].T @ value[rows]
            counts[at] = observed[rows].T.astype(np.float64) @ observed[rows]
    shared = counts.sum(0)
    np.fill_diagonal(shared, 0)
    if (shared < MIN_SHARED).all():
        empty = np.full((M, M), np.nan)
        return SameTime(empty, empty, empty, np.zeros(0), np.zeros(M))
    correlation = _correlation(sums.sum(0), counts.sum(0))
    orders = [rng.permutation(M) for _ in range(ORDERS // 2)]
    orders += [order[::-1] for order in orders]
    gain = shapley(correlation, orders)
    some = orders[:4] + orders[-4:]
    reference = shapley(correlation, some)
    jackknife = np.stack(
        [shapley(_correlation(sums.sum(0) - s, counts.sum(0) - c), some) for s, c in zip(sums, counts, strict=True)]
    )
    error = np.sqrt((BLOCKS - 1) / BLOCKS * ((jackknife - reference) ** 2).sum(0))
    untested = shared < MIN_SHARED
    by_chance = gain - 1 / np.maximum(shared, 1)  # what an unrelated sensor explains of n residuals
    explained = np.where(untested, 0.0, np.maximum(by_chance, 0)).sum(0)
    statistic, chance = _statistics(times, correlation, rng)
    return SameTime(
        np.where(untested, np.nan, by_chance),
        np.where(untested, np.nan, error),
        np.where(untested, np.nan, statistic),
        chance,
        explained,
    )


@dataclass(frozen=True, eq=False)
class Times:
    """The residuals at times that several sensors share, in the order of samples and times; n residuals."""

    number: int  # of such times
    time: Positions  # (n,) below `number`, rising
    sensor: Positions  # (n,)
    value: Floats  # (n,) standardised
    num_sensors: int

    @classmethod
    def of(cls, receivers: Sequence[Lagged | None]) -> Self:
        tested = [(at, each) for at, each in enumerate(receivers) if each is not None]
        sample = np.concatenate([each.rows.sample for _, each in tested])
        time = np.concatenate([each.rows.time for _, each in tested])
        sensor = np.concatenate([np.full(len(each.rows), at) for at, each in tested])
        value = np.concatenate(
            [np.clip(each.residual / max(each.residual.std(), 1e-12), -CLIP, CLIP) for _, each in tested]
        )
        order = np.lexsort([time, sample])
        sample, time, sensor, value = sample[order], time[order], sensor[order], value[order]
        step = np.cumsum((np.diff(time, prepend=np.nan) != 0) | (np.diff(sample, prepend=-1) != 0)) - 1
        several = np.bincount(step) > 1
        kept = several[step]
        place = np.cumsum(several) - 1
        return cls(int(several.sum()), place[step[kept]], sensor[kept], value[kept], len(receivers))

    def chunks(self) -> Iterator[tuple[Floats, NDArray[np.bool_], list[tuple[int, slice]]]]:
        """(times, sensors) residuals (0 if missing) and whether they are present; and the slice of each block."""
        bounds = [-(-at * self.number // BLOCKS) for at in range(BLOCKS + 1)]  # of blocks
        blocks = [(at, slice(bounds[at], bounds[at + 1])) for at in range(BLOCKS) if bounds[at] < bounds[at + 1]]
        for chunk in [blocks] if self.number <= CHUNK else [[each] for each in blocks]:
            start, stop = (chunk[0][1].start, chunk[-1][1].stop) if chunk else (0, 0)
            own = slice(*np.searchsorted(self.time, [start, stop]).tolist())
            observed = np.zeros((stop - start, self.num_sensors), dtype=bool)
            value = np.zeros(observed.shape)
            observed[self.time[own] - start, self.sensor[own]] = True
            value[self.time[own] - start, self.sensor[own]] = self.value[own]
            yield value, observed, [(at, slice(rows.start - start, rows.stop - start)) for at, rows in chunk]


def _correlation(sums: Floats, counts: Floats) -> Floats:
    """Shrunken correlations from sums over the times that each pair shares, made positive definite."""
    covariance = np.where(counts >= MIN_SHARED / 2, sums / np.maximum(counts, 1), 0.0)
    spread = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    values, vectors = np.linalg.eigh((1 - SHRINKAGE) * covariance / np.outer(spread, spread))
    correlation = (vectors * np.maximum(values, 0.0)) @ vectors.T
    np.fill_diagonal(correlation, np.diag(correlation) + SHRINKAGE)
    spread = np.sqrt(np.diag(correlation))
    result: Floats = correlation / np.outer(spread, spread)
    return result


def shapley(correlation: Floats, orders: Sequence[Positions]) -> Floats:
    """(u, v) how much u adds to the explained variance of v, mean over the orders in which sensors are added."""
    M = len(correlation)
    gain = np.zeros((M, M))
    for v in range(M):
        for order in orders:
            others = order[order != v]
            lower = np.linalg.cholesky(correlation[np.ix_(others, others)])
            gain[others, v] += np.linalg.solve(lower, correlation[others, v]) ** 2
    return gain / len(orders)


def _statistics(times: Times, correlation: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """(u, v) statistics of the products of what is left of u and v given all others; and of pairs with a surrogate.

    With the inverse K of the correlations and g = K x, what is left of both is the solution of K[uv, uv] r = g[uv].
    """
    M, precision = len(correlation), np.linalg.inv(correlation)
    pairs = [(u, v) for u in range(M) for v in range(u)]
    surrogates = [pairs[at] for at in np.sort(rng.permutation(len(pairs))[:SURROGATES])]
    sums, counts = np.zeros((BLOCKS, M, M)), np.zeros((BLOCKS, M, M))
    shifted, shifted_counts = np.zeros((BLOCKS, len(surrogates))), np.zeros((BLOCKS, len(surrogates)))
    own = np.diag(precision)
    crossed = own[:, None] * precision  # (u, v): K_uu K_uv
    squared = (np.outer(own, own) - precision**2) ** 2
    np.fill_diagonal(squared, 1.0)
    for value, observed, blocks in times.chunks():
        left = np.where(observed, _fill(value, observed, correlation) @ precision, 0.0)
        for at, rows in blocks:
            g, there = left[rows], observed[rows].astype(np.float64)
            square = (g**2).T @ there  # (u, v): of g_u, where v is there too
            products = (np.outer(own, own) + precision**2) * (g.T @ g) - crossed.T * square - crossed * square.T
            sums[at], counts[at] = products / squared, there.T @ there
        block = np.concatenate([np.full(rows.stop - rows.start, at) for at, rows in blocks])
        for at, (u, v) in enumerate(surrogates):
            both = observed[:, u] & observed[:, v]
            number = int(both.sum())
            if number < min(MIN_SHARED, len(block) // BLOCKS):
                continue
            g_u, g_v = left[both, u], left[both, v]
            shift = int(rng.integers(number // 10, number - number // 10))
            r_u, r_v = own[v] * g_u - precision[u, v] * g_v, own[u] * g_v - precision[u, v] * g_u
            shifted[:, at] += np.bincount(block[both], np.roll(r_u, shift) * r_v, minlength=BLOCKS)
            shifted_counts[:, at] += np.bincount(block[both], minlength=BLOCKS)
    enough = shifted_counts.sum(0) >= MIN_SHARED
    return _by_error(sums, counts), _by_error(shifted[:, enough], shifted_counts[:, enough])


def _by_error(sums: Floats, counts: Floats) -> Floats:
    """The absolute sum over non-empty blocks divided by its standard error; 0 if there are too few times."""
    present = counts > 0
    number = np.maximum(present.sum(0), 2)
    mean = sums.sum(0) / number
    error = np.sqrt((np.where(present, sums - mean, 0.0) ** 2).sum(0) / (number - 1) * number)
    known = (counts.sum(0) >= MIN_SHARED) & (present.sum(0) > 1) & (error > 0)
    statistic: Floats = np.where(known, np.abs(sums.sum(0)) / np.where(known, error, 1.0), 0.0)
    return statistic


def _fill(value: Floats, observed: NDArray[np.bool_], correlation: Floats) -> Floats:
    """Missing residuals, estimated from those at the same time by a few rounds of regression."""
    precision = np.linalg.inv(correlation)
    weights = -precision / np.diag(precision)  # (u, v) of u in the regression of v on all others
    np.fill_diagonal(weights, 0)
    filled = value.copy()
    for _ in range(20):
        filled = np.where(observed, value, filled @ weights)
    return filled
