"""Uncertainty of a metric: bootstrap confidence intervals, for thousands of draws at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import check_seed
from raindrop.tasks.metrics import Floats

CHUNK = 2_000_000  # draws x samples per chunk


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


def interval(value: float, drawn: Floats) -> Interval:
    """The 95 % percentile interval of the draws for which the metric is defined."""
    known = drawn[~np.isnan(drawn)]
    return Interval(value, *(np.quantile(known, [0.025, 0.975]).tolist() if len(known) else (np.nan, np.nan)))


def resampled_counts(strata: NDArray[np.int64], draws: int, seed: int) -> Iterator[Floats]:
    """(some draws, sample): how often each sample is drawn; each stratum keeps its size."""
    rng = np.random.default_rng(check_seed(seed))
    members = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    at_once = max(1, CHUNK // len(strata))
    for start in range(0, draws, at_once):
        size = min(at_once, draws - start)
        counts = np.zeros((size, len(strata)))
        for indices in members:
            even = np.full(len(indices), 1 / len(indices))
            counts[:, indices] = rng.multinomial(len(indices), even, size)
        yield counts
