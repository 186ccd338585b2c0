"""Split files: Parquet by sample id, and the authors' .npy files by position, read without running a pickle."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from pickle import Pickler

import numpy as np
import polars as pl
import pytest

from raindrop.errors import DataError
from raindrop.table.event_table import EventTable
from raindrop.table.npy_positions import read_positions
from raindrop.table.split_files import Split, write_splits


def small_table(ids: list[str] | None = None) -> EventTable:
    names = ids or [str(number) for number in range(101, 111)]
    events = {"sample": names, "time": [0.0] * len(names), "sensor": ["a"] * len(names), "value": range(len(names))}
    return EventTable.from_frames(events, {"sample": names, "died": [n % 2 for n in range(len(names))]}, label="died")


def npy(path: Path, parts: object, protocol: int = 3) -> Path:
    """An object array as NumPy has stored it since 2006: a header, then a pickle."""
    buffer = io.BytesIO()
    header = "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }".ljust(117) + "\n"
    buffer.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
    Pickler(buffer, protocol=protocol).dump(parts)
    path.write_bytes(buffer.getvalue())
    return path


def object_array(*parts: object) -> np.ndarray:
    array = np.empty(len(parts), dtype=object)
    for at, part in enumerate(parts):
        array[at] = part
    return array


PARTS = (np.array([9, 0, 1, 2, 3, 4]), np.array([5, 6]), np.array([8, 7]))


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    rows = [(1, "train", n) for n in (110, *range(101, 106))]
    rows += [(1, "val", 106), (1, "val", 107), (1, "test", 109), (1, "test", 108)]
    rows += [(2, "train", n) for n in range(101, 108)] + [(2, "val", 108), (2, "test", 109), (2, "test", 110)]
    path = tmp_path / "splits.parquet"
    pl.DataFrame(rows, schema=["split", "part", "sample"], orient="row").write_parquet(path)
    return path


def test_a_split_by_id_gives_three_tables_in_the_order_of_the_file(parquet: Path) -> None:
    train, val, test = Split.read(parquet, 1).apply(small_table())
    assert train.ids == ["110", "101", "102", "103", "104", "105"]
    assert (val.ids, test.ids) == (["106", "107"], ["109", "108"])
    assert Split.parse(f"{parquet}:2").apply(small_table())[2].ids == ["109", "110"]


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_the_authors_files_hold_positions_in_the_cohort(tmp_path: Path, parquet: Path, protocol: int) -> None:
    path = npy(tmp_path / "phy12_split1.npy", object_array(*PARTS), protocol)
    by_position = Split.read(path, 1).apply(small_table())
    assert [part.ids for part in by_position] == [part.ids for part in Split.read(parquet, 1).apply(small_table())]


def test_a_file_written_by_numpy_itself_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "PAM_split_1.npy", object_array(*PARTS))
    assert [part.tolist() for part in read_positions(tmp_path / "PAM_split_1.npy")] == [p.tolist() for p in PARTS]
    np.save(tmp_path / "even_split_2.npy", np.arange(6).reshape(3, 2))
    assert [part.tolist() for part in read_positions(tmp_path / "even_split_2.npy")] == [[0, 1], [2, 3], [4, 5]]
    big_endian = object_array(*(part.astype(">i4") for part in PARTS))
    np.save(tmp_path / "big.npy", big_endian)
    assert [part.tolist() for part in read_positions(tmp_path / "big.npy")] == [p.tolist() for p in PARTS]


def test_a_folder_of_numbered_files_is_searched_by_number(tmp_path: Path) -> None:
    npy(tmp_path / "phy19_split1_new.npy", object_array(*PARTS))
    npy(tmp_path / "phy19_split2_new.npy", object_array(PARTS[0], PARTS[2], PARTS[1]))
    npy(tmp_path / "phy12_split_subset1.npy", object_array(*PARTS))
    assert Split.parse(f"{tmp_path}:2").apply(small_table())[1].ids == ["109", "108"]
    with pytest.raises(DataError, match=r"0 files are split 3, not one; there are phy12_split_subset1.npy, phy19"):
        Split.read(tmp_path, 3)
    with pytest.raises(DataError, match="its name does not say that it is split 2"):
        Split.read(tmp_path / "phy19_split1_new.npy", 2)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (os.environ["RAINDROP_TEST_TRAP"],)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_calls_a_function_is_refused_and_nothing_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    trap = tmp_path / "sprung"
    monkeypatch.setenv("RAINDROP_TEST_TRAP", str(trap))
    for payload in (Evil(), object_array(PARTS[0], PARTS[1], Evil()), [Evil()]):
        path = npy(tmp_path / "evil_split1.npy", payload, protocol)
        with pytest.raises(
            DataError, match=r"not a split \(it holds '(posix|nt)\.mkdir', which is not part of an array\)"
        ):
            Split.read(path, 1)
        assert not trap.exists()


@pytest.mark.parametrize(
    "payload",
    [
        np.random.default_rng(0),
        object_array(PARTS[0], PARTS[1], np.array([1.5])),
        object_array(PARTS[0], PARTS[1], np.array([[1, 2]])),
        object_array(PARTS[0], PARTS[1], "text"),
        object_array(PARTS[0], PARTS[1], Path("x")),
        7,
        None,
        object_array(PARTS[0], PARTS[1]),
    ],
)
def test_anything_but_three_lists_of_integers_is_refused(tmp_path: Path, payload: object) -> None:
    with pytest.raises(DataError, match=r"not a split|2 parts, but a split has 3"):
        Split.read(npy(tmp_path / "a_split1.npy", payload), 1)


@pytest.mark.slow
def test_a_damaged_file_is_a_clear_error_wherever_the_damage_is(tmp_path: Path) -> None:
    path = npy(tmp_path / "a_split1.npy", object_array(*PARTS))
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for trial in range(400):
        damaged = bytearray(content)
        if trial % 2:
            damaged = damaged[: int(rng.integers(len(damaged)))]
        else:
            damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
        path.write_bytes(damaged)
        try:
            arrays = read_positions(path)
        except DataError:
            continue
        assert all(array.dtype == np.int64 for array in arrays)
    path.write_bytes(b"hello")
    with pytest.raises(DataError, match=r"a_split1.npy: not a split"):
        Split.read(path, 1)


def test_positions_require_the_order_of_the_cohort(tmp_path: Path) -> None:
    split = Split.read(npy(tmp_path / "a_split1.npy", object_array(*PARTS)), 1)
    table = small_table()
    with pytest.raises(DataError, match="the table's ids are not ascending numbers"):
        split.apply(table[np.arange(10)[::-1].copy()])
    with pytest.raises(DataError, match="not ascending numbers"):
        split.apply(small_table([f"p{n}" for n in range(10)]))
    with pytest.raises(DataError, match="the split counts to sample 10, but the table has 9 samples"):
        split.apply(table[:9])


@pytest.mark.slow
def test_unknown_overlapping_and_missing_samples_are_errors(tmp_path: Path, parquet: Path) -> None:
    split = Split.read(parquet, 1)
    with pytest.raises(DataError, match=r"1 of 2 samples of the part 'test' are not in the table \(first: '109'\)"):
        split.apply(small_table([str(n) for n in (*range(101, 109), 110)]))
    with pytest.raises(DataError, match=r"1 of 11 samples of the table are in no part \(first: '111'\)"):
        split.apply(small_table([str(n) for n in range(101, 112)]))
    frame = pl.read_parquet(parquet)
    pl.concat([frame, frame.tail(1).with_columns(part=pl.lit("val"))]).write_parquet(tmp_path / "overlap.parquet")
    with pytest.raises(DataError, match=r"overlap.parquet:2: the sample '110' is in 'val' and again in 'test'"):
        Split.read(tmp_path / "overlap.parquet", 2).apply(small_table())
    overlapping = npy(tmp_path / "a_split1.npy", object_array(PARTS[0], PARTS[1], np.array([8, 7, 5])))
    with pytest.raises(DataError, match=r"the sample '106' is in 'val' and again in 'test'"):
        Split.read(overlapping, 1).apply(small_table())


def test_a_wrong_number_or_file_is_an_error_that_lists_the_options(tmp_path: Path, parquet: Path) -> None:
    with pytest.raises(DataError, match=r"there is no split 6; there are 1, 2. Write .*splits.parquet:1"):
        Split.read(parquet, 6)
    with pytest.raises(DataError, match="no split was chosen; there are 1, 2"):
        Split.parse(str(parquet))
    with pytest.raises(DataError, match="what follows the colon must be the number of a split"):
        Split.parse(f"{parquet}:first")
    with pytest.raises(DataError, match="there is no such split file"):
        Split.parse(f"{tmp_path}/nowhere.parquet:1")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(DataError, match="has the columns split, part and sample; this one has a"):
        Split.read(tmp_path / "other.parquet", 1)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"broken.parquet: cannot be read .*\nIt should hold a split: the columns"):
        Split.read(tmp_path / "broken.parquet", 1)
    pl.DataFrame({"split": [1], "part": ["tran"], "sample": [1]}).write_parquet(tmp_path / "part.parquet")
    with pytest.raises(DataError, match=r"the part 'tran' is not known; did you mean 'train'"):
        Split.read(tmp_path / "part.parquet", 1)


@pytest.mark.slow
def test_a_split_can_be_saved_and_read_again(tmp_path: Path) -> None:
    table = small_table([str(n) for n in range(40)])
    splits = {seed: Split.from_tables(table.split(seed=seed)) for seed in (1, 2)}
    path = write_splits(tmp_path / "own.parquet", splits)
    for seed in (1, 2):
        assert [part.ids for part in Split.read(path, seed).apply(table)] == [p.ids for p in table.split(seed=seed)]
    with pytest.raises(DataError, match="A split has 3 parts"):
        Split.from_tables(table.split((0.5, 0.5)))


def test_a_window_column_is_read_as_sample_ids(tmp_path: Path) -> None:
    pl.DataFrame({"split": [1] * 10, "part": ["train"] * 8 + ["val", "test"], "window": range(10)}).write_parquet(
        tmp_path / "pam.parquet"
    )
    assert Split.parse(str(tmp_path / "pam.parquet")).apply(small_table([str(n) for n in range(10)]))[2].ids == ["9"]
