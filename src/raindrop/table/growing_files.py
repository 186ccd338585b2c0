"""Files that are written block by block: only one block is in memory, and a file gets its name when complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from raindrop.files import atomic_file, temporary_folder
from raindrop.table.csv_text import write_csv

Append = Callable[[pl.DataFrame], None]
"""Appends the rows of a frame; all frames of a file have the same columns."""
ROW_GROUP = 1 << 20  # rows of a Parquet file that are compressed together


@contextmanager
def growing_file(
    path: str | os.PathLike[str], *, overwrite: bool = True, for_spreadsheets: bool = False
) -> Iterator[Append]:
    """Write a Parquet or CSV file, depending on its suffix, from one or more appended frames.

    If the block fails, no file is created and an existing one is unchanged. overwrite: whether a file with other data
    may be replaced. for_spreadsheets: escape text of a CSV file that would start a formula.
    """
    path = Path(path)
    with (
        atomic_file(path, overwrite=overwrite) as partial,
        growing_rows(partial, path, for_spreadsheets=for_spreadsheets) as append,
    ):
        yield append


@contextmanager
def growing_rows(partial: Path, path: Path, *, for_spreadsheets: bool = False) -> Iterator[Append]:
    """The same at a temporary path that will be renamed to `path`; it is complete when the block ends."""
    with (
        _growing_csv(partial, for_spreadsheets) if path.suffix == ".csv" else _growing_parquet(partial, path) as append
    ):
        yield append


@contextmanager
def _growing_csv(partial: Path, for_spreadsheets: bool) -> Iterator[Append]:
    with open(partial, "wb") as file:

        def append(frame: pl.DataFrame) -> None:
            if for_spreadsheets:
                write_csv(frame, file, include_header=file.tell() == 0)
            else:
                frame.write_csv(file, include_header=file.tell() == 0)

        yield append


@contextmanager
def _growing_parquet(partial: Path, path: Path) -> Iterator[Append]:
    """Frames are first written to separate files, and then copied into the final one, a few row groups at a time."""
    with temporary_folder(path) as folder:
        parts: list[Path] = []

        def append(frame: pl.DataFrame) -> None:
            parts.append(folder / f"{len(parts):06d}.parquet")
            frame.write_parquet(parts[-1], compression="zstd")

        yield append
        if len(parts) == 1:
            os.replace(parts[0], partial)
        else:
            pl.scan_parquet(parts).sink_parquet(partial, compression="zstd", row_group_size=ROW_GROUP)
