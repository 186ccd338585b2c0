"""From the user's frames to sorted arrays. Everything is validated and normalised here, once.

Every reading of an EventTable has passed through `build_readings`, so later code does not check again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, check_choice, format_count, suggest
from raindrop.table.frames import ids_as_text, require_columns, to_name_tuple, to_polars
from raindrop.table.store import Roles
from raindrop.table.time_columns import (
    TimeUnit,
    describe_time_type,
    durations_to_numbers,
    parse_numbers,
    parse_times,
)

Duplicates = Literal["error", "last", "mean"]
BeforeReference = Literal["error", "keep", "drop"]
Unlisted = Literal["error", "drop"]


@dataclass(frozen=True)
class SortedReadings:
    """Readings sorted by (sample, time, sensor) and the samples they belong to; the fields of an EventTable."""

    time: NDArray[np.float64]
    sensor: NDArray[np.int32]
    value: NDArray[np.float64]
    start: NDArray[np.int64]
    count: NDArray[np.int64]
    sensors: tuple[str, ...]
    samples: pl.DataFrame
    roles: Roles
    time_unit: TimeUnit
    dropped: dict[str, int]
    filled: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Sources:
    """The names of the two tables in messages."""

    events: str = "events"
    samples: str = "samples"

    @classmethod
    def from_option(cls, source: str | tuple[str, str] | None) -> Sources:
        """One name for both tables, or one each."""
        if isinstance(source, tuple):
            return cls(*source)
        return cls(f"{source} events", f"{source} samples") if source else cls()


def build_readings(
    events: Any,
    samples: Any,
    *,
    sample: str,
    time: str,
    sensor: str,
    value: str,
    label: str | None,
    statics: Sequence[str] | None,
    group: str | None,
    cutoff: str | None,
    reference: str | None,
    time_unit: TimeUnit,
    sensors: Sequence[str] | None,
    duplicates: Duplicates,
    before_reference: BeforeReference,
    unlisted: Unlisted,
    source: str | tuple[str, str] | None,
) -> SortedReadings:
    """Validate events and samples and sort the readings; the options are those of `EventTable.from_frames`."""
    check_choice(duplicates, Duplicates, "duplicates")
    check_choice(before_reference, BeforeReference, "before_reference")
    check_choice(unlisted, Unlisted, "unlisted")
    check_choice(time_unit, TimeUnit, "time_unit")
    sources = Sources.from_option(source)
    event_frame = to_polars(events, sources.events)
    sample_frame = None if samples is None else to_polars(samples, sources.samples)
    named = {"label": label, "group": group, "cutoff": cutoff, "reference": reference}
    roles, reference = _resolve_roles(named, to_name_tuple(statics or (), "statics"), sample_frame, sample, sources)

    require_columns(event_frame, {"sample": sample, "time": time, "sensor": sensor, "value": value}, sources.events)
    rows = pl.DataFrame(
        {
            "sample": ids_as_text(event_frame[sample], "sample", sources.events),
            "time": parse_times(event_frame[time], time_unit, sources.events),
            "sensor": ids_as_text(event_frame[sensor], "sensor", sources.events),
            "value": parse_numbers(event_frame[value], "value", sources.events),
        }
    ).with_row_index("row")
    _check_rows(rows, sources.events)
    sample_frame = _prepare_samples(rows, sample_frame, sample, sources)
    dropped: dict[str, int] = {}
    rows = _add_positions(rows, sample_frame, unlisted, dropped, sources)
    rows, sample_frame = _to_relative_time(rows, sample_frame, reference, roles.cutoff, time_unit, sources)
    rows = _drop_by_time(rows, sample_frame, before_reference, roles.cutoff, dropped, sources.events)

    names = _sensor_names(rows, sensors, dropped, sources.events)
    codes = pl.DataFrame({"sensor": pl.Series(names, dtype=pl.String), "code": np.arange(len(names), dtype=np.int32)})
    rows = rows.join(codes, on="sensor", how="left", maintain_order="left").sort("position", "time", "code", "row")
    rows = _resolve_duplicates(rows, duplicates, dropped, sources.events)
    count = np.bincount(rows["position"].to_numpy(), minlength=len(sample_frame)).astype(np.int64)
    filled = _filled(event_frame, rows["row"])
    return SortedReadings(
        time=rows["time"].to_numpy().astype(np.float64),
        sensor=rows["code"].to_numpy().astype(np.int32),
        value=rows["value"].to_numpy().astype(np.float64),
        start=np.cumsum(count) - count,
        count=count,
        sensors=names,
        samples=sample_frame,
        roles=roles,
        time_unit=time_unit,
        dropped={reason: number for reason, number in dropped.items() if number},
        filled=filled,
    )


def _filled(events: pl.DataFrame, row: pl.Series) -> NDArray[np.bool_] | None:
    """Which readings were predicted rather than measured, by the column that a filled table is written with."""
    if "filled" not in events.columns:
        return None
    column = events["filled"].gather(row)
    if column.dtype == pl.String:
        column = column.str.to_lowercase() == "true"
    if column.dtype != pl.Boolean:
        return None
    return column.fill_null(False).to_numpy()


def _resolve_roles(
    named: Mapping[str, str | None],
    statics: tuple[str, ...],
    samples: pl.DataFrame | None,
    id_column: str,
    sources: Sources,
) -> tuple[Roles, str | None]:
    """The columns of the samples table in each role, and the reference column.

    A column with the name of a role is used without being named; '' means none.
    """
    columns = [] if samples is None else samples.columns
    chosen = {
        role: (role if role in columns else None) if name is None else name or None for role, name in named.items()
    }
    roles = Roles(chosen["label"], statics, chosen["group"], chosen["cutoff"])
    required = roles.columns | {role: name for role, name in chosen.items() if name}
    if samples is None and required:
        raise DataError(
            f"There is no samples table, but columns of it are named: {', '.join(required.values())}.\n"
            "Give a table with one row per sample that has these columns."
        )
    if samples is not None:
        require_columns(samples, {"sample": id_column, **required}, sources.samples)
        if id_column in required.values():
            role = next(role for role, name in required.items() if name == id_column)
            raise DataError(f"{sources.samples}: '{id_column}' names the samples; it cannot be their {role} as well.")
    return roles, chosen["reference"]


def _check_rows(rows: pl.DataFrame, source: str) -> None:
    """Every reading needs a sample, a sensor, a finite value and a time."""
    _reject(rows, pl.col("sample").is_null(), source, "have no sample", "Every reading belongs to a sample")
    _reject(rows, pl.col("sensor").is_null(), source, "have no sensor name", "Every reading comes from a named sensor")
    _reject(rows, pl.col("value").is_null() | pl.col("value").is_nan(), source, "have no value",
            "A sensor that was not read has no row; 'missing' is never written as a value")  # fmt: skip
    # The range of float32 although values are float64: a model computes in float32, a sensor that is constant in
    # training is centred but not divided, and squares of larger values would overflow when the scale is computed.
    _reject(rows, ~pl.col("value").cast(pl.Float32).is_finite(), source, "have an infinite value",
            "Values must be finite numbers within ±3.4e38")  # fmt: skip
    _reject(rows, pl.col("time").is_null(), source, "have no time", "Every reading needs a time")


def _reject(
    rows: pl.DataFrame,
    wrong: pl.Expr | pl.Series,
    source: str,
    fault: str,
    rule: str,
    fix: str = "; drop these rows or fix the export",
) -> None:
    """Raise if any row is `wrong`; the message has the source, the fault, how many rows, the first one and the fix."""
    bad = rows.filter(wrong)
    if len(bad):
        first = bad.row(0, named=True)
        place = [f", {name} '{first[name]}'" for name in ("sample", "sensor") if first[name] is not None]
        raise DataError(
            f"{source}: {format_count(len(bad), len(rows), 'rows')} {fault} "
            f"(first: row {first['row'] + 1:,}{''.join(place)}).\n{rule}{fix}."
        )


def _drop(rows: pl.DataFrame, condition: pl.Expr | pl.Series, dropped: dict[str, int], reason: str) -> pl.DataFrame:
    """The rows without those that meet the condition, whose number is added to `dropped`."""
    kept = rows.filter(~condition)
    dropped[reason] = len(rows) - len(kept)
    return kept


def _prepare_samples(
    rows: pl.DataFrame, samples: pl.DataFrame | None, id_column: str, sources: Sources
) -> pl.DataFrame:
    """The samples table with unique text ids in its first column, 'sample'; made from the readings if there is none."""
    if samples is None:
        if not len(rows):
            raise DataError(f"{sources.events}: the table is empty, and there is no samples table either.")
        return pl.DataFrame({"sample": rows["sample"].unique(maintain_order=True)})
    source = sources.samples
    ids = ids_as_text(samples[id_column], "sample", source).alias("sample")
    if id_column != "sample" and "sample" in samples.columns:
        raise DataError(f"{source}: the columns '{id_column}' and 'sample' both exist; drop or rename 'sample'.")
    samples = samples.drop(id_column).insert_column(0, ids)
    if ids.null_count():
        raise DataError(f"{source}: {format_count(ids.null_count(), len(ids), 'rows')} have no sample id; drop them.")
    repeated = ids.is_duplicated()
    if repeated.any():
        raise DataError(
            f"{source}: {format_count(int(repeated.sum()), len(ids), 'rows')} share their sample id with another row "
            f"(first: '{ids.filter(repeated)[0]}').\nThe samples table has one row per sample; remove the others."
        )
    if not len(samples):
        raise DataError(f"{source}: the table is empty. There must be at least one sample.")
    for name, dtype in samples.schema.items():
        if _contains_bytes(dtype):
            raise DataError(
                f"{source}: column '{name}' is of type {dtype}, which cannot be kept with the samples; "
                "drop it, or turn it into text or numbers."
            )
    return samples


def _contains_bytes(dtype: pl.DataType) -> bool:
    """Whether a type holds raw bytes or Python objects at any depth; they cannot be compared or written as text."""
    if isinstance(dtype, pl.Struct):
        return any(_contains_bytes(part.dtype) for part in dtype.fields)  # type: ignore[arg-type]
    if isinstance(dtype, (pl.List, pl.Array)):
        return _contains_bytes(dtype.inner)  # type: ignore[arg-type]
    return dtype in (pl.Binary, pl.Object)


def _add_positions(
    rows: pl.DataFrame, samples: pl.DataFrame, unlisted: Unlisted, dropped: dict[str, int], sources: Sources
) -> pl.DataFrame:
    """Add each reading's position in the samples table; readings of other samples are an error or dropped."""
    rows = rows.join(samples.select("sample", position=_row_numbers(samples)), on="sample", how="left",
                     maintain_order="left")  # fmt: skip
    if unlisted == "error":
        _reject(rows, pl.col("position").is_null(), sources.events,
                f"belong to a sample that {sources.samples} does not list",
                "Add these samples, or pass unlisted='drop' to leave their readings out", fix="")  # fmt: skip
    return _drop(rows, pl.col("position").is_null(), dropped, "of a sample that is not listed")


def _row_numbers(samples: pl.DataFrame) -> pl.Series:
    return pl.int_range(len(samples), dtype=pl.Int64, eager=True)


def _to_relative_time(
    rows: pl.DataFrame,
    samples: pl.DataFrame,
    reference: str | None,
    cutoff: str | None,
    time_unit: TimeUnit,
    sources: Sources,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Times of the readings, and the cutoff of each sample, as numbers of `time_unit` since the sample's reference."""
    times = rows["time"]
    marks = {
        name: parse_times(samples[name], time_unit, sources.samples) for name in (reference, cutoff) if name is not None
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
        _reject(rows, zero.is_null().gather(rows["position"]), sources.events,
                f"belong to a sample without '{reference}'",
                f"Fill in '{reference}' of {sources.samples} for every sample with readings", fix="")  # fmt: skip
    elif dtype == pl.Datetime:  # count from the first reading
        first = rows.group_by("position").agg(pl.col("time").min())
        positions = samples.select(position=_row_numbers(samples))
        zero = positions.join(first, on="position", how="left", maintain_order="left")["time"]
    else:
        return rows, samples.with_columns(mark.alias(name) for name, mark in marks.items())
    since_zero = durations_to_numbers(rows["time"] - zero.gather(rows["position"]), time_unit)
    rows = rows.with_columns(since_zero.alias("time"))
    if cutoff is not None:
        samples = samples.with_columns(durations_to_numbers(marks[cutoff] - zero, time_unit).alias(cutoff))
    return rows, samples


def _drop_by_time(
    rows: pl.DataFrame,
    samples: pl.DataFrame,
    before_reference: BeforeReference,
    cutoff: str | None,
    dropped: dict[str, int],
    source: str,
) -> pl.DataFrame:
    """Reject infinite times, reject or drop readings before the reference, drop readings after the cutoff."""
    _reject(rows, ~pl.col("time").cast(pl.Float32).is_finite(), source, "have an infinite time",
            "Times must be finite numbers within ±3.4e38")  # fmt: skip
    if before_reference == "error":
        _reject(rows, pl.col("time") < 0, source, "are before their sample's reference time",
                "Readings count from the reference time on; pass before_reference='keep' to allow negative times "
                "or 'drop' to leave these rows out", fix="")  # fmt: skip
    elif before_reference == "drop":
        rows = _drop(rows, pl.col("time") < 0, dropped, "before the reference time")
    if cutoff is not None:
        late = rows["time"] > samples[cutoff].gather(rows["position"])
        rows = _drop(rows, late.fill_null(False), dropped, "after the cutoff")
    return rows


def _sensor_names(
    rows: pl.DataFrame, sensors: Sequence[str] | None, dropped: Mapping[str, int], source: str
) -> tuple[str, ...]:
    """The sensors in order: as given, or those with a reading by name."""
    present = rows["sensor"].unique().sort().to_list()
    if sensors is None:
        if not present:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in dropped.items() if number)
            raise DataError(
                f"{source}: {f'no reading is left ({reasons})' if reasons else 'the table is empty'}. "
                "There must be at least one reading; if there are none on purpose, name the sensors with sensors=[...]."
            )
        return tuple(present)
    names = to_name_tuple(sensors, "sensors")
    if len(set(names)) != len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise DataError(f"sensors=[...] names '{repeated}' twice; remove one of them.")
    extra = sorted(set(present) - set(names))
    if extra:
        raise DataError(
            f"{source}: {format_count(len(extra), len(present), 'sensors')} are not among the {len(names)} given in "
            f"sensors=[...] (first: '{extra[0]}'; {suggest(extra[0], names)})\n"
            "Add them to the list, or drop their rows."
        )
    return names


def _resolve_duplicates(rows: pl.DataFrame, policy: Duplicates, dropped: dict[str, int], source: str) -> pl.DataFrame:
    """One reading per (sample, time, sensor); `rows` are sorted."""
    key = pl.struct("position", "time", "code")
    repeated = (key == key.shift(1)).fill_null(False)
    count = int(rows.select(repeated.sum()).item()) if len(rows) else 0
    if not count:
        return rows
    if policy == "error":
        _reject(rows, repeated, source, "repeat the (sample, time, sensor) of another row",
                "Pass duplicates='last' to keep the last of each in the order given, or 'mean' to average them",
                fix="")  # fmt: skip
    dropped[f"duplicate readings ({policy})"] = count
    if policy == "mean":
        rows = rows.with_columns(pl.col("value").mean().over("position", "time", "code"))
    return rows.filter(~(key == key.shift(-1)).fill_null(False))
