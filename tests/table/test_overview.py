"""The overview of a table: its statistics match their definitions, and it renders as text and as a picture."""

from __future__ import annotations

import builtins
import io
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from raindrop.errors import DataError, MissingExtraError
from raindrop.table.event_table import EventTable
from raindrop.table.overview import missingness, overview
from raindrop.table.overview_view import missingness_sentence
from raindrop.table.store import Roles


def tiny() -> EventTable:
    """Three samples: two readings at one time and one later; one reading; none."""
    events = {
        "sample": ["a", "a", "a", "b"],
        "time": [0.0, 0.0, 2.0, 5.0],
        "sensor": ["HR", "Temp", "HR", "HR"],
        "value": [60.0, 36.5, 70.0, 80.0],
    }
    samples = {"sample": ["a", "b", "c"], "died": [0, 1, None]}
    return EventTable.from_frames(events, samples, label="died", sensors=["HR", "Temp", "never"])


def labelled_table(
    *, by_counts: bool, by_values: bool = False, samples: int = 300, seed: int = 0, group: bool = False
) -> EventTable:
    """The label shows in how often 'a' is read (by_counts), in its values (by_values), or nowhere."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, samples)
    rows: list[tuple[str, float, str, float]] = []
    for number in range(samples):
        extra = 3 * label[number] if by_counts else 0
        for step in range(int(rng.integers(2, 6)) + extra):
            rows.append((str(number), float(step), "a", float(label[number]) if by_values else 0.0))
        rows.append((str(number), 0.0, "b", 1.0))
    events = pl.DataFrame(rows, schema=["sample", "time", "sensor", "value"], orient="row")
    about: dict[str, Any] = {"sample": [str(n) for n in range(samples)], "label": label}
    if group:
        about["group"] = [f"g{n % 10}" for n in range(samples)]
    return EventTable.from_frames(events, about)


def test_counts_and_densities_are_those_of_the_definition() -> None:
    about = overview(tiny())
    assert (about.samples, about.readings, about.samples_without_readings) == (3, 4, 1)
    assert about.times_per_sample.tolist() == [2, 1, 0]
    assert about.density == pytest.approx(4 / (3 * 3))  # 3 distinct times, 3 sensors
    assert about.padded_density == pytest.approx(4 / (3 * 2 * 3))
    assert about.last_times.tolist() == [2.0, 5.0]
    assert about.intervals.tolist() == [2.0]


def test_simultaneous_share_counts_readings_with_another_sensor_at_the_identical_time() -> None:
    assert overview(tiny()).simultaneous_share == pytest.approx(2 / 4)  # HR and Temp of sample a at 0
    table = EventTable.from_columns(
        ["a", "a", "a", "b", "b", "b"],
        [0.0, 1.0, 1.0 + 1e-12, 1.0, 1.0, 1.0],  # nearly the same time is another time; sample b is not sample a
        ["x", "y", "z", "x", "y", "z"],
        range(6),
    )
    assert overview(table).simultaneous_share == pytest.approx(3 / 6)
    assert overview(table[["a"]]).simultaneous_share == 0
    assert overview(table[["b"]]).simultaneous_share == 1
    assert "50.0% have another sensor's at the identical time" in printed(table)


def test_the_same_time_in_two_samples_is_two_times() -> None:
    table = EventTable.from_columns(["a", "b"], [1.0, 1.0], ["s", "s"], [1.0, 2.0])
    assert overview(table).times_per_sample.tolist() == [1, 1]


def test_sensor_statistics_are_counts_shares_and_intervals() -> None:
    rows = {row["sensor"]: row for row in overview(tiny()).sensors.iter_rows(named=True)}
    assert rows["HR"]["readings"] == 3
    assert rows["HR"]["samples"] == pytest.approx(2 / 3)
    assert rows["HR"]["per_sample"] == 1.5
    assert rows["HR"]["interval"] == 2.0
    assert rows["HR"]["median"] == 70.0
    assert rows["Temp"]["interval"] is None
    assert (rows["never"]["readings"], rows["never"]["samples"], rows["never"]["median"]) == (0, 0.0, None)


def test_class_balance_counts_missing_labels_too() -> None:
    assert overview(tiny()).labels.rows() == [("0", 1, 1 / 3), ("1", 1, 1 / 3), (None, 1, 1 / 3)]


@pytest.mark.slow
def test_missingness_predicts_a_label_that_shows_in_the_counts() -> None:
    result = missingness(labelled_table(by_counts=True))
    assert result.auroc is not None
    assert result.auroc > 0.85
    assert result.auroc == missingness(labelled_table(by_counts=True)).auroc


def test_missingness_sees_which_sensor_was_read() -> None:
    """As many readings at the same times, of one sensor or of the other."""
    rows = [(str(n), float(step), "ab"[n % 2], 0.0) for n in range(100) for step in range(3)]
    events = pl.DataFrame(rows, schema=["sample", "time", "sensor", "value"], orient="row")
    samples = {"sample": [str(n) for n in range(100)], "label": [n % 2 for n in range(100)]}
    assert missingness(EventTable.from_frames(events, samples)).auroc == 1.0


@pytest.mark.slow
def test_missingness_never_sees_a_value() -> None:
    with_values = missingness(labelled_table(by_counts=False, by_values=True))
    without = missingness(labelled_table(by_counts=False))
    assert with_values.auroc == without.auroc
    assert with_values.auroc is not None
    assert 0.35 < with_values.auroc < 0.65


def test_missingness_uses_a_stratified_subset_of_a_large_table() -> None:
    assert missingness(labelled_table(by_counts=True), max_samples=100).samples == pytest.approx(100, abs=2)


@pytest.mark.slow
def test_missingness_keeps_groups_apart() -> None:
    """A label that depends on the group alone cannot be predicted for a group outside training."""
    table = labelled_table(by_counts=False, samples=400, group=True)
    names = table.samples["group"].str.slice(1).cast(pl.Int64)
    rows = [(str(n), float(step), "a", 0.0) for n in range(400) for step in range(2 + 3 * names[n])]
    events = pl.DataFrame(rows, schema=["sample", "time", "sensor", "value"], orient="row")
    shuffled = np.random.default_rng(0).permutation(10)
    samples = table.samples.with_columns(label=pl.Series([int(shuffled[n]) % 2 for n in names]))
    apart = missingness(EventTable.from_frames(events, samples))
    mixed = missingness(EventTable.from_frames(events, samples.drop("group")))
    assert mixed.auroc == 1.0
    assert apart.auroc is not None
    assert apart.auroc < 0.9


def test_a_sample_without_a_group_is_a_group_of_its_own() -> None:
    table = labelled_table(by_counts=True, group=True)
    groups = table.samples["group"].set(pl.Series(range(300)) % 3 == 0, None)
    result = missingness(replace(table, samples=table.samples.with_columns(group=groups)))
    assert result.auroc is not None
    assert result.auroc > 0.85


def test_a_class_in_a_single_group_gives_a_reason_and_in_two_a_score() -> None:
    table = labelled_table(by_counts=True, samples=40)
    groups = pl.Series("group", [f"g{n // 5}" for n in range(40)])
    table = replace(table, samples=table.samples.with_columns(groups), roles=Roles(label="label", group="group"))
    assert missingness(table.with_labels([n < 5 for n in range(40)])).reason == (
        "a class occurs in only one group ('group')"
    )
    assert missingness(table.with_labels([n < 7 for n in range(40)])).auroc is not None


def test_labels_without_a_single_reading_still_have_a_score() -> None:
    table = labelled_table(by_counts=True)
    assert missingness(table.where(np.zeros(table.num_readings, dtype=bool))).auroc == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([1] * 300, "there is only one class"),
        ([0] * 298 + [1] * 2, "a class has fewer than 5 samples"),
        ([0.5, 0.25] * 150, "that is a quantity, not a class"),
    ],
)
def test_the_reason_is_given_where_missingness_cannot_be_estimated(labels: list[float], reason: str) -> None:
    result = missingness(labelled_table(by_counts=True).with_labels(labels))
    assert result.auroc is None
    assert reason in result.reason
    unlabelled = EventTable.from_frames({"sample": ["a"], "time": [0], "sensor": ["s"], "value": [1]})
    assert missingness(unlabelled).reason == "the table has no label"


@pytest.mark.slow
def test_several_classes_are_averaged_one_versus_rest() -> None:
    table = labelled_table(by_counts=True)
    table = table.with_labels([f"class {n % 3}" for n in range(300)])
    result = missingness(table)
    assert result.auroc is not None
    assert 0.3 < result.auroc < 0.7


def printed(table: EventTable) -> str:
    console = Console(width=100, file=io.StringIO())
    console.print(overview(table))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.slow
def test_the_terminal_shows_every_part_of_the_overview() -> None:
    text = printed(labelled_table(by_counts=True))
    for words in ("samples", "300", "sensors", "density", "Label 'label'", "AUROC of", "interval in hours"):
        assert words in text
    assert "cannot be estimated: a class has fewer than 5 samples" in printed(tiny())
    many = EventTable.from_columns(["a"] * 70, range(70), [f"s{n}" for n in range(70)], [1.0] * 70)
    assert "10 more sensors are not shown" in printed(many)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_picture_is_written_in_the_format_of_its_suffix(tmp_path: Path, kind: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    path = overview(labelled_table(by_counts=True)).save(tmp_path / f"about.{kind}")
    assert path.read_bytes().startswith(magic)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.slow
def test_a_table_without_a_single_reading_has_an_overview(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    empty = tiny().where(np.zeros(4, dtype=bool))
    about = overview(empty)
    assert about.readings == 0
    assert about.simultaneous_share == 0
    assert about.density == 0
    about.save(tmp_path / "empty.png")


@pytest.mark.slow
def test_dollar_signs_in_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    samples = {"sample": ["a", "b"], "$\\bad$": ["$\\worse$", "x"]}
    events = {"sample": ["a"], "time": [0], "sensor": ["$\\frac$"], "value": [1]}
    overview(EventTable.from_frames(events, samples, label="$\\bad$")).save(tmp_path / "about.png")


def test_an_unknown_picture_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"about.bmp: a figure must end in .png, .svg, .pdf"):
        overview(tiny()).save(tmp_path / "about.bmp")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'raindrop-ts\[plot\]'"):
        overview(tiny()).save(tmp_path / "about.png")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["$", "a$b", "$x$", r"$\frac{1}{$", r"\$a$", "$$", "_^{"])
def test_a_dollar_in_a_name_is_no_formula(name, tmp_path):
    about = {"sample": [f"{name}{at}" for at in range(12)], "label": [name if at % 2 else "no" for at in range(12)]}
    owner = [about["sample"][at % 12] for at in range(60)]
    table = EventTable.from_columns(owner, range(60), [name] * 60, range(60), about)
    overview(table).save(tmp_path / "a.svg")


@pytest.mark.slow
def test_intervals_that_differ_by_rounding_alone_are_drawn(tmp_path):
    table = EventTable.from_columns(["a"] * 200, [at / 7 for at in range(200)], ["x"] * 200, [1.0] * 200)
    overview(table).save(tmp_path / "a.png")


@pytest.mark.slow
def test_very_many_sensors_take_little_memory_and_time():
    rng, number = np.random.default_rng(0), 200_000
    owner = np.arange(number) % 1000
    sensors = [f"s{at}" for at in range(number)]
    about = {"sample": [str(at) for at in range(1000)], "label": [at % 2 for at in range(1000)]}
    events = {"sample": owner.astype(str), "time": rng.random(number), "sensor": sensors, "value": rng.random(number)}
    table = EventTable.from_frames(events, about)
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    result = overview(table)
    assert time.monotonic() - started < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB
    assert "and the 500 most frequent sensors; 0.5 is chance" in missingness_sentence(result)
