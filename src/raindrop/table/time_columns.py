"""Parse columns of numbers and times: text, date times with and without a time zone, epochs, and durations."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, format_count
from raindrop.table.cells import clean_text

TimeUnit = Literal["seconds", "minutes", "hours", "days"]
SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}
EPOCHS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
EPOCH_RANGE = (283_996_800.0, 4_102_444_800.0)  # 1979 to 2100, in seconds since 1970
LONGEST = 1000 * 365.25 * SECONDS["days"]  # numbers of a time unit above this are no times of a sample


def parse_numbers(column: pl.Series, role: str, source: str) -> pl.Series:
    """The column as float64; text that is not a number is an error."""
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        number, text = numbers_and_text(column)
        if text is not None:
            refuse_text(column, text, role, source)
        return number
    if column.dtype == pl.Boolean or column.dtype.is_numeric() or column.dtype == pl.Null:
        return column.cast(pl.Float64)
    raise DataError(
        f"{source}: column '{column.name}' is of type {column.dtype}. {_rule(role)}; convert the column first."
    )


def numbers_and_text(column: pl.Series) -> tuple[pl.Series, pl.Series | None]:
    """A column of text as float64, and the text that is no number and not missing; None where there is none."""
    text = _strip(column.cast(pl.String))
    number = text.cast(pl.Float64, strict=False)
    wrong = text.is_not_null() & number.is_null()
    if not wrong.any():
        return number, None
    rest, _ = clean_text(text.set(~wrong, None))  # few cells: missing markers are looked for only here
    return number, rest if rest.count() else None


def refuse_text(column: pl.Series, text: pl.Series, role: str, source: str) -> None:
    """Raise because of the rows in which `text` is not null."""
    wrong = text.is_not_null()
    row = int(wrong.arg_max() or 0)
    raise DataError(
        f"{source}: column '{column.name}' holds text where a {role} belongs in "
        f"{format_count(int(wrong.sum()), len(column), 'rows')} (first: row {row + 1:,}, '{text[row]}').\n"
        f"{_rule(role)}; turn these into numbers, or drop the rows."
    )


def _rule(role: str) -> str:
    return f"A {role} is a number" + (" or a date time like 2024-01-31 08:15:00" if role == "time" else "")


def parse_times(column: pl.Series, time_unit: TimeUnit, source: str, notices: list[str]) -> pl.Series:
    """A column of times: date times (in UTC if they have a time zone), or float64 numbers of `time_unit`.

    Numbers that can only be seconds, milliseconds, ... since 1970 become date times, with a notice.
    """
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype == pl.Date:
        return column.cast(pl.Datetime("us"))
    if column.dtype == pl.Datetime:
        has_zone = column.dtype.time_zone is not None  # type: ignore[attr-defined]
        return column.cast(pl.Datetime("us", "UTC" if has_zone else None), strict=False)
    if column.dtype == pl.String and column.str.contains(r"^\s*\d+[-/.]\d+[-/.]\d").any():
        return parse_times(_parse_datetimes(column, source, notices), time_unit, source, notices)
    if column.dtype == pl.Duration:
        return durations_to_numbers(column, time_unit)
    number = parse_numbers(column, "time", source).fill_nan(None)
    return _epochs_to_datetimes(number, time_unit, source, notices)


def _epochs_to_datetimes(number: pl.Series, time_unit: TimeUnit, source: str, notices: list[str]) -> pl.Series:
    """Numbers since 1970 as date times, where they cannot be numbers of `time_unit`: 1.7e12 hours are no time."""
    low, high = number.min(), number.max()
    if not isinstance(low, float) or not isinstance(high, float):  # empty
        return number
    for name, per_second in EPOCHS.items():
        if EPOCH_RANGE[0] * per_second <= low <= high <= EPOCH_RANGE[1] * per_second:
            if low * SECONDS[time_unit] <= LONGEST:
                return number
            times = (number * (1e6 / per_second)).round().cast(pl.Int64).cast(pl.Datetime("us"))
            notices.append(
                f"{source}: the numbers of column '{number.name}' are read as {name} since 1970 (the first is "
                f"{times.drop_nulls()[0]:%Y-%m-%d %H:%M:%S}), because {low:.3g} {time_unit} are no time of a sample."
            )
            return times
    return number


def _strip(column: pl.Series) -> pl.Series:
    """Text without surrounding white space; null where nothing is left."""
    text = column.str.strip_chars()
    return text.set(text == "", None)


def _parse_datetimes(column: pl.Series, source: str, notices: list[str]) -> pl.Series:
    """Date times from text, with the year first, or the day or month first where the dates show which of them it is."""
    text, _ = clean_text(column)
    parsed = _parse_year_last(text, column.name, source, notices)
    if parsed is None:
        year_first = text.set(~text.str.contains(r"^\d{4}"), None)
        try:
            parsed = year_first.str.to_datetime(time_unit="us", strict=False)
        except pl.exceptions.PolarsError:  # no format fits the first rows
            parsed = year_first.str.to_datetime("%+", time_unit="us", strict=False)
    wrong = text.is_not_null() & parsed.is_null()
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise DataError(
            f"{source}: {format_count(int(wrong.sum()), len(column), 'rows')} of column '{column.name}' cannot be read "
            f"as date times (first: row {row + 1:,}, '{column[row]}').\n"
            "Write all of them like 2024-01-31 08:15:00, or all with a time zone like 2024-01-31T08:15:00+01:00."
        )
    return parsed


def _parse_year_last(text: pl.Series, name: str, source: str, notices: list[str]) -> pl.Series | None:
    """Date times such as 31.01.2024 08:15 or 1/31/2024; None where some are written otherwise, or day and month are
    not to be told apart: 01/02/2024 means different days in different countries, 01.02.2024 the first of February.
    """
    parts = text.str.extract_groups(
        r"^(\d{1,2})([./-])(\d{1,2})[./-](\d{4})(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d{1,6})?))?)?$"
    ).struct.unnest()
    parts.columns = ["first", "mark", "second", "year", "hour", "minute", "seconds"]
    if parts["year"].null_count() > text.null_count() or not text.count():
        return None
    first, second = parts["first"].cast(pl.Int64), parts["second"].cast(pl.Int64)
    day_first = bool((first > 12).any() or (parts["mark"] == ".").all())
    if day_first == bool((second > 12).any()):
        return None
    notices.append(f"{source}: the dates of column '{name}' are read with the {'day' if day_first else 'month'} first.")
    day, month = (first, second) if day_first else (second, first)
    whole = pl.DataFrame({"year": parts["year"], "month": month, "day": day, **{
        name: parts[name].cast(pl.Float64).fill_null(0.0) for name in ("hour", "minute", "seconds")
    }})  # fmt: skip
    dates = whole.select(
        pl.format("{}-{}-{}", "year", "month", "day").str.to_date("%Y-%m-%d", strict=False)
    ).to_series()
    micros = whole.select(
        ((pl.col("hour") * 3600 + pl.col("minute") * 60 + pl.col("seconds")) * 1e6).round().cast(pl.Int64)
    ).to_series()
    return (dates.cast(pl.Datetime("us")) + micros.cast(pl.Duration("us"))).alias(name)


def durations_to_numbers(column: pl.Series, time_unit: TimeUnit) -> pl.Series:
    """Durations as float64 numbers of `time_unit`; a column of numbers is returned as it is."""
    if column.dtype == pl.Duration:
        ticks = {"ms": 1e3, "us": 1e6, "ns": 1e9}[column.dtype.time_unit]  # type: ignore[attr-defined]
        number = column.to_physical().cast(pl.Float64).to_numpy() / (SECONDS[time_unit] * ticks)
        return pl.Series(column.name, number, nan_to_null=True)  # polars would multiply by the rounded inverse
    return column


def numbers_to_durations(number: NDArray[np.float64], time_unit: TimeUnit) -> pl.Series:
    """Numbers of `time_unit` as durations, to the microsecond."""
    microseconds = np.round(number * (SECONDS[time_unit] * 1e6)).astype(np.int64)
    return pl.Series(microseconds).cast(pl.Duration("us"))


def describe_time_type(dtype: pl.DataType) -> str:
    """What a parsed column of times holds, for a message."""
    if dtype == pl.Datetime:
        return f"date times {'without' if dtype.time_zone is None else 'with'} a time zone"  # type: ignore[attr-defined]
    return "numbers"
