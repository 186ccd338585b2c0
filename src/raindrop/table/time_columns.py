"""Columns as numbers and as times: text, date times, time zones and durations, each with its own message."""

from __future__ import annotations

from typing import Literal

import polars as pl

from raindrop.errors import DataError, count_of

TimeUnit = Literal["seconds", "minutes", "hours", "days"]
SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}


def as_numbers(column: pl.Series, role: str, what: str) -> pl.Series:
    """The column as float64; text that is not a number is an error."""
    rule = f"A {role} is a number" + (" or a date time like 2024-01-31 08:15:00" if role == "time" else "")
    if column.dtype == pl.Boolean or column.dtype.is_numeric() or column.dtype == pl.Null:
        return column.cast(pl.Float64)
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        text = _filled(column.cast(pl.String))
        number = text.cast(pl.Float64, strict=False)
        wrong = text.is_not_null() & number.is_null()
        if wrong.any():
            row = int(wrong.arg_max() or 0)
            raise DataError(
                f"{what}: column '{column.name}' holds text where a {role} belongs in "
                f"{count_of(int(wrong.sum()), len(column), 'rows')} (first: row {row + 1:,}, '{text[row]}').\n"
                f"{rule}; turn these into numbers, or drop the rows."
            )
        return number
    raise DataError(f"{what}: column '{column.name}' is of type {column.dtype}. {rule}; convert the column first.")


def as_clock(column: pl.Series, time_unit: TimeUnit, what: str) -> pl.Series:
    """A column of times as date times, UTC where they have a time zone, or as float64 numbers of `time_unit`."""
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype == pl.Date:
        return column.cast(pl.Datetime("us"))
    if column.dtype == pl.Datetime:
        zoned = column.dtype.time_zone is not None  # type: ignore[attr-defined]
        return column.cast(pl.Datetime("us", "UTC" if zoned else None), strict=False)
    if column.dtype == pl.String and column.str.contains(r"^\s*\d+[-/.]\d+[-/.]\d").any():
        return as_clock(_dated(column, what), time_unit, what)
    if column.dtype == pl.Duration:
        return in_unit(column, time_unit)
    return as_numbers(column, "time", what).fill_nan(None)


def _filled(column: pl.Series) -> pl.Series:
    """Text without space around it, null where nothing is left."""
    text = column.str.strip_chars()
    return text.set(text == "", None)


def _dated(column: pl.Series, what: str) -> pl.Series:
    """Date times from text; only the year first, since 01/02/2024 is one day here and another there."""
    text = _filled(column)
    yearly = text.set(~text.str.contains(r"^\d{4}"), None)
    try:
        dated = yearly.str.to_datetime(time_unit="us", strict=False)
    except pl.exceptions.PolarsError:  # no format fits the first ones
        dated = yearly.str.to_datetime("%+", time_unit="us", strict=False)
    wrong = text.is_not_null() & dated.is_null()
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise DataError(
            f"{what}: {count_of(int(wrong.sum()), len(column), 'rows')} of column '{column.name}' cannot be read as "
            f"date times (first: row {row + 1:,}, '{column[row]}').\n"
            "Write all of them like 2024-01-31 08:15:00, or all with a time zone like 2024-01-31T08:15:00+01:00."
        )
    return dated


def in_unit(column: pl.Series, time_unit: TimeUnit) -> pl.Series:
    """Durations as float64 numbers of `time_unit`; numbers are that already."""
    if column.dtype == pl.Duration:
        ticks = {"ms": 1e3, "us": 1e6, "ns": 1e9}[column.dtype.time_unit]  # type: ignore[attr-defined]
        number = column.to_physical().cast(pl.Float64).to_numpy() / (SECONDS[time_unit] * ticks)
        return pl.Series(column.name, number, nan_to_null=True)  # polars would multiply by the rounded inverse
    return column


def in_words(kind: pl.DataType) -> str:
    """What a column of times holds, for a message."""
    if kind == pl.Datetime:
        return f"date times {'without' if kind.time_zone is None else 'with'} a time zone"  # type: ignore[attr-defined]
    return "numbers"
