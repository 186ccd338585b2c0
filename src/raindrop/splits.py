"""Which samples belong to training, validation and test."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, count_of, suggest
from raindrop.files import atomic_file
from raindrop.splits_npy import read_positions

if TYPE_CHECKING:
    from raindrop.events import EventTable

Positions = NDArray[np.int64]
PARTS = ("train", "val", "test")
ROUNDING = np.array([0.5, 0.3, 0.7, 0.1, 0.9])[:, None]  # what is added before cutting to a whole number


@dataclass(frozen=True)
class Split:
    """A published or saved split: which samples, by id or by position, are in which part.

    Positions count the samples of a cohort by ascending number, as the paper's own files do.
    """

    ids: Mapping[str, Sequence[str]] | None
    positions: Mapping[str, Positions] | None
    source: str

    @classmethod
    def read(cls, path: str | os.PathLike[str], number: int | None = None) -> Split:
        """Split `number` of a Parquet file (columns split, part, sample) or of the paper's `.npy` files.

        A `.npy` file is one split; of a folder of them, the one whose name has `number` is taken.
        """
        path = Path(path)
        if not path.exists():
            raise DataError(f"{path}: there is no such split file.")
        if path.is_dir():
            path = _numbered(path, number)
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
    def of(cls, parts: Sequence[EventTable], source: str = "split") -> Split:
        """The split that three tables (train, val, test) are, to be saved with `write_splits`."""
        if len(parts) != len(PARTS):
            raise DataError(f"A split has {len(PARTS)} parts ({', '.join(PARTS)}), not {len(parts)}.")
        return cls({part: list(table.ids) for part, table in zip(PARTS, parts, strict=True)}, None, source)

    @classmethod
    def _from_parquet(cls, path: Path, number: int | None) -> Split:
        try:
            frame = pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise DataError(f"{path}: not a readable split ({str(error).splitlines()[0]}).") from None
        name = next((name for name in ("sample", "window") if name in frame.columns), None)
        if name is None or not {"split", "part"} <= set(frame.columns):
            raise DataError(
                f"{path}: a split file has the columns split, part and sample; this one has {', '.join(frame.columns)}."
            )
        numbers = frame["split"].unique().sort().to_list()
        if number is None and len(numbers) == 1:
            number = numbers[0]
        if number not in numbers:
            which = "no split was chosen" if number is None else f"there is no split {number}"
            raise DataError(f"{path}: {which}; there are {', '.join(map(str, numbers))}. Write {path}:{numbers[0]}.")
        rows = frame.filter(pl.col("split") == number)
        unknown = sorted(set(rows["part"].cast(pl.String)) - set(PARTS))
        if unknown:
            raise DataError(f"{path}: the part '{unknown[0]}' is not known; {suggest(unknown[0], PARTS)}")
        ids = {part: rows.filter(pl.col("part") == part)[name].cast(pl.String).to_list() for part in PARTS}
        return cls(ids, None, f"{path}:{number}")

    @classmethod
    def _from_npy(cls, path: Path, number: int | None) -> Split:
        if number is not None and _number_of(path) != number:
            raise DataError(f"{path}: this file is one split, and its name does not say that it is split {number}.")
        arrays = read_positions(path)
        if len(arrays) != len(PARTS):
            raise DataError(f"{path}: {len(arrays)} parts, but a split has {len(PARTS)} ({', '.join(PARTS)}).")
        return cls(None, dict(zip(PARTS, arrays, strict=True)), str(path))

    def apply(self, table: EventTable) -> tuple[EventTable, EventTable, EventTable]:
        """The table's train, val and test parts; an error unless every sample is in exactly one of them."""
        members = self._members(table)
        place = {name: at for at, name in enumerate(table.ids)}
        taken: dict[str, str] = {}
        for part, ids in members.items():
            unknown = [name for name in ids if name not in place]
            if unknown:
                raise DataError(
                    f"{self.source}: {count_of(len(unknown), len(ids), 'samples')} of the part '{part}' are not in the "
                    f"table (first: '{unknown[0]}').\nThe split is of another data set, or samples were left out of "
                    "the table; apply the split to the whole table, and leave samples out of its parts."
                )
            for name in ids:
                if name in taken:
                    raise DataError(
                        f"{self.source}: the sample '{name}' is in '{taken[name]}' and again in '{part}'.\n"
                        "The parts of a split must not overlap."
                    )
                taken[name] = part
        left = [name for name in table.ids if name not in taken]
        if left:
            raise DataError(
                f"{self.source}: {count_of(len(left), len(table), 'samples')} of the table are in no part "
                f"(first: '{left[0]}').\nA split covers the whole table; this one is of another or an older table."
            )
        train, val, test = (table[np.array([place[name] for name in members[part]], dtype=np.int64)] for part in PARTS)
        return train, val, test

    def _members(self, table: EventTable) -> Mapping[str, Sequence[str]]:
        """Sample ids by part."""
        if self.ids is not None:
            return self.ids
        assert self.positions is not None  # one of the two
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


def write_parts(path: str | os.PathLike[str], parts: Mapping[str, EventTable]) -> None:
    """The one split of a run, by part, so that `raindrop evaluate` can stay away from who was trained on."""
    frame = pl.concat([pl.DataFrame({"part": name, "sample": table.ids}) for name, table in parts.items()])
    with atomic_file(path) as partial:
        frame.insert_column(0, pl.lit(1, dtype=pl.Int8).alias("split")).write_parquet(partial)


def _numbered(folder: Path, number: int | None) -> Path:
    """The `.npy` file of a folder that is split `number`."""
    files = sorted(folder.glob("*.npy"))
    found = [path for path in files if number is not None and _number_of(path) == number]
    if len(found) != 1:
        names = ", ".join(path.name for path in files) or "no .npy file at all"
        raise DataError(f"{folder}: {len(found)} files are split {number}, not one; there are {names}.")
    return found[0]


def _number_of(path: Path) -> int | None:
    """1 for phy12_split1.npy, phy19_split1_new.npy and PAM_split_1.npy."""
    found = re.search(r"split_?(\d+)(_new)?$", path.stem)
    return int(found[1]) if found else None


def stratified_parts(
    strata: NDArray[np.int64], parts: Sequence[float], seed: int, groups: NDArray[np.int64] | None = None
) -> list[Positions]:
    """Cut positions 0..n-1 at random into `parts` (shares that sum to one), each with the same mix of `strata`.

    Each border lies within one of where the shares put it in a stratum; what one stratum rounds up, a later one
    rounds down, so that the parts as a whole have their share too.
    With `groups`, a group is never cut: whole groups are dealt out, largest first, each to the part that is
    furthest below its share of what the group holds.
    """
    shares = np.atleast_1d(np.asarray(parts, dtype=float))
    if len(shares) < 2 or (shares <= 0).any() or not np.isclose(shares.sum(), 1):
        raise DataError(f"A split needs at least two positive shares that sum to 1, not {parts}.")
    if seed < 0:
        raise DataError(f"seed={seed}: a seed is a whole number, 0 or above.")
    rng = np.random.default_rng(seed)
    if groups is not None:
        part_of = _deal_groups(strata, groups, shares, rng)
    else:
        part_of = np.empty(len(strata), dtype=np.int64)
        owed = np.zeros(len(shares) - 1)
        for stratum in np.unique(strata):
            members = rng.permutation(np.flatnonzero(strata == stratum))
            exact = np.cumsum(shares)[:-1] * len(members)
            options = np.floor(exact + ROUNDING)
            borders = options[np.abs(owed + exact - options).max(1).argmin()]
            owed += exact - borders
            part_of[members] = np.searchsorted(borders, np.arange(len(members)), side="right")
    positions = [np.flatnonzero(part_of == part) for part in range(len(shares))]
    empty = [part for part, members in enumerate(positions) if not len(members)]
    if empty:
        raise DataError(
            f"{len(strata):,} samples are too few for a split into {parts}: part {empty[0] + 1} would be empty.\n"
            "Use fewer or more equal parts, or more samples."
        )
    return positions


def _deal_groups(
    strata: NDArray[np.int64], groups: NDArray[np.int64], shares: NDArray[np.float64], rng: np.random.Generator
) -> Positions:
    _, group_of = np.unique(groups, return_inverse=True)
    num_groups = int(group_of.max()) + 1 if len(group_of) else 0
    if num_groups < len(shares):
        raise DataError(f"{num_groups} groups cannot be dealt out to {len(shares)} parts; use fewer parts.")
    _, stratum_of = np.unique(strata, return_inverse=True)
    counts = np.zeros((num_groups, int(stratum_of.max()) + 1))
    np.add.at(counts, (group_of, stratum_of), 1)
    wanted = shares[:, None] * counts.sum(0)
    filled = np.zeros_like(wanted)
    part_of_group = np.empty(num_groups, dtype=np.int64)
    order = rng.permutation(num_groups)
    order = order[np.argsort(-counts[order].sum(1), kind="stable")]
    for rank, group in enumerate(order):
        gap = ((wanted - filled) * counts[group]).sum(1) / shares
        empty = filled.sum(1) == 0
        if empty.sum() >= num_groups - rank:  # as many empty parts as groups left: each must take one
            gap[~empty] = -np.inf
        part = int(np.argmax(gap))
        part_of_group[group] = part
        filled[part] += counts[group]
    return part_of_group[group_of]
