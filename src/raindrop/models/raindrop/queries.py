"""Raindrop with queries: the value of a sensor at a time, from its own readings and messages of the other sensors.

Every sensor u has an embedding at every time: decaying averages of its readings before and after, and how strong and
recent this evidence is (`batch/nearby.py`). A query (v, t) receives messages from all other sensors at time t, as a
sensor without a reading does in Sec. 3.3: attention weights from a number per pair of sensors, the sender's evidence
and the receiver's (Eq. 1), and the weighted sum of what the senders send (Eq. 2). What is sent is relative to the
receiver: the sender's averages compared with the receiver's level; how much the sender has changed since the receiver's
last reading, until its next, and from the interpolation between them; and its values some time before and after
(`lagged_values.py`). Facts about sensors, such as their positions, are further inputs if they are asked for.
Axes: q queries, u senders, h heads, k widths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.collate import BatchSource
from raindrop.batch.gaps import typical_intervals
from raindrop.batch.nearby import MAX_AGE, SCALES, Moments, Series
from raindrop.batch.scaling import scale_sensor_columns
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.ensemble import EnsembleHead
from raindrop.models.raindrop.lagged_values import LaggedValues
from raindrop.models.raindrop.pair_numbers import PairNumbers
from raindrop.ranges import Layers, OptionalSize, Ranged, Share, Size
from raindrop.table.event_table import EventTable

CHANGE_WIDTHS = [0, 2]  # of SCALES: the averages whose change is sent
LEVEL_WIDTH = len(SCALES) - 1  # the widest average is a sensor's level
DAY_WAVES = 4  # numbers that describe the time of day
MAX_CELLS = 1 << 18  # queries x senders at once


@dataclass(frozen=True, kw_only=True)
class QueryConfig(Ranged):
    """The settings of Raindrop with queries."""

    messages: bool = True
    """Whether sensors receive messages; without, a reading is predicted from the sensor's own readings alone."""
    heads: Layers = 4
    """Attention heads: sets of attention weights, each with its own sum of messages."""
    sensor_dim: OptionalSize = 8
    """Width of a learned vector per sensor."""
    hidden: Size = 128
    """Width of the network that reads own readings and messages."""
    evidence_hidden: Size = 32
    """Width of the networks that turn evidence into attention."""
    lags: bool = True
    """Whether messages also have the sender's values some time before and after, weighted for each pair of sensors."""
    pair_rank: OptionalSize = 0
    """Rank of the numbers per pair of sensors; 0 has one number per pair and head, and per pair and lag."""
    members: Size = 1
    """Networks in the ensemble that reads own readings and messages."""
    dropout: Share = 0.0
    """Dropout in that network."""
    sensor_facts: tuple[str, ...] = ()
    """Numeric columns of sensors.parquet, such as x and y, that are inputs of that network and of attention."""


class RaindropQueries(Model):
    """Quantiles of queried readings."""

    interval: Tensor
    scales: Tensor

    def __init__(self, config: QueryConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config, self.dated = config, spec.dated
        M, K = spec.num_sensors, len(SCALES)
        own = Embedding.num_values(K) + Embedding.num_evidence(K) + config.sensor_dim + spec.static_width
        if spec.dated:
            own += DAY_WAVES
        self.facts = SensorFacts(config.sensor_facts, M) if config.sensor_facts else None
        own += 0 if self.facts is None else self.facts.width
        self.register_buffer("interval", torch.ones(M))
        self.register_buffer("scales", torch.tensor(SCALES))
        self.sensors = nn.Parameter(0.1 * torch.randn(M, config.sensor_dim))
        self.messages = QueryMessages(config, M) if config.messages else None
        width = own + (0 if self.messages is None else self.messages.width)
        self.head = EnsembleHead(
            width, config.hidden, config.members, spec.num_outputs, activation=nn.SiLU(), dropout=config.dropout
        )
        with torch.no_grad():
            self.head.last.mul_(0.1)  # starts close to linear interpolation

    def prepare(self, training: BatchSource, validation: BatchSource | None, seed: int) -> None:
        """Learn the typical interval between the readings of each sensor, and store the facts about sensors."""
        self.interval.copy_(torch.from_numpy(typical_intervals(training.table)))
        if self.facts is not None:
            self.facts.store(training.table)

    def forward(self, batch: Batch) -> Output:
        queries = cast(Queries, batch.queries)
        series = Series(batch, self.interval, self.scales)
        at_once = max(1, MAX_CELLS // batch.num_sensors)
        parts = [self._answer(batch, series, queries[i : i + at_once]) for i in range(0, len(queries) or 1, at_once)]
        members, senders = (torch.cat(part) for part in zip(*parts, strict=True))
        scores = members.mean(1)
        return Output(
            scores=scores,
            embedding=scores,
            penalty=scores.new_zeros(()),
            members=members if self.config.members > 1 else None,
            senders=None if self.messages is None else senders,
        )

    def _answer(self, batch: Batch, series: Series, queries: Queries) -> tuple[Tensor, Tensor]:
        """(q, member, level) scores, and (q, u) how much each sensor informed each query."""
        v = queries.sensor
        own = Embedding.of(series.around(queries.sample, v, queries.time, strict=True))
        parts = [own.values - own.level, own.evidence, self.sensors[v], batch.statics[queries.sample]]
        if self.dated:
            parts.append(time_of_day_waves(queries, own.level))
        if self.facts is not None:
            parts.append(self.facts.of(v))
        senders = own.level.new_zeros(own.level.shape[0], 0)
        if self.messages is not None:
            compared = None if self.facts is None else self.facts.compare(v)
            received, senders = self.messages(series, queries, own, compared)
            parts.append(received)
        correction = self.head(torch.cat(parts, dim=-1))
        return own.line[:, None] + correction, senders


class SensorFacts(nn.Module):
    """Known numbers f of each sensor, such as its position, as z-scores of the training table's sensors."""

    value: Tensor  # (u, f) 0 if not known
    known: Tensor  # (u, f) 0 or 1

    def __init__(self, names: tuple[str, ...], num_sensors: int):
        super().__init__()
        self.names, self.width = names, 2 * len(names)
        for name in ("value", "known"):
            self.register_buffer(name, torch.zeros(num_sensors, len(names)))

    def store(self, table: EventTable) -> None:
        """Take the facts from a table; those of tables that come later are not used."""
        value, known = scale_sensor_columns(table, self.names)
        self.value.copy_(torch.from_numpy(value))
        self.known.copy_(torch.from_numpy(known))

    def of(self, v: Tensor) -> Tensor:
        """(q, 2 f) the facts of these sensors, and whether they are known."""
        return torch.cat([self.value[v], self.known[v]], dim=-1)

    def compare(self, v: Tensor) -> Tensor:
        """(q, u, 3 f) sender minus receiver, its size, and whether both are known; 0 if not."""
        both = self.known * self.known[v][:, None]
        difference = (self.value - self.value[v][:, None]) * both
        return torch.cat([difference, difference.abs(), both], dim=-1)


def time_of_day_waves(queries: Queries, like: Tensor) -> Tensor:
    """(q, 4) sine and cosine of the time of day, with periods of a day and of half a day; 0 where it is unknown."""
    if queries.time_of_day is None:
        return like.new_zeros(len(queries), DAY_WAVES)
    sine, cosine = queries.time_of_day.to(like.dtype).unbind(1)
    return torch.stack([sine, cosine, 2 * sine * cosine, cosine**2 - sine**2], dim=1)


@dataclass(frozen=True, eq=False)
class Embedding:
    """The embedding of a sensor at a time."""

    values: Tensor  # (..., 3 k + 3) averages of both sides, before, after; last, next, the line between
    evidence: Tensor  # (..., 2 k + 2) log weights before and after; log ages
    level: Tensor  # (..., 1) the widest average
    line: Tensor  # (..., 1) between the last and the next reading
    moments: Moments

    @staticmethod
    def num_values(widths: int) -> int:
        return 3 * widths + 3

    @staticmethod
    def num_evidence(widths: int) -> int:
        return 2 * widths + 2

    @classmethod
    def of(cls, moments: Moments) -> Embedding:
        both, before, after, log_before, log_after = moments.averages()
        last, coming, line = (x[..., None] for x in moments.values())
        ages = torch.stack([moments.age, moments.wait], dim=-1)
        has = torch.stack([moments.has_previous, moments.has_following], dim=-1)
        ages = torch.where(has, ages, MAX_AGE).log1p()
        return cls(
            values=torch.cat([both, before, after, last, coming, line], dim=-1),
            evidence=torch.cat([log_before, log_after, ages], dim=-1),
            level=both[..., LEVEL_WIDTH : LEVEL_WIDTH + 1],
            line=line,
            moments=moments,
        )


class QueryMessages(nn.Module):
    """Eq. 1-2 at a query: attention over the other sensors, and the weighted sum of what they send."""

    def __init__(self, config: QueryConfig, num_sensors: int):
        super().__init__()
        K, C, H = len(SCALES), len(CHANGE_WIDTHS) + 1, config.heads
        self.num_sensors = num_sensors
        evidence, compared = Embedding.num_evidence(K), 3 * len(config.sensor_facts)
        self.pairs = PairNumbers(num_sensors, H, config.pair_rank, 0.01)
        self.nobody = nn.Parameter(torch.full((num_sensors, H), -2.0))  # the score of attention to no sender
        self.of_sender = _two_layers(evidence + 8 + compared, config.evidence_hidden, H)
        self.of_receiver = _two_layers(evidence, config.evidence_hidden, H)
        self.lagged = LaggedValues(num_sensors, config.pair_rank) if config.lags else None
        self.width = H * (Embedding.num_values(K) + 1 + 3 * C + (self.lagged is not None))

    def forward(
        self, series: Series, queries: Queries, own: Embedding, compared: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(q, h values): the messages of each head, and (q, u) the mean attention of the heads.

        `compared` (q, u, 3 f) is the comparison of sender and receiver by known facts.
        """
        v = queries.sensor
        moments, index = series.of_all_sensors(queries.sample, queries.time)
        now = Embedding.of(moments)  # (m, u)
        values = now.values[index]
        here = values[..., [*CHANGE_WIDTHS, -1]]  # (q, u, c) narrow averages and the line
        moved, evidence = [], [now.evidence[index]] if compared is None else [now.evidence[index], compared]
        for time, present in (
            (own.moments.previous_time(), own.moments.has_previous),
            (own.moments.following_time(), own.moments.has_following),
        ):
            there, at = series.of_all_sensors(queries.sample, time)
            average, certainty = _change(there)
            moved.append((here - average[at]) * present[:, None, None])
            evidence.append(certainty[at] * present[:, None, None])
        share = own.moments.share[:, None, None]
        from_line = (1 - share) * moved[0] + share * moved[1]
        score = self.pairs(v) + self.of_sender(torch.cat(evidence, -1)) + self.of_receiver(own.evidence)[:, None]
        itself = torch.arange(self.num_sensors, device=v.device) == v[:, None]
        score = score.masked_fill(itself[..., None], -torch.inf)
        alpha = torch.softmax(torch.cat([score, self.nobody[v][:, None]], dim=1), dim=1)[:, :-1]  # Eq. 1 (q, u, h)
        sent = torch.cat([values - own.level[:, None], torch.ones_like(values[..., :1]), *moved, from_line], dim=-1)
        received = torch.einsum("quh,qud->qhd", alpha, sent)  # Eq. 2
        if self.lagged is not None:
            lagged = torch.einsum("quh,qu->qh", alpha, self.lagged(series, queries, now.level[index].squeeze(-1)))
            received = torch.cat([received, lagged[..., None]], dim=-1)
        return received.flatten(1), alpha.mean(-1)


def _change(moments: Moments) -> tuple[Tensor, Tensor]:
    """(..., c) the reference of a change, and (..., 4) log weights of the narrowest average and log ages."""
    average, _, _, before, after = moments.averages(CHANGE_WIDTHS)
    ages = torch.stack([moments.age, moments.wait], dim=-1)
    has = torch.stack([moments.has_previous, moments.has_following], dim=-1)
    certainty = torch.cat([before[..., :1], after[..., :1], torch.where(has, ages, MAX_AGE).log1p()], dim=-1)
    return torch.cat([average, moments.values()[2][..., None]], dim=-1), certainty


def _two_layers(width: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, out))
