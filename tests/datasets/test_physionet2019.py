"""P19: small files in the published layout, with the irregularities of the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from published_layout import P19_COLUMNS, p19_record, pack, write

from raindrop.datasets import physionet2019
from raindrop.errors import DataError
from raindrop.table.event_table import EventTable


def test_the_papers_cohort_is_four_rules_each_counted(p19_folder: Path) -> None:
    conversion = physionet2019.convert(p19_folder)
    assert conversion.table.ids == ["1", "2", "5", "100008", "100009"]
    report = conversion.report
    assert report.total("no row before the first positive label, excluded") == 1
    assert report.total("more than 60 rows, excluded") == 1
    assert report.total("no reading in the whole record, excluded") == 1
    assert report.total("no HospAdmTime, excluded") == 1


def test_every_row_is_accounted_for(p19_folder: Path) -> None:
    conversion = physionet2019.convert(p19_folder)
    report = conversion.report
    kept = conversion.table.samples["rows_kept"].sum()
    assert kept == 4 + 2 + 60 + 1 + 2
    assert report.total("at or after the first positive label") == 2 + 1
    assert report.read["rows"] == kept + report.total("at or after the first positive label") + report.total(
        "of an excluded sample"
    )


def test_a_septic_record_ends_before_its_first_positive_row(p19_folder: Path) -> None:
    table = physionet2019.convert(p19_folder).table
    assert dict(zip(table.ids, table.labels.tolist(), strict=True)) == {
        "1": 0, "2": 1, "5": 0, "100008": 1, "100009": 0,
    }  # fmt: skip
    events = table[["2"]].events()
    assert list(events.select("time", "sensor", "value").iter_rows()) == [
        (0.0, "HR", 90.0), (0.0, "Temp", 36.5), (1.0, "BaseExcess", -3.0),
    ]  # fmt: skip


def test_iculos_is_that_of_the_last_row_kept_and_tells_nothing_later(p19_folder: Path) -> None:
    before = physionet2019.convert(p19_folder).table
    assert before.samples["ICULOS"].to_list() == [4.0, 6.0, 60.0, 1.0, 2.0]
    longer = p19_record(
        [{"HR": 90, "Temp": 36.5}, {"BaseExcess": -3}, *[{"HR": 99, "SepsisLabel": 1}] * 30], first_hour=5
    )
    write(p19_folder, {"training_setA/p000002.psv": longer})
    assert physionet2019.convert(p19_folder).table.fingerprint == before.fingerprint


def test_iculos_can_be_left_out_of_the_statics(p19_folder: Path) -> None:
    assert physionet2019.convert(p19_folder).table.roles.statics == (
        "Age", "Gender", "Unit1", "Unit2", "HospAdmTime", "ICULOS",
    )  # fmt: skip
    without = physionet2019.convert(p19_folder, iculos=False).table
    assert without.roles.statics == ("Age", "Gender", "Unit1", "Unit2", "HospAdmTime")


def test_unmeasured_statics_are_null_and_negative_ones_stay(p19_folder: Path) -> None:
    samples = physionet2019.convert(p19_folder).table.samples
    assert samples["Unit1"].to_list() == [None, None, 1.0, None, None]
    assert samples["HospAdmTime"].to_list() == [-2.5] * 5
    assert samples["set"].to_list() == ["A", "A", "A", "B", "B"]


def test_samples_without_readings_stay_and_are_pointed_out(p19_folder: Path) -> None:
    conversion = physionet2019.convert(p19_folder)
    assert conversion.table.count.tolist() == [4, 3, 60, 0, 2]
    assert "1 samples of the cohort have no reading" in conversion.report.notes[0]


def test_impossible_values_are_dropped_unless_switched_off_and_zero_is_a_value(p19_folder: Path) -> None:
    conversion = physionet2019.convert(p19_folder)
    assert conversion.report.total("FiO2 outside 0.1 to 1") == 1
    values = conversion.table[["100009"]].events()["value"].to_list()
    assert values == pytest.approx([0.0, 0.4])
    assert physionet2019.convert(p19_folder, keep_impossible=True).table[["100009"]].num_readings == 3


def test_every_record_with_an_early_row_stays_when_asked(p19_folder: Path) -> None:
    table = physionet2019.convert(p19_folder, cohort="all").table
    assert table.ids == ["1", "2", "4", "5", "100006", "100007", "100008", "100009"]


def test_sensors_and_columns_are_in_the_published_order() -> None:
    assert list(physionet2019.COLUMNS) == P19_COLUMNS
    assert len(physionet2019.SENSORS) == 34


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("80|", ""), "there must be 40 '|'"),
        (("80|", "eighty|"), "HR is not a number"),
        (("80|", "|"), "HR is not a number"),
        (("|1|0\n", "|1|7\n"), "SepsisLabel is neither 0 nor 1"),
        (("|1|0\n", "|NaN|0\n"), "ICULOS is not a number"),
    ],
)
def test_a_broken_line_is_named_with_its_file(p19_folder: Path, change: tuple[str, str], fault: str) -> None:
    path = p19_folder / "training_setA/p000001.psv"
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(DataError) as error:
        physionet2019.convert(p19_folder)
    assert f"{path}: line 2 is broken, {fault}" in str(error.value)


def test_hours_that_do_not_ascend_are_refused(p19_folder: Path) -> None:
    write(p19_folder, {"training_setA/p000001.psv": p19_record([{"ICULOS": 3}, {"ICULOS": 2}])})
    with pytest.raises(DataError, match=r"p000001.psv: the hours \(ICULOS\) do not ascend"):
        physionet2019.convert(p19_folder)


def test_an_empty_record_is_excluded_not_lost(p19_folder: Path) -> None:
    write(p19_folder, {"training_setA/p000008.psv": "|".join(P19_COLUMNS) + "\n"})
    conversion = physionet2019.convert(p19_folder)
    assert "8" not in conversion.table.ids
    assert conversion.report.total("no row before the first positive label, excluded") == 2


def test_the_wrong_data_set_is_refused(p12_folder: Path) -> None:
    with pytest.raises(DataError, match=r"no records of P19 in it.\nP19 is published as training_setA"):
        physionet2019.convert(p12_folder)


@pytest.mark.parametrize("kind", ["tar.xz", "zip"])
def test_an_archive_gives_what_the_folder_gives(p19_folder: Path, tmp_path: Path, kind: str) -> None:
    expected = physionet2019.convert(p19_folder).table.fingerprint
    assert physionet2019.convert(pack(p19_folder, tmp_path / f"p19.{kind}")).table.fingerprint == expected


def test_samples_ascend_in_whatever_order_the_sources_are_given(p19_folder: Path) -> None:
    sources = [p19_folder / "training_setB", p19_folder / "training_setA"]
    assert physionet2019.convert(sources).table.ids == ["1", "2", "5", "100008", "100009"]


def test_converting_twice_writes_the_same_bytes_and_they_read_back_identical(p19_folder: Path, tmp_path: Path) -> None:
    first = physionet2019.convert(p19_folder).write(tmp_path / "first")
    conversion = physionet2019.convert(p19_folder)
    second = conversion.write(tmp_path / "second")
    for name in ("events.parquet", "samples.parquet", "conversion.json", "table.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert EventTable.read(first).fingerprint == conversion.table.fingerprint
