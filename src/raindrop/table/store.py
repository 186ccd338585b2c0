"""A table as a folder: which files it has, how they are read, and whether they changed since they were written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError
from raindrop.files import atomic_folder, content_checksum, file_checksum, read_json, to_json, write_json
from raindrop.table.folder_checks import check_names, check_ranges
from raindrop.table.time_columns import TimeUnit

FORMAT = 2
READABLE_FORMATS = (1, 2)  # format 1 (raindrop 0.1) has float32 arrays: its table is rebuilt from the Parquet files
ARRAYS = {"offsets": np.int64, "time": np.float64, "sensor": np.int32, "value": np.float64}
PARQUET = ("events.parquet", "samples.parquet")
FILES = (*PARQUET, *(f"readings/{name}.npy" for name in ARRAYS))
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
    """Of all other fields; the folders of older versions have none."""

    def own_checksum(self) -> str:
        """What `checksum` is when the file is written."""
        return content_checksum(json.loads(to_json(asdict(replace(self, checksum="")))))

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
    if set(info.written) != set(FILES):
        raise DataError(f"{path}: does not list the files {', '.join(FILES)}. {advice}.")
    return info


def replaceable_files(folder: Path, beside: Collection[str] = ()) -> set[str]:
    """The files of a table in a folder, with those written `beside` it: what `write` may replace. None if it has none.

    A folder without a readable `table.json` was not written by this library.
    """
    try:
        written = read_info(folder)
    except DataError:
        return set()
    return set() if written is None else {"table.json", "conversion.json", "sensors.parquet", *FILES, *beside}


def write_table(
    folder: Path,
    info: TableInfo,
    events: pl.DataFrame,
    samples: pl.DataFrame,
    arrays: Mapping[str, NDArray[Any]],
    overwrite: bool,
    beside: Mapping[str, Writer],
) -> Path:
    """Write the Parquet files, then the arrays, the files beside them and `table.json`; the folder appears complete."""
    with atomic_folder(folder, overwrite=replaceable_files(folder, beside) if overwrite else None) as partial:
        events.write_parquet(partial / "events.parquet", compression="zstd")
        samples.write_parquet(partial / "samples.parquet", compression="zstd")
        (partial / "readings").mkdir()
        for name, array in arrays.items():
            np.save(partial / "readings" / f"{name}.npy", array)
        written = {name: ((partial / name).stat().st_size, file_checksum(partial / name)) for name in FILES}
        for name, write in beside.items():
            write(partial / name)
        info = replace(info, written=written)
        write_json(partial / "table.json", asdict(replace(info, checksum=info.own_checksum())))
    return folder


def arrays_are_usable(folder: Path, info: TableInfo) -> bool:
    """Whether `readings/` exists, in the current format, and the Parquet files are as `write` left them."""
    if info.format != FORMAT or not (folder / "readings").is_dir():
        return False
    return all((folder / name).exists() and _is_unchanged(folder, name, info) for name in PARQUET)


def parquet_is_unchanged(folder: Path, info: TableInfo) -> bool:
    """Whether both Parquet files are as `write` left them, by their checksums however large they are."""
    return all((folder / name).exists() and file_checksum(folder / name) == info.written[name][1] for name in PARQUET)


def _is_unchanged(folder: Path, name: str, info: TableInfo) -> bool:
    path, (size, checksum) = folder / name, info.written[name]
    if path.stat().st_size != size:
        return False
    if size > MAX_CHECKSUM_BYTES:  # the arrays are written last: an edited Parquet file is younger than they are
        arrays = folder / "readings" / "offsets.npy"
        return name not in PARQUET or (arrays.exists() and path.stat().st_mtime_ns < arrays.stat().st_mtime_ns)
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
    check_names(folder, info.sensors, int(offsets[-1]))
    check_ranges(folder, arrays, len(info.sensors))
    return arrays


def read_filled(folder: Path) -> NDArray[np.bool_] | None:
    """Which of the written readings are marked as filled; None where none can be."""
    path = folder / "events.parquet"
    if "filled" not in pl.read_parquet_schema(path):
        return None
    return pl.read_parquet(path, columns=["filled"])["filled"].to_numpy()


def require_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder as a path; an error unless it exists."""
    path = Path(folder)
    if path.is_dir():
        return path
    reason = f"this is a file; give its folder, {path.parent}" if path.exists() else "there is no such folder"
    raise DataError(f"{path}: {reason}. A table is a folder with events.parquet or events.csv.")
