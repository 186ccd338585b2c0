"""GRIN (Cini, Marisca and Alippi, "Filling the G_ap_s: Multivariate Time Series Imputation by Graph Neural Networks",
ICLR 2022), for queries.

At the t-th timestamp of a sample every sensor is a node with reading x, observation indicator m and state h_(t-1):

    y1   = V_h h_(t-1) + b                                   first stage                     Sec. 4.1
    x1   = m x + (1 - m) y1
    S_i  = prelu(sum over supports A and j != i of A_ij W_A [x1_j, m_j, u, h_j] + W h_i)     spatial decoder
    y2   = V_s [S, h_(t-1)] + b                              second stage
    x2   = m x + (1 - m) y2
    r, z = sigmoid(GC([x2, m, u, h_(t-1)])),  c = tanh(GC([x2, m, u, r h_(t-1)]))            graph convolutional GRU
    h_t  = z h_(t-1) + (1 - z) c

with GC(x) = x W_0 + sum over supports A and powers k of A^k x W, and the same backwards in time with weights of its
own. A missing reading is MLP([S_f, h_f, S_b, h_b, sensor embedding]). In training the errors of y1 and y2 of both
directions at all visible readings are added to the loss, as in the paper. Linear maps that follow one another in the
authors' decoder are one here.

Differences. The paper is given the distances between sensors; here no graph is known, so A is learned as the adaptive
adjacency of Graph WaveNet (Wu et al., IJCAI 2019): A = softmax(relu(E_1 E_2^T)) without its diagonal, and the other way
round, softmax(relu(E_2 E_1^T)); all samples share it. The paper's grid is regular; here the exogenous input u is the
logarithm of the time since the previous timestamp. A query is answered from S and h of a step of its own
(`query_steps.py`), in which S does not see the asked sensor's reading, so extra steps never change the recurrence.
Axes: n steps or queries' times, v sensors, h state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch, Queries
from raindrop.models.base import DataSpec, Output
from raindrop.models.baselines.query_steps import Past, QuantileHead, QueryNetwork, QueryTimes, Steps, reversed_steps
from raindrop.ranges import Layers, Ranged, Size, Weight


@dataclass(frozen=True, kw_only=True)
class GRINConfig(Ranged):
    """As in the authors' AQI-36 experiments, and Graph WaveNet's for the adjacency."""

    state_dim: Size = 64
    """Size of a sensor's state h in each direction."""
    hidden: Size = 64
    """Neurons in the layer that joins both directions."""
    sensor_dim: Size = 8
    """Size of the sensor embedding that is given to it."""
    order: Layers = 2
    """Largest power of A in a graph convolution of the recurrence."""
    adjacency_dim: Size = 10
    """Size of the vectors E_1 and E_2 of a sensor."""
    stages: Weight = 1.0
    """Weight of the errors of both stages at visible readings."""


class GRIN(QueryNetwork):
    """Quantiles of queried readings from a graph recurrent network in both directions of time."""

    def __init__(self, config: GRINConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config = config
        M = spec.num_sensors
        self.E_1 = nn.Parameter(torch.randn(M, config.adjacency_dim))
        self.E_2 = nn.Parameter(torch.randn(M, config.adjacency_dim))
        self.cells = nn.ModuleList(GRIL(M, config.state_dim, 2 * config.order) for _ in range(2))
        self.sensors = nn.Parameter(torch.randn(M, config.sensor_dim))
        width = 4 * config.state_dim + config.sensor_dim + spec.static_width
        self.join = nn.Linear(width, config.hidden)
        self.centre = nn.Linear(config.hidden, 1)
        self.head = QuantileHead(config.hidden, spec)

    def forward(self, batch: Batch) -> Output:
        queries, times = cast(Queries, batch.queries), QueryTimes.from_batch(batch)
        powers = [self.adjacency()]  # (2, v, v)
        for _ in range(self.config.order - 1):
            powers.append(powers[-1] @ powers[0])
        supports = torch.cat(powers)
        parts, stages = [], []
        for module, past, sign in zip(self.cells, self.both_directions(batch), (1, -1), strict=True):
            cell = cast(GRIL, module)
            states = cell.run(past, supports)
            parts.append(cell.decode(past.at(times.sample, sign * times.time), states, supports)[2])
            if self.training and self.config.stages:
                stages.append([y.T for y in cell.decode(past.steps, states, supports)[:2]])
        asked = torch.cat([part[queries.sensor, times.index] for part in parts], dim=-1)  # (q, 4 h)
        x = torch.cat([asked, self.sensors[queries.sensor], batch.statics[queries.sample]], dim=1)
        joined = torch.relu(self.join(x))
        scores = self.head(self.centre(joined)[:, 0], joined, queries.sensor)
        penalty = scores.new_zeros(())
        if stages and batch.num_steps:
            place = reversed_steps(batch)
            predicted = [*stages[0], *(stage[place] for stage in stages[1])]
            errors = [(y.flatten()[batch.cell] - batch.value).abs().mean() for y in predicted]
            penalty = self.config.stages * torch.stack(errors).sum()
        return Output(scores=scores, embedding=joined, penalty=penalty)

    def adjacency(self) -> Tensor:
        """(2, v, v) how much sensor v receives from each other sensor, in both orders of E_1 and E_2; rows sum to 1."""
        score = torch.relu(torch.stack([self.E_1 @ self.E_2.T, self.E_2 @ self.E_1.T]))
        diagonal = torch.eye(score.shape[1], dtype=torch.bool, device=score.device)
        weight = (score - score.detach().amax(-1, keepdim=True)).exp().masked_fill(diagonal, 0.0)
        return weight / weight.sum(-1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)


class GRIL(nn.Module):
    """The recurrence of one direction. Sensors come first, (v, n, ...), so that A x is one matrix product."""

    def __init__(self, sensors: int, dim: int, supports: int):
        super().__init__()
        self.start = nn.Parameter(torch.randn(sensors, dim) * dim**-0.5)  # h_0
        self.first_stage = nn.Linear(dim, 1)
        self.decoder = nn.Linear(2 + 4 + 3 * dim, dim)  # W_A and W
        self.activation = nn.PReLU()
        self.second_stage = nn.Linear(2 * dim, 1)
        self.gates = nn.Linear((1 + supports) * (dim + 3), 2 * dim)
        self.candidate = nn.Linear((1 + supports) * (dim + 3), dim)

    def run(self, past: Past, supports: Tensor) -> Tensor:
        """(s, v, h) the states after each timestamp; supports (k, v, v): A in both orders, then its powers."""

        def step(state: Tensor, value: Tensor, observed: Tensor, about: Tensor) -> Tensor:
            h, value, observed, about = (x.transpose(0, 1) for x in (state, value, observed, about))
            near = convolve(supports, h)
            y2 = self.stages(near, value, observed, about, supports)[1]
            x2 = torch.where(observed, value, y2)[..., None]
            inputs = torch.cat([convolve(supports, x2), about], dim=-1)
            r, z = torch.sigmoid(self.gates(torch.cat([inputs, near], dim=-1))).chunk(2, dim=-1)
            c = torch.tanh(self.candidate(torch.cat([inputs, convolve(supports, r * h)], dim=-1)))
            return torch.lerp(c, h, z).transpose(0, 1)

        steps = past.steps
        about = convolve(supports, indicators(steps)).transpose(0, 1)
        start = self.start.expand(past.batch.num_samples, -1, -1)
        return past.run(step, start, [steps.value, steps.observed, about])

    def decode(self, steps: Steps, states: Tensor, supports: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """y1 and y2 (v, n), and [S, h] (v, n, 2 h), from the states before each step."""
        first_order = supports[:2]
        near = convolve(first_order, steps.before(states, self.start).transpose(0, 1))
        about = convolve(first_order, indicators(steps))
        return self.stages(near, steps.value.T, steps.observed.T, about, first_order)

    def stages(
        self, near: Tensor, value: Tensor, observed: Tensor, about: Tensor, supports: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Both stages from value and observed (v, n), and convolved h and [m, u], of which the first order is used.

        A sensor's own x1 and m are left out.
        """
        dim = self.start.shape[1]
        h = near[..., :dim]
        y1 = self.first_stage(h)[..., 0]
        x1 = torch.where(observed, value, y1)[..., None]
        others = torch.cat([convolve(supports[:2], x1)[..., 1:], about[..., 2:6], near[..., : 3 * dim]], dim=-1)
        both = torch.cat([self.activation(self.decoder(others)), h], dim=-1)
        return y1, self.second_stage(both)[..., 0], both


def convolve(supports: Tensor, x: Tensor) -> Tensor:
    """x (v, n, c) and A x of every support A (k, v, v), side by side: (v, n, (1 + k) c)."""
    mixed = (supports.flatten(0, 1) @ x.flatten(1)).view(len(supports), *x.shape)
    return torch.cat([x, *mixed], dim=-1)


def indicators(steps: Steps) -> Tensor:
    """[m, u] of each sensor, (v, n, 2)."""
    m = steps.observed.T.to(steps.value.dtype)
    return torch.stack([m, steps.gap.log1p().expand_as(m)], dim=-1)
