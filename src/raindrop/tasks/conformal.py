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

FLOOR = 0.01  # of the median half width: narrower intervals are stretched as if they had this one


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
        pair = _nearest_pair(levels, coverage)
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
    """Intervals that are stretched by group, so that easy and hard cases both have the requested coverage.

    Groups are ranges of a number that is known for every case, such as the distance to the nearest reading (conformal
    prediction by category: Vovk et al., 2005). Within a group the predicted widths may still differ a hundredfold, so
    intervals are stretched or shrunk by a factor, not by an amount that would suit none of them (normalised errors:
    Papadopoulos et al., 2002). Point predictions have no width; their intervals all have the same one.
    """

    edges: NDArray[np.float64]  # (groups - 1,) rising; a group includes its upper edge
    ratio: NDArray[
        np.float32
    ]  # (group, pair, n) rising: distance from the middle, in half widths; inf behind the cases
    count: NDArray[np.int64]  # (group,)
    floor: NDArray[np.float64]  # (pair,) the smallest half width that counts

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
        middle, half = _middle_and_half(predicted)  # (n, pair)
        floor = FLOOR * np.median(half, axis=0) if len(half) else np.zeros(half.shape[1])
        floor = np.where(floor > 0, floor, 1.0)
        ratio = np.abs(truth[:, None] - middle) / np.maximum(half, floor)
        count = np.bincount(group, minlength=len(edges) + 1)
        rising = np.full((len(edges) + 1, half.shape[1], int(count.max(initial=0))), np.inf, dtype=np.float32)
        for at, size in enumerate(count):
            rising[at, :, :size] = np.sort(ratio[group == at], axis=0).T
        return cls(np.array(edges), rising, count, floor)

    def intervals(
        self, predicted: NDArray[Any], number: NDArray[np.float64], coverage: float, levels: Sequence[float]
    ) -> NDArray[np.float64]:
        """(n, 2): low and high of predicted quantiles (n, level); `number` is that of each case."""
        require_coverage(coverage)
        pair = _nearest_pair(levels, coverage)
        rank = [_rank(int(size), coverage) for size in self.count]
        known = zip(self.ratio[:, pair], self.count, rank, strict=True)
        factor = np.array([float(ratio[k - 1]) if k <= size else np.inf for ratio, size, k in known])
        middle, half = (column[:, pair] for column in _middle_and_half(predicted))
        reach = factor[np.searchsorted(self.edges, number)] * np.maximum(half, self.floor[pair])
        return np.stack([middle - reach, middle + reach], axis=-1)


def _middle_and_half(predicted: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n, pair) the middle and half the width of each symmetrical pair of quantiles (n, level)."""
    pairs = (predicted.shape[1] + 1) // 2
    low, high = (side[:, :pairs].astype(np.float64) for side in (predicted, predicted[:, ::-1]))
    return (low + high) / 2, np.abs(high - low) / 2


def _nearest_pair(levels: Sequence[float], coverage: float) -> int:
    """The pair of symmetrical levels whose nominal coverage is nearest."""
    nominal = [levels[-1 - pair] - levels[pair] for pair in range((len(levels) + 1) // 2)]
    return int(np.argmin(np.abs(np.array(nominal) - coverage)))


def require_coverage(coverage: float) -> None:
    """Raise unless the coverage is between 0 and 1."""
    if not isinstance(coverage, Real) or not 0 < coverage < 1:
        raise ConfigError(f"coverage={coverage!r}: the share to cover must lie above 0 and below 1, such as 0.9.")
