"""The paper's distance statistic: are graphs nearer to those of their own class than to those of another?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import ConfigError, DataError
from raindrop.graphs.graph import SensorGraphs

CHUNK = 500  # permutations computed at once


@dataclass(frozen=True)
class Distances:
    """Mean Euclidean distance of graphs, within each class and across classes, over balanced draws (mean, deviation).

    `energy` is 2 across - within - within of one more draw, without replacement: 0 if the classes have the same
    distribution of graphs, above 0 if not; `p` how often dealing the labels anew makes it as large. A class whose
    graphs merely scatter less is nearer to itself than to the other as well: `within` below `across` shows little.
    """

    within: dict[Any, tuple[float, float]]
    across: tuple[float, float]
    energy: float
    p: float
    size: int
    """Samples of each class in a draw."""

    def frame(self) -> pl.DataFrame:
        """Columns: which, distance, deviation."""
        rows = [(f"within {label}", *pair) for label, pair in self.within.items()] + [("across", *self.across)]
        return pl.DataFrame(rows, schema=["which", "distance", "deviation"], orient="row")


def distances(
    graphs: SensorGraphs,
    labels: ArrayLike,
    *,
    draws: int = 5,
    most: int = 2000,
    permutations: int = 1000,
    seed: int = 0,
) -> Distances:
    """The paper's statistic (Appendix): are graphs nearer to those of their own class than to others?

    Every draw takes as many samples of each class as the smallest has (at most `most`), with replacement, as the
    paper does; a graph's distance to itself, and to its own copies, is left out.
    """
    codes = graphs.one_each(labels)
    classes, counts = np.unique(codes, return_counts=True)
    if len(classes) < 2 or counts.min() < 2:
        raise DataError("Distances within and across classes need two classes of at least two samples each.")
    if draws < 1:
        raise ConfigError(f"Distances need at least 1 draw, not {draws}.")
    rng = np.random.default_rng(seed)
    size = int(min(counts.min(), most))
    flat = graphs.weights.reshape(len(graphs), -1)
    found = []
    for _ in range(draws):
        drawn = np.concatenate([rng.choice(np.flatnonzero(codes == label), size) for label in classes])
        found.append(_between_blocks(_euclidean(flat[drawn]), drawn, len(classes)))
    stacked = np.stack(found)  # (draw, class, class)
    off = ~np.eye(len(classes), dtype=bool)
    across = stacked[:, off].mean(1)
    within = {
        label.item(): (float(stacked[:, at, at].mean()), float(stacked[:, at, at].std()))
        for at, label in enumerate(classes)
    }
    energy, p = _energy(flat, codes, classes, size, permutations, rng)
    return Distances(within, (float(across.mean()), float(across.std())), energy, p, size)


def _euclidean(x: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n, n) distances of rows; centred first, so that the square of a large common part does not swallow them."""
    x = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    square = (x * x).sum(1)
    distance: NDArray[np.float64] = np.sqrt(np.maximum(square[:, None] + square - 2 * x @ x.T, 0))
    return distance


def _between_blocks(distance: NDArray[np.float64], drawn: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """(class, class) mean distance, pairs of the same sample left out."""
    pair = (drawn[:, None] != drawn).astype(np.float64)
    shape = (classes, len(drawn) // classes) * 2
    total, number = ((x.reshape(shape)).sum((1, 3)) for x in (distance * pair, pair))
    mean: NDArray[np.float64] = total / np.maximum(number, 1)
    return mean


def _energy(
    flat: NDArray[np.float32],
    codes: NDArray[Any],
    classes: NDArray[Any],
    size: int,
    permutations: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Sum over pairs of classes of 2 across - within - within, and its permutation p; drawn without replacement."""
    drawn = np.concatenate([rng.permutation(np.flatnonzero(codes == label))[:size] for label in classes])
    distance = _euclidean(flat[drawn])
    member = np.repeat(np.arange(len(classes)), size)

    def statistic(members: NDArray[np.int64]) -> NDArray[np.float64]:  # (deal, sample) -> (deal,)
        inside = sum(
            np.einsum("pi,pi->p", held @ distance, held) for held in (members == at for at in range(len(classes)))
        )
        # over all pairs of classes, 2 across is total - inside, and within + within is (classes - 1) * inside
        value: NDArray[np.float64] = (distance.sum() - len(classes) * inside) / size**2
        return value

    observed = statistic(member[None])[0]
    as_large = 0
    for start in range(0, permutations, CHUNK):
        dealt = rng.permuted(np.tile(member, (min(CHUNK, permutations - start), 1)), axis=1)
        as_large += int((statistic(dealt) >= observed * (1 - 1e-9)).sum())
    return float(observed), (1 + as_large) / (1 + permutations)
