"""mTAND (Shukla & Marlin, ICLR 2021; `mtand.py` has its equations) that answers queries.

The query's time takes the place of a reference time: for a query (v, t) and readings x_id at times t_id,

    kappa_h(t, t_id) = softmax over i of phi_h(t) w_h v_h^T phi_h(t_id)^T / sqrt(d_k)             Eq. 3
    x^_hd(t) = sum over i of kappa_h(t, t_id) x_id                                                Eq. 2
    mTAN(t)[j] = sum over h and d of x^_hd(t) U_hdj                                               Eq. 1
    value = sum over h of a_hv x^_hv(t) + w_v . relu(mTAN(t)) + b_v

As in `mtand.py` the inputs of Eq. 1 are [value || observed], here with statics. The paper's own interpolation model
encodes the readings at reference times first and attends to these; here the query attends to the readings directly,
because a reading of v at t itself must not matter and an encoding cannot be undone. Times are counted from a sample's
first timestamp, in units of `window` typical intervals, so that a long series is embedded as its windows are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch, Queries
from raindrop.models.base import DataSpec, Output
from raindrop.models.baselines.mtand import MIN_LOG_WEIGHT, TimeEmbedding
from raindrop.models.baselines.query_steps import (
    Past,
    QuantileHead,
    QueryNetwork,
    QueryTimes,
    SensorLinear,
    time_in_sample,
)
from raindrop.models.layers import PaddedLayout, times_like, uniform
from raindrop.ranges import Layers, Positive, Ranged, Size

MAX_CELLS = 1 << 22  # queries x timestamps x heads at once


@dataclass(frozen=True, kw_only=True)
class MTANDQueryConfig(Ranged):
    """As in the authors' PhysioNet experiments, but for the frequency."""

    time_dim: Size = 128
    """Size of the time embeddings, all heads concatenated."""
    heads: Layers = 1
    """H, number of time embeddings."""
    frequency: Positive = 1.0
    """Largest initial omega."""
    window: Positive = 320.0
    """Typical intervals in a unit of time."""
    state_dim: Size = 128
    """Size of mTAN(t)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.time_dim % self.heads or self.time_dim // self.heads < 2:
            raise ValueError(f"time_dim must be divisible by heads, at least 2 for each; {self.time_dim} is not.")


class MTANDQueries(QueryNetwork):
    """Quantiles of queried readings by attention from the query's time to the times of the readings."""

    def __init__(self, config: MTANDQueryConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config = config
        H, dim = config.heads, config.time_dim // config.heads
        self.embed_time = TimeEmbedding(H, dim, config.frequency)
        self.w = uniform(H, dim, dim, bound=dim**-0.5)
        self.v = uniform(H, dim, dim, bound=dim**-0.5)
        self.a = nn.Parameter(torch.full((spec.num_sensors, H), 1.0 / H))
        self.U = nn.Linear(2 * spec.num_sensors * H + spec.static_width, config.state_dim)
        self.centre = SensorLinear(config.state_dim, spec.num_sensors)
        self.head = QuantileHead(config.state_dim, spec)

    def forward(self, batch: Batch) -> Output:
        queries = cast(Queries, batch.queries)
        x, present = self.interpolate(batch, queries)  # (q, h, u), Eq. 2-3
        inputs = torch.cat([x.flatten(1), present.flatten(1).to(x.dtype), batch.statics[queries.sample]], dim=1)
        state = torch.relu(self.U(inputs))  # Eq. 1
        own = x.gather(2, queries.sensor[:, None, None].expand(-1, x.shape[1], 1))[..., 0]  # (q, h)
        centre = (own * self.a[queries.sensor]).sum(1) + self.centre(state, queries.sensor)
        scores = self.head(centre, state, queries.sensor)
        return Output(scores=scores, embedding=state, penalty=scores.new_zeros(()))

    def interpolate(self, batch: Batch, queries: Queries) -> tuple[Tensor, Tensor]:
        """x^ of Eq. 2, (q, h, u), and whether the sensor has readings; those of the query itself are left out."""
        past, times = Past(batch, self.interval), QueryTimes.from_batch(batch)
        value, observed = past.steps.value, past.steps.observed.to(batch.value.dtype)
        steps = PaddedLayout.from_batch(batch)
        _, here = past.locate(times.sample, times.time)
        rank = torch.where(here < 0, here, batch.rank[here.clamp_min(0)] if batch.num_steps else here)
        elsewhere, at = self.attend(
            self.keys(times.sample, times.time, batch, self.w, times.layout),
            self.keys(batch.step_sample, batch.time, batch, self.v, steps),
            steps.lengths,
            times.layout.pad(rank + 1) - 1,
            steps.pad(torch.cat([value, observed], dim=1)),
        )
        total = times.layout.unpad(elsewhere)[times.index]  # (q, h, 2u)
        weight = times.layout.unpad(at)[times.index][..., None]  # (q, h, 1)
        asked = past.at(queries.sample, queries.time, queries.sensor)
        numerator, denominator = total.chunk(2, dim=2)
        numerator = numerator + weight * asked.value[:, None]
        denominator = denominator + weight * asked.observed[:, None]
        present = denominator > 0
        return numerator / denominator.masked_fill(~present, 1.0), present

    def attend(self, query: Tensor, key: Tensor, lengths: Tensor, rank: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over the timestamps t of a sample, weighted by E = exp(score - largest score of the time k).

        query (b, k, h, j), key (b, t, h, j), lengths (b,) timestamps, rank (b, k) of the timestamp exactly at the time,
        -1 if there is none, rows (b, t, 2u). Returns the sums without that timestamp (b, k, h, 2u), and its weight (b,
        k, h).
        """
        b, k, H, j = query.shape
        t = key.shape[1]
        sums, weights = [], []
        at_once = max(1, MAX_CELLS // (k * t * H))
        for i in range(0, b, at_once):
            part = slice(i, i + at_once)
            score = torch.einsum("bkhj,bthj->bkht", query[part], key[part]) / math.sqrt(j)
            step = torch.arange(t, device=rank.device)
            absent = (step >= lengths[part, None])[:, None, None]  # (b, 1, 1, t)
            score = score.masked_fill(absent, -torch.inf)
            top = score.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(score.dtype).min)
            E = torch.exp((score - top).clamp_min(MIN_LOG_WEIGHT)).masked_fill(absent, 0.0)
            same = (rank[part, :, None] == step)[:, :, None]  # (b, k, 1, t)
            weights.append((E * same).sum(-1))
            E = E.masked_fill(same, 0.0)
            sums.append(torch.bmm(E.flatten(1, 2), rows[part]).view(-1, k, H, rows.shape[2]))
        return torch.cat(sums), torch.cat(weights)

    def keys(self, sample: Tensor, time: Tensor, batch: Batch, matrix: Tensor, layout: PaddedLayout) -> Tensor:
        """phi_h(t) times a matrix (h, i, j), for times (n,) of samples (n,): (b, n, h, j), padded."""
        unit = float(self.interval.median()) * self.config.window
        phi = self.embed_time(times_like(time_in_sample(batch, sample, time) / unit, batch.value))
        return layout.pad(torch.einsum("nhi,hij->nhj", phi, matrix))
