"""Gaps for training: which readings of a window are hidden, drawn like the gaps that users want to fill.

Each window draws single readings, blocks of consecutive readings of a sensor, outages as they occur in the data (the
gaps at another time, in all sensors at once), and occasionally whole sensors. A forecaster hides everything after a
cutoff instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from raindrop.table.blocks import BLOCK, evenly_spread, is_large
from raindrop.table.event_table import EventTable
from raindrop.table.queries import OUTAGE, spans

Bools = NDArray[np.bool_]
Positions = NDArray[np.int64]
Float64 = NDArray[np.float64]
MAX_SAMPLES = 2000  # used as examples of gaps


def typical_intervals(table: EventTable) -> Float64:
    """(sensor,) the median time between two readings of a sensor; that of all sensors if it has too few.

    For a large table, it is estimated from samples evenly spread over it.
    """
    if is_large(table.time):
        table = table[evenly_spread(table.count, BLOCK)].in_memory()
    series, time, sensor = _by_series(table)
    within = np.diff(series) == 0
    gap, owner = np.diff(time)[within], sensor[1:][within]
    gap, owner = gap[gap > 0], owner[gap > 0]
    order = np.lexsort([gap, owner])
    gap, owner = gap[order], owner[order]
    count = np.bincount(owner, minlength=len(table.sensors))
    start = np.cumsum(count) - count
    known = count >= 5
    result = np.full(len(table.sensors), np.nan)
    result[known] = gap[start[known] + count[known] // 2]
    span = time.max() - time.min() if len(time) else 1.0
    fallback = float(np.median(result[known])) if known.any() else max(float(span), 1e-9) / 10
    return np.where(known, result, fallback)


@dataclass(frozen=True, eq=False)
class Gaps:
    """The gaps that occur in the data, and how often each kind of gap is drawn."""

    interval: Float64  # (sensor,) typical
    series_start: Positions  # (samples sensors + 1,) where the times of each series start in `time`
    time: Float64  # of the example readings, by series
    span: Float64  # (samples, 2) first and last reading of each example sample
    horizon: float | None = None
    """For a forecaster: everything after a cutoff is hidden, and predicted up to this much later."""
    cutoff: float | None = None
    """The cutoff of half of the windows, if it is known; the other windows draw theirs."""
    only_outages: bool = False
    """Draw outages as they occur in the data and few single readings, instead of all kinds of gaps."""
    may_be_silent: Bools | None = None
    """(sensor,) the sensors that are occasionally hidden entirely; by default all."""

    @classmethod
    def learn(
        cls,
        table: EventTable,
        interval: Float64,
        *,
        horizon: float | None = None,
        cutoff: float | None = None,
        seed: int = 0,
    ) -> Self:
        """Learn gaps from (some of) the samples of a table."""
        if len(table) > MAX_SAMPLES:
            table = table[np.sort(np.random.default_rng(seed).choice(len(table), MAX_SAMPLES, replace=False))]
            table = table.in_memory()
        series, time, _ = _by_series(table)
        counts = np.bincount(series, minlength=len(table) * len(table.sensors))
        span = np.stack(spans(table), axis=1)
        return cls(interval, np.concatenate([[0], np.cumsum(counts)]), time, span, horizon, cutoff)

    def draw(
        self,
        rng: np.random.Generator,
        owner: Positions,
        sensor: Positions,
        time: Float64,
        inside: Bools,
        windows: int,
        askable: Bools | None = None,
    ) -> tuple[Bools, Bools]:
        """(n,) which readings are hidden, and which of those `inside` are predicted: at least one if there is any.

        If given, only readings that are `askable` are predicted.
        """
        if self.horizon is None:
            hidden = self._gaps(rng, owner, sensor, time, inside, windows)
            asked = hidden & inside
        else:
            cutoff = self._cutoffs(rng, owner, time, inside, windows)[owner]
            hidden = time > cutoff
            asked = hidden & inside & (time <= cutoff + self.horizon)
        inside = inside if askable is None else inside & askable
        asked &= inside
        if not asked.any() and inside.any():
            chosen = rng.choice(np.flatnonzero(inside))
            if self.horizon is None:
                hidden[chosen] = asked[chosen] = True
            else:  # cut off right before it
                later = (owner == owner[chosen]) & (time >= time[chosen])
                hidden |= later
                asked = later & inside & (time <= time[chosen] + self.horizon)
        return hidden, asked

    def _gaps(
        self, rng: np.random.Generator, owner: Positions, sensor: Positions, time: Float64, inside: Bools, windows: int
    ) -> Bools:
        sensors = len(self.interval)
        low, high = _bounds(owner, time, inside, windows)
        if self.only_outages:
            return (rng.random(len(owner)) < 0.02) | self._outages(rng, owner, sensor, time, low, windows)
        hidden = rng.random(len(owner)) < rng.choice([0.02, 0.05, 0.15], windows)[owner]
        pair = owner * sensors + sensor
        for _ in range(3):  # blocks of 1 to 24 typical intervals, each sensor up to three
            length = np.exp(rng.uniform(0, np.log(25), (windows, sensors))) * self.interval
            start = low[:, None] - length + rng.random((windows, sensors)) * (high - low + length.T).T
            start[rng.random((windows, sensors)) >= rng.choice([0.1, 0.4], (windows, 1))] = np.inf
            hidden |= (time >= start.ravel()[pair]) & (time < (start + length).ravel()[pair])
        silent = rng.random((windows, sensors)) < rng.choice([0.0, 0.03, 0.15], (windows, 1), p=[0.5, 0.3, 0.2])
        if self.may_be_silent is not None:
            silent &= self.may_be_silent
        hidden |= silent.ravel()[pair]
        return hidden | self._outages(rng, owner, sensor, time, low, windows)

    def _outages(
        self, rng: np.random.Generator, owner: Positions, sensor: Positions, time: Float64, low: Float64, windows: int
    ) -> Bools:
        """Hide readings where the same sensors were silent at another time, or in another sample; in most windows."""
        other = rng.integers(len(self.span), size=windows)
        first, last = self.span[other].T
        width = np.zeros(windows)
        np.maximum.at(width, owner, time - low[owner])
        moved = first + rng.random(windows) * np.maximum(last - first - width, 0)
        at = time - low[owner] + moved[owner]
        series = other[owner] * len(self.interval) + sensor
        start, stop = self.series_start[series], self.series_start[series + 1]
        place = bisect(self.time, start, stop, at)
        before = np.where(place > start, self.time[np.maximum(place - 1, 0)], -np.inf)
        after = np.where(place < stop, self.time[np.minimum(place, len(self.time) - 1)], np.inf)
        silent = (after - before > OUTAGE * self.interval[sensor]) & (stop > start) & (at <= last[owner])
        near = np.minimum(at - before, after - at) < 0.5 * self.interval[sensor]
        hidden: Bools = silent & ~near & (rng.random(windows) < 0.7)[owner]
        return hidden

    def _cutoffs(
        self, rng: np.random.Generator, owner: Positions, time: Float64, inside: Bools, windows: int
    ) -> Float64:
        low, high = _bounds(owner, time, inside, windows)
        drawn: Float64 = low + rng.uniform(0.1, 1.0, windows) * (high - low)
        if self.cutoff is None:
            return drawn
        return np.where(rng.random(windows) < 0.5, self.cutoff, drawn)


def bisect(
    rising: NDArray[Any], low: Positions, high: Positions, value: NDArray[Any], *, right: bool = False
) -> Positions:
    """Insertion point of each value in rising[low:high]: before equal numbers, or after them if `right`; vectorised."""
    low, high = low.copy(), high.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        there = rising[np.minimum(middle, len(rising) - 1)]
        ahead = open_ & ((there <= value) if right else (there < value))
        low = np.where(ahead, middle + 1, low)
        high = np.where(open_ & ~ahead, middle, high)
    return low


def _bounds(owner: Positions, time: Float64, inside: Bools, windows: int) -> tuple[Float64, Float64]:
    """(windows,) the first and last time of the readings inside each window; 0 if there are none."""
    low, high = np.full(windows, np.inf), np.full(windows, -np.inf)
    np.minimum.at(low, owner[inside], time[inside])
    np.maximum.at(high, owner[inside], time[inside])
    empty = low > high
    low[empty] = high[empty] = 0.0
    return low, high


def _by_series(table: EventTable) -> tuple[Positions, Float64, Positions]:
    """(n,) series, time and sensor of all readings, by series and time; series = sample * sensors + sensor."""
    rows = table.rows()
    sensor = np.asarray(table.sensor[rows], dtype=np.int64)
    series = np.repeat(np.arange(len(table)), table.count) * len(table.sensors) + sensor
    order = np.argsort(series, kind="stable")
    return series[order], np.asarray(table.time[rows], dtype=np.float64)[order], sensor[order]
