"""From a sensor's embeddings at many times to one (Eq. 4-5), and from all sensors to the sample (Sec. 3.4).

Axes as in raindrop.py: s a timestamp, b a sample, v a sensor, d the observation embedding, p the time encoding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from raindrop.batch.batch import Batch
from raindrop.errors import DataError
from raindrop.models.layers import uniform


class Pool(nn.Module, ABC):
    """Embeddings h (s, v, d) where has (s, v), time encodings p (s, p) -> sensor embeddings (b, v, dim)."""

    dim: int

    @abstractmethod
    def forward(self, batch: Batch, h: Tensor, p: Tensor, has: Tensor) -> tuple[Tensor, Tensor | None]:
        """Sensor embeddings, 0 for a sensor that has none; and the weight of each time, (s, v)."""


def gather(batch: Batch, h: Tensor, p: Tensor, weight: Tensor) -> Tensor:
    """sum_t weight_t [h_t || p_t]: (s, v, d), (s, p), (s, v) -> (b, v, d+p)."""
    return torch.cat([batch.samples.sum(h * weight[..., None]), batch.blocks.weighted_sum(weight, p)], dim=-1)


class TemporalAttention(Pool):
    """Eq. 4-5: beta = softmax(Q K^T s / sqrt(d_k)), z = sum_t beta_t [h_t || p_t] W.

    (Q K^T) s = Q (K^T s): the T x T matrix is never formed. p_t is the same for every sensor and stays apart.
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

    def s(self, batch: Batch, p: Tensor, has: Tensor) -> Tensor:
        """The vector s of Eq. 4, (s, v or 1, k); the rank of a time counts among the sensor's own times T_{i,v}."""
        if self.s_rank is None:
            assert self.s_bias is not None
            s = self.s_bias if self.s_time is None else p @ self.s_time + self.s_bias
            return s.expand(batch.num_slots, self.heads)[:, None]
        count = has.long().cumsum(0)
        before = torch.cat([count.new_zeros(1, count.shape[1]), count])[batch.samples.offsets]  # (b, v)
        rank = (count - 1 - before[batch.slot_sample]).clamp_min(0)
        longest = int(rank.max()) + 1 if len(rank) else 0
        if longest > len(self.s_rank):
            raise DataError(
                f"A series has {longest:,} times, but s of Eq. 4 only {len(self.s_rank):,} entries.\n"
                'Raise model.max_rank, set model.s = "time", or thin long series with model.long_series.'
            )
        return self.s_rank[rank]

    def forward(self, batch: Batch, h: Tensor, p: Tensor, has: Tensor) -> tuple[Tensor, Tensor | None]:
        d, scale = h.shape[-1], self.W_Q.shape[-1] ** -0.5
        present = has.to(h.dtype)
        if self.mean_scores:
            present = present / batch.samples.broadcast(batch.samples.sum(present).clamp_min(1))
        s = self.s(batch, p, has) * present[..., None]  # (s, v, k)
        pooled, weights = [], []
        for k in range(self.heads):
            query = gather(batch, h, p, s[..., k]) @ self.W_K[k] @ self.W_Q[k].T * scale  # (b, v, d+p): W_Q K^T s
            score = (h * batch.samples.broadcast(query[..., :d])).sum(-1)
            if p.shape[1]:
                score = score + batch.blocks.dot(p, query[..., d:])
            beta = batch.samples.softmax(score, has)  # Eq. 4: (s, v)
            pooled.append(gather(batch, h, p, beta))
            weights.append(beta)
        return torch.cat(pooled, dim=-1) @ self.W, torch.stack(weights).mean(0)  # Eq. 5


class TemporalMean(Pool):
    """Without temporal attention: every time in T_{i,v} counts the same."""

    def __init__(self, observation_dim: int, time_dim: int, dim: int):
        super().__init__()
        width = observation_dim + time_dim
        self.dim, self.W = dim, uniform(width, dim, bound=width**-0.5)

    def forward(self, batch: Batch, h: Tensor, p: Tensor, has: Tensor) -> tuple[Tensor, Tensor | None]:
        present = has.to(h.dtype)
        beta = present / batch.samples.broadcast(batch.samples.sum(present).clamp_min(1))
        return gather(batch, h, p, beta) @ self.W, beta


class TemporalLSTM(Pool):
    """Appendix: an LSTM over the zero-padded embeddings; its last state, of size d_h, is the sensor embedding."""

    def __init__(self, observation_dim: int, time_dim: int):
        super().__init__()
        self.dim = observation_dim
        self.lstm = nn.LSTM(observation_dim + time_dim, observation_dim, batch_first=True)

    def forward(self, batch: Batch, h: Tensor, p: Tensor, has: Tensor) -> tuple[Tensor, Tensor | None]:
        present = has.to(h.dtype)
        content = torch.cat([h, p[:, None].expand(-1, h.shape[1], -1)], dim=-1) * present[..., None]
        longest = int(batch.samples.counts.max()) if batch.num_slots else 1
        at = batch.slot_sample * longest + batch.rank
        padded = content.new_zeros(batch.num_samples * longest, *content.shape[1:]).index_copy(0, at, content)
        series = padded.view(batch.num_samples, longest, *content.shape[1:]).transpose(1, 2).flatten(0, 1)
        lengths = batch.samples.counts.clamp_min(1).repeat_interleave(h.shape[1]).cpu()  # (b v,)
        packed = pack_padded_sequence(series, lengths, batch_first=True, enforce_sorted=False)
        z = self.lstm(packed)[1][0][0].view(batch.num_samples, h.shape[1], -1)
        return z * (batch.samples.sum(present) > 0)[..., None], None


class Readout(nn.Module):
    """Sec. 3.4: all sensor embeddings (b, v, z) into one sample embedding."""

    def __init__(self, kind: str, num_sensors: int, sensor_dim: int):
        super().__init__()
        self.kind = kind
        self.dim = sensor_dim * (num_sensors if kind == "concat" else 1)
        if kind == "squeeze":
            squeezed = max(1, num_sensors // 4)
            self.gate = nn.Sequential(
                nn.Linear(num_sensors, squeezed), nn.Sigmoid(), nn.Linear(squeezed, num_sensors), nn.Sigmoid()
            )

    def forward(self, z: Tensor) -> Tensor:
        if self.kind == "concat":
            return z.flatten(1)
        if self.kind == "squeeze":
            z = z * self.gate(z.mean(-1))[..., None]
        return z.mean(1)
