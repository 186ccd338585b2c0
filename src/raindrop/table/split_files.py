"""Split files: Parquet files by sample id, and the `.npy` files by position that the paper's authors published."""

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

from raindrop.errors import DataError, format_count, suggest
from raindrop.files import atomic_file
from raindrop.table.event_table import EventTable

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

        A `.npy` file holds one split; in a folder of them, `number` is looked for in the file names.
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
        try:
            frame = pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise DataError(f"{path}: not a readable split ({str(error).splitlines()[0]}).") from None
        id_column = next((name for name in ("sample", "window") if name in frame.columns), None)
        if id_column is None or not {"split", "part"} <= set(frame.columns):
            raise DataError(
                f"{path}: a split file has the columns split, part and sample; this one has {', '.join(frame.columns)}."
            )
        numbers = frame["split"].unique().sort().to_list()
        if number is None and len(numbers) == 1:
            number = numbers[0]
        if number not in numbers:
            problem = "no split was chosen" if number is None else f"there is no split {number}"
            raise DataError(f"{path}: {problem}; there are {', '.join(map(str, numbers))}. Write {path}:{numbers[0]}.")
        rows = frame.filter(pl.col("split") == number)
        unknown = sorted(set(rows["part"].cast(pl.String)) - set(PARTS))
        if unknown:
            raise DataError(f"{path}: the part '{unknown[0]}' is not known; {suggest(unknown[0], PARTS)}")
        ids = {part: rows.filter(pl.col("part") == part)[id_column].cast(pl.String).to_list() for part in PARTS}
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
        """The train, val and test parts of a table; an error unless every sample is in exactly one of them."""
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


# ---------------------------------------------------------------- the paper's .npy files
#
# They are object arrays, which NumPy stores as pickles. Loading a pickle can run any code, so these are never loaded
# the usual way: the unpickler below accepts only the names that occur in a stored array, and replaces each by a
# stand-in defined here. No class or function of any package is called, not even NumPy's. Anything else is an error.

MAX_BYTES = 64 << 20  # the published files have less than one million


def read_positions(path: str | os.PathLike[str]) -> list[NDArray[np.int64]]:
    """The arrays of sample positions in a `.npy` file, one per part."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path}: larger than any split ({path.stat().st_size:,} bytes).")
        with open(path, "rb") as file:
            arrays = _parse_arrays(file.read())
        return [_to_positions(array) for array in arrays]
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path}: not a split ({reason}).\nA split is a .npy file with one array of sample positions per part."
        ) from None


def _parse_arrays(content: bytes) -> list[Any]:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the format is not known")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    _, _, dtype = read_header(file)
    if not dtype.hasobject:
        file.seek(0)
        return list(np.lib.format.read_array(file, allow_pickle=False))
    parts = _ArrayUnpickler(file, encoding="latin1").load()
    return list(parts.content()) if isinstance(parts, _ArrayStandIn) else list(parts)


def _to_positions(array: Any) -> NDArray[np.int64]:
    content = array.content() if isinstance(array, _ArrayStandIn) else array
    numbers = np.asarray(content)
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        raise ValueError("a part is not a list of whole numbers")
    return numbers.astype(np.int64)


class _DtypeStandIn:
    """Takes the place of numpy.dtype: stores the type code and the byte order."""

    def __init__(self, code: str, *_: Any):
        self.code, self.byte_order = str(code), "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.byte_order = ">" if state[1] == ">" else "<"


class _ArrayStandIn:
    """Takes the place of numpy.ndarray: stores the state and converts it in `content`."""

    def __init__(self) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def content(self) -> Any:
        _, shape, dtype, _, raw = self.state
        if dtype.code.startswith("O"):
            if not isinstance(raw, list) or len(shape) != 1:
                raise ValueError("objects that are not a plain list")
            return raw
        if dtype.code[0] not in "iu" or len(shape) != 1:
            raise ValueError("an array that is not a list of whole numbers")
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        numbers = np.frombuffer(raw, dtype=np.dtype(dtype.code).newbyteorder(dtype.byte_order))
        if numbers.shape != tuple(shape):
            raise ValueError("an array that is shorter or longer than its shape")
        return numbers


def _reconstruct(array_type: Any, *_: Any) -> _ArrayStandIn:
    if array_type is not _ArrayStandIn:
        raise UnpicklingError("something other than an array")
    return _ArrayStandIn()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise UnpicklingError(f"text in {encoding}")
    return text.encode("latin1")


STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _ArrayStandIn,
    ("numpy", "dtype"): _DtypeStandIn,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("_codecs", "encode"): _encode,  # how protocol 2 stores bytes
}


class _ArrayUnpickler(Unpickler):
    """Resolves the names in STAND_INS and refuses all others."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STAND_INS:
            raise UnpicklingError(f"it holds '{module}.{name}', which is not part of an array")
        return STAND_INS[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise UnpicklingError("it refers to something outside the file")
