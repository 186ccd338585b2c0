"""ODE-RNN (Rubanova, Chen and Duvenaud, "Latent ODEs for Irregularly-Sampled Time Series", NeurIPS 2019), Algorithm 1.

    h'_i = ODESolve(f, h_{i-1}, (t_{i-1}, t_i))      between timestamps the state follows dh/dt = f(h)
    h_i  = GRUCell(h'_i, [x_i, m_i])                 at a timestamp it is updated by the readings x_i and their mask m_i
The state after the last timestamp is classified, with the statics.

The solver takes the same number of equal steps over every gap, so all samples can step at once, and no sample's steps
depend on the rest of the batch. Samples are sorted longest first, and a sample that has ended is left out: nothing is
padded. The only loop is the one over timestamps.

Axes: s a timestamp of a sample, b a sample, h the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.layers import Clock, StateHeadConfig, dense_values, times_like
from raindrop.ranges import Layers, Positive, Share, Size


@dataclass(frozen=True, kw_only=True)
class ODERNNConfig(StateHeadConfig):
    """The paper's sizes for PhysioNet 2012."""

    hidden: Size = 40
    """Size of the state h."""
    layers: Layers = 3
    """Hidden layers of f."""
    width: Size = 50
    """Their width."""
    solver: Literal["euler", "rk4"] = "euler"
    """One evaluation of f per step, or the classical Runge-Kutta step with four."""
    steps: Layers = 1
    """Solver steps over the gap between two timestamps."""
    window: Positive = 1.0
    """Length assigned to the time span of the training readings; the paper's times run from 0 to 1."""
    head_hidden: Size = 300
    """Neurons in the classifier's first layer."""
    dropout: Share = 0.0
    """Dropout in the classifier."""


class ODERNN(Model):
    """Readings -> a state that follows an ODE between timestamps and is updated at them -> class."""

    def __init__(self, config: ODERNNConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config = config
        self.clock = Clock(spec, config.window)
        widths = [config.hidden, *[config.width] * config.layers]
        layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.Tanh())]
        self.f = nn.Sequential(*layers, nn.Linear(config.width, config.hidden))
        self.jump = GRUJump(2 * spec.num_sensors, config.hidden)
        self.head = config.head(config.hidden, spec, config.dropout)

    def forward(self, batch: Batch) -> Output:
        x = dense_values(batch)  # (s, v)
        inputs = self.jump.from_readings(torch.cat([x, batch.observed.to(x.dtype)], dim=-1))  # (s, 3h)
        time = self.clock.rescale(batch.time)
        gap = times_like(time - time.roll(1), like=x)[:, None]  # (s, 1); not used at a sample's first timestamp

        lengths, order = torch.sort(batch.samples.counts, descending=True, stable=True)
        first = batch.samples.offsets[order]
        running = [int((lengths > i).sum()) for i in range(int(lengths[0]) if batch.num_steps else 0)]
        h = x.new_zeros(batch.num_samples, self.config.hidden)
        ended = []
        for i, count in enumerate(running):
            if count < len(h):
                ended.append(h[count:])
                h = h[:count]
            s = first[:count] + i
            flowed = flow(self.f, h, gap[s], self.config.steps, self.config.solver) if i else h
            h = self.jump(inputs[s], flowed)
        last = torch.cat([h, *ended[::-1]])
        embedding = torch.empty_like(last).index_copy(0, order, last)  # (b, h), in the samples' own order
        return Output(self.head(embedding, batch.statics), embedding, x.new_zeros(()))


class GRUJump(nn.Module):
    """A GRU cell that takes its readings already multiplied by the weights, for all timestamps at once."""

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.from_readings = nn.Linear(inputs, 3 * hidden)
        self.from_state = nn.Linear(hidden, 3 * hidden)

    def forward(self, inputs: Tensor, h: Tensor) -> Tensor:  # (b, 3h), (b, h)
        input_r, input_z, input_n = inputs.chunk(3, dim=-1)
        state_r, state_z, state_n = self.from_state(h).chunk(3, dim=-1)
        r, z = torch.sigmoid(input_r + state_r), torch.sigmoid(input_z + state_z)
        n = torch.tanh(input_n + r * state_n)
        return n + z * (h - n)


def flow(f: Callable[[Tensor], Tensor], h: Tensor, gap: Tensor, steps: int, solver: str) -> Tensor:
    """The state after a time gap (b, 1), following dh/dt = f(h) in equal steps."""
    dt = gap / steps
    for _ in range(steps):
        k1 = f(h)
        if solver == "euler":
            h = h + dt * k1
            continue
        k2 = f(h + dt / 2 * k1)
        k3 = f(h + dt / 2 * k2)
        k4 = f(h + dt * k3)
        h = h + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return h
