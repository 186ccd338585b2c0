"""Read the published `.npy` files with splits by position, without trusting or executing their content.

They are object arrays, which NumPy stores as pickles. Loading a pickle can run arbitrary code, so the usual loader is
never used: the unpickler below accepts only the names that occur in a stored array, and replaces each by a stand-in
defined here. No class or function of any package is called, not even NumPy's. Anything else raises, and so does
anything that would need more memory than the length of the file.
"""

from __future__ import annotations

import io
import math
import os
import pickletools
from pathlib import Path
from pickle import Unpickler, UnpicklingError
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import DataError, first_line

MAX_BYTES = 16 << 20  # the published files have less than one million
MAX_OPERATIONS = 2_000_000
OPERATIONS = frozenset(
    """PROTO FRAME MARK STOP TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_TUPLE EMPTY_LIST LIST APPEND APPENDS GLOBAL STACK_GLOBAL
    REDUCE BUILD NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET
    LONG_BINGET UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 STRING BINSTRING SHORT_BINSTRING BINBYTES
    SHORT_BINBYTES BINBYTES8 NEWOBJ""".split()  # noqa: SIM905
)
"""The operations in the pickle of an array."""


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
        raise DataError(
            f"{path}: not a split ({first_line(error)}).\n"
            "A split is a .npy file with one array of sample positions per part."
        ) from None


def _parse_arrays(content: bytes) -> list[Any]:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the format is not known")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    if not dtype.hasobject:
        if math.prod(shape) * dtype.itemsize != len(content) - file.tell():  # before memory is taken for it
            raise ValueError("its header does not fit its length")
        file.seek(0)
        return list(np.lib.format.read_array(file, allow_pickle=False))
    _check_operations(content[file.tell() :])
    parts = _ArrayUnpickler(file, encoding="latin1").load()
    return list(parts.content()) if isinstance(parts, _ArrayStandIn) else list(parts)


def _check_operations(pickled: bytes) -> None:
    """Raise unless a pickle consists of operations for arrays only, so that it takes no more memory than its length."""
    for number, (operation, argument, _) in enumerate(pickletools.genops(pickled)):
        if operation.name not in OPERATIONS:
            raise ValueError(f"it holds '{operation.name}', which is not part of an array")
        if "PUT" in operation.name and int(argument or 0) > len(pickled):  # the memo is an array up to this number
            raise ValueError("it refers to more objects than it can hold")
        if number > MAX_OPERATIONS:
            raise ValueError("it has more parts than any split")


def _to_positions(array: Any) -> NDArray[np.int64]:
    content = array.content() if isinstance(array, _ArrayStandIn) else array
    if isinstance(content, (list, tuple)) and not all(isinstance(number, int) for number in content):
        raise ValueError("a part is not a list of whole numbers")  # lists in lists could grow without end
    numbers = np.asarray(content)
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
        raise ValueError("a part is not a list of whole numbers")
    return numbers.astype(np.int64)


class _DtypeStandIn:
    """Replaces numpy.dtype: stores the type code and the byte order."""

    def __init__(self, code: str, *_: Any):
        self.code = str(code)
        self.byte_order: Literal["<", ">"] = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.byte_order = ">" if state[1] == ">" else "<"


class _ArrayStandIn:
    """Replaces numpy.ndarray: stores the state and converts it in `content`."""

    def __init__(self) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def content(self) -> Any:
        _, shape, dtype, _, raw = self.state
        if not isinstance(dtype, _DtypeStandIn):
            raise ValueError("an array without a type")
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
    """Resolves the names in STAND_INS and rejects all others."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STAND_INS:
            raise UnpicklingError(f"it holds '{module}.{name}', which is not part of an array")
        return STAND_INS[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise UnpicklingError("it refers to something outside the file")
