"""Evidence for edges: permutation tests of differences between cohorts, and stability over seeds or samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from raindrop.errors import ConfigError, DataError
from raindrop.graphs.graph import SensorGraph, SensorGraphs
from raindrop.graphs.permutation import CHUNK, group_codes, permuted_masks


def difference_test(
    graphs: SensorGraphs, mask: ArrayLike, *, groups: ArrayLike | None = None, permutations: int = 5000, seed: int = 0
) -> pl.DataFrame:
    """Test each edge between different sensors for a difference between the samples in `mask` and the others.

    groups: one for each sample, such as the person it belongs to; samples of a group are permuted together.

    `weight` is the mean weight of the selected samples minus that of the others. p is the two-sided p-value of a
    permutation test (1 for an edge with the same weight in all samples); the smallest possible p is
    1 / (permutations + 1). q is the Benjamini-Hochberg adjusted p-value: of all edges with q below 0.05, about 5 % are
    expected to be false discoveries. Columns: sender, receiver, weight, selected, others, p, q; smallest p first.
    """
    if permutations < 1:
        raise ConfigError(f"A permutation test needs at least 1 permutation, not {permutations}.")
    selected = graphs.check_mask(mask)
    group = group_codes(groups, len(graphs))
    u, v = np.nonzero(~np.eye(len(graphs.sensors), dtype=bool))
    weights = graphs.weights[:, u, v].astype(np.float64)  # (sample, edge)
    mean_selected, mean_others = weights[selected].mean(0), weights[~selected].mean(0)
    difference = mean_selected - mean_others
    constant = np.ptp(weights, 0) == 0
    centred = (weights - weights.mean(0)).astype(np.float32)

    def size(masks: NDArray[np.float32]) -> NDArray[np.float32]:
        """(permutation, edge) absolute differences; centred weights sum to 0, so that one side is enough."""
        share = masks.mean(1, keepdims=True)
        larger: NDArray[np.float32] = np.abs(masks @ centred) / (share * (1 - share) * len(graphs))
        return larger

    observed = size(selected.astype(np.float32)[None])[0]
    share = float(selected.mean())
    rounding = 1e-5 * np.abs(centred).sum(0) / (share * (1 - share) * len(graphs))
    at_least = observed - rounding  # so that rounding does not exclude an equal permutation
    rng = np.random.default_rng(seed)
    as_large = np.zeros(len(u), dtype=np.int64)
    for start in range(0, permutations, CHUNK):
        masks = permuted_masks(selected, group, min(CHUNK, permutations - start), rng)
        as_large += (size(masks) >= at_least).sum(0)
    p = np.where(constant, 1.0, (1 + as_large) / (1 + permutations))
    names = pl.Series(graphs.sensors, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "sender": names.gather(u),
            "receiver": names.gather(v),
            "weight": difference.astype(np.float32),
            "selected": mean_selected.astype(np.float32),
            "others": mean_others.astype(np.float32),
            "p": p,
            "q": stats.false_discovery_control(p),
        }
    )
    return frame[np.lexsort((-np.abs(difference), p))]


# ---------------------------------------------------------------- stability


@dataclass(frozen=True)
class Stability:
    """How well several estimates of the same graph agree, for example from other seeds or other samples."""

    rank_correlation: float
    """Spearman correlation of the weights of all edges between different sensors, mean over pairs of graphs."""
    overlap: float
    """Share of the top edges that two graphs have in common, mean over pairs of graphs."""
    expected_overlap: float
    """`overlap` of unrelated graphs."""
    edges: pl.DataFrame
    """sender, receiver, share (of graphs with this edge among their top edges), weight (mean), std, same_sign."""
    stable: bool
    reason: str
    """The result in one sentence, to print beside a plot."""


def stability(
    graphs: Sequence[SensorGraph], *, top: int = 20, min_correlation: float = 0.7, min_overlap: float = 0.5
) -> Stability:
    """Compare graphs that should agree: of models trained with different seeds, or of `bootstrap`.

    They are stable if both the rank correlation and the overlap of the `top` edges reach their minimum.
    """
    if len(graphs) < 2:
        raise DataError(f"Stability compares several graphs; there is {len(graphs)}. Train with two or more seeds.")
    sensors = graphs[0].sensors
    if any(graph.sensors != sensors for graph in graphs):
        raise DataError("Stability compares graphs of the same sensors, in the same order.")
    u, v = np.nonzero(~np.eye(len(sensors), dtype=bool))
    top = min(top, len(u))
    if top < 1:
        raise DataError("Stability needs at least two sensors and a top of at least 1 edge.")
    weights = np.stack([graph.weights[u, v] for graph in graphs]).astype(np.float64)  # (graph, edge)
    size = np.abs(weights)
    in_top = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(in_top, np.argsort(-size, axis=1, kind="stable")[:, :top], True, axis=1)
    in_top &= size > 0
    pairs = np.triu_indices(len(graphs), 1)
    correlation = float(_rank_correlations(weights)[pairs].mean())
    overlap = float((in_top.astype(np.float64) @ in_top.T)[pairs].mean() / top)
    expected = top / len(u)
    names = pl.Series(sensors, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "sender": names.gather(u),
            "receiver": names.gather(v),
            "share": in_top.mean(0),
            "weight": weights.mean(0).astype(np.float32),
            "std": weights.std(0).astype(np.float32),
            "same_sign": (np.sign(weights) == np.sign(weights[0])).all(0),
        }
    )
    frame = frame[np.lexsort((-np.abs(weights.mean(0)), -in_top.mean(0)))]
    stable = correlation >= min_correlation and overlap >= min_overlap
    if not size.any():
        reason = f"None of the {len(graphs)} graphs has an edge, so there is nothing to compare."
    else:
        reason = (
            f"Over {len(graphs)} graphs, the mean rank correlation is {correlation:.2f} and {overlap:.0%} of the top "
            f"{top} edges are the same (expected by chance: {expected:.0%}): "
            + ("stable." if stable else "not stable. Do not interpret single edges of this graph.")
        )
    return Stability(correlation, overlap, expected, frame, stable, reason)


def _rank_correlations(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """(graph, graph) Spearman correlation of rows; 0 for a constant row, for which it is undefined."""
    ranks = stats.rankdata(weights, axis=1)
    varying = np.flatnonzero(np.ptp(ranks, axis=1) > 0)
    correlation = np.zeros((len(weights), len(weights)))
    if len(varying):
        correlation[np.ix_(varying, varying)] = np.corrcoef(ranks[varying])
    return correlation


def bootstrap(
    graphs: SensorGraphs, mask: ArrayLike | None = None, *, draws: int = 100, seed: int = 0
) -> list[SensorGraph]:
    """Mean graphs of bootstrap samples; with a mask, differences between the selected samples and the others.

    They show how much a graph depends on the choice of samples, not on the training run.
    """
    if draws < 1 or not len(graphs):
        raise ConfigError(f"A bootstrap needs at least 1 draw and 1 sample, not {draws} and {len(graphs)}.")
    rng = np.random.default_rng(seed)
    flat = graphs.weights.reshape(len(graphs), -1)

    def bootstrap_means(positions: NDArray[np.int64]) -> NDArray[np.float32]:
        counts = rng.multinomial(len(positions), np.full(len(positions), 1 / len(positions)), draws)
        mean: NDArray[np.float32] = counts.astype(np.float32) @ flat[positions] / np.float32(len(positions))
        return mean

    if mask is None:
        rows = bootstrap_means(np.arange(len(graphs)))
    else:
        selected = graphs.check_mask(mask)
        rows = bootstrap_means(np.flatnonzero(selected)) - bootstrap_means(np.flatnonzero(~selected))
    shape = (len(graphs.sensors),) * 2
    return [SensorGraph(graphs.sensors, row.reshape(shape), f"draw {number}") for number, row in enumerate(rows)]
