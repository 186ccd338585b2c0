"""Summaries of each sensor's readings: nine numbers per sensor, and further details, of a table or of a batch.

Axes: n a reading, b a sample, s a timestamp, u a sensor.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.table.event_table import EventTable

SUMMARIES = ("count", "mean", "min", "max", "std", "first", "last", "change", "time_of_last")


def summarise(table: EventTable) -> NDArray[np.float64]:
    """(samples, sensors, 9): the SUMMARIES of each sensor of each sample; NaN where it has no reading, but count 0."""
    width = len(table.sensors)
    rows = table.rows()
    owner = np.repeat(np.arange(len(table)), table.count)
    key = owner * width + table.sensor[rows]
    order = np.argsort(key, kind="stable")  # readings stay in time order within a sensor
    key, rows = key[order], rows[order]
    out = np.full((len(table) * width, len(SUMMARIES)), np.nan)
    out[:, 0] = 0
    if len(key):
        starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        count = np.diff(np.append(starts, len(key)))
        value = np.asarray(table.value[rows], dtype=np.float64)
        first, last = value[starts], value[starts + count - 1]
        mean = np.add.reduceat(value, starts) / count
        spread = np.sqrt(np.add.reduceat((value - np.repeat(mean, count)) ** 2, starts) / count)
        low, high = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
        end = np.asarray(table.time[rows], dtype=np.float64)[starts + count - 1]
        out[key[starts]] = np.column_stack([count, mean, low, high, spread, first, last, last - first, end])
    return out.reshape(len(table), width, len(SUMMARIES))


DETAILS = ("time_since_last", "time_of_first", "last_but_one", "last_but_two", "slope", "recent", "step", "mean_time")
WHOLE = ("end", "start", "length", "readings", "sensors", "most_readings")


def summaries_of(batch: Batch, dtype: torch.dtype = torch.float64) -> Tensor:
    """(b, u, 9): what `summaries.summarise` computes of a table; NaN without a reading, but count 0."""
    held, value = batch.senders, batch.value.to(dtype)
    count = held.counts.to(dtype)
    mean = held.sum(value) / count.clamp_min(1)
    variance = held.sum((value - held.broadcast(mean)).square()) / count.clamp_min(1)
    spread = variance.masked_fill(variance == 0, 1.0).sqrt() * (variance > 0)  # a gradient at 0 too
    start = held.offsets
    end = (start + held.counts - 1).clamp_min(0)
    ordered, when = _in_order(batch, dtype)
    low = value.new_full((held.num_segments,), torch.inf).scatter_reduce(0, held.index, value, "amin")
    high = value.new_full((held.num_segments,), -torch.inf).scatter_reduce(0, held.index, value, "amax")
    first, last = ordered[start], ordered[end]
    known = torch.stack([mean, low, high, spread, first, last, last - first, when[end]], dim=1)
    known = known.masked_fill((count == 0)[:, None], torch.nan)
    return torch.cat([count[:, None], known], dim=1).view(batch.num_samples, batch.num_sensors, len(SUMMARIES))


def _in_order(batch: Batch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Values and times sensor by sensor, each in time order, and a 0 behind them: where an empty last sensor starts."""
    rows, beyond = batch.senders.rows, batch.value.new_zeros(1, dtype=dtype)
    value, time = batch.value.to(dtype)[rows], batch.time.to(dtype)[batch.slot[rows]]
    return torch.cat([value, beyond]), torch.cat([time, beyond])


def details_of(batch: Batch, recent: float) -> tuple[Tensor, Tensor]:
    """(b, u, 8) and (b, 6): the DETAILS of each sensor, NaN without a reading, and the WHOLE of each sample, NaN too.

    "recent" is a mean in which a reading weighs exp(-age / recent), "step" the mean size of a change from one reading
    to the next, "slope" that of a straight line through the readings; both are 0 for a sensor that was read once.
    """
    held = batch.senders
    value, time = batch.value.double(), batch.time.double()[batch.slot]  # (n,)
    count = held.counts.double()
    number = count.clamp_min(1)
    start = held.offsets
    last = (start + held.counts - 1).clamp_min(0)
    ordered, when = _in_order(batch, torch.float64)
    one_before, two_before = (torch.maximum(last - back, start).clamp_max(len(value)) for back in (1, 2))

    mean, mean_time = held.sum(value) / number, held.sum(time) / number
    apart = time - held.broadcast(mean_time)
    spread = held.sum(apart.square())
    together = held.sum(apart * (value - held.broadcast(mean)))
    slope = torch.where(spread > 1e-9 * recent**2, together / spread.clamp_min(1e-300), 0.0)
    weight = torch.exp((time - held.broadcast(when[last])) / recent)
    decayed = held.sum(weight * value) / held.sum(weight).clamp_min(1e-300)
    change = torch.zeros_like(value)
    change[held.rows[1:]] = ordered[1:-1].sub(ordered[:-2]).abs()
    first_rows = held.rows[start[held.counts > 0]]
    change[first_rows] = 0.0  # its reading before is another sensor's
    step = held.sum(change) / (count - 1).clamp_min(1)

    moments = torch.cat([batch.time.double(), value.new_zeros(1)])
    edge, empty = batch.samples.offsets, batch.samples.counts == 0
    begin, end = moments[edge], moments[(edge + batch.samples.counts - 1).clamp_min(0)]
    per_sensor = count.view(batch.num_samples, batch.num_sensors)
    whole = torch.stack(
        [end, begin, end - begin, per_sensor.sum(1), (per_sensor > 0).sum(1).double(), per_sensor.amax(1)], dim=1
    )
    since = end.repeat_interleave(batch.num_sensors) - when[last]
    known = torch.stack(
        [
            since,
            when[start.clamp_max(len(value))],
            ordered[one_before],
            ordered[two_before],
            slope,
            decayed,
            step,
            mean_time,
        ],
        dim=1,
    )
    known = known.masked_fill((count == 0)[:, None], torch.nan)
    return known.view(batch.num_samples, batch.num_sensors, len(DETAILS)), whole.masked_fill(empty[:, None], torch.nan)
