"""Turn readings of requests into tables: fast if they are plain numbers, by the library's own checks otherwise."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from raindrop.batch.scaling import Scaler
from raindrop.errors import CONTROL, DataError, first_line
from raindrop.serve.arrow_bodies import check_arrow
from raindrop.serve.failures import RequestError
from raindrop.serve.limits import Limits
from raindrop.serve.messages import Columns, Job
from raindrop.table.event_table import EventTable
from raindrop.table.relative_time import TIME_ZERO
from raindrop.table.store import Roles
from raindrop.table.time_columns import TimeUnit

ONE_SAMPLE = "sample"  # the id if a request gives none
LARGEST = float(np.finfo(np.float32).max)
NAMES = ("readings", "samples")  # of the two tables in messages


def table_of(job: Job, scaler: Scaler, time_unit: TimeUnit, limits: Limits) -> EventTable:
    """The table of a job's readings, in the model's time unit; errors are those of the library.

    Warnings of the library are raised as usual; the caller collects them.
    """
    if job.arrow is not None:
        frame = read_arrow(job.arrow, limits)
        return _checked(frame, job.samples, scaler, time_unit, limits)
    assert job.readings is not None
    table = quick_table(job.readings, job.samples, scaler, time_unit)
    return _checked(_mapping(job.readings), job.samples, scaler, time_unit, limits) if table is None else table


def _checked(
    readings: Any, samples: dict[str, list[Any]], scaler: Scaler, time_unit: TimeUnit, limits: Limits
) -> EventTable:
    """By `EventTable.from_frames`."""
    statics = [column.name for column in scaler.statics if column.name in samples]
    table = EventTable.from_frames(
        readings,
        samples or None,
        label="",
        group="",
        statics=statics,
        cutoff="cutoff" if "cutoff" in samples else "",
        reference="reference" if "reference" in samples else "",
        time_unit=time_unit,
        source=NAMES,
    )
    if len(table) > limits.samples:
        raise RequestError("too_large", f"The request has {len(table):,} samples; at most {limits.samples:,} are read.")
    return table


def _mapping(columns: Columns) -> dict[str, list[Any]]:
    sample = [ONE_SAMPLE] * len(columns.time) if columns.sample is None else columns.sample
    return {"sample": sample, "time": columns.time, "sensor": columns.sensor, "value": columns.value}


def quick_table(
    columns: Columns, samples: dict[str, list[Any]], scaler: Scaler, time_unit: TimeUnit
) -> EventTable | None:
    """The table of readings that need no cleaning: finite numbers of known sensors, each once. None for any other."""
    if samples and not _plain_statics(samples, scaler):
        return None
    known = {name: code for code, name in enumerate(scaler.sensors)}
    try:
        sensor = np.array([known[name] for name in columns.sensor], dtype=np.int32)
        time = np.array(columns.time, dtype=np.float64)
        value = np.array(columns.value, dtype=np.float64)
    except (KeyError, TypeError, ValueError):  # an unknown sensor, a date, text, null
        return None
    if not len(time) or any(isinstance(entry, str) for entry in chain(columns.time, columns.value)):
        return None
    ids = [ONE_SAMPLE] if columns.sample is None else list(dict.fromkeys(samples.get("sample") or columns.sample))
    position = {name: at for at, name in enumerate(ids)}
    try:
        owner = (
            np.zeros(len(time), np.int64) if columns.sample is None else np.array([position[s] for s in columns.sample])
        )
    except KeyError:
        return None
    clean = all(name == name.strip() and name and not CONTROL.search(name) for name in ids)
    if not clean or not (np.abs(time) <= LARGEST).all() or not (np.abs(value) <= LARGEST).all() or (time < 0).any():
        return None
    order = np.lexsort((sensor, time, owner))
    owner, time, sensor, value = owner[order], time[order], sensor[order], value[order]
    if ((owner[1:] == owner[:-1]) & (time[1:] == time[:-1]) & (sensor[1:] == sensor[:-1])).any():
        return None
    count = np.bincount(owner, minlength=len(ids)).astype(np.int64)
    about = {"sample": pl.Series(ids, dtype=pl.String)} | {
        column.name: _static_series(samples[column.name], column.categories is None)
        for column in scaler.statics
        if column.name in samples
    }
    roles = Roles(statics=tuple(name for name in about if name != "sample"))
    start = np.cumsum(count) - count
    return EventTable(time, sensor, value, start, count, scaler.sensors, pl.DataFrame(about), roles, time_unit)


def _plain_statics(samples: dict[str, list[Any]], scaler: Scaler) -> bool:
    """Whether attributes of samples are numbers where the model has numbers, and text where it has categories."""
    ids = samples.get("sample")
    if not ids or not all(isinstance(name, str) for name in ids) or len(set(ids)) < len(ids):
        return False
    is_number = {column.name: column.categories is None for column in scaler.statics}
    for name, column in samples.items():
        if len(column) != len(ids) or name in ("cutoff", "reference", TIME_ZERO):
            return False
        if name in is_number and not all(_is_plain(entry, is_number[name]) for entry in column):
            return False
    return True


def _is_plain(entry: Any, is_number: bool) -> bool:
    if entry is None:
        return True
    if is_number:
        return isinstance(entry, (int, float)) and abs(entry) <= LARGEST
    return isinstance(entry, str) and bool(entry)


def _static_series(column: Sequence[Any], is_number: bool) -> pl.Series:
    if not is_number:
        return pl.Series(list(column), dtype=pl.String)
    return pl.Series([None if entry is None else float(entry) for entry in column], dtype=pl.Float64)


def join_tables(tables: Sequence[EventTable], scaler: Scaler) -> EventTable:
    """The samples of several quick tables in one, in order, with new ids; a static that a table lacks is missing."""
    count = np.concatenate([table.count for table in tables])
    ids = pl.Series([str(at) for at in range(len(count))], dtype=pl.String)
    columns = {"sample": ids}
    for column in scaler.statics:
        dtype = pl.Float64() if column.categories is None else pl.String()
        parts = [
            table.samples[column.name].cast(dtype)
            if column.name in table.samples.columns
            else pl.Series([None] * len(table), dtype=dtype)
            for table in tables
        ]
        columns[column.name] = pl.concat(parts)
    return EventTable(
        time=np.concatenate([table.time for table in tables]),
        sensor=np.concatenate([table.sensor for table in tables]),
        value=np.concatenate([table.value for table in tables]),
        start=np.cumsum(count) - count,
        count=count,
        sensors=scaler.sensors,
        samples=pl.DataFrame(columns),
        roles=Roles(statics=tuple(column.name for column in scaler.statics)),
        time_unit=tables[0].time_unit,
    )


def with_all_statics(table: EventTable, scaler: Scaler) -> tuple[EventTable, list[str]]:
    """The table with every static attribute of the model, missing if not given; and a note on these."""
    absent = [column for column in scaler.statics if column.name not in table.samples.columns]
    if not absent:
        return table, []
    empty = [
        pl.lit(None, pl.Float64() if column.categories is None else pl.String()).alias(column.name) for column in absent
    ]
    names = ", ".join(repr(column.name) for column in absent)
    note = f"Static attributes that are not given are unknown: {names}."
    return replace(table, samples=table.samples.with_columns(empty)), [note]


def is_quick(table: EventTable, scaler: Scaler) -> bool:
    """Whether `join_tables` supports it."""
    return table.sensors is scaler.sensors


def read_arrow(body: bytes, limits: Limits) -> pl.DataFrame:
    """The readings of an Arrow IPC stream, after checking its structure and the limits."""
    check_arrow(body, limits)
    try:
        frame = pl.read_ipc_stream(BytesIO(body))
    except BaseException as error:  # polars panics on some damaged streams, and a panic is not an Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        raise DataError(
            f"readings: cannot be read as an Arrow stream ({first_line(error)}). Write it without compression."
        ) from None
    if "sample" not in frame.columns:
        frame = frame.with_columns(sample=pl.lit(ONE_SAMPLE))
    if len(frame) > limits.readings:
        raise too_many_readings(len(frame), limits)
    if frame.width > 64 or any(dtype.is_nested() or dtype == pl.Object for dtype in frame.dtypes):
        raise DataError("readings: an Arrow body has the columns sample, time, sensor and value, none of them nested.")
    return frame.select(name for name in ("sample", "time", "sensor", "value") if name in frame.columns)


def too_many_readings(number: int, limits: Limits) -> RequestError:
    """The error for a request with too many readings."""
    return RequestError(
        "too_large", f"The request has {number:,} readings; at most {limits.readings:,} are read. Send fewer at a time."
    )


class Notes:
    """Collects the library's warnings as notes for the response."""

    def __enter__(self) -> list[str]:
        self._catcher = warnings.catch_warnings(record=True)
        self._caught = self._catcher.__enter__()
        warnings.simplefilter("always")
        self._notes: list[str] = []
        return self._notes

    def __exit__(self, *details: Any) -> None:
        self._notes += dict.fromkeys(str(one.message) for one in self._caught or [])
        self._catcher.__exit__(*details)
