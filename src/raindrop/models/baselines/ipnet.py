"""IP-Net (Shukla and Marlin, "Interpolation-Prediction Networks for Irregularly Sampled Time Series", ICLR 2019).

Sec. 3.2.1, first layer, each sensor d alone at reference points r_k:
    kernel      w(r, t; alpha) = exp(-alpha (r - t)^2)
    intensity   lambda_kd = sum_j w(r_k, t_jd; alpha_d)
    smooth      sigma_kd  = sum_j w(r_k, t_jd; alpha_d) x_jd / lambda_kd
    transient   gamma_kd  = the same with kappa alpha_d
second layer, across sensors:
    tau_kd = sum_d' rho_dd' lambda_kd' sigma_kd' / sum_d' lambda_kd'
What the prediction network sees at r_k is [tau, lambda, gamma - tau]: trend, intensity, what the trend leaves out.
Sec. 3.2.2, prediction: a GRU over the reference points; its last state, with the statics, is classified.
Sec. 3.2.3, learning: cross entropy + delta * squared error of tau at the times of readings that were held out, told
from the readings that were not.

Where we differ: dropout is on the GRU's input only, while the authors' code also drops a fifth of its state from step
to step, which torch's fused GRU cannot do. The mixing of sensors is the equation above; the authors' code mixes what is
left of sigma after its mean over the reference points, and adds that mean again.

Axes: n a reading, b a sample, v a sensor, k a reference point, t a timestamp.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.batch.ragged import Segments
from raindrop.models.base import DataSpec, Output
from raindrop.models.baselines.interpolation import ReferenceConfig, ReferenceModel


@dataclass(frozen=True, kw_only=True)
class IPNetConfig(ReferenceConfig):
    """The paper's settings for 48 hours in intensive care."""

    reference_points: int = 192
    """Points r_k, evenly over the time span of the training readings."""
    kappa: float = 10.0
    """How much narrower the kernel of the transient part is."""
    hidden: int = 100
    """Size of the GRU's state."""
    dropout: float = 0.2
    """Dropout of the GRU's input."""
    held_out: float = 0.2
    """Share of readings held out in training for the reconstruction loss."""
    reconstruction: float = 1.0
    """delta, weight of the reconstruction loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out is a share of readings above 0 and below 1, not {self.held_out}.")


class IPNet(ReferenceModel):
    """Readings -> three interpolants at reference points -> GRU -> class."""

    def __init__(self, config: IPNetConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.dropout = nn.Dropout(config.dropout)
        self.gru = nn.GRU(3 * spec.num_sensors, config.hidden, batch_first=True)
        self.head = config.head(config.hidden, spec)

    def forward(self, batch: Batch) -> Output:
        time = batch.slots.broadcast(self.clock(batch.time))  # (n,)
        series = self.interpolate(batch, time)  # (b, k, 3v)
        embedding = self.gru(self.dropout(series))[1][0]  # (b, hidden)
        penalty = embedding.new_zeros(())
        if self.training and self.config.reconstruction:
            penalty = self.config.reconstruction * self.reconstruct(batch, time)
        return Output(self.head(embedding, batch.statics), embedding, penalty)

    def interpolate(self, batch: Batch, time: Tensor) -> Tensor:
        """[tau, lambda, gamma - tau] at the reference points, (b, k, 3v)."""
        points = self.points.expand(batch.num_samples, -1)
        smoothed = self.smooth(batch, time, points, sharpness=self.config.kappa)
        tau = self.mix(smoothed.value, smoothed.log_intensity)
        return torch.cat([tau, smoothed.log_intensity.exp(), smoothed.sharp - tau], dim=-1)

    def reconstruct(self, batch: Batch, time: Tensor) -> Tensor:
        """Mean squared error of tau at held-out readings, mean over the readings of a series, then over series."""
        held = torch.rand_like(batch.value) < self.config.held_out  # (n,)
        if not held.any():
            return time.new_zeros(())
        grid = batch.grid()
        smoothed = self.smooth(batch, time, self.clock(grid.time), kept=~held)
        tau = self.mix(smoothed.value, smoothed.log_intensity)  # (b, t, v)
        guess = tau[batch.sample, batch.rank[batch.slot], batch.sensor][held]
        limit = self.config.outlier
        error = (guess - batch.value[held].clamp(-limit, limit)).square()
        _, series = torch.unique(batch.senders.index[held], return_inverse=True)
        by_series = Segments.from_index(series, int(series.max()) + 1)
        return (by_series.sum(error) / by_series.counts).mean()
