"""Files larger than memory become the table that they would be in memory, and fail with the same sentences."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from random_tables import random_table
from small_blocks import read_in_small_pieces

from raindrop.errors import ConfigError, DataError, NotEnoughMemoryError, RaindropError, RaindropWarning
from raindrop.table.event_table import EventTable
from raindrop.table.prepare import prepare

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_small_pieces(monkeypatch)


def quietly(call: Any, *given: Any, **options: Any) -> EventTable | RaindropError:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RaindropWarning)
        try:
            return call(*given, **options)
        except RaindropError as error:
            return error


def is_the_table_of(prepared: EventTable, paths: Sequence[Path], **options: Any) -> bool:
    """Whether a prepared table is what `from_files` makes of the files, apart from the order of the samples."""
    whole = quietly(EventTable.from_files, *paths, **options)
    assert isinstance(whole, EventTable), whole
    assert sorted(prepared.ids) == sorted(whole.ids)
    assert prepared[whole.ids].events().equals(whole.events())
    assert prepared[whole.ids].fingerprint == whole.fingerprint
    assert dict(prepared.dropped) == dict(whole.dropped)
    assert set(prepared.notices) == set(whole.notices)
    return True


def in_files(frame: pl.DataFrame, folder: Path, kinds: Sequence[str], name: str = "readings") -> list[Path]:
    """The rows of a frame in as many files as there are kinds, in this order."""
    paths = []
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), len(kinds))):
        path = folder / f"{name}{number}.{kinds[number]}"
        part = frame[rows.tolist()]
        part.write_csv(path) if path.suffix == ".csv" else part.write_parquet(path)
        paths.append(path)
    return paths


def lines(folder: Path, text: str, name: str = "readings.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


# ---------------------------------------------------------------- the same table

NUMBERS = st.sampled_from(["0", "1.5", "-2", "1e2", "", "NA", "nan"])
DATES = st.sampled_from(["2024-01-31 08:15:00", "2024-02-01 00:00:00", "2024-01-31 09:00:00"])
COLUMNS = {
    "sample": st.sampled_from(["7", "07", "a b", "é", "x", "y", "z", "w"]),
    "time": st.one_of(st.integers(0, 40).map(str), st.floats(0, 40).map(repr)),
    "sensor": st.sampled_from(["2", "10", "x2", "x10", "HR"]),
    "value": NUMBERS,
}


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.fixed_dictionaries(COLUMNS), min_size=12, max_size=40),
    kinds=st.lists(st.sampled_from(["csv", "parquet"]), min_size=1, max_size=3),
    times=st.sampled_from(["numbers", "dates", "milliseconds"]),
    duplicates=st.sampled_from(["error", "last", "mean"]),
    labels=st.sampled_from(["file", "beside", "none"]),
    text=st.booleans(),
    data=st.data(),
)
def test_shuffled_and_split_files_become_the_table_of_all_rows(rows, kinds, times, duplicates, labels, text, data):
    frame = pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String))
    if times == "dates":
        frame = frame.with_columns(time=pl.Series([data.draw(DATES) for _ in rows]))
    elif times == "milliseconds":
        since_1970 = (pl.col("time").cast(pl.Float64) * 1e6 + 1.7e12).round().cast(pl.Int64)
        frame = frame.with_columns(time=since_1970.cast(pl.String))
    if text:
        states = pl.col("sensor").replace_strict({"HR": "on", "2": "open", "x2": "low"}, default=None)
        frame = frame.with_columns(value=pl.coalesce(states, "value"))
    if labels == "beside":
        frame = frame.with_columns(label=pl.col("sample").str.len_chars())
    options = {"duplicates": duplicates, "missing": "drop"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = in_files(frame, folder, kinds)
        if labels == "file":
            about = pl.DataFrame({"sample": [*frame["sample"].unique().sort(), "unread"]})
            about.with_columns(label=pl.int_range(len(about)) % 2).write_csv(folder / "samples.csv")
            paths.append(folder / "samples.csv")
        prepared = quietly(prepare, *paths, out=folder / "out", **options)
        whole = quietly(EventTable.from_files, *paths, **options)
        if isinstance(whole, RaindropError):
            event("an error")
            assert isinstance(prepared, DataError), whole
            assert not (folder / "out").exists()
            return
        event("a table")
        assert isinstance(prepared, EventTable), prepared
        assert is_the_table_of(prepared, paths, **options)


def test_a_table_of_random_readings_with_statics_comes_back(tmp_path: Path) -> None:
    table = random_table(samples=30, sensors=12)
    shuffled = table.events().with_columns(pl.col("sensor").cast(pl.String)).sample(fraction=1.0, shuffle=True, seed=0)
    paths = in_files(shuffled, tmp_path, ["parquet", "csv", "parquet"])
    table.samples.write_parquet(tmp_path / "samples.parquet")
    paths.append(tmp_path / "samples.parquet")
    prepared = prepare(*paths, out=tmp_path / "out", statics=["age", "ward"], sensors=table.sensors)
    assert prepared[table.ids].fingerprint == table.fingerprint
    assert is_the_table_of(prepared, paths, statics=["age", "ward"], sensors=table.sensors)
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_cutoff_reference_and_unlisted_samples_are_as_in_memory(tmp_path: Path) -> None:
    rows = [f"p{at % 9},2024-01-{1 + at % 28:02d} 0{at % 10}:00,s{at % 11},{at}" for at in range(60)]
    events = lines(tmp_path, "id,when,what,how much\n" + "\n".join(rows) + "\n")
    about = "".join(f"p{at},2024-01-0{1 + at},2024-01-2{at},{at % 2}\n" for at in range(7))
    samples = lines(tmp_path, "id,begin,end,y\n" + about, "people.csv")
    options: dict[str, Any] = {"sample": "id", "time": "when", "sensor": "what", "value": "how much", "label": "y"}
    options |= {"reference": "begin", "cutoff": "end", "before_reference": "drop", "unlisted": "drop"}
    options |= {"time_unit": "days", "samples": samples}
    prepared = prepare(events, out=tmp_path / "out", **options)
    assert is_the_table_of(prepared, [events], **options)
    assert set(prepared.dropped) == {"of a sample that is not listed", "before the reference time", "after the cutoff"}


def test_the_day_comes_first_in_every_file_if_one_date_shows_it(tmp_path: Path) -> None:
    rows = [f"p{at},{1 + at % 12:02d}/03/2024,HR,{at}" for at in range(30)]
    paths = [
        lines(tmp_path, "sample,time,sensor,value\n" + "\n".join(rows) + "\n", "a.csv"),
        lines(tmp_path, "sample,time,sensor,value\np0,31/03/2024,HR,1\n", "b.csv"),
    ]
    prepared = quietly(prepare, *paths, out=tmp_path / "out")
    assert isinstance(prepared, EventTable), prepared
    assert any("with the day first" in notice for notice in prepared.notices)
    assert is_the_table_of(prepared, paths)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_separators_decimal_commas_quotes_and_encodings_are_as_in_memory(tmp_path: Path, encoding: str) -> None:
    rows = [f'"é\n{at % 5}";{at},25;"a ""b"" {at % 3}";{at},5' for at in range(40)]
    path = tmp_path / "readings.csv"
    path.write_bytes(("sample;time;sensor;value\n" + "\n".join(rows)).replace("é\n", "é ").encode(encoding))
    prepared = quietly(prepare, path, out=tmp_path / "out")
    assert isinstance(prepared, EventTable), prepared
    assert is_the_table_of(prepared, [path])
    assert len(prepared) == 5
    assert prepared.sensors == ('a "b" 0', 'a "b" 1', 'a "b" 2')


def test_a_line_break_within_quotes_does_not_end_a_row(tmp_path: Path) -> None:
    rows = [f'p{at % 4},{at},HR,{at},"a note\nin two lines, {"x" * at}"' for at in range(30)]
    path = lines(tmp_path, "sample,time,sensor,value,note\n" + "\n".join(rows) + "\n")
    prepared = prepare(path, out=tmp_path / "out")
    assert prepared.num_readings == 30
    assert is_the_table_of(prepared, [path])


def test_small_files_give_a_small_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    path = lines(tmp_path, "sample,time,sensor,value\na,0,HR,1\nb,1,HR,2\n")
    assert prepare(path, out=tmp_path / "out").ids == ["a", "b"]
    assert (tmp_path / "out" / "events.parquet").exists()


# ---------------------------------------------------------------- errors


def readings(number: int = 30) -> list[str]:
    return [f"p{at % 7},{at},s{at % 3},{at}" for at in range(number)]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (",5,HR,1", r"have no sample \(first: row 12 of .*b\.csv"),
        ("p1,,HR,1", r"have no time \(first: row 12 of .*b\.csv, sample 'p1', sensor 'HR'"),
        ("p1,5,,1", r"have no sensor name \(first: row 12 of .*b\.csv, sample 'p1'"),
        ("p1,5,HR,inf", r"have an infinite value \(first: row 12 of .*b\.csv"),
        ("p1,soon,HR,1", r"holds text where a time belongs in 1 or more of 61 rows \(first: row 12 of .*b\.csv"),
        ("p1,5,s1,12o", r"holds text where a value belongs in 1 or more of 61 rows \(first: row 12 of .*b\.csv"),
        ("p4,11,s2,3", r"repeat the \(sample, time, sensor\) of another row \(first: row 13 of .*b\.csv"),
        ("p1,-1,HR,1", r"are before their sample's reference time \(first: row 12 of .*b\.csv"),
    ],
)
def test_an_error_names_the_row_in_its_file(tmp_path: Path, row: str, sentence: str) -> None:
    head, second = "sample,time,sensor,value\n", readings()
    second.insert(11, row)
    paths = [
        lines(tmp_path, head + "\n".join(f"q{line}" for line in readings()) + "\n", "a.csv"),
        lines(tmp_path, head + "\n".join(second) + "\n", "b.csv"),
    ]
    found = quietly(prepare, *paths, out=tmp_path / "out")
    assert isinstance(found, DataError)
    assert re.search(sentence, str(found)), found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv"]


def test_files_with_other_columns_are_refused(tmp_path: Path) -> None:
    one = lines(tmp_path, "sample,time,sensor,value\n" + "\n".join(readings()) + "\n", "a.csv")
    other = lines(tmp_path, "sample,hour,sensor,value\n" + "\n".join(readings()) + "\n", "b.csv")
    with pytest.raises(DataError, match=r"b\.csv: there is no column 'time' \(needed as time\)"):
        prepare(one, other, out=tmp_path / "out")


def test_a_sensor_with_numbers_in_one_file_and_text_in_another_is_refused(tmp_path: Path) -> None:
    one = lines(tmp_path, "sample,time,sensor,value\n" + "\n".join(readings()) + "\n", "a.csv")
    other = lines(tmp_path, "sample,time,sensor,value\nother,1,s1,high\n", "b.csv")
    found = quietly(prepare, one, other, out=tmp_path / "out")
    assert "'value' holds text where a value belongs in 1 or more of 31 rows (first: row 1 of" in str(found)


def test_a_decimal_comma_in_one_row_and_a_point_in_another_are_refused(tmp_path: Path) -> None:
    rows = [f"p{at};{at};HR;1,5" for at in range(20)] + ["p1;40;HR;1.5"]
    path = lines(tmp_path, "sample;time;sensor;value\n" + "\n".join(rows) + "\n")
    with pytest.raises(DataError, match="'value' has numbers with a decimal comma and others with a decimal point"):
        prepare(path, out=tmp_path / "out")


def test_arrays_and_options_of_other_shapes_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 4)))
    with pytest.raises(DataError, match="a file of arrays is read whole"):
        prepare(tmp_path / "x.npy", out=tmp_path / "out")
    path = lines(tmp_path, "sample,time,sensor,value\n" + "\n".join(readings()) + "\n")
    with pytest.raises(ConfigError, match="text: has no effect on files that are read in pieces"):
        prepare(path, out=tmp_path / "out", text="value")


def test_a_sample_that_is_too_large_for_the_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lines(tmp_path, "sample,time,sensor,value\n" + "\n".join(f"p,{at},HR,1" for at in range(40)) + "\n")
    monkeypatch.setattr("raindrop.hardware.available_memory", lambda: 1000)
    with pytest.raises(NotEnoughMemoryError, match=r"with 40 rows, would take about .* GB of memory, and 0.0 GB are"):
        prepare(path, out=tmp_path / "out")
    assert [found.name for found in tmp_path.iterdir()] == ["readings.csv"]
