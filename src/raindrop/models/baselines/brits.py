"""BRITS (Cao et al., "BRITS: Bidirectional Recurrent Imputation for Time Series", NeurIPS 2018), for queries.

At the t-th timestamp of a sample, with readings x, observation indicators m and the times delta since each sensor's
last reading (Eq. 2 of GRU-D):

    gamma   = exp(-max(0, W_gamma delta + b_gamma))                               Eq. 3
    h       = gamma_h h_(t-1)                                                     within Eq. 4
    x^      = W_x h + b_x                              from the sensors' past     Eq. 1
    x^c     = m x + (1 - m) x^                                                    Eq. 2
    z^      = W_z x^c + b_z, diagonal of W_z 0         from the other sensors     Eq. 7
    beta    = sigmoid(W_beta [gamma_x || m] + b_beta), gamma_x of each sensor     Eq. 8
    c^      = beta z^ + (1 - beta) x^                                             Eq. 9
    c^c     = m x + (1 - m) c^                                                    Eq. 10
    h_t     = LSTM([c^c || m], h)                                                 Eq. 11

and the same backwards in time with weights of its own; a missing reading is the mean of both c^. In training, the
errors of x^, z^ and c^ at all visible readings and the distance of the two directions are added to the loss, as in the
paper. As in the authors' code the state decays before Eq. 1 and the recurrence is an LSTM.

A query is answered by c^ of an additional step (`query_steps.py`), so queries never change the recurrence; if a sample
has no timestamp on one side of the query, as in a forecast, only the other direction answers. W_beta does not use a
sensor's own m, so it does not matter whether the queried reading is visible. Times are in units of a sensor's typical
interval between readings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch, Queries
from raindrop.models.base import DataSpec, Output
from raindrop.models.baselines.grud import decay
from raindrop.models.baselines.query_steps import Past, QuantileHead, QueryNetwork, Steps, own, reversed_steps
from raindrop.models.layers import uniform
from raindrop.ranges import Ranged, Size, Weight


@dataclass(frozen=True, kw_only=True)
class BRITSConfig(Ranged):
    """The size of the state is the paper's; the weights of the losses are those of the authors' code."""

    state_dim: Size = 64
    """Size of h in each direction."""
    reconstruction: Weight = 0.3
    """Weight of the errors at visible readings."""
    consistency: Weight = 0.1
    """Weight of the distance between the directions, within the reconstruction."""


class BRITS(QueryNetwork):
    """Quantiles of queried readings from RITS in both directions of time."""

    def __init__(self, config: BRITSConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config = config
        self.cells = nn.ModuleList(RITS(spec.num_sensors, config.state_dim) for _ in range(2))
        self.head = QuantileHead(2 * config.state_dim + 2 + spec.static_width, spec)

    def forward(self, batch: Batch) -> Output:
        queries = cast(Queries, batch.queries)
        estimates, features, answered, reconstructions = [], [], [], []
        for module, past in zip(self.cells, self.both_directions(batch), strict=True):
            cell = cast(RITS, module)
            states = cell.run(past)
            asked = past.at(queries.sample, cast(Queries, past.batch.queries).time, queries.sensor)
            h, estimate = cell.estimates(asked, states)
            estimates.append(own(estimate[2], queries))
            features += [h, own(asked.elapsed, queries).log1p()[:, None]]
            answered.append(asked.previous >= 0)
            if self.training and self.config.reconstruction:
                reconstructions.append(cell.estimates(past.steps, states)[1])
        weight = torch.stack(answered).to(batch.value.dtype)  # (2, q)
        weight = torch.where(weight.sum(0) > 0, weight, 1.0)
        centre = (weight * torch.stack(estimates)).sum(0) / weight.sum(0)
        x = torch.cat([*features, batch.statics[queries.sample]], dim=1)
        penalty = centre.new_zeros(())
        if reconstructions and batch.num_steps:
            penalty = self.config.reconstruction * self.reconstruction_error(batch, *reconstructions)
        return Output(scores=self.head(centre, x, queries.sensor), embedding=x, penalty=penalty)

    def reconstruction_error(self, batch: Batch, forward: Estimates, backward: Estimates) -> Tensor:
        """Mean absolute errors of x^, z^ and c^ of both directions at the readings, and the directions' distance."""
        place = reversed_steps(batch)
        aligned = tuple(estimate[place] for estimate in backward)
        errors = [(x.flatten()[batch.cell] - batch.value).abs().mean() for x in (*forward, *aligned)]
        return torch.stack(errors).sum() + self.config.consistency * (forward[2] - aligned[2]).abs().mean()


Estimates = tuple[Tensor, Tensor, Tensor]
"""x^, z^ and c^, (n, u) each."""


class RITS(nn.Module):
    """Eq. 1-11 of one direction."""

    diagonal: Tensor

    def __init__(self, sensors: int, dim: int):
        super().__init__()
        self.dim = dim
        # Decay rates start small and positive: below 0, max(0, .) has no gradient.
        self.state_decay = nn.Parameter(torch.rand(sensors, dim) * 0.1 / sensors)
        self.state_decay_bias = nn.Parameter(torch.rand(dim) * 0.1)
        self.input_decay = nn.Parameter(torch.rand(sensors) * 0.1)
        self.input_decay_bias = nn.Parameter(torch.rand(sensors) * 0.1)
        self.history = nn.Linear(dim, sensors)  # W_x
        self.W_z = uniform(sensors, sensors, bound=sensors**-0.5)
        self.b_z = nn.Parameter(torch.zeros(sensors))
        self.W_gamma = uniform(sensors, sensors, bound=sensors**-0.5)  # W_beta's columns for gamma_x
        self.W_m = uniform(sensors, sensors, bound=sensors**-0.5)  # and for m
        self.b_beta = nn.Parameter(torch.zeros(sensors))
        self.lstm = nn.LSTMCell(2 * sensors, dim)
        self.register_buffer("diagonal", torch.eye(sensors, dtype=torch.bool), persistent=False)

    def run(self, past: Past) -> Tensor:
        """(s, 2 h): h and the LSTM's memory after each timestamp."""
        W_z = self.W_z.masked_fill(self.diagonal, 0.0)
        steps = past.steps

        def step(state: Tensor, gamma: Tensor, beta: Tensor, value: Tensor, observed: Tensor, m: Tensor) -> Tensor:
            h, memory = state.chunk(2, dim=1)
            h = gamma * h
            estimate = self.estimate(h, beta, value, observed, W_z)[2]
            filled = torch.where(observed, value, estimate)  # Eq. 10
            return torch.cat(self.lstm(torch.cat([filled, m], dim=1), (h, memory)), dim=1)  # Eq. 11

        start = self.b_z.new_zeros(past.batch.num_samples, 2 * self.dim)
        inputs = [*self.decays(steps), steps.value, steps.observed, steps.observed.to(start.dtype)]
        return past.run(step, start, inputs)

    def estimates(self, steps: Steps, states: Tensor) -> tuple[Tensor, Estimates]:
        """The decayed state (n, h) at each step, and the estimates from it and from the other sensors."""
        gamma, beta = self.decays(steps)
        h = gamma * steps.before(states, states.new_zeros(2 * self.dim))[:, : self.dim]
        W_z = self.W_z.masked_fill(self.diagonal, 0.0)
        return h, self.estimate(h, beta, steps.value, steps.observed, W_z)

    def estimate(self, h: Tensor, beta: Tensor, value: Tensor, observed: Tensor, W_z: Tensor) -> Estimates:
        """Eq. 1, 2, 7 and 9."""
        from_past = self.history(h)
        from_others = torch.addmm(self.b_z, torch.where(observed, value, from_past), W_z)
        return from_past, from_others, torch.lerp(from_past, from_others, beta)

    def decays(self, steps: Steps) -> tuple[Tensor, Tensor]:
        """gamma_h (n, h) of Eq. 3, and beta (n, u) of Eq. 8."""
        gamma_h = decay(steps.elapsed @ self.state_decay + self.state_decay_bias)
        gamma_x = decay(steps.elapsed * self.input_decay + self.input_decay_bias)
        m = steps.observed.to(gamma_x.dtype)
        others = self.W_m.masked_fill(self.diagonal, 0.0)
        return gamma_h, torch.sigmoid(gamma_x @ self.W_gamma + m @ others + self.b_beta)
