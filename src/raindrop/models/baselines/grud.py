"""GRU-D (Che et al., "Recurrent neural networks for multivariate time series with missing values", 2018).

For sensor d at the t-th timestamp s_t of a sample, with m its observation indicator:

    delta_t = s_t - time of its last reading before s_t, or - s_1 without one        Eq. 2
    gamma   = exp(-max(0, W_gamma delta + b_gamma))                                  Eq. 10
    x^      = m x + (1 - m) (gamma_x x' + (1 - gamma_x) x~)                          Eq. 11, W_gamma_x diagonal
    h^      = gamma_h h                                                              Eq. 12
    z, r    = sigmoid(W x^ + U h^ + V m + b)                                         Eq. 13-14
    h~      = tanh(W x^ + U (r h^) + V m + b)                                        Eq. 15
    h       = (1 - z) h^ + z h~                                                      Eq. 16

x' is the last reading, x~ the training mean, which is 0 after scaling. The last state and the statics go to the
classifier. Everything but Eq. 12-16 is computed for all timestamps at once. Eq. 12-16 run step by step over the samples
that still have a timestamp, longest first, so a sample that has ended costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.layers import HeadConfig, Recurrence, dense_values, times_like, uniform
from raindrop.ranges import Positive, Size


@dataclass(frozen=True, kw_only=True)
class GRUDConfig(HeadConfig):
    """As in the paper's PhysioNet experiments."""

    state_dim: Size = 49
    """Size of h."""
    time_scale: Positive = 1.0
    """Times are divided by this; 1 keeps the table's unit."""


class GRUD(Model):
    """A GRU whose inputs and state decay while there are no readings."""

    def __init__(self, config: GRUDConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config = config
        dim, sensors = config.state_dim, spec.num_sensors
        # Decay rates start small and positive: below 0, max(0, .) has no gradient.
        self.input_decay = nn.Parameter(torch.rand(sensors) * 0.1)
        self.input_decay_bias = nn.Parameter(torch.rand(sensors) * 0.1)
        self.state_decay = nn.Parameter(torch.rand(sensors, dim) * 0.1 / sensors)
        self.state_decay_bias = nn.Parameter(torch.rand(dim) * 0.1)
        bound = dim**-0.5
        self.W = uniform(sensors, 3 * dim, bound=bound)  # of z, r and h~, side by side
        self.V = uniform(sensors, 3 * dim, bound=bound)
        self.b = uniform(3 * dim, bound=bound)
        self.U_gates = uniform(dim, 2 * dim, bound=bound)
        self.U = uniform(dim, dim, bound=bound)
        self.head = config.head(dim, spec)

    def forward(self, batch: Batch) -> Output:
        value = dense_values(batch)  # (s, u)
        last, delta = last_readings(batch, value)
        delta = delta / self.config.time_scale
        gamma_x = decay(delta * self.input_decay + self.input_decay_bias)  # Eq. 10
        filled = torch.where(batch.observed, value, gamma_x * last)  # Eq. 11
        inputs = filled @ self.W + batch.observed.to(value.dtype) @ self.V + self.b  # (s, 3 h)
        gamma_h = decay(delta @ self.state_decay + self.state_decay_bias)  # Eq. 10
        start = inputs.new_zeros(batch.num_samples, self.config.state_dim)
        state = Recurrence(batch).last(self.advance, start, inputs, gamma_h)  # Eq. 12-16
        return Output(self.head(state, batch.statics), state, state.new_zeros(()))

    def advance(self, state: Tensor, x: Tensor, gamma: Tensor) -> Tensor:
        """Eq. 12-16."""
        return advance(state, x, gamma, self.U_gates, self.U)


def advance(state: Tensor, x: Tensor, gamma: Tensor, U_gates: Tensor, U: Tensor) -> Tensor:
    """Eq. 12-16: the next state (b, h) from inputs x (b, 3 h) of z, r and h~, and decays gamma (b, h)."""
    dim = state.shape[1]
    state = gamma * state  # Eq. 12
    z, r = torch.sigmoid(torch.addmm(x[:, : 2 * dim], state, U_gates)).chunk(2, dim=1)  # Eq. 13-14
    candidate = torch.tanh(torch.addmm(x[:, 2 * dim :], r * state, U))  # Eq. 15
    return torch.lerp(state, candidate, z)  # Eq. 16


def decay(x: Tensor) -> Tensor:
    """Eq. 10."""
    return torch.exp(-torch.relu(x))


def last_readings(batch: Batch, value: Tensor) -> tuple[Tensor, Tensor]:
    """x' and delta, (s, u) each: a sensor's last reading before a timestamp, 0 without one, and the time since then."""
    step = torch.arange(batch.num_steps, device=value.device)[:, None]
    latest = torch.where(batch.observed, step, -1).cummax(0).values[:-1]
    latest = torch.cat([latest.new_full((min(1, batch.num_steps), batch.num_sensors), -1), latest])
    first = batch.samples.offsets[batch.step_sample][:, None]
    known = latest >= first
    since = torch.where(known, latest, first)
    delta = batch.time[:, None] - batch.time[since.cpu()]
    return value.gather(0, since) * known, times_like(delta, value)
