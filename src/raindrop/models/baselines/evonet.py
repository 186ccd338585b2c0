"""EvoNet (Hu et al., "Time-Series Event Prediction with Evolutionary State Graph", WSDM 2021) with a classifier on top.

A series is cut into segments. Each segment belongs, with some probability, to each of a few states, and a sample is a
transitions between states:

States            P_t(v) = pi_v N(x_t; mu_v, sigma_v^2) / sum_u ...   a Gaussian mixture, fitted before training
State graph       E_t(u, v) = P_{t-1}(u) P_t(v)                       weight of the transition from u to v
Local aggregation H_t = max(tanh(W_in E_t h_{t-1} + b_in), tanh(W_out E_t' h_{t-1} + b_out))
Attention         a_t = w [mean_v H_t(v), U_{t-1}]
State level       h_t(v) = LSTM([a_t U_{t-1}, H_t(v)], h_{t-1}(v)),   h_0(v) from mu_v and sigma_v
Graph level       U_t = LSTM(a_t mean_v h_t(v), U_{t-1}),             U_0 = 0
Readout           sum_t softmax(a)_t [U_t, mean_v h_t(v), x_t]

E_t is an outer product, so E_t h_{t-1} costs states x size: no graph is built, and the only loop of the network is the
one over segments, for all samples at once.

Adapted to irregular readings as in the appendix of the Raindrop paper, which imputes means: x_t has the mean of each
sensor's readings in the segment, and 0, the training mean, where there are none. Our choices:
- segments are equal parts of the time span of the training readings, the same for every sample; readings outside it
  count in the first or last one. A segment in which a sample has no reading at all is skipped: the state stays, and
  the next transition is from the segment before it. So nothing is padded;
- the first segment has no predecessor and is its own: E_1(u, v) = P_1(u) P_1(v);
- x_t is a vector of means, not the series within the segment, whose length would differ;
- the event of each earlier segment, an input of the authors' code, does not exist here: a sample has one label;
- the authors' code classifies [U, h, x], averaged over segments, by boosted trees. Here the attention weighs the
  segments, and a network is trained with the rest.

Axes: b a sample, t a segment, p a segment with readings, m a sensor, v a state, h and g the sizes of h and U.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.batch.collate import BatchSource, bounded
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.layers import Clock, StateHeadConfig
from raindrop.ranges import Positive, Range, Share, Size

MAX_FITTED = 20_000  # training segments that the mixture is fitted to
FIT_SAMPLES = 2_048  # training samples that the segments are taken from
FIT_STEPS = 30  # of expectation and maximisation
MIN_VARIANCE = 0.01  # of a component, for sensors that are constant in it


@dataclass(frozen=True, kw_only=True)
class EvoNetConfig(StateHeadConfig):
    """The sizes of the authors' published code."""

    segments: Annotated[int, Range(2, 4096)] = 15
    """T, equal parts of the time span of the training readings."""
    states: Annotated[int, Range(2, 4096)] = 30
    """Components of the Gaussian mixture."""
    node_dim: Size = 96
    """Size of h, the vector of a state."""
    graph_dim: Size = 256
    """Size of U, the vector of the whole graph."""
    missing: Literal["mean", "ignore"] = "mean"
    """A sensor without a reading in a segment counts as its mean when states are recognised, or not at all."""
    indicator: bool = False
    """Also read out which sensors have a reading in a segment. Not in the paper."""
    outlier: Positive = 5.0
    """For recognising states, readings are clipped to this many standard deviations."""
    head_hidden: Size = 512
    """Neurons in the classifier's first layer."""
    dropout: Share = 0.0
    """Dropout in the classifier."""


@dataclass(frozen=True)
class SegmentedReadings:
    """The readings of a batch by segment."""

    value: Tensor  # (b, t, m) mean of the sensor's readings; 0 where it has none
    seen: Tensor  # (b, t, m) 1 where the sensor has a reading, else 0
    present: Tensor  # (b, t) whether any sensor has one


class EvoNet(Model):
    """Readings -> segments -> states -> messages along transitions, two recurrent networks -> attention -> class."""

    def __init__(self, config: EvoNetConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config, M = config, spec.num_sensors
        self.clock = Clock(spec, float(config.segments))
        self.states = StateMixture(config.states, M)
        self.start = nn.Linear(2 * M, config.node_dim)
        self.aggregate = TransitionMessages(config.node_dim)
        self.attend = nn.Linear(config.node_dim + config.graph_dim, 1)
        self.from_graph = nn.Linear(config.graph_dim, 4 * config.node_dim, bias=False)  # the same for all states
        self.from_messages = nn.Linear(config.node_dim, 4 * config.node_dim)
        self.from_state = nn.Linear(config.node_dim, 4 * config.node_dim, bias=False)
        self.graph_cell = nn.LSTMCell(config.node_dim, config.graph_dim)
        read = config.graph_dim + config.node_dim + M * (2 if config.indicator else 1)
        self.head = config.head(read, spec, config.dropout)

    def prepare(self, training: BatchSource, validation: BatchSource | None, seed: int) -> None:
        """Fit the mixture to segments of training samples."""
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.permutation(len(training))[:FIT_SAMPLES])
        parts = []
        for positions in bounded(training, chosen, max_items=256):
            x, seen = self.state_inputs(self.segment(training.batch(positions)))
            parts.append(torch.stack([x, seen]))
        x, seen = torch.cat(parts, dim=1) if parts else torch.zeros(2, 0, self.states.mean.shape[1])
        kept = torch.from_numpy(np.sort(rng.permutation(len(x))[:MAX_FITTED]))
        self.states.fit(x[kept], seen[kept], rng)

    def forward(self, batch: Batch) -> Output:
        readings = self.segment(batch)
        P = self.recognise(readings)  # (b, t, v)
        h, U, a = self.evolve(P, readings.present)
        a = a.masked_fill(~readings.present, torch.finfo(a.dtype).min)
        weight = torch.softmax(a, dim=1) * readings.present  # (b, t), 0 in a sample without readings
        inputs = [U, h, readings.value, *([readings.seen] if self.config.indicator else [])]
        embedding = torch.cat([(weight[:, None] @ x).squeeze(1) for x in inputs], dim=-1)
        return Output(self.head(embedding, batch.statics), embedding, embedding.new_zeros(()))

    def segment(self, batch: Batch) -> SegmentedReadings:
        """The mean of each sensor's readings in each segment."""
        T, M = self.config.segments, batch.num_sensors
        number = self.clock.rescale(batch.time).floor().clamp(0, T - 1).long().to(batch.value.device)  # (s,)
        cell = ((batch.step_sample * T + number)[batch.step]) * M + batch.sensor  # (n,)
        size = batch.num_samples * T * M
        total = batch.value.new_zeros(size).index_add(0, cell, batch.value)
        count = torch.bincount(cell, minlength=size).to(total.dtype)
        value = (total / count.clamp_min(1)).view(batch.num_samples, T, M)
        seen = (count > 0).to(total.dtype).view_as(value)
        return SegmentedReadings(value, seen, seen.any(-1))

    def state_inputs(self, readings: SegmentedReadings) -> tuple[Tensor, Tensor]:
        """(p, m) each: values of the segments with readings, and 1 for those that the mixture uses."""
        x = readings.value[readings.present].clamp(-self.config.outlier, self.config.outlier)
        seen = readings.seen[readings.present]
        return x, torch.ones_like(seen) if self.config.missing == "mean" else seen

    def recognise(self, readings: SegmentedReadings) -> Tensor:
        """P (b, t, v): the probability of each state; 0 in segments without readings."""
        P = readings.value.new_zeros(*readings.present.shape, self.config.states)
        return P.masked_scatter(readings.present[..., None], self.states(*self.state_inputs(readings)))

    def evolve(self, P: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """mean_v h_t (b, t, h), U_t (b, t, g) and a_t (b, t), from P (b, t, v)."""
        b = len(P)
        h = self.start(torch.cat([self.states.mean, self.states.variance.log()], dim=-1)).expand(b, -1, -1)  # h_0
        U = P.new_zeros(b, self.config.graph_dim)
        c_h, c_U = h, U
        before, begun = P[:, 0], present[:, 0]
        states, graphs, scores = [], [], []
        for t in range(P.shape[1]):
            now, here = P[:, t], present[:, t, None]
            H = self.aggregate(torch.where(begun[:, None], before, now), now, h)  # (b, v, h)
            a = self.attend(torch.cat([H.mean(1), U], dim=-1))  # (b, 1)
            gates = self.from_graph(a * U)[:, None] + self.from_messages(H) + self.from_state(h)
            next_h, next_c = lstm_update(gates, c_h)
            h, c_h = (torch.where(here[..., None], new, old) for new, old in ((next_h, h), (next_c, c_h)))
            next_U, next_c = self.graph_cell(a * h.mean(1), (U, c_U))
            U, c_U = (torch.where(here, new, old) for new, old in ((next_U, U), (next_c, c_U)))
            before, begun = torch.where(here, now, before), begun | present[:, t]
            states.append(h.mean(1))
            graphs.append(U)
            scores.append(a[:, 0])
        return torch.stack(states, dim=1), torch.stack(graphs, dim=1), torch.stack(scores, dim=1)


def lstm_update(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The next state and cell of an LSTM, from its four gates before their activation."""
    i, f, g, o = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


class TransitionMessages(nn.Module):
    """H = max(tanh(W_in E h + b_in), tanh(W_out E' h + b_out)), with E the outer product of two distributions."""

    def __init__(self, dim: int):
        super().__init__()
        self.inward, self.outward = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, before: Tensor, now: Tensor, h: Tensor) -> Tensor:  # (b, v), (b, v), (b, v, h)
        to_next = before[..., None] * (now[:, None] @ h)  # E h: each state receives from those it may go to
        to_previous = now[..., None] * (before[:, None] @ h)  # E' h: and from those it may come from
        return torch.maximum(torch.tanh(self.inward(to_next)), torch.tanh(self.outward(to_previous)))


class StateMixture(nn.Module):
    """A mixture of Gaussians with diagonal covariances over segments, stored in buffers.

    Sensors that are not used are left out of a component's likelihood.
    """

    mean: Tensor  # (v, m)
    variance: Tensor  # (v, m)
    log_weight: Tensor  # (v,)

    def __init__(self, states: int, num_sensors: int):
        super().__init__()
        self.register_buffer("mean", torch.randn(states, num_sensors))
        self.register_buffer("variance", torch.ones(states, num_sensors))
        self.register_buffer("log_weight", torch.zeros(states))

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """(p, m) values, and 1 or 0 for those that are used -> (p, v) the probability of each state."""
        return torch.softmax(self.log_joint(x, seen), dim=-1)

    def log_joint(self, x: Tensor, seen: Tensor) -> Tensor:
        """(p, v) log pi_v + log N(x; mu_v, sigma_v^2), state by state: all at once takes states times the memory."""
        scores = []
        for mean, variance, log_weight in zip(self.mean, self.variance, self.log_weight, strict=True):
            squared = (x - mean).square() / variance + variance.log() + math.log(2 * math.pi)
            scores.append(log_weight - 0.5 * (squared * seen).sum(-1))
        return torch.stack(scores, dim=-1)

    @torch.no_grad()
    def fit(self, x: Tensor, seen: Tensor, rng: np.random.Generator) -> None:
        """EM on (p, m) values, starting from random segments as means; without any segments, nothing changes.

        Each component gets one additional observation of mean 0 and variance 1, the values of every sensor over all
        readings, so that a component with few segments keeps some width.
        """
        if not len(x):
            return
        x, seen = x.cpu().double(), seen.cpu().double()
        states = len(self.mean)
        start = torch.from_numpy(rng.choice(len(x), size=states, replace=len(x) < states))
        fitted = StateMixture(states, x.shape[1]).double()
        fitted.mean.copy_(x[start] * seen[start])
        for _ in range(FIT_STEPS):
            R = fitted(x, seen)  # (p, v)
            count = R.T @ seen + 1  # (v, m)
            mean = R.T @ (x * seen) / count
            fitted.mean.copy_(mean)
            variance = (R.T @ (x.square() * seen) + 1) / count - mean.square()
            fitted.variance.copy_(variance.clamp_min(MIN_VARIANCE))
            fitted.log_weight.copy_(((R.sum(0) + 1) / (len(x) + states)).log())
        for name, learned in fitted.named_buffers():
            getattr(self, name).copy_(learned)
