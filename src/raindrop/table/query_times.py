"""Times and durations that a user gives: numbers on the clock of a table's readings, or dates."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, format_count
from raindrop.table.event_table import EventTable
from raindrop.table.time_columns import (
    DATE,
    LONGEST,
    SECONDS,
    describe_time_type,
    durations_to_numbers,
    numbers_and_text,
    numbers_to_durations,
    parse_times,
)

Float64 = NDArray[np.float64]
UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
DURATION = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(" + "|".join(UNITS) + r")\s*", re.IGNORECASE)


def looks_like_date(text: str) -> bool:
    """Whether text begins like 2024-01-31 or 31.01.2024."""
    return re.match(DATE, text) is not None


def is_list_of_times(value: Any) -> bool:
    """Whether it is one time or a list, array or index of times, and not a frame."""
    if isinstance(value, str):
        return looks_like_date(value)
    return bool(
        isinstance(value, (int, float, date, list, tuple, range, np.ndarray, np.generic, pl.Series))
        or (hasattr(value, "to_numpy") and getattr(value, "ndim", None) == 1)
    )


def time_column(times: Any, what: str) -> pl.Series:
    """One time, or a list, array or index of times, as a column; `what` names it in messages."""
    if isinstance(times, pl.Series):
        return times.alias("time")
    try:
        if isinstance(times, date):
            return pl.Series("time", [times])
        listed = np.atleast_1d(times.to_numpy() if hasattr(times, "to_numpy") else np.asarray(times)).ravel()
        if listed.dtype.kind == "M":
            return pl.Series("time", listed.astype("datetime64[us]"))
        return pl.Series("time", listed.tolist())
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise DataError(f"{what}: not a list of times. Times are all numbers, or all dates.") from None


def parse_query_times(column: pl.Series, table: EventTable, what: str) -> tuple[pl.Series, bool]:
    """The column as numbers, or as date times of the table's kind; and whether they are date times."""
    unit = f"Times are {table.time_unit} on the clock of the table's own readings."
    if column.dtype.is_numeric() or column.dtype == pl.Null:
        return column.cast(pl.Float64), False
    if column.dtype == pl.String and not column.str.contains(DATE).any():
        number, text = numbers_and_text(column)
        if text is None:
            return number, False
        row = int(text.is_not_null().arg_max() or 0)
        count = format_count(text.count(), len(column), "rows")
        also = ", or dates like 2024-01-31 08:15:00" if table.time_zero is not None else ""
        raise DataError(
            f"{what} is of type String, not a number, in {count} (first: row {row + 1:,}, '{text[row]}'). {unit[:-1]}"
            f"{also}."
        )
    if column.dtype not in (pl.String, pl.Date, pl.Datetime):
        raise DataError(f"{what} is of type {column.dtype}, not a number. {unit}")
    zero = table.time_zero
    if zero is None:
        raise DataError(f"{what} holds date times, but the times of the table are numbers. {unit}")
    parsed = parse_times(column, table.time_unit, what.partition(":")[0], [])
    if parsed.dtype != zero.dtype:
        example = "2024-01-31 08:15:00" + ("" if cast(pl.Datetime, zero.dtype).time_zone is None else "+00:00")
        raise DataError(
            f"{what} holds {describe_time_type(parsed.dtype)}, but the table was built from "
            f"{describe_time_type(zero.dtype)}. Both must be of one kind, here like {example}."
        )
    return parsed, True


def since_time_zero(dates: pl.Series, table: EventTable, sample: NDArray[np.int64] | None = None) -> Float64:
    """(q,) date times as numbers on the clocks of these samples, or of all; NaN if a sample's clock is unknown."""
    zero = cast(pl.Series, table.time_zero)
    since = dates - (zero if sample is None else zero.gather(sample))
    return durations_to_numbers(since, table.time_unit).fill_null(np.nan).to_numpy()


def to_dates(number: Float64, table: EventTable, sample: NDArray[np.int64]) -> pl.Series:
    """(q,) numbers on the clocks of these samples as date times."""
    return cast(pl.Series, table.time_zero).gather(sample) + numbers_to_durations(number, table.time_unit)


def time_text(number: float, table: EventTable, sample: int) -> str:
    """A time of a sample for messages: the date if it is known, else the number."""
    zero = table.time_zero
    if zero is None or zero[int(sample)] is None or not abs(number) * SECONDS[table.time_unit] < LONGEST:
        return f"{number:g}"
    return str(to_dates(np.array([number]), table, np.array([sample]))[0])


def times_of_samples(value: Any, table: EventTable, what: str) -> tuple[Float64, bool]:
    """(samples,) a time for all samples, or one for each, as numbers on their clocks; and whether it was a date.

    NaN where a sample's clock is unknown.
    """
    column = time_column(value, what)
    if len(column) not in (1, len(table)):
        raise DataError(f"{what}: {len(column):,} times for {len(table):,} samples. Give one, or one for each sample.")
    parsed, as_dates = parse_query_times(column, table, what)
    if len(parsed) == 1:
        parsed = parsed.new_from_index(0, len(table))
    return since_time_zero(parsed, table) if as_dates else parsed.fill_null(np.nan).to_numpy(), as_dates


def to_duration(value: Any, table: EventTable, what: str) -> float:
    """A positive duration in the time unit of a table: a number or, if its times are dates, "90m" or a timedelta."""
    seconds = _seconds(value)
    if seconds is not None and table.time_zero is None:
        raise DataError(
            f"{what}={value if isinstance(value, str) else str(value)!r}: the times of the table are numbers, not "
            f"dates. Give a number of {table.time_unit}."
        )
    try:
        number = float(value) if seconds is None else seconds / SECONDS[table.time_unit]
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if not 0 < number < np.inf:
        also = ", a timedelta, or text like '90s', '30m', '1h' or '1d'" if table.time_zero is not None else ""
        raise DataError(
            f"{what}={value!r}: the time between two queries must be a positive number of {table.time_unit}{also}."
        )
    return number


def _seconds(value: Any) -> float | None:
    """The seconds of a timedelta or of text such as '1h30m'; None for anything else."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, np.timedelta64):
        return float(value.astype("timedelta64[us]") / np.timedelta64(1, "us")) / 1e6
    if isinstance(value, str) and re.fullmatch(f"(?:{DURATION.pattern})+", value, re.IGNORECASE):
        return sum(float(number) * UNITS[unit.lower()] for number, unit in DURATION.findall(value))
    return None
