"""Validate what is pushed into a stream like the rows of a table: readings, and attributes of samples."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.batch.scaling import LARGEST, Scaler
from raindrop.errors import DataError, RaindropWarning, format_count
from raindrop.table.cells import clean_text, require_printable
from raindrop.table.frames import ids_as_text, require_columns, to_polars
from raindrop.table.time_columns import LONGEST, SECONDS, TimeUnit, describe_time_type, parse_numbers, parse_times

Float64 = NDArray[np.float64]
COLUMNS = {name: name for name in ("sample", "time", "sensor", "value")}
READINGS, SAMPLES = "readings", "samples"  # the names of the two frames in messages
NUMBERS = describe_time_type(pl.Float64())  # a clock of numbers instead of date times
MAX_PLAIN = 1000
PLAIN_NAME = re.compile(r"[A-Za-z_]([A-Za-z0-9 _./()%=-]*[A-Za-z0-9_()%])?|[0-9]+")  # is the same as text of a column


def is_dated(clock: str) -> bool:
    """Whether times on this clock (`Arrivals.clock`) are date times."""
    return clock.startswith("date times")


@dataclass(frozen=True)
class Arrivals:
    """Readings in order of arrival; times are numbers, or microseconds since 1970, depending on `clock`."""

    ids: list[str]
    owner: NDArray[np.int64]  # (n,) position in `ids`
    time: Float64  # (n,)
    sensors: list[str]
    sensor: NDArray[np.int64]  # (n,) position in `sensors`
    value: Float64  # (n,)
    clock: str

    def __len__(self) -> int:
        return len(self.owner)

    def only(self, kept: NDArray[np.bool_]) -> Arrivals:
        """Some of the readings."""
        if kept.all():
            return self
        columns = {name: getattr(self, name)[kept] for name in ("owner", "time", "sensor", "value")}
        return replace(self, **columns)

    def entry(self) -> dict[str, Any]:
        """As an entry of a journal."""
        columns = {name: getattr(self, name).tobytes() for name in ("owner", "time", "sensor", "value")}
        return {"ids": self.ids, "sensors": self.sensors, "clock": self.clock, **columns}

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Arrivals:
        """The arrivals that `entry` returned."""
        return cls(
            ids=entry["ids"],
            owner=np.frombuffer(entry["owner"], dtype=np.int64),
            time=np.frombuffer(entry["time"]),
            sensors=entry["sensors"],
            sensor=np.frombuffer(entry["sensor"], dtype=np.int64),
            value=np.frombuffer(entry["value"]),
            clock=entry["clock"],
        )

    def describe(self, row: int) -> str:
        """A description of one reading, for messages."""
        sample, sensor = self.ids[self.owner[row]], self.sensors[self.sensor[row]]
        return f"row {row + 1:,}, sample '{sample}', sensor '{sensor}'"

    @classmethod
    def from_frame(cls, readings: Any, time_unit: TimeUnit) -> Arrivals:
        """From a frame, or a mapping of columns, with sample, time, sensor and value; errors name the first row."""
        plain = _plain_columns(readings, time_unit)
        if plain is not None:
            ids, owner = _codes(plain["sample"])
            sensors, sensor = _codes(plain["sensor"])
            time, value = (np.array(plain[name], dtype=np.float64) for name in ("time", "value"))
            return cls(ids, owner, time, sensors, sensor, value, NUMBERS)
        frame = to_polars(readings, READINGS)
        require_columns(frame, COLUMNS, READINGS)
        names = {name: ids_as_text(frame[name], name, READINGS) for name in ("sample", "sensor")}
        time, clock = _times(frame["time"], time_unit, READINGS)
        value = parse_numbers(frame["value"], "value", READINGS).fill_null(np.nan).to_numpy()
        for name, column in names.items():
            _refuse(column.is_null().to_numpy(), frame, f"have no {name}")
        with np.errstate(over="ignore"):
            _refuse(~(np.abs(time) <= LARGEST), frame, "have no finite time")
            _refuse(~(np.abs(value) <= LARGEST), frame, "have no finite value within ±3.4e38")
        ids, owner = _codes(names["sample"].to_list())
        sensors, sensor = _codes(names["sensor"].to_list())
        require_printable(ids, "sample ids", READINGS)
        require_printable(sensors, "sensor names", READINGS)
        return cls(ids, owner, time, sensors, sensor, value, clock)


def _times(column: pl.Series, time_unit: TimeUnit, source: str) -> tuple[Float64, str]:
    """(n,) numbers, or microseconds since 1970 (exact in float64 until 2255), NaN if missing; and which of the two."""
    notices: list[str] = []
    parsed = parse_times(column, time_unit, source, notices)
    for notice in notices:
        warnings.warn(notice, RaindropWarning, stacklevel=5)
    number = parsed.to_physical().cast(pl.Float64) if parsed.dtype == pl.Datetime else parsed
    return number.fill_null(np.nan).to_numpy(), describe_time_type(parsed.dtype) if parsed.count() else ""


def _plain_columns(readings: Any, time_unit: TimeUnit) -> Mapping[str, list[Any]] | None:
    """A mapping of short lists of plain names and finite numbers, unchanged; None if a frame is needed.

    For a few readings, building and checking a frame takes a hundred times longer.
    """
    if not isinstance(readings, Mapping) or not COLUMNS.keys() <= readings.keys():
        return None
    columns = [readings[name] for name in COLUMNS]
    if not all(type(column) is list and 0 < len(column) == len(columns[0]) <= MAX_PLAIN for column in columns):
        return None
    sample, time, sensor, value = columns
    named = all(type(name) is str and PLAIN_NAME.fullmatch(name) for column in (sample, sensor) for name in column)
    longest = LONGEST / SECONDS[time_unit]  # larger numbers may be seconds since 1970
    finite = named and all(type(x) in (int, float) and -longest <= x <= longest for x in time)
    if not finite or not all(type(x) in (int, float) and -LARGEST <= x <= LARGEST for x in value):
        return None
    return dict(zip(COLUMNS, columns, strict=True))


def _codes(names: list[str]) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct names in order of first occurrence, and the position of each row's name among them."""
    position: dict[str, int] = {}
    codes = [position.setdefault(name, len(position)) for name in names]
    return list(position), np.array(codes, dtype=np.int64)


def _refuse(wrong: NDArray[np.bool_], frame: pl.DataFrame, fault: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{READINGS}: {format_count(int(wrong.sum()), len(wrong), 'rows')} {fault} (first: row {row + 1:,}, sample "
            f"'{frame['sample'][row]}', sensor '{frame['sensor'][row]}'); nothing of this push is stored."
        )


@dataclass(frozen=True)
class Attributes:
    """Attributes of samples: statics of the model, and the cutoff and reference of their times."""

    ids: list[str]
    statics: dict[str, list[Any]]
    times: dict[str, Float64]  # "cutoff" and "reference", NaN where unknown
    clock: str

    @classmethod
    def from_frame(cls, samples: Any, scaler: Scaler, time_unit: TimeUnit) -> Attributes:
        """From a frame, or a mapping of columns, with `sample` and any statics of the model, `cutoff`, `reference`.

        Other columns are ignored, like columns without a role in a table.
        """
        frame = to_polars(samples, SAMPLES)
        require_columns(frame, {"sample": "sample"}, SAMPLES)
        ids = ids_as_text(frame["sample"], "sample", SAMPLES)
        if ids.null_count() or ids.n_unique() < len(ids):
            raise DataError(
                f"{SAMPLES}: each row needs a sample id, and each id one row; {len(ids):,} rows have others."
            )
        require_printable(ids, "sample ids", SAMPLES)
        statics = {}
        for column in scaler.statics:
            if column.name in frame.columns:
                statics[column.name] = column.plain(_clean(frame[column.name]))
        times: dict[str, Float64] = {}
        clocks: set[str] = set()
        for name in ("cutoff", "reference"):
            if name in frame.columns:
                times[name], clock = _times(frame[name], time_unit, SAMPLES)
                clocks |= {clock} - {""}
        if len(clocks) > 1:
            raise DataError(f"{SAMPLES}: cutoff and reference are {' and '.join(sorted(clocks))}; give both alike.")
        return cls(ids.to_list(), statics, times, clocks.pop() if clocks else "")

    def entry(self) -> dict[str, Any]:
        """As an entry of a journal."""
        times = {name: column.tobytes() for name, column in self.times.items()}
        return {"ids": self.ids, "statics": self.statics, "times": times, "clock": self.clock}

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Attributes:
        """The attributes that `entry` returned."""
        times = {name: np.frombuffer(column) for name, column in entry["times"].items()}
        return cls(entry["ids"], entry["statics"], times, entry["clock"])


def _clean(column: pl.Series) -> pl.Series:
    return clean_text(column)[0] if column.dtype == pl.String else column
