"""Do the strong edges carry the prediction? Cut them, and see what moves, against cutting others at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.errors import ConfigError, DataError
from raindrop.estimators.classifier import Classifier
from raindrop.graphs.graph import SensorGraphs
from raindrop.models.raindrop.model import Raindrop
from raindrop.table.event_table import EventTable

SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Faithfulness:
    """How far the prediction moves when edges are cut: those that weigh most, or as many at random."""

    curve: pl.DataFrame
    """share (of the edges that can carry a message), top, random: mean over samples of half the sum over classes of
    |probability - probability without|; 0 is no change, 1 a complete one."""
    area: float
    """Between the two curves over the share cut; above 0 where the top edges matter more than random ones."""
    error: float
    """Standard error of `area` over samples."""
    faithful: bool
    """Whether `area` is above 0 by more than two standard errors."""
    reason: str
    """One sentence for a figure."""


def faithfulness(
    classifier: Classifier,
    table: EventTable,
    graphs: SensorGraphs | None = None,
    *,
    shares: Sequence[float] = SHARES,
    draws: int = 3,
    seed: int = 0,
) -> Faithfulness:
    """Cut growing shares of each sample's edges, strongest first, and as many at random (`draws` times).

    The ranking is by the size of the weights of `graphs` (those of `classifier.graphs` where not given), one graph
    per sample of the table. Only edges between different sensors whose sender has a reading are looked at: no other
    edge carries anything to another sensor.
    """
    model = classifier.model_.network
    if not isinstance(model, Raindrop) or not (model.config.ablation.messages and model.config.ablation.edge_weights):
        raise ConfigError(
            "Only a Raindrop model with ablation.messages and ablation.edge_weights has edges that can be cut."
        )
    if not shares or not all(0 < share <= 1 for share in shares) or list(shares) != sorted(set(shares)):
        raise ConfigError(f"shares must rise from above 0 to at most 1, not {tuple(shares)}.")
    if draws < 1:
        raise ConfigError(f"Cutting at random needs at least 1 draw, not {draws}.")
    graphs = classifier.graphs(table) if graphs is None else graphs
    if list(graphs.ids) != table.ids or graphs.sensors != classifier.scaler_.sensors:
        raise DataError("The graphs must be of this table's samples, in its order, and of the model's sensors.")
    generator = torch.Generator().manual_seed(seed)
    found, at = [], 0
    for batch in classifier.batches(table):
        weight = torch.from_numpy(graphs.weights[at : at + batch.num_samples]).abs().flatten(1)
        found.append(_moved(model, batch, weight, shares, draws, generator))
        at += batch.num_samples
    moved = np.concatenate(found, axis=2)  # (top and random, share, sample)
    gap = np.concatenate([np.zeros((1, moved.shape[2])), moved[0] - moved[1]])
    areas = np.trapezoid(gap, np.array([0.0, *shares]), axis=0)  # (sample,)
    area = float(areas.mean())
    error = float(areas.std(ddof=1) / len(areas) ** 0.5) if len(areas) > 1 else float("inf")
    faithful = area > 2 * error
    curve = pl.DataFrame({"share": list(shares), "top": moved[0].mean(1), "random": moved[1].mean(1)})
    reason = (
        f"Cutting the strongest edges moves the prediction {'more' if area > 0 else 'no more'} than cutting others "
        f"at random (area between the curves {area:.3f} ± {error:.3f}): "
        + ("the weights say which edges matter." if faithful else "the weights do not say which edges matter.")
    )
    return Faithfulness(curve, area, error, faithful, reason)


@torch.inference_mode()
def _moved(
    model: Raindrop, batch: Batch, weight: Tensor, shares: Sequence[float], draws: int, generator: torch.Generator
) -> NDArray[np.float64]:
    """(top and random, share, b): how far the probabilities move."""
    M = batch.num_sensors
    speaks = (batch.senders.counts > 0).view(-1, M, 1) & ~torch.eye(M, dtype=torch.bool)  # (b, u, v)
    carries = speaks.flatten(1)
    number = carries.sum(1, keepdim=True)
    before = torch.softmax(model(batch).logits.double(), -1)
    orders = [weight, *(torch.rand(weight.shape, generator=generator) for _ in range(draws))]
    out = np.zeros((1 + draws, len(shares), batch.num_samples))
    for at, order in enumerate(orders):
        rank = order.masked_fill(~carries, -1.0).argsort(dim=1, descending=True, stable=True).argsort(1)
        for place, share in enumerate(shares):
            keep = (rank >= (share * number).round()) | ~carries
            after = torch.softmax(model(batch, keep.view(-1, M, M).to(batch.value.dtype)).logits.double(), -1)
            out[at, place] = (after - before).abs().sum(1).numpy() / 2
    return np.stack([out[0], out[1:].mean(0)])
