"""Kernel smoothing of each sensor's readings to given points in time, for IP-Net and DGM2. Nothing is padded.

A kernel exp(-alpha (t - r)^2) underflows to 0 a few hours from a reading. So the distance of the nearest reading is
subtracted in the exponent: w = exp(-alpha (d - nearest)) is 1 for the nearest reading, and no logarithm of 0 appears.

Axes: n a reading, b a sample, v a sensor, k a point in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raindrop.batch.batch import Batch
from raindrop.batch.ragged import Segments
from raindrop.models.base import DataSpec, Model
from raindrop.models.layers import Clock, StateHeadConfig
from raindrop.ranges import Positive, Range

MIN_LOG_WEIGHT = -60.0  # negligible next to the nearest reading's 0, but exp does not underflow


@dataclass(frozen=True, kw_only=True)
class ReferenceConfig(StateHeadConfig):
    """Settings of models that smooth readings to reference points."""

    reference_points: Annotated[int, Range(2, 65_536)] = 48
    """Points r_k, evenly over the time span of the training readings."""
    window: Positive = 48.0
    """Length assigned to that span. Kernels start with alpha = 0.69 in this unit, which is hours if the span is 48."""
    outlier: Positive = 5.0
    """Targets of the reconstruction are clipped to this many standard deviations."""


@dataclass(frozen=True)
class Smoothed:
    """Values of all sensors at some points in time."""

    value: Tensor  # (b, k, v) kernel-weighted mean of the sensor's readings; 0, the mean of all, where it has none
    log_intensity: Tensor  # (b, k, v) log of the sum of the kernel over the readings
    sharp: Tensor | None = None  # (b, k, v) the value again, with a narrower kernel


class KernelSmoother(nn.Module):
    """Squared-exponential kernels with one learned inverse width alpha per sensor."""

    def __init__(self, num_sensors: int):
        super().__init__()
        self.raw_alpha = nn.Parameter(torch.zeros(num_sensors))  # softplus(0) = 0.69

    def forward(
        self, batch: Batch, time: Tensor, points: Tensor, *, kept: Tensor | None = None, sharpness: float | None = None
    ) -> Smoothed:
        """Readings at time (n,), only those where kept (n,), smoothed to points (b, k) of their samples.

        A sensor without readings in a sample is treated as if it had one reading of 0, the mean, at time 0.
        """
        b, M, k = batch.num_samples, batch.num_sensors, points.shape[1]
        series, value, sample = batch.senders, batch.value, batch.sample
        if kept is not None:
            time, value, sample = time[kept], value[kept], sample[kept]
            series = Segments.from_index(series.index[kept], series.num_segments)
        alpha = F.softplus(self.raw_alpha).repeat(b)[:, None]  # (bv, 1)
        with torch.no_grad():
            distance = (time[:, None] - points[sample]).square()  # (n, k)
            nearest = distance.new_full((b * M, k), torch.inf)
            nearest.scatter_reduce_(0, series.index[:, None].expand_as(distance), distance, "amin")
            absent = (series.counts == 0)[:, None].to(distance.dtype)  # (bv, 1)
            start = points.square()[:, None].expand(b, M, k).flatten(0, 1)
            nearest = torch.where(absent > 0, start, nearest)
            distance -= nearest[series.index]
        log_weight = -series.broadcast(alpha) * distance
        weight = log_weight.clamp_min(MIN_LOG_WEIGHT).exp()
        total = series.sum(weight) + absent  # (bv, k), at least 1
        smooth = [series.sum(weight * value[:, None]) / total, total.log() - alpha * nearest]
        if sharpness is not None:
            weight = (sharpness * log_weight).clamp_min(MIN_LOG_WEIGHT).exp()
            smooth.append(series.sum(weight * value[:, None]) / (series.sum(weight) + absent))
        return Smoothed(*(x.view(b, M, k).transpose(1, 2) for x in smooth))


class SensorMixing(nn.Module):
    """x_d = sum_d' rho_dd' lambda_d' x_d' / sum_d' lambda_d': sensors with readings nearby have the most weight."""

    def __init__(self, num_sensors: int):
        super().__init__()
        self.rho = nn.Parameter(torch.eye(num_sensors))  # (from, to)

    def forward(self, value: Tensor, log_intensity: Tensor) -> Tensor:  # (b, k, v)
        mixed: Tensor = (torch.softmax(log_intensity, dim=-1) * value) @ self.rho
        return mixed


class ReferenceModel(Model):
    """Base of models that smooth readings to the same points r_k in every sample and mix sensors."""

    points: Tensor

    def __init__(self, config: Any, spec: DataSpec):
        super().__init__(config, spec)
        self.config = config
        self.clock = Clock(spec, config.window)
        self.register_buffer("points", self.clock.reference(config.reference_points), persistent=False)
        self.smooth = KernelSmoother(spec.num_sensors)
        self.mix = SensorMixing(spec.num_sensors)
