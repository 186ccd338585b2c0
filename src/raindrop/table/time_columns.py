"""Parse columns of numbers and times: text, date times with and without a time zone, epochs, and durations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, RowError
from raindrop.table.cells import clean_text

TimeUnit = Literal["seconds", "minutes", "hours", "days"]
SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}
DATE = r"^\s*\d+[-/.]\d+[-/.]\d"  # text that begins like a date
EPOCHS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
EPOCH_RANGE = (283_996_800.0, 4_102_444_800.0)  # 1979 to 2100, in seconds since 1970
LONGEST = 1000 * 365.25 * SECONDS["days"]  # larger numbers of a time unit cannot be times of a sample


def day_shares(dates: pl.Series) -> NDArray[np.float64]:
    """The time of day of date times, from 0 (midnight) to 1; NaN where there is none."""
    since_midnight = dates.dt.time().cast(pl.Int64)  # nanoseconds
    return (since_midnight / (SECONDS["days"] * 1e9)).fill_null(np.nan).to_numpy()


def parse_numbers(column: pl.Series, role: str, source: str) -> pl.Series:
    """The column as float64; raises if it has text that is not a number."""
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
    """A column of text as float64, and the text that is neither a number nor missing; None if there is none."""
    text = _strip(column.cast(pl.String))
    number = text.cast(pl.Float64, strict=False)
    wrong = text.is_not_null() & number.is_null()
    if not wrong.any():
        return number, None
    rest, _ = clean_text(text.set(~wrong, None))  # few cells: missing markers are looked for only here
    return number, rest if rest.count() else None


def refuse_text(column: pl.Series, text: pl.Series, role: str, source: str) -> None:
    """Raise about the rows in which `text` is not null."""
    wrong = text.is_not_null()
    row = int(wrong.arg_max() or 0)
    raise RowError(text_sentence(column.name, text[row], role, source), int(wrong.sum()), len(column), row)


def text_sentence(column: str, text: str, role: str, source: str) -> str:
    """The message of a RowError about such text among numbers."""
    return (
        f"{source}: column '{column}' holds text where a {role} belongs in {{count}} (first: {{row}}, '{text}').\n"
        f"{_rule(role)}; turn these into numbers, or drop the rows."
    )


def _rule(role: str) -> str:
    return f"A {role} is a number" + (" or a date time like 2024-01-31 08:15:00" if role == "time" else "")


@dataclass(frozen=True)
class TimeFacts:
    """The format of a column's times. Facts about parts of a column are combined with `&`."""

    has_dates: bool = False
    """Whether some text looks like a date."""
    year_last: bool = True
    """Whether all text looks like 31.01.2024 or 1/31/2024, with or without a time."""
    first_above_12: bool = False
    second_above_12: bool = False
    dots: bool = True
    """Whether the parts of all such dates are separated by dots."""
    low: float | None = None
    """The smallest number."""
    high: float | None = None
    first: float | None = None
    """The first number."""

    @classmethod
    def of(cls, column: pl.Series, known: TimeFacts | None = None) -> TimeFacts:
        """The facts about a column of times; with `known`, combined with those of the rest of the column."""
        if column.dtype in (pl.Categorical, pl.Enum):
            column = column.cast(pl.String)
        known = known or cls()
        if column.dtype == pl.String:
            has_dates = known.has_dates or bool(column.str.contains(DATE).any())
            if has_dates:
                dates = cls._of_dates(clean_text(column)[0]) if known.year_last else cls(year_last=False)
                return known & replace(dates, has_dates=True) & cls._of_numbers(column)
        return known & cls._of_numbers(column)

    @classmethod
    def _of_dates(cls, text: pl.Series) -> TimeFacts:
        parts = _year_last_parts(text)
        if parts["year"].null_count() > text.null_count():
            return cls(year_last=False)
        first, second = (bool((parts[name].cast(pl.Int64) > 12).any()) for name in ("first", "second"))
        return cls(first_above_12=first, second_above_12=second, dots=bool((parts["mark"] == ".").all()))

    @classmethod
    def _of_numbers(cls, column: pl.Series) -> TimeFacts:
        if column.dtype == pl.String:
            column = _strip(column).cast(pl.Float64, strict=False)
        if not column.dtype.is_numeric():
            return cls()
        number = column.cast(pl.Float64).fill_nan(None).drop_nulls()
        if not len(number):
            return cls()
        return cls(low=cast(float, number.min()), high=cast(float, number.max()), first=number[0])

    def __and__(self, other: TimeFacts) -> TimeFacts:
        lows = [facts.low for facts in (self, other) if facts.low is not None]
        highs = [facts.high for facts in (self, other) if facts.high is not None]
        return TimeFacts(
            self.has_dates or other.has_dates,
            self.year_last and other.year_last,
            self.first_above_12 or other.first_above_12,
            self.second_above_12 or other.second_above_12,
            self.dots and other.dots,
            min(lows, default=None),
            max(highs, default=None),
            other.first if self.first is None else self.first,
        )


def parse_times(
    column: pl.Series, time_unit: TimeUnit, source: str, notices: list[str], facts: TimeFacts | None = None
) -> pl.Series:
    """A column of times: date times (in UTC if they have a time zone), or float64 numbers of `time_unit`.

    Numbers that can only be seconds, milliseconds, ... since 1970 become date times, with a notice. `facts` describe
    the whole column if this is only a part of it.
    """
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype == pl.Date:
        return column.cast(pl.Datetime("us"))
    if column.dtype == pl.Datetime:
        has_zone = column.dtype.time_zone is not None  # type: ignore[attr-defined]
        return column.cast(pl.Datetime("us", "UTC" if has_zone else None), strict=False)
    if column.dtype == pl.String and (column.str.contains(DATE).any() if facts is None else facts.has_dates):
        parsed = _parse_datetimes(column, source, notices, facts or TimeFacts.of(column))
        return parse_times(parsed, time_unit, source, notices)
    if column.dtype == pl.Duration:
        return durations_to_numbers(column, time_unit)
    number = parse_numbers(column, "time", source).fill_nan(None)
    return _epochs_to_datetimes(number, time_unit, source, notices, facts or TimeFacts.of(number))


def _epochs_to_datetimes(
    number: pl.Series, time_unit: TimeUnit, source: str, notices: list[str], facts: TimeFacts
) -> pl.Series:
    """Numbers since 1970 as date times, if they cannot be numbers of `time_unit`: 1.7e12 hours are not a time."""
    low, high = facts.low, facts.high
    if low is None or high is None:  # empty
        return number
    for name, per_second in EPOCHS.items():
        if EPOCH_RANGE[0] * per_second <= low <= high <= EPOCH_RANGE[1] * per_second:
            if low * SECONDS[time_unit] <= LONGEST:
                return number
            first, times = (
                (column * (1e6 / per_second)).round().cast(pl.Int64).cast(pl.Datetime("us"))
                for column in (pl.Series([facts.first]), number)
            )
            notices.append(
                f"{source}: the numbers of column '{number.name}' are read as {name} since 1970 (the first is "
                f"{first[0]:%Y-%m-%d %H:%M:%S}), because {low:.3g} {time_unit} are no time of a sample."
            )
            return times
    return number


def _strip(column: pl.Series) -> pl.Series:
    """Stripped text; null if it is empty."""
    text = column.str.strip_chars()
    return text.set(text == "", None)


def _parse_datetimes(column: pl.Series, source: str, notices: list[str], facts: TimeFacts) -> pl.Series:
    """Date times from text, with the year first, or with the day or month first if the dates show which."""
    text, _ = clean_text(column)
    parsed = _parse_year_last(text, column.name, source, notices, facts)
    if parsed is None:
        year_first = text.set(~text.str.contains(r"^\d{4}"), None)
        try:
            parsed = year_first.str.to_datetime(time_unit="us", strict=False)
        except pl.exceptions.PolarsError:  # no format fits the first rows
            parsed = year_first.str.to_datetime("%+", time_unit="us", strict=False)
    wrong = text.is_not_null() & parsed.is_null()
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        sentence = (
            f"{source}: {{count}} of column '{column.name}' cannot be read as date times (first: {{row}}, "
            f"'{column[row]}').\n"
            "Write all of them like 2024-01-31 08:15:00, or all with a time zone like 2024-01-31T08:15:00+01:00."
        )
        raise RowError(sentence, int(wrong.sum()), len(column), row)
    return parsed


def _year_last_parts(text: pl.Series) -> pl.DataFrame:
    """The parts of dates such as 31.01.2024 08:15 or 1/31/2024 as text; null for other text."""
    parts = text.str.extract_groups(
        r"^(\d{1,2})([./-])(\d{1,2})[./-](\d{4})(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d{1,6})?))?)?$"
    ).struct.unnest()
    parts.columns = ["first", "mark", "second", "year", "hour", "minute", "seconds"]
    return parts


def _parse_year_last(text: pl.Series, name: str, source: str, notices: list[str], facts: TimeFacts) -> pl.Series | None:
    """Date times such as 31.01.2024 08:15 or 1/31/2024; None if some have another format, or if day and month are
    ambiguous: 01/02/2024 means different days in different countries, 01.02.2024 the first of February.
    """
    if not facts.year_last or not text.count():
        return None
    day_first = facts.first_above_12 or facts.dots
    if day_first == facts.second_above_12:
        return None
    parts = _year_last_parts(text)
    first, second = parts["first"].cast(pl.Int64), parts["second"].cast(pl.Int64)
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
    """Durations as float64 numbers of `time_unit`; a column of numbers is returned unchanged."""
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
    """A description of a parsed column of times, for messages."""
    if dtype == pl.Datetime:
        return f"date times {'without' if dtype.time_zone is None else 'with'} a time zone"  # type: ignore[attr-defined]
    return "numbers"
