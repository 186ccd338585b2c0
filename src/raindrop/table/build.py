"""Turn the user's frames into sorted arrays. Everything is validated and normalised here, once.

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
from raindrop.table.categories import text_to_sensors
from raindrop.table.cells import clean_text, natural_key, require_printable
from raindrop.table.checks import Sources, drop_rows, reject_rows
from raindrop.table.frames import ids_as_text, require_columns, to_name_tuple, to_polars
from raindrop.table.relative_time import BeforeReference, drop_by_time, row_numbers, to_relative_time
from raindrop.table.sample_table import attributes_of_events, prepare_samples, resolve_roles, warn_of_ids
from raindrop.table.store import Roles
from raindrop.table.time_columns import (
    TimeFacts,
    TimeUnit,
    numbers_and_text,
    parse_numbers,
    parse_times,
    refuse_text,
)

Duplicates = Literal["error", "last", "mean"]
Unlisted = Literal["error", "drop"]
Missing = Literal["error", "drop"]


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
    notices: tuple[str, ...] = ()
    sensor_info: pl.DataFrame | None = None


@dataclass(frozen=True)
class PartOf:
    """What is known about the whole table when only a part of it is built: the format of its times, by column."""

    times: TimeFacts
    samples: Mapping[str, TimeFacts]


def build_readings(
    events: Any,
    samples: Any,
    *,
    sample: str,
    time: str,
    sensor: str,
    value: str,
    text: str | None,
    label: str | None,
    statics: Sequence[str] | None,
    group: str | None,
    cutoff: str | None,
    reference: str | None,
    time_unit: TimeUnit,
    sensors: Sequence[str] | None,
    duplicates: Duplicates,
    missing: Missing,
    before_reference: BeforeReference,
    unlisted: Unlisted,
    source: str | tuple[str, str] | None,
    notices: Sequence[str],
    part_of: PartOf | None = None,
) -> SortedReadings:
    """Validate events and samples and sort the readings; the options are those of `EventTable.from_frames`.

    part_of: set if these are some samples of a larger table; notices that count rows are then left to the caller.
    """
    check_choice(duplicates, Duplicates, "duplicates")
    check_choice(missing, Missing, "missing")
    check_choice(before_reference, BeforeReference, "before_reference")
    check_choice(unlisted, Unlisted, "unlisted")
    check_choice(time_unit, TimeUnit, "time_unit")
    sources = Sources.from_option(source)
    said = list(notices)
    event_frame = to_polars(events, sources.events)
    required = {"sample": sample, "time": time, "sensor": sensor, "value": value} | ({"text": text} if text else {})
    named = {"label": label, "group": group, "cutoff": cutoff, "reference": reference}
    static_names = to_name_tuple(statics or (), "statics")
    if samples is None:
        named_columns = [name for name in (*named.values(), *static_names) if name]
        implied = label is None
        sample_frame = attributes_of_events(event_frame, sample, named_columns, sources.events, said, implied=implied)
    else:
        sample_frame = to_polars(samples, sources.samples)
    roles, reference = resolve_roles(named, static_names, sample_frame, sample, sources)

    require_columns(event_frame, required, sources.events)
    times = None if part_of is None else part_of.times
    rows = pl.DataFrame(
        {
            "sample": ids_as_text(event_frame[sample], "sample", sources.events),
            "time": parse_times(event_frame[time], time_unit, sources.events, said, times),
            "sensor": ids_as_text(event_frame[sensor], "sensor", sources.events),
        }
    ).with_row_index("row")
    rows = _add_values(rows, event_frame[value], event_frame[text] if text else None, sources.events)
    dropped: dict[str, int] = {}
    counted: list[str] = []
    rows = _check_rows(rows, missing, dropped, counted, sources.events)
    if "text" in rows.columns:
        rows = text_to_sensors(rows, sources.events, counted)
    said += counted if part_of is None else ()
    sample_frame = prepare_samples(rows, sample_frame, sample, sources, said)
    rows = _add_positions(rows, sample_frame, unlisted, dropped, sources)
    marks = {} if part_of is None else part_of.samples
    rows, sample_frame = to_relative_time(rows, sample_frame, reference, roles.cutoff, time_unit, sources, said, marks)
    rows = drop_by_time(rows, sample_frame, before_reference, roles.cutoff, dropped, sources.events)

    names = sensor_names(rows["sensor"].unique().to_list(), sensors, dropped, sources.events)
    codes = pl.DataFrame({"sensor": pl.Series(names, dtype=pl.String), "code": np.arange(len(names), dtype=np.int32)})
    rows = rows.join(codes, on="sensor", how="left", maintain_order="left").sort("position", "time", "code", "row")
    rows = _resolve_duplicates(rows, duplicates, dropped, sources.events)
    count = np.bincount(rows["position"].to_numpy(), minlength=len(sample_frame)).astype(np.int64)
    filled = _filled(event_frame, rows["row"])
    if roles.label is not None and part_of is None:
        warn_of_ids(sample_frame[roles.label], said)
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
        notices=tuple(said),
    )


def _filled(events: pl.DataFrame, row: pl.Series) -> NDArray[np.bool_] | None:
    """Which readings were predicted rather than measured, from the column that a filled table is written with."""
    if "filled" not in events.columns:
        return None
    column = events["filled"].gather(row)
    if column.dtype == pl.String:
        column = column.str.to_lowercase() == "true"
    if column.dtype != pl.Boolean:
        return None
    return column.fill_null(False).to_numpy()


def _add_values(rows: pl.DataFrame, values: pl.Series, text: pl.Series | None, source: str) -> pl.DataFrame:
    """Add the numbers, and a column `text` if some readings are text; a sensor with both raises.

    text: a separate column with the text of readings that have no number.
    """
    if text is not None:
        number = parse_numbers(values, "value", source).fill_nan(None)
        states, _ = clean_text(text)
        rows = rows.with_columns(number.alias("value"), states.set(number.is_not_null(), None).alias("text"))
        return rows if rows["text"].count() else rows.drop("text")
    if values.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return rows.with_columns(parse_numbers(values, "value", source).alias("value"))
    number, found = numbers_and_text(values)
    rows = rows.with_columns(number.alias("value"))
    if found is None:
        return rows
    numeric = rows.filter(number.is_not_null())["sensor"].unique()
    mixed = found.set(~rows["sensor"].is_in(numeric.implode()).fill_null(True), None)
    if mixed.count():
        refuse_text(values, mixed, "value", source)
    return rows.with_columns(found.alias("text"))


def _check_rows(
    rows: pl.DataFrame, missing: Missing, dropped: dict[str, int], notices: list[str], source: str
) -> pl.DataFrame:
    """Every reading needs a sample, a sensor, a time, and a finite value or text; rows without these may be dropped."""
    reject_rows(rows, pl.col("sample").is_null(), source, "have no sample", "Every reading belongs to a sample")
    reject_rows(rows, pl.col("sensor").is_null(), source, "have no sensor name",
                "Every reading comes from a named sensor")  # fmt: skip
    absent = pl.col("value").is_null() | pl.col("value").is_nan()
    if "text" in rows.columns:
        absent &= pl.col("text").is_null()
    if missing == "error":
        reject_rows(rows, absent, source, "have no value",
                    "A sensor that was not read has no row; 'missing' is never written as a value. Pass missing='drop' "
                    "(--missing drop) to leave these rows out", fix="")  # fmt: skip
    elif rows.select(absent.any()).item():
        total = len(rows)
        rows = drop_rows(rows, absent, dropped, "without a value")
        notices.append(left_out_notice(source, dropped["without a value"], total))
    # The range of float32 although values are float64: a model computes in float32, a sensor that is constant in
    # training is centred but not divided, and squares of larger values would overflow when the scale is computed.
    reject_rows(rows, ~pl.col("value").cast(pl.Float32).is_finite(), source, "have an infinite value",
                "Values must be finite numbers within ±3.4e38")  # fmt: skip
    reject_rows(rows, pl.col("time").is_null(), source, "have no time", "Every reading needs a time")
    return rows


def left_out_notice(source: str, count: int, total: int) -> str:
    """The notice about rows without a value."""
    return f"{source}: {format_count(count, total, 'rows')} have no value; left out."


def _add_positions(
    rows: pl.DataFrame, samples: pl.DataFrame, unlisted: Unlisted, dropped: dict[str, int], sources: Sources
) -> pl.DataFrame:
    """Add each reading's position in the samples table; readings of unlisted samples raise or are dropped."""
    rows = rows.join(samples.select("sample", position=row_numbers(samples)), on="sample", how="left",
                     maintain_order="left")  # fmt: skip
    if unlisted == "error":
        reject_rows(rows, pl.col("position").is_null(), sources.events,
                    f"belong to a sample that {sources.samples} does not list",
                    "Add these samples, or pass unlisted='drop' (--unlisted drop) to leave their readings out",
                    fix="")  # fmt: skip
    return drop_rows(rows, pl.col("position").is_null(), dropped, "of a sample that is not listed")


def sensor_names(
    found: Sequence[str], sensors: Sequence[str] | None, dropped: Mapping[str, int], source: str
) -> tuple[str, ...]:
    """The sensors in order: as given, or those with a reading (`found`) in natural order."""
    present = sorted(found, key=natural_key)
    require_printable(present, "sensor names", source)
    if sensors is None:
        if not present:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in dropped.items() if number)
            raise DataError(
                f"{source}: {f'no reading is left ({reasons})' if reasons else 'the table is empty'}. "
                "There must be at least one reading; if there are none on purpose, name the sensors with sensors=[...]."
            )
        return tuple(present)
    names = to_name_tuple(sensors, "sensors")
    require_printable(names, "sensor names", "sensors=[...]")
    if "" in names:
        raise DataError(
            f"sensors=[...] has an empty name at position {names.index('') + 1}; every sensor needs a name."
        )
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
        reject_rows(rows, repeated, source, "repeat the (sample, time, sensor) of another row",
                    "Pass duplicates='last' to keep the last of each in the order given, or 'mean' to average them "
                    "(--duplicates last)", fix="")  # fmt: skip
    dropped[f"duplicate readings ({policy})"] = count
    if policy == "mean":
        rows = rows.with_columns(pl.col("value").mean().over("position", "time", "code"))
    return rows.filter(~(key == key.shift(-1)).fill_null(False))
