"""The paper's distance statistic: are graphs closer to those of their own class than to those of other classes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import euclidean_distances

from raindrop.errors import ConfigError, DataError
from raindrop.graphs.graph import SensorGraphs

CHUNK = 500  # permutations per matrix product


@dataclass(frozen=True)
class Distances:
    """Mean Euclidean distance between graphs, within each class and across classes: (mean, std) over draws.

    `energy` is the energy distance 2 across - within - within, of one more draw without replacement. It is 0 if the
    classes have the same distribution of graphs and positive otherwise; `p` is its permutation p-value. `within` below
    `across` alone shows little: it also occurs if the graphs of one class only vary less.
    """

    within: dict[Any, tuple[float, float]]
    across: tuple[float, float]
    energy: float
    p: float
    samples_per_class: int
    """The number of samples in each draw."""

    def frame(self) -> pl.DataFrame:
        """Columns: comparison, distance, std."""
        rows = [(f"within {label}", *pair) for label, pair in self.within.items()] + [("across", *self.across)]
        return pl.DataFrame(rows, schema=["comparison", "distance", "std"], orient="row")


def distances(
    graphs: SensorGraphs,
    labels: ArrayLike,
    *,
    draws: int = 5,
    max_samples: int = 2000,
    permutations: int = 1000,
    seed: int = 0,
) -> Distances:
    """The paper's statistic (Appendix): mean distances between graphs within and across classes.

    As in the paper, each draw takes the same number of samples from each class, with replacement: the size of the
    smallest class, at most `max_samples`. Pairs of a graph with itself or with its own copy are left out.
    """
    label_of_sample = graphs.check_labels(labels)
    classes, counts = np.unique(label_of_sample, return_counts=True)
    if len(classes) < 2 or counts.min() < 2:
        raise DataError("Distances within and across classes need two classes of at least two samples each.")
    if draws < 1:
        raise ConfigError(f"Distances need at least 1 draw, not {draws}.")
    rng = np.random.default_rng(seed)
    size = int(min(counts.min(), max_samples))
    flat = graphs.weights.reshape(len(graphs), -1)
    means = []
    for _ in range(draws):
        drawn = np.concatenate([rng.choice(np.flatnonzero(label_of_sample == label), size) for label in classes])
        means.append(_mean_by_class(_pairwise_distances(flat[drawn]), drawn, len(classes)))
    stacked = np.stack(means)  # (draw, class, class)
    different = ~np.eye(len(classes), dtype=bool)
    across = stacked[:, different].mean(1)
    within = {
        label.item(): (float(stacked[:, code, code].mean()), float(stacked[:, code, code].std()))
        for code, label in enumerate(classes)
    }
    energy, p = _energy_test(flat, label_of_sample, classes, size, permutations, rng)
    return Distances(within, (float(across.mean()), float(across.std())), energy, p, size)


def _pairwise_distances(x: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n, n) distances between rows; centred first, so that a large common offset does not cost precision."""
    centred = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    distance: NDArray[np.float64] = euclidean_distances(centred)
    return distance


def _mean_by_class(distance: NDArray[np.float64], drawn: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """(class, class) mean distance over pairs of different samples; rows lie class by class."""
    different = (drawn[:, None] != drawn).astype(np.float64)
    shape = (classes, len(drawn) // classes) * 2
    total, number = (x.reshape(shape).sum((1, 3)) for x in (distance * different, different))
    mean: NDArray[np.float64] = total / np.maximum(number, 1)
    return mean


def _energy_test(
    flat: NDArray[np.float32],
    label_of_sample: NDArray[Any],
    classes: NDArray[Any],
    size: int,
    permutations: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """The energy distance summed over pairs of classes, and its permutation p-value; drawn without replacement."""
    drawn = np.concatenate([rng.permutation(np.flatnonzero(label_of_sample == label))[:size] for label in classes])
    distance = _pairwise_distances(flat[drawn])
    code = np.repeat(np.arange(len(classes)), size)

    def energy(codes: NDArray[np.int64]) -> NDArray[np.float64]:  # (permutation, sample) -> (permutation,)
        members = [codes == each for each in range(len(classes))]
        within = sum(np.einsum("pi,pi->p", member @ distance, member) for member in members)
        # Summed over all pairs of classes, 2 across is total - within, and within + within is (classes - 1) * within.
        value: NDArray[np.float64] = (distance.sum() - len(classes) * within) / size**2
        return value

    observed = energy(code[None])[0]
    as_large = 0
    for start in range(0, permutations, CHUNK):
        permuted = rng.permuted(np.tile(code, (min(CHUNK, permutations - start), 1)), axis=1)
        as_large += int((energy(permuted) >= observed * (1 - 1e-9)).sum())
    return float(observed), (1 + as_large) / (1 + permutations)
