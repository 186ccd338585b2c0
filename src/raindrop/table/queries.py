"""Queries: readings to predict, as (sample, time, sensor) of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, format_count, suggest
from raindrop.table.blocks import blocks_of, is_large
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns, to_polars
from raindrop.table.query_times import (
    parse_query_times,
    since_time_zero,
    time_column,
    time_text,
    times_of_samples,
    to_dates,
    to_duration,
)
from raindrop.table.time_columns import LONGEST, SECONDS

Positions = NDArray[np.int64]
OUTAGE = 1.6  # a sensor is silent when its readings are further apart than this many typical intervals
MAX_QUERIES = 50_000_000


@dataclass(frozen=True, eq=False)
class QueryTable:
    """Readings to predict: positions of samples and sensors in a table, and times in its time unit."""

    table: EventTable
    sample: Positions  # (q,)
    sensor: Positions  # (q,)
    time: NDArray[np.float64]  # (q,)
    as_dates: bool = False
    """Whether `frame` has date times, which requires a table that was built from date times."""

    def __len__(self) -> int:
        return len(self.sample)

    @classmethod
    def from_frame(cls, table: EventTable, queries: Any) -> QueryTable:
        """From a frame with the columns sample, time and sensor (polars, pandas, Arrow, a mapping of columns).

        Times are numbers on the clock of the table's readings, or date times if the table was built from date times.
        """
        frame = to_polars(queries, "queries")
        require_columns(frame, {name: name for name in ("sample", "time", "sensor")}, "queries")
        if not len(frame):
            raise DataError("There are no queries. Give at least one row of (sample, time, sensor).")
        sample = _codes(frame["sample"], table.ids, "sample", "is not in the table")
        sensor = _codes(frame["sensor"], table.sensors, "sensor", "is not a sensor of the table")
        parsed, as_dates = parse_query_times(frame["time"], table, "queries: 'time'")
        time = since_time_zero(parsed, table, sample) if as_dates else parsed.fill_null(np.nan).to_numpy()
        return cls(table, sample, sensor, _finite(time), as_dates).checked()

    def with_dates(self) -> QueryTable:
        """The same queries with date times in `frame`, if the table was built from date times."""
        return replace(self, as_dates=self.table.time_zero is not None)

    def in_blocks(self) -> Iterator[tuple[Positions | slice, QueryTable]]:
        """The queries of each block of a large table, on that block in memory, with their positions; else itself."""
        if not is_large(self.table.time):
            yield slice(None), self
            return
        order = np.argsort(self.sample, kind="stable")
        sample, first = self.sample[order], 0
        for block in blocks_of(self.table, np.bincount(self.sample, minlength=len(self.table))):
            begin, end = np.searchsorted(sample, [first, first + len(block)])
            rows = order[begin:end]
            yield (
                rows,
                QueryTable(
                    block.in_memory(), self.sample[rows] - first, self.sensor[rows], self.time[rows], self.as_dates
                ),
            )
            first += len(block)

    def unseen(self) -> QueryTable:
        """The same queries on the table without any reading at a queried sample, sensor and time."""
        table, rows = self.table, self.table.rows()
        owner = np.repeat(np.arange(len(table)), table.count)
        columns = [
            np.concatenate([own, asked])
            for own, asked in (
                (owner, self.sample),
                (np.asarray(table.sensor[rows], dtype=np.int64), self.sensor),
                (np.asarray(table.time[rows]), self.time),
            )
        ]
        order = np.lexsort(columns[::-1])
        same = np.logical_and.reduce([column[order][1:] == column[order][:-1] for column in columns])
        twin = np.zeros(len(order), dtype=bool)
        twin[order[1:][same]] = twin[order[:-1][same]] = True
        return replace(self, table=table.where(~twin[: len(rows)]))

    def checked(self) -> QueryTable:
        """Itself; raises if a query occurs twice."""
        order = np.lexsort([self.time, self.sensor, self.sample])
        columns = [column[order] for column in (self.sample, self.sensor, self.time)]
        twice = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
        if twice.any():
            at = order[1:][twice][0]
            raise DataError(
                f"queries: {format_count(int(twice.sum()), len(self), 'rows')} repeat another one "
                f"(first: row {at + 1:,}, {self._describe(at)}). Ask for each reading once."
            )
        return self

    def require(self, valid: NDArray[np.bool_], problem: str, advice: str) -> None:
        """Raise unless all queries are `valid`; the message gives the first that is not."""
        wrong = np.flatnonzero(~valid)
        if len(wrong):
            raise DataError(
                f"queries: {format_count(len(wrong), len(self), 'rows')} {problem} (first: row {wrong[0] + 1:,}, "
                f"{self._describe(wrong[0])}). {advice}"
            )

    def frame(self) -> pl.DataFrame:
        """sample, time, sensor."""
        return pl.DataFrame(
            {
                "sample": self.table.samples["sample"].gather(self.sample),
                "time": to_dates(self.time, self.table, self.sample) if self.as_dates else self.time,
                "sensor": pl.Series(self.table.sensors, dtype=pl.String).gather(self.sensor),
            }
        )

    def _describe(self, at: Any) -> str:
        sample, sensor = self.table.ids[self.sample[at]], self.table.sensors[self.sensor[at]]
        time = time_text(self.time[at], self.table, self.sample[at]) if self.as_dates else f"{self.time[at]:g}"
        return f"sample '{sample}', sensor '{sensor}', time {time}"


def grid(
    table: EventTable, every: Any, sensors: Sequence[str] | None = None, *, start: Any = None, stop: Any = None
) -> pl.DataFrame:
    """Queries at regular times, for all sensors or for the given ones.

    every: the time between two queries: a number or, if the table was built from date times, also a timedelta or text
    such as "30m", "1h" or "1d". Queries are at whole steps (`whole_steps`) from each sample's first reading to its
    last, or begin at `start`, exactly, and end at `stop`: a time or date for all samples, or one for each. If one of
    these is a date, the queries have date times.
    """
    return on_grid(table, every, sensors, start=start, stop=stop).frame()


def on_grid(
    table: EventTable, every: Any, sensors: Sequence[str] | None = None, *, start: Any = None, stop: Any = None
) -> QueryTable:
    """The same queries as `grid`, as a QueryTable."""
    names = table.sensors if sensors is None else tuple(sensors)
    chosen = _codes(pl.Series(names, dtype=pl.String), table.sensors, "sensor", "is not a sensor of the table")
    step, as_dates = to_duration(every, table, "every"), False
    first, last = whole_steps(table, step), spans(table)[1]
    if start is not None:
        first, as_dates = times_of_samples(start, table, "start")
    if stop is not None:
        last, stop_is_date = times_of_samples(stop, table, "stop")
        as_dates |= stop_is_date
    number = grid_times(table, step, first, last)
    _refuse_too_many(number.sum() * len(chosen))
    sample = np.repeat(np.arange(len(table)), number.astype(np.int64))
    rank = np.arange(len(sample)) - np.repeat(np.cumsum(number) - number, number.astype(np.int64))
    time = np.repeat(first[sample] + rank * step, len(chosen))
    return QueryTable(table, np.repeat(sample, len(chosen)), np.tile(chosen, len(sample)), time, as_dates)


def whole_steps(table: EventTable, step: float) -> NDArray[np.float64]:
    """(samples,) the first whole step at or after each sample's first reading.

    Whole steps are multiples of `step` or, if times are dates, of it since midnight (UTC if the dates have a time zone)
    of the day of the first reading: every hour on the hour.
    """
    first, zero = spans(table)[0], table.time_zero
    midnight = np.zeros(len(table))
    if zero is not None:
        near = np.where(np.abs(first) * SECONDS[table.time_unit] < LONGEST, first, 0.0)  # others are beyond dates
        day = to_dates(near, table, np.arange(len(table))).dt.truncate("1d")
        midnight = np.nan_to_num(since_time_zero(day, table))
    with np.errstate(over="ignore", invalid="ignore"):
        steps = midnight + np.ceil((first - midnight) / step - 1e-9) * step
    return np.where(np.isfinite(steps), np.maximum(steps, first), first)


def grid_times(
    table: EventTable, step: float, first: NDArray[np.float64], last: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(samples,) the number of grid times between the first and the last; 0 for a sample without readings."""
    present = table.count > 0
    with np.errstate(over="ignore"):
        steps = np.floor((last - first) / step + 1e-9)
    if not np.isfinite(steps[present]).all():
        raise DataError("grid: start and stop must be finite times.")
    return np.where(present, np.maximum(steps + 1, 0), 0)


def at_times(table: EventTable, times: Any, sensors: Sequence[str]) -> QueryTable:
    """Queries of these sensors in every sample, at those times that lie between its first and its last reading."""
    column = time_column(times, "at")
    if not len(column):
        raise DataError("There are no queries. Give at least one time.")
    parsed, as_dates = parse_query_times(column, table, "at: the list of times")
    parsed = parsed.unique().sort()
    if as_dates:
        every = np.repeat(np.arange(len(table)), len(parsed))
        time = since_time_zero(pl.concat([parsed] * len(table)), table, every).reshape(len(table), -1)
    else:
        time = np.broadcast_to(_finite(parsed.fill_null(np.nan).to_numpy()), (len(table), len(parsed)))
    chosen = _codes(pl.Series(sensors, dtype=pl.String), table.sensors, "sensor", "is not a sensor of the table")
    first, last = spans(table)
    with np.errstate(invalid="ignore"):
        inside = (time >= first[:, None]) & (time <= last[:, None]) & (table.count > 0)[:, None]  # (samples, times)
    if not inside.any():
        raise DataError(
            "There are no queries: none of the times lies within a sample, from its first reading to its last."
        )
    _refuse_too_many(int(inside.sum()) * len(chosen))
    sample, at = np.nonzero(inside)
    asked = np.repeat(time[sample, at], len(chosen))
    return QueryTable(table, np.repeat(sample, len(chosen)), np.tile(chosen, len(sample)), asked, as_dates)


def in_gaps(table: EventTable, interval: NDArray[np.float64]) -> QueryTable:
    """Queries where a reading is missing: each sensor at its typical interval, wherever it was silent for longer.

    `interval` (sensor,), infinite for a sensor that is not to be filled. There are no queries before the first reading
    of a sample or after its last.
    """
    first, last = spans(table)
    rows, width = table.rows(), len(table.sensors)
    owner = np.repeat(np.arange(len(table)), table.count)
    series = owner * width + np.asarray(table.sensor[rows], dtype=np.int64)
    present = np.flatnonzero(table.count > 0)
    to_fill = np.flatnonzero(np.isfinite(interval))
    edges = (present[:, None] * width + to_fill).ravel()  # every series begins and ends with its sample
    # Times of the readings, with an invisible reading one interval outside the sample on both sides.
    before, after = first[edges // width] - interval[edges % width], last[edges // width] + interval[edges % width]
    keys = np.concatenate([series, edges, edges])
    times = np.concatenate([np.asarray(table.time[rows]), before, after])
    order = np.lexsort([times, keys])
    keys, times = keys[order], times[order]
    within = keys[1:] == keys[:-1]
    start, gap, key = times[:-1][within], np.diff(times)[within], keys[1:][within]
    steps = gap / interval[key % width]
    number = np.where(steps > OUTAGE, np.round(steps).astype(np.int64) - 1, 0)
    _refuse_too_many(int(number.sum()))
    at = np.repeat(np.arange(len(number)), number)
    rank = np.arange(len(at)) - np.repeat(np.cumsum(number) - number, number) + 1
    time = start[at] + gap[at] * rank / (number[at] + 1)
    sample, sensor = key[at] // width, key[at] % width
    inside = (time >= first[sample] - 1e-9) & (time <= last[sample] + 1e-9)
    return QueryTable(table, sample[inside], sensor[inside], time[inside])


def spans(table: EventTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(samples,) time of the first and the last reading; 0 if there is none."""
    first, last = zip(*(_spans_in_block(part) for part in table.blocks()), strict=True)
    return np.concatenate(first), np.concatenate(last)


def _spans_in_block(table: EventTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    present = table.count > 0
    first, last = np.zeros(len(table)), np.zeros(len(table))
    first[present] = table.time[table.start[present]]
    last[present] = table.time[table.start[present] + table.count[present] - 1]
    return first, last


def _codes(column: pl.Series, known: Sequence[str], what: str, problem: str) -> Positions:
    names = column.cast(pl.String)
    if names.null_count():
        count = format_count(names.null_count(), len(names), "rows")
        raise DataError(
            f"queries: the {what} of {count} is missing (first: row {int(names.is_null().arg_max() or 0) + 1:,}). "
            "Fill it in, or leave these rows out."
        )
    codes = names.replace_strict(list(known), list(range(len(known))), default=None, return_dtype=pl.Int64)
    if codes.null_count():
        at = int(codes.is_null().arg_max() or 0)
        count = format_count(codes.null_count(), len(codes), "rows")
        raise DataError(
            f"queries: the {what} of {count} {problem} (first: row {at + 1:,}, '{names[at]}'): "
            f"{suggest(str(names[at]), known)}"
        )
    return codes.to_numpy().astype(np.int64)


def _finite(time: NDArray[np.float64]) -> NDArray[np.float64]:
    """The times; raises if one is missing."""
    wrong = ~np.isfinite(time)
    if wrong.any():
        raise DataError(
            f"queries: {format_count(int(wrong.sum()), len(time), 'rows')} have no finite time "
            f"(first: row {int(wrong.argmax()) + 1:,})."
        )
    return time


def _refuse_too_many(number: float) -> None:
    if number > MAX_QUERIES:
        raise DataError(
            f"That would be {number:,.0f} queries, more than {MAX_QUERIES:,}. Ask for fewer times, sensors or samples."
        )
