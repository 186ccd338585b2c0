"""How sure a metric is: confidence intervals by the bootstrap, for thousands of draws at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import ConfigError, DataError, suggest
from raindrop.tasks.metrics import CLASSIFICATION, METRICS, Array, Floats, Metric

CHUNK = 2_000_000  # draws times samples at once


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


def bootstrap(
    truth: Array,
    predicted: Array,
    names: Sequence[str] | None = None,
    *,
    metrics: Mapping[str, Metric] | None = None,
    strata: NDArray[np.int64] | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> dict[str, Interval]:
    """Metrics with percentile intervals, by drawing samples with replacement within each stratum.

    Strata are the true classes unless given, so that each draw has every class and AUROC stays defined for rare
    outcomes. The interval says how far other samples would move the value, not how far another training would.
    `names` are those of `metrics` that have a fast form where not given.
    """
    metrics = {name: METRICS[name] for name in CLASSIFICATION} if metrics is None else metrics
    fast = [name for name, metric in metrics.items() if metric.weighted is not None]
    names = fast if names is None else names
    if not len(truth):
        raise DataError("There are no samples, so there is no metric and no interval.")
    if draws < 1:
        raise ConfigError(f"An interval needs at least 1 draw, not {draws}.")
    for name in names:
        if name not in fast:
            raise ConfigError(f"There is no interval for '{name}': {suggest(name, fast)}")
    strata = truth if strata is None else strata
    drawn: dict[str, list[Floats]] = {name: [] for name in names}
    for counts in resampled_counts(strata, draws, seed):
        for name in names:
            weighted = metrics[name].weighted
            assert weighted is not None
            drawn[name].append(weighted(truth, predicted, counts))
    return {name: interval(metrics[name](truth, predicted), np.concatenate(drawn[name])) for name in names}


def interval(value: float, drawn: Floats) -> Interval:
    """The 95 % percentile interval of the draws that allow a value."""
    known = drawn[~np.isnan(drawn)]
    return Interval(value, *(np.quantile(known, [0.025, 0.975]).tolist() if len(known) else (np.nan, np.nan)))


def resampled_counts(strata: NDArray[np.int64], draws: int, seed: int) -> Iterator[Floats]:
    """(some draws, sample): how often each sample is drawn; of each stratum as many as it has."""
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    at_once = max(1, CHUNK // len(strata))
    for start in range(0, draws, at_once):
        size = min(at_once, draws - start)
        counts = np.zeros((size, len(strata)))
        for indices in members:
            even = np.full(len(indices), 1 / len(indices))
            counts[:, indices] = rng.multinomial(len(indices), even, size)
        yield counts
