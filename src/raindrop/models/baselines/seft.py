"""SeFT (Horn et al., "Set Functions for Time Series", ICML 2020): a sample is a set of readings. Nothing is padded.

Sec. 3.2  s_j = [p(t_j) || value || sensor, one-hot]; statics, encoded to the same width, are one more element
Eq. 1     f(S) = g(sum_j a_j h(s_j)), with h and g networks of dense layers
Eq. 3-4   K_ji = [f'(S), s_j] W_i, e_ji = K_ji . Q_i / sqrt(d), a_ji = softmax over j of e_ji, for each head i
          f'(S) = mean over the set of a further network (written psi in the published code)

K . Q is linear, so f'(S) adds the same number to every e_ji of a set, and the softmax cancels it: with the context of
the whole set, the attention is softmax_j(s_j W_i Q_i) for any f', so f' is not computed. With the cumulative context
(the paper's form for online prediction) f' is of the elements up to t_j, and does not cancel.

Axes: n a reading, e an element (the samples' statics, then the readings), b a sample, i a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raindrop.batch.batch import Batch
from raindrop.batch.ragged import Segments
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.layers import Clock, PaddedLayout, TimeEncoding, feed_forward, uniform
from raindrop.ranges import Layers, Positive, Ranged, Share, Size


@dataclass(frozen=True, kw_only=True)
class SeFTConfig(Ranged):
    """Sizes within the ranges that the paper searched."""

    time_dim: Size = 4
    """Size of the time encoding."""
    longest_wave: Positive = 100.0
    """The largest time scale of the encoding, where the training readings span `window`; the smallest is 1."""
    window: Positive = 48.0
    """Length assigned to the time span of the training readings; the paper's data span 48 hours."""
    layers: Layers = 4
    """Dense layers of h, before the one to the element embedding."""
    width: Size = 128
    """Their width."""
    latent: Size = 32
    """Size of an element embedding h(s_j)."""
    dropout: Share = 0.2
    """Dropout in h."""
    heads: Layers = 4
    """m, attention heads."""
    key_dim: Size = 128
    """d, size of keys and queries."""
    attention_dropout: Share = 0.5
    """Share of elements dropped from each head in training."""
    context: Literal["whole", "cumulative"] = "whole"
    """Elements of f': the whole set, which cancels in the softmax, or those up to the time of s_j."""
    context_layers: Layers = 2
    """Dense layers of f', before the one to its output."""
    context_width: Size = 64
    """Their width."""
    context_latent: Size = 128
    """Size of f'."""
    head_layers: Layers = 2
    """Dense layers of g, before the one to the classes."""
    head_width: Size = 512
    """Their width."""
    head_dropout: Share = 0.0
    """Dropout in g."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.time_dim < 4 or self.time_dim % 2:
            raise ValueError(f"time_dim must be even and at least 4, not {self.time_dim}.")


class SeFT(Model):
    """Readings -> elements of a set -> attention and sum -> class."""

    def __init__(self, config: SeFTConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.clock = Clock(spec, config.window)
        waves = config.time_dim // 2
        base = config.longest_wave ** (waves / (waves - 1))  # so that the scales are 1 ... longest_wave
        self.encode_time = TimeEncoding(config.time_dim, base)
        width = config.time_dim + 1 + spec.num_sensors
        self.encode_statics = None
        if spec.static_width:
            first = feed_forward(spec.static_width, config.width)
            self.encode_statics = nn.Sequential(*first, nn.Linear(config.width, width))
        self.h = nn.Sequential(
            *feed_forward(width, *[config.width] * config.layers, dropout=config.dropout),
            *feed_forward(config.width, config.latent),
        )
        self.attention = SetAttention(config, width)
        self.g = nn.Sequential(
            *feed_forward(
                config.heads * config.latent, *[config.head_width] * config.head_layers, dropout=config.head_dropout
            ),
            nn.Linear(config.head_width, spec.num_outputs),
        )

    def forward(self, batch: Batch) -> Output:
        p = self.encode_time(self.clock.rescale(batch.time), like=batch.value)  # (s, p)
        sensor = F.one_hot(batch.sensor, batch.num_sensors).to(p.dtype)
        s = torch.cat([batch.steps.broadcast(p), batch.value[:, None], sensor], dim=-1)  # (n, width)
        owner = batch.sample
        if self.encode_statics is not None:
            s = torch.cat([self.encode_statics(batch.statics), s])  # (e, width)
            owner = torch.cat([torch.arange(batch.num_samples, device=owner.device), owner])
        sets = Segments.from_index(owner, batch.num_samples)
        a = self.attention(batch, s, sets)  # Eq. 3-4: (e, i)
        embedding = sets.sum((a[:, :, None] * self.h(s)[:, None]).flatten(1))  # Eq. 1: (b, i latent)
        return Output(self.g(embedding), embedding, embedding.new_zeros(()))


class SetAttention(nn.Module):
    """Eq. 3-4: a_ji = softmax_j([f'(S), s_j] W_i Q_i / sqrt(d)). W_i Q_i is one vector, so keys are never formed."""

    def __init__(self, config: SeFTConfig, width: int):
        super().__init__()
        self.config = config
        self.W = uniform(config.heads, width, config.key_dim, bound=(3 / width) ** 0.5)  # (i, width, d)
        self.Q = uniform(config.heads, config.key_dim, bound=config.key_dim**-0.5)  # (i, d)
        self.f = None
        if config.context == "cumulative":
            latent = config.context_latent
            self.f = feed_forward(width, *[config.context_width] * config.context_layers, latent)
            self.W_context = uniform(config.heads, latent, config.key_dim, bound=(3 / latent) ** 0.5)

    def forward(self, batch: Batch, s: Tensor, sets: Segments) -> Tensor:  # (e, width) -> (e, i)
        scale = self.config.key_dim**-0.5
        score = s @ (self.W @ self.Q[..., None]).squeeze(-1).T * scale
        if self.f is not None:
            context = (self.W_context @ self.Q[..., None]).squeeze(-1).T * scale  # (latent, i)
            score = score + cumulative_mean(batch, self.f(s)) @ context
        present = torch.ones_like(score, dtype=torch.bool)
        if self.training and self.config.attention_dropout:
            present = torch.rand_like(score) >= self.config.attention_dropout
        return sets.softmax(score, present)


def cumulative_mean(batch: Batch, x: Tensor) -> Tensor:
    """(e, k) -> (e, k): the mean over the elements of the same sample up to the same time; statics come before all."""
    statics, readings = x[: len(x) - len(batch.value)], x[len(x) - len(batch.value) :]
    layout = PaddedLayout.from_batch(batch)
    total = layout.unpad(layout.pad(batch.steps.sum(readings)).cumsum(1))  # (s, k)
    count = layout.unpad(layout.pad(batch.steps.counts).cumsum(1))  # (s,)
    if len(statics):
        total, count = total + statics[batch.step_sample], count + 1
    return torch.cat([statics, batch.steps.broadcast(total / count[:, None])])
