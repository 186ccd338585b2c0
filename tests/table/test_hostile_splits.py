"""Split files made to take memory, time or a traceback: refused in a sentence, at once."""

from __future__ import annotations

import pickle
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from refusal import outcome

from raindrop.errors import DataError
from raindrop.table.npy_positions import read_positions
from raindrop.table.split_files import Split


def npy(path: Path, pickled: bytes, header: str = "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }") -> Path:
    """A version 1.0 file with this header and content."""
    text = header.encode().ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + pickled)
    return path


def billion(levels: int = 9, width: int = 10) -> bytes:
    """The pickle of lists in lists: a few hundred bytes that stand for 10^9 numbers."""
    content: Any = [1] * width
    for _ in range(levels):
        content = [content] * width
    return pickle.dumps([content, content, content], protocol=2)


BOMBS: dict[str, Callable[[], bytes]] = {
    "lists in lists": billion,
    "a memo of 2^31 places": lambda: b"\x80\x02]r\xff\xff\xff\x7f.",
    "text of 2^60 bytes": lambda: b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"x.",
    "a frame of 2^60 bytes": lambda: b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"].",
    "a set": lambda: pickle.dumps({1, 2}, protocol=4),
    "nested marks": lambda: b"\x80\x02" + b"(" * 100_000 + b".",
    "three million numbers": lambda: pickle.dumps(list(range(3_000_000)), protocol=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_that_would_grow_is_refused_at_once(name: str, tmp_path: Path) -> None:
    path = npy(tmp_path / "split_1.npy", BOMBS[name]())
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(DataError, match=r"split_1.npy: not a split \(.*\)\.\nA split is a \.npy file"):
        read_positions(path)
    assert time.monotonic() - started < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(3, 99999999999)", "(-1,)", "()"])
def test_a_header_that_announces_more_than_the_file_holds_is_refused(shape: str, tmp_path: Path) -> None:
    path = npy(tmp_path / "split_1.npy", bytes(24), f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}")
    with pytest.raises(DataError, match="not a split"):
        read_positions(path)


@pytest.mark.slow
def test_every_damage_to_a_split_by_ids_is_a_split_or_a_sentence(tmp_path: Path) -> None:
    path, rng, refused = tmp_path / "splits.parquet", np.random.default_rng(0), 0
    ids = [f"sample {at}" for at in range(60)]
    parts = ["train"] * 40 + ["val"] * 10 + ["test"] * 10
    pl.DataFrame({"split": [1] * 60, "part": parts, "sample": ids}).write_parquet(path)
    content = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(content)
        for at in rng.integers(len(content), size=int(rng.integers(1, 4))):
            damaged[at] = int(rng.integers(256))
        path.write_bytes(damaged[: int(rng.integers(len(damaged)))] if rng.random() < 0.2 else damaged)
        result = outcome(Split.read, path, 1)
        refused += isinstance(result, DataError)
        assert str(path) in str(result) if isinstance(result, DataError) else result.ids is not None
    assert refused > 150


@pytest.mark.parametrize(
    "columns",
    [
        {"split": ["one"], "part": ["train"], "sample": ["a"]},
        {"split": [None], "part": ["train"], "sample": ["a"]},
        {"split": [1], "part": [None], "sample": ["a"]},
        {"split": [1], "part": ["train"], "sample": [None]},
        {"split": [1], "part": [["train"]], "sample": ["a"]},
        {"split": [], "part": [], "sample": []},
        {"split": [1], "part": [3.5], "sample": [2.5]},
    ],
)
def test_columns_of_other_types_are_refused(columns: dict[str, list[Any]], tmp_path: Path) -> None:
    pl.DataFrame(columns).write_parquet(tmp_path / "splits.parquet")
    with pytest.raises(DataError, match=r"splits\.parquet"):
        Split.read(tmp_path / "splits.parquet", 1)
