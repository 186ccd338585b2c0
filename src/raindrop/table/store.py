"""A table as a folder: finding and reading its files, and telling whether they are still as they were written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError
from raindrop.files import file_checksum
from raindrop.table.time_columns import TimeUnit

FORMAT = 2
READABLE_FORMATS = (1, 2)  # format 1 (raindrop 0.1) has float32 arrays: its table is rebuilt from the Parquet files
ARRAYS = {"offsets": np.int64, "time": np.float64, "sensor": np.int32, "value": np.float64}
PARQUET = ("events.parquet", "samples.parquet")
FILES = (*PARQUET, *(f"readings/{name}.npy" for name in ARRAYS))
CHECKED = 64 * 2**20  # bytes; larger files are told apart by size and age alone, so that opening stays quick


@dataclass(frozen=True)
class Roles:
    """Which columns of the samples table mean what."""

    label: str | None = None
    statics: tuple[str, ...] = ()
    group: str | None = None
    cutoff: str | None = None
    """On the clock of the readings: a number of the table's time unit since the sample's reference."""

    def __post_init__(self) -> None:
        if self.label is not None and self.label in self.statics:
            raise DataError(f"'{self.label}' is the label; as a static it would give the answer away. Remove it there.")

    @property
    def columns(self) -> dict[str, str]:
        """Role -> column, of the roles that are taken."""
        named = {"label": self.label, "group": self.group, "cutoff": self.cutoff}
        return {role: name for role, name in named.items() if name} | {f"statics[{s}]": s for s in self.statics}


@dataclass(frozen=True, kw_only=True)
class About:
    """What `table.json` says of the folder it lies in."""

    format: int
    time_unit: TimeUnit
    sensors: tuple[str, ...]
    roles: Roles
    dropped: dict[str, int]
    fingerprint: str
    written: dict[str, tuple[int, str]]
    """Size and checksum of each file."""


def read_about(folder: Path) -> About | None:
    """`table.json` of a folder, None where there is none."""
    path = folder / "table.json"
    if not path.exists():
        return None
    advice = "Delete it to read the table's Parquet files alone, with reference='' since their times count from it"
    try:
        content = msgspec.json.decode(path.read_bytes())
        if isinstance(content, dict) and content.get("format") not in READABLE_FORMATS:
            raise DataError(
                f"{path}: written in format {content.get('format')!r}, which this version cannot read. "
                f"{advice}, or use the version that wrote it."
            )
        about = msgspec.convert(content, About)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}). {advice}.") from None
    if set(about.written) != set(FILES):
        raise DataError(f"{path}: does not list the files {', '.join(FILES)}. {advice}.")
    return about


def stamp(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and checksum of each file of a folder."""
    return {name: ((folder / name).stat().st_size, file_checksum(folder / name)) for name in FILES}


def arrays_are_usable(folder: Path, about: About) -> bool:
    """Whether `readings/` exists, in the current format, and the Parquet files are as `write` left them."""
    if about.format != FORMAT or not (folder / "readings").is_dir():
        return False
    return all((folder / name).exists() and _unchanged(folder, name, about) for name in PARQUET)


def parquet_is_unchanged(folder: Path, about: About) -> bool:
    """Whether both Parquet files are as `write` left them, by their checksums however large they are."""
    return all((folder / name).exists() and file_checksum(folder / name) == about.written[name][1] for name in PARQUET)


def _unchanged(folder: Path, name: str, about: About) -> bool:
    path, (size, checksum) = folder / name, about.written[name]
    if path.stat().st_size != size:
        return False
    if size > CHECKED:  # the arrays are written last, so that a later edit is younger than they
        arrays = folder / "readings" / "offsets.npy"
        return name not in PARQUET or (arrays.exists() and path.stat().st_mtime_ns < arrays.stat().st_mtime_ns)
    return file_checksum(path) == checksum


def open_arrays(folder: Path, about: About, num_samples: int) -> dict[str, NDArray[Any]]:
    """The arrays of `readings/`, memory-mapped but for small ones."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, kind in ARRAYS.items():
        path = folder / "readings" / f"{name}.npy"
        try:
            fits = _unchanged(folder, f"readings/{name}.npy", about)
            if fits:
                arrays[name] = np.load(path, mmap_mode="r" if path.stat().st_size > 1024 else None)
                fits = arrays[name].dtype == kind and arrays[name].ndim == 1
        except Exception:  # a damaged header makes numpy raise almost anything
            fits = False
        if not fits:
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
    return arrays


def find(folder: Path, name: str) -> Path:
    """`name`.parquet or `name`.csv of a folder, whichever exists."""
    parquet, csv = folder / f"{name}.parquet", folder / f"{name}.csv"
    if parquet.exists() and csv.exists():
        raise DataError(f"{folder}: both {parquet.name} and {csv.name} exist; remove one of them.")
    return csv if csv.exists() else parquet


def read_frame(path: Path, *, text: bool = False, ids: str = "sample") -> pl.DataFrame:
    """A Parquet or CSV file; of a CSV, ids stay text (007 is not 7), and with `text` everything else does too."""
    kind = "CSV" if path.suffix == ".csv" else "Parquet"
    try:
        if kind == "Parquet":
            return pl.read_parquet(path, glob=False)
        frame = pl.read_csv(
            path, glob=False, infer_schema_length=0 if text else None, schema_overrides={ids: pl.String}
        )
    except BaseException as error:
        if not isinstance(error, (pl.exceptions.PolarsError, OSError)) and type(error).__name__ != "PanicException":
            raise
        raise DataError(
            f"{path}: not a readable {kind} file; it is empty, damaged, truncated or of another kind "
            f"({str(error).splitlines()[0]}).\nExport or copy it again."
        ) from None
    if frame.width == 1 and any(mark in frame.columns[0] for mark in ";\t|"):
        raise DataError(f"{path}: the columns are not separated by commas. Export it with ',' as separator.")
    return frame


def folder_of_table(folder: str | os.PathLike[str]) -> Path:
    """The folder, which must exist."""
    path = Path(folder)
    if path.is_dir():
        return path
    reason = f"this is a file; give its folder, {path.parent}" if path.exists() else "there is no such folder"
    raise DataError(f"{path}: {reason}. A table is a folder with events.parquet or events.csv.")
