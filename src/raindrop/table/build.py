"""From whatever a person brings to sorted arrays: validate, normalise, once.

Every reading that enters an EventTable has passed here, so nothing later checks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, MissingExtraError, count_of, suggest
from raindrop.table.time_columns import TimeUnit, as_clock, as_numbers, in_unit, in_words

Duplicates = Literal["error", "last", "mean"]
BeforeReference = Literal["error", "keep", "drop"]
Unlisted = Literal["error", "drop"]


@dataclass(frozen=True)
class Sorted:
    """Readings sorted by (sample, time, sensor), with the samples they belong to."""

    time: NDArray[np.float64]
    sensor: NDArray[np.int32]
    value: NDArray[np.float64]
    count: NDArray[np.int64]  # readings per sample
    sensors: tuple[str, ...]
    samples: pl.DataFrame
    time_unit: TimeUnit
    dropped: dict[str, int] = field(default_factory=dict)


def to_polars(frame: Any, what: str) -> pl.DataFrame:
    """A polars frame from polars, pandas, Arrow, or a mapping of columns."""
    try:
        if isinstance(frame, pl.LazyFrame):
            return frame.collect()
        if isinstance(frame, pl.DataFrame):
            return frame
        if frame is None or isinstance(frame, (str, bytes, PathLike)):
            raise TypeError(f"it is {frame!r}; a folder is read with EventTable.read")
        return _of_columns(frame) if isinstance(frame, Mapping) else pl.DataFrame(frame)
    except ImportError as error:
        raise MissingExtraError(error.name or "pyarrow", "pandas", f"Reading {what} of this kind") from None
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError, NotImplementedError, OSError) as error:
        raise DataError(
            f"{what}: cannot be read as a table ({(str(error) or type(error).__name__).splitlines()[0]}).\n"
            "Give a polars or pandas frame, an Arrow table or a mapping of equally long columns, each of one type."
        ) from None


def _of_columns(columns: Mapping[str, Any]) -> pl.DataFrame:
    """Lists may mix whole and broken numbers, and text, which is then found and named where a number belongs."""
    frame = pl.DataFrame(columns, strict=False)
    for name, column in columns.items():
        if isinstance(column, (list, tuple)) and frame[name].null_count() > sum(entry is None for entry in column):
            raise TypeError(f"column '{name}' mixes types, or holds numbers that are too large")
    return frame


def require_columns(frame: pl.DataFrame, names: Mapping[str, str], what: str) -> None:
    """Raise unless every named column exists; suggest the near one."""
    for role, name in names.items():
        if name not in frame.columns:
            option = f"{role}='NAME'" if role.isidentifier() else "statics=['NAME', ...]"
            raise DataError(
                f"{what}: there is no column '{name}' (needed as {role}); {suggest(str(name), frame.columns)}\n"
                f"Rename the column, or say which one it is with {option}."
            )


def one_of(value: str, options: Any, name: str) -> None:
    """Raise unless `value` is one of the words of a Literal type."""
    if value not in get_args(options):
        raise DataError(f"{name}='{value}' is not known: {suggest(str(value), get_args(options))}")


def names_of(names: Sequence[str], role: str) -> tuple[str, ...]:
    """A list of names; a text would be taken for a list of letters."""
    if isinstance(names, str):
        raise DataError(f"{role}='{names}' is one name; give a list: {role}=['{names}'].")
    return tuple(str(name) for name in names)


def ids_as_text(column: pl.Series, role: str, what: str) -> pl.Series:
    """Sample and sensor names as text; 17.0 and 17 are the same name, NaN and '' are none."""
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object, pl.Duration):
        raise DataError(
            f"{what}: column '{column.name}' is of type {column.dtype}, which cannot name a {role}.\n"
            f"Turn it into text or whole numbers, or say which column it is with {role}='NAME'."
        )
    if column.dtype.is_float():
        column = column.fill_nan(None)
        whole = column.cast(pl.Int64, strict=False)
        exact = whole.cast(pl.Float64) == column.cast(pl.Float64)
        return whole.cast(pl.String).zip_with(exact.fill_null(False), column.cast(pl.String))
    text = column.cast(pl.String)
    return text.set(text == "", None)


def sort_readings(
    events: pl.DataFrame,
    samples: pl.DataFrame | None,
    *,
    sample: str,
    time: str,
    sensor: str,
    value: str,
    reference: str | None,
    cutoff: str | None,
    time_unit: TimeUnit,
    sensors: Sequence[str] | None,
    duplicates: Duplicates,
    before_reference: BeforeReference,
    unlisted: Unlisted,
    what: str = "events",
    samples_what: str = "samples",
) -> Sorted:
    """Validate readings and samples and put the readings in (sample, time, sensor) order."""
    one_of(duplicates, Duplicates, "duplicates")
    one_of(before_reference, BeforeReference, "before_reference")
    one_of(unlisted, Unlisted, "unlisted")
    one_of(time_unit, TimeUnit, "time_unit")
    require_columns(events, {"sample": sample, "time": time, "sensor": sensor, "value": value}, what)
    rows = pl.DataFrame(
        {
            "sample": ids_as_text(events[sample], "sample", what),
            "time": as_clock(events[time], time_unit, what),
            "sensor": ids_as_text(events[sensor], "sensor", what),
            "value": as_numbers(events[value], "value", what),
        }
    ).with_row_index("row")
    _refuse(rows, pl.col("sample").is_null(), what, "have no sample", "Every reading belongs to a sample")
    _refuse(rows, pl.col("sensor").is_null(), what, "have no sensor name", "Every reading comes from a named sensor")
    _refuse(rows, pl.col("value").is_null() | pl.col("value").is_nan(), what, "have no value",
            "A sensor that was not read has no row; 'missing' is never written as a value")  # fmt: skip
    _refuse(rows, ~pl.col("value").cast(pl.Float32).is_finite(), what, "have an infinite value",
            "Values must be finite numbers within ±3.4e38")  # fmt: skip
    _refuse(rows, pl.col("time").is_null(), what, "have no time", "Every reading needs a time")

    samples = _samples(rows, samples, sample, samples_what, what)
    dropped: dict[str, int] = {}
    rows = _listed(rows, samples, unlisted, dropped, what, samples_what)
    rows, samples = _relative_time(rows, samples, reference, cutoff, time_unit, what, samples_what)
    _refuse(rows, ~pl.col("time").cast(pl.Float32).is_finite(), what, "have an infinite time",
            "Times must be finite numbers within ±3.4e38")  # fmt: skip

    early = pl.col("time") < 0
    if before_reference == "error":
        _refuse(rows, early, what, "are before their sample's reference time",
                "Readings count from the reference time on; pass before_reference='keep' to allow negative times "
                "or 'drop' to leave these rows out", fix="")  # fmt: skip
    elif before_reference == "drop":
        rows = _drop(rows, early, dropped, "before the reference time")
    if cutoff is not None:
        late = rows["time"] > samples[cutoff].gather(rows["position"])
        rows = _drop(rows, late.fill_null(False), dropped, "after the cutoff")

    names = _sensor_names(rows, sensors, dropped, what)
    codes = pl.DataFrame({"sensor": pl.Series(names, dtype=pl.String), "code": np.arange(len(names), dtype=np.int32)})
    rows = rows.join(codes, on="sensor", how="left", maintain_order="left").sort("position", "time", "code", "row")
    rows = _without_duplicates(rows, duplicates, dropped, what)
    position = rows["position"].to_numpy()
    return Sorted(
        time=rows["time"].to_numpy().astype(np.float64),
        sensor=rows["code"].to_numpy().astype(np.int32),
        value=rows["value"].to_numpy().astype(np.float64),
        count=np.bincount(position, minlength=len(samples)).astype(np.int64),
        sensors=names,
        samples=samples,
        time_unit=time_unit,
        dropped={reason: number for reason, number in dropped.items() if number},
    )


def _refuse(
    rows: pl.DataFrame,
    wrong: pl.Expr | pl.Series,
    what: str,
    fault: str,
    rule: str,
    fix: str = "; drop these rows or fix the export",
) -> None:
    """One message for all rows with the same fault: where, what, how many, what to do."""
    bad = rows.filter(wrong)
    if len(bad):
        first = bad.row(0, named=True)
        place = [f", {name} '{first[name]}'" for name in ("sample", "sensor") if first[name] is not None]
        raise DataError(
            f"{what}: {count_of(len(bad), len(rows), 'rows')} {fault} "
            f"(first: row {first['row'] + 1:,}{''.join(place)}).\n{rule}{fix}."
        )


def _drop(rows: pl.DataFrame, condition: pl.Expr | pl.Series, dropped: dict[str, int], reason: str) -> pl.DataFrame:
    kept = rows.filter(~condition)
    dropped[reason] = len(rows) - len(kept)
    return kept


def _samples(
    rows: pl.DataFrame, samples: pl.DataFrame | None, sample: str, what: str, events_what: str
) -> pl.DataFrame:
    """The samples table with its id column first, as text, and unique."""
    if samples is None:
        if not len(rows):
            raise DataError(f"{events_what}: the table is empty, and there is no samples table either.")
        samples = pl.DataFrame({"sample": rows["sample"].unique(maintain_order=True)})
    else:
        require_columns(samples, {"sample": sample}, what)
        ids = ids_as_text(samples[sample], "sample", what).alias("sample")
        if sample != "sample" and "sample" in samples.columns:
            raise DataError(f"{what}: the columns '{sample}' and 'sample' both exist; drop or rename 'sample'.")
        samples = samples.drop(sample).insert_column(0, ids)
        if ids.null_count():
            raise DataError(f"{what}: {count_of(ids.null_count(), len(ids), 'rows')} have no sample id; drop them.")
        twice = ids.is_duplicated()
        if twice.any():
            raise DataError(
                f"{what}: {count_of(int(twice.sum()), len(ids), 'rows')} share their sample id with another row "
                f"(first: '{ids.filter(twice)[0]}').\nThe samples table has one row per sample; remove the others."
            )
    if not len(samples):
        raise DataError(f"{what}: the table is empty. There must be at least one sample.")
    for name, dtype in samples.schema.items():
        if _holds_bytes(dtype):
            raise DataError(
                f"{what}: column '{name}' is of type {dtype}, which cannot be kept with the samples; "
                "drop it, or turn it into text or numbers."
            )
    return samples


def _holds_bytes(dtype: pl.DataType) -> bool:
    """Raw bytes or Python objects, at any depth: neither can be compared nor written as text."""
    if isinstance(dtype, pl.Struct):
        return any(_holds_bytes(part.dtype) for part in dtype.fields)  # type: ignore[arg-type]
    if isinstance(dtype, (pl.List, pl.Array)):
        return _holds_bytes(dtype.inner)  # type: ignore[arg-type]
    return dtype in (pl.Binary, pl.Object)


def _listed(
    rows: pl.DataFrame, samples: pl.DataFrame, unlisted: Unlisted, dropped: dict[str, int], what: str, samples_what: str
) -> pl.DataFrame:
    """Add each reading's position in the samples table."""
    order = samples.select("sample", position=_positions(samples))
    rows = rows.join(order, on="sample", how="left", maintain_order="left")
    if unlisted == "error":
        _refuse(rows, pl.col("position").is_null(), what, f"belong to a sample that {samples_what} does not list",
                "Add these samples, or pass unlisted='drop' to leave their readings out", fix="")  # fmt: skip
    return _drop(rows, pl.col("position").is_null(), dropped, "of a sample that is not listed")


def _relative_time(
    rows: pl.DataFrame,
    samples: pl.DataFrame,
    reference: str | None,
    cutoff: str | None,
    time_unit: TimeUnit,
    what: str,
    samples_what: str,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Times, and the samples' cutoffs, as numbers of `time_unit` since the sample's reference."""
    clock = rows["time"]
    marks = {name: as_clock(samples[name], time_unit, samples_what) for name in (reference, cutoff) if name is not None}
    kind = clock.dtype if len(clock) else next((m.dtype for m in marks.values() if m.count()), clock.dtype)
    for name, mark in marks.items():
        if mark.count() and mark.dtype != kind:
            raise DataError(
                f"{samples_what}: column '{name}' holds {in_words(mark.dtype)}, but the times of {what} are "
                f"{in_words(kind)}. Both must be of one kind."
            )
        marks[name] = mark.cast(kind)
    rows = rows.with_columns(clock.cast(kind).alias("time"))
    if reference is not None:
        zero = marks[reference]
        _refuse(rows, zero.is_null().gather(rows["position"]), what, f"belong to a sample without '{reference}'",
                f"Fill in '{reference}' of {samples_what} for every sample with readings", fix="")  # fmt: skip
    elif kind == pl.Datetime:
        first = rows.group_by("position").agg(pl.col("time").min())
        zero = samples.select(position=_positions(samples)).join(
            first, on="position", how="left", maintain_order="left"
        )["time"]
    else:
        return rows, samples.with_columns(mark.alias(name) for name, mark in marks.items())
    rows = rows.with_columns(in_unit(rows["time"] - zero.gather(rows["position"]), time_unit).alias("time"))
    if cutoff is not None:
        samples = samples.with_columns(in_unit(marks[cutoff] - zero, time_unit).alias(cutoff))
    return rows, samples


def _positions(samples: pl.DataFrame) -> pl.Series:
    return pl.int_range(len(samples), dtype=pl.Int64, eager=True)


def _sensor_names(
    rows: pl.DataFrame, sensors: Sequence[str] | None, dropped: Mapping[str, int], what: str
) -> tuple[str, ...]:
    found = rows["sensor"].unique().sort().to_list()
    if sensors is None:
        if not found:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in dropped.items() if number)
            raise DataError(
                f"{what}: {f'no reading is left ({reasons})' if reasons else 'the table is empty'}. "
                "There must be at least one reading; if there are none on purpose, name the sensors with sensors=[...]."
            )
        return tuple(found)
    names = names_of(sensors, "sensors")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"sensors=[...] names '{twice}' twice; remove one of them.")
    extra = sorted(set(found) - set(names))
    if extra:
        raise DataError(
            f"{what}: {count_of(len(extra), len(found), 'sensors')} are not among the {len(names)} given in "
            f"sensors=[...] (first: '{extra[0]}'; {suggest(extra[0], names)})\n"
            "Add them to the list, or drop their rows."
        )
    return names


def _without_duplicates(rows: pl.DataFrame, policy: Duplicates, dropped: dict[str, int], what: str) -> pl.DataFrame:
    key = pl.struct("position", "time", "code")
    repeated = (key == key.shift(1)).fill_null(False)
    count = int(rows.select(repeated.sum()).item()) if len(rows) else 0
    if not count:
        return rows
    if policy == "error":
        _refuse(rows, repeated, what, "repeat the (sample, time, sensor) of another row",
                "Pass duplicates='last' to keep the last of each in the order given, or 'mean' to average them",
                fix="")  # fmt: skip
    dropped[f"duplicate readings ({policy})"] = count
    if policy == "mean":
        mean = pl.col("value").mean().over("position", "time", "code")
        rows = rows.with_columns(mean)
    return rows.filter(~(key == key.shift(-1)).fill_null(False))
