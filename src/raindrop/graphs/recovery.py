"""How well a graph recovers known edges, and a correlation graph as a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from raindrop.errors import DataError
from raindrop.graphs.graph import SensorGraph
from raindrop.table.event_table import EventTable


@dataclass(frozen=True)
class Recovery:
    """Scores of a graph against known edges, over all ordered pairs of different sensors."""

    auroc: float
    auprc: float
    base_rate: float
    """Share of pairs with an edge: the AUPRC of a random graph."""
    direction: float
    """Share of one-way edges whose weight is larger than that of the reverse edge; ties count half."""


def recovery(graph: SensorGraph, truth: ArrayLike) -> Recovery:
    """Compare the weights with `truth` (u, v), true where u -> v is an edge; the diagonal is ignored."""
    known = np.asarray(truth)
    if known.shape != graph.weights.shape or known.dtype != bool:
        raise DataError(f"The truth must be true or false per edge, {graph.weights.shape}, not {known.shape}.")
    between = ~np.eye(len(known), dtype=bool)
    if not known[between].any() or known[between].all():
        raise DataError("The truth needs at least one edge between two sensors, and one pair without an edge.")
    one_way = known & ~known.T & between
    margin = graph.weights[one_way] - graph.weights.T[one_way]
    return Recovery(
        auroc=float(roc_auc_score(known[between], graph.weights[between])),
        auprc=float(average_precision_score(known[between], graph.weights[between])),
        base_rate=float(known[between].mean()),
        direction=float(((margin > 0) + 0.5 * (margin == 0)).mean()) if one_way.any() else float("nan"),
    )


def lagged_correlation(table: EventTable, *, same_time: bool = False) -> SensorGraph:
    """The absolute correlation of each reading of v with the latest earlier reading of u, over all samples.

    With `same_time`, a reading of u at the same time counts as the latest; if all sensors are read at the same times,
    the graph has no direction. Weights with fewer than three pairs of readings are 0.
    """
    rows = table.rows()
    sample = np.repeat(np.arange(len(table)), table.count)
    time, sensor = np.asarray(table.time[rows]), np.asarray(table.sensor[rows], dtype=np.int64)
    value = np.asarray(table.value[rows], dtype=np.float64)
    new_step = np.ones(len(rows), dtype=bool)
    new_step[1:] = (time[1:] != time[:-1]) | (sample[1:] != sample[:-1])
    step = np.cumsum(new_step) - 1
    M = len(table.sensors)
    latest = np.full((step[-1] + 1 if len(step) else 0, M), -1, dtype=np.int64)  # (s, u) position of a reading, or -1
    latest[step, sensor] = np.arange(len(rows))
    latest = np.maximum.accumulate(latest, axis=0)
    if not same_time:
        latest = np.concatenate([np.full((1, M), -1), latest[:-1]])[: len(latest)]
    earlier = latest[step]  # (n, u)
    known = (earlier >= 0) & (sample[earlier] == sample[:, None])
    earlier_value = np.where(known, value[earlier] if len(value) else 0.0, 0.0)
    weights = np.zeros((M, M), dtype=np.float32)
    for v in range(M):
        of_v = sensor == v
        weights[:, v] = np.abs(_correlations(earlier_value[of_v], known[of_v], value[of_v]))
    return SensorGraph(table.sensors, weights, "lagged correlation", "no two sensors have three pairs of readings")


def _correlations(x: NDArray[np.float64], known: NDArray[np.bool_], y: NDArray[np.float64]) -> NDArray[Any]:
    """(u,) the correlation of each column of x with y, over the rows where the column is known."""
    number = known.sum(0)
    n = np.maximum(number, 1)
    mean_x, mean_y = x.sum(0) / n, (known * y[:, None]).sum(0) / n
    dx, dy = (x - mean_x) * known, (y[:, None] - mean_y) * known
    spread = np.sqrt((dx**2).sum(0) * (dy**2).sum(0))
    return np.where((number >= 3) & (spread > 1e-12), (dx * dy).sum(0) / np.maximum(spread, 1e-12), 0.0)
