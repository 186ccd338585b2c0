"""What each sensor last measured before a time: its values at several lags, from readings strictly before that time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from raindrop.batch.gaps import typical_intervals
from raindrop.table.event_table import EventTable
from raindrop.table.queries import spans

LAGS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)  # in typical intervals
CLIP = 5.0  # standard deviations; readings are clipped to this
MEMORIES = (0.3, 0.6, 1.2, 2.5, 5.0, 10.0, 20.0, 50.0, 200.0)  # candidates for each sensor, in typical intervals
MAX_GRID = 100_000  # maximum number of grid points for screening senders
MAX_PAIRS = 50_000  # maximum number of consecutive readings used to choose a sensor's memory
_MIX = tuple(np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xD1342543DE82EF95, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Points in time of samples: (n,) position of the sample, and time."""

    sample: Positions
    time: Floats

    def __len__(self) -> int:
        return len(self.sample)


@dataclass(frozen=True, eq=False)
class Past:
    """The readings of a table by series (one sensor of one sample), standardised by sensor."""

    time: Floats  # (n,) by series, rising within
    value: Floats  # (n,)
    offsets: Positions  # (sensors x samples + 1,) of series: all samples of the first sensor, then of the next
    num_sensors: int
    interval: float  # typical time between two readings of a sensor
    memory: Floats  # (sensor,) how long a reading keeps its value for a forecast, in units of time
    first: Floats  # (samples,) the first time of any sensor
    last: Floats

    @classmethod
    def of(cls, table: EventTable) -> Self:
        """The past of all readings of a table."""
        M, N, rows = len(table.sensors), len(table), table.rows()
        sensor = np.asarray(table.sensor[rows], dtype=np.int64)
        order = np.argsort(sensor, kind="stable")  # rows are in the order of samples and times already
        time = np.asarray(table.time[rows], dtype=np.float64)[order]
        value = np.asarray(table.value[rows], dtype=np.float64)
        number = np.maximum(np.bincount(sensor, minlength=M), 1)
        value = value - (np.bincount(sensor, value, minlength=M) / number)[sensor]
        spread = np.sqrt(np.bincount(sensor, value**2, minlength=M) / number)
        value = np.clip(value / np.where(spread > 0, spread, 1.0)[sensor], -CLIP, CLIP)[order]
        series = (sensor * N + np.repeat(np.arange(N), table.count))[order]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(series, minlength=N * M))])
        interval = float(np.median(typical_intervals(table)))
        neighbours = (_neighbours(series, time, value, slice(*offsets[[v * N, (v + 1) * N]])) for v in range(M))
        memory = np.array([_memory(gap, earlier, later, interval) for gap, earlier, later in neighbours])
        return cls(time, value, offsets, M, interval, memory, *spans(table))

    def readings_of(self, sensor: int) -> tuple[Rows, Floats]:
        """When a sensor was read, sample by sample, and the values."""
        count = np.diff(self.offsets[self._series(sensor)])
        own = self._readings(sensor)
        return Rows(np.repeat(np.arange(len(self.first)), count), self.time[own]), self.value[own]

    def age(self, sensor: int, rows: Rows) -> Floats:
        """(n,) time since the sensor's latest earlier reading; infinite if there is none."""
        start, latest = self._latest(sensor, rows)
        known = latest >= start
        return np.where(known, rows.time - self.time[np.maximum(latest, 0)], np.inf)

    def values(self, sensor: int, rows: Rows, lags: tuple[float, ...] | Floats = LAGS) -> Floats:
        """(n, lags) the sensor's value at each lag before a row, known from its readings strictly before the row.

        Between two such readings it is interpolated linearly. After the latest it decays to the mean, 0, as a forecast
        from that reading alone would; it is 0 if there is no reading.
        """
        start, latest = self._latest(sensor, rows)
        known, end = latest >= start, len(self.time) - 1
        begin = np.where(known, self.time[np.minimum(start, end)], np.inf)
        key = self._keys(rows)
        columns = np.empty((len(rows), len(lags)))
        for column, lag in enumerate(lags):
            time = rows.time - lag * self.interval
            at = np.where(known, latest, 0)
            if lag > 0:
                at = np.minimum(np.maximum(self._search(sensor, key - lag * self.interval, "right") - 1, start), at)
            here, value = self.time[at], self.value[at]
            after = np.minimum(at + 1, end)
            length = self.time[after] - here
            share = np.clip((time - here) / np.where(length > 0, length, 1.0), 0.0, 1.0)
            line = value + share * (self.value[after] - value)
            decayed = value * np.exp(-np.maximum(time - here, 0.0) / self.memory[sensor])
            columns[:, column] = np.where(begin <= time, np.where(at < latest, line, decayed), 0.0)
        return columns

    def on_grid(self, rows: Rows) -> Iterator[Floats]:
        """For each of some lags, (n, sensors) approximate values of all sensors that long before a row; for screening.

        They are taken at the nearest earlier point of a regular grid.
        """
        step, first, size, grid = self._grid
        position = np.floor((rows.time - self.first[rows.sample]) / step).astype(np.int64)
        for lag in LAGS:
            at = np.clip(position - round(lag * self.interval / step), 0, size[rows.sample] - 1)
            yield grid[first[rows.sample] + at]

    @cached_property
    def _grid(self) -> tuple[float, Positions, Positions, Floats]:
        """The grid's step, (samples,) first point and number of points of each sample, and (points, sensors) values."""
        span = self.last - self.first
        step = max(self.interval / 2, float(span.sum()) / MAX_GRID, 1e-12)
        size = (np.floor(span / step) + 1).astype(np.int64)
        first = np.cumsum(size) - size
        sample = np.repeat(np.arange(len(size)), size)
        time = self.first[sample] + step * (np.arange(size.sum()) - first[sample])
        rows = Rows(sample, time)
        grid = np.concatenate([self.values(u, rows, (0.0,)) for u in range(self.num_sensors)], axis=1)
        return step, first, size, grid

    def _series(self, sensor: int) -> slice:
        """The slice of `offsets` for the samples of a sensor, including the end of the last."""
        return slice(sensor * len(self.first), (sensor + 1) * len(self.first) + 1)

    def _readings(self, sensor: int) -> slice:
        bounds = self.offsets[self._series(sensor)]
        return slice(int(bounds[0]), int(bounds[-1]))

    def _latest(self, sensor: int, rows: Rows) -> tuple[Positions, Positions]:
        """(n,) the first reading of the series, and the latest one before the row (one less if there is none)."""
        series = rows.sample + sensor * len(self.first)
        start, stop = self.offsets[series], self.offsets[series + 1]
        at = np.clip(self._search(sensor, self._keys(rows), "left"), start, stop)
        while True:  # keys are rounded, times are not
            back = (at > start) & (self.time[at - 1] >= rows.time)
            ahead = (at < stop) & (self.time[np.minimum(at, len(self.time) - 1)] < rows.time)
            if not (back.any() or ahead.any()):
                return start, at - 1
            at = at + ahead - back

    def _search(self, sensor: int, key: Floats, side: Literal["left", "right"]) -> Positions:
        """(n,) where to insert keys among the readings of a sensor in all samples; up to the rounding of keys."""
        own = self._readings(sensor)
        found: Positions = own.start + np.searchsorted(self._key[own], key, side)
        return found

    def _keys(self, rows: Rows) -> Floats:
        """(n,) a number that increases with the sample, and with time within a sample."""
        keys: Floats = rows.sample * self._stride + (rows.time - self.first[rows.sample])
        return keys

    @cached_property
    def _stride(self) -> float:
        """Larger than the longest time from a sample's first reading to its last plus the longest lag."""
        return float((self.last - self.first).max()) + 10 * self.interval + 1e-9

    @cached_property
    def _key(self) -> Floats:
        """(n,) the keys of all readings."""
        sample = np.repeat(np.tile(np.arange(len(self.first)), self.num_sensors), np.diff(self.offsets))
        return self._keys(Rows(sample, self.time))

    def random_order(self, rows: Rows, seed: int) -> NDArray[np.uint64]:
        """(n,) random numbers for drawing rows: the same for all sensors that are read at the same moment."""
        with np.errstate(over="ignore"):
            mixed = rows.time.view(np.uint64) ^ (rows.sample.astype(np.uint64) + np.uint64(seed) * _MIX[0]) * _MIX[1]
            for shift, factor in zip((30, 27), _MIX[2:], strict=True):  # the finaliser of splitmix64
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
        order: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
        return order

    def drawn(self, sensor: int, usable: Positions, limit: int, seed: int) -> Positions:
        """`limit` of the usable readings of a sensor; every receiver draws the same moments.

        Half of them are those at which the rarest sensors are also read, so that a rare and a frequent sensor keep
        their common times; the others are random.
        """
        rows, _ = self.readings_of(sensor)
        order = self.random_order(Rows(rows.sample[usable], rows.time[usable]), seed)
        rarest = np.lexsort([order, self._rarest[self._readings(sensor)][usable]])[: limit // 2]
        order[rarest] = 0
        return usable[np.sort(np.argpartition(order, limit)[:limit])]

    @cached_property
    def _rarest(self) -> Positions:
        """(n,) the number of readings of the rarest sensor that is read at the same moment as each reading."""
        count = np.diff(self.offsets[:: len(self.first)])
        sample = np.repeat(np.tile(np.arange(len(self.first)), self.num_sensors), np.diff(self.offsets))
        order = np.lexsort([self.time, sample])
        time, sample = self.time[order], sample[order]
        new = np.concatenate([[True], (time[1:] != time[:-1]) | (sample[1:] != sample[:-1])])
        rarity = np.minimum.reduceat(np.repeat(count, count)[order], np.flatnonzero(new))
        rarest = np.empty(len(order), dtype=np.int64)
        rarest[order] = rarity[np.cumsum(new) - 1]
        return rarest

    def surrogate_rows(self, rows: Rows, rng: np.random.Generator) -> Rows:
        """Rows at which to look up a surrogate of a sender: its readings keep their order, but not their partners.

        In a table of many samples they are those of another sample; in a table of a few long series, those of a moment
        at least a tenth of the series away, with the series treated as circular.
        """
        if len(self.first) >= 10:
            other = _derangement(len(self.first), rng)[rows.sample]
            return Rows(other, rows.time - self.first[rows.sample] + self.first[other])
        first, span = self.first[rows.sample], np.maximum(self.last - self.first, 1e-9)[rows.sample]
        return Rows(rows.sample, first + np.mod(rows.time - first + rng.uniform(0.1, 0.9) * span, span))


def _derangement(number: int, rng: np.random.Generator) -> Positions:
    """A random permutation without fixed points."""
    ring = rng.permutation(number)
    partner = np.empty(number, dtype=np.int64)
    partner[ring] = np.roll(ring, 1)
    return partner


def _neighbours(series: Positions, time: Floats, value: Floats, own: slice) -> tuple[Floats, Floats, Floats]:
    """Time between, earlier and later value of consecutive readings among `own`, the readings of one sensor."""
    later = own.start + 1 + np.flatnonzero(np.diff(series[own]) == 0)
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
