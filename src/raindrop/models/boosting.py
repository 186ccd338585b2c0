"""What growing boosted trees takes and gives: settings, training data, and trees as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from raindrop.ranges import Length, Positive, Range, Ranged, Share, Weight


@dataclass(frozen=True, kw_only=True)
class BoostingConfig(Ranged):
    """How trees are grown."""

    engine: Literal["sklearn", "lightgbm", "random"] = "sklearn"
    """What grows them: scikit-learn, LightGBM (extra `trees`), or "random": our own trees with random thresholds."""
    rounds: Length = 1000
    """Maximum rounds of boosting, one tree per round, or one per class and round where there are more than two."""
    patience: Length = 50
    """Stop after this many rounds without a lower validation loss; needs validation samples."""
    learning_rate: Positive = 0.05
    """Share of each tree's correction that is applied."""
    leaves: Annotated[int, Range(2, 65_536)] = 31
    """Maximum leaves of a tree."""
    min_samples: Length = 20
    """Minimum training samples in a leaf."""
    l2: Weight = 0.0
    """L2 regularisation of the leaf values."""
    columns: Annotated[float, Range(0, 1, above=True)] = 1.0
    """Share of the columns a tree (a split with scikit-learn) may choose from, drawn at random."""
    members: Length = 1
    """Forests that are grown side by side and averaged; more than one only with the engine "random"."""
    rows: Annotated[float, Range(0, 1, above=True)] = 1.0
    """Share of the samples that a tree learns from, drawn at random; below 1 only with the engine "random"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine != "random" and (self.members > 1 or self.rows < 1):
            raise ValueError(f'members and rows are for engine="random", not for engine="{self.engine}".')


@dataclass(frozen=True, kw_only=True)
class TreesConfig(BoostingConfig):
    """How the trees are grown, and on what."""

    summaries: Literal["nine", "more"] = "nine"
    """The columns: nine summaries per sensor, or also details such as slope and time since the last reading."""
    hide_sensors: Share = 0.0
    """Also grow on a copy of each sample without up to this share of its sensors, so that trees cope with sensors that
    fail later; 0 has no copies."""


@dataclass(frozen=True, kw_only=True)
class RandomTreesConfig(BoostingConfig):
    """How trees with random thresholds are grown."""

    engine: Literal["random"] = "random"
    """Trees with random thresholds; no other is possible here."""


@dataclass(frozen=True)
class Samples:
    """Training data of trees: columns (n, column), targets (n,) or (n, target), weights (n,)."""

    x: NDArray[np.float64]
    target: NDArray[Any]
    weight: NDArray[np.float32] | None = None

    def part(self, positions: NDArray[np.int64]) -> Samples:
        """These samples."""
        weight = None if self.weight is None else self.weight[positions]
        return Samples(self.x[positions], self.target[positions], weight)

    def only(self, columns: NDArray[np.int64]) -> Samples:
        """Only these columns; a constant one if there are none."""
        x = self.x[:, columns] if len(columns) else np.zeros((len(self.x), 1))
        return Samples(x, self.target, self.weight)


@dataclass(frozen=True)
class Nodes:
    """One tree, by node; node 0 is the root, and a leaf is its own child."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]  # a value up to this goes left
    missing_left: NDArray[np.bool_]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: NDArray[np.float64]  # of a leaf, 0 within
    depth: int
