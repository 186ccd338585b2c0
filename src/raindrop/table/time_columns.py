"""Parse columns of numbers and times: text, date times with and without a time zone, and durations."""

from __future__ import annotations

from typing import Literal

import polars as pl

from raindrop.errors import DataError, format_count

TimeUnit = Literal["seconds", "minutes", "hours", "days"]
SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}


def parse_numbers(column: pl.Series, role: str, source: str) -> pl.Series:
    """The column as float64; text that is not a number is an error."""
    rule = f"A {role} is a number" + (" or a date time like 2024-01-31 08:15:00" if role == "time" else "")
    if column.dtype == pl.Boolean or column.dtype.is_numeric() or column.dtype == pl.Null:
        return column.cast(pl.Float64)
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        text = _strip(column.cast(pl.String))
        number = text.cast(pl.Float64, strict=False)
        wrong = text.is_not_null() & number.is_null()
        if wrong.any():
            row = int(wrong.arg_max() or 0)
            raise DataError(
                f"{source}: column '{column.name}' holds text where a {role} belongs in "
                f"{format_count(int(wrong.sum()), len(column), 'rows')} (first: row {row + 1:,}, '{text[row]}').\n"
                f"{rule}; turn these into numbers, or drop the rows."
            )
        return number
    raise DataError(f"{source}: column '{column.name}' is of type {column.dtype}. {rule}; convert the column first.")


def parse_times(column: pl.Series, time_unit: TimeUnit, source: str) -> pl.Series:
    """A column of times: date times (in UTC if they have a time zone), or float64 numbers of `time_unit`."""
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype == pl.Date:
        return column.cast(pl.Datetime("us"))
    if column.dtype == pl.Datetime:
        has_zone = column.dtype.time_zone is not None  # type: ignore[attr-defined]
        return column.cast(pl.Datetime("us", "UTC" if has_zone else None), strict=False)
    if column.dtype == pl.String and column.str.contains(r"^\s*\d+[-/.]\d+[-/.]\d").any():
        return parse_times(_parse_datetimes(column, source), time_unit, source)
    if column.dtype == pl.Duration:
        return durations_to_numbers(column, time_unit)
    return parse_numbers(column, "time", source).fill_nan(None)


def _strip(column: pl.Series) -> pl.Series:
    """Text without surrounding white space; null where nothing is left."""
    text = column.str.strip_chars()
    return text.set(text == "", None)


def _parse_datetimes(column: pl.Series, source: str) -> pl.Series:
    """Date times from text. The year must come first: 01/02/2024 means different days in different countries."""
    text = _strip(column)
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


def durations_to_numbers(column: pl.Series, time_unit: TimeUnit) -> pl.Series:
    """Durations as float64 numbers of `time_unit`; a column of numbers is returned as it is."""
    if column.dtype == pl.Duration:
        ticks = {"ms": 1e3, "us": 1e6, "ns": 1e9}[column.dtype.time_unit]  # type: ignore[attr-defined]
        number = column.to_physical().cast(pl.Float64).to_numpy() / (SECONDS[time_unit] * ticks)
        return pl.Series(column.name, number, nan_to_null=True)  # polars would multiply by the rounded inverse
    return column


def describe_time_type(dtype: pl.DataType) -> str:
    """What a parsed column of times holds, for a message."""
    if dtype == pl.Datetime:
        return f"date times {'without' if dtype.time_zone is None else 'with'} a time zone"  # type: ignore[attr-defined]
    return "numbers"
