"""Check that a table's folder is as it was written: cheap checks at every opening, every byte on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, format_count
from raindrop.files import file_checksum
from raindrop.table.blocks import release

BLOCK = 1 << 20  # readings
WHOLE_BLOCKS, SAMPLED_BLOCKS = 128, 64  # up to 128 blocks are all checked; of more, 64 evenly spread ones
CHECKED = "checked: names, counts, and the range of times, sensors and values; --verify compares every byte"
VERIFIED = "verified: every file has the checksum, and the table the fingerprint, that it was written with"


def check_names(folder: Path, files: Sequence[str], sensors: tuple[str, ...], num_readings: int) -> None:
    """Raise unless the Parquet files have these sensors, in this order, and as many readings as the arrays."""
    what = files[0] if len(files) == 1 else f"{Path(files[0]).parent} ({len(files):,} files)"
    rows = 0
    for name in files:
        kind = pl.read_parquet_schema(folder / name).get("sensor")
        if isinstance(kind, pl.Enum) and tuple(kind.categories.to_list()) != sensors:
            raise DataError(
                f"{folder / 'table.json'}: its sensors are not those of {name}, or in another order, so readings would "
                "get the wrong names.\nDelete table.json to read the Parquet files alone, or copy the table again."
            )
        rows += int(pl.scan_parquet(folder / name, glob=False).select(pl.len()).collect().item())
    if rows != num_readings:
        raise DataError(
            f"{folder}: {what} has {rows:,} readings and the folder 'readings' {num_readings:,}. "
            "Delete the folder 'readings' to read the Parquet files instead."
        )


def check_ranges(folder: Path, arrays: Mapping[str, NDArray[Any]], num_sensors: int) -> None:
    """Raise if a time or value is not finite or a sensor code belongs to no sensor; very long arrays are sampled."""
    length = len(arrays["sensor"])
    blocks = np.arange(-(-length // BLOCK))
    if len(blocks) > WHOLE_BLOCKS:
        blocks = np.unique(np.linspace(0, blocks[-1], SAMPLED_BLOCKS).astype(np.int64))
    problems = {
        "sensor": f"sensor codes are outside 0 to {num_sensors - 1:,}",
        "time": "times are not finite",
        "value": "values are not finite",
    }
    for name, what in problems.items():
        wrong, first, seen = 0, -1, 0
        for block in blocks:
            part = arrays[name][block * BLOCK : (block + 1) * BLOCK]
            bad = (part < 0) | (part >= num_sensors) if name == "sensor" else ~np.isfinite(part)
            found = np.flatnonzero(bad)
            if len(found) and first < 0:
                first = int(block * BLOCK + found[0])
            wrong, seen = wrong + len(found), seen + len(part)
            release(arrays[name])
        if wrong:
            raise DataError(
                f"{folder / 'readings' / name}.npy: {format_count(wrong, seen, what)} (first: reading {first:,}); the "
                "file is damaged.\nDelete the folder 'readings' to read the Parquet files instead."
            )


def check_checksums(folder: Path, written: Mapping[str, tuple[int, str]]) -> bool:
    """Raise unless every file is, byte for byte, the one that was written, whatever its size; else return True."""
    for name, (_, checksum) in written.items():
        if not (folder / name).exists() or file_checksum(folder / name) != checksum:
            raise DataError(
                f"{folder / name}: not the file that was written with this table; damaged, edited or missing.\n"
                "Copy the table again, or write it again from its source."
            )
    return True


def check_fingerprint(folder: Path, found: str, written: str) -> None:
    """Raise unless a table has the fingerprint that its folder was written with."""
    if found != written:
        raise DataError(
            f"{folder}: the table is not the one that was written (its fingerprint is {found}, not {written}).\n"
            "Copy the table again, or write it again from its source."
        )
