"""A table on disk: what is written is read back identical, edits are noticed, format 1 is still read."""

import datetime as dt
import json
import os
import shutil

import numpy as np
import polars as pl
import pytest
from hand_made import EVENTS, SAMPLES, hours, is_same

from raindrop.errors import DataError, OutputExistsError
from raindrop.files import file_checksum
from raindrop.table.event_table import EventTable

# ---------------------------------------------------------------- writing and reading


def test_what_was_written_is_read_back_identical(large, tmp_path):
    table = large.with_roles(group="site", statics=["site"])
    folder = table.write(tmp_path / "data")
    assert sorted(path.name for path in folder.iterdir()) == [
        "events.parquet",
        "readings",
        "samples.parquet",
        "table.json",
    ]
    back = EventTable.read(folder)
    assert is_same(back, table)
    for name in ("time", "sensor", "value", "start", "count"):
        array, original = getattr(back, name), getattr(table, name)
        assert np.array_equal(array, original)
        assert array.dtype == original.dtype


def test_a_selection_is_written_without_the_other_readings(large, tmp_path):
    part = large[[5, 3, 100]].where(pl.col("value") > 0)
    back = EventTable.read(part.write(tmp_path / "part"))
    assert is_same(back, part)
    assert len(back.value) == part.num_readings


@pytest.mark.parametrize("key", [[], [2]])
def test_a_table_without_samples_or_readings_can_be_written_and_read(table, tmp_path, key):
    assert is_same(EventTable.read(table[key].write(tmp_path / "data")), table[key])


def test_a_written_table_opens_memory_mapped_and_slicing_copies_nothing(large, tmp_path):
    back = EventTable.read(large.write(tmp_path / "data"))
    for name in ("time", "sensor", "value"):
        assert isinstance(getattr(back, name), np.memmap)
        assert np.shares_memory(getattr(back[10:20], name), getattr(back, name))
    assert isinstance(back[[3, 5]].value, np.memmap)
    assert isinstance(back.with_labels(np.arange(200)).value, np.memmap)


def test_a_written_table_can_be_overwritten_while_it_is_open(large, tmp_path):
    large.write(tmp_path / "data")
    back = EventTable.read(tmp_path / "data")
    with pytest.raises(OutputExistsError, match="exists already"):
        back.write(tmp_path / "data")
    back[:50].write(tmp_path / "data", overwrite=True)
    assert is_same(EventTable.read(tmp_path / "data"), large[:50])
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_roles_named_when_reading_replace_the_written_ones(large, tmp_path):
    large.write(tmp_path / "data")
    back = EventTable.read(tmp_path / "data", label="site", group=None)
    assert isinstance(back.value, np.memmap)
    assert back.roles.label == "site"


def test_writing_twice_gives_the_same_bytes(large, tmp_path):
    one, two = large.write(tmp_path / "one"), large.write(tmp_path / "two")
    for path in sorted(one.rglob("*")):
        assert path.is_dir() or path.read_bytes() == (two / path.relative_to(one)).read_bytes(), path


def edit(folder, **columns):
    frame = pl.read_parquet(folder / "events.parquet")
    frame.with_columns(**columns).write_parquet(folder / "events.parquet", compression="zstd")


def test_an_edit_of_the_events_is_noticed(table, tmp_path):
    folder = table.write(tmp_path / "data")
    edit(folder, value=pl.col("value") * 2)
    back = EventTable.read(folder)
    assert back.value.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert back.roles == table.roles
    assert back.samples.equals(table.samples)


def test_an_edit_that_keeps_the_file_size_is_noticed(tmp_path):
    rng = np.random.default_rng(0)
    table = EventTable.from_columns(np.arange(20_000) % 50, rng.random(20_000), ["x"] * 20_000, rng.normal(size=20_000))
    folder = table.write(tmp_path / "data")
    size, value = (folder / "events.parquet").stat().st_size, table.value.copy()
    value[[10, 20]] = value[[20, 10]]
    edit(folder, value=pl.Series(value))
    assert (folder / "events.parquet").stat().st_size == size, "the edit should be one that the size does not give away"
    assert np.array_equal(EventTable.read(folder).value, value)


def test_an_edit_of_the_samples_is_noticed(table, tmp_path):
    folder = table.write(tmp_path / "data")
    samples = pl.read_parquet(folder / "samples.parquet").with_columns(label=pl.lit("maybe"))
    samples.write_parquet(folder / "samples.parquet")
    assert EventTable.read(folder).labels.tolist() == ["maybe"] * 3


@pytest.mark.parametrize("start", [hours(4), [2.0]], ids=["date times", "numbers"])
def test_an_edited_table_is_not_shifted_to_its_reference_again_and_keeps_its_cutoff(tmp_path, start):
    zero = start[0]
    time = hours(4, 5, 6) if isinstance(zero, dt.datetime) else [2.0, 3.0, 4.0]
    events = {"sample": ["a"] * 3, "time": time, "sensor": ["x"] * 3, "value": [1, 2, 3]}
    table = EventTable.from_frames(events, {"sample": ["a"], "reference": start, "cutoff": time[1:2]})
    folder = table.write(tmp_path / "data")
    late = pl.read_parquet(folder / "events.parquet").with_columns(time=pl.Series([0.5, 9.0]))
    late.write_parquet(folder / "events.parquet")
    assert EventTable.read(folder).time.tolist() == [0.5]


def test_negative_times_and_an_unused_label_column_survive_an_edit(tmp_path):
    events = {**EVENTS, "time": [-2.0, 1.5, 0.0, 1.5, 0.5]}
    table = EventTable.from_frames(events, SAMPLES, before_reference="keep", label="")
    folder = table.write(tmp_path / "data")
    edit(folder, value=pl.col("value") + 1)
    back = EventTable.read(folder)
    assert back.time.tolist() == table.time.tolist()
    assert back.roles.label is None


def test_without_its_arrays_a_written_table_is_read_from_parquet(table, tmp_path):
    folder = table.write(tmp_path / "data")
    shutil.rmtree(folder / "readings")
    assert is_same(EventTable.read(folder), table)


def test_sensors_keep_their_order_without_the_arrays(tmp_path):
    table = EventTable.from_frames(EVENTS, sensors=["T", "SpO2", "HR"])
    folder = table.write(tmp_path / "data")
    shutil.rmtree(folder / "readings")
    assert is_same(EventTable.read(folder), table)


def as_written_by_0_1(folder):
    """Turn a folder of the current format into format 1: values as float32, in the arrays and in Parquet."""
    events = pl.read_parquet(folder / "events.parquet").with_columns(pl.col("value").cast(pl.Float32))
    events.write_parquet(folder / "events.parquet", compression="zstd")
    np.save(folder / "readings" / "value.npy", events["value"].to_numpy())
    info = json.loads((folder / "table.json").read_text())
    for name in info["written"]:
        path = folder / name
        info["written"][name] = [path.stat().st_size, file_checksum(path)]
    del info["checksum"]  # 0.1 had none
    (folder / "table.json").write_text(json.dumps(info | {"format": 1}))
    return folder


def test_a_folder_written_by_0_1_is_read_from_its_parquet_files(tmp_path):
    samples = {**SAMPLES, "cutoff": [1.5, 1.0, 3.0], "reference": [0.0, 0.0, 0.0]}
    table = EventTable.from_frames(EVENTS, samples, statics=["age"], sensors=["T", "SpO2", "HR"], time_unit="days")
    folder = as_written_by_0_1(table.write(tmp_path / "data"))
    back = EventTable.read(folder)
    assert is_same(back, table)
    assert back.value.dtype == np.float64
    assert back.dropped == table.dropped == {"after the cutoff": 1}
    again = EventTable.read(back.write(tmp_path / "again"))
    assert is_same(again, table)


def test_values_keep_all_their_digits(tmp_path):
    values = [120_000_000_003.0, 120_000_000_004.0, 0.1, -1e-300]
    table = EventTable.from_columns(["a"] * 4, range(4), ["x"] * 4, values)
    folder = table.write(tmp_path / "data")
    assert EventTable.read(folder).value.tolist() == values
    shutil.rmtree(folder / "readings")
    assert EventTable.read(folder).value.tolist() == values
    assert table.where(pl.col("value") > 0).value.tolist() == values[:3]


def test_a_large_file_is_compared_byte_by_byte_only_where_it_is_younger_than_the_arrays(large, tmp_path, monkeypatch):
    monkeypatch.setattr("raindrop.table.store.MAX_CHECKSUM_BYTES", 0)
    folder = large.write(tmp_path / "data")
    parquet, arrays = folder / "events.parquet", folder / "readings" / "offsets.npy"
    os.utime(parquet, ns=(0, arrays.stat().st_mtime_ns - 1))
    os.utime(folder / "samples.parquet", ns=(0, 0))
    with monkeypatch.context() as patch:
        patch.setattr("raindrop.table.store.file_checksum", None)  # not called
        assert isinstance(EventTable.read(folder).value, np.memmap)
    os.utime(parquet, ns=(0, arrays.stat().st_mtime_ns))  # younger, as in a copy: every byte is compared
    assert isinstance(EventTable.read(folder).value, np.memmap)
    content = json.loads((folder / "table.json").read_text())["written"]["events.parquet"]
    other = large.with_roles().where(pl.col("value") > 0).write(tmp_path / "other") / "events.parquet"
    parquet.write_bytes(other.read_bytes() + bytes(content[0] - other.stat().st_size))
    with pytest.raises(DataError, match="not a readable Parquet file"):
        EventTable.read(folder)


def test_table_json_has_sensors_roles_and_fingerprint(table, tmp_path):
    about = json.loads((table.write(tmp_path / "data") / "table.json").read_text())
    assert about["sensors"] == ["HR", "T"]
    assert about["roles"]["label"] == "label"
    assert about["fingerprint"] == table.fingerprint


@pytest.mark.parametrize("name", ["notes.txt", "events.csv", "readings/mine.npy", "splits.parquet"])
def test_overwriting_a_table_removes_nothing_that_did_not_come_with_it(table, tmp_path, name):
    folder = table.write(tmp_path / "data")
    (folder / name).write_text("mine")
    with pytest.raises(OutputExistsError, match=rf"first: '{name}'.*\nMove them elsewhere, or choose another name"):
        table[:1].write(folder, overwrite=True)
    assert (folder / name).read_text() == "mine"
    (folder / name).unlink()
    assert len(EventTable.read(table[:1].write(folder, overwrite=True))) == 1


def test_a_folder_of_another_origin_is_not_overwritten_though_its_files_have_the_same_names(table, tmp_path):
    folder = table.write(tmp_path / "data")
    for about in (None, "{}"):
        (folder / "table.json").unlink(missing_ok=True)
        if about is not None:
            (folder / "table.json").write_text(about)
        with pytest.raises(OutputExistsError, match="were not written with the content to be replaced"):
            table[:1].write(folder, overwrite=True)
    assert pl.read_parquet(folder / "events.parquet").height == table.num_readings
