"""Files that grow block by block are those that would be written at once, and are there complete or not at all."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from raindrop.errors import OutputExistsError
from raindrop.table.growing_files import growing_file

SENSOR = pl.Enum(["heart rate", "=1+1"])
FRAMES = [
    pl.DataFrame(
        {"sample": ["a", None], "sensor": ["=1+1", "heart rate"], "value": [0.1 * at, float(at)]},
        schema_overrides={"sensor": SENSOR},
    )
    for at in range(5)
]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("number", [1, 5])
def test_appended_frames_are_the_rows_of_one_file(suffix: str, number: int, tmp_path: Path) -> None:
    whole = pl.concat(FRAMES[:number])
    with growing_file(tmp_path / f"new.{suffix}") as append:
        for frame in FRAMES[:number]:
            append(frame)
            assert not (tmp_path / f"new.{suffix}").exists()
    if suffix == "csv":
        assert (tmp_path / "new.csv").read_text() == whole.write_csv()
    else:
        assert pl.read_parquet(tmp_path / "new.parquet").equals(whole)
        assert pl.read_parquet_schema(tmp_path / "new.parquet") == whole.schema
    assert [path.name for path in tmp_path.iterdir()] == [f"new.{suffix}"]


def test_no_text_of_a_csv_file_for_spreadsheets_starts_a_formula(tmp_path: Path) -> None:
    with growing_file(tmp_path / "new.csv", for_spreadsheets=True) as append:
        for frame in FRAMES[:2]:
            append(frame)
    lines = (tmp_path / "new.csv").read_text().splitlines()
    assert lines == ["sample,sensor,value", "a,'=1+1,0.0", ",heart rate,0.0", "a,'=1+1,0.1", ",heart rate,1.0"]


def append_and_fail(path: Path) -> None:
    with growing_file(path) as append:
        append(FRAMES[0])
        append(FRAMES[1].with_columns(pl.col("not there")))


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_after_a_failure_there_is_what_there_was(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"new.{suffix}"
    for before in (None, b"mine"):
        if before is not None:
            path.write_bytes(before)
        with pytest.raises(pl.exceptions.PolarsError):
            append_and_fail(path)
        assert [each.read_bytes() for each in tmp_path.iterdir()] == ([] if before is None else [before])


def test_another_content_is_not_replaced_unless_it_may_be(tmp_path: Path) -> None:
    for number, refused in ((2, False), (2, False), (3, True)):  # the same content again is what a killed command left
        try:
            with growing_file(tmp_path / "new.parquet", overwrite=False) as append:
                for frame in FRAMES[:number]:
                    append(frame)
            assert not refused
        except OutputExistsError:
            assert refused
    assert len(pl.read_parquet(tmp_path / "new.parquet")) == 4
