"""Layers shared by several models: times and their encoding, padding, recurrence, output heads, initialisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.errors import ConfigError
from raindrop.models.base import DataSpec
from raindrop.models.ensemble import EnsembleHead
from raindrop.ranges import Ranged, Share, Size

Activation = Literal["sigmoid", "relu"]


# ------------------------------------------------------------------ times


def times_like(time: Tensor, like: Tensor) -> Tensor:
    """Times, or numbers computed from them, in the dtype and on the device of `like`.

    `batch.time` is float64 and stays on the CPU: float32 resolves Unix seconds only to about two minutes, and some
    devices have no float64. So compute with times in float64 on the CPU (subtract, scale, encode), and call this last.
    """
    return time.to(like.dtype).to(like.device)


class TimeEncoding:
    """Appendix: p_2k = sin(t / base^(2k/xi)), p_2k+1 = cos of the same, for the value of the time itself."""

    def __init__(self, dim: int, base: float = 10000.0, scale: float = 1.0):
        if dim % 2:
            raise ConfigError(f"model.time_dim is {dim}; sine and cosine come in pairs, so it must be even.")
        frequency = base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim) / scale
        self.frequency = frequency.float().double()  # (p/2,)

    def __call__(self, time: Tensor, like: Tensor) -> Tensor:
        """Times (s,) -> (s, p), as `times_like`."""
        angle = time.double()[:, None] * self.frequency  # (s, p/2)
        return times_like(torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1), like)


class Clock:
    """Times since the start of the training readings, in a unit in which these readings span `window`.

    So a setting that a paper gives for its window of 48 hours has the same meaning for a table in seconds.
    """

    def __init__(self, spec: DataSpec, window: float):
        self.start, end = spec.window
        self.window = window
        self.rate = window / (end - self.start) if end > self.start else 1.0

    def rescale(self, time: Tensor) -> Tensor:
        """Times in that unit, in float64 on the CPU."""
        return (time.double() - self.start) * self.rate

    def __call__(self, time: Tensor, like: Tensor) -> Tensor:
        """Times in that unit, as `times_like`."""
        return times_like(self.rescale(time), like)

    def reference(self, count: int) -> Tensor:
        """(k,) points evenly spaced over the window, both ends included."""
        return torch.linspace(0.0, self.window, count)


# ------------------------------------------------------------------ dense layouts


def dense_values(batch: Batch) -> Tensor:
    """(s, sensor): the reading of each sensor at each timestamp; 0, the training mean, if there is none."""
    flat = batch.value.new_zeros(batch.num_steps * batch.num_sensors)
    return flat.index_copy(0, batch.cell, batch.value).view(batch.num_steps, batch.num_sensors)


@dataclass(frozen=True)
class PaddedLayout:
    """Timestamps of samples padded to the longest sample: (s, ...) <-> (b, t, ...)."""

    position: Tensor  # (s,) position of each timestamp in (b t,)
    lengths: Tensor  # (b,) timestamps per sample
    shape: tuple[int, int]  # b, t

    @classmethod
    def from_batch(cls, batch: Batch) -> PaddedLayout:
        """The layout of a batch; t is at least 1."""
        lengths = batch.samples.counts
        longest = max(1, int(lengths.max())) if batch.num_steps else 1
        return cls(batch.step_sample * longest + batch.rank, lengths, (batch.num_samples, longest))

    def pad(self, x: Tensor) -> Tensor:
        """(s, ...) -> (b, t, ...), 0 where padded."""
        flat = x.new_zeros(self.shape[0] * self.shape[1], *x.shape[1:]).index_copy(0, self.position, x)
        return flat.view(*self.shape, *x.shape[1:])

    def unpad(self, y: Tensor) -> Tensor:
        """(b, t, ...) -> (s, ...): the inverse of `pad`."""
        return y.flatten(0, 1).index_select(0, self.position)


# ------------------------------------------------------------------ recurrence


class Recurrence:
    """Steps through the timestamps of all samples together, longest samples first: one that has ended costs nothing."""

    def __init__(self, batch: Batch):
        self.longest_first = torch.argsort(batch.samples.counts, descending=True, stable=True)  # (b,)
        self.position = _inverse(self.longest_first)
        self.by_step = torch.argsort(batch.rank * batch.num_samples + self.position[batch.step_sample])  # (s,)
        self.running = torch.bincount(batch.rank).tolist()  # samples that have a t-th timestamp

    def states(self, step: Callable[..., Tensor], start: Tensor, *inputs: Tensor) -> Tensor:
        """(s, ...) the state after each timestamp: state = step(state, *inputs of that timestamp).

        start (b, ...) is the state before the first timestamp, inputs (s, ...).
        """
        states = list(self._run(step, start, inputs))
        return torch.cat(states)[_inverse(self.by_step)] if states else start[:0]

    def last(self, step: Callable[..., Tensor], start: Tensor, *inputs: Tensor) -> Tensor:
        """(b, ...) the state after each sample's last timestamp; `start` without one."""
        ended, state = [], start[self.longest_first]
        for following in self._run(step, start, inputs):
            ended.append(state[len(following) :])
            state = following
        return torch.cat([state, *reversed(ended)])[self.position]

    def _run(self, step: Callable[..., Tensor], start: Tensor, inputs: Sequence[Tensor]) -> Iterator[Tensor]:
        state = start[self.longest_first]
        for parts in zip(*(torch.split(rows[self.by_step], self.running) for rows in inputs), strict=True):
            state = step(state[: len(parts[0])], *parts)
            yield state


def _inverse(order: Tensor) -> Tensor:
    """The permutation that undoes `order`."""
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return back


# ------------------------------------------------------------------ heads


class Head(nn.Module):
    """Sec. 3.5: the statics through one linear layer, joined to the sample embedding, then a two-layer classifier."""

    def __init__(
        self,
        embedding_dim: int,
        spec: DataSpec,
        *,
        static_dim: int,
        hidden: int,
        activation: Activation = "sigmoid",
        dropout: float = 0.0,
        members: int = 0,
    ):
        super().__init__()
        self.statics = nn.Linear(spec.static_width, static_dim) if spec.static_width else None
        width = embedding_dim + (static_dim if self.statics is not None else 0)
        nonlinearity = nn.Sigmoid() if activation == "sigmoid" else nn.ReLU()
        if members:
            self.classifier: nn.Module = EnsembleHead(
                width, hidden, members, spec.num_outputs, activation=nonlinearity, dropout=dropout
            )
            return
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(width, hidden),
            nonlinearity,
            nn.Dropout(dropout),
            nn.Linear(hidden, spec.num_outputs),
        )

    def forward(self, embedding: Tensor, statics: Tensor) -> Tensor:
        """(b, z), (b, a) -> (b, class), or (b, member, class) for a head with members."""
        if self.statics is not None:
            embedding = torch.cat([embedding, self.statics(statics)], dim=-1)
        logits: Tensor = self.classifier(embedding)
        return logits


@dataclass(frozen=True, kw_only=True)
class HeadConfig(Ranged):
    """Settings of a `Head`, for models whose papers say no more than "a classifier"."""

    static_dim: Size | None = None
    """Size of the projected statics; by default the number of sensors."""
    hidden: Size = 128
    """Neurons in the classifier's first layer."""
    activation: Activation = "relu"
    """Activation in the classifier."""
    dropout: Share = 0.3
    """Dropout in the classifier."""

    def head(self, embedding_dim: int, spec: DataSpec) -> Head:
        """The classifier for embeddings of this size."""
        return Head(
            embedding_dim,
            spec,
            static_dim=self.static_dim or spec.num_sensors,
            hidden=self.hidden,
            activation=self.activation,
            dropout=self.dropout,
        )


@dataclass(frozen=True, kw_only=True)
class StateHeadConfig(Ranged):
    """Settings of a `Head` on a recurrent state, for models in which `hidden` is the size of that state."""

    static_dim: Size = 32
    """Size of the projected statics."""
    head_hidden: Size = 64
    """Neurons in the classifier's first layer."""

    def head(self, embedding_dim: int, spec: DataSpec, dropout: float = 0.0) -> Head:
        """The classifier for embeddings of this size."""
        return Head(
            embedding_dim,
            spec,
            static_dim=self.static_dim,
            hidden=self.head_hidden,
            activation="relu",
            dropout=dropout,
        )


# ------------------------------------------------------------------ initialisation


def feed_forward(*widths: int, dropout: float = 0.0) -> nn.Sequential:
    """Linear layers of these widths, each with ReLU and dropout; He initialisation keeps the signal's variance."""
    layers: list[nn.Module] = []
    for in_features, out_features in pairwise(widths):
        linear = nn.Linear(in_features, out_features)
        nn.init.kaiming_uniform_(linear.weight, nonlinearity="relu")
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


def uniform(*shape: int, bound: float = 1.0) -> nn.Parameter:
    """A parameter drawn uniformly from [-bound, bound]."""
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))
