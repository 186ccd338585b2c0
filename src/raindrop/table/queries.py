"""Queries: readings to predict, as (sample, time, sensor) of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import DataError, format_count, suggest
from raindrop.table.blocks import blocks_of, is_large
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns, to_polars
from raindrop.table.time_columns import describe_time_type, durations_to_numbers, numbers_to_durations, parse_times

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
        parsed, as_dates = _times(frame["time"], table)
        time = _since_time_zero(parsed, table, sample) if as_dates else parsed.fill_null(np.nan).to_numpy()
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
                "time": self._dates() if self.as_dates else self.time,
                "sensor": pl.Series(self.table.sensors, dtype=pl.String).gather(self.sensor),
            }
        )

    def _dates(self) -> pl.Series:
        zero = cast(pl.Series, self.table.time_zero).gather(self.sample)
        return zero + numbers_to_durations(self.time, self.table.time_unit)

    def _describe(self, at: Any) -> str:
        sample, sensor = self.table.ids[self.sample[at]], self.table.sensors[self.sensor[at]]
        return f"sample '{sample}', sensor '{sensor}', time {self.time[at]:g}"


def grid(
    table: EventTable,
    every: float,
    sensors: Sequence[str] | None = None,
    *,
    start: ArrayLike | None = None,
    stop: ArrayLike | None = None,
) -> pl.DataFrame:
    """Queries at regular times, for all sensors or for the given ones.

    They cover each sample's first reading to its last, or `start` to `stop`: a time for all samples, or one for each.
    """
    return on_grid(table, every, sensors, start=start, stop=stop).frame()


def on_grid(
    table: EventTable,
    every: float,
    sensors: Sequence[str] | None = None,
    *,
    start: ArrayLike | None = None,
    stop: ArrayLike | None = None,
) -> QueryTable:
    """The same queries as `grid`, as a QueryTable."""
    names = table.sensors if sensors is None else tuple(sensors)
    chosen = _codes(pl.Series(names, dtype=pl.String), table.sensors, "sensor", "is not a sensor of the table")
    first, last = spans(table)
    first = first if start is None else np.broadcast_to(np.asarray(start, dtype=np.float64), first.shape)
    last = last if stop is None else np.broadcast_to(np.asarray(stop, dtype=np.float64), last.shape)
    number = grid_times(table, every, first, last)
    _refuse_too_many(number.sum() * len(chosen))
    sample = np.repeat(np.arange(len(table)), number.astype(np.int64))
    rank = np.arange(len(sample)) - np.repeat(np.cumsum(number) - number, number.astype(np.int64))
    time = first[sample] + rank * every
    return QueryTable(table, np.repeat(sample, len(chosen)), np.tile(chosen, len(sample)), np.repeat(time, len(chosen)))


def grid_times(
    table: EventTable, every: float, first: NDArray[np.float64], last: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(samples,) the number of grid times between the first and the last; 0 for a sample without readings."""
    if not every > 0 or not np.isfinite(every):
        raise DataError(
            f"every={every!r}: the time between two queries must be a positive number of {table.time_unit}."
        )
    steps = np.floor((last - first) / every + 1e-9)
    if not np.isfinite(steps).all():
        raise DataError("grid: start and stop must be finite times.")
    return np.where(table.count > 0, np.maximum(steps + 1, 0), 0)


def at_times(table: EventTable, times: Any, sensors: Sequence[str]) -> QueryTable:
    """Queries of these sensors in every sample, at those times that lie between its first and its last reading."""
    listed = np.asarray(times).ravel()
    if not len(listed):
        raise DataError("There are no queries. Give at least one time.")
    column = pl.Series("time", listed if listed.dtype.kind == "M" else listed.tolist())
    parsed, as_dates = _times(column.unique().sort(), table)
    if as_dates:
        every = np.repeat(np.arange(len(table)), len(parsed))
        time = _since_time_zero(pl.concat([parsed] * len(table)), table, every).reshape(len(table), -1)
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
    codes = names.replace_strict(list(known), list(range(len(known))), default=None, return_dtype=pl.Int64)
    if codes.null_count():
        at = int(codes.is_null().arg_max() or 0)
        count = format_count(codes.null_count(), len(codes), "rows")
        raise DataError(
            f"queries: the {what} of {count} {problem} (first: row {at + 1:,}, '{names[at]}'): "
            f"{suggest(str(names[at]), known)}"
        )
    return codes.to_numpy().astype(np.int64)


def _times(column: pl.Series, table: EventTable) -> tuple[pl.Series, bool]:
    """The column as numbers, or as date times; and whether they are date times."""
    if column.dtype.is_numeric():
        return column.cast(pl.Float64), False
    unit = f"Times are {table.time_unit} on the clock of the table's own readings."
    looks_like_dates = column.dtype == pl.String and column.str.contains(r"^\s*\d+[-/.]\d+[-/.]\d").any()
    if not looks_like_dates and column.dtype not in (pl.Date, pl.Datetime):
        raise DataError(f"queries: 'time' is of type {column.dtype}, not a number. {unit}")
    parsed = parse_times(column, table.time_unit, "queries", [])
    zero = table.time_zero
    if zero is None:
        raise DataError(f"queries: 'time' holds date times, but the times of the table are numbers. {unit}")
    if parsed.dtype != zero.dtype:
        raise DataError(
            f"queries: 'time' holds {describe_time_type(parsed.dtype)}, but the table was built from "
            f"{describe_time_type(zero.dtype)}. Both must be of one kind."
        )
    return parsed, True


def _since_time_zero(dates: pl.Series, table: EventTable, sample: Positions) -> NDArray[np.float64]:
    """(q,) date times as numbers on the clocks of these samples; NaN if a sample's clock is unknown."""
    since = dates - cast(pl.Series, table.time_zero).gather(sample)
    return durations_to_numbers(since, table.time_unit).fill_null(np.nan).to_numpy()


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
