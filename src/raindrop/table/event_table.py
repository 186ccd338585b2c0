"""EventTable: the readings of many samples, each sensor at its own times."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import DataError, count_of, suggest
from raindrop.files import atomic_folder, write_json
from raindrop.table.build import (
    BeforeReference,
    Duplicates,
    Unlisted,
    names_of,
    one_of,
    require_columns,
    sort_readings,
    to_polars,
)
from raindrop.table.indexing import positions
from raindrop.table.labels import classes_of, codes_of, missing_as_null
from raindrop.table.splits import stratified_parts
from raindrop.table.store import (
    ARRAYS,
    FORMAT,
    About,
    Roles,
    arrays_are_usable,
    find,
    folder_of_table,
    open_arrays,
    parquet_is_unchanged,
    read_about,
    read_frame,
    stamp,
)
from raindrop.table.time_columns import SECONDS, TimeUnit


@dataclass(frozen=True, eq=False)
class EventTable:
    """Readings sorted by (sample, time, sensor), and one row per sample.

    time, sensor, value: every reading, possibly memory-mapped and shared between tables;
    start, count: where each sample's readings lie in them, so that choosing samples copies nothing.
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
    """How many readings were left out when the table was built, by reason."""

    # ---------------------------------------------------------------- building

    @classmethod
    def from_frames(
        cls,
        events: Any,
        samples: Any = None,
        *,
        sample: str = "sample",
        time: str = "time",
        sensor: str = "sensor",
        value: str = "value",
        label: str | None = None,
        statics: Sequence[str] | None = None,
        group: str | None = None,
        cutoff: str | None = None,
        reference: str | None = None,
        time_unit: TimeUnit = "hours",
        sensors: Sequence[str] | None = None,
        duplicates: Duplicates = "error",
        before_reference: BeforeReference = "error",
        unlisted: Unlisted = "error",
        source: str | tuple[str, str] | None = None,
    ) -> EventTable:
        """A table from frames (polars, pandas, Arrow, mappings of columns).

        `label`, `group`, `cutoff` and `reference` name columns of `samples`; a column of that very name is taken
        without being named, unless the name given is ''. `statics` must be named: an unnamed column is never fed to
        a model.
        Date times become hours (or `time_unit`) since the sample's `reference`, or since its first reading where
        there is none. `source` says in messages where the tables are from: one name for both, or one each.
        """
        if not isinstance(source, tuple):
            source = (f"{source} events", f"{source} samples") if source else ("events", "samples")
        what, samples_what = source
        frame = to_polars(events, what)
        about = None if samples is None else to_polars(samples, samples_what)
        columns = [] if about is None else about.columns
        named = {"label": label, "group": group, "cutoff": cutoff, "reference": reference}
        taken = {
            role: (role if role in columns else None) if name is None else name or None for role, name in named.items()
        }
        roles = Roles(taken["label"], names_of(statics or (), "statics"), taken["group"], taken["cutoff"])
        wanted = roles.columns | {role: name for role, name in taken.items() if name}
        if about is None and wanted:
            raise DataError(
                f"There is no samples table, but it is asked for {', '.join(wanted.values())}.\n"
                "Give a table with one row per sample that has these columns."
            )
        if about is not None:
            require_columns(about, {"sample": sample, **wanted}, samples_what)
            if sample in wanted.values():
                role = next(role for role, name in wanted.items() if name == sample)
                raise DataError(f"{samples_what}: '{sample}' names the samples; it cannot be their {role} as well.")
        built = sort_readings(
            frame,
            about,
            sample=sample,
            time=time,
            sensor=sensor,
            value=value,
            reference=taken["reference"],
            cutoff=taken["cutoff"],
            time_unit=time_unit,
            sensors=sensors,
            duplicates=duplicates,
            before_reference=before_reference,
            unlisted=unlisted,
            what=what,
            samples_what=samples_what,
        )
        return cls(
            time=built.time,
            sensor=built.sensor,
            value=built.value,
            start=np.cumsum(built.count) - built.count,
            count=built.count,
            sensors=built.sensors,
            samples=built.samples,
            roles=roles,
            time_unit=built.time_unit,
            dropped=built.dropped,
        )

    @classmethod
    def from_columns(
        cls, sample: Any, time: Any, sensor: Any, value: Any, samples: Any = None, **options: Any
    ) -> EventTable:
        """A table from four equally long lists or arrays; `options` are those of `from_frames`."""
        columns = {"sample": sample, "time": time, "sensor": sensor, "value": value}
        for name, column in columns.items():
            if isinstance(column, str) or not hasattr(column, "__len__"):
                raise DataError(f"{name} must be a list or array with one entry per reading, not {column!r}.")
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"The columns must be equally long, but have {lengths}.")
        _check_options(cls, options)
        return cls.from_frames(columns, samples, **options)

    @classmethod
    def read(cls, folder: str | os.PathLike[str], **options: Any) -> EventTable:
        """The table in a folder: `events.parquet|csv` and `samples.parquet|csv`.

        A folder that `write` made opens memory-mapped, with the roles it was written with; `label`, `statics` and
        `group` may be named anew. For any other folder, or one whose Parquet files were edited since, `options` are
        those of `from_frames`.
        """
        _check_options(cls, options)
        options = {name: value for name, value in options.items() if value is not None}
        folder = folder_of_table(folder)
        paths = {name: find(folder, name) for name in ("events", "samples")}
        if not paths["events"].exists():
            raise DataError(
                f"{folder}: there is no events.parquet or events.csv; {suggest('events', sorted(os.listdir(folder)))}"
            )
        about = read_about(folder)
        if about is not None:
            if set(options) <= {"label", "statics", "group"} and arrays_are_usable(folder, about):
                return cls._open(folder, about).with_roles(**options)
            options = _defaults(about) | options
        unchanged = about is not None and parquet_is_unchanged(folder, about)
        events = read_frame(paths["events"], text=True)  # so that a stray word is found and named, not guessed around
        samples = None
        if paths["samples"].exists():
            samples = read_frame(paths["samples"], ids=options.get("sample", "sample"))
        if about is not None and (unchanged or not len(events)):  # sensors keep their order, even without a reading
            options.setdefault("sensors", about.sensors)
        options.setdefault("source", (str(paths["events"]), str(paths["samples"])))
        table = cls.from_frames(events, samples, **options)
        return replace(table, dropped={**about.dropped, **table.dropped}) if about and unchanged else table

    @classmethod
    def _open(cls, folder: Path, about: About) -> EventTable:
        """Memory-map what `write` wrote."""
        samples = read_frame(folder / "samples.parquet")
        arrays = open_arrays(folder, about, len(samples))
        offsets = np.asarray(arrays["offsets"])
        return cls(
            time=arrays["time"],
            sensor=arrays["sensor"],
            value=arrays["value"],
            start=offsets[:-1],
            count=np.diff(offsets),
            sensors=about.sensors,
            samples=samples,
            roles=about.roles,
            time_unit=about.time_unit,
            dropped=about.dropped,
        )

    # ---------------------------------------------------------------- looking

    def __len__(self) -> int:
        return len(self.count)

    @property
    def shape(self) -> tuple[int]:
        """(samples,): lets scikit-learn index a table like an array."""
        return (len(self),)

    @property
    def num_readings(self) -> int:
        """Readings of all samples."""
        return int(self.count.sum())

    @cached_property
    def ids(self) -> list[str]:
        """Sample ids, in order."""
        return self.samples["sample"].to_list()

    @property
    def offsets(self) -> NDArray[np.int64]:
        """CSR offsets: sample b has readings offsets[b] to offsets[b + 1] of `rows(all samples)`."""
        return np.concatenate([[0], np.cumsum(self.count)])

    @property
    def labels(self) -> NDArray[Any]:
        """One label per sample; an error where one is missing."""
        name = self.roles.label
        if name is None:
            raise DataError(
                "The table has no label. Name the label column with label='NAME'; "
                f"{suggest('label', self.samples.columns[1:])}"
            )
        return classes_of(self.samples[name], self.samples["sample"])

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which samples have a label."""
        if self.roles.label is None:
            return np.zeros(len(self), dtype=bool)
        return missing_as_null(self.samples[self.roles.label]).is_not_null().to_numpy(writable=True)

    def rows(self, positions: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Where the readings of the samples at `positions` lie in time, sensor and value, sample after sample."""
        start, count = (self.start, self.count) if positions is None else (self.start[positions], self.count[positions])
        ends = np.cumsum(count)
        return np.repeat(start - (ends - count), count) + np.arange(ends[-1] if len(ends) else 0)

    def events(self) -> pl.DataFrame:
        """The readings as a frame: sample, time, sensor, value."""
        rows = self.rows()
        position = np.repeat(np.arange(len(self)), self.count)
        names = pl.Series(self.sensors, dtype=pl.Enum(self.sensors))
        return pl.DataFrame(
            {
                "sample": self.samples["sample"].gather(position),
                "time": self.time[rows],
                "sensor": names.gather(self.sensor[rows]) if len(rows) else names.clear(),
                "value": self.value[rows],
            }
        )

    @cached_property
    def fingerprint(self) -> str:
        """A short name for exactly these readings, samples and labels."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json.dumps([self.sensors, self.time_unit, asdict(self.roles)]).encode())
        digest.update(self.samples.write_json().encode())
        digest.update(np.ascontiguousarray(self.count).tobytes())
        for chunk in np.array_split(np.arange(len(self)), max(1, self.num_readings // 4_000_000)):
            rows = self.rows(chunk)
            for column in (self.time, self.sensor, self.value):
                digest.update(np.ascontiguousarray(column[rows]).tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        label = f", label '{self.roles.label}'" if self.roles.label else ""
        return f"EventTable({len(self):,} samples, {len(self.sensors)} sensors, {self.num_readings:,} readings{label})"

    # ---------------------------------------------------------------- choosing

    def __getitem__(self, key: Any) -> EventTable:
        """The samples at a position, slice, mask, list of positions, or with these ids."""
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:  # how scikit-learn asks for rows
            key = key[0]
        chosen = np.arange(len(self))[key] if isinstance(key, slice) else positions(key, self.ids)
        return replace(self, start=self.start[chosen], count=self.count[chosen], samples=self.samples[chosen])

    def where(self, keep: pl.Expr | ArrayLike | Callable[[pl.DataFrame], Any]) -> EventTable:
        """Only the readings that `keep` admits; every sample and sensor name stays.

        `keep` is a polars expression over sample, time, sensor and value, a mask over `events()`, or a function of it.
        """
        if callable(keep):
            keep = keep(self.events())
        try:
            mask = self.events().select(keep).to_series() if isinstance(keep, pl.Expr) else keep
        except pl.exceptions.PolarsError as error:
            raise DataError(
                f"where(...): {str(error).splitlines()[0]} (columns: sample, time, sensor, value)"
            ) from None
        admitted = np.asarray(mask)
        if admitted.dtype != bool or admitted.shape != (self.num_readings,):
            raise DataError(
                f"where(...) needs one true or false per reading ({self.num_readings:,}), "
                f"not {admitted.dtype} of shape {admitted.shape}."
            )
        rows = self.rows()[admitted]
        position = np.repeat(np.arange(len(self)), self.count)[admitted]
        count = np.bincount(position, minlength=len(self)).astype(np.int64)
        return replace(
            self,
            time=self.time[rows],
            sensor=self.sensor[rows],
            value=self.value[rows],
            start=np.cumsum(count) - count,
            count=count,
        )

    def split(
        self, parts: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int = 0, by: str | None = None
    ) -> tuple[EventTable, ...]:
        """Cut the samples at random into parts with the same mix of labels.

        `by` names a column of the samples table (or is the table's group) whose values are never cut apart.
        """
        groups = None
        by = by or self.roles.group
        if by is not None:
            require_columns(self.samples, {"by": by}, "samples")
            groups = codes_of(self.samples[by])
            if not groups.all():
                raise DataError(
                    f"{count_of(int((groups == 0).sum()), len(self), 'samples')} have no '{by}' "
                    f"(first: '{self.ids[int(groups.argmin())]}'), "
                    "so their group cannot be kept together.\nFill it in, or leave these samples out."
                )
        strata = (
            np.zeros(len(self), dtype=np.int64)
            if self.roles.label is None
            else codes_of(self.samples[self.roles.label])
        )
        return tuple(self[part] for part in stratified_parts(strata, parts, seed, groups))

    def with_roles(
        self, *, label: str | None = None, statics: Sequence[str] | None = None, group: str | None = None
    ) -> EventTable:
        """The same table with other columns as label, statics or group."""
        roles = replace(
            self.roles,
            label=label or self.roles.label,
            statics=self.roles.statics if statics is None else names_of(statics, "statics"),
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

    def in_unit(self, unit: TimeUnit) -> EventTable:
        """The same table with times counted in seconds, minutes, hours or days."""
        one_of(unit, TimeUnit, "time_unit")
        if unit == self.time_unit:
            return self
        factor = SECONDS[self.time_unit] / SECONDS[unit]
        cutoff = [pl.col(self.roles.cutoff) * factor] if self.roles.cutoff else []
        return replace(self, time=self.time * factor, time_unit=unit, samples=self.samples.with_columns(cutoff))

    # ---------------------------------------------------------------- writing

    def write(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the table as a folder: Parquet for people, `readings/` for memory-mapping, `table.json` for both."""
        folder = Path(folder)
        rows = self.rows()
        with atomic_folder(folder, overwrite=overwrite) as partial:
            self.events().write_parquet(partial / "events.parquet", compression="zstd")
            self.samples.write_parquet(partial / "samples.parquet", compression="zstd")
            (partial / "readings").mkdir()
            for name in ARRAYS:
                array = self.offsets if name == "offsets" else getattr(self, name)[rows]
                np.save(partial / "readings" / f"{name}.npy", array)
            about = About(
                format=FORMAT,
                time_unit=self.time_unit,
                sensors=self.sensors,
                roles=self.roles,
                dropped=dict(self.dropped),
                fingerprint=self.fingerprint,
                written=stamp(partial),
            )
            write_json(partial / "table.json", asdict(about))
        return folder


def _check_options(cls: type[EventTable], options: Mapping[str, Any]) -> None:
    known = list(inspect.signature(cls.from_frames).parameters)[2:]
    for name in options:
        if name not in known:
            raise DataError(f"There is no option '{name}': {suggest(name, known)}")


def _defaults(about: About) -> dict[str, Any]:
    """How to read again what `write` wrote: its times count from the reference already."""
    named = {role: getattr(about.roles, role) or "" for role in ("label", "group", "cutoff")}
    return named | {
        "reference": "",
        "statics": about.roles.statics,
        "time_unit": about.time_unit,
        "before_reference": "keep",
    }
