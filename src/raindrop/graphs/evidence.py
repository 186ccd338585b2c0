"""What speaks for an edge: differences that chance does not make, and graphs that another seed gives again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import ConfigError, DataError
from raindrop.graphs.graph import SensorGraph, SensorGraphs

CHUNK = 500  # permutations or draws computed at once


def difference_test(
    graphs: SensorGraphs, chosen: ArrayLike, *, permutations: int = 5000, seed: int = 0
) -> pl.DataFrame:
    """Every edge between different sensors, with how likely chance alone makes so large a difference of cohorts.

    `chosen` is a mask; the weight is the mean of the chosen samples minus that of the others. p is of a permutation
    test of its size (the labels are dealt anew; 1 for an edge that is the same in all samples), and q the
    Benjamini-Hochberg value: of the edges with q below 0.05, one in twenty is expected to be chance.
    The smallest p is 1 / (permutations + 1). Columns: sender, receiver, weight, chosen, others, p, q.
    """
    if permutations < 1:
        raise ConfigError(f"A permutation test needs at least 1 permutation, not {permutations}.")
    mask = graphs.two_cohorts(chosen)
    u, v = np.nonzero(~np.eye(len(graphs.sensors), dtype=bool))
    weights = graphs.weights[:, u, v].astype(np.float64)  # (sample, edge)
    one, other = weights[mask].mean(0), weights[~mask].mean(0)
    constant = np.ptp(weights, 0) == 0
    centred = (weights - weights.mean(0)).astype(np.float32)
    # With centred weights the two sums are opposite, so the sum over the chosen decides alone.
    observed = np.abs(mask.astype(np.float32) @ centred)
    least = observed - 1e-5 * np.abs(centred).sum(0)  # what rounding may take from an equal deal
    rng = np.random.default_rng(seed)
    as_large = np.zeros(len(u), dtype=np.int64)
    for start in range(0, permutations, CHUNK):
        dealt = np.tile(mask.astype(np.float32), (min(CHUNK, permutations - start), 1))
        as_large += (np.abs(rng.permuted(dealt, axis=1) @ centred) >= least).sum(0)
    p = np.where(constant, 1.0, (1 + as_large) / (1 + permutations))
    names = pl.Series(graphs.sensors, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "sender": names.gather(u),
            "receiver": names.gather(v),
            "weight": (one - other).astype(np.float32),
            "chosen": one.astype(np.float32),
            "others": other.astype(np.float32),
            "p": p,
            "q": benjamini_hochberg(p),
        }
    )
    return frame[np.lexsort((-np.abs(one - other), p))]


def benjamini_hochberg(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """q of each test: the smallest rate of false discoveries at which it would be called one."""
    order = np.argsort(-p)
    raw = p[order] * len(p) / np.arange(len(p), 0, -1)
    q = np.empty_like(p)
    q[order] = np.minimum.accumulate(np.minimum(raw, 1.0))
    return q


# ---------------------------------------------------------------- stability


@dataclass(frozen=True)
class Stability:
    """Whether several graphs of the same thing (other seeds, other draws of samples) agree."""

    rank_correlation: float
    """Mean over pairs of graphs of Spearman's correlation of all edges between different sensors."""
    recurring: float
    """Mean over pairs of graphs of the share of the top edges that both have."""
    by_chance: float
    """`recurring` of graphs that have nothing to do with each other."""
    edges: pl.DataFrame
    """sender, receiver, share (of the graphs that have the edge on top), weight (mean), deviation, same_sign."""
    stable: bool
    reason: str
    """One sentence for a figure."""


def stability(
    graphs: Sequence[SensorGraph], *, top: int = 20, least_correlation: float = 0.7, least_recurring: float = 0.5
) -> Stability:
    """Compare graphs that should be alike: of models of different seeds, or of `bootstrap`.

    Stable means: the rank correlation and the recurring share of top edges reach their least values.
    """
    if len(graphs) < 2:
        raise DataError(f"Stability is about several graphs; there is {len(graphs)}. Train with two or more seeds.")
    sensors = graphs[0].sensors
    if any(graph.sensors != sensors for graph in graphs):
        raise DataError("Stability compares graphs of the same sensors, in the same order.")
    u, v = np.nonzero(~np.eye(len(sensors), dtype=bool))
    top = min(top, len(u))
    if top < 1:
        raise DataError("Stability needs at least one edge between two sensors.")
    weights = np.stack([graph.weights[u, v] for graph in graphs]).astype(np.float64)  # (graph, edge)
    size = np.abs(weights)
    on_top = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(on_top, np.argsort(-size, axis=1, kind="stable")[:, :top], True, axis=1)
    on_top &= size > 0
    pairs = list(combinations(range(len(graphs)), 2))
    ranks = np.stack([pl.Series(row).rank("average").to_numpy() for row in weights])
    ranks -= ranks.mean(1, keepdims=True)
    length = np.linalg.norm(ranks, axis=1)
    cosine = ranks @ ranks.T / np.maximum(np.outer(length, length), 1e-12)
    correlation = float(np.mean([cosine[pair] for pair in pairs]))
    recurring = float(np.mean([(on_top[a] & on_top[b]).sum() / top for a, b in pairs]))
    by_chance = top / len(u)
    names = pl.Series(sensors, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "sender": names.gather(u),
            "receiver": names.gather(v),
            "share": on_top.mean(0),
            "weight": weights.mean(0).astype(np.float32),
            "deviation": weights.std(0).astype(np.float32),
            "same_sign": (np.sign(weights) == np.sign(weights[0])).all(0),
        }
    )
    frame = frame[np.lexsort((-np.abs(weights.mean(0)), -on_top.mean(0)))]
    stable = correlation >= least_correlation and recurring >= least_recurring
    reason = (
        f"Over {len(graphs)} graphs the rank correlation is {correlation:.2f}, and {recurring:.0%} of the top {top} "
        f"edges recur (chance: {by_chance:.0%}): "
        + ("stable." if stable else "not stable. Do not read single edges from this graph.")
    )
    return Stability(correlation, recurring, by_chance, frame, stable, reason)


def bootstrap(
    graphs: SensorGraphs, chosen: ArrayLike | None = None, *, draws: int = 100, seed: int = 0
) -> list[SensorGraph]:
    """Mean graphs of samples drawn anew with replacement; with a mask, differences of the chosen and the others.

    It says how much the graph depends on which samples were looked at, and nothing of another training.
    """
    if draws < 1 or not len(graphs):
        raise ConfigError(f"Drawing anew needs at least 1 draw and 1 sample, not {draws} and {len(graphs)}.")
    rng = np.random.default_rng(seed)
    flat = graphs.weights.reshape(len(graphs), -1)

    def means(positions: NDArray[np.int64]) -> NDArray[np.float32]:
        times = rng.multinomial(len(positions), np.full(len(positions), 1 / len(positions)), draws)
        mean: NDArray[np.float32] = times.astype(np.float32) @ flat[positions] / np.float32(len(positions))
        return mean

    if chosen is None:
        drawn = means(np.arange(len(graphs)))
    else:
        mask = graphs.two_cohorts(chosen)
        drawn = means(np.flatnonzero(mask)) - means(np.flatnonzero(~mask))
    shape = (len(graphs.sensors),) * 2
    return [SensorGraph(graphs.sensors, row.reshape(shape), f"draw {at}") for at, row in enumerate(drawn)]
