"""Split files: Parquet files by sample id, and the `.npy` files by position that the paper's authors published."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, format_count, reading, suggest
from raindrop.files import atomic_file
from raindrop.table.event_table import EventTable
from raindrop.table.npy_positions import read_positions

MAX_BYTES = 256 << 20
MAX_ROWS = 100_000_000
"""More than any split has; limits the memory that a damaged file can take."""
Positions = NDArray[np.int64]
PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Split:
    """A published or saved split: the samples of each part, by id or by position.

    Positions count the samples of a cohort by ascending number, as in the files of the paper's authors.
    """

    ids: Mapping[str, Sequence[str]] | None
    positions: Mapping[str, Positions] | None
    source: str

    @classmethod
    def read(cls, path: str | os.PathLike[str], number: int | None = None) -> Split:
        """Split `number` of a Parquet file (columns split, part, sample) or of the paper's `.npy` files.

        A `.npy` file holds one split; in a folder of them, `number` is looked up in the file names.
        """
        path = Path(path)
        if not path.exists():
            raise DataError(f"{path}: there is no such split file.")
        if path.is_dir():
            path = _find_numbered_file(path, number)
        if path.suffix == ".npy":
            return cls._from_npy(path, number)
        return cls._from_parquet(path, number)

    @classmethod
    def parse(cls, text: str) -> Split:
        """`FILE:1` is split 1 of FILE; `FILE` alone is the only split in it."""
        path, colon, number = text.rpartition(":")
        if colon and number.isdecimal():
            return cls.read(path, int(number))
        if colon and not Path(text).exists():
            raise DataError(f"'{text}': what follows the colon must be the number of a split, such as FILE:1.")
        return cls.read(text)

    @classmethod
    def from_tables(cls, parts: Sequence[EventTable], source: str = "split") -> Split:
        """The split into these three tables (train, val, test), for `write_splits`."""
        if len(parts) != len(PARTS):
            raise DataError(f"A split has {len(PARTS)} parts ({', '.join(PARTS)}), not {len(parts)}.")
        return cls({part: list(table.ids) for part, table in zip(PARTS, parts, strict=True)}, None, source)

    @classmethod
    def _from_parquet(cls, path: Path, number: int | None) -> Split:
        with reading(path, "a split: the columns split, part and sample"):
            if path.stat().st_size > MAX_BYTES:
                raise DataError(f"{path}: larger than any split ({path.stat().st_size:,} bytes).")
            frame = pl.read_parquet(path, glob=False)
            if frame.height > MAX_ROWS:
                raise DataError(f"{path}: {frame.height:,} rows are more than any split has.")
        id_column = next((name for name in ("sample", "window") if name in frame.columns), None)
        if id_column is None or not {"split", "part"} <= set(frame.columns):
            raise DataError(
                f"{path}: a split file has the columns split, part and sample; this one has {', '.join(frame.columns)}."
            )
        with reading(path, "a split: whole numbers in the column split, text in the others"):
            frame = frame.select(pl.col("split").cast(pl.Int64), pl.col("part", id_column).cast(pl.String))
            if any(frame.null_count().row(0)):
                raise DataError(f"{path}: every row of a split has a split, a part and a sample; some are empty.")
        numbers = frame["split"].unique().sort().to_list()
        if number is None and len(numbers) == 1:
            number = numbers[0]
        if number not in numbers:
            problem = "no split was chosen" if number is None else f"there is no split {number}"
            there = ", ".join(map(str, numbers[:20])) + ", ..." * (len(numbers) > 20)
            raise DataError(f"{path}: {problem}; there are {there or 'none'}. Write {path}:{(numbers or [1])[0]}.")
        rows = frame.filter(pl.col("split") == number)
        unknown = sorted(set(rows["part"]) - set(PARTS))
        if unknown:
            raise DataError(f"{path}: the part '{unknown[0]}' is not known; {suggest(unknown[0], PARTS)}")
        ids = {part: rows.filter(pl.col("part") == part)[id_column].to_list() for part in PARTS}
        return cls(ids, None, f"{path}:{number}")

    @classmethod
    def _from_npy(cls, path: Path, number: int | None) -> Split:
        if number is not None and _split_number(path) != number:
            raise DataError(f"{path}: this file holds one split, and its name does not say that it is split {number}.")
        arrays = read_positions(path)
        if len(arrays) != len(PARTS):
            raise DataError(f"{path}: {len(arrays)} parts, but a split has {len(PARTS)} ({', '.join(PARTS)}).")
        return cls(None, dict(zip(PARTS, arrays, strict=True)), str(path))

    def apply(self, table: EventTable) -> tuple[EventTable, EventTable, EventTable]:
        """The train, val and test parts of a table; raises unless every sample is in exactly one of them."""
        ids_by_part = self._ids_by_part(table)
        position = {name: at for at, name in enumerate(table.ids)}
        part_of_sample: dict[str, str] = {}
        for part, ids in ids_by_part.items():
            unknown = [name for name in ids if name not in position]
            if unknown:
                raise DataError(
                    f"{self.source}: {format_count(len(unknown), len(ids), 'samples')} of the part '{part}' are not in "
                    f"the table (first: '{unknown[0]}').\nThe split is of another data set, or samples were left out "
                    "of the table; apply the split to the whole table, and leave samples out of its parts."
                )
            for name in ids:
                if name in part_of_sample:
                    raise DataError(
                        f"{self.source}: the sample '{name}' is in '{part_of_sample[name]}' and again in '{part}'.\n"
                        "The parts of a split must not overlap."
                    )
                part_of_sample[name] = part
        uncovered = [name for name in table.ids if name not in part_of_sample]
        if uncovered:
            raise DataError(
                f"{self.source}: {format_count(len(uncovered), len(table), 'samples')} of the table are in no part "
                f"(first: '{uncovered[0]}').\nA split covers the whole table; this one is of another or an older table."
            )
        train, val, test = (
            table[np.array([position[name] for name in ids_by_part[part]], dtype=np.int64)] for part in PARTS
        )
        return train, val, test

    def _ids_by_part(self, table: EventTable) -> Mapping[str, Sequence[str]]:
        if self.ids is not None:
            return self.ids
        assert self.positions is not None  # a split has ids or positions
        ids = table.ids
        numbers = [int(name) if name.isdecimal() else None for name in ids]
        if None in numbers or numbers != sorted(numbers):  # type: ignore[type-var]
            raise DataError(
                f"{self.source}: the file counts the samples of the published cohort by ascending number, but the "
                "table's ids are not ascending numbers.\nUse the table as converted, or a split by sample id (Parquet)."
            )
        largest = max((int(part.max(initial=-1)) for part in self.positions.values()), default=-1)
        if largest >= len(ids) or any(int(part.min(initial=0)) < 0 for part in self.positions.values()):
            raise DataError(
                f"{self.source}: the split counts to sample {largest + 1:,}, but the table has {len(ids):,} samples.\n"
                "It is the split of another table."
            )
        return {part: [ids[at] for at in positions] for part, positions in self.positions.items()}


def write_splits(path: str | os.PathLike[str], splits: Mapping[int, Split]) -> Path:
    """Save splits by sample id as Parquet: one row per (split, part, sample)."""
    rows = [
        pl.DataFrame({"sample": list(ids)}, schema={"sample": pl.String}).select(
            split=pl.lit(number, dtype=pl.Int8), part=pl.lit(part), sample="sample"
        )
        for number, split in splits.items()
        for part, ids in (split.ids or {}).items()
    ]
    with atomic_file(path) as partial:
        pl.concat(rows).write_parquet(partial)
    return Path(path)


def _find_numbered_file(folder: Path, number: int | None) -> Path:
    """The `.npy` file in a folder that holds split `number`."""
    files = sorted(folder.glob("*.npy"))
    matching = [path for path in files if number is not None and _split_number(path) == number]
    if len(matching) != 1:
        names = ", ".join(path.name for path in files) or "no .npy file at all"
        raise DataError(f"{folder}: {len(matching)} files are split {number}, not one; there are {names}.")
    return matching[0]


def _split_number(path: Path) -> int | None:
    """1 for phy12_split1.npy, phy19_split1_new.npy and PAM_split_1.npy."""
    match = re.search(r"split_?(\d+)(_new)?$", path.stem)
    return int(match[1]) if match else None
