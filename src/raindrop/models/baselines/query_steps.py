"""Shared by networks that answer queries: a separate recurrent step for each query, both directions, quantiles.

A recurrent model takes a step at every timestamp of a sample. A query (sensor v, time t) is answered by an additional
step at its own time: it starts from the state after the last timestamp strictly before t, its inputs are the other
sensors' readings at t, if any, and its state is not passed on. The same holds backwards in time. So an answer depends
neither on other queries nor on a reading of v at t itself, and a query may be at any time.
Axes: s steps (timestamps of a sample), q queries, n either of the two, u sensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.collate import BatchSource
from raindrop.batch.gaps import typical_intervals
from raindrop.batch.ragged import Segments
from raindrop.models.base import DataSpec, Model
from raindrop.models.baselines.grud import last_readings
from raindrop.models.layers import PaddedLayout, Recurrence, dense_values, times_like

MIN_SPREAD = -2.0  # start of the distances between quantiles, before softplus


def reversed_steps(batch: Batch) -> Tensor:
    """(s,) the new position of each step when the steps of each sample are reversed; its own inverse."""
    first = batch.samples.offsets[batch.step_sample]
    return first + batch.samples.counts[batch.step_sample] - 1 - batch.rank


def reversed_in_time(batch: Batch) -> Batch:
    """The batch with the steps of each sample in reverse order and times negated, queries included."""
    place = reversed_steps(batch)
    step = place[batch.step]
    order = torch.argsort(step, stable=True)
    queries = batch.queries
    return replace(
        batch,
        value=batch.value[order],
        sensor=batch.sensor[order],
        step=step[order],
        time=-batch.time[place.cpu()],
        queries=None if queries is None else replace(queries, time=-queries.time),
    )


@dataclass(frozen=True, eq=False)
class Steps:
    """The inputs of a recurrence at timestamps, or at queries."""

    previous: Tensor  # (n,) the last timestamp strictly before; -1 if the sample has none
    gap: Tensor  # (n,) time since then, in typical intervals of all sensors; 0 without one
    value: Tensor  # (n, u) reading at the time itself; 0 where there is none
    observed: Tensor  # (n, u) whether there is one
    known: Tensor  # (n, u) whether the sensor has a reading strictly before
    last: Tensor  # (n, u) the last of them; 0 without one
    elapsed: Tensor  # (n, u) time since then, or since the first timestamp, in typical intervals of the sensor

    def before(self, states: Tensor, initial: Tensor) -> Tensor:
        """(n, ...) the states (s, ...) after the previous timestamps; `initial` (...) if there is none."""
        return torch.cat([initial[None], states])[self.previous + 1]


class Past:
    """The timestamps of a batch in order: what precedes each of them, or any other time."""

    def __init__(self, batch: Batch, interval: Tensor):
        """`interval` (u,) is the typical time between readings of each sensor."""
        self.batch, self.interval = batch, interval
        value = dense_values(batch)
        last, elapsed = last_readings(batch, value)
        step = torch.arange(batch.num_steps, device=value.device)
        previous = torch.where(batch.rank > 0, step - 1, -1)
        earlier = torch.cumsum(batch.observed, 0) - batch.observed.long()
        known = earlier > earlier[batch.samples.offsets[batch.step_sample]]
        gap = self._since(batch.time, previous)
        self.steps = Steps(previous, gap / interval.median(), value, batch.observed, known, last, elapsed / interval)
        distinct, rank = torch.unique(batch.time, return_inverse=True)
        self.distinct, self.base = distinct, 2 * len(distinct) + 1
        self.keys = batch.step_sample.cpu() * self.base + 2 * rank + 1  # rising: sample, then time

    def locate(self, sample: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """(q,) the last timestamp strictly before each time, and the one exactly at it; -1 if there is none."""
        rank = torch.searchsorted(self.distinct, time)
        same = torch.cat([self.distinct, self.distinct.new_full((1,), torch.nan)])[rank] == time
        key = sample.cpu() * self.base + 2 * rank + same.long()
        at = torch.searchsorted(self.keys, key)
        owner = torch.cat([self.batch.step_sample.cpu(), torch.tensor([-1])])  # -1: of no sample, also before the first
        previous = torch.where(owner[at - 1] == sample.cpu(), at - 1, -1)
        here = torch.where(torch.cat([self.keys, torch.tensor([-1])])[at] == key, at, -1)
        return previous.to(sample.device), here.to(sample.device)

    def at(self, sample: Tensor, time: Tensor, asked: Tensor | None = None) -> Steps:
        """One step for each time (q,) of a sample (q,), without the reading of the sensor `asked` (q,), if given."""
        previous, here = self.locate(sample, time)
        steps, M = self.steps, self.batch.num_sensors
        nothing = steps.value.new_zeros(1, M)
        value = torch.cat([nothing, steps.value])[here + 1]
        observed = torch.cat([nothing > 0, steps.observed])[here + 1]
        if asked is not None:
            observed = observed & (torch.arange(M, device=asked.device) != asked[:, None])
            value = value * observed
        last = torch.where(steps.observed, steps.value, steps.last)
        elapsed = torch.where(steps.observed, 0.0, steps.elapsed)
        gap = self._since(time, previous)
        return Steps(
            previous,
            gap / self.interval.median(),
            value,
            observed,
            torch.cat([nothing > 0, steps.known | steps.observed])[previous + 1],
            torch.cat([nothing, last])[previous + 1],
            torch.cat([nothing, elapsed])[previous + 1] + gap[:, None] / self.interval,
        )

    def _since(self, time: Tensor, previous: Tensor) -> Tensor:
        """(n,) the time since the previous timestamp; 0 if there is none."""
        steps = torch.cat([torch.zeros(1, dtype=torch.float64), self.batch.time])[previous.cpu() + 1]
        return times_like(time - steps, self.batch.value).masked_fill(previous < 0, 0.0)

    def run(self, step: Callable[..., Tensor], state: Tensor, inputs: Sequence[Tensor]) -> Tensor:
        """(s, ...) the state after each timestamp, from the initial state (b, ...) and inputs (s, ...)."""
        return Recurrence(self.batch).states(step, state, *inputs)


class QueryNetwork(Model):
    """A network that answers queries and measures time in typical intervals between a sensor's readings."""

    interval: Tensor

    def __init__(self, config: object, spec: DataSpec):
        super().__init__(config, spec)
        self.register_buffer("interval", torch.ones(spec.num_sensors))

    def prepare(self, training: BatchSource, validation: BatchSource | None, seed: int) -> None:
        """Learn the typical interval between the readings of each sensor."""
        self.interval.copy_(torch.from_numpy(typical_intervals(training.table)))

    def both_directions(self, batch: Batch) -> tuple[Past, Past]:
        """The batch forwards and backwards in time."""
        return Past(batch, self.interval), Past(reversed_in_time(batch), self.interval)


class SensorLinear(nn.Module):
    """y = w_v . x + b_v, with the weights of the queried sensor v."""

    def __init__(self, width: int, num_sensors: int):
        super().__init__()
        bound = 0.1 * width**-0.5  # an answer starts near what the model adds it to
        self.weight = nn.Parameter(torch.empty(num_sensors, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(num_sensors))

    def forward(self, x: Tensor, sensor: Tensor) -> Tensor:  # (q, width), (q,) -> (q,)
        return (x * self.weight[sensor]).sum(-1) + self.bias[sensor]


class QuantileHead(nn.Module):
    """The centre is the median; the other quantiles are apart from it by sums of positive linear functions."""

    def __init__(self, width: int, spec: DataSpec):
        super().__init__()
        self.apart = nn.Linear(width, spec.num_outputs - 1)
        self.of_sensor = nn.Parameter(torch.full((spec.num_sensors, spec.num_outputs - 1), MIN_SPREAD))

    def forward(self, centre: Tensor, x: Tensor, sensor: Tensor) -> Tensor:
        """(q,), (q, width), (q,) -> (q, level), ascending."""
        apart = F.softplus(self.apart(x) + self.of_sensor[sensor])
        below, above = apart.chunk(2, dim=1)
        below = below.flip(1).cumsum(1).flip(1)
        return torch.cat([centre[:, None] - below, centre[:, None], centre[:, None] + above.cumsum(1)], dim=1)


def time_in_sample(batch: Batch, sample: Tensor, time: Tensor) -> Tensor:
    """(n,) times (n,) since the first timestamp of their samples (n,), double, on the CPU; 0 without a timestamp."""
    first = torch.cat([batch.time, batch.time.new_zeros(1)])[batch.samples.offsets.cpu()]
    sample = sample.cpu()
    return (time - first[sample]).masked_fill(batch.samples.counts.cpu()[sample] == 0, 0.0)


def own(x: Tensor, queries: Queries) -> Tensor:
    """(q, u) -> (q,): the column of the queried sensor."""
    return x.gather(1, queries.sensor[:, None])[:, 0]


@dataclass(frozen=True, eq=False)
class QueryTimes:
    """The distinct times m of a batch's queries, by sample, padded to the sample with the most."""

    sample: Tensor  # (m,) rising
    time: Tensor  # (m,) double, on the CPU
    index: Tensor  # (q,) the time of each query
    layout: PaddedLayout  # (m, ...) <-> (b, k, ...)

    @classmethod
    def from_batch(cls, batch: Batch) -> QueryTimes:
        """The distinct times of the batch's queries."""
        queries = cast(Queries, batch.queries)
        distinct, rank = torch.unique(queries.time, return_inverse=True)
        key, index = torch.unique(queries.sample.cpu() * len(distinct) + rank, return_inverse=True)
        sample = torch.div(key, max(len(distinct), 1), rounding_mode="floor")
        by_sample = Segments.from_index(sample, batch.num_samples, is_sorted=True)
        longest = max(1, int(by_sample.counts.max()) if batch.num_samples else 1)
        place = torch.arange(len(key)) - by_sample.offsets[sample] + sample * longest
        device = queries.sample.device
        layout = PaddedLayout(place.to(device), by_sample.counts.to(device), (batch.num_samples, longest))
        return cls(sample.to(device), distinct[key - sample * len(distinct)], index.to(device), layout)
