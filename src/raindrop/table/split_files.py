"""Splits in files: our own Parquet files and the paper's `.npy` files."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import Unpickler, UnpicklingError
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, count_of, suggest
from raindrop.files import atomic_file
from raindrop.table.event_table import EventTable

Positions = NDArray[np.int64]
PARTS = ("train", "val", "test")


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


# ---------------------------------------------------------------- the paper's .npy files
#
# They are object arrays, which NumPy stores as pickles. A pickle may call anything, so none is ever loaded as such: the
# unpickler below knows the names of which an array is made and puts plain stand-ins in their place. No class and no
# function of any package is reached, not even NumPy's. Anything else in the file is an error.

LARGEST = 64 << 20  # bytes; the published files have fewer than one million


def read_positions(path: str | os.PathLike[str]) -> list[NDArray[np.int64]]:
    """The arrays of positions in a `.npy` file that holds a list of them."""
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path}: larger than any split ({path.stat().st_size:,} bytes).")
        with open(path, "rb") as file:
            arrays = _arrays(file.read())
        return [_positions(array) for array in arrays]
    except DataError:
        raise
    except Exception as error:  # a damaged pickle may raise whatever it likes
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path}: not a split ({reason}).\nA split is a .npy file with one array of sample positions per part."
        ) from None


def _arrays(content: bytes) -> list[Any]:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the format is not known")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    _, _, kind = read_header(file)
    if not kind.hasobject:
        file.seek(0)
        return list(np.lib.format.read_array(file, allow_pickle=False))
    parts = _OnlyArrays(file, encoding="latin1").load()
    return list(parts.content()) if isinstance(parts, _Array) else list(parts)


def _positions(array: Any) -> NDArray[np.int64]:
    content = array.content() if isinstance(array, _Array) else array
    numbers = np.asarray(content)
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        raise ValueError("a part is not a list of whole numbers")
    return numbers.astype(np.int64)


class _Kind:
    """Stands in for numpy.dtype: the letters of a type, nothing that acts."""

    def __init__(self, letters: str, *_: Any):
        self.letters, self.order = str(letters), "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if state[1] == ">" else "<"


class _Array:
    """Stands in for numpy.ndarray: keeps what is stored and turns it into numbers when asked."""

    def __init__(self) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def content(self) -> Any:
        _, shape, kind, _, raw = self.state
        if kind.letters.startswith("O"):
            if not isinstance(raw, list) or len(shape) != 1:
                raise ValueError("objects that are not a plain list")
            return raw
        if kind.letters[0] not in "iu" or len(shape) != 1:
            raise ValueError("an array that is not a list of whole numbers")
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        numbers = np.frombuffer(raw, dtype=np.dtype(kind.letters).newbyteorder(kind.order))
        if numbers.shape != tuple(shape):
            raise ValueError("an array that is shorter or longer than it says")
        return numbers


def _reconstruct(kind: Any, *_: Any) -> _Array:
    if kind is not _Array:
        raise UnpicklingError("something other than an array")
    return _Array()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise UnpicklingError(f"text in {encoding}")
    return text.encode("latin1")


KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("_codecs", "encode"): _encode,  # how protocol 2 stores bytes
}


class _OnlyArrays(Unpickler):
    """Admits the names of which an array is made, as stand-ins, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise UnpicklingError(f"it holds '{module}.{name}', which is no array")
        return KNOWN[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise UnpicklingError("it refers to something outside the file")
