"""The command `graph`: files, a picture and a page, and a sentence where there is no edge."""

from __future__ import annotations

import networkx
import numpy as np
import polars as pl
import pytest
from command_line import Ask

from raindrop import EventTable
from raindrop.datasets.asynchronous import delayed_sensors


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    planted = delayed_sensors(25, num_sensors=3, num_edges=2, seed=60)
    path = tmp_path_factory.mktemp("graph") / "plant"
    planted.table.write(path)
    pl.DataFrame({"sensor": planted.table.sensors, "x": [0.0, 3.0, 1.0], "y": [0.0, 1.0, 2.0]}).write_csv(
        path.parent / "positions.csv"
    )
    return path, planted


def test_edges_are_written_for_people_and_programs(ask: Ask, folder, tmp_path):
    path, planted = folder
    out = tmp_path / "graph"
    code, shown, _ = ask("graph", path, "--out", out, "--positions", path.parent / "positions.csv")
    assert code == 0
    edges = pl.read_csv(out / "edges.csv")
    written = set(edges.select("sender", "receiver").iter_rows())
    assert written >= set(planted.edges)
    network = networkx.read_graphml(out / "graph.graphml")
    assert set(network.edges) == written
    assert len(pl.read_parquet(out / "evidence.parquet")) == 6
    assert (out / "graph.png").stat().st_size > 5000
    page = (out / "graph.html").read_text(encoding="utf-8")
    for sender, receiver in planted.edges:
        assert f"{sender} -> {receiver}" in shown
        assert f"<title>{sender} → {receiver}, at a lag of" in page


def test_without_an_edge_it_says_so_and_what_to_do_next(ask: Ask, tmp_path):
    rng = np.random.default_rng(0)
    time = np.cumsum(rng.exponential(1.0, (2, 100)), axis=1)
    names = np.repeat(["<b>one", "two"], 100)
    EventTable.from_columns(["a"] * 200, time.ravel(), names, rng.normal(size=200)).write(tmp_path / "data")
    code, shown, _ = ask("graph", tmp_path / "data", "--out", tmp_path / "graph")
    assert code == 0
    assert "There are no edges between sensors: none of 2 tests" in shown
    assert "raindrop inspect" in shown
    assert "There are no edges" in (tmp_path / "graph" / "graph.html").read_text(encoding="utf-8")


def test_a_sensor_without_a_position_is_named(ask: Ask, folder, tmp_path):
    path, _ = folder
    pl.DataFrame({"sensor": ["sensor 01"], "x": [0.0], "y": [0.0]}).write_csv(tmp_path / "few.csv")
    code, _, error = ask("graph", path, "--out", tmp_path / "graph", "--positions", tmp_path / "few.csv")
    assert code == 1
    assert "2 of 3 sensors have no position (first: 'sensor 02')" in " ".join(error.split())
    assert not (tmp_path / "graph").exists()


def test_what_exists_is_not_overwritten(ask: Ask, folder, tmp_path):
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "mine").write_text("")
    code, _, error = ask("graph", folder[0], "--out", tmp_path / "graph")
    assert code == 1
    assert "exist" in error
