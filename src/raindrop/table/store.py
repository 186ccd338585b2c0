"""A table as a folder: which files it has, how they are read, and whether they have changed since they were written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError
from raindrop.files import atomic_folder, content_checksum, file_checksum, read_json, to_json, write_json
from raindrop.table.blocks import release
from raindrop.table.folder_checks import check_names, check_ranges
from raindrop.table.frame_files import find_file
from raindrop.table.time_columns import TimeUnit

FORMAT, FORMAT_OF_PARTS = 2, 3  # 3 is the same with several files of readings
READABLE_FORMATS = (1, 2, 3)  # format 1 (raindrop 0.1) has float32 arrays: its table is rebuilt from the Parquet files
ARRAYS = {"offsets": np.int64, "time": np.float64, "sensor": np.int32, "value": np.float64}
ARRAY_FILES = tuple(f"readings/{name}.npy" for name in ARRAYS)
Writer = Callable[[Path], object]
"""Writes a file to a path."""
MAX_CHECKSUM_BYTES = 64 * 2**20  # larger files are compared by size and age only, so that opening stays fast


@dataclass(frozen=True)
class Roles:
    """Which columns of the samples table are the label, the statics, the group and the cutoff."""

    label: str | None = None
    statics: tuple[str, ...] = ()
    group: str | None = None
    cutoff: str | None = None
    """Holds numbers on the clock of the readings: the table's time unit since the sample's reference."""

    def __post_init__(self) -> None:
        if self.label is not None and self.label in self.statics:
            raise DataError(f"'{self.label}' is the label; as a static it would give the answer away. Remove it there.")

    @property
    def columns(self) -> dict[str, str]:
        """Role -> column, for the roles that have one."""
        named = {"label": self.label, "group": self.group, "cutoff": self.cutoff}
        return {role: name for role, name in named.items() if name} | {f"statics[{s}]": s for s in self.statics}


@dataclass(frozen=True, kw_only=True)
class TableInfo:
    """The content of `table.json`."""

    format: int = FORMAT
    time_unit: TimeUnit
    sensors: tuple[str, ...]
    roles: Roles
    dropped: dict[str, int]
    notices: tuple[str, ...] = ()
    fingerprint: str
    written: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Size and checksum of each file when it was written."""
    checksum: str = ""
    """Checksum of all other fields; folders of older versions have none."""
    parts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For a large table: the files of readings, each with its number of samples and of readings."""

    @property
    def event_files(self) -> tuple[str, ...]:
        """The files of readings, in the order of the samples."""
        return tuple(self.parts) or ("events.parquet",)

    @property
    def parquet_files(self) -> tuple[str, ...]:
        """The files of readings and the file of samples."""
        return (*self.event_files, "samples.parquet")

    @property
    def files(self) -> tuple[str, ...]:
        """All files with a stored checksum."""
        return (*self.parquet_files, *ARRAY_FILES)

    def content(self) -> dict[str, Any]:
        """The content of `table.json`; a table in one file has no parts."""
        content = asdict(self)
        return content if self.parts else {name: value for name, value in content.items() if name != "parts"}

    def own_checksum(self) -> str:
        """The value of `checksum` when the file is written."""
        return content_checksum(json.loads(to_json(replace(self, checksum="").content())))

    def complete(self, folder: Path) -> TableInfo:
        """The same with sizes and checksums of the files in a folder, and its own checksum."""
        written = {name: ((folder / name).stat().st_size, file_checksum(folder / name)) for name in self.files}
        info = replace(self, written=written)
        return replace(info, checksum=info.own_checksum())

    def options_to_rebuild(self) -> dict[str, Any]:
        """Options of `EventTable.from_frames` for the Parquet files: their times already count from the reference."""
        named = {role: getattr(self.roles, role) or "" for role in ("label", "group", "cutoff")}
        return named | {
            "reference": "",
            "statics": self.roles.statics,
            "time_unit": self.time_unit,
            "before_reference": "keep",
        }


def read_info(folder: Path) -> TableInfo | None:
    """The `table.json` of a folder, or None if it has none."""
    path = folder / "table.json"
    if not path.exists():
        return None
    advice = "Delete it to read the table's Parquet files alone, with reference='' since their times count from it"
    try:
        content = read_json(path)
        if isinstance(content, dict) and content.get("format") not in READABLE_FORMATS:
            raise DataError(
                f"{path}: written in format {content.get('format')!r}, which this version cannot read. "
                f"{advice}, or use the version that wrote it."
            )
        info = msgspec.convert(content, TableInfo)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read ({error}). {advice}.") from None
    if info.checksum and info.checksum != info.own_checksum():
        raise DataError(f"{path}: changed since the table was written (its checksum does not fit). {advice}.")
    if set(info.written) != set(info.files):
        raise DataError(f"{path}: does not list the files {', '.join(info.files)}. {advice}.")
    return info


def replaceable_files(folder: Path, beside: Collection[str] = ()) -> set[str]:
    """The files of a table in a folder and those written `beside` it: what `write` may replace. Empty if none.

    A folder without a readable `table.json` was not written by this library.
    """
    try:
        written = read_info(folder)
    except DataError:
        return set()
    return set() if written is None else {"table.json", "conversion.json", "sensors.parquet", *written.files, *beside}


@contextmanager
def new_table_folder(folder: Path, overwrite: bool, beside: Collection[str]) -> Iterator[Path]:
    """A temporary folder to write a table to; renamed when complete, replacing an existing table if `overwrite`.

    beside: names of additional files that are written with the table, and replaced with it.
    """
    with atomic_folder(folder, overwrite=replaceable_files(folder, beside) if overwrite else None) as partial:
        yield partial


def write_table(
    folder: Path,
    info: TableInfo,
    events: pl.DataFrame,
    samples: pl.DataFrame,
    arrays: Mapping[str, NDArray[Any]],
    beside: Mapping[str, Writer],
) -> None:
    """Write the Parquet files, then the arrays, the files beside them and `table.json`."""
    events.write_parquet(folder / "events.parquet", compression="zstd")
    samples.write_parquet(folder / "samples.parquet", compression="zstd")
    (folder / "readings").mkdir()
    for name, array in arrays.items():
        np.save(folder / "readings" / f"{name}.npy", array)
    for name, write in beside.items():
        write(folder / name)
    write_json(folder / "table.json", info.complete(folder).content())


def arrays_are_usable(folder: Path, info: TableInfo) -> bool:
    """Whether `readings/` exists, in the current format, and the Parquet files are as `write` left them."""
    if info.format not in (FORMAT, FORMAT_OF_PARTS) or not (folder / "readings").is_dir():
        return False
    return all((folder / name).exists() and _is_unchanged(folder, name, info) for name in info.parquet_files)


def parquet_is_unchanged(folder: Path, info: TableInfo) -> bool:
    """Whether all Parquet files are as `write` left them, by their checksums however large they are."""
    names = info.parquet_files
    return all((folder / name).exists() and file_checksum(folder / name) == info.written[name][1] for name in names)


def _is_unchanged(folder: Path, name: str, info: TableInfo) -> bool:
    path, (size, checksum) = folder / name, info.written[name]
    if path.stat().st_size != size:
        return False
    together = sum(info.written[part][0] for part in info.parts) if name in info.parts else size
    if together > MAX_CHECKSUM_BYTES:  # the offsets are written last, so a Parquet file edited later is newer
        offsets = folder / "readings" / "offsets.npy"
        if name in ARRAY_FILES or (offsets.exists() and path.stat().st_mtime_ns < offsets.stat().st_mtime_ns):
            return True
    return file_checksum(path) == checksum


def open_arrays(folder: Path, info: TableInfo, num_samples: int) -> dict[str, NDArray[Any]]:
    """The arrays of `readings/`, memory-mapped unless they are tiny."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype in ARRAYS.items():
        path = folder / "readings" / f"{name}.npy"
        try:
            valid = _is_unchanged(folder, f"readings/{name}.npy", info)
            if valid:
                arrays[name] = np.load(path, mmap_mode="r" if path.stat().st_size > 1024 else None)
                valid = arrays[name].dtype == dtype and arrays[name].ndim == 1
        except Exception:  # a damaged header makes numpy raise almost anything
            valid = False
        if not valid:
            raise DataError(
                f"{path}: damaged or missing. Delete the folder 'readings' to read the Parquet files instead."
            )
    offsets = arrays["offsets"]
    lengths = {len(arrays[name]) for name in ("time", "sensor", "value")}
    if len(offsets) != num_samples + 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any() or lengths != {offsets[-1]}:
        raise DataError(
            f"{folder}: 'readings' and 'samples.parquet' disagree. "
            "Delete the folder 'readings' to read the Parquet files instead."
        )
    check_names(folder, info.event_files, info.sensors, int(offsets[-1]))
    check_ranges(folder, arrays, len(info.sensors))
    release(*arrays.values())
    return arrays


def read_filled(folder: Path, info: TableInfo) -> NDArray[np.bool_] | None:
    """Which of the written readings are marked as filled; None if none can be."""
    paths = [folder / name for name in info.event_files]
    if "filled" not in pl.read_parquet_schema(paths[0]):
        return None
    return np.concatenate([pl.read_parquet(path, columns=["filled"])["filled"].to_numpy() for path in paths])


def find_events(folder: Path) -> list[Path]:
    """The files of readings in a folder: events.parquet, events.csv, or the parts of a large table; may be empty."""
    single = find_file(folder, "events")
    return [single] if single.exists() else sorted((folder / "events").glob("part-*.parquet"))


def require_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder as a path; raises unless it exists."""
    path = Path(folder)
    if path.is_dir():
        return path
    reason = f"this is a file; give its folder, {path.parent}" if path.exists() else "there is no such folder"
    raise DataError(f"{path}: {reason}. A table is a folder with events.parquet or events.csv.")
