"""PAM: windows of small files in the published layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from published_layout import pack, pam_subject, write

from raindrop.datasets import pamap2
from raindrop.errors import DataError
from raindrop.table.event_table import EventTable

SMALL = {"steps": 60, "min_windows": 5, "min_seconds": 2.0}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three subjects: one with a stretch of NaN, one with activity borders, one that is too short."""
    return write(
        tmp_path_factory.mktemp("pam") / "PAMAP2_Dataset",
        {
            "Protocol/subject101.dat": pam_subject([(0, 50), (1, 200), (4, 250), (0, 30), (1, 59)], seed=1),
            "Protocol/subject102.dat": pam_subject([(4, 240), (1, 210)], missing=slice(0, 130), seed=2),
            "Protocol/subject109.dat": pam_subject([(24, 150)], seed=3),
            "Optional/subject101.dat": pam_subject([(9, 300)], seed=4),
        },
    )


def test_windows_overlap_by_half_and_stay_within_one_activity(raw: Path) -> None:
    conversion = pamap2.convert(raw, **SMALL)  # type: ignore[arg-type]
    samples = conversion.table.samples
    first = samples.filter(pl.col("subject") == "101")
    assert first["activity"].to_list() == ["lying"] * 5 + ["walking"] * 7
    assert np.diff(first["start"].to_numpy())[:4] == pytest.approx([0.3] * 4)
    assert first["start"][0] == pytest.approx(8.38 + 0.5)
    assert first["start"][5] == pytest.approx(8.38 + 2.5)
    assert conversion.table.ids == [str(n) for n in range(len(conversion.table))]


def test_the_table_has_17_sensors_of_one_unit_with_times_in_seconds(raw: Path) -> None:
    table = pamap2.convert(raw, **SMALL).table  # type: ignore[arg-type]
    assert len(table.sensors) == 17
    assert table.sensors[0] == "hand_temperature"
    assert pamap2.convert(raw, unit="ankle", **SMALL).table.sensors[0] == "ankle_temperature"  # type: ignore[arg-type]
    assert table.time_unit == "seconds"
    assert table.time.min() == 0
    assert table.time.max() == pytest.approx(0.59)
    assert table.roles.label == "activity"
    assert table.roles.group == "subject"


def test_a_reading_is_the_value_of_its_column_and_row(tmp_path: Path) -> None:
    text = pam_subject([(1, 120)], seed=5)
    write(tmp_path, {"subject101.dat": text})
    table = pamap2.convert(tmp_path, steps=60, keep=1.0, min_windows=1, min_seconds=1).table
    row = text.splitlines()[30 + 7].split(" ")  # step 7 of the second window
    events = table[["1"]].events().filter(pl.col("time").is_between(0.069, 0.071))
    assert events["value"].to_list() == pytest.approx([float(v) for v in row[3:20]])
    chest = pamap2.convert(tmp_path, unit="chest", steps=60, keep=1.0, min_windows=1, min_seconds=1).table
    events = chest[["1"]].events().filter(pl.col("time").is_between(0.069, 0.071))
    assert events["value"].to_list() == pytest.approx([float(v) for v in row[20:37]])


def test_nan_is_not_a_reading_and_a_window_without_readings_is_excluded(raw: Path) -> None:
    conversion = pamap2.convert(raw, **SMALL)  # type: ignore[arg-type]
    second = conversion.table.samples.filter(pl.col("subject") == "102", pl.col("activity") == "walking")
    assert second["start"].to_list() == pytest.approx([8.38 + 0.9 + 0.3 * n for n in range(4)])
    assert conversion.report.total("no reading left in the window, excluded") == 3
    assert conversion.table[[second["sample"][0]]].num_readings < 17 * 20 * 0.6  # 20 of its 60 steps were measured
    assert np.isfinite(conversion.table.value).all()


def test_forty_percent_of_the_readings_are_kept_depending_on_the_seed(raw: Path) -> None:
    full = pamap2.convert(raw, keep=1.0, **SMALL).table  # type: ignore[arg-type]
    thinned = pamap2.convert(raw, **SMALL)  # type: ignore[arg-type]
    assert thinned.table.num_readings / full.num_readings == pytest.approx(0.4, abs=0.02)
    assert thinned.table.fingerprint == pamap2.convert(raw, **SMALL).table.fingerprint  # type: ignore[arg-type]
    assert thinned.table.fingerprint != pamap2.convert(raw, seed=1, **SMALL).table.fingerprint  # type: ignore[arg-type]
    assert thinned.report.total("removed at random (60%)") > 0


def test_the_readings_kept_for_a_subject_do_not_depend_on_other_subjects(raw: Path) -> None:
    both = pamap2.convert(raw, **SMALL).table  # type: ignore[arg-type]
    alone = pamap2.convert(raw / "Protocol/subject102.dat", steps=60, min_windows=1, min_seconds=2.0).table
    chosen = both[both.samples["subject"].to_numpy() == "102"]
    assert np.array_equal(chosen.value[chosen.rows()], alone.value[alone.rows()])


def test_short_subjects_and_rare_activities_are_excluded_with_their_reason(raw: Path) -> None:
    report = pamap2.convert(raw, **SMALL).report  # type: ignore[arg-type]
    assert report.total("subject 109 has only 2 s of named activities, excluded") == 1
    assert report.total("optional activities, not part of the protocol") == 1
    report = pamap2.convert(raw, steps=60, min_windows=12, min_seconds=1.0).report
    assert report.total("subject 109 has only 2 s of named activities, excluded") == 0
    assert report.total("'lying' has fewer than 12 windows, excluded") == 11
    assert report.total("'rope jumping' has fewer than 12 windows, excluded") == 4


def test_every_row_is_in_a_window_or_accounted_for(raw: Path) -> None:
    report = pamap2.convert(raw, **SMALL).report  # type: ignore[arg-type]
    assert report.total("between activities (transient)") == 80
    #  101: 200 = 5 windows to row 180, 250 = 7 windows to 240, 59 too few; 102: 240 and 210 fit; 109: 150 fits
    assert report.total("left over where an activity ends or breaks off") == 20 + 10 + 59


def test_a_gap_in_time_ends_a_window(tmp_path: Path) -> None:
    lines = pam_subject([(1, 120)], seed=5).splitlines(keepends=True)
    write(tmp_path, {"subject101.dat": "".join(lines[:70] + lines[75:])})
    conversion = pamap2.convert(tmp_path, steps=60, min_windows=1, min_seconds=1)
    assert len(conversion.table) == 1
    assert conversion.report.total("left over where an activity ends or breaks off") == 10 + 45


def test_an_empty_result_is_an_error_with_the_reason(raw: Path) -> None:
    with pytest.raises(DataError, match=r"No activity has 500 windows \(there are: lying 11, .*\)\.\nAsk for fewer"):
        pamap2.convert(raw, steps=60, min_seconds=2.0)
    with pytest.raises(DataError, match="No subject has a window of 6000 steps"):
        pamap2.convert(raw, steps=6000, min_seconds=2.0)
    with pytest.raises(DataError, match="cannot be combined"):
        pamap2.convert(raw, overlap=1.0)
    with pytest.raises(DataError, match="unit='foot' is not known"):
        pamap2.convert(raw, unit="foot")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ((" 1 ", " "), "there must be 53 ' '"),
        ((" 1 ", " 99 "), "the second column is not a known activity"),
        (("8.48 ", "8.38 "), "the times do not ascend"),
        (("8.48 ", "x "), "time is not a number"),
    ],
)
def test_a_broken_line_is_named_with_its_file(tmp_path: Path, change: tuple[str, str], fault: str) -> None:
    lines = pam_subject([(1, 120)]).splitlines(keepends=True)
    lines[10] = lines[10].replace(*change, 1)
    write(tmp_path, {"subject101.dat": "".join(lines)})
    with pytest.raises(DataError) as error:
        pamap2.convert(tmp_path, **SMALL)  # type: ignore[arg-type]
    assert f"subject101.dat: line 11 is broken, {fault}" in str(error.value)


def test_the_published_archive_and_the_unpacked_folder_give_the_same_table(raw: Path, tmp_path: Path) -> None:
    expected = pamap2.convert(raw, **SMALL).table.fingerprint  # type: ignore[arg-type]
    inner = pack(raw.parent, tmp_path / "download/PAMAP2_Dataset.zip")
    outer = pack(inner.parent, tmp_path / "pamap2.zip")
    assert pamap2.convert(outer, **SMALL).table.fingerprint == expected  # type: ignore[arg-type]


def test_a_split_by_subject_keeps_overlapping_windows_together(tmp_path: Path) -> None:
    for number in range(101, 106):
        write(tmp_path, {f"subject{number}.dat": pam_subject([(1, 200), (4, 200)], seed=number)})
    table = pamap2.convert(tmp_path, **SMALL).table  # type: ignore[arg-type]
    parts = table.split((0.6, 0.2, 0.2), seed=0)
    subjects = [set(part.samples["subject"]) for part in parts]
    assert sum(len(part) for part in parts) == len(table)
    assert sum(len(names) for names in subjects) == 5


def test_converting_twice_writes_the_same_bytes_and_they_read_back_identical(raw: Path, tmp_path: Path) -> None:
    conversion = pamap2.convert(raw, **SMALL)  # type: ignore[arg-type]
    first = conversion.write(tmp_path / "first")
    second = pamap2.convert(raw, **SMALL).write(tmp_path / "second")  # type: ignore[arg-type]
    for name in ("events.parquet", "samples.parquet", "conversion.json", "table.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert EventTable.read(first).fingerprint == conversion.table.fingerprint
