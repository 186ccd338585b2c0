"""From a sensor's embeddings over time to one embedding (Eq. 4-5), and from all sensors to the sample (Sec. 3.4).

Axes as in model.py: s a timestamp, b a sample, v a sensor, d the observation embedding, p the time encoding, k a head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raindrop.batch.batch import Batch
from raindrop.batch.ragged import Segments
from raindrop.errors import DataError
from raindrop.models.layers import Recurrence, uniform
from raindrop.models.raindrop.config import LongSeriesConfig, RaindropConfig


class TemporalPool(nn.Module, ABC):
    """Embeddings h (s, v, d), where present (s, v), and time encodings p (s, p) -> sensor embeddings (b, v, dim)."""

    dim: int

    @abstractmethod
    def forward(self, batch: Batch, h: Tensor, p: Tensor, present: Tensor) -> tuple[Tensor, Tensor | None]:
        """Sensor embeddings, 0 for a sensor without timestamps; and the weight of each timestamp (s, v), if any."""

    def over_readings(
        self, batch: Batch, h: Tensor, p: Tensor, *, with_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """The same if only readings have embeddings h (n, d): the cost grows with readings, not with timestamps x v.

        Without `with_weights` the weights of timestamps may be omitted.
        """
        return self.forward(batch, insert_readings(batch, h), p, batch.observed)


def make_pool(config: RaindropConfig) -> TemporalPool:
    """The pool given by `config.temporal`."""
    time_dim = config.time_dim if config.ablation.time_encoding else 0
    if config.temporal == "lstm":
        return TemporalLSTM(config.observation_dim, time_dim)
    if config.temporal == "mean":
        return TemporalMean(config.observation_dim, time_dim, config.sensor_dim)
    attention = config.temporal_attention
    return TemporalAttention(
        config.observation_dim,
        time_dim,
        config.sensor_dim,
        attention_dim=config.attention_dim,
        heads=attention.heads,
        max_rank=attention.max_rank if attention.s == "rank" else None,
        mean_scores=attention.scores == "mean",
    )


class TemporalAttention(TemporalPool):
    """Eq. 4-5: beta = softmax(Q K^T s / sqrt(d_k)), z = sum_t beta_t [h_t || p_t] W.

    (Q K^T) s = Q (K^T s), so the T x T matrix is never formed. p_t is the same for every sensor and is kept apart.
    """

    def __init__(
        self,
        observation_dim: int,
        time_dim: int,
        dim: int,
        *,
        attention_dim: int,
        heads: int = 1,
        max_rank: int | None = None,
        mean_scores: bool = False,
    ):
        super().__init__()
        self.dim, self.heads, self.mean_scores = dim, heads, mean_scores
        width = observation_dim + time_dim
        self.W_Q = uniform(heads, width, attention_dim, bound=width**-0.5)
        self.W_K = uniform(heads, width, attention_dim, bound=width**-0.5)
        self.W = uniform(heads * width, dim, bound=(heads * width) ** -0.5)
        self.s_rank = uniform(max_rank, heads, bound=max_rank**-0.5) if max_rank else None
        self.s_time = uniform(time_dim, heads, bound=time_dim**-0.5) if time_dim and not max_rank else None
        self.s_bias = None if max_rank else uniform(heads)

    def forward(self, batch: Batch, h: Tensor, p: Tensor, present: Tensor) -> tuple[Tensor, Tensor | None]:
        d, scale = h.shape[-1], self.W_Q.shape[-1] ** -0.5
        weight = present.to(h.dtype)
        if self.mean_scores:
            weight = weight / batch.samples.broadcast(batch.samples.sum(weight).clamp_min(1))
        s = self.s(batch, p, present) * weight[..., None]  # (s, v, k)
        pooled, betas = [], []
        for k in range(self.heads):
            K_s = weighted_sum(batch, h, p, s[..., k]) @ self.W_K[k]  # (b, v, d_k): K^T s
            query = K_s @ self.W_Q[k].T * scale  # (b, v, d+p)
            score = (h * batch.samples.broadcast(query[..., :d])).sum(-1)
            if p.shape[1]:
                score = score + batch.blocks.dot(p, query[..., d:])
            beta = batch.samples.softmax(score, present)  # Eq. 4: (s, v)
            pooled.append(weighted_sum(batch, h, p, beta))
            betas.append(beta)
        return torch.cat(pooled, dim=-1) @ self.W, torch.stack(betas).mean(0)  # Eq. 5

    def over_readings(
        self, batch: Batch, h: Tensor, p: Tensor, *, with_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        series, scale = batch.senders, self.W_Q.shape[-1] ** -0.5
        x = torch.cat([h, batch.steps.broadcast(p)], dim=-1)  # (n, d+p)
        s = self.s_of_readings(batch, p)  # (n, k)
        if self.mean_scores:
            s = s / series.counts.clamp_min(1)[series.index][:, None]
        pooled, betas = [], []
        for k in range(self.heads):
            K_s = series.sum(x * s[:, k, None]) @ self.W_K[k]  # (b v, d_k): K^T s
            query = K_s @ self.W_Q[k].T * scale  # (b v, d+p)
            score = (x * series.broadcast(query)).sum(-1, keepdim=True)
            beta = series.softmax(score)  # Eq. 4: (n, 1)
            pooled.append(series.sum(x * beta))
            betas.append(beta[:, 0])
        z = (torch.cat(pooled, dim=-1) @ self.W).view(batch.num_samples, batch.num_sensors, -1)  # Eq. 5
        if not with_weights:
            return z, None
        return z, insert_readings(batch, torch.stack(betas).mean(0)[:, None]).squeeze(-1)

    def s_of_readings(self, batch: Batch, p: Tensor) -> Tensor:
        """The vector s of Eq. 4 at each reading, (n, k)."""
        if self.s_rank is None:
            return batch.steps.broadcast(self.s(batch, p)[:, 0])
        return self.s(batch, p).flatten(0, 1).index_select(0, batch.cell)

    def s(self, batch: Batch, p: Tensor, present: Tensor | None = None) -> Tensor:
        """The vector s of Eq. 4, (s, v or 1, k): from the time encoding, or by rank among the sensor's own times."""
        if self.s_rank is None:
            assert self.s_bias is not None
            s = self.s_bias if self.s_time is None else p @ self.s_time + self.s_bias
            return s.expand(batch.num_steps, self.heads)[:, None]
        count = (batch.observed if present is None else present).long().cumsum(0)
        before = torch.cat([count.new_zeros(1, count.shape[1]), count])[batch.samples.offsets]  # (b, v)
        rank = (count - 1 - before[batch.step_sample]).clamp_min(0)
        longest = int(rank.max()) + 1 if len(rank) else 0
        if longest > len(self.s_rank):
            raise DataError(
                f"A series has {longest:,} timestamps, but s of Eq. 4 only {len(self.s_rank):,} entries.\n"
                'Raise model.temporal_attention.max_rank, set model.temporal_attention.s = "time", '
                'or thin long series with model.long_series.mode = "thin".'
            )
        return self.s_rank[rank]


class TemporalMean(TemporalPool):
    """Without temporal attention: every timestamp in T_{i,v} has the same weight."""

    def __init__(self, observation_dim: int, time_dim: int, dim: int):
        super().__init__()
        width = observation_dim + time_dim
        self.dim, self.W = dim, uniform(width, dim, bound=width**-0.5)

    def forward(self, batch: Batch, h: Tensor, p: Tensor, present: Tensor) -> tuple[Tensor, Tensor | None]:
        weight = present.to(h.dtype)
        beta = weight / batch.samples.broadcast(batch.samples.sum(weight).clamp_min(1))
        return weighted_sum(batch, h, p, beta) @ self.W, beta


class TemporalLSTM(TemporalPool):
    """Appendix: an LSTM over the zero-padded embeddings; its last state, of size d_h, is the sensor embedding."""

    def __init__(self, observation_dim: int, time_dim: int):
        super().__init__()
        self.dim = observation_dim
        self.lstm = nn.LSTM(observation_dim + time_dim, observation_dim, batch_first=True)

    def forward(self, batch: Batch, h: Tensor, p: Tensor, present: Tensor) -> tuple[Tensor, Tensor | None]:
        weight = present.to(h.dtype)
        inputs = torch.cat([h, p[:, None].expand(-1, h.shape[1], -1)], dim=-1) * weight[..., None]
        to_gates, _, bias, more_bias = self.lstm.all_weights[0]
        inputs = F.linear(inputs, to_gates, bias + more_bias)  # (s, v, 4 d)
        start = h.new_zeros(batch.num_samples, h.shape[1], 2 * self.dim)
        z = Recurrence(batch).last(self.step, start, inputs)[..., : self.dim]
        return z * (batch.samples.sum(weight) > 0)[..., None], None

    def step(self, state: Tensor, inputs: Tensor) -> Tensor:
        """The next state (b, v, 2 d), output and memory, from inputs (b, v, 4 d) of the gates.

        All sensors of a sample take a step together, which is several times faster than PyTorch's LSTM on one long
        padded series for each sensor.
        """
        d = self.dim
        gates = inputs + F.linear(state[..., :d], self.lstm.all_weights[0][1])
        entrance, forget = torch.sigmoid(gates[..., : 2 * d]).chunk(2, dim=-1)
        candidate, exit_gate = torch.tanh(gates[..., 2 * d : 3 * d]), torch.sigmoid(gates[..., 3 * d :])
        memory = forget * state[..., d:] + entrance * candidate
        return torch.cat([exit_gate * torch.tanh(memory), memory], dim=-1)


def insert_readings(batch: Batch, own: Tensor, into: Tensor | None = None) -> Tensor:
    """(s, v, d) with the rows (n, d) of the readings at their positions; 0, or the entry of `into`, elsewhere."""
    shape = (batch.num_steps, batch.num_sensors, own.shape[-1])
    flat = own.new_zeros(shape[0] * shape[1], shape[2]) if into is None else into.flatten(0, 1)
    return flat.index_copy(0, batch.cell, own).view(shape)


def weighted_sum(batch: Batch, h: Tensor, p: Tensor, weight: Tensor) -> Tensor:
    """sum_t weight_t [h_t || p_t]: (s, v, d), (s, p), (s, v) -> (b, v, d+p)."""
    return torch.cat([batch.samples.sum(h * weight[..., None]), batch.blocks.weighted_sum(weight, p)], dim=-1)


# ------------------------------------------------------------------ Sec. 3.4


class Readout(nn.Module):
    """All sensor embeddings (b, v, z) into one sample embedding: concatenation, mean, or squeeze-and-excitation.

    With `sample_dim`, a fully-connected layer shortens the concatenation to that size (Appendix, sample embedding).
    """

    def __init__(self, kind: str, num_sensors: int, sensor_dim: int, sample_dim: int = 0):
        super().__init__()
        self.kind = kind
        width = sensor_dim * (num_sensors if kind == "concat" else 1)
        self.dim = sample_dim or width
        self.dense = nn.Sequential(nn.Linear(width, sample_dim), nn.Sigmoid()) if sample_dim else None
        if kind == "squeeze":
            squeezed = max(1, num_sensors // 4)
            self.gate = nn.Sequential(
                nn.Linear(num_sensors, squeezed), nn.Sigmoid(), nn.Linear(squeezed, num_sensors), nn.Sigmoid()
            )

    def forward(self, z: Tensor) -> Tensor:
        if self.kind == "concat":
            joined = z.flatten(1)
            return joined if self.dense is None else cast(Tensor, self.dense(joined))
        if self.kind == "squeeze":
            z = z * self.gate(z.mean(-1))[..., None]
        return z.mean(1)


@dataclass(frozen=True)
class ShortSeries:
    """A batch whose series have at most `max_times` timestamps, thinned or cut into pieces."""

    batch: Batch  # its samples are pieces if series were cut
    pieces: Segments | None = None  # pieces by sample; None if series were not cut

    @classmethod
    def from_batch(cls, batch: Batch, config: LongSeriesConfig) -> ShortSeries:
        """The batch with its long series shortened according to `config.mode`."""
        if config.mode == "thin":
            return cls(batch.thinned(config.max_times))
        if config.mode == "cut":
            return cls(*batch.cut(config.max_times))
        return cls(batch)

    def per_piece(self, x: Tensor) -> Tensor:
        """(b, ...) -> (piece, ...): each piece gets the entry of its sample."""
        return x if self.pieces is None else self.pieces.broadcast(x)

    def mean(self, x: Tensor) -> Tensor:
        """(piece, ...) -> (b, ...): the mean over the pieces of each sample."""
        if self.pieces is None:
            return x
        return self.pieces.sum(x) / self.pieces.counts.view(-1, *[1] * (x.dim() - 1))
