"""What could be told: how much of a sensor's readings another's embeddings hold that no other sensor's do.

The information graphs of explain.py judge the messages a model sends. A message is one number per rank and shares its
way with all others, so a model may leave out an edge that it does not need. The probe looks at what is there to be
sent, the learned embedding of every reading, and tells from it by least squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from raindrop.batch.batch import Batch
from raindrop.errors import ConfigError, DataError
from raindrop.estimators.classifier import Classifier
from raindrop.graphs.graph import SensorGraph
from raindrop.models.raindrop.model import Raindrop
from raindrop.table.event_table import EventTable

Tell = Literal["now", "next"]
RIDGE = 1e-6  # per row; only so that columns which repeat each other can be solved for


@dataclass(frozen=True)
class Moments:
    """Sums over the rows of each receiver v; a row has a block (1, h_u) for each sensor, 0 where it was not read."""

    gram: NDArray[np.float64]  # (v, column, column), the last column is 1 in every row
    meets: NDArray[np.float64]  # (v, column) with the reading to be told
    square: NDArray[np.float64]  # (v,) of the reading


def probe_graph(classifier: Classifier, table: EventTable, tell: Tell = "now", name: str = "probe") -> SensorGraph:
    """For each edge u -> v: the share of the variance of v's readings that u's embeddings tell, and no other's do.

    tell "now": readings of v from all other sensors that were read at the same time. tell "next": from all that were
    read at a time at which v was read too, v itself included, v's next reading: who drives whom with a lag
    (Granger's question, with learned curves). One graph for all samples of the table: take one class, or each class
    and the difference. What chance would tell is taken off, so weights may be a little below 0.
    """
    model = classifier.model_.network
    if not isinstance(model, Raindrop):
        raise ConfigError(f"The probe reads the embeddings of a Raindrop model, which '{classifier.model}' has not.")
    if tell not in ("now", "next"):
        raise ConfigError(f"tell is 'now' or 'next', not '{tell}'.")
    if not table.num_readings:
        raise DataError("The table has no readings, so there is nothing to tell.")
    parts = [_moments(model, batch, tell) for batch in classifier.batches(table)]
    sums = Moments(*(sum(getattr(part, field) for part in parts) for field in ("gram", "meets", "square")))
    M = len(classifier.scaler_.sensors)
    weights = np.stack([_told_by_each(sums, v, M, itself=tell == "next") for v in range(M)], axis=1)
    return SensorGraph(classifier.scaler_.sensors, weights.astype(np.float32), name)


@torch.inference_mode()
def _moments(model: Raindrop, batch: Batch, tell: Tell) -> Moments:
    h = model.embed(batch)
    M, width = batch.num_sensors, 1 + h.shape[1]
    blocks = torch.zeros(batch.num_slots * M, width, dtype=torch.float64)
    blocks[batch.cell] = torch.cat([torch.ones(len(h), 1), h], 1).double()
    rows = torch.cat([blocks.view(batch.num_slots, M * width), torch.ones(batch.num_slots, 1).double()], 1)
    known, reading = batch.observed, torch.full((batch.num_slots, M), -1)
    reading.view(-1)[batch.cell] = torch.arange(len(h))
    if tell == "next":
        known, reading = known & (batch.following >= 0), batch.following
    gram = torch.zeros(M, rows.shape[1], rows.shape[1], dtype=torch.float64)
    meets, square = gram.new_zeros(M, rows.shape[1]), gram.new_zeros(M)
    for v in range(M):
        at = known[:, v]
        x, y = rows[at], batch.value[reading[at, v]].clamp(-5, 5).double()
        gram[v], meets[v], square[v] = x.T @ x, x.T @ y, y @ y
    return Moments(gram.numpy(), meets.numpy(), square.numpy())


def _told_by_each(sums: Moments, v: int, M: int, *, itself: bool) -> NDArray[np.float64]:
    """(u,): by how much the squared error of v's readings grows when u's block must be 0, as a share of the variance.

    With H the inverse of the Gram matrix and b the solution, that is b_u (H_uu)^-1 b_u: no block is solved for twice.
    """
    width = (sums.gram.shape[1] - 1) // M
    kept = np.array([u for u in range(M) if itself or u != v])
    columns = np.append((kept[:, None] * width + np.arange(width)).ravel(), M * width)
    gram, meets = sums.gram[v][np.ix_(columns, columns)], sums.meets[v][columns]
    number = gram[-1, -1]
    variance = sums.square[v] - meets[-1] ** 2 / max(number, 1.0)
    told = np.zeros(M)
    if number <= len(columns) or variance <= 0:
        return told  # too few readings to tell anything
    inverse = np.linalg.inv(gram + RIDGE * number * np.eye(len(columns)))
    solution = inverse @ meets
    error = max(sums.square[v] - 2 * solution @ meets + solution @ gram @ solution, 0.0)
    own = inverse[:-1, :-1].reshape(len(kept), width, len(kept), width)
    own = own[np.arange(len(kept)), :, np.arange(len(kept))]  # (u, width, width)
    part = solution[:-1].reshape(len(kept), width)
    gain = np.einsum("ui,ui->u", part, np.linalg.solve(own, part[..., None])[..., 0])
    by_chance = width * error / (number - len(columns))
    told[kept] = (gain - by_chance) / variance
    return told
