"""Split conformal prediction: sets of classes and intervals that contain the true value with a given coverage.

With n validation samples, a class belongs to a sample's set if its probability is at least the k-th largest that a
validation sample gave to its true class, k = ceil((n + 1) coverage). If new samples come from the same source as the
validation samples, and these were used for nothing else, the set contains the true class with probability at least
`coverage`, for any n and any model (Vovk et al., "Algorithmic learning in a random world", 2005; the score is that of
Sadinle et al., JASA 2019, whose sets are the smallest on average). Intervals of quantities widen the predicted
quantiles by the k-th smallest distance that a validation sample lay outside them (Romano et al., NeurIPS 2019).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import ConfigError


@dataclass(frozen=True, eq=False)
class ConformalSets:
    """The probability that each validation sample gave to its true class, in rising order, and that class."""

    true_class: NDArray[np.float32]
    code: NDArray[np.int64]

    @classmethod
    def fit(cls, truth: NDArray[np.int64], probability: NDArray[np.float32]) -> Self:
        """Learn from the codes of the true classes and probabilities (samples, classes)."""
        true_class = probability[np.arange(len(truth)), truth].astype(np.float32)
        order = np.argsort(true_class, kind="stable")
        return cls(true_class[order], truth[order].astype(np.int64))

    def sets(self, probability: NDArray[Any], coverage: float, *, by_class: bool = False) -> NDArray[np.bool_]:
        """(samples, classes): which classes belong to each sample's set.

        With `by_class`, the coverage holds for each class, however rare: only its validation samples set its threshold.
        """
        require_coverage(coverage)
        codes = range(probability.shape[1])
        scores = [self.true_class[self.code == code] if by_class else self.true_class for code in codes]
        return probability >= np.array([_threshold(of_class, coverage) for of_class in scores], dtype=np.float32)


def _threshold(rising: NDArray[np.float32], coverage: float) -> float:
    """The k-th largest of the ascending numbers; 0, which admits every class, if there are too few."""
    k = _rank(len(rising), coverage)
    return float(rising[-k]) if k <= len(rising) else 0.0


def _rank(n: int, coverage: float) -> int:
    return math.ceil((n + 1) * coverage - 1e-9)  # in floating point 100 x 0.07 is a little more than 7


@dataclass(frozen=True, eq=False)
class ConformalIntervals:
    """How far each validation sample lay outside the predicted quantiles; negative if inside."""

    distance: NDArray[np.float32]  # (quantity, pair, n) rising; inf behind the samples that have the quantity
    count: NDArray[np.int64]  # (quantity,) samples that have it

    @classmethod
    def fit(cls, truth: NDArray[Any], predicted: NDArray[Any]) -> Self:
        """Learn from (samples, quantity), NaN where unknown, and predicted quantiles (samples, quantity, level).

        Levels are symmetric: the first and the last are a pair, and so on; a point prediction is its own pair.
        """
        pairs = (predicted.shape[2] + 1) // 2
        low = predicted[:, :, :pairs].astype(np.float64)
        high = predicted[:, :, ::-1][:, :, :pairs].astype(np.float64)
        outside = np.maximum(low - truth[..., None], truth[..., None] - high)  # (n, quantity, pair)
        known = ~np.isnan(truth)
        rising = np.sort(np.where(known[..., None], outside, np.inf), axis=0)
        return cls(np.ascontiguousarray(rising.transpose(1, 2, 0), dtype=np.float32), known.sum(0))

    def intervals(self, predicted: NDArray[Any], coverage: float, levels: Sequence[float]) -> NDArray[np.float64]:
        """(samples, quantity, 2): low and high; infinite if there are too few validation samples for the coverage."""
        require_coverage(coverage)
        pairs = (len(levels) + 1) // 2
        nominal = [levels[-1 - pair] - levels[pair] for pair in range(pairs)]
        pair = int(np.argmin(np.abs(np.array(nominal) - coverage)))
        low = predicted[:, :, pair].astype(np.float64)
        high = predicted[:, :, len(levels) - 1 - pair].astype(np.float64)
        widen = np.array([self._margin(at, pair, coverage) for at in range(predicted.shape[1])])
        low, high = low - widen, high + widen
        with np.errstate(invalid="ignore"):
            middle = (low + high) / 2
        crossed = low > high  # by a negative margin
        return np.stack([np.where(crossed, middle, low), np.where(crossed, middle, high)], axis=-1)

    def _margin(self, quantity: int, pair: int, coverage: float) -> float:
        count = int(self.count[quantity])
        k = _rank(count, coverage)
        return float(self.distance[quantity, pair, k - 1]) if k <= count else math.inf


@dataclass(frozen=True, eq=False)
class GroupedIntervals:
    """Intervals that are widened by group, so that easy and hard cases both have the requested coverage.

    Groups are ranges of a number that is known for every case, such as the distance to the nearest reading (conformal
    prediction by category: Vovk et al., 2005).
    """

    edges: NDArray[np.float64]  # (groups - 1,) rising; a group includes its upper edge
    distance: NDArray[np.float32]  # (group, pair, n) as in ConformalIntervals
    count: NDArray[np.int64]  # (group,)

    @classmethod
    def fit(
        cls,
        truth: NDArray[Any],
        predicted: NDArray[Any],
        number: NDArray[np.float64],
        candidates: Sequence[float],
        smallest: int,
    ) -> Self:
        """Learn from truth (n,), quantiles (n, level) and the number of each case.

        The edges are those candidates that leave at least `smallest` cases in every group.
        """
        edges: list[float] = []
        for edge in candidates:
            above = edges[-1] if edges else -np.inf
            if min(((number > above) & (number <= edge)).sum(), (number > edge).sum()) >= smallest:
                edges.append(edge)
        group = np.searchsorted(edges, number)
        by_group = np.full((len(truth), len(edges) + 1), np.nan)
        by_group[np.arange(len(truth)), group] = truth
        fitted = ConformalIntervals.fit(by_group, predicted[:, None])
        most = int(fitted.count.max(initial=0))
        return cls(np.array(edges), np.ascontiguousarray(fitted.distance[:, :, :most]), fitted.count)

    def intervals(
        self, predicted: NDArray[Any], number: NDArray[np.float64], coverage: float, levels: Sequence[float]
    ) -> NDArray[np.float64]:
        """(n, 2): low and high of predicted quantiles (n, level); `number` is that of each case."""
        group = np.searchsorted(self.edges, number)
        result = np.zeros((len(predicted), 2))
        for at in range(len(self.count)):
            of_group = ConformalIntervals(self.distance[at : at + 1], self.count[at : at + 1])
            result[group == at] = of_group.intervals(predicted[group == at][:, None], coverage, levels)[:, 0]
        return result


def require_coverage(coverage: float) -> None:
    """Raise unless the coverage is between 0 and 1."""
    if not isinstance(coverage, Real) or not 0 < coverage < 1:
        raise ConfigError(f"coverage={coverage!r}: the share to cover must lie above 0 and below 1, such as 0.9.")
