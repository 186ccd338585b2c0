"""Which sensors move together at the same time, beyond what the past of all sensors predicts?

The residuals of the lagged regressions (`lagged.py`) at common times: what happened that nobody's past predicted. How
much u's residual explains of v's is averaged over all orders in which sensors may be considered (the Shapley value, or
LMG), so that two sensors with the same information share it. The test is of the partial correlation of u and v given
all other sensors. Neither has a direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raindrop.graphs.lagged import BLOCKS, Lagged
from raindrop.graphs.past import CLIP, Floats, Positions

MIN_SHARED = 60  # times at which two sensors are both read, to be compared
MAX_TIMES = 20_000  # of more times, so many are drawn
ORDERS = 40  # random orders, for the Shapley value
SHRINKAGE = 0.1  # of correlations towards 0
DEALT = 300  # pairs of which one is dealt anew


@dataclass(frozen=True, eq=False)
class SameTime:
    """Pairs of sensors at the same time; NaN for pairs that were not tested."""

    gain: Floats  # (u, v) share of v's residual variance that u explains, mean over orders
    error: Floats  # (u, v) its standard error
    statistic: Floats  # (u, v) symmetric: of the partial correlation, by its standard error over blocks
    by_chance: Floats  # (k,) the same with one of the two dealt anew
    explained: Floats  # (v,) share of v's residual variance that all others explain


def same_time(receivers: Sequence[Lagged | None], rng: np.random.Generator) -> SameTime:
    """Compare the residuals of all sensors; None is a sensor that was not tested."""
    M = len(receivers)
    residual = _by_time(receivers, rng)
    observed = np.isfinite(residual)
    empty = np.full((M, M), np.nan)
    shared = observed.T.astype(np.float64) @ observed
    np.fill_diagonal(shared, 0)
    if (shared < MIN_SHARED).all():
        return SameTime(empty, empty, empty, np.zeros(0), np.zeros(M))
    value = np.where(observed, residual, 0.0)
    block = np.arange(len(value)) * BLOCKS // len(value)
    sums = np.stack([value[block == at].T @ value[block == at] for at in range(BLOCKS)])
    counts = np.stack([observed[block == at].T.astype(np.float64) @ observed[block == at] for at in range(BLOCKS)])
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
    statistic, chance = _statistics(value, observed, correlation, block, rng)
    return SameTime(
        np.where(untested, np.nan, by_chance),
        np.where(untested, np.nan, error),
        np.where(untested, np.nan, statistic),
        chance,
        explained,
    )


def _by_time(receivers: Sequence[Lagged | None], rng: np.random.Generator) -> Floats:
    """(time, sensor) standardised residuals, NaN where a sensor was not read; only times that several share."""
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
    several = np.flatnonzero(np.bincount(step) > 1)
    if len(several) > MAX_TIMES:
        several = np.sort(rng.choice(several, MAX_TIMES, replace=False))
    place = np.full(step[-1] + 1, -1)
    place[several] = np.arange(len(several))
    dense = np.full((max(len(several), 1), len(receivers)), np.nan)
    kept = place[step] >= 0
    dense[place[step[kept]], sensor[kept]] = value[kept]
    return dense


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


def _statistics(
    value: Floats, observed: NDArray[np.bool_], correlation: Floats, block: Positions, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """(u, v) of products of what is left of u and of v given all others; and of pairs with one dealt anew."""
    M = len(correlation)
    filled = _fill(value, observed, correlation)
    statistic = np.zeros((M, M))
    pairs = [(u, v) for u in range(M) for v in range(u)]
    anew = {pairs[at] for at in rng.permutation(len(pairs))[:DEALT]}
    chance = []
    for u, v in pairs:
        both = observed[:, u] & observed[:, v]
        others = [w for w in range(M) if w not in (u, v)]
        left = [filled[:, u], filled[:, v]]
        if others:
            solved = np.linalg.solve(correlation[np.ix_(others, others)], correlation[np.ix_(others, [u, v])])
            left = [filled[:, w] - filled[:, others] @ solved[:, at] for at, w in enumerate((u, v))]
        statistic[u, v] = statistic[v, u] = _product_statistic(left[0][both], left[1][both], block[both])
        if (u, v) in anew and both.sum() >= MIN_SHARED:
            shift = int(rng.integers(both.sum() // 10, both.sum() - both.sum() // 10))
            chance.append(_product_statistic(np.roll(left[0][both], shift), left[1][both], block[both]))
    return statistic, np.array(chance)


def _fill(value: Floats, observed: NDArray[np.bool_], correlation: Floats) -> Floats:
    """Residuals that were not observed, estimated from those at the same time, by a few rounds of regression."""
    precision = np.linalg.inv(correlation)
    weights = -precision / np.diag(precision)  # (u, v) of u in the regression of v on all others
    np.fill_diagonal(weights, 0)
    filled = value.copy()
    for _ in range(20):
        filled = np.where(observed, value, filled @ weights)
    return filled


def _product_statistic(x: Floats, y: Floats, block: Positions) -> float:
    if len(x) < MIN_SHARED:
        return 0.0
    sums = np.bincount(block, x * y, minlength=BLOCKS)
    sums = sums[np.bincount(block, minlength=BLOCKS) > 0]
    error = float(sums.std(ddof=1)) * np.sqrt(len(sums)) if len(sums) > 1 else 0.0
    return abs(float(sums.sum())) / error if error > 0 else 0.0
