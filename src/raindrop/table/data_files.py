"""Read input files: one or more CSV or Parquet files of readings, a file of samples, or files of arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from raindrop.errors import DataError, suggest
from raindrop.table.frame_files import read_frame, require_file

ARRAY_NAMES = {
    "values": ("values", "X", "x", "data"),
    "times": ("times", "time", "t"),
    "samples": ("samples", "ids", "sample"),
    "sensors": ("sensors", "features", "channels"),
    "labels": ("labels", "label", "y"),
}
"""Names in an .npz file, by argument of `EventTable.from_arrays`."""


@dataclass(frozen=True)
class DataFiles:
    """The content of the files: frames of readings and samples, or the arguments of `EventTable.from_arrays`."""

    events: pl.DataFrame | None = None
    samples: pl.DataFrame | None = None
    source: tuple[str, str] = ("events", "samples")
    notices: tuple[str, ...] = ()
    is_text: bool = False
    arrays: dict[str, Any] | None = None


def read_files(
    paths: Sequence[Path], samples: str | os.PathLike[str] | None, sample: str | None, *, wide: bool
) -> DataFiles:
    """The files as one frame of readings and one of samples; `sample` is the column of sample ids."""
    paths, listed = separate_samples([require_file(path) for path in paths], samples)
    if any(path.suffix in (".npy", ".npz") for path in paths):
        if len(paths) > 1 or listed or wide:
            raise DataError(f"{paths[0]}: a file of arrays is read alone, without other files and without --wide.")
        return DataFiles(arrays=_read_arrays(paths[0]))
    read = [read_frame(path, all_text=True) for path in paths]
    notices = [notice for each in read for notice in each.notices]
    sources = (str(paths[0]) if len(paths) == 1 else f"{len(paths)} files", "samples")
    sample_frame = None
    if listed:
        about = read_frame(require_file(listed), ids=(sample or "sample",))
        sample_frame, sources = about.frame, (sources[0], str(listed))
        notices += about.notices
    events = _concatenate([each.frame for each in read], paths, wide=wide)
    return DataFiles(events, sample_frame, sources, tuple(notices), is_text=any(each.is_text for each in read))


def separate_samples(paths: Sequence[Path], samples: str | os.PathLike[str] | None) -> tuple[list[Path], Path | None]:
    """The files of readings, and the file of samples: the given one, or the one with that name."""
    listed = [path for path in paths if path.stem.lower() == "samples"] if samples is None else [Path(samples)]
    events = [path for path in paths if path not in listed]
    if not events or len(listed) > 1:
        raise DataError(
            f"There must be files of readings and at most one of samples, not {len(events)} and {len(listed)}."
        )
    return events, listed[0] if listed else None


def _concatenate(frames: Sequence[pl.DataFrame], paths: Sequence[Path], *, wide: bool) -> pl.DataFrame:
    """All rows. Files of a long table have the same columns; files of a wide one may lack sensors that others have."""
    for frame, path in zip(frames, paths, strict=True):
        other = [name for name in frames[0].columns if name not in frame.columns]
        if other and not wide:
            raise DataError(
                f"{path}: there is no column '{other[0]}', which {paths[0]} has; {suggest(other[0], frame.columns)}\n"
                "Files that are read as one table have the same columns. A file with one row per sample is called "
                "samples.csv or samples.parquet, or is given with --samples-file (in Python: samples=)."
            )
    if len(frames) == 1:
        return frames[0]
    try:
        return pl.concat(frames if wide else [frame.select(frames[0].columns) for frame in frames],
                         how="diagonal_relaxed" if wide else "vertical_relaxed")  # fmt: skip
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"{paths[0]} and {len(paths) - 1} other files cannot be one table ({str(error).splitlines()[0]}).\n"
            "The same column must have the same type in all of them."
        ) from None


def _read_arrays(path: Path) -> dict[str, Any]:
    """The arguments of `from_arrays` in an .npy or .npz file; pickled objects are never loaded."""
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = {"values": loaded} if path.suffix == ".npy" else {name: loaded[name] for name in loaded.files}
    except Exception as error:  # a damaged file makes numpy raise almost anything
        raise DataError(
            f"{path}: not a readable file of arrays ({str(error).splitlines()[0] if str(error) else 'damaged'}).\n"
            "It must hold plain arrays of numbers or text, not Python objects."
        ) from None
    found = {
        argument: next((name for name in names if name in arrays), None) for argument, names in ARRAY_NAMES.items()
    }
    if found["values"] is None:
        raise DataError(f"{path}: there is no array of values ('values', 'X' or 'data'); {suggest('values', arrays)}")
    unknown = sorted(set(arrays) - set(found.values()))
    if unknown:
        raise DataError(
            f"{path}: array '{unknown[0]}' is not known; {suggest(unknown[0], sum(ARRAY_NAMES.values(), ()))}"
        )
    return {argument: _as_list(arrays[name], argument) for argument, name in found.items() if name is not None}


def _as_list(array: Any, argument: str) -> Any:
    """Names as a list of text; other arrays as they are."""
    return [str(name) for name in array.tolist()] if argument in ("samples", "sensors") else array
