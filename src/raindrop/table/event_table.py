"""EventTable: the readings of many samples, each sensor at its own times."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import DataError, check_choice, suggest
from raindrop.table.adapters.meds import is_meds
from raindrop.table.blocks import blocks_of, copied, is_large, is_many, release
from raindrop.table.build import SortedReadings
from raindrop.table.constructors import Constructors, check_options
from raindrop.table.display import to_html
from raindrop.table.fingerprint import fingerprint_of
from raindrop.table.folder_checks import check_checksums, check_fingerprint
from raindrop.table.frame_files import find_file, read_frame, read_frames
from raindrop.table.frames import require_columns, to_name_tuple, to_pandas
from raindrop.table.indexing import reading_mask, sample_positions
from raindrop.table.parts import files_beside, write_arrays, write_parts
from raindrop.table.relative_time import TIME_ZERO
from raindrop.table.sample_columns import class_labels, encode_column, group_codes, missing_to_null
from raindrop.table.sensor_info import check_sensor_info, read_sensor_info
from raindrop.table.splits import stratified_parts
from raindrop.table.store import (
    ARRAYS,
    Roles,
    TableInfo,
    Writer,
    arrays_are_usable,
    find_events,
    new_table_folder,
    open_arrays,
    parquet_is_unchanged,
    read_filled,
    read_info,
    require_folder,
    write_table,
)
from raindrop.table.time_columns import SECONDS, TimeUnit


@dataclass(frozen=True, eq=False)
class EventTable(Constructors):
    """Readings sorted by (sample, time, sensor), and one row per sample.

    time, sensor, value: all readings, possibly memory-mapped and shared between tables;
    start, count: where each sample's readings are in these arrays, so that selecting samples copies no reading.
    """

    time: NDArray[np.float64]
    sensor: NDArray[np.int32]
    value: NDArray[np.float64]
    start: NDArray[np.int64]
    count: NDArray[np.int64]
    sensors: tuple[str, ...]
    samples: pl.DataFrame
    roles: Roles = field(default_factory=Roles)
    time_unit: TimeUnit = "hours"
    dropped: Mapping[str, int] = field(default_factory=dict)
    """The number of readings that were left out when the table was built, by reason."""
    filled: NDArray[np.bool_] | None = None
    """Which of the readings were predicted rather than measured; None if none were."""
    notices: tuple[str, ...] = ()
    """Guesses made while building the table, one sentence each."""
    sensor_info: pl.DataFrame | None = None
    """Attributes of the sensors, one row each with the column `sensor`; see `sensor_columns`."""

    # ---------------------------------------------------------------- building

    @classmethod
    def _from_built(cls, built: SortedReadings) -> EventTable:
        return cls(**vars(built))

    @classmethod
    def read(cls, folder: str | os.PathLike[str], *, verify: bool = False, **options: Any) -> EventTable:
        """The table in a folder: `events.parquet|csv` and `samples.parquet|csv`; or in one file, or in a MEDS folder.

        `sensors.parquet|csv`, if present, describes the sensors (`sensor_columns`).

        A folder written by `write` is opened memory-mapped, with the roles it was written with; `label`, `statics` and
        `group` may be changed. For any other folder, or if its Parquet files were edited since, `options` are those of
        `from_frames`. With `verify`, every byte of a folder written by `write` is compared with its checksum.
        """
        check_options(cls, options)
        options = {name: value for name, value in options.items() if value is not None}
        if Path(folder).is_file():
            return cls.from_files(folder, **options)
        folder = require_folder(folder)
        event_paths, samples_path = find_events(folder), find_file(folder, "samples")
        if not event_paths:
            if is_meds(folder):
                return cls.from_meds(folder, **options)
            raise DataError(
                f"{folder}: there is no events.parquet or events.csv; {suggest('events', sorted(os.listdir(folder)))}\n"
                "Other files become a table with 'raindrop import FILES --out FOLDER' (EventTable.from_files)."
            )
        info = read_info(folder)
        if info is not None:
            if verify and check_checksums(folder, info.written) and arrays_are_usable(folder, info):
                check_fingerprint(folder, cls._open(folder, info).fingerprint, info.fingerprint)
            if set(options) <= {"label", "statics", "group"} and arrays_are_usable(folder, info):
                return cls._open(folder, info).with_roles(**options)._with_info_of(folder)
            options = info.options_to_rebuild() | options
        unchanged = info is not None and parquet_is_unchanged(folder, info)
        events = read_frames(event_paths)
        samples, notices = None, list(events.notices)
        if samples_path.exists():
            about = read_frame(samples_path, ids=(options.get("sample", "sample"),))
            samples = about.frame
            notices += about.notices
        if info is not None and (unchanged or not len(events.frame)):  # keep the order of all sensors
            options.setdefault("sensors", info.sensors)
        if events.is_text:
            options.setdefault("missing", "drop")
        source = event_paths[0] if len(event_paths) == 1 else event_paths[0].parent
        options.setdefault("source", (str(source), str(samples_path)))
        table = cls.from_frames(events.frame, samples, notices=notices, **options)
        if info and unchanged:
            table = replace(table, dropped={**info.dropped, **table.dropped})
        return table if table.sensor_info is not None else table._with_info_of(folder)

    def _with_info_of(self, folder: Path) -> EventTable:
        return replace(self, sensor_info=read_sensor_info(folder, self.sensors))

    @classmethod
    def _open(cls, folder: Path, info: TableInfo) -> EventTable:
        """The table that `write` wrote, memory-mapped."""
        samples = read_frame(folder / "samples.parquet").frame
        arrays = open_arrays(folder, info, len(samples))
        offsets = np.asarray(arrays["offsets"])
        return cls(
            time=arrays["time"],
            sensor=arrays["sensor"],
            value=arrays["value"],
            start=offsets[:-1],
            count=np.diff(offsets),
            sensors=info.sensors,
            samples=samples,
            roles=info.roles,
            time_unit=info.time_unit,
            dropped=info.dropped,
            filled=read_filled(folder, info),
            notices=info.notices,
        )

    # ---------------------------------------------------------------- content

    def __len__(self) -> int:
        return len(self.count)

    @property
    def shape(self) -> tuple[int]:
        """(samples,); scikit-learn needs it to index a table like an array."""
        return (len(self),)

    @property
    def num_readings(self) -> int:
        """The number of readings of all samples."""
        return int(self.count.sum())

    @cached_property
    def ids(self) -> list[str]:
        """Sample ids, in order."""
        return self.samples["sample"].to_list()

    @property
    def offsets(self) -> NDArray[np.int64]:
        """CSR offsets: sample b has the readings offsets[b] to offsets[b + 1] of `rows()`."""
        return np.concatenate([[0], np.cumsum(self.count)])

    @property
    def labels(self) -> NDArray[Any]:
        """One label per sample; raises if a label is missing."""
        name = self.roles.label
        if name is None:
            raise DataError(
                "The table has no label. Name the label column with label='NAME'; "
                f"{suggest('label', self.samples.columns[1:])}"
            )
        return class_labels(self.samples[name], self.samples["sample"])

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """(samples,) whether each sample has a label."""
        if self.roles.label is None:
            return np.zeros(len(self), dtype=bool)
        return missing_to_null(self.samples[self.roles.label]).is_not_null().to_numpy(writable=True)

    @property
    def time_zero(self) -> pl.Series | None:
        """(samples,) the date time that the times of each sample count from; None if times are not from dates."""
        if TIME_ZERO not in self.samples.columns:
            return None
        zero = self.samples[TIME_ZERO]
        if zero.dtype != pl.Datetime:
            raise DataError(
                f"The column '{TIME_ZERO}' of the samples is of type {zero.dtype}. It needs date times: cast it to "
                "pl.Datetime, or give it when the table is built, which parses text."
            )
        return zero

    @property
    def sensor_columns(self) -> pl.DataFrame:
        """Attributes of the sensors: one row for each of `sensors`, in order; null where nothing is known.

        The first column is `sensor`; `x` and `y`, if present, are positions. A model of readings uses
        those that `model.sensor_facts` names.
        """
        names = pl.DataFrame({"sensor": pl.Series(self.sensors, dtype=pl.String)})
        if self.sensor_info is None:
            return names
        return names.join(self.sensor_info, on="sensor", how="left", maintain_order="left")

    def with_sensor_info(self, info: Any) -> EventTable:
        """The same table with these attributes of its sensors: a frame with the column `sensor`, and any others."""
        return replace(self, sensor_info=check_sensor_info(info, self.sensors))

    def rows(self, positions: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Indices into `time`, `sensor` and `value`: the readings of the samples at `positions`, sample by sample."""
        start, count = (self.start, self.count) if positions is None else (self.start[positions], self.count[positions])
        ends = np.cumsum(count)
        return np.repeat(start - (ends - count), count) + np.arange(ends[-1] if len(ends) else 0)

    def blocks(self) -> Iterator[EventTable]:
        """The table in blocks of consecutive samples with a bounded number of readings; one block if it is not large.

        If the table is on disk, the memory of a block is released when the next one is requested.
        """
        return blocks_of(self)

    def in_memory(self) -> EventTable:
        """The same table with only its own readings, in memory; itself if it is not part of a large table."""
        return replace(self, **copied(self)) if is_large(self.time) else self

    def release(self) -> None:
        """Release the memory of readings that are on disk; they are read again when needed."""
        release(self.time, self.sensor, self.value)

    def events(self) -> pl.DataFrame:
        """The readings as a frame: sample, time, sensor, value, and `filled` if some were predicted."""
        rows = self.rows()
        position = np.repeat(np.arange(len(self)), self.count)
        names = pl.Series(self.sensors, dtype=pl.Enum(self.sensors))
        filled = {} if self.filled is None else {"filled": self.filled[rows]}
        return pl.DataFrame(
            {
                "sample": self.samples["sample"].gather(position),
                "time": self.time[rows],
                "sensor": names.gather(self.sensor[rows]) if len(rows) else names.clear(),
                "value": self.value[rows],
                **filled,
            }
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the readings, samples, roles and time unit."""
        return fingerprint_of(self)

    def head(self, n: int = 5) -> pl.DataFrame:
        """The first `n` readings as a frame."""
        first = int(np.searchsorted(np.cumsum(self.count), n)) + 1  # number of samples that contain them
        return self[:first].events().head(n)

    def to_polars(self) -> pl.DataFrame:
        """The readings as a polars frame, the same as `events()`; `samples` has the samples."""
        return self.events()

    def to_pandas(self) -> Any:
        """The readings as a pandas frame; sample ids and sensors are categories, which takes little memory."""
        return to_pandas(self.events().with_columns(pl.col("sample").cast(pl.Categorical)), "to_pandas")

    def __repr__(self) -> str:
        label = f", label '{self.roles.label}'" if self.roles.label else ""
        return f"EventTable({len(self):,} samples, {len(self.sensors)} sensors, {self.num_readings:,} readings{label})"

    def _repr_html_(self) -> str:
        about = (self.count, self.sensors, self.samples, self.roles, self.time_unit, self.notices)
        return to_html(*about, first=self.head())

    # ---------------------------------------------------------------- selecting

    def __getitem__(self, key: Any) -> EventTable:
        """A table of the samples at a position, slice, mask or list of positions, or with these ids."""
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:  # how scikit-learn indexes rows
            key = key[0]
        ids = self.samples["sample"]
        selected = np.arange(len(self))[key] if isinstance(key, slice) else sample_positions(key, ids)
        return replace(self, start=self.start[selected], count=self.count[selected], samples=self.samples[selected])

    def where(self, keep: pl.Expr | ArrayLike | Callable[[pl.DataFrame], Any]) -> EventTable:
        """A table of the readings where `keep` is true, with all samples and sensors.

        `keep` is a polars expression over sample, time, sensor and value, a boolean mask over `events()`, or a function
        from that frame to either.
        """
        mask = reading_mask(keep, self.events, self.num_readings)
        rows = self.rows()[mask]
        position = np.repeat(np.arange(len(self)), self.count)[mask]
        count = np.bincount(position, minlength=len(self)).astype(np.int64)
        return replace(
            self,
            time=self.time[rows],
            sensor=self.sensor[rows],
            value=self.value[rows],
            filled=None if self.filled is None else self.filled[rows],
            start=np.cumsum(count) - count,
            count=count,
        )

    def split(
        self, parts: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int = 0, by: str | None = None
    ) -> tuple[EventTable, ...]:
        """Split the samples at random into parts with these shares and the same mix of labels.

        `by` (default: the table's group) is a column of the samples table; samples with the same value stay in the same
        part.
        """
        groups = None
        by = by or self.roles.group
        if by is not None:
            require_columns(self.samples, {"by": by}, "samples")
            groups = group_codes(self.samples[by], self.samples["sample"])
        strata = (
            np.zeros(len(self), dtype=np.int64)
            if self.roles.label is None
            else encode_column(self.samples[self.roles.label])
        )
        return tuple(self[part] for part in stratified_parts(strata, parts, seed, groups))

    def with_roles(
        self, *, label: str | None = None, statics: Sequence[str] | None = None, group: str | None = None
    ) -> EventTable:
        """The same table with other columns as label, statics or group."""
        roles = replace(
            self.roles,
            label=label or self.roles.label,
            statics=self.roles.statics if statics is None else to_name_tuple(statics, "statics"),
            group=group or self.roles.group,
        )
        require_columns(self.samples, roles.columns, "samples")
        return replace(self, roles=roles)

    def with_labels(self, labels: ArrayLike) -> EventTable:
        """The same table with these labels, one per sample, in a column named 'label'."""
        column = np.asarray(labels)
        if column.shape != (len(self),):
            raise DataError(f"There are {len(self):,} samples, but labels of shape {column.shape}.")
        try:
            samples = self.samples.with_columns(pl.Series("label", column.tolist()))
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"The labels cannot be one column ({str(error).splitlines()[0]}). Give text, numbers or true/false."
            ) from None
        return replace(self, samples=samples, roles=replace(self.roles, label="label"))

    def measured(self) -> EventTable:
        """The table without readings that were filled in."""
        if self.filled is None:
            return self
        return replace(self.where(~self.filled[self.rows()]), filled=None)

    def in_unit(self, unit: TimeUnit) -> EventTable:
        """The same table with times (and the cutoff) in seconds, minutes, hours or days."""
        check_choice(unit, TimeUnit, "time_unit")
        if unit == self.time_unit:
            return self
        factor = SECONDS[self.time_unit] / SECONDS[unit]
        cutoff = [pl.col(self.roles.cutoff) * factor] if self.roles.cutoff else []
        return replace(self, time=self.time * factor, time_unit=unit, samples=self.samples.with_columns(cutoff))

    # ---------------------------------------------------------------- writing

    def write(
        self, folder: str | os.PathLike[str], *, overwrite: bool = False, beside: Mapping[str, Writer] | None = None
    ) -> Path:
        """Write the table as a folder: Parquet files, arrays in `readings/` for memory-mapping, and `table.json`.

        The readings of a large table are written block by block, to several files. `overwrite` replaces a table, but
        never a folder with other files. `beside`: writers of additional files, by name.
        """
        beside = files_beside(self) | dict(beside or {})
        with new_table_folder(Path(folder), overwrite, beside) as partial:
            if is_many(self.num_readings):
                opened = write_arrays(partial, self.blocks(), filled=self.filled is not None)
                compact = replace(self, **opened, start=np.cumsum(self.count) - self.count)
                write_parts(partial, compact, self.info(), beside)
            else:
                rows = self.rows()
                arrays = {name: self.offsets if name == "offsets" else getattr(self, name)[rows] for name in ARRAYS}
                write_table(partial, self.info(), self.events(), self.samples, arrays, beside)
        return Path(folder)

    def info(self) -> TableInfo:
        """The content of `table.json`."""
        about = {name: getattr(self, name) for name in ("time_unit", "sensors", "roles", "notices", "fingerprint")}
        return TableInfo(dropped=dict(self.dropped), **about)
