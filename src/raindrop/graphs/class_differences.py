"""Class graphs: the graph of each class of a labelled table, how they differ, and the evidence for it.

The comparison is of effects of sender u on receiver v, measured without using labels: how much worse each hidden
reading of v is predicted without u. They are summed by sample; labels are then permuted over samples or whole groups.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from raindrop.errors import ConfigError, DataError
from raindrop.graphs.evidence import Stability, stability
from raindrop.graphs.export import write_frame
from raindrop.graphs.graph import SensorGraph
from raindrop.graphs.permutation import CHUNK, permuted_masks

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
FIRST = 1000  # permutations of every edge
ENOUGH = 20  # stop after this many permutations with as large a difference: p cannot become small
PER_TEST = 40  # permutations for each test, so that a single edge can have a small q
MAX_PERMUTATIONS = 200_000
MIN_SAMPLES = 5  # minimum per class, with a hidden reading of the receiver
EVIDENCE = {
    "class": pl.String,
    "sender": pl.String,
    "receiver": pl.String,
    "difference": pl.Float64,
    "in_class": pl.Float64,
    "in_others": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
}


@dataclass(frozen=True, eq=False)
class Effects:
    """Sums over the hidden readings of each sample; axes: n samples, u senders, v receivers."""

    sensors: tuple[str, ...]
    total: NDArray[np.float32]  # (n, u, v) effect of u on v
    count: NDArray[np.float32]  # (n, v) hidden readings of v


@dataclass(frozen=True, eq=False)
class ClassGraphs:
    """The graph of each class and the differences between them."""

    graphs: dict[Any, SensorGraph]
    """By label: the edges with evidence within the class."""
    differences: dict[Any, SensorGraph]
    """By label: the class minus all others, only edges with evidence (`found`). Of two classes: second minus first."""
    evidence: pl.DataFrame
    """Every test, smallest p first: class, sender, receiver, difference, in_class, in_others, p, q, recurs, found.

    recurs: the share of the models with other seeds that have as small a q and the same sign; null if there are none.
    found: whether the pair is an edge of `differences`: q is small, it recurs with every seed, and it is an edge of the
    graph of at least one class. (A sender that helps in no class can still mislead a model more in one of them.)
    """
    q: float
    """The largest q-value of an edge of `differences`."""
    stability: dict[Any, Stability]
    """By label: how well models with other seeds agree on the differences, over all edges; empty if there are none."""
    num_other_seeds: int = 0

    @property
    def difference(self) -> SensorGraph:
        """With two classes: the second minus the first, only edges with evidence."""
        if len(self.differences) > 1:
            raise ConfigError(f"There are {len(self.differences)} classes; `differences` has one graph for each.")
        return next(iter(self.differences.values()))

    def describe_stability(self) -> str:
        """One or two sentences on whether models with other seeds find the same differences."""
        if not self.num_other_seeds:
            return (
                "Not compared with models of other seeds, so an edge may be an accident of this one. "
                "Train again with another seed and give both."
            )
        found = self.evidence.filter(pl.col("q") <= self.q)
        lost = found.filter(pl.col("recurs") < 1)
        others = "1 model" if self.num_other_seeds == 1 else f"{self.num_other_seeds} models"
        end = "recur in each of them." if not len(lost) else "recur in each of them; the rest are not shown as edges."
        return f"Compared with {others} of other seeds: {len(found) - len(lost)} of {len(found)} differences {end}"

    def write_evidence(self, path: str | os.PathLike[str]) -> Path:
        """Write all tests as .parquet or .csv."""
        return write_frame(self.evidence, path)


def compare_classes(
    effects: Sequence[Effects],
    graphs: Mapping[Any, SensorGraph],
    labels: NDArray[Any],
    group: Codes,
    *,
    q: float = 0.05,
    permutations: int | None = None,
    seed: int = 0,
) -> ClassGraphs:
    """Test every edge for a difference between each class and all others.

    effects: of the model, then of models with other seeds; labels and group (n,): of each sample. permutations: the
    maximum number, by default forty for each test.
    """
    if not 0 < q < 1:
        raise ConfigError(f"q={q!r}: the share of false edges to allow must lie between 0 and 1, such as 0.05.")
    classes, sizes = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise DataError("A comparison of classes needs samples of at least two; all labels are the same.")
    if sizes.min() < MIN_SAMPLES:
        rare = classes[int(sizes.argmin())]
        raise DataError(
            f"Class '{rare}' has {sizes.min()} labelled samples; a comparison needs at least {MIN_SAMPLES} of each."
        )
    sensors = effects[0].sensors
    compared = classes[1:] if len(classes) == 2 else classes
    if permutations is None:
        tests = len(compared) * len(sensors) * (len(sensors) - 1)
        permutations = int(np.clip(PER_TEST * tests, 5 * FIRST, MAX_PERMUTATIONS))
    results = [_all_tests(each, labels, compared, group, permutations, [seed, at]) for at, each in enumerate(effects)]
    evidence = results[0].with_columns(recurs=_recurs(results[0], results[1:], q))
    evidence = evidence.with_columns(
        found=(pl.col("q") <= q) & (pl.col("recurs").fill_null(1.0) == 1) & _in_a_class(evidence, graphs)
    )
    kept = evidence.filter("found")
    differences, agreement = {}, {}
    for label in compared:
        name = f"{label} minus {classes[0] if len(classes) == 2 else 'all others'}"
        differences[label.item()] = replace(
            _as_graph(kept, sensors, label), name=name, empty_reason=_no_difference(evidence, kept, label, q)
        )
        if len(results) > 1:
            everything = [_as_graph(each, sensors, label) for each in results]
            agreement[label.item()] = stability(everything, top=min(20, max(1, len(sensors) * (len(sensors) - 1) // 8)))
    return ClassGraphs(dict(graphs), differences, evidence, q, agreement, len(results) - 1)


def _in_a_class(evidence: pl.DataFrame, graphs: Mapping[Any, SensorGraph]) -> pl.Series:
    """(tests,) whether the pair is an edge of the graph of at least one class."""
    pairs = {pair for graph in graphs.values() for pair in graph.edges().select("sender", "receiver").iter_rows()}
    return pl.Series([pair in pairs for pair in evidence.select("sender", "receiver").iter_rows()], dtype=pl.Boolean)


def _recurs(own: pl.DataFrame, others: Sequence[pl.DataFrame], q: float) -> pl.Series:
    """(tests,) the share of the other models in which q is as small and the difference has the same sign."""
    if not others:
        return pl.Series([None] * len(own), dtype=pl.Float64)
    keys, same = ["class", "sender", "receiver"], np.zeros(len(own))
    for other in others:
        found = other.filter(pl.col("q") <= q).select(*keys, other="difference")
        joined = own.join(found, on=keys, how="left", maintain_order="left")
        same += (joined["difference"] * joined["other"] > 0).fill_null(False).to_numpy()
    return pl.Series(same / len(others), dtype=pl.Float64)


def _all_tests(
    effects: Effects,
    labels: NDArray[Any],
    compared: NDArray[Any],
    group: Codes,
    permutations: int,
    seed: Sequence[int],
) -> pl.DataFrame:
    frames = []
    for at, label in enumerate(compared):
        rng = np.random.default_rng([*seed, at])
        frames.append(_tests(effects, labels == label, str(label), group, permutations, rng))
    frame = pl.concat(frames)
    adjusted = stats.false_discovery_control(frame["p"].to_numpy()) if len(frame) else np.zeros(0)
    frame = frame.with_columns(q=pl.Series(adjusted, dtype=pl.Float64))
    return frame.sort("p", pl.col("difference").abs(), descending=[False, True], maintain_order=True)


def _tests(
    effects: Effects,
    selected: NDArray[np.bool_],
    label: str,
    group: Codes,
    permutations: int,
    rng: np.random.Generator,
) -> pl.DataFrame:
    """All edges of one comparison, with p."""
    M = len(effects.sensors)
    read = effects.count > 0
    testable = (read[selected].sum(0) >= MIN_SAMPLES) & (read[~selected].sum(0) >= MIN_SAMPLES)
    u, v = np.nonzero(~np.eye(M, dtype=bool) & testable)
    total, count = effects.total[:, u, v], effects.count[:, v]  # (n, edge)
    mask = selected.astype(np.float32)[None]
    statistic, mean, others = _statistic(mask, total, count)
    constant = np.ptp(total, 0) == 0
    at_least = np.abs(statistic[0]) * (1 - 1e-5)
    as_large, done = np.zeros(len(u), dtype=np.int64), np.zeros(len(u), dtype=np.int64)
    left = np.flatnonzero(~constant)
    for start in range(0, permutations, CHUNK):
        if not len(left):
            break
        masks = permuted_masks(selected, group, min(CHUNK, permutations - start), rng)
        found = np.abs(_statistic(masks, total[:, left], count[:, left])[0]) >= at_least[left]
        as_large[left] += found.sum(0)
        done[left] += len(masks)
        if start + CHUNK >= FIRST:
            left = left[as_large[left] < ENOUGH]
    p = np.where(constant, 1.0, (1 + as_large) / (1 + done))
    names = pl.Series(effects.sensors, dtype=pl.String)
    columns: list[Any] = [pl.repeat(label, len(u), dtype=pl.String, eager=True), names.gather(u), names.gather(v)]
    columns += [mean[0] - others[0], mean[0], others[0], p, np.ones(len(u))]
    return pl.DataFrame(dict(zip(EVIDENCE, columns, strict=True)), schema=EVIDENCE)


def _statistic(
    masks: NDArray[np.float32], total: NDArray[np.float32], count: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(permutation, edge) difference of the mean effects divided by its standard error, and the two means.

    Dividing by the error avoids mistaking a class whose effects only vary more for one with another mean. The error is
    over samples, of a mean over readings: a sample with many hidden readings counts more.
    """
    products = total * total, total * count, count * count
    means, variances = [], []
    inside = [masks @ each for each in (total, count, *products)]
    for sums in (inside, [each.sum(0) - part for each, part in zip((total, count, *products), inside, strict=True)]):
        effect, number, square, cross, count_square = (each.astype(np.float64) for each in sums)
        number = np.maximum(number, 1.0)
        mean = effect / number
        means.append(mean)
        variances.append(np.maximum(square - 2 * mean * cross + mean**2 * count_square, 0) / number**2)
    error = np.sqrt(variances[0] + variances[1])
    difference = means[0] - means[1]
    return difference / np.maximum(error, 1e-9), means[0], means[1]


def _as_graph(frame: pl.DataFrame, sensors: tuple[str, ...], label: Any) -> SensorGraph:
    """The differences of one class as weights."""
    position = {name: at for at, name in enumerate(sensors)}
    weights = np.zeros((len(sensors),) * 2, dtype=np.float32)
    rows = frame.filter(pl.col("class") == str(label)).select("sender", "receiver", "difference")
    for sender, receiver, difference in rows.iter_rows():
        weights[position[sender], position[receiver]] = difference
    return SensorGraph(sensors, weights)


def _no_difference(evidence: pl.DataFrame, kept: pl.DataFrame, label: Any, q: float) -> str:
    """The reason why a difference has no edges."""
    tested = evidence.filter(pl.col("class") == str(label))
    if not len(tested):
        return "no receiver has hidden readings in enough samples of both sides; use a table with more samples"
    small = tested.filter(pl.col("q") <= q)
    if len(small) and not len(kept.filter(pl.col("class") == str(label))):
        lasting = small.filter(pl.col("recurs").fill_null(1.0) == 1)
        why = "is an edge of the graph of a class" if len(lasting) else "recurs with every other seed"
        return f"none of the {len(small)} differences with a q-value up to {q:g} {why}"
    lowest = float(tested["q"].to_numpy().min())
    return (
        f"none of {len(tested):,} tests has a q-value up to {q:g} (the lowest is {lowest:.2g}); "
        "with more samples, smaller differences can be found"
    )
