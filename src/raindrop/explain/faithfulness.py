"""Faithfulness: does removing the strongest edges change the prediction more than removing random ones?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy.integrate import trapezoid
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.errors import ConfigError, DataError
from raindrop.estimators.samples import SampleEstimator
from raindrop.graphs.graph import SensorGraphs
from raindrop.models.raindrop.model import Raindrop
from raindrop.table.event_table import EventTable

SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Faithfulness:
    """How much the prediction changes when the strongest edges are removed, or the same number of random ones."""

    curve: pl.DataFrame
    """share (of the edges that can carry a message), top, random: the change, which is half the sum over classes of
    |probability - probability without the edges|, mean over samples; 0 is no change, 1 a complete one."""
    area: float
    """The area between the two curves; positive if the strongest edges matter more than random ones."""
    standard_error: float
    """Standard error of `area`, over samples."""
    faithful: bool
    """Whether `area` is above 0 by more than two standard errors."""
    reason: str
    """The result in one sentence, to print beside a plot."""


def faithfulness(
    estimator: SampleEstimator,
    table: EventTable,
    graphs: SensorGraphs | None = None,
    *,
    shares: Sequence[float] = SHARES,
    draws: int = 3,
    seed: int = 0,
) -> Faithfulness:
    """Remove growing shares of each sample's edges, strongest first, and as many at random (`draws` times).

    Edges are ranked by the absolute weights of `graphs` (by default those of `estimator.graphs`), one graph per
    sample of the table. Only edges between different sensors whose sender has a reading count: no other edge carries
    a message to another sensor. Probabilities are calibrated, as in `predict_proba`.
    """
    network = estimator.model_.network
    ablation = network.config.ablation if isinstance(network, Raindrop) else None
    if ablation is None or not (ablation.messages and ablation.edge_weights):
        raise estimator.no_graph("Only a Raindrop model with messages and edge weights has edges that can be removed.")
    if not shares or not all(0 < share <= 1 for share in shares) or list(shares) != sorted(set(shares)):
        raise ConfigError(f"shares must rise from above 0 to at most 1, not {tuple(shares)}.")
    if draws < 1:
        raise ConfigError(f"Removing edges at random needs at least 1 draw, not {draws}.")
    graphs = estimator.graphs(table) if graphs is None else graphs
    if list(graphs.ids) != table.ids or graphs.sensors != estimator.scaler_.sensors:
        raise DataError("The graphs must be of this table's samples, in its order, and of the model's sensors.")
    generator = torch.Generator().manual_seed(seed)
    parts, first = [], 0
    for batch in estimator.batches(table):
        weight = torch.from_numpy(graphs.weights[first : first + batch.num_samples]).abs().flatten(1)
        parts.append(_changes(estimator, batch, weight, shares, draws, generator))
        first += batch.num_samples
    change = np.concatenate(parts, axis=2)  # (top and random, share, sample)
    gap = np.concatenate([np.zeros((1, change.shape[2])), change[0] - change[1]])
    areas = trapezoid(gap, np.array([0.0, *shares]), axis=0)  # (sample,)
    area = float(areas.mean())
    error = float(areas.std(ddof=1) / len(areas) ** 0.5) if len(areas) > 1 else float("inf")
    faithful = area > 2 * error
    curve = pl.DataFrame({"share": list(shares), "top": change[0].mean(1), "random": change[1].mean(1)})
    if not change.any():
        reason = "Removing edges does not change any prediction: the weights do not show which edges matter."
    else:
        reason = (
            f"Removing the strongest edges {'changes' if faithful else 'does not change'} the prediction more than "
            f"removing random ones (area between the curves {area:.2g} ± {error:.1g}): the weights "
            f"{'show' if faithful else 'do not show'} which edges matter."
        )
    return Faithfulness(curve, area, error, faithful, reason)


def _changes(
    estimator: SampleEstimator,
    batch: Batch,
    weight: Tensor,
    shares: Sequence[float],
    draws: int,
    generator: torch.Generator,
) -> NDArray[np.float64]:
    """(top and random, share, b): the change of the probabilities when that share of the edges is removed."""
    M = batch.num_sensors
    carries = (batch.senders.counts > 0).cpu().view(-1, M, 1) & ~torch.eye(M, dtype=torch.bool)  # (b, u, v)
    carries = carries.flatten(1)
    number = carries.sum(1, keepdim=True)
    before = probabilities_with(estimator, batch, None)
    orders = [weight, *(torch.rand(weight.shape, generator=generator) for _ in range(draws))]
    change = np.zeros((1 + draws, len(shares), batch.num_samples))
    for row, order in enumerate(orders):
        rank = order.masked_fill(~carries, -1.0).argsort(dim=1, descending=True, stable=True).argsort(1)
        for column, share in enumerate(shares):
            keep = (rank >= (share * number).round()) | ~carries
            after = probabilities_with(estimator, batch, keep.view(-1, M, M))
            change[row, column] = np.abs(after - before).sum(1) / 2
    return np.stack([change[0], change[1:].mean(0)])


def probabilities_with(estimator: SampleEstimator, batch: Batch, keep: Tensor | None) -> NDArray[np.float64]:
    """(b, class) the calibrated probabilities with only the edges in `keep` (b, u, v), or with all of them."""
    kept = None if keep is None else keep.to(batch.value)
    with torch.inference_mode():
        output = estimator.model_.eval()(batch, kept)
    return estimator.to_predictions(output).astype(np.float64)
