"""Windows: pieces of samples in which readings are asked for, with the readings around them.

A short sample is one window. A long series is cut into windows of equal length; the readings up to `margin` before and
after a window are seen too, but never asked for. Lengths are multiples of the typical interval between readings. Of a
sensor without a reading in a margin, the next one beyond it is seen, for models that can make use of it.
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
from raindrop.batch.gaps import Gaps, bisect
from raindrop.batch.scaling import Scaler
from raindrop.table.event_table import EventTable
from raindrop.table.queries import spans

LENGTH, MARGIN = 128.0, 96.0  # typical intervals
MAX_PAIRS = 1 << 17  # queries x sensors in a training batch,
MIN_QUERIES = 64  # but at least so many queries
MAX_VALIDATION = 50_000  # readings to validate on
DISTANT_SHARE = 0.5  # of the sensors, whose distant readings are seen in training
Readings = tuple[Positions, Positions, Positions]
Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Windows:
    """From when to when of which sample readings are asked for, and which readings are seen."""

    sample: Positions  # (w,) position in the table
    start: Float64  # (w,)
    stop: Float64  # (w,) readings at start <= time < stop may be asked for
    row: Positions  # (w,) the first reading that is seen
    count: Positions  # (w,) how many are seen

    @classmethod
    def cut(cls, table: EventTable, interval: float, horizon: float | None = None) -> Self:
        """All samples of a table in windows; `interval` is the typical time between readings of a sensor."""
        length, margin = max(LENGTH * interval, 2 * (horizon or 0.0)), MARGIN * interval
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

    def with_readings(self, table: EventTable) -> Self:
        """Only the windows in which there is a reading to ask for."""
        first = bisect(table.time, self.row, self.row + self.count, self.start)
        return self[bisect(table.time, self.row, self.row + self.count, self.stop) > first]

    def of(self, sample: Positions, time: Float64) -> Positions:
        """The window of this sample in which each time lies; windows must be in order."""
        first = np.searchsorted(self.sample, sample, side="left")
        last = np.searchsorted(self.sample, sample, side="right")
        return np.clip(bisect(self.stop, first, last, time, right=True), first, last - 1)


class WindowSource(BatchSource):
    """Windows of a table as items. What is asked for, and what is hidden, is the subclass's business."""

    sees_after = True  # whether there may be distant readings after a window

    def __init__(
        self,
        table: EventTable,
        scaler: Scaler,
        windows: Windows,
        *,
        ignore_unknown: bool = False,
        sees_distant: bool = False,
    ):
        """With `sees_distant`, a sensor without a reading in a window's margin is seen by its next one beyond it."""
        self.table, self.scaler, self.windows, self.sees_distant = table, scaler, windows, sees_distant
        self.codes = scaler.sensor_codes(table, ignore_unknown=ignore_unknown)
        self.statics = scaler.encode_statics(table)
        self.truth = self.targets = self.weights = None

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.windows.count

    def part(self, positions: Positions) -> Self:
        part = copy(self)
        part.__dict__.pop("distant", None)
        part.windows = self.windows[positions]
        return part

    @cached_property
    def distant(self) -> DistantReadings | None:
        """The readings of the samples that are cut; None where none is, or where none is to be seen."""
        inner = np.isfinite(self.windows.start) | np.isfinite(self.windows.stop)
        if not self.sees_distant or not inner.any():
            return None
        samples = np.unique(self.windows.sample[inner])
        return DistantReadings(self.table, self.codes, len(self.scaler.sensors), samples)

    def with_distant(self, positions: Positions, readings: Readings, chosen: Bools | None = None) -> Readings:
        """These readings with those out of sight, of all sensors or of the `chosen` (window, sensor)."""
        if self.distant is None:
            return readings
        windows, (rows, owner, sensor) = self.windows[positions], readings
        time = np.asarray(self.table.time[rows])
        parts = [readings]
        for edge, outside, find, at in (
            (windows.start, time < windows.start[owner], self.distant.before, windows.row),
            (windows.stop, time >= windows.stop[owner], self.distant.after, windows.row + windows.count),
        )[: 1 + self.sees_after]:
            missing = np.repeat(np.isfinite(edge)[:, None], len(self.scaler.sensors), axis=1)
            missing[owner[outside], sensor[outside]] = False
            window, of = np.nonzero(missing if chosen is None else missing & chosen)
            row = find(windows.sample[window], of, at[window])
            parts.append((row[row >= 0], window[row >= 0], of[row >= 0]))
        rows, owner, sensor = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort([rows, owner])
        return rows[order], owner[order], sensor[order]

    def readings(self, positions: Positions) -> Readings:
        """(n,) row, window and sensor of the readings that are seen."""
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
    ) -> Batch:
        """The batch of these visible readings and queries (window, sensor, time)."""
        return self.assemble(
            readings,
            self.statics[self.windows.sample[positions]],
            target=None if target is None else torch.from_numpy(target),
            queries=Queries(*(torch.from_numpy(np.ascontiguousarray(column)) for column in asked)),
        )

    def time_to_nearest(
        self, positions: Positions, seen: Readings, asked: tuple[Positions, Positions, Float64]
    ) -> Float64:
        """(q,) how far the nearest other reading of the asked sensor is from the asked time; infinite without one.

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


class GapWindows(WindowSource):
    """Windows to train on: some readings are hidden, anew in every batch, and asked for."""

    def __init__(self, table: EventTable, scaler: Scaler, windows: Windows, gaps: Gaps, **options: Any):
        super().__init__(table, scaler, windows, **options)
        self.gaps = gaps
        self.sees_after = gaps.horizon is None

    def draw_distant(self, number: int, rng: np.random.Generator) -> Bools | None:
        """(window, sensor) whose distant readings are seen; so a sensor without any is met in training too."""
        if self.distant is None:
            return None
        return rng.random((number, len(self.scaler.sensors))) < DISTANT_SHARE

    def draw(self, positions: Positions, rng: np.random.Generator) -> tuple[Bools, Bools]:
        """Of the `readings` at these positions: which are hidden, and which are asked for."""
        rows, owner, sensor = self.readings(positions)
        time = np.asarray(self.table.time[rows])
        start, stop = self.windows.start[positions], self.windows.stop[positions]
        inside = (time >= start[owner]) & (time < stop[owner])
        return self.gaps.draw(rng, owner, sensor, time, inside, len(positions))

    def hide(self, positions: Positions, hidden: Bools, asked: Positions, distant: Bools | None) -> Batch:
        """The batch without the hidden readings, with queries at the asked ones, and (window, sensor) `distant`."""
        rows, owner, sensor = self.readings(positions)
        target = self.scaler.scale_values(np.asarray(self.table.value[rows[asked]]), sensor[asked])
        keep = ~hidden
        return self.ask(
            positions,
            self.with_distant(positions, (rows[keep], owner[keep], sensor[keep]), distant),
            (owner[asked], sensor[asked], np.asarray(self.table.time[rows[asked]])),
            target,
        )

    def cells(self, positions: Positions) -> NDArray[np.int64]:
        """Queries x sensors, of which there are at most MAX_PAIRS, and the readings."""
        seen: NDArray[np.int64] = np.cumsum(self.windows.count[positions])
        cells: NDArray[np.int64] = seen * 8 + np.minimum(seen * len(self.scaler.sensors), MAX_PAIRS)
        return cells

    def batch(
        self,
        positions: Positions,
        *,
        rng: np.random.Generator | None = None,
        drop_readings: float = 0.0,
        drop_sensors: float = 0.0,
    ) -> Batch:
        rng = np.random.default_rng(0) if rng is None else rng
        hidden, drawn = self.draw(positions, rng)
        asked = np.flatnonzero(drawn)
        most = max(MIN_QUERIES, MAX_PAIRS // len(self.scaler.sensors))
        if len(asked) > most:
            asked = np.sort(rng.choice(asked, most, replace=False))
        return self.hide(positions, hidden, asked, self.draw_distant(len(positions), rng))


class HeldOutWindows(GapWindows):
    """Windows to validate on: each has its own gaps as in training, but drawn once."""

    def __init__(
        self,
        table: EventTable,
        scaler: Scaler,
        windows: Windows,
        gaps: Gaps,
        *,
        most: int = MAX_VALIDATION,
        seed: int = 0,
        **options: Any,
    ):
        """Asks for at most `most` readings."""
        super().__init__(table, scaler, windows, gaps, **options)
        rng = np.random.default_rng(seed)
        parts = np.array_split(np.arange(len(self)), max(1, len(self) // 64))
        drawn = [self.draw(at, rng) for at in parts]
        self.hidden, self.asked = (np.concatenate(flags) for flags in zip(*drawn, strict=True))
        if self.asked.sum() > most:
            left_out = rng.permutation(np.flatnonzero(self.asked))[most:]
            self.asked[left_out] = False
        rows, owner, sensor = self.readings(np.arange(len(self)))
        self.offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(self)))])
        self.num_asked = np.bincount(owner[self.asked], minlength=len(self))
        scaled = scaler.scale_values(np.asarray(table.value[rows[self.asked]]), sensor[self.asked])
        self.truth = np.stack([scaled.astype(np.float64), sensor[self.asked]], axis=1)
        self.seen_distant = self.draw_distant(len(self), rng)
        every = np.arange(len(self))
        seen = self.with_distant(
            every, (rows[~self.hidden], owner[~self.hidden], sensor[~self.hidden]), self.seen_distant
        )
        asked = owner[self.asked], sensor[self.asked], np.asarray(table.time[rows[self.asked]])
        self.distance = self.time_to_nearest(every, seen, asked)

    def cells(self, positions: Positions) -> NDArray[np.int64]:
        """Readings, and queries x sensors."""
        asked = np.cumsum(self.num_asked[positions]) * len(self.scaler.sensors)
        cells: NDArray[np.int64] = np.cumsum(self.windows.count[positions]) * 8 + asked
        return cells

    def part(self, positions: Positions) -> Self:
        raise NotImplementedError("queries are answered by one process")

    def batch(
        self,
        positions: Positions,
        *,
        rng: np.random.Generator | None = None,
        drop_readings: float = 0.0,
        drop_sensors: float = 0.0,
    ) -> Batch:
        flags = np.concatenate([np.arange(self.offsets[at], self.offsets[at + 1]) for at in positions])
        distant = None if self.seen_distant is None else self.seen_distant[positions]
        return self.hide(positions, self.hidden[flags], np.flatnonzero(self.asked[flags]), distant)


class QueryWindows(WindowSource):
    """Windows in which given readings (sample, sensor, time) are asked for; everything in the table is seen."""

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
        """Scores, which come window by window, in the order of `asked`."""
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
        """(q,) how far the asked sensor's nearest other reading in sight is, in the order of scores."""
        parts = []
        for at in np.array_split(np.arange(len(self)), max(1, len(self) // 64)):
            seen = self.with_distant(at, self.readings(at))
            parts.append(self.time_to_nearest(at, seen, self._asked_in(at)[1]))
        return np.concatenate(parts)

    def _asked_in(self, positions: Positions) -> tuple[Positions, tuple[Positions, Positions, Float64]]:
        """(q,) which queries lie in these windows, and their window among these, sensor and time."""
        low, high = self.offsets[positions], self.offsets[positions + 1]
        owner = np.repeat(np.arange(len(positions)), high - low)
        rows = np.repeat(low - (np.cumsum(high - low) - (high - low)), high - low) + np.arange(len(owner))
        return rows, (owner, self.asked[0][rows], self.asked[1][rows])
