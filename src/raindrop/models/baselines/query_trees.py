"""Boosted trees that answer queries, from Raindrop's inputs: decaying averages of a sensor and its neighbours.

The trees correct the linear interpolation of the sensor's own readings. Neighbours are the sensors whose readings at
the same time correlate most with the sensor's own.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.collate import BatchSource
from raindrop.batch.gaps import typical_intervals
from raindrop.batch.nearby import SCALES, Series
from raindrop.models.base import DataSpec, Output
from raindrop.models.baselines.simple_imputation import correlations
from raindrop.models.boosting import BoostingConfig, Samples
from raindrop.models.raindrop.queries import Embedding, time_of_day_waves
from raindrop.models.trees import Trees

NEIGHBOURS = 5
MAX_ROWS = 60_000  # training queries
CHUNK = 8  # windows at once


class QueryTrees(Trees):
    """Boosted trees over the averages around each query."""

    sees_distant: ClassVar[bool] = True
    interval: Tensor
    scales: Tensor
    neighbours: Tensor  # (v, NEIGHBOURS)

    def __init__(self, config: BoostingConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.dated = spec.dated
        size = min(NEIGHBOURS, max(spec.num_sensors - 1, 1))
        self.register_buffer("interval", torch.ones(spec.num_sensors))
        self.register_buffer("scales", torch.tensor(SCALES))
        self.register_buffer("neighbours", torch.zeros(spec.num_sensors, size, dtype=torch.int64))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if bool(((self.neighbours < 0) | (self.neighbours >= len(self.interval))).any()):
            raise ValueError("a neighbour is no sensor")

    def fit(self, training: BatchSource, validation: BatchSource | None, seed: int) -> list[dict[str, Any]]:
        self.interval.copy_(torch.from_numpy(typical_intervals(training.table)))
        correlation = correlations(training, len(self.interval))
        np.fill_diagonal(correlation, -np.inf)  # the sensor itself comes last, even if few pairs are known
        order = np.argsort(-correlation, axis=0, kind="stable")
        self.neighbours.copy_(torch.from_numpy(order[: self.neighbours.shape[1]].T.copy()))
        return super().fit(training, validation, seed)

    def rows_of(self, data: BatchSource, seed: int) -> Samples:
        """Queries of random windows, up to MAX_ROWS; targets are the residuals of linear interpolation."""
        rng = np.random.default_rng(seed)
        rows, targets, total = [], [], 0
        order = rng.permutation(len(data))
        for positions in np.array_split(order, max(1, len(order) // CHUNK)):
            batch = data.batch(positions, rng=rng)
            columns, line = self._describe(batch)
            rows.append(columns.numpy())
            targets.append((cast(Tensor, batch.target) - line).double().numpy())
            total += len(line)
            if total >= MAX_ROWS:
                break
        return Samples(np.concatenate(rows)[:MAX_ROWS], np.concatenate(targets)[:MAX_ROWS])

    def forward(self, batch: Batch) -> Output:
        columns, line = self._describe(batch)
        scores = line[:, None] + self.score_columns(columns).float()
        return Output(scores, scores, scores.new_zeros(()))

    def _describe(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(q, column) in double precision, and (q,) the linear interpolation of the sensor's own readings."""
        queries = cast(Queries, batch.queries)
        series = Series(batch, self.interval, self.scales)
        own = Embedding.of(series.around(queries.sample, queries.sensor, queries.time, strict=True))
        alone = batch.num_sensors == 1  # then the only neighbour is the sensor itself
        near = Embedding.of(series.around(queries.sample, self.neighbours[queries.sensor], queries.time, strict=alone))
        parts = [
            own.values - own.level,
            own.evidence,
            (near.values - own.level[:, None]).flatten(1),
            near.evidence.flatten(1),
            queries.sensor[:, None].to(own.values.dtype),
            batch.statics[queries.sample],
        ]
        if self.dated:
            parts.append(time_of_day_waves(queries, own.line))
        return torch.cat(parts, dim=1).double(), own.line[:, 0]
