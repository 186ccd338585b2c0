"""IP-Net (Shukla and Marlin, ICLR 2019; `ipnet.py` has its equations) that answers queries.

The interpolation network of Sec. 3.2.1 is evaluated at the query's time t instead of at reference points: for every
sensor d the smooth value sigma, the intensity lambda and the transient gamma, and across sensors the trend tau. A
reading of the asked sensor v at t itself is left out. The paper's reconstruction of a reading is tau (Sec. 3.2.3); its
prediction network sees [tau, lambda, gamma - tau]. So

    value = tau_v + a_v (gamma_v - tau_v) + w_v . relu(U [tau, lambda, gamma - tau, statics]) + b_v

with a layer of as many neurons as the paper's GRU has, which needs a sequence of points. The task's loss at hidden
readings takes the place of the reconstruction loss. Times are counted from a sample's first timestamp, in typical
intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raindrop.batch.batch import Batch, Queries
from raindrop.models.base import DataSpec, Output
from raindrop.models.baselines.interpolation import MIN_LOG_WEIGHT, KernelSmoother, SensorMixing
from raindrop.models.baselines.query_steps import (
    QuantileHead,
    QueryNetwork,
    QueryTimes,
    SensorLinear,
    own,
    time_in_sample,
)
from raindrop.models.layers import times_like
from raindrop.ranges import Positive, Ranged, Share, Size

MAX_CELLS = 1 << 23  # readings x times at once


@dataclass(frozen=True, kw_only=True)
class IPNetQueryConfig(Ranged):
    """The paper's settings."""

    kappa: Positive = 10.0
    """Factor of alpha for the kernel of the transient part, which is narrower."""
    hidden: Size = 100
    """Neurons in the prediction network."""
    dropout: Share = 0.2
    """Dropout of its input."""


class IPNetQueries(QueryNetwork):
    """Quantiles of queried readings from kernel averages of all sensors at the query's time."""

    def __init__(self, config: IPNetQueryConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config = config
        M = spec.num_sensors
        self.smooth, self.mix = KernelSmoother(M), SensorMixing(M)
        self.a = nn.Parameter(torch.ones(M))
        self.dropout = nn.Dropout(config.dropout)
        self.U = nn.Linear(3 * M + spec.static_width, config.hidden)
        self.centre = SensorLinear(config.hidden, M)
        self.head = QuantileHead(config.hidden + 1, spec)

    def forward(self, batch: Batch) -> Output:
        queries = cast(Queries, batch.queries)
        value, log_intensity, sharp = self.interpolate(batch, queries)  # (q, u) each
        tau = self.mix(value, log_intensity)
        x = torch.cat([tau, log_intensity.exp(), sharp - tau, batch.statics[queries.sample]], dim=1)
        hidden = torch.relu(self.U(self.dropout(x)))
        own_tau, own_sharp, own_log = (own(part, queries) for part in (tau, sharp, log_intensity))
        centre = own_tau + self.a[queries.sensor] * (own_sharp - own_tau) + self.centre(hidden, queries.sensor)
        evidence = torch.cat([hidden, (own_log - 1).abs().log1p()[:, None]], dim=1)
        return Output(self.head(centre, evidence, queries.sensor), hidden, centre.new_zeros(()))

    def interpolate(self, batch: Batch, queries: Queries) -> tuple[Tensor, Tensor, Tensor]:
        """sigma, log lambda and gamma of every sensor at the queries, (q, u), without the queried readings."""
        times = QueryTimes.from_batch(batch)
        unit = float(self.interval.median())

        def since(sample: Tensor, time: Tensor) -> Tensor:
            return times_like(time_in_sample(batch, sample, time) / unit, batch.value)

        time = batch.steps.broadcast(since(batch.step_sample, batch.time))  # (n,)
        points = times.layout.pad(since(times.sample, times.time))  # (b, k)
        at_once = max(1, MAX_CELLS // max(len(time), 1))
        parts = [
            self.smooth(batch, time, points[:, i : i + at_once], sharpness=self.config.kappa)
            for i in range(0, points.shape[1], at_once)
        ]
        at = since(queries.sample, queries.time)
        at_once = max(1, MAX_CELLS // max(int(batch.senders.counts.max()), 1))
        asked = [
            self.smooth_asked(batch, time, queries[i : i + at_once], at[i : i + at_once])
            for i in range(0, len(queries), at_once)
        ]
        itself = torch.arange(batch.num_sensors, device=at.device) == queries.sensor[:, None]
        result = []
        for name, own_parts in zip(("value", "log_intensity", "sharp"), zip(*asked, strict=True), strict=True):
            every = torch.cat([cast(Tensor, getattr(part, name)) for part in parts], dim=1)  # (b, k, u)
            result.append(torch.where(itself, torch.cat(own_parts)[:, None], times.layout.unpad(every)[times.index]))
        return result[0], result[1], result[2]

    def smooth_asked(self, batch: Batch, time: Tensor, queries: Queries, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(q,) sigma, log lambda and gamma of the queried sensor from its readings (n,) at times other than `at` (q,).

        A sensor without such readings is treated as by `KernelSmoother`: one reading of 0, the mean, at time 0.
        """
        series = queries.sample * batch.num_sensors + queries.sensor
        count = batch.senders.counts[series][:, None]
        place = torch.arange(max(1, int(count.max())), device=at.device)
        rows = torch.cat([batch.senders.rows, place.new_zeros(1)])
        row = rows[torch.where(place < count, batch.senders.offsets[series][:, None] + place, len(rows) - 1)]  # (q, l)
        seen, value = place < count, batch.value.new_zeros(row.shape)
        distance = torch.full_like(value, torch.inf)
        if len(time):
            exact = batch.time[batch.step.cpu()]  # (n,) double
            seen = seen & (exact[row.cpu()] != queries.time[:, None]).to(seen.device)
            value = batch.value[row]
            distance = (time[row] - at[:, None]).square().masked_fill(~seen, torch.inf)
        nearest = distance.amin(1, keepdim=True)
        absent = nearest.isinf()
        nearest = torch.where(absent, at[:, None].square(), nearest)
        alpha = F.softplus(self.smooth.raw_alpha)[queries.sensor][:, None]
        log_weight = -alpha * torch.where(seen, distance - nearest, 0.0)
        result = []
        for sharpness in (1.0, self.config.kappa):
            weight = (sharpness * log_weight).clamp_min(MIN_LOG_WEIGHT).exp() * seen
            total = weight.sum(1, keepdim=True) + absent
            result.append(((weight * value).sum(1) / total[:, 0], (total.log() - alpha * nearest)[:, 0]))
        return result[0][0], result[0][1], result[1][0]
