"""`raindrop demo` from beginning to end, small."""

from __future__ import annotations

import polars as pl
import pytest

from raindrop import EventTable, load
from raindrop.cli import main
from raindrop.datasets.synthetic import planted_graph
from raindrop.demo import edge_auroc
from raindrop.graph import SensorGraph


def test_the_demo_leaves_a_table_a_model_predictions_and_edges(tmp_path, capsys):
    out = tmp_path / "demo"
    main(["demo", "--out", str(out), "--samples", "150"])
    shown = capsys.readouterr().out
    assert "Raindrop" in shown
    assert "trees" in shown
    assert "planted" in shown
    table = EventTable.read(out / "data")
    assert len(table) == 150
    assert load(out / "run").predict_proba(table).shape == (150, 2)
    assert pl.read_parquet(out / "predictions.parquet")["sample"].is_in(table.ids).all()
    assert set(pl.read_csv(out / "edges.csv").columns) == {"sender", "receiver", "weight"}


def test_the_demo_does_not_overwrite(tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(SystemExit) as done:
        main(["demo", "--out", str(tmp_path)])
    assert done.value.code == 1
    assert "exists already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_the_score_of_the_planted_graph_itself_is_1():
    planted = planted_graph(20)
    truth = planted.adjacency().astype("float32")
    assert edge_auroc(SensorGraph(planted.table.sensors, truth), planted) == 1
    assert edge_auroc(SensorGraph(planted.table.sensors, 1 - truth), planted) == 0
