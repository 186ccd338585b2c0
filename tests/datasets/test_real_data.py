"""The published files themselves, where they are at hand: the paper's counts, labels and splits.

One test for each data set, because a conversion takes long enough to be done once, also when tests run in parallel.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from raindrop.datasets import physionet2012, physionet2019
from raindrop.datasets.conversion import Conversion
from raindrop.table.event_table import EventTable
from raindrop.table.split_files import Split

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_p12_gives_the_papers_cohort_labels_statics_and_splits(real_data: Path, tmp_path: Path) -> None:
    conversion = physionet2012.convert(real_data / "p12")
    p12_is_the_papers_cohort_in_the_papers_order(conversion, real_data)
    p12_has_the_known_labels(conversion)
    p12_statics_are_the_papers_nine_once_classes_have_columns(conversion)
    p12_accounts_for_every_row(conversion)
    the_papers_five_splits_apply(conversion, real_data / "p12", (9_590, 1_199, 1_199))
    the_documentation_states_the_account(conversion, "p12")
    the_table_reads_back_identical(conversion, tmp_path)


@pytest.mark.slow
def test_p19_gives_the_papers_cohort_labels_and_splits(real_data: Path) -> None:
    if not (real_data / "p19").is_dir():
        pytest.skip(f"P19 is not at {real_data}")
    conversion = physionet2019.convert(real_data / "p19")
    p19_is_the_papers_cohort_in_the_papers_order(conversion, real_data)
    p19_exclusions_add_up(conversion)
    the_papers_five_splits_apply(conversion, real_data / "p19", (31_042, 3_880, 3_881))
    the_documentation_states_the_account(conversion, "p19")


@pytest.mark.slow
def test_a_second_conversion_writes_the_same_bytes(real_data: Path, tmp_path: Path) -> None:
    source = [real_data / "p12/set-a.tar.xz", real_data / "p12/Outcomes-a.txt"]
    first, second = (physionet2012.convert(source).write(tmp_path / name) for name in ("first", "second"))
    for name in ("events.parquet", "samples.parquet", "table.json", "conversion.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_the_papers_pam_split_leaks_between_overlapping_windows(real_data: Path) -> None:
    """Why there is a split by subject: most test windows have a neighbour of their class in train."""
    labels = pl.read_parquet(real_data / "pam/official_labels.parquet")["label"].to_list()
    rows = pl.read_parquet(real_data / "pam/official_splits.parquet").filter(pl.col("split") == 1)
    part = dict(rows.select("window", "part").iter_rows())
    test = [window for window, name in part.items() if name == "test"]
    leaks = [any(part.get(n) == "train" and labels[n] == labels[w] for n in (w - 1, w + 1)) for w in test]
    assert sum(leaks) / len(leaks) > 0.9


def p12_is_the_papers_cohort_in_the_papers_order(p12: Conversion, real_data: Path) -> None:
    cohort = pl.read_parquet(real_data / "p12/official_cohort.parquet")
    assert p12.table.ids == cohort["sample"].cast(pl.String).to_list()
    assert len(p12.table) == 11_988
    assert len(p12.table.sensors) == 36
    assert p12.report.total("no reading of any sensor, excluded") == 12


def p12_has_the_known_labels(p12: Conversion) -> None:
    assert p12.table.labels.sum() == 1_707
    stay = p12.table.samples["length_of_stay_gt_3"]
    assert (stay.sum(), stay.null_count()) == (11_155, 157)
    assert p12.report.total("length of stay -1 is unknown: length_of_stay_gt_3 empty") == 157


def p12_statics_are_the_papers_nine_once_classes_have_columns(p12: Conversion) -> None:
    samples = p12.table.samples
    classes = {name: sorted(samples[name].drop_nulls().unique()) for name in ("Gender", "ICUType")}
    assert classes == {"Gender": ["0", "1"], "ICUType": ["1", "2", "3", "4"]}
    numbers = [name for name in p12.table.roles.statics if name not in classes]
    assert len(numbers) + sum(len(names) for names in classes.values()) == 9
    assert all(samples[name].min() > 0 for name in numbers)  # type: ignore[operator]


def p12_accounts_for_every_row(p12: Conversion) -> None:
    report = p12.report
    assert report.read == {"files": 12_000, "rows": 5_285_818, "outcomes": 12_000}
    assert report.total("empty variable name") == 2_403
    lost = sum(number for unit, _, number in report.rows() if unit in ("rows", "readings"))
    assert report.read["rows"] == p12.table.num_readings + lost + 6 * 12_000
    assert p12.table.time.max() == 48.0


def p19_is_the_papers_cohort_in_the_papers_order(p19: Conversion, real_data: Path) -> None:
    cohort = pl.read_parquet(real_data / "p19/official_cohort.parquet")
    samples = p19.table.samples
    assert p19.table.ids == cohort["sample"].cast(pl.String).to_list()
    assert len(p19.table) == 38_803
    assert p19.table.labels.tolist() == cohort["label"].to_list()
    assert samples["rows_kept"].to_list() == cohort["n_rows_kept"].to_list()
    assert samples["set"].to_list() == cohort["set"].to_list()
    assert int(p19.table.labels.sum()) == 1_626
    assert len(p19.table.sensors) == 34


def p19_exclusions_add_up(p19: Conversion) -> None:
    report = p19.report
    excluded = {reason: number for unit, reason, number in report.rows() if unit == "samples"}
    assert excluded == {
        "more than 60 rows, excluded": 1_104,
        "no row before the first positive label, excluded": 426,
        "no reading in the whole record, excluded": 2,
        "no HospAdmTime, excluded": 1,
    }
    assert report.read["files"] - sum(excluded.values()) == 38_803
    rows = report.total("of an excluded sample") + report.total("at or after the first positive label")
    assert report.read["rows"] == p19.table.samples["rows_kept"].sum() + rows
    assert (p19.table.count == 0).sum() == 65


def the_papers_five_splits_apply(conversion: Conversion, folder: Path, sizes: tuple[int, int, int]) -> None:
    for number in range(1, 6):
        parts = Split.parse(f"{folder}/official_splits.parquet:{number}").apply(conversion.table)
        assert tuple(len(part) for part in parts) == sizes


def the_documentation_states_the_account(conversion: Conversion, name: str) -> None:
    page = (DOCS / f"data_{name}.md").read_text()
    counts = {reason: f"{number:,}" for _, reason, number in conversion.report.rows()}
    assert [reason for reason, count in counts.items() if not re.search(rf"(?<![\d,]){count}(?![\d,])", page)] == []


def the_table_reads_back_identical(conversion: Conversion, folder: Path) -> None:
    again = EventTable.read(conversion.write(folder / "table"))
    assert again.fingerprint == conversion.table.fingerprint
    assert again.samples.equals(conversion.table.samples)
    assert again.events().equals(conversion.table.events())
