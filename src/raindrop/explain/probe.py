"""Linear probe: how well a sensor's readings can be predicted from the embeddings of another sensor's readings.

Information graphs (information.py) measure the messages that a model sends, and a model may leave out an edge that it
does not need. The probe measures what could be sent: it regresses readings on the learned embeddings of all readings
by least squares, whether or not the model uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from raindrop.batch.batch import Batch
from raindrop.batch.host import to_numpy
from raindrop.errors import ConfigError, DataError
from raindrop.estimators.samples import SampleEstimator
from raindrop.graphs.empty import no_shared_times_reason
from raindrop.graphs.graph import SensorGraph
from raindrop.models.raindrop.model import Raindrop
from raindrop.table.event_table import EventTable

Predict = Literal["now", "next"]
RIDGE = 1e-6  # per row; only makes the regression solvable where columns are collinear
CLIP = 5.0  # scaled readings are clipped to this


@dataclass(frozen=True)
class Moments:
    """Sums over the rows of each receiver v, from which every regression is solved. Updated in place, batch by batch.

    A row is a time at which v was read. It has a block (1, h_u) for each sensor u, 0 where u was not read, and a last
    column that is always 1. The target is v's reading at that time, or its next one.
    """

    gram: torch.Tensor  # (v, column, column) rows^T rows
    cross: torch.Tensor  # (v, column) rows^T target
    square: torch.Tensor  # (v,) target^T target

    @classmethod
    def zeros(cls, num_sensors: int, block: int) -> Self:
        """Before the first batch; `block` is the width of a sensor's block."""
        columns = num_sensors * block + 1
        shapes = (num_sensors, columns, columns), (num_sensors, columns), (num_sensors,)
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    @torch.inference_mode()
    def add(self, model: Raindrop, batch: Batch, predict: Predict) -> None:
        """Add the rows of a batch."""
        h = model.embed(batch).cpu().double()
        batch = batch.to("cpu")
        M, block = batch.num_sensors, 1 + h.shape[1]
        blocks = torch.zeros(batch.num_steps * M, block, dtype=torch.float64)
        blocks[batch.cell] = torch.cat([torch.ones(len(h), 1).double(), h], 1)
        rows = torch.cat([blocks.view(batch.num_steps, M * block), torch.ones(batch.num_steps, 1).double()], 1)
        known, reading = batch.observed, torch.full((batch.num_steps, M), -1)
        reading.view(-1)[batch.cell] = torch.arange(len(h))
        if predict == "next":
            known, reading = known & (batch.following >= 0), batch.following
        for v in range(M):
            x, y = rows[known[:, v]], batch.value[reading[known[:, v], v]].clamp(-CLIP, CLIP).double()
            self.gram[v].addmm_(x.T, x)
            self.cross[v].addmv_(x.T, y)
            self.square[v].add_(y @ y)


def probe_graph(
    estimator: SampleEstimator, table: EventTable, predict: Predict = "now", name: str = "linear probe"
) -> SensorGraph:
    """One graph for all samples; the weight of u -> v is the share of v's variance that only u's embeddings explain.

    predict="now": v's readings from all other sensors read at the same time. predict="next": v's next reading from all
    sensors read at the same time as v, v itself included (Granger causality with learned features). The share
    that chance would explain is subtracted, so weights can be slightly below 0. Sensors never read at the same time
    have weight 0. To compare classes, probe the samples of each class.
    """
    model = estimator.model_.network
    if not isinstance(model, Raindrop):
        raise ConfigError(f"The probe needs the embeddings of a Raindrop model; '{estimator.model}' has none.")
    if predict not in ("now", "next"):
        raise ConfigError(f"predict is 'now' or 'next', not '{predict}'.")
    if not table.num_readings:
        raise DataError("The table has no readings, so there is nothing to probe.")
    sensors = estimator.scaler_.sensors
    moments = Moments.zeros(len(sensors), 1 + model.config.observation_dim)
    for batch in estimator.batches(table):
        moments.add(model, batch, predict)
    columns = [_explained_by_each(moments, v, include_self=predict == "next") for v in range(len(sensors))]
    reason = no_shared_times_reason(table) or "too few readings at the same time for a regression"
    return SensorGraph(sensors, np.stack(columns, axis=1).astype(np.float32), name, reason)


def _explained_by_each(moments: Moments, v: int, *, include_self: bool) -> NDArray[np.float64]:
    """(u,): the increase of the squared error of v's target without u's block, as a share of its variance.

    With H the inverse of the Gram matrix and b the solution, the increase is b_u^T (H_uu)^-1 b_u, so no regression
    is solved again. What chance explains is the error variance times the degrees of freedom that u's block adds:
    fewer than its width where u was rarely read together with v.
    """
    M = len(moments.square)
    block = (moments.gram.shape[1] - 1) // M
    senders = np.array([u for u in range(M) if include_self or u != v])
    columns = np.append((senders[:, None] * block + np.arange(block)).ravel(), M * block)
    gram, cross = to_numpy(moments.gram[v])[np.ix_(columns, columns)], to_numpy(moments.cross[v])[columns]
    square, number = float(moments.square[v]), gram[-1, -1]
    variance = square - cross[-1] ** 2 / max(number, 1.0)
    explained = np.zeros(M)
    if number <= len(columns) or variance <= 0:
        return explained  # too few readings for a regression
    ridge = RIDGE * number
    inverse = np.linalg.inv(gram + ridge * np.eye(len(columns)))
    solution = inverse @ cross
    error = max(square - 2 * solution @ cross + solution @ gram @ solution, 0.0)
    rows = inverse[:-1].reshape(len(senders), block, len(columns))  # (u, block, column) of the inverse
    own = np.stack([rows[at, :, at * block : (at + 1) * block] for at in range(len(senders))])  # (u, block, block)
    part = solution[:-1].reshape(len(senders), block)
    gain = np.einsum("ui,ui->u", part, np.linalg.solve(own, part[..., None])[..., 0])
    squared = np.einsum("uic,ujc->uij", rows, rows)
    freedom = block - ridge * np.trace(np.linalg.solve(own, squared), axis1=1, axis2=2)  # lost without u
    by_chance = freedom * error / (number - np.trace(gram @ inverse))
    shared_times = np.diag(gram)[:-1:block]  # (u,) a block starts with a 1 at each time at which u was read
    explained[senders] = np.where(shared_times > 0, (gain - by_chance) / variance, 0.0)
    return explained
