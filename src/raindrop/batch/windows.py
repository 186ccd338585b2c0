"""Windows: parts of samples in which readings are predicted, with the readings around them.

A short sample is one window. A long series is cut into windows of equal length; the readings up to `margin` before and
after a window are visible too, but never predicted. Lengths are multiples of the typical interval between readings, the
median of all sensors. A sensor that is read much more seldom shows its nearest readings beyond the margin as well. If
another sensor has no reading in a margin, its next one beyond is visible, for models that can use it.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.collate import BatchSource, Positions
from raindrop.batch.distant import DistantReadings
from raindrop.batch.gaps import bisect
from raindrop.batch.scaling import Scaler
from raindrop.table.blocks import PageBudget
from raindrop.table.event_table import EventTable
from raindrop.table.queries import spans
from raindrop.table.time_columns import SECONDS, day_shares

LENGTH, MARGIN = 128.0, 96.0  # typical intervals
NEAREST = 4  # readings of a slow sensor beyond a margin, on each side
Readings = tuple[Positions, Positions, Positions]
Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]


def slow_sensors(interval: Float64) -> Bools:
    """(sensor,) whether a margin is too short for NEAREST readings; `interval` (sensor,) are the typical ones.

    Gaps do not make a sensor slow, only the time between its readings otherwise.
    """
    slow: Bools = NEAREST * interval > MARGIN * np.median(interval)
    return slow


@dataclass(frozen=True)
class Windows:
    """The time ranges of samples in which readings are predicted, and the readings that are visible."""

    sample: Positions  # (w,) position in the table
    start: Float64  # (w,)
    stop: Float64  # (w,) readings at start <= time < stop may be predicted
    row: Positions  # (w,) the first visible reading
    count: Positions  # (w,) number of visible readings

    @classmethod
    def cut(cls, table: EventTable, interval: float, horizon: float | None = None, *, pieces: int = 1) -> Self:
        """Cut all samples of a table into windows; `interval` is the typical time between readings of a sensor.

        With `pieces`, windows are shorter than usual by this factor.
        """
        length, margin = max(LENGTH * interval, 2 * (horizon or 0.0)) / pieces, MARGIN * interval
        first, last = spans(table)
        number = np.maximum(1, np.round((last - first) / length)).astype(np.int64)
        number[(last - first) <= 1.5 * length] = 1
        sample = np.repeat(np.arange(len(table)), number)
        rank = np.arange(len(sample)) - np.repeat(np.cumsum(number) - number, number)
        width = ((last - first) / number)[sample]
        start = np.where(rank == 0, -np.inf, first[sample] + rank * width)
        stop = np.where(rank == number[sample] - 1, np.inf, first[sample] + (rank + 1) * width)
        low, high = table.start[sample], table.start[sample] + table.count[sample]
        begin = bisect(table.time, low, high, start - margin)
        end = bisect(table.time, low, high, stop + margin)
        return cls(sample, start, stop, begin, end - begin)

    def __len__(self) -> int:
        return len(self.sample)

    def __getitem__(self, positions: Any) -> Self:
        return type(self)(*(getattr(self, name)[positions] for name in ("sample", "start", "stop", "row", "count")))

    def rows_inside(self, table: EventTable) -> tuple[Positions, Positions]:
        """(w,) the first reading in each window, and the first one after it."""
        first, last = (bisect(table.time, self.row, self.row + self.count, edge) for edge in (self.start, self.stop))
        return first, last

    def with_readings(self, table: EventTable, askable: Bools | None = None) -> Self:
        """Only the windows with a reading to predict, one that is `askable` (readings,) if given."""
        first, last = self.rows_inside(table)
        if askable is None:
            return self[last > first]
        before = np.concatenate([[0], np.cumsum(askable)])
        return self[before[last] > before[first]]

    def of(self, sample: Positions, time: Float64) -> Positions:
        """The window of this sample that contains each time; windows must be in order."""
        first = np.searchsorted(self.sample, sample, side="left")
        last = np.searchsorted(self.sample, sample, side="right")
        return np.clip(bisect(self.stop, first, last, time, right=True), first, last - 1)


class WindowSource(BatchSource):
    """Windows of a table as items. Subclasses decide what is hidden and what is predicted."""

    sees_after = True  # whether there may be distant readings after a window

    def __init__(
        self,
        table: EventTable,
        scaler: Scaler,
        windows: Windows,
        *,
        ignore_unknown: bool = False,
        sees_distant: bool = False,
        slow: Bools | None = None,
    ):
        """With `sees_distant`, a sensor without a reading in a window's margin shows its next one beyond it.

        Sensors that are `slow` (sensor,) show their NEAREST readings beyond the margin.
        """
        self.table, self.scaler, self.windows, self.sees_distant = table, scaler, windows, sees_distant
        self.slow = np.zeros(len(scaler.sensors), dtype=bool) if slow is None else slow
        self.budget = PageBudget()
        self.codes = scaler.sensor_codes(table, ignore_unknown=ignore_unknown)
        self.statics = scaler.encode_statics(table)
        self.day_share = None if table.time_zero is None else day_shares(table.time_zero)
        """(samples,) the time of day that times count from, from 0 to 1; NaN if it is unknown. None without dates."""
        self.truth = self.targets = self.weights = None

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.windows.count

    @property
    def places(self) -> Positions:
        return self.windows.row

    def part(self, positions: Positions) -> Self:
        part = copy(self)
        for name in ("distant", "distant_slow"):
            part.__dict__.pop(name, None)
        part.windows = self.windows[positions]
        return part

    @cached_property
    def distant(self) -> DistantReadings | None:
        """The readings of the samples that are cut; None if there are none, or if they are not used."""
        return self._of_cut_samples(self.codes) if self.sees_distant else None

    @cached_property
    def distant_slow(self) -> DistantReadings | None:
        """The readings of slow sensors in the samples that are cut; None if there are none."""
        codes = np.where((self.codes >= 0) & self.slow[self.codes], self.codes, -1)
        return self._of_cut_samples(codes) if (codes >= 0).any() else None

    def _of_cut_samples(self, codes: Positions) -> DistantReadings | None:
        inner = np.isfinite(self.windows.start) | np.isfinite(self.windows.stop)
        samples = np.unique(self.windows.sample[inner])
        return DistantReadings(self.table, codes, len(self.scaler.sensors), samples) if len(samples) else None

    def with_distant(self, positions: Positions, readings: Readings, chosen: Bools | None = None) -> Readings:
        """These readings and the distant ones, of all sensors or of the `chosen` (window, sensor)."""
        if self.distant is None:
            return readings
        windows, (rows, owner, sensor) = self.windows[positions], readings
        time = np.asarray(self.table.time[rows])
        missing = np.ones((2, len(positions), len(self.slow)), dtype=bool) if chosen is None else np.stack([chosen] * 2)
        for side, outside in enumerate((time < windows.start[owner], time >= windows.stop[owner])):
            missing[side, owner[outside], sensor[outside]] = False
        return self._with_nearest(positions, readings, self.distant, missing, 1)

    def readings(self, positions: Positions) -> Readings:
        """(n,) row, window and sensor of the visible readings, without distant ones."""
        near = self._near(positions)
        if self.distant_slow is None:
            return near
        slow = np.broadcast_to(self.slow, (2, len(positions), len(self.slow)))
        return self._with_nearest(positions, near, self.distant_slow, slow, NEAREST)

    def _with_nearest(
        self, positions: Positions, readings: Readings, source: DistantReadings, wanted: Bools, number: int
    ) -> Readings:
        """These readings, and the `number` nearest ones beyond the margin of `wanted` (side, window, sensor)."""
        windows, parts = self.windows[positions], [readings]
        for edge, find, row, asked in (
            (windows.start, source.before, windows.row, wanted[0]),
            (windows.stop, source.after, windows.row + windows.count, wanted[1]),
        )[: 1 + self.sees_after]:
            window, sensor = np.nonzero(asked & np.isfinite(edge)[:, None])
            rows = find(windows.sample[window], sensor, row[window], number)
            present = rows >= 0
            pair = np.nonzero(present)[0]
            parts.append((rows[present], window[pair], sensor[pair]))
        rows, owner, sensor = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort([rows, owner])
        return rows[order], owner[order], sensor[order]

    def _near(self, positions: Positions) -> Readings:
        """(n,) row, window and sensor of the readings in the windows and their margins."""
        count = self.windows.count[positions]
        ends = np.cumsum(count)
        rows = np.repeat(self.windows.row[positions] - (ends - count), count) + np.arange(ends[-1] if len(ends) else 0)
        owner = np.repeat(np.arange(len(positions)), count)
        sensor = self.codes[self.table.sensor[rows]]
        known = sensor >= 0
        return (rows, owner, sensor) if known.all() else (rows[known], owner[known], sensor[known])

    def ask(
        self,
        positions: Positions,
        readings: Readings,
        asked: tuple[Positions, Positions, Float64],
        target: NDArray[np.float32] | None,
        dated: Bools | None = None,
    ) -> Batch:
        """The batch of these visible readings and queries (window, sensor, time).

        Queries know their time of day, unless `dated` (window,) says that those of a window do not.
        """
        sample, sensor, time = (torch.from_numpy(np.ascontiguousarray(column)) for column in asked)
        return self.assemble(
            readings,
            self.statics[self.windows.sample[positions]],
            target=None if target is None else torch.from_numpy(target),
            queries=Queries(sample, sensor, time, self._time_of_day(positions, asked, dated)),
        )

    def _time_of_day(
        self, positions: Positions, asked: tuple[Positions, Positions, Float64], dated: Bools | None
    ) -> torch.Tensor | None:
        """(q, 2) sine and cosine of the time of day of each query; 0 where it is unknown. None without dates."""
        if self.day_share is None:
            return None
        owner, _, time = asked
        day = SECONDS["days"] / SECONDS[self.table.time_unit]
        angle = 2 * np.pi * (self.day_share[self.windows.sample[positions]][owner] + time / day)
        known = np.isfinite(angle) if dated is None else np.isfinite(angle) & dated[owner]
        waves = np.stack([np.sin(angle), np.cos(angle)], axis=1)
        return torch.from_numpy(np.where(known[:, None], waves, 0.0).astype(np.float32))

    def time_to_nearest(
        self, positions: Positions, seen: Readings, asked: tuple[Positions, Positions, Float64]
    ) -> Float64:
        """(q,) time from each query to the nearest other reading of its sensor; infinite if there is none.

        `seen` and `asked` (window, sensor, time) are those of a batch of the windows at `positions`.
        """
        width = len(self.scaler.sensors)
        rows, owner, sensor = seen
        order = np.argsort(owner * width + sensor, kind="stable")
        time = np.asarray(self.table.time[rows])[order]
        offsets = np.searchsorted((owner * width + sensor)[order], np.arange(len(positions) * width + 1))
        series = asked[0] * width + asked[1]
        start, stop = offsets[series], offsets[series + 1]
        before = bisect(time, start, stop, asked[2]) - 1
        after = bisect(time, start, stop, asked[2], right=True)
        padded = np.append(time, np.nan)
        since = np.where(before >= start, asked[2] - padded[before], np.inf)
        until = np.where(after < stop, padded[np.minimum(after, len(time))] - asked[2], np.inf)
        nearest: Float64 = np.minimum(since, until)
        return nearest


class QueryWindows(WindowSource):
    """Windows in which given readings (sample, sensor, time) are predicted; everything in the table is visible."""

    def __init__(
        self,
        table: EventTable,
        scaler: Scaler,
        interval: float,
        asked: tuple[Positions, Positions, Float64],
        values: Float64 | None = None,
        **options: Any,
    ):
        """`asked` are positions of samples, sensor codes of the scaler, and times; `values` the truth, if known."""
        every = Windows.cut(table, interval)
        sample, sensor, time = asked
        window = every.of(sample, time)
        self.order = np.argsort(window, kind="stable")  # scores come in this order
        used, counts = np.unique(window, return_counts=True)
        super().__init__(table, scaler, every[used], **options)
        self.asked = (sensor[self.order], time[self.order])
        self.offsets = np.concatenate([[0], np.cumsum(counts)])
        if values is not None:
            scaled = scaler.scale_values(values, sensor)
            self.truth = np.stack([scaled.astype(np.float64), sensor], axis=1)[self.order]

    def cells(self, positions: Positions) -> NDArray[np.int64]:
        """Readings, and queries x sensors."""
        asked = np.cumsum(self.offsets[positions + 1] - self.offsets[positions])
        cells: NDArray[np.int64] = np.cumsum(self.windows.count[positions]) * 8 + asked * len(self.scaler.sensors)
        return cells

    def part(self, positions: Positions) -> Self:
        raise NotImplementedError("queries are answered by one process")

    def in_asked_order(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Scores, which are computed window by window, in the order of `asked`."""
        result = np.empty_like(scores)
        result[self.order] = scores
        return result

    def batch(
        self,
        positions: Positions,
        *,
        rng: np.random.Generator | None = None,
        drop_readings: float = 0.0,
        drop_sensors: float = 0.0,
    ) -> Batch:
        rows, asked = self._asked_in(positions)
        target = None if self.truth is None else self.truth[rows, 0].astype(np.float32)
        return self.ask(positions, self.with_distant(positions, self.readings(positions)), asked, target)

    @cached_property
    def distance(self) -> Float64:
        """(q,) time to the nearest other visible reading of the queried sensor, in the order of scores."""
        parts = []
        for at in np.array_split(np.arange(len(self)), max(1, len(self) // 64)):
            seen = self.with_distant(at, self.readings(at))
            parts.append(self.time_to_nearest(at, seen, self._asked_in(at)[1]))
        return np.concatenate(parts)

    def _asked_in(self, positions: Positions) -> tuple[Positions, tuple[Positions, Positions, Float64]]:
        """(q,) the queries in these windows, and their window among these, sensor and time."""
        low, high = self.offsets[positions], self.offsets[positions + 1]
        owner = np.repeat(np.arange(len(positions)), high - low)
        rows = np.repeat(low - (np.cumsum(high - low) - (high - low)), high - low) + np.arange(len(owner))
        return rows, (owner, self.asked[0][rows], self.asked[1][rows])
