"""Folders and files that cannot be read or written: named, with the way out, and nothing half-written left."""

import json
import os

import numpy as np
import polars as pl
import pytest
from refusal import is_sound, listing, outcome, refused, write_csv

from raindrop.errors import DataError, OutputExistsError, RaindropError
from raindrop.table.event_table import EventTable

pytestmark = pytest.mark.slow

EVENTS = {
    "sample": ["p1", "p1", "p2"],
    "time": [0.0, 1.0, 0.5],
    "sensor": ["HR", "Temp", "HR"],
    "value": [80.0, 37.0, 90.0],
}
SAMPLES = {"sample": ["p1", "p2"], "label": [0, 1]}


def test_a_folder_that_is_none_or_holds_no_table_says_so(tmp_path):
    assert "none: there is no such folder" in refused(EventTable.read, tmp_path / "none")
    (tmp_path / "event.csv").touch()
    assert "there is no events.parquet or events.csv; did you mean 'event.csv'?" in refused(EventTable.read, tmp_path)
    assert "event.csv: not a readable CSV file" in refused(EventTable.read, tmp_path / "event.csv")
    (tmp_path / "table.xlsx").touch()
    assert "files of this kind cannot be read" in refused(EventTable.read, tmp_path / "table.xlsx")


@pytest.mark.parametrize("name", ["events", "samples"])
def test_csv_and_parquet_side_by_side_are_not_guessed_between(tmp_path, name):
    write_csv(tmp_path, samples="sample\np1\n")
    pl.DataFrame(EVENTS).write_parquet(tmp_path / f"{name}.parquet")
    assert (
        refused(EventTable.read, tmp_path)
        == f"{tmp_path}: both {name}.parquet and {name}.csv exist; remove one of them."
    )


def test_csv_beside_a_table_we_wrote_is_not_ignored(tmp_path):
    folder = EventTable.from_frames(EVENTS, SAMPLES).write(tmp_path / "data")
    (folder / "samples.csv").write_text("sample\np1\n")
    assert "both samples.parquet and samples.csv exist" in refused(EventTable.read, folder)


@pytest.mark.parametrize("content", [b"sample,time,sensor,value\np1,0,HR,80,9\n", b""])
def test_a_damaged_csv_is_named(tmp_path, content):
    (tmp_path / "events.csv").write_bytes(content)
    message = refused(EventTable.read, tmp_path)
    assert message.startswith(f"{tmp_path / 'events.csv'}: not a readable CSV file")
    assert message.endswith("Export or copy it again.")


def test_a_file_of_another_kind_is_no_parquet(tmp_path):
    for content in (b"", b"PAR1", b"sample,time\n", bytes(100), b"PAR1" + bytes(100) + b"PAR1"):
        (tmp_path / "events.parquet").write_bytes(content)
        message = refused(EventTable.read, tmp_path)
        assert message.startswith(f"{tmp_path / 'events.parquet'}: not a readable Parquet file")
        assert message.endswith("Export or copy it again.")


def damage(content, rng, how):
    at = int(rng.integers(0, len(content)))
    if how == "cut":
        return content[:at]
    return content[:at] + bytes([content[at] ^ int(rng.integers(1, 256))]) + content[at + 1 :]


@pytest.mark.parametrize("how", ["cut", "flip"])
@pytest.mark.parametrize("name", ["events.parquet", "samples.parquet"])
@pytest.mark.parametrize("ours", [True, False], ids=["written by us", "by others"])
def test_a_damaged_parquet_is_refused_or_still_a_sound_table(tmp_path, name, how, ours):
    rng = np.random.default_rng(0)
    folder = EventTable.from_frames(EVENTS, SAMPLES).write(tmp_path / "data")
    if not ours:
        (folder / "table.json").unlink()
    content, refusals = (folder / name).read_bytes(), 0
    for _ in range(60):
        (folder / name).write_bytes(damage(content, rng, how))
        result = outcome(EventTable.read, folder)
        refusals += isinstance(result, DataError)
        assert str(folder) in str(result) if isinstance(result, DataError) else is_sound(result)
    assert refusals == 60 if how == "cut" else refusals > 20


@pytest.mark.parametrize("name", ["offsets", "time", "sensor", "value"])
def test_a_damaged_array_is_refused_with_the_way_out(tmp_path, name):
    rng = np.random.default_rng(0)
    table = EventTable.from_frames(EVENTS, SAMPLES)
    folder = table.write(tmp_path / "data")
    path = folder / "readings" / f"{name}.npy"
    content = path.read_bytes()
    for how in ["cut", "flip"] * 40:
        path.write_bytes(damage(content, rng, how))
        assert refused(EventTable.read, folder) == (
            f"{path}: damaged or missing. Delete the folder 'readings' to read the Parquet files instead."
        )
    path.unlink()
    assert "damaged or missing" in refused(EventTable.read, folder)
    for array in (folder / "readings").iterdir():
        array.unlink()
    (folder / "readings").rmdir()
    assert EventTable.read(folder).fingerprint == table.fingerprint


@pytest.mark.parametrize("name", ["offsets", "time", "sensor", "value"])
def test_a_damaged_header_of_a_large_array_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr("raindrop.table.store.MAX_CHECKSUM_BYTES", 0)  # no checksums
    folder = EventTable.from_frames(EVENTS, SAMPLES).write(tmp_path / "data")
    for file in ("events.parquet", "samples.parquet"):
        os.utime(folder / file, (0, 0))  # older than the arrays
    path = folder / "readings" / f"{name}.npy"
    content, rng, refusals = path.read_bytes(), np.random.default_rng(0), 0
    for _ in range(100):
        head = damage(content[:128].rstrip(b" \n"), rng, "flip")
        path.write_bytes(head + content[len(head) :])
        result = outcome(EventTable.read, folder)
        refusals += isinstance(result, DataError)
        assert (
            "Delete the folder 'readings'" in str(result) if isinstance(result, DataError) else result.num_readings == 3
        )
    assert refusals > 50


def test_offsets_that_do_not_fit_the_samples_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("raindrop.table.store.file_checksum", lambda path: "same")
    folder = EventTable.from_frames(EVENTS, SAMPLES).write(tmp_path / "data")
    for offsets in ([0, 3, 2], [1, 2, 3], [0, 2, 4], [0, -2, 3]):
        np.save(folder / "readings" / "offsets.npy", np.array(offsets))
        assert "'readings' and 'samples.parquet' disagree" in refused(EventTable.read, folder)


def test_a_damaged_table_file_is_refused(tmp_path):
    folder = EventTable.from_frames(EVENTS, SAMPLES).write(tmp_path / "data")
    about = json.loads((folder / "table.json").read_text())
    damaged = [
        {**about, "time_unit": "weeks"},
        {**about, "sensors": "HR"},
        {**about, "written": {}},
        {**about, "roles": 3},
    ]
    needed = [key for key in about if key not in ("format", "notices", "checksum")]
    damaged += [{key: about[key] for key in about if key != gone} for gone in needed]
    damaged += [[], None, "text", {"format": 1}]
    for content in [json.dumps(value).encode() for value in damaged] + [b"", b"{", b"\xff"]:
        (folder / "table.json").write_bytes(content)
        message = refused(EventTable.read, folder)
        assert message.startswith(f"{folder / 'table.json'}: ")
        assert "Delete it to read the table's Parquet files alone" in message
    (folder / "table.json").unlink()
    assert is_sound(EventTable.read(folder))


def test_a_table_of_a_newer_format_is_refused(tmp_path):
    folder = EventTable.from_frames(EVENTS, SAMPLES).write(tmp_path / "data")
    about = json.loads((folder / "table.json").read_text())
    (folder / "table.json").write_text(json.dumps({**about, "format": 99, "more": 1}))
    assert "written in format 99, which this version cannot read" in refused(EventTable.read, folder)


def test_nothing_is_written_where_something_is(tmp_path):
    table = EventTable.from_frames(EVENTS, SAMPLES)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious.txt").touch()
    with pytest.raises(OutputExistsError, match=r"data: this folder exists already\. Choose another name"):
        table.write(tmp_path / "data")
    with pytest.raises(OutputExistsError, match=r"precious\.txt: this is a file"):
        table.write(tmp_path / "data" / "precious.txt")
    with pytest.raises(RaindropError, match="cannot be created"):
        table.write(tmp_path / "data" / "precious.txt" / "below")
    assert listing(tmp_path) == ["data", "data/precious.txt"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_error_while_writing_leaves_no_trace(tmp_path, monkeypatch, overwrite):
    table = EventTable.from_frames(EVENTS, SAMPLES)
    if overwrite:
        table.write(tmp_path / "data")
    before = listing(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space left"):
        table[:1].write(tmp_path / "data", overwrite=overwrite)
    monkeypatch.undo()
    assert listing(tmp_path) == before
    assert not overwrite or EventTable.read(tmp_path / "data").fingerprint == table.fingerprint


def test_an_error_while_reading_writes_nothing(tmp_path):
    folder = write_csv(tmp_path / "data", "sample,time,sensor,value\np1,0,HR,high\np1,1,HR,80\n")
    refused(EventTable.read, folder)
    assert listing(tmp_path) == ["data", "data/events.csv"]
