"""Sets of classes that hold the right one as often as asked: split conformal prediction.

With n validation samples, a class belongs to a sample's set if its probability is at least the k-th largest that a
validation sample gave to its right class, k = ceil((n + 1) coverage). If new samples come from where the validation
samples came from and these chose nothing else, the set holds the right class with probability at least `coverage`,
for any n and any model (Vovk et al., "Algorithmic learning in a random world", 2005; the score is that of Sadinle
et al., JASA 2019, whose sets are the smallest on average).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Conformal:
    """The probability that each validation sample gave to its right class, in rising order, and that class."""

    right: NDArray[np.float32]
    code: NDArray[np.int64]

    @classmethod
    def fit(cls, truth: NDArray[np.int64], probability: NDArray[np.float32]) -> Self:
        """Learn from the codes of the right classes and (samples, classes)."""
        right = probability[np.arange(len(truth)), truth]
        order = np.argsort(right, kind="stable")
        return cls(right[order], truth[order].astype(np.int64))

    def sets(self, probability: NDArray[Any], coverage: float, *, by_class: bool = False) -> NDArray[np.bool_]:
        """(samples, classes): who belongs to the set.

        By class, each class is covered by itself, however rare it is: its validation samples alone set its threshold.
        """
        require_share(coverage)
        classes = range(probability.shape[1])
        held = [self.right[self.code == code] if by_class else self.right for code in classes]
        return probability >= np.array([threshold(right, coverage) for right in held], dtype=np.float32)


def threshold(right: NDArray[np.float32], coverage: float) -> float:
    """The k-th largest of the rising numbers; 0, which lets everything in, where they are too few to tell."""
    k = math.ceil((len(right) + 1) * coverage - 1e-9)  # 100 x 0.07 is a little more than 7
    return float(right[-k]) if k <= len(right) else 0.0


def require_share(coverage: float) -> None:
    """Raise unless there can be such a coverage."""
    if not 0 < coverage < 1:
        raise ConfigError(f"coverage={coverage}: how often a set shall hold the right class, above 0 and below 1.")
