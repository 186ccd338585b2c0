"""A table's folder is compared with what was written: cheaply at every opening, byte by byte on request."""

import json
import os

import numpy as np
import pytest
from refusal import refused

from raindrop.cli.app import main
from raindrop.table import folder_checks as checks
from raindrop.table.event_table import EventTable


@pytest.fixture
def folder(tmp_path, make_table):
    return make_table(samples=12, sensors=4).write(tmp_path / "data")


@pytest.fixture
def large(folder, monkeypatch):
    """The folder as if its files were too large for checksums at every opening."""
    monkeypatch.setattr("raindrop.table.store.MAX_CHECKSUM_BYTES", 0)
    for name in ("events.parquet", "samples.parquet"):
        os.utime(folder / name, (0, 0))  # older than the arrays
    return folder


def change_json(folder, without_checksum=False, **changes):
    about = json.loads((folder / "table.json").read_text())
    if without_checksum:
        del about["checksum"]
    (folder / "table.json").write_text(json.dumps(about | changes))


def change_array(folder, name, at, value):
    array = np.load(folder / "readings" / f"{name}.npy")
    array[at] = value
    np.save(folder / "readings" / f"{name}.npy", array)


def test_swapped_sensor_names_are_noticed_with_and_without_a_checksum(folder):
    names = json.loads((folder / "table.json").read_text())["sensors"]
    change_json(folder, sensors=[names[1], names[0], *names[2:]])
    assert "table.json: changed since the table was written (its checksum does not fit)" in refused(
        EventTable.read, folder
    )
    change_json(folder, without_checksum=True)
    assert "its sensors are not those of events.parquet, or in another order" in refused(EventTable.read, folder)


def test_another_time_unit_or_role_is_noticed(folder):
    for changes in ({"time_unit": "days"}, {"roles": {"label": "ward", "statics": []}}, {"dropped": {"x": 1}}):
        before = (folder / "table.json").read_text()
        change_json(folder, **changes)
        assert "its checksum does not fit" in refused(EventTable.read, folder)
        (folder / "table.json").write_text(before)
    assert len(EventTable.read(folder)) == 12


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sensor", -1, r"sensor.npy: 1 of \d+ sensor codes are outside 0 to 3 \(first: reading 5\)"),
        ("sensor", 4, r"sensor.npy: 1 of \d+ sensor codes are outside 0 to 3"),
        ("value", np.nan, r"value.npy: 1 of \d+ values are not finite \(first: reading 5\); the file is damaged"),
        ("time", np.inf, r"time.npy: 1 of \d+ times are not finite"),
    ],
)
def test_what_can_be_no_reading_is_noticed_however_large_the_file(name, value, message, large):
    change_array(large, name, 5, value)
    with pytest.raises(ValueError, match=message):
        EventTable.read(large)


@pytest.mark.slow
def test_of_very_long_arrays_blocks_from_end_to_end_are_checked(large, monkeypatch):
    monkeypatch.setattr(checks, "BLOCK", 2)
    monkeypatch.setattr(checks, "WHOLE_BLOCKS", 4)
    monkeypatch.setattr(checks, "SAMPLED_BLOCKS", 4)
    readings = EventTable.read(large).num_readings
    assert readings > 20
    noticed = []
    for at in range(readings):
        before = (large / "readings" / "value.npy").read_bytes()
        change_array(large, "value", at, np.nan)
        try:
            EventTable.read(large)
        except ValueError:
            noticed.append(at)
        (large / "readings" / "value.npy").write_bytes(before)
    assert 0 in noticed
    assert readings - 1 in noticed
    assert 6 <= len(noticed) <= 8


def test_the_memory_of_what_was_checked_is_given_back_block_by_block(large, monkeypatch):
    monkeypatch.setattr(checks, "BLOCK", 10)
    given_back = []
    monkeypatch.setattr(checks, "release", lambda array: given_back.append(array.dtype.name))
    readings = EventTable.read(large).num_readings
    blocks = -(-readings // 10)
    assert blocks > 1
    assert given_back == ["int32"] * blocks + ["float64"] * (2 * blocks)


@pytest.mark.slow
def test_every_byte_is_compared_on_request(large, capsys):
    main(["inspect", str(large)])
    assert checks.CHECKED in capsys.readouterr().out
    main(["inspect", str(large), "--verify"])
    assert checks.VERIFIED in capsys.readouterr().out
    table = EventTable.read(large)
    changed = float(table.value[5]) + 1  # a flipped bit that leaves a possible value
    change_array(large, "value", 5, changed)
    assert EventTable.read(large).value[5] == changed
    message = refused(EventTable.read, large, verify=True)
    assert message.startswith(f"{large / 'readings/value.npy'}: not the file that was written with this table")
    with pytest.raises(SystemExit):
        main(["inspect", str(large), "--verify"])


def test_verifying_also_compares_the_fingerprint(folder):
    change_json(folder, without_checksum=True, time_unit="days")
    assert EventTable.read(folder).time_unit == "days"  # as a folder of an older version could be
    assert "the table is not the one that was written (its fingerprint is" in refused(
        EventTable.read, folder, verify=True
    )


def test_without_table_json_there_is_nothing_to_verify_by(folder, capsys):
    (folder / "table.json").unlink()
    with pytest.raises(SystemExit):
        main(["inspect", str(folder), "--verify"])
    assert "there is no table.json with checksums to verify it by" in capsys.readouterr().err
