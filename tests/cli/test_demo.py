"""`raindrop demo` end to end, small."""

from __future__ import annotations

import re
import sys

import numpy as np
import polars as pl
import pytest

import raindrop.report
from raindrop import EventTable, load
from raindrop.cli import demo, demo_gaps
from raindrop.cli.app import main
from raindrop.cli.demo_correlations import lagged_correlations


@pytest.mark.slow
def test_the_demo_writes_tables_models_predictions_edges_and_pages(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(demo_gaps.TRAINING, "train.min_steps", 200)
    out = tmp_path / "demo"
    main(["demo", "--out", str(out), "--samples", "150"])
    printed = capsys.readouterr().out
    for model in ("lagged correlations of all pairs, logistic regression", "trees", "Raindrop"):
        assert model.split()[0] in printed
    assert "AUROC (coupled)" in printed
    for column in ("all sensors", "25% failing", "50% failing"):
        assert column in printed
    for graph in ("information_graphs", "Eq. 3", "lagged correlation"):
        assert graph in printed
    assert "recovery of its 7 planted edges" in printed
    assert "lagged correlation" in printed
    assert len(EventTable.read(out / "series").sensors) == 8
    errors = {
        name: float(re.search(rf"│ {name} *│ (0\.\d+)", printed)[1])
        for name in ("straight lines", "Raindrop without messages: each sensor", "Raindrop")
    }
    assert errors["Raindrop"] < 0.95 * min(errors["straight lines"], errors["Raindrop without messages: each sensor"])
    assert EventTable.read(out / "filled").filled.any()
    assert load(out / "imputer").model == "raindrop"
    assert "what filled them" in (out / "gaps.html").read_text(encoding="utf-8")
    assert "at a lag of" in (out / "graph.html").read_text(encoding="utf-8")
    table = EventTable.read(out / "data")
    assert len(table) == 150
    assert load(out / "run").predict_proba(table).shape == (150, 2)
    assert pl.read_parquet(out / "predictions.parquet")["sample"].is_in(table.ids).all()
    assert set(pl.read_csv(out / "edges.csv").columns) == {"sender", "receiver", "weight"}
    assert "open it in any browser" in printed
    page = (out / "report.html").read_text()
    assert "Trees" in page
    picture = (out / "planted_and_found.svg").read_text()
    assert picture.count("<svg") == 1
    assert "Planted edges" in page
    assert (
        pl.read_parquet(out / "run" / "split.parquet")["part"].value_counts().sort("count")["count"].to_list()[-1]
        == 120
    )


@pytest.mark.slow
def test_without_the_packages_for_the_report_the_demo_skips_it(tmp_path, capsys, monkeypatch):
    def last_step(graphs, folder, out, *rest):
        assert (folder / "run" / "model.json").exists()
        assert not out.exists()  # it appears with everything in it
        return draw(graphs, folder, out, *rest)

    draw = demo._draw
    monkeypatch.setattr(demo, "_draw", last_step)
    monkeypatch.setattr(demo, "DAYS", 8.0)
    monkeypatch.setitem(demo_gaps.TRAINING, "train.min_steps", 2)
    monkeypatch.setitem(sys.modules, "bokeh", None)
    monkeypatch.delattr(raindrop.report, "plots", raising=False)  # so that it is imported again, and cannot be
    monkeypatch.delitem(sys.modules, "raindrop.report.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    main(["demo", "--out", str(tmp_path / "demo"), "--samples", "60"])
    shown = capsys.readouterr().out
    assert "No report" in shown
    assert "No page of gaps" in shown
    assert "No picture" in shown
    assert shown.count("[report]") == 2  # the package to install, not markup
    assert not (tmp_path / "demo/report.html").exists()


def test_the_demo_does_not_overwrite(tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(SystemExit) as done:
        main(["demo", "--out", str(tmp_path)])
    assert done.value.code == 1
    assert "exists already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_correlations_find_a_linear_follower_and_a_sensor_without_readings_counts_as_0():
    time = np.tile(np.arange(0, 24, 0.5), 4)
    wave = np.sin(np.arange(0, 24, 0.5))
    sensor = np.repeat(["a", "b"], 48)
    values = [np.concatenate([wave, wave]), np.concatenate([wave, -wave])]
    sample = np.repeat(["one", "two"], 96)
    table = EventTable.from_columns(sample, time, np.tile(sensor, 2), np.concatenate(values), sensors=("a", "b", "c"))
    features = lagged_correlations(table)
    assert features.shape == (2, 4 * 6)
    first, second = features.reshape(2, 4, 6)[:, 0]  # pairs ab ac ba bc ca cb, without a lag
    assert first == pytest.approx([1, 0, 1, 0, 0, 0], abs=0.02)
    assert second == pytest.approx([-1, 0, -1, 0, 0, 0], abs=0.02)
