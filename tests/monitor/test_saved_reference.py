"""Reference statistics are part of a saved model, and the command compares new data with them."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from learnable import QUICK, easy_table

import raindrop as rd
from raindrop.cli.app import main
from raindrop.monitor import Monitor, Reference, monitor_table, reference_from
from raindrop.report.drift_page import drift_page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("monitored") / "run"
    table = easy_table(160)
    rd.Classifier(preset="paper", config={k: v for k, v in QUICK.items() if k != "train.soft_targets"}).fit(
        table[:110], validation=table[110:], run=folder
    )
    return folder


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples whose pressure is in another unit."""
    folder = tmp_path_factory.mktemp("new") / "data"
    table = easy_table(80, seed=5, prefix="n")
    scaled = np.where(table.events()["sensor"] == "pressure", 100.0, 1.0) * table.events()["value"].to_numpy()
    rd.EventTable.from_frames(table.events().with_columns(value=scaled), table.samples, label="label").write(folder)
    return folder


@pytest.mark.slow
def test_a_saved_model_has_its_reference(run: Path) -> None:
    reference = rd.load(run).reference_
    assert reference.columns == ("label=1",)
    assert int(reference.counts.pieces) == 110
    assert int(reference.counts.scores.sum()) == int(reference.counts.judged.sum()) == 50


def test_a_reference_survives_saving(run: Path, tmp_path: Path) -> None:
    model = rd.load(run)
    again = rd.load(model.save(tmp_path / "again"))
    for field in fields(type(model.reference_.counts)):
        assert np.array_equal(
            getattr(model.reference_.counts, field.name), getattr(again.reference_.counts, field.name)
        )
    assert np.array_equal(model.reference_.level_quantiles, again.reference_.level_quantiles, equal_nan=True)


def test_a_reference_of_another_shape_is_refused(run: Path) -> None:
    reference = rd.load(run).reference_
    about, arrays = reference.to_dict()
    for name in ("counts/level", "bins/readings", "low", "bins/scores"):
        with pytest.raises(ValueError, match="another shape"):
            Reference.from_dict(about, arrays | {name: arrays[name][:0]}, reference.sensors, "hours")


@pytest.mark.slow
def test_a_model_saved_without_a_reference_says_what_to_do(run: Path, new: Path, tmp_path: Path, capsys) -> None:
    model = rd.load(run)
    model.reference_ = None
    folder = model.save(tmp_path / "old")
    with pytest.raises(SystemExit):
        main(["monitor", str(folder), str(new)])
    assert re.search(r"saved without reference statistics.*--reference-data DATA", capsys.readouterr().err, re.S)
    easy_table(160).write(tmp_path / "training")
    main(["monitor", str(folder), str(new), "--reference-data", str(tmp_path / "training")])
    assert "pressure: median" in capsys.readouterr().out


def test_the_command_names_what_changed_and_writes_a_page(run: Path, new: Path, tmp_path: Path, capsys) -> None:
    main(["monitor", str(run), str(new), "--labelled", "--out", str(tmp_path / "drift.html")])
    out = capsys.readouterr().out
    assert re.search(r"alarm pressure: median .*100 times", out)
    page = (tmp_path / "drift.html").read_text()
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "pressure" in page
    assert page.count("<svg") >= 1
    assert not re.search(r"(src|href)=.?http", page)
    main(["monitor", str(run), str(new), "--out", str(tmp_path / "drift.json")])
    written = json.loads((tmp_path / "drift.json").read_text())
    assert any("pressure" in sentence for sentence in written["sentences"])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--alpha", "2"], "above 0 and below 1"),
        (["--out", "drift.txt"], "end in .html"),
        (["--by", "hospital"], "no column 'hospital'"),
    ],
)
def test_impossible_options_are_refused(run: Path, new: Path, words: list[str], reason: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["monitor", str(run), str(new), *words])
    assert reason in capsys.readouterr().err


def test_names_from_the_data_are_escaped_on_the_page(run: Path) -> None:
    table = easy_table(80, seed=5)
    events = table.events().with_columns(sensor=table.events()["sensor"].cast(str).str.replace("pressure", "<b>&"))
    found = monitor_table(rd.load(run), rd.EventTable.from_frames(events, table.samples, label="label"))
    assert found.new_sensors == ("<b>&",)
    assert "<b>" not in drift_page(found, title="<i>")
    assert "&lt;b&gt;&amp;" in drift_page(found)


def test_scores_of_another_model_are_refused(run: Path) -> None:
    reference = rd.load(run).reference_
    with pytest.raises(rd.ConfigError, match="not those of the model"):
        Monitor(reference).count(None, [type("Watched", (), {"name": "other"})()])
    with pytest.raises(rd.ConfigError, match="at least 2"):
        Monitor(reference, window=1)


def test_an_imputer_of_one_long_series_compares_stretches_of_it() -> None:
    rng = np.random.default_rng(0)

    def series(scale: float) -> rd.EventTable:
        time = np.arange(3000.0)
        value = rng.normal(20, 3, 3000) * scale
        return rd.EventTable.from_columns(
            np.repeat("plant", 3000), time, np.array(["x", "y"])[np.arange(3000) % 2], value
        )

    imputer = rd.Imputer("linear").fit(series(1.0))
    assert imputer.reference_ is not None
    assert imputer.reference_.piece_length == pytest.approx(2999 / 200)
    assert monitor_table(imputer, series(1.0)).alarms == ()
    alarms = monitor_table(imputer, series(10.0)).alarms
    assert {(alarm.name, "10 times" in alarm.note) for alarm in alarms if alarm.kind == "level"} == {
        ("x", True),
        ("y", True),
    }


def test_a_reference_can_be_learned_later(run: Path) -> None:
    model = rd.load(run)
    later = reference_from(model, easy_table(160))
    assert later.sensors == model.reference_.sensors
    assert later.columns == model.reference_.columns


def test_the_commands_of_the_page_on_monitoring_run(run: Path, new: Path, tmp_path: Path, capsys) -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()
    commands = re.findall(r"^raindrop (monitor .*)$", page, re.M)
    assert len(commands) == 3
    (tmp_path / "runs").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "runs" / "ward").symlink_to(run)
    table = rd.EventTable.read(new)
    site = np.where(np.arange(len(table)) % 2, "north", "south")
    samples = table.samples.with_columns(site=site)
    rd.EventTable.from_frames(table.events(), samples, label="label").write(tmp_path / "data" / "new")
    with contextlib.chdir(tmp_path):
        for command in commands:
            main(shlex.split(command))
    assert "pressure (site north): median" in capsys.readouterr().out
    assert (tmp_path / "drift.html").exists()
    assert (tmp_path / "drift.json").exists()
