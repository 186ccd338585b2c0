"""When a forecaster makes its forecasts: at a number, at a date, or at the times in a column of the samples table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.batch.gaps import bisect
from raindrop.errors import ConfigError, DataError
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns
from raindrop.table.query_times import looks_like_date, parse_query_times, since_time_zero, times_of_samples
from raindrop.table.time_columns import DATE

Cutoff = float | str | date | np.datetime64 | None
Float64 = NDArray[np.float64]
NUMBERS = (int, float, np.integer, np.floating)
LARGEST = float(np.finfo(np.float64).max)  # whole numbers can be larger


def require_cutoff(cutoff: Any) -> None:
    """Raise unless it is a finite number, a date, text, or None."""
    if cutoff is None or isinstance(cutoff, str):
        return
    if is_fixed(cutoff) and not isinstance(cutoff, bool) and -LARGEST <= cutoff <= LARGEST:
        return
    if isinstance(cutoff, (date, np.datetime64)) and cutoff == cutoff:  # NaT is no date
        return
    raise ConfigError(f"cutoff={cutoff!r}: must be a finite time, a date, the name of a column, or None.")


def is_fixed(cutoff: Any) -> bool:
    """Whether it is the same number on the clocks of all samples."""
    return isinstance(cutoff, NUMBERS)


def cutoffs_of(cutoff: Any, table: EventTable, factor: float) -> Float64:
    """(samples,) the cutoff of each sample, in the table's time unit; a number is multiplied by `factor`."""
    if is_fixed(cutoff):
        return np.full(len(table), float(cutoff) * factor)
    if isinstance(cutoff, str) and (cutoff in table.samples.columns or not looks_like_date(cutoff)):
        require_columns(table.samples, {"cutoff": cutoff}, "samples")
        limits, problem = _of_column(table.samples[cutoff], table), f"samples: '{cutoff}' has no finite cutoff"
    else:
        limits, problem = times_of_samples(cutoff, table, "cutoff")[0], "samples: 'time_zero' is missing"
        limits = np.where(_without_clock(table), 0.0, limits)
    unknown = ~np.isfinite(limits)
    if unknown.any():
        at = int(np.argmax(unknown))
        also = ", or a date" if table.time_zero is not None else ""
        raise DataError(
            f"{problem} in row {at + 1:,} (sample '{table.ids[at]}'). "
            f"A cutoff is a number of {table.time_unit} on the clock of the readings{also}."
        )
    return limits


def _of_column(column: pl.Series, table: EventTable) -> Float64:
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    has_dates = column.dtype == pl.String and column.str.contains(DATE).any()
    if has_dates or column.dtype in (pl.Date, pl.Datetime):
        dates, _ = parse_query_times(column, table, f"samples: '{column.name}'")
        return np.where(_without_clock(table) & dates.is_not_null().to_numpy(), 0.0, since_time_zero(dates, table))
    return column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()


def _without_clock(table: EventTable) -> NDArray[np.bool_]:
    """(samples,) those of a table of dates without a date to count from, because they have no readings."""
    if table.time_zero is None:
        return np.zeros(len(table), dtype=bool)
    return np.asarray(table.time_zero.is_null().to_numpy() & (table.count == 0))


def last_before(table: EventTable, samples: NDArray[np.int64], cutoff: Float64) -> Float64:
    """(s,) the time of the last reading of these samples up to their cutoffs (s,); NaN if there is none."""
    start = table.start[samples]
    place = bisect(table.time, start, start + table.count[samples], cutoff, right=True)
    last = np.full(len(samples), np.nan)
    known = place > start
    last[known] = table.time[place[known] - 1]
    return last


def to_json(cutoff: Any) -> Any:
    """The cutoff as a number, text, None, or {"date": ...} for JSON."""
    if isinstance(cutoff, np.datetime64):
        cutoff = cutoff.astype("datetime64[us]").item()
    if isinstance(cutoff, date):
        return {"date": cutoff.isoformat()}
    return cutoff.item() if isinstance(cutoff, np.generic) else cutoff


def from_json(saved: Any) -> Any:
    """The cutoff that `to_json` gave."""
    if isinstance(saved, Mapping):
        text = saved["date"]
        return datetime.fromisoformat(text) if "T" in text else date.fromisoformat(text)
    return saved


def describe_cutoff(cutoff: Any, time_unit: str) -> str:
    """The cutoff in words, for a model card."""
    if cutoff is None:
        return "the last reading of each sample"
    if isinstance(cutoff, str):
        return cutoff if looks_like_date(cutoff) else f"column '{cutoff}'"
    return f"{cutoff:g} {time_unit}" if is_fixed(cutoff) else str(cutoff)
