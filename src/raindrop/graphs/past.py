"""What each sensor last measured before a time: its values at several lags, from readings strictly before that time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from raindrop.batch.gaps import bisect, typical_intervals
from raindrop.table.event_table import EventTable
from raindrop.table.queries import spans

LAGS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)  # in typical intervals
CLIP = 5.0  # standard deviations; readings beyond count as this
MEMORIES = (0.3, 0.6, 1.2, 2.5, 5.0, 10.0, 20.0, 50.0, 200.0)  # in typical intervals, to choose from for each sensor
MAX_GRID = 100_000  # points of the grid on which many senders are compared at a first look
MAX_PAIRS = 50_000  # neighbouring readings that choose a sensor's memory
Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Moments of samples: (n,) position of the sample, and time."""

    sample: Positions
    time: Floats

    def __len__(self) -> int:
        return len(self.sample)


@dataclass(frozen=True, eq=False)
class Past:
    """The readings of a table by series (one sensor of one sample), standardised by sensor."""

    time: Floats  # (n,) by series, rising within
    value: Floats  # (n,)
    offsets: Positions  # (samples x sensors + 1,)
    num_sensors: int
    interval: float  # typical time between two readings of a sensor
    memory: Floats  # (sensor,) how long a reading keeps its value for a forecast, in units of time
    first: Floats  # (samples,) the first time of any sensor
    last: Floats

    @classmethod
    def of(cls, table: EventTable) -> Self:
        """Of all readings of a table."""
        M, rows = len(table.sensors), table.rows()
        sensor = np.asarray(table.sensor[rows], dtype=np.int64)
        series = np.repeat(np.arange(len(table)), table.count) * M + sensor
        order = np.argsort(series, kind="stable")  # rows are in the order of time already
        time = np.asarray(table.time[rows], dtype=np.float64)[order]
        value = np.asarray(table.value[rows], dtype=np.float64)
        number = np.maximum(np.bincount(sensor, minlength=M), 1)
        value = value - (np.bincount(sensor, value, minlength=M) / number)[sensor]
        spread = np.sqrt(np.bincount(sensor, value**2, minlength=M) / number)
        value = np.clip(value / np.where(spread > 0, spread, 1.0)[sensor], -CLIP, CLIP)[order]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(series, minlength=len(table) * M))])
        interval = float(np.median(typical_intervals(table)))
        neighbours = (_neighbours(series[order], sensor[order], time, value, v) for v in range(M))
        memory = np.array([_memory(gap, earlier, later, interval) for gap, earlier, later in neighbours])
        return cls(time, value, offsets, M, interval, memory, *spans(table))

    def readings_of(self, sensor: int) -> tuple[Rows, Floats]:
        """When a sensor was read, sample by sample, and what it measured."""
        series = np.arange(len(self.first)) * self.num_sensors + sensor
        count = self.offsets[series + 1] - self.offsets[series]
        at = np.repeat(self.offsets[series] - (np.cumsum(count) - count), count) + np.arange(count.sum())
        return Rows(np.repeat(np.arange(len(self.first)), count), self.time[at]), self.value[at]

    def age(self, sensor: int, rows: Rows) -> Floats:
        """(n,) time since the sensor's latest earlier reading; infinite where there is none."""
        start, latest = self._latest(sensor, rows)
        known = latest >= start
        return np.where(known, rows.time - self.time[np.maximum(latest, 0)], np.inf)

    def values(self, sensor: int, rows: Rows, lags: tuple[float, ...] | Floats = LAGS) -> Floats:
        """(n, lags) the sensor's value at each lag before a row, known from its readings strictly before the row.

        Between two such readings it lies on the line between them. After the latest it decays to the mean, 0, as a
        forecast from that reading alone would; it is 0 where there is no reading.
        """
        start, latest = self._latest(sensor, rows)
        columns = []
        for lag in lags:
            time = rows.time - lag * self.interval
            at = np.minimum(bisect(self.time, start, latest + 1, time, right=True) - 1, latest)
            here, after = np.maximum(at, 0), np.maximum(np.minimum(at + 1, latest), 0)
            length = self.time[after] - self.time[here]
            share = np.clip((time - self.time[here]) / np.where(length > 0, length, 1.0), 0.0, 1.0)
            line = self.value[here] + share * (self.value[after] - self.value[here])
            decayed = self.value[here] * np.exp(-np.maximum(time - self.time[here], 0.0) / self.memory[sensor])
            columns.append(np.where(at >= start, np.where(at < latest, line, decayed), 0.0))
        return np.stack(columns, axis=1)

    def on_grid(self, rows: Rows) -> Iterator[Floats]:
        """For each of some lags, (n, sensors) about the values of all sensors that long before a row; for a first look.

        They are those at the nearest earlier point of a regular grid.
        """
        step, first, size, grid = self._grid
        position = np.floor((rows.time - self.first[rows.sample]) / step).astype(np.int64)
        for lag in LAGS:
            at = np.clip(position - round(lag * self.interval / step), 0, size[rows.sample] - 1)
            yield grid[first[rows.sample] + at]

    @cached_property
    def _grid(self) -> tuple[float, Positions, Positions, Floats]:
        """Its step, (samples,) the first point and number of points of each sample, (points, sensors) values there."""
        span = self.last - self.first
        step = max(self.interval / 2, float(span.sum()) / MAX_GRID, 1e-12)
        size = (np.floor(span / step) + 1).astype(np.int64)
        first = np.cumsum(size) - size
        sample = np.repeat(np.arange(len(size)), size)
        time = self.first[sample] + step * (np.arange(size.sum()) - first[sample])
        rows = Rows(sample, time)
        grid = np.concatenate([self.values(u, rows, (0.0,)) for u in range(self.num_sensors)], axis=1)
        return step, first, size, grid

    def _latest(self, sensor: int, rows: Rows) -> tuple[Positions, Positions]:
        """(n,) the first reading of the series, and the latest one before the row (one less where there is none)."""
        series = rows.sample * self.num_sensors + sensor
        start = self.offsets[series]
        return start, bisect(self.time, start, self.offsets[series + 1], rows.time) - 1

    def dealt_anew(self, rows: Rows, rng: np.random.Generator) -> Rows:
        """Other moments at which to look a sender up: its readings keep their own order, but not their partner's.

        In a table of many samples they are those of another sample; in a table of a few long series, those of a moment
        at least a tenth of the series away, the series taken as a ring.
        """
        if len(self.first) >= 10:
            other = _derangement(len(self.first), rng)[rows.sample]
            return Rows(other, rows.time - self.first[rows.sample] + self.first[other])
        first, span = self.first[rows.sample], np.maximum(self.last - self.first, 1e-9)[rows.sample]
        return Rows(rows.sample, first + np.mod(rows.time - first + rng.uniform(0.1, 0.9) * span, span))


def _derangement(number: int, rng: np.random.Generator) -> Positions:
    """A random order in which nothing stays in its place."""
    ring = rng.permutation(number)
    partner = np.empty(number, dtype=np.int64)
    partner[ring] = np.roll(ring, 1)
    return partner


def _neighbours(
    series: Positions, sensor: Positions, time: Floats, value: Floats, v: int
) -> tuple[Floats, Floats, Floats]:
    """Time between, earlier and later value of the neighbouring readings of a sensor."""
    later = np.flatnonzero((series[1:] == series[:-1]) & (sensor[1:] == v)) + 1
    later = later[:: max(1, len(later) // MAX_PAIRS)]
    return time[later] - time[later - 1], value[later - 1], value[later]


def _memory(gap: Floats, earlier: Floats, later: Floats, interval: float) -> float:
    """The time constant of the decay that predicts a sensor's readings best (an Ornstein-Uhlenbeck process)."""
    if not len(gap):
        return interval
    losses = []
    for memory in MEMORIES:
        kept = np.exp(-gap / (memory * interval))
        variance = 1 - kept**2 + 1e-3
        losses.append(((later - kept * earlier) ** 2 / variance + np.log(variance)).mean())
    return interval * MEMORIES[int(np.argmin(losses))]
