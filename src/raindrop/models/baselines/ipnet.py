"""IP-Net (Shukla and Marlin, "Interpolation-Prediction Networks for Irregularly Sampled Time Series", ICLR 2019).

Sec. 3.2.1, first layer, each sensor d alone at reference points r_k:
    kernel      w(r, t; alpha) = exp(-alpha (r - t)^2)
    intensity   lambda_kd = sum_j w(r_k, t_jd; alpha_d)
    smooth      sigma_kd  = sum_j w(r_k, t_jd; alpha_d) x_jd / lambda_kd
    transient   gamma_kd  = the same with kappa alpha_d
second layer, across sensors:
    tau_kd = sum_d' rho_dd' lambda_kd' sigma_kd' / sum_d' lambda_kd'
The prediction network gets [tau, lambda, gamma - tau] at r_k: trend, intensity, and what the trend leaves out.
Sec. 3.2.2, prediction: a GRU over the reference points; its last state, with the statics, is classified.
Sec. 3.2.3, learning: cross entropy + delta * squared error of tau at the times of held-out readings, computed from the
other readings.

Differences from the authors' code: dropout is on the GRU's input only, while theirs also drops a fifth of the state
between steps, which torch's fused GRU cannot do. Sensors are mixed by the equation above; theirs first subtracts the
mean of sigma over the reference points, and adds it again after mixing.

Axes: n a reading, b a sample, v a sensor, k a reference point, t a timestamp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.batch.ragged import Segments
from raindrop.models.base import DataSpec, Output
from raindrop.models.baselines.interpolation import ReferenceConfig, ReferenceModel
from raindrop.models.layers import PaddedLayout
from raindrop.ranges import Positive, Range, Share, Size, Weight


@dataclass(frozen=True, kw_only=True)
class IPNetConfig(ReferenceConfig):
    """The paper's settings for 48 hours in intensive care."""

    reference_points: Annotated[int, Range(2, 65_536)] = 192
    """Points r_k, evenly over the time span of the training readings."""
    kappa: Positive = 10.0
    """Factor of alpha for the kernel of the transient part, which is narrower."""
    hidden: Size = 100
    """Size of the GRU's state."""
    dropout: Share = 0.2
    """Dropout of the GRU's input."""
    held_out: Annotated[float, Range(0, 1, above=True, below=True)] = 0.2
    """Share of readings held out in training for the reconstruction loss."""
    reconstruction: Weight = 1.0
    """delta, weight of the reconstruction loss."""


class IPNet(ReferenceModel):
    """Readings -> three interpolants at reference points -> GRU -> class."""

    def __init__(self, config: IPNetConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.dropout = nn.Dropout(config.dropout)
        self.gru = nn.GRU(3 * spec.num_sensors, config.hidden, batch_first=True)
        self.head = config.head(config.hidden, spec)

    def forward(self, batch: Batch) -> Output:
        step_time = self.clock(batch.time, like=batch.value)  # (s,)
        time = batch.steps.broadcast(step_time)  # (n,)
        series = self.interpolate(batch, time)  # (b, k, 3v)
        embedding = self.gru(self.dropout(series))[1][0]  # (b, hidden)
        penalty = embedding.new_zeros(())
        if self.training and self.config.reconstruction:
            penalty = self.config.reconstruction * self.reconstruction_error(batch, step_time)
        return Output(self.head(embedding, batch.statics), embedding, penalty)

    def interpolate(self, batch: Batch, time: Tensor) -> Tensor:
        """[tau, lambda, gamma - tau] at the reference points, (b, k, 3v)."""
        points = self.points.expand(batch.num_samples, -1)
        smoothed = self.smooth(batch, time, points, sharpness=self.config.kappa)
        tau = self.mix(smoothed.value, smoothed.log_intensity)
        return torch.cat([tau, smoothed.log_intensity.exp(), smoothed.sharp - tau], dim=-1)

    def reconstruction_error(self, batch: Batch, step_time: Tensor) -> Tensor:
        """Mean squared error of tau at held-out readings: mean over the readings of a series, then over series."""
        held_out = torch.rand_like(batch.value) < self.config.held_out  # (n,)
        if not held_out.any():
            return step_time.new_zeros(())
        points = PaddedLayout.from_batch(batch).pad(step_time)  # (b, t)
        smoothed = self.smooth(batch, batch.steps.broadcast(step_time), points, kept=~held_out)
        tau = self.mix(smoothed.value, smoothed.log_intensity)  # (b, t, v)
        predicted = tau[batch.sample, batch.rank[batch.step], batch.sensor][held_out]
        limit = self.config.outlier
        error = (predicted - batch.value[held_out].clamp(-limit, limit)).square()
        _, series = torch.unique(batch.senders.index[held_out], return_inverse=True)
        by_series = Segments.from_index(series, int(series.max()) + 1)
        return (by_series.sum(error) / by_series.counts).mean()
