"""Published splits in `.npy` files: object arrays, which NumPy stores as pickles.

A pickle may call anything, so none is ever loaded as such. What is read here goes through an unpickler that knows three
names, those of which an array is made, and puts plain stand-ins in their place: no class and no function of any
package is reached, not even NumPy's. Anything else in the file is an error.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from pickle import Unpickler, UnpicklingError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import DataError

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
