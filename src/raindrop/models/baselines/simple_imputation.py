"""Impute a reading by simple rules: the sensor's mean, its last value, linear interpolation, the nearest sensors.

All quantiles are the same number; intervals come only from the validation readings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.collate import BatchSource
from raindrop.batch.gaps import typical_intervals
from raindrop.batch.nearby import Series
from raindrop.models.base import DataSpec, DirectModel, Output

NEAREST = 3  # sensors
HALF_WIDTH = 1.0  # typical intervals: a neighbour's reading must be this near


@dataclass(frozen=True, kw_only=True)
class NoConfig:
    """A model without settings."""


class PointModel(DirectModel):
    """One number for each query, from the readings around it."""

    sees_distant: ClassVar[bool] = True
    interval: Tensor

    def __init__(self, config: NoConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.num_outputs = spec.num_outputs
        self.register_buffer("interval", torch.ones(spec.num_sensors))

    def fit(self, training: BatchSource, validation: BatchSource | None, seed: int) -> list[dict[str, Any]]:
        self.interval.copy_(torch.from_numpy(typical_intervals(training.table)))
        return []

    def forward(self, batch: Batch) -> Output:
        queries = cast(Queries, batch.queries)
        series = Series(batch, self.interval, torch.ones(1, device=batch.value.device))
        scores = self.answer(batch, series, queries)[:, None].expand(-1, self.num_outputs)
        return Output(scores=scores, embedding=scores, penalty=scores.new_zeros(()))

    def answer(self, batch: Batch, series: Series, queries: Queries) -> Tensor:
        """(q,)."""
        raise NotImplementedError


class SensorMean(PointModel):
    """The sensor's mean over the training readings."""

    def answer(self, batch: Batch, series: Series, queries: Queries) -> Tensor:
        return batch.value.new_zeros(len(queries))


class LastValue(PointModel):
    """The sensor's latest reading; the next one if there is none before, its mean if there is none at all."""

    def answer(self, batch: Batch, series: Series, queries: Queries) -> Tensor:
        moments = series.around(queries.sample, queries.sensor, queries.time, strict=True)
        last, coming, _ = moments.values()
        return torch.where(moments.has_previous, last, coming)


class LinearInterpolation(PointModel):
    """Linear interpolation of the sensor's readings; the nearest one outside, its mean if there is none."""

    def answer(self, batch: Batch, series: Series, queries: Queries) -> Tensor:
        return series.around(queries.sample, queries.sensor, queries.time, strict=True).values()[2]


class NearestSensors(PointModel):
    """The mean of the most correlated sensors with a reading near the time; linear interpolation if there is none.

    Values are z-scores, so a neighbour's value is used directly as this sensor's.
    """

    correlation: Tensor

    def __init__(self, config: NoConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.register_buffer("correlation", torch.zeros(spec.num_sensors, spec.num_sensors))

    def fit(self, training: BatchSource, validation: BatchSource | None, seed: int) -> list[dict[str, Any]]:
        history = super().fit(training, validation, seed)
        self.correlation.copy_(torch.from_numpy(correlations(training, self.correlation.shape[0])))
        return history

    def answer(self, batch: Batch, series: Series, queries: Queries) -> Tensor:
        own = series.around(queries.sample, queries.sensor, queries.time, strict=True).values()[2]
        sensors = torch.arange(batch.num_sensors, device=own.device).expand(len(queries), -1)
        moments = series.around(queries.sample, sensors, queries.time)
        age = torch.where(moments.has_previous, moments.age, torch.inf)
        wait = torch.where(moments.has_following, moments.wait, torch.inf)
        near = torch.minimum(age, wait) < HALF_WIDTH
        rank = self.correlation[queries.sensor].masked_fill(~near, -1.0)
        best = rank.topk(min(NEAREST, batch.num_sensors), dim=1)
        weight = best.values.clamp_min(0.0)
        value = (moments.values()[2].gather(1, best.indices) * weight).sum(1) / weight.sum(1).clamp_min(1e-6)
        return torch.where(weight.sum(1) > 0, value, own)


def correlations(training: BatchSource, num_sensors: int, most: int | None = None) -> NDArray[np.float64]:
    """(u, v) the correlation of readings at the same time; -1 for a sensor with itself, and for fewer than 20 pairs.

    most: of more windows than this, only so many are used, evenly spread.
    """
    sums = np.zeros((5, num_sensors, num_sensors))
    windows = np.arange(len(training))
    if most is not None and len(windows) > most:
        windows = np.linspace(0, len(windows) - 1, most).round().astype(np.int64)
    for at in np.array_split(windows, max(1, len(windows) // 64)):
        batch = training.batch(at)
        value = torch.zeros(batch.num_steps * batch.num_sensors).index_copy(0, batch.cell, batch.value)
        x = value.view(batch.num_steps, batch.num_sensors).double().numpy()
        o = batch.observed.double().numpy()
        sums += np.stack([o.T @ o, x.T @ o, o.T @ x, (x * x).T @ o, x.T @ x])
    n, first, second, square, product = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = product / n - first / n * (second / n)
        deviation = np.sqrt(np.maximum(square / n - (first / n) ** 2, 0))
        correlation: NDArray[np.float64] = covariance / (deviation * deviation.T)
    correlation[~np.isfinite(correlation) | (n < 20)] = -1.0
    np.fill_diagonal(correlation, -1.0)
    return correlation
