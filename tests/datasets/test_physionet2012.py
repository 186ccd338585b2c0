"""P12: small files in the published layout, with the irregularities of the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from published_layout import p12_outcomes, p12_record, pack, write

from raindrop.datasets import physionet2012
from raindrop.errors import DataError
from raindrop.table.event_table import EventTable


def readings(table: EventTable, sample: str) -> list[tuple[float, str, float]]:
    frame = table[[sample]].events()
    return [(round(t, 4), s, round(v, 4)) for t, s, v in frame.select("time", "sensor", "value").iter_rows()]


def test_readings_become_hours_in_the_papers_order_of_sensors(p12_folder: Path) -> None:
    table = physionet2012.convert(p12_folder).table
    assert table.sensors == physionet2012.SENSORS
    assert len(table.sensors) == 36
    assert table.time_unit == "hours"
    assert table.ids == ["132539", "132540", "142676", "152871"]
    assert readings(table, "132539") == [
        (0.1167, "HR", 73), (0.1167, "Temp", 35.1), (0.6167, "HR", 77), (48.0, "HR", 70),
    ]  # fmt: skip


def test_statics_are_found_by_name_among_readings_of_minute_0(p12_folder: Path) -> None:
    table = physionet2012.convert(p12_folder).table
    about = table.samples.row(table.ids.index("142676"), named=True)
    assert {name: about[name] for name in physionet2012.STATICS} == {
        "Age": 71.0, "Gender": "1", "Height": 160.5, "ICUType": "2", "Weight": 70.8,
    }  # fmt: skip
    assert readings(table, "142676") == [(0.0, "GCS", 15), (0.0, "HR", 88), (1.5, "GCS", 14)]
    assert table.roles.statics == physionet2012.STATICS


def test_unmeasured_statics_are_null(p12_folder: Path) -> None:
    conversion = physionet2012.convert(p12_folder)
    samples = conversion.table.samples
    assert samples["Height"].to_list() == [None, 170.0, 160.5, 170.0]
    assert samples["Gender"].to_list() == [None, "0", "1", "0"]
    assert samples["Weight"].to_list() == [80.0, None, 70.8, 80.0]
    assert conversion.report.total("Gender -1, not measured") == 1
    assert (0.0, "DiasABP", -1.0) not in readings(conversion.table, "132540")


def test_every_row_is_accounted_for(p12_folder: Path) -> None:
    conversion = physionet2012.convert(p12_folder)
    report = conversion.report
    assert report.total("empty variable name") == 2
    assert report.total("-1, not measured", "readings") == 1
    assert report.total("duplicate readings (last)") == 1
    assert report.total("pH outside 6 to 8.5") == 1
    assert report.total("later value of a static (Weight, above all), not a reading") == 2
    assert report.total("no reading of any sensor, excluded") == 1
    assert report.total("Height outside 50 to 275, emptied") == 1
    dropped = sum(number for unit, _, number in report.rows() if unit in ("rows", "readings"))
    statics = 6 * report.read["files"]
    assert report.read["rows"] == conversion.table.num_readings + dropped + statics
    assert sum(conversion.table.dropped.values()) == dropped


def test_the_last_of_several_values_in_a_minute_counts_by_default(p12_folder: Path) -> None:
    assert (2.0, "Urine", 30) in readings(physionet2012.convert(p12_folder).table, "132540")
    assert (2.0, "Urine", 465) in readings(physionet2012.convert(p12_folder, duplicates="mean").table, "132540")


def test_impossible_values_are_kept_on_request(p12_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conversion = physionet2012.convert(p12_folder, keep_impossible=True)
    assert conversion.report.total("pH outside 6 to 8.5") == 0
    assert conversion.report.total("duplicate readings (last)") == 2  # 735 and 7.35 are now two values of one minute
    monkeypatch.setattr(physionet2012, "LIMITS", {"HR": (0, 75)})
    assert physionet2012.convert(p12_folder).report.total("HR outside 0 to 75") == 2


def test_both_labels_are_written_and_an_unknown_stay_is_empty_or_short(p12_folder: Path) -> None:
    table = physionet2012.convert(p12_folder).table
    assert table.labels.tolist() == [0, 1, 0, 1]
    assert table.samples["length_of_stay_gt_3"].to_list() == [1, 0, None, 1]
    assert table.samples["length_of_stay"].to_list() == [5, 3, None, 4]
    counted = physionet2012.convert(p12_folder, label="length_of_stay_gt_3", unknown_stay="short")
    assert counted.table.labels.tolist() == [1, 0, 0, 1]
    assert counted.report.total("length of stay -1 is unknown: counted as short") == 1


def test_a_record_without_outcome_has_empty_labels(p12_folder: Path) -> None:
    (p12_folder / "Outcomes-c.txt").unlink()
    conversion = physionet2012.convert(p12_folder)
    assert conversion.table.samples["mortality"].to_list() == [0, 1, 0, None]
    assert conversion.report.total("no outcome, both labels empty") == 1


def test_missing_outcomes_are_an_error_that_names_the_files(p12_folder: Path) -> None:
    with pytest.raises(DataError, match=r"no outcomes .*\n.*Outcomes-a.txt"):
        physionet2012.convert(p12_folder / "set-a")


def test_an_unknown_variable_is_counted(p12_folder: Path) -> None:
    write(p12_folder, {"set-a/132541.txt": p12_record(132541, ["00:10,HR,60", "00:10,Mood,3"])})
    assert physionet2012.convert(p12_folder).report.total("unknown variable name") == 1


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("03:15,HR", "there must be 2 ','"),
        ("03:15,HR,77,8", "there must be 2 ','"),
        ("03:15,HR,seven", "Value is not a number"),
        ("03:15,HR,", "Value is not a number"),
        ("3h,HR,77", "the time is not like 35:19"),
        ("03:75,HR,77", "the time is not like 35:19"),
        ("", "there must be 2 ','"),
    ],
)
def test_a_broken_line_is_named_with_its_file(p12_folder: Path, line: str, fault: str) -> None:
    record = p12_record(132541, ["00:07,HR,73", line, "00:09,HR,73"])
    write(p12_folder, {"set-a/132541.txt": record})
    with pytest.raises(DataError) as error:
        physionet2012.convert(p12_folder)
    assert f"{p12_folder}/set-a/132541.txt: line 9 is broken, {fault}" in str(error.value)
    assert "download or copy" in str(error.value)


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\r\n\r\n"])
def test_lines_may_end_as_on_windows_and_the_last_in_any_way(p12_folder: Path, end: bytes) -> None:
    before = physionet2012.convert(p12_folder).table
    for path in (p12_folder / "set-a/132539.txt", p12_folder / "Outcomes-a.txt"):
        path.write_bytes(path.read_bytes().rstrip(b"\n").replace(b"\n", b"\r\n") + end)
    assert physionet2012.convert(p12_folder).table.fingerprint == before.fingerprint


def test_a_renamed_record_is_refused(p12_folder: Path) -> None:
    write(p12_folder, {"set-a/132599.txt": p12_record(132541, ["00:07,HR,73"])})
    with pytest.raises(DataError, match=r"132599.txt: the row RecordID says 132541"):
        physionet2012.convert(p12_folder)


def test_a_second_different_file_for_a_record_is_refused_and_the_same_one_counted(p12_folder: Path) -> None:
    same = (p12_folder / "set-a/132539.txt").read_bytes()
    write(p12_folder, {"set-b/132539.txt": same})
    conversion = physionet2012.convert(p12_folder)
    assert conversion.report.total("the same file a second time, read once") == 1
    assert len(conversion.table) == 4
    write(p12_folder, {"set-b/132539.txt": same.replace(b"HR,73", b"HR,74")})
    with pytest.raises(DataError, match=r"set-b/132539.txt: a second, different file for the record of .*set-a/132539"):
        physionet2012.convert(p12_folder)


def test_two_outcomes_for_one_record_are_refused(p12_folder: Path) -> None:
    write(p12_folder, {"Outcomes-c.txt": p12_outcomes("132539,6,1,5,-1,1")})
    with pytest.raises(DataError, match=r"2 outcomes are for a record that has another one \(first: 132539\)"):
        physionet2012.convert(p12_folder)


def test_a_file_of_another_kind_is_refused(p12_folder: Path) -> None:
    write(p12_folder, {"set-a/132541.txt": "Zeit,Name,Wert\n"})
    with pytest.raises(DataError, match=r"132541.txt: the first line is 'Zeit,Name,Wert', but it must be 'Time,Para"):
        physionet2012.convert(p12_folder)


def test_a_wrong_folder_says_what_is_expected(tmp_path: Path) -> None:
    write(tmp_path, {"notes.md": "nothing"})
    with pytest.raises(DataError, match=r"there are no records of P12 in it.\nP12 is published as set-a"):
        physionet2012.convert(tmp_path)
    with pytest.raises(DataError, match="there is no such file or folder"):
        physionet2012.convert(tmp_path / "nowhere")


def test_a_misspelled_option_is_an_error(p12_folder: Path) -> None:
    with pytest.raises(DataError, match=r"label='mortalty' is not known: did you mean 'mortality'"):
        physionet2012.convert(p12_folder, label="mortalty")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["tar.gz", "tar.xz", "tgz", "tar", "zip"])
def test_archives_give_what_the_folder_gives(p12_folder: Path, tmp_path: Path, kind: str) -> None:
    expected = physionet2012.convert(p12_folder)
    packed = tmp_path / "packed"
    for part in "abc":
        pack_set(p12_folder, packed, part, kind)
    assert physionet2012.convert(packed).table.fingerprint == expected.table.fingerprint
    several = sorted(packed.iterdir(), reverse=True)  # in whatever order they are given, samples ascend
    assert physionet2012.convert(several).table.fingerprint == expected.table.fingerprint


def pack_set(folder: Path, packed: Path, part: str, kind: str) -> None:
    one = folder.parent / f"only-{part}"
    for path in (folder / f"set-{part}").iterdir():
        write(one, {f"set-{part}/{path.name}": path.read_bytes()})
    pack(one, packed / f"set-{part}.{kind}")
    write(packed, {f"Outcomes-{part}.txt": (folder / f"Outcomes-{part}.txt").read_bytes()})


def test_converting_twice_writes_the_same_bytes_and_they_read_back_identical(p12_folder: Path, tmp_path: Path) -> None:
    conversion = physionet2012.convert(p12_folder)
    first = conversion.write(tmp_path / "first")
    second = physionet2012.convert(p12_folder).write(tmp_path / "second")
    for name in ("events.parquet", "samples.parquet", "conversion.json", "table.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    again = EventTable.read(first)
    assert again.fingerprint == conversion.table.fingerprint
    assert again.roles == conversion.table.roles
    assert again.dropped == conversion.table.dropped


def test_many_small_batches_give_the_same_table(p12_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_batch = physionet2012.convert(p12_folder)
    batches = physionet2012.batch_records
    monkeypatch.setattr(physionet2012, "batch_records", lambda *args: batches(*args, size=1))
    parts = physionet2012.convert(p12_folder)
    assert parts.table.fingerprint == one_batch.table.fingerprint
    assert parts.report.to_dict() == one_batch.report.to_dict()
