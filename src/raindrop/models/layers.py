"""Layers that several models share: time encodings, heads, initialisation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.errors import ConfigError
from raindrop.models.base import DataSpec
from raindrop.models.ensemble import EnsembleHead

Activation = Literal["sigmoid", "relu"]


class TimeEncoding(nn.Module):
    """Appendix: p_2k = sin(t / base^(2k/xi)), p_2k+1 = cos of the same, of the time value itself."""

    frequency: Tensor

    def __init__(self, dim: int, base: float = 10000.0, scale: float = 1.0):
        super().__init__()
        if dim % 2:
            raise ConfigError(f"model.time_dim is {dim}; sine and cosine come in pairs, so it must be even.")
        frequency = base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim) / scale
        self.register_buffer("frequency", frequency.float(), persistent=False)

    def forward(self, time: Tensor) -> Tensor:  # (s,)
        angle = time.double()[:, None] * self.frequency.double()  # (s, p/2)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).to(self.frequency.dtype)  # (s, p)


class Clock(nn.Module):
    """Times from the start of the training readings, in the unit in which their range is `window` long.

    So a setting that a paper gives for its window of 48 hours means the same for a table in seconds.
    """

    rate: Tensor

    def __init__(self, spec: DataSpec, window: float):
        super().__init__()
        start, end = spec.window
        self.start, self.window = start, window
        rate = window / (end - start) if end > start else 1.0
        self.register_buffer("rate", torch.tensor(rate), persistent=False)

    def forward(self, time: Tensor) -> Tensor:
        return ((time.double() - self.start) * self.rate.double()).to(self.rate.dtype)

    def reference(self, count: int) -> Tensor:
        """(k,) points evenly over the window, both ends included."""
        return torch.linspace(0.0, self.window, count)


class Head(nn.Module):
    """Statics through one linear layer, beside the sample embedding, through a two-layer classifier (Sec. 3.5)."""

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
        bend = nn.Sigmoid() if activation == "sigmoid" else nn.ReLU()
        if members:
            self.classifier: nn.Module = EnsembleHead(
                width, hidden, members, spec.num_outputs, activation=bend, dropout=dropout
            )
            return
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(width, hidden),
            bend,
            nn.Dropout(dropout),
            nn.Linear(hidden, spec.num_outputs),
        )

    def forward(self, embedding: Tensor, statics: Tensor) -> Tensor:
        """(b, z), (b, a) -> (b, class), or (b, member, class) where it has members."""
        if self.statics is not None:
            embedding = torch.cat([embedding, self.statics(statics)], dim=-1)
        logits: Tensor = self.classifier(embedding)
        return logits


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The settings of a `Head`, for models whose papers say no more than "a classifier"."""

    static_dim: int | None = None
    """Size of the projected statics; as many as sensors where not given."""
    hidden: int = 128
    """Neurons in the classifier's first layer."""
    activation: Activation = "relu"
    """Activation in the classifier."""
    dropout: float = 0.3
    """Dropout in the classifier."""

    def __post_init__(self) -> None:
        self.require_positive("hidden")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {self.dropout}.")

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

    def require_positive(self, *names: str) -> None:
        """Sizes and counts must be at least 1."""
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}.")


@dataclass(frozen=True, kw_only=True)
class StateHeadConfig:
    """The settings of a `Head` on a recurrent state, whose own size is called `hidden`."""

    static_dim: int = 32
    """Size of the projected statics."""
    head_hidden: int = 64
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


def at_slots(batch: Batch) -> Tensor:
    """(s, sensor): the reading of each sensor at each timestamp; 0, the training mean, where there is none."""
    flat = batch.value.new_zeros(batch.num_slots * batch.num_sensors)
    return flat.index_copy(0, batch.cell, batch.value).view(batch.num_slots, batch.num_sensors)


def feed_forward(*widths: int, dropout: float = 0.0) -> nn.Sequential:
    """Linear layers of these widths, each followed by ReLU and dropout, drawn so that a signal keeps its size (He)."""
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(widths):
        linear = nn.Linear(wide, narrow)
        nn.init.kaiming_uniform_(linear.weight, nonlinearity="relu")
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


def uniform(*shape: int, bound: float = 1.0) -> nn.Parameter:
    """A parameter drawn uniformly from [-bound, bound]."""
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))
