"""What each sensor measured near any time: decaying averages of its readings before and after, and their age.

With weights exp(-age / width), the average over all earlier readings follows from the average at the latest one, so
all averages of a series cost one pass (a parallel scan) per width. At any other time only the weight has decayed: the
average of the readings before t is that of the latest reading, with a weight that is smaller by exp(-age / width).
Axes: n readings in (series, time) order, q moments, u sensors, k widths. A series is one sensor of one sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.batch.ragged import Segments

SCALES = (0.7, 1.5, 3.0, 6.0, 12.0, 36.0)  # widths in units of the sensor's typical interval
NO_EVIDENCE = -12.0  # log weight where there is no reading, or none near
MAX_AGE = 400.0  # in typical intervals; ages are clipped to this


@dataclass(frozen=True, eq=False)
class Side:
    """Averages over the readings on one side, at each reading, including the reading itself."""

    average: Tensor  # (n, k)
    log_weight: Tensor  # (n, k)


class Series:
    """The readings of a batch by series, with the averages before and after each of them."""

    def __init__(self, batch: Batch, interval: Tensor, scales: Tensor):
        """`interval` (u,) is the typical time between readings of each sensor, `scales` (k,) the widths in units of it.

        Times stay in double precision on the CPU until they are differences.
        """
        self.num_sensors, self.scales, self.interval = batch.num_sensors, scales, interval
        series: Segments = batch.senders
        device = batch.value.device
        rows = series.rows
        self.offsets, self.counts = series.offsets, series.counts
        self.time = batch.time[batch.step.cpu()][rows.cpu()]  # (n,) double, CPU
        self.value = batch.value[rows]
        sensor = batch.sensor[rows]
        first = torch.zeros(len(rows), dtype=torch.bool, device=device)
        first[self.offsets[self.counts > 0]] = True
        gap = torch.diff(self.time, prepend=self.time[:1]).to(device, interval.dtype) / interval[sensor]
        decay = torch.exp(-gap[:, None] / scales).masked_fill(first[:, None], 0.0)
        longest = int(self.counts.max()) if len(self.counts) else 0
        self.before = _scan(self.value, decay, longest)
        back = torch.cat([decay[1:], decay.new_zeros(min(1, len(rows)), len(scales))]).flip(0)
        after = _scan(self.value.flip(0), back, longest)
        self.after = Side(after.average.flip(0), after.log_weight.flip(0))

    @cached_property
    def _ranks(self) -> tuple[Tensor, Tensor]:
        """The distinct times of the readings, ascending, and the sort key of each reading: series, then time."""
        distinct, rank = torch.unique(self.time, return_inverse=True)
        series = torch.repeat_interleave(torch.arange(len(self.counts)), self.counts.cpu())
        return distinct, series * (2 * len(distinct) + 1) + 2 * rank + 1

    def around(self, sample: Tensor, sensor: Tensor, time: Tensor, *, strict: bool = False) -> Moments:
        """The latest reading at or before each time and the first one after it.

        sample, time (q,), sensor (q,) or (q, u): of one sensor, or of several at the same time. With `strict`, readings
        exactly at the time are excluded. `time` is double, on the CPU.
        """
        distinct, keys = self._ranks
        at = torch.searchsorted(distinct, time)
        same = torch.zeros(time.shape, dtype=torch.bool)
        inside = at < len(distinct)
        same[inside] = distinct[at[inside]] == time[inside]
        rank = 2 * at + same.long()  # odd at a distinct time, even between two
        if sensor.dim() > 1:
            sample, time, rank = sample[:, None], time[:, None], rank[:, None]
        series = sample.cpu() * self.num_sensors + sensor.cpu()
        key = series * (2 * len(distinct) + 1) + rank
        start = self.offsets.cpu()[series]
        stop = start + self.counts.cpu()[series]
        following = torch.searchsorted(keys, key, right=True)
        previous = (torch.searchsorted(keys, key) if strict else following) - 1
        return self._moments(sensor, time, previous, previous >= start, following, following < stop)

    def of_all_sensors(self, sample: Tensor, time: Tensor) -> tuple[Moments, Tensor]:
        """All sensors at the distinct (m,) times of samples, and (q,) the index of each sample and time among these.

        Queries at the same time, or within the same gap, share one entry.
        """
        distinct, rank = torch.unique(time, return_inverse=True)
        key, index = torch.unique(sample.cpu() * len(distinct) + rank, return_inverse=True)
        owner = torch.div(key, max(len(distinct), 1), rounding_mode="floor").to(sample.device)
        sensor = torch.arange(self.num_sensors, device=sample.device).expand(len(key), -1)
        return self.around(owner, sensor, distinct[key % max(len(distinct), 1)]), index.to(sample.device)

    def _moments(
        self, sensor: Tensor, time: Tensor, previous: Tensor, has_previous: Tensor, following: Tensor, more: Tensor
    ) -> Moments:
        device, kind, most = self.value.device, self.value.dtype, max(len(self.time) - 1, 0)
        previous, following = previous.clamp(0, most), following.clamp(0, most)
        times = self.time if len(self.time) else self.time.new_zeros(1)
        interval = self.interval.to(device)[sensor.to(device)]
        age = (time - times[previous]).to(device, kind) / interval
        wait = (times[following] - time).to(device, kind) / interval
        share = (time - times[previous]) / (times[following] - times[previous])
        share = torch.where(has_previous & more, share, (~has_previous).double())
        return Moments(
            self,
            previous.to(device),
            has_previous.to(device),
            following.to(device),
            more.to(device),
            age.clamp(0, MAX_AGE),
            wait.clamp(0, MAX_AGE),
            share.to(device, kind),
        )


@dataclass(frozen=True, eq=False)
class Moments:
    """A sensor of a sample at a time, described by its readings before and after; any shape (...)."""

    series: Series
    previous: Tensor  # (...) the latest reading
    has_previous: Tensor
    following: Tensor  # (...) the next reading
    has_following: Tensor
    age: Tensor  # (...) of the latest reading, in typical intervals of the sensor
    wait: Tensor  # (...) until the next reading, likewise
    share: Tensor  # (...) position between the latest reading and the next; 0 without a next one, 1 without a latest

    def averages(self, widths: slice | list[int] = slice(None)) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """(..., k) averages of both sides, before and after, and the log weights before and after."""
        scales = self.series.scales[widths]
        sides = []
        for side, row, has, age in (
            (self.series.before, self.previous, self.has_previous, self.age),
            (self.series.after, self.following, self.has_following, self.wait),
        ):
            if not side.average.shape[0]:
                empty = age[..., None].expand(*age.shape, len(scales)) * 0
                sides += [empty, empty + NO_EVIDENCE]
                continue
            weight = side.log_weight[:, widths][row] - age[..., None] / scales
            weight = weight.clamp_min(NO_EVIDENCE).masked_fill(~has[..., None], NO_EVIDENCE)
            sides += [side.average[:, widths][row] * has[..., None], weight]
        before, log_before, after, log_after = sides
        share = torch.sigmoid(log_before - log_after)
        share = torch.where(self.has_previous[..., None], share, 0.0)
        share = torch.where(self.has_following[..., None], share, 1.0)
        return share * before + (1 - share) * after, before, after, log_before, log_after

    def values(self) -> tuple[Tensor, Tensor, Tensor]:
        """(...) the latest value, the next one, and the linear interpolation; 0 if there is none."""
        if not self.series.value.shape[0]:
            return self.age * 0, self.age * 0, self.age * 0
        last = self.series.value[self.previous] * self.has_previous
        coming = self.series.value[self.following] * self.has_following
        return last, coming, last + (coming - last) * self.share

    def previous_time(self) -> Tensor:
        """(...) time of the latest reading, double, on the CPU."""
        return self._time_of(self.previous)

    def following_time(self) -> Tensor:
        """(...) time of the next reading, double, on the CPU."""
        return self._time_of(self.following)

    def _time_of(self, row: Tensor) -> Tensor:
        return self.series.time[row.cpu()] if self.series.time.shape[0] else torch.zeros(row.shape, dtype=torch.float64)


def _scan(value: Tensor, decay: Tensor, longest: int) -> Side:
    """Averages (n, k) of the values (n,) up to each reading, and their weights."""
    total = _recurrence(value[:, None].expand_as(decay), decay, longest)
    weight = _recurrence(torch.ones_like(decay), decay, longest)
    return Side(total / weight, weight.log())


def _recurrence(x: Tensor, decay: Tensor, longest: int) -> Tensor:
    """y_i = decay_i y_(i-1) + x_i for all i at once, by doubling: after round r, y_i covers the last 2^r readings.

    x, decay (n, ...); a series starts where decay is 0, as at the first row, and none is longer than `longest`.
    """
    total, reach, step = x, decay, 1
    while step < longest:
        total = torch.cat([total[:step], torch.addcmul(total[step:], reach[step:], total[:-step])])
        reach = torch.cat([reach[:step], reach[step:] * reach[:-step]])
        step *= 2
    return total


class _Recurrence(torch.autograd.Function):
    """`_recurrence` with a gradient of x, which is the same recurrence from the end to the start."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, decay: Tensor, longest: int) -> Tensor:
        ctx.save_for_backward(decay)
        ctx.longest = longest
        return _recurrence(x, decay, longest)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (decay,) = ctx.saved_tensors
        back = torch.cat([decay[1:], torch.zeros_like(decay[:1])]).flip(0)
        return _recurrence(grad.flip(0), back, ctx.longest).flip(0), None, None


def decaying_average(batch: Batch, x: Tensor, interval: Tensor, scales: Tensor) -> Tensor:
    """Averages of x (n, k, j) over the readings of the same series up to each reading, (n, k, j).

    The weight of an earlier reading is exp(-age / width), with a width of scales (k,) times the sensor's interval (u,).
    """
    rows, counts = batch.senders.rows, batch.senders.counts
    if not len(rows):
        return x
    order, size = rows.cpu().numpy(), counts.cpu().numpy()
    time = batch.time.numpy()[batch.step.cpu().numpy()[order]]
    gap = np.diff(time, prepend=time[:1]) / interval.cpu().numpy()[batch.sensor.cpu().numpy()[order]]
    gap[(np.cumsum(size) - size)[size > 0]] = np.inf  # the first reading of a series has none before it
    decay = torch.from_numpy(np.exp(-gap[:, None] / scales.cpu().numpy())[..., None]).to(x.device, x.dtype)
    longest = int(size.max())
    with_ones = torch.cat([x[rows], torch.ones_like(decay)], dim=-1)  # the sums of x, and of the weights
    total: Tensor
    if torch.is_grad_enabled():
        total = _Recurrence.apply(with_ones, decay, longest)  # type: ignore[no-untyped-call]
    else:
        total = _recurrence(with_ones, decay, longest)
    average = total[..., :-1] / total[..., -1:]
    return torch.empty_like(average).index_copy(0, rows, average)


class Neighbours:
    """The readings of each sensor before and after each timestamp of a batch: (s, u) each, ages as NumPy arrays.

    A reading exactly at the timestamp counts as before, with an age of 0.
    """

    def __init__(self, batch: Batch, interval: Tensor):
        self.previous, self.following = batch.previous, batch.following  # positions of readings, -1 for none
        previous, following = self.previous.cpu().numpy(), self.following.cpu().numpy()
        has_previous, has_following = previous >= 0, following >= 0
        time = batch.time.numpy()  # double, as all times
        read_at, now = np.append(time.take(batch.step.cpu().numpy()), 0.0), time[:, None]
        age, wait = now - read_at.take(previous), read_at.take(following) - now  # position -1 is the last
        between = has_previous & has_following
        self.share = np.where(between, age / np.where(between, age + wait, 1.0), ~has_previous)
        """Position between the reading before and the one after, from 0 to 1."""
        typical = interval.cpu().numpy()
        self.age = np.where(has_previous, age / typical, np.inf)
        self.wait = np.where(has_following, wait / typical, np.inf)
        """In units of the sensor's typical interval; inf if there is no reading."""
