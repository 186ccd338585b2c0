"""Times of readings and cutoffs relative to each sample's reference, and dropping readings by time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl

from raindrop.errors import DataError
from raindrop.table.checks import Sources, drop_rows, reject_rows
from raindrop.table.time_columns import TimeFacts, TimeUnit, describe_time_type, durations_to_numbers, parse_times

TIME_ZERO = "time_zero"
"""The column of the samples table with the date time that a sample's times count from, if any."""
BeforeReference = Literal["error", "keep", "drop"]


def to_relative_time(
    rows: pl.DataFrame,
    samples: pl.DataFrame,
    reference: str | None,
    cutoff: str | None,
    time_unit: TimeUnit,
    sources: Sources,
    notices: list[str],
    facts: Mapping[str, TimeFacts],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Times of the readings, and the cutoff of each sample, as numbers of `time_unit` since the sample's reference.

    If times are date times, the samples get a column `time_zero`. If they have one already, it is the reference of date
    times, and what numbers count from. `facts` describe whole columns of the samples if this is only a part.
    """
    times = rows["time"]
    if TIME_ZERO in samples.columns:
        if times.dtype == pl.Datetime:
            reference = reference or TIME_ZERO
        else:
            samples = samples.with_columns(_parse_time_zero(samples[TIME_ZERO], time_unit, sources, notices))
    marks = {
        name: parse_times(samples[name], time_unit, sources.samples, notices, facts.get(name))
        for name in (reference, cutoff)
        if name is not None
    }
    dtype = times.dtype if len(times) else next((m.dtype for m in marks.values() if m.count()), times.dtype)
    for name, mark in marks.items():
        if mark.count() and mark.dtype != dtype:
            raise DataError(
                f"{sources.samples}: column '{name}' holds {describe_time_type(mark.dtype)}, but the times of "
                f"{sources.events} are {describe_time_type(dtype)}. Both must be of one kind."
            )
        marks[name] = mark.cast(dtype)
    rows = rows.with_columns(times.cast(dtype).alias("time"))
    if reference is not None:
        zero = marks[reference]
        reject_rows(rows, zero.is_null().gather(rows["position"]), sources.events,
                    f"belong to a sample without '{reference}'",
                    f"Fill in '{reference}' of {sources.samples} for every sample with readings", fix="")  # fmt: skip
    elif dtype == pl.Datetime:  # count from the first reading
        first = rows.group_by("position").agg(pl.col("time").min())
        positions = samples.select(position=row_numbers(samples))
        zero = positions.join(first, on="position", how="left", maintain_order="left")["time"]
    else:
        return rows, samples.with_columns(mark.alias(name) for name, mark in marks.items())
    since_zero = durations_to_numbers(rows["time"] - zero.gather(rows["position"]), time_unit)
    rows = rows.with_columns(since_zero.alias("time"))
    if cutoff is not None:
        samples = samples.with_columns(durations_to_numbers(marks[cutoff] - zero, time_unit).alias(cutoff))
    return rows, samples.with_columns(zero.alias(TIME_ZERO)) if dtype == pl.Datetime else samples


def _parse_time_zero(column: pl.Series, time_unit: TimeUnit, sources: Sources, notices: list[str]) -> pl.Series:
    parsed = parse_times(column, time_unit, sources.samples, notices)
    if parsed.dtype != pl.Datetime and parsed.count():
        raise DataError(
            f"{sources.samples}: column '{TIME_ZERO}' holds {describe_time_type(parsed.dtype)}. It is the date time "
            "that the times of a sample count from, like 2024-01-31 08:15:00; rename it if it is something else."
        )
    return parsed.cast(pl.Datetime("us")) if parsed.dtype != pl.Datetime else parsed


def drop_by_time(
    rows: pl.DataFrame,
    samples: pl.DataFrame,
    before_reference: BeforeReference,
    cutoff: str | None,
    dropped: dict[str, int],
    source: str,
) -> pl.DataFrame:
    """Reject infinite times, reject or drop readings before the reference, drop readings after the cutoff."""
    reject_rows(rows, ~pl.col("time").cast(pl.Float32).is_finite(), source, "have an infinite time",
                "Times must be finite numbers within ±3.4e38")  # fmt: skip
    if before_reference == "error":
        reject_rows(rows, pl.col("time") < 0, source, "are before their sample's reference time",
                    "Readings count from the reference time on; pass before_reference='keep' to allow negative times "
                    "or 'drop' to leave these rows out (--before-reference keep)", fix="")  # fmt: skip
    elif before_reference == "drop":
        rows = drop_rows(rows, pl.col("time") < 0, dropped, "before the reference time")
    if cutoff is not None:
        late = rows["time"] > samples[cutoff].gather(rows["position"])
        rows = drop_rows(rows, late.fill_null(False), dropped, "after the cutoff")
    return rows


def row_numbers(samples: pl.DataFrame) -> pl.Series:
    """0, 1, ... for the rows of a frame."""
    return pl.int_range(len(samples), dtype=pl.Int64, eager=True)
