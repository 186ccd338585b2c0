"""GRU-D (Che et al., 2018; `grud.py` has its equations) that answers queries.

One GRU-D runs forwards in time and another backwards. For a query (v, t), each takes a step at t (`query_steps.py`),
in which sensor v has no reading: its state h (Eq. 16), the last reading x' of v before t, or the first one after it,
and the decay gamma_x (Eq. 10). The paper classifies only; the imputed value is

    carried = (gamma_f x'_f + gamma_b x'_b) / max(1, gamma_f + gamma_b)
    value   = carried + w_v . [h_f, h_b, statics] + b_v

With readings on one side only, such as in a forecast, `carried` is Eq. 11's estimate of an unobserved input.
Times are in units of a sensor's typical interval between readings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch, Queries
from raindrop.models.base import DataSpec, Output
from raindrop.models.baselines.grud import advance, decay
from raindrop.models.baselines.query_steps import Past, QuantileHead, QueryNetwork, SensorLinear, Steps, own
from raindrop.models.layers import uniform
from raindrop.ranges import Ranged, Size


@dataclass(frozen=True, kw_only=True)
class GRUDQueryConfig(Ranged):
    """The size of the state is that of the paper's PhysioNet experiments."""

    state_dim: Size = 49
    """Size of h in each direction."""


class GRUDQueries(QueryNetwork):
    """Quantiles of queried readings from GRU-D in both directions of time."""

    def __init__(self, config: GRUDQueryConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.cells = nn.ModuleList(GRUDCell(spec.num_sensors, config.state_dim) for _ in range(2))
        width = 2 * config.state_dim + spec.static_width
        self.centre = SensorLinear(width, spec.num_sensors)
        self.head = QuantileHead(width + 2, spec)

    def forward(self, batch: Batch) -> Output:
        queries = cast(Queries, batch.queries)
        states, gammas, lasts, ages = [], [], [], []
        for module, past in zip(self.cells, self.both_directions(batch), strict=True):
            cell = cast(GRUDCell, module)
            asked = past.at(queries.sample, cast(Queries, past.batch.queries).time, queries.sensor)
            states.append(cell(past, asked))
            gammas.append(own(cell.input_gamma(asked) * asked.known, queries))
            lasts.append(own(asked.last, queries))
            ages.append(own(asked.elapsed, queries).log1p())
        gamma, last = torch.stack(gammas), torch.stack(lasts)  # (2, q)
        carried = (gamma * last).sum(0) / gamma.sum(0).clamp_min(1.0)
        x = torch.cat([*states, batch.statics[queries.sample]], dim=1)
        centre = carried + self.centre(x, queries.sensor)
        scores = self.head(centre, torch.cat([x, torch.stack(ages, dim=1)], dim=1), queries.sensor)
        return Output(scores=scores, embedding=x, penalty=scores.new_zeros(()))


class GRUDCell(nn.Module):
    """Eq. 10-16 of one direction, with the parameters of `GRUD`."""

    def __init__(self, sensors: int, dim: int):
        super().__init__()
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

    def forward(self, past: Past, asked: Steps) -> Tensor:
        """(q, h) the states at the queries.

        The recurrence is left out if no query needs it, such as backwards in time in a forecast.
        """
        start = self.b.new_zeros(past.batch.num_samples, len(self.U))
        needed = bool((asked.previous >= 0).any())
        states = past.run(self.advance, start, self.inputs(past.steps)) if needed else start[:0]
        return self.advance(asked.before(states, start.new_zeros(len(self.U))), *self.inputs(asked))

    def inputs(self, steps: Steps) -> tuple[Tensor, Tensor]:
        """(n, 3 h) the inputs of z, r and h~, and (n, h) the decay of the state."""
        filled = torch.where(steps.observed, steps.value, self.input_gamma(steps) * steps.last)  # Eq. 11
        x = filled @ self.W + steps.observed.to(filled.dtype) @ self.V + self.b
        return x, decay(steps.elapsed @ self.state_decay + self.state_decay_bias)  # Eq. 10

    def input_gamma(self, steps: Steps) -> Tensor:
        """Eq. 10 for the inputs, (n, u)."""
        return decay(steps.elapsed * self.input_decay + self.input_decay_bias)

    def advance(self, state: Tensor, x: Tensor, gamma: Tensor) -> Tensor:
        """Eq. 12-16."""
        return advance(state, x, gamma, self.U_gates, self.U)
