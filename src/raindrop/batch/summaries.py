"""Summaries of each sensor's readings: nine numbers per sensor, and further details for trees.

Axes: n a reading, b a sample, s a timestamp, u a sensor.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator, in_order
from raindrop.batch.scaling import Scaler
from raindrop.table.event_table import EventTable

SUMMARIES = ("count", "mean", "min", "max", "std", "first", "last", "change", "time_of_last")
DETAILS = ("time_since_last", "time_of_first", "last_but_one", "last_but_two", "slope", "recent", "step", "mean_time")
SAMPLE_DETAILS = ("end", "start", "length", "readings", "sensors", "most_readings")


def summarise(table: EventTable) -> NDArray[np.float64]:
    """(samples, sensors, 9): `summaries_of` all samples of a table, in the table's units."""
    scaler = Scaler.fit(table)
    parts = [summaries_of(batch).numpy() for batch in in_order(Collator(table, scaler))]
    summaries = np.concatenate([np.zeros((0, len(table.sensors), len(SUMMARIES))), *parts])
    for at, name in enumerate(SUMMARIES):
        if name not in ("count", "time_of_last"):
            offset = 0.0 if name in ("std", "change") else scaler.mean
            summaries[..., at] = summaries[..., at] * scaler.scale + offset
    return summaries


def summaries_of(batch: Batch, time: Tensor | None = None) -> Tensor:
    """(b, u, 9): the SUMMARIES of each sensor of each sample; NaN for a sensor without readings, but count 0.

    time (s,): a replacement for `batch.time`, on the device of the values. The summaries have its dtype.
    """
    time = batch.time if time is None else time
    series, value = batch.senders, batch.value.to(time.dtype)
    count = series.counts.to(time.dtype)
    mean = series.sum(value) / count.clamp_min(1)
    variance = series.sum((value - series.broadcast(mean)).square()) / count.clamp_min(1)
    std = variance.masked_fill(variance == 0, 1.0).sqrt() * (variance > 0)  # sqrt has no gradient at 0
    start = series.offsets
    end = (start + series.counts - 1).clamp_min(0)
    sorted_value, sorted_time = _sorted_by_sensor(batch, value, time)
    low = value.new_full((series.num_segments,), torch.inf).scatter_reduce(0, series.index, value, "amin")
    high = value.new_full((series.num_segments,), -torch.inf).scatter_reduce(0, series.index, value, "amax")
    first, last = sorted_value[start], sorted_value[end]
    known = torch.stack([mean, low, high, std, first, last, last - first, sorted_time[end]], dim=1)
    known = known.masked_fill((count == 0)[:, None], torch.nan)
    return torch.cat([count[:, None], known], dim=1).view(batch.num_samples, batch.num_sensors, len(SUMMARIES))


def details_of(batch: Batch, recent: float) -> tuple[Tensor, Tensor]:
    """(b, u, 8) the DETAILS of each sensor and (b, 6) the SAMPLE_DETAILS, in float64; NaN without readings.

    "recent" is a mean with weights exp(-age / recent), "step" the mean absolute change from one reading to the next,
    "slope" that of the least-squares line through the readings; both are 0 for a sensor with one reading.
    """
    series = batch.senders
    value, time = batch.value.double(), batch.time[batch.step]  # (n,)
    num_readings = series.counts.double()
    count = num_readings.clamp_min(1)
    start = series.offsets
    last = (start + series.counts - 1).clamp_min(0)
    sorted_value, sorted_time = _sorted_by_sensor(batch, value, batch.time)
    one_before, two_before = (torch.maximum(last - back, start).clamp_max(len(value)) for back in (1, 2))

    mean, mean_time = series.sum(value) / count, series.sum(time) / count
    from_mean_time = time - series.broadcast(mean_time)
    time_variance = series.sum(from_mean_time.square())
    covariance = series.sum(from_mean_time * (value - series.broadcast(mean)))
    slope = torch.where(time_variance > 1e-9 * recent**2, covariance / time_variance.clamp_min(1e-300), 0.0)
    weight = torch.exp((time - series.broadcast(sorted_time[last])) / recent)
    recent_mean = series.sum(weight * value) / series.sum(weight).clamp_min(1e-300)
    change = torch.zeros_like(value)
    change[series.rows[1:]] = sorted_value[1:-1].sub(sorted_value[:-2]).abs()
    change[series.rows[start[series.counts > 0]]] = 0.0  # the row before a first reading is another sensor's
    step = series.sum(change) / (num_readings - 1).clamp_min(1)

    sample_start, sample_end = _sample_bounds(batch)
    known = torch.stack(
        [
            sample_end.repeat_interleave(batch.num_sensors) - sorted_time[last],
            sorted_time[start.clamp_max(len(value))],
            sorted_value[one_before],
            sorted_value[two_before],
            slope,
            recent_mean,
            step,
            mean_time,
        ],
        dim=1,
    )
    known = known.masked_fill((num_readings == 0)[:, None], torch.nan)
    per_sensor = num_readings.view(batch.num_samples, batch.num_sensors)
    num_present = (per_sensor > 0).sum(1).double()
    about_sample = torch.stack(
        [sample_end, sample_start, sample_end - sample_start, per_sensor.sum(1), num_present, per_sensor.amax(1)], dim=1
    )
    about_sample = about_sample.masked_fill((batch.samples.counts == 0)[:, None], torch.nan)
    return known.view(batch.num_samples, batch.num_sensors, len(DETAILS)), about_sample


def _sorted_by_sensor(batch: Batch, value: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Values (n,) and times (s,) -> (n + 1,) each: by sample and sensor, in time order.

    The 0 at the end is for indexing: if the last sensor has no readings, its first index is past all others.
    """
    rows, zero = batch.senders.rows, value.new_zeros(1)
    return torch.cat([value[rows], zero]), torch.cat([time[batch.step[rows]], zero])


def _sample_bounds(batch: Batch) -> tuple[Tensor, Tensor]:
    """(b,) the first and the last time of each sample; arbitrary for a sample without readings."""
    time, start = torch.cat([batch.time, batch.time.new_zeros(1)]), batch.samples.offsets
    return time[start], time[(start + batch.samples.counts - 1).clamp_min(0)]
