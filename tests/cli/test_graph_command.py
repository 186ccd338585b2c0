"""The command `graph`: files, a picture and a page, and a sentence where there is no edge."""

from __future__ import annotations

import re

import networkx
import numpy as np
import polars as pl
import pytest
from class_plants import one_class_edge
from command_line import Ask
from followers import SMALL, followers

from raindrop import EventTable, Imputer
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_positions_of_the_table_are_used_without_being_asked_for(ask: Ask, folder, tmp_path):
    _, planted = folder
    info = pl.DataFrame({"sensor": planted.table.sensors, "x": [0.0, 3.0, 1.0], "y": [0.0, 1.0, 2.0]})
    planted.table.with_sensor_info(info).write(tmp_path / "placed")
    assert ask("graph", tmp_path / "placed", "--out", tmp_path / "graph")[0] == 0
    page = (tmp_path / "graph" / "graph.html").read_text(encoding="utf-8")
    places = [float(x) for x in re.findall(r'circle cx="([0-9.]+)"', page)]
    assert places[2] - places[0] == pytest.approx((places[1] - places[0]) / 3, abs=0.2)


@pytest.mark.slow
def test_the_classes_of_a_table_are_compared(ask: Ask, tmp_path):
    one_class_edge().write(tmp_path / "data")
    code, shown, _ = ask("graph", tmp_path / "data", "--out", tmp_path / "graph", "--by-class")
    assert code == 0
    assert "drive -> follows" in shown
    assert pl.read_csv(tmp_path / "graph" / "edges.csv").select("sender", "receiver").rows() == [("drive", "follows")]
    assert set(networkx.read_graphml(tmp_path / "graph" / "difference.graphml").edges) == {("drive", "follows")}
    assert (tmp_path / "graph" / "graph.png").stat().st_size > 5000
    page = (tmp_path / "graph" / "graph.html").read_text(encoding="utf-8")
    assert "difference: on minus off" in page
    assert "class on" in page


@pytest.mark.slow
def test_a_fitted_imputer_has_a_page_with_a_slider_over_a_long_series(ask: Ask, tmp_path):
    for seed in (0, 1):
        Imputer(config=SMALL, seed=seed).fit(followers(20, seed=0), run=tmp_path / f"run{seed}")
    followers(1, hours=600, seed=2).write(tmp_path / "long")
    arguments = ("--run", tmp_path / "run0", "--seeds", tmp_path / "run1", "--q", "0.999")
    code, shown, _ = ask("graph", tmp_path / "long", "--out", tmp_path / "graph", *arguments)
    assert code == 0
    assert "Compared with 1 model of other seeds" in shown
    page = (tmp_path / "graph" / "graph.html").read_text(encoding="utf-8")
    if "There are no edges" not in page:
        assert 'class="frame-slider"' in page
        assert "s000, from " in page
    assert {"worse", "low", "high", "q", "recurs"} <= set(
        pl.read_parquet(tmp_path / "graph" / "evidence.parquet").columns
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--seeds", "other"), "name the run itself with --run"), (("--label", "label"), "add --by-class")],
)
def test_options_that_need_another_one_say_so(ask: Ask, folder, tmp_path, arguments, message):
    code, _, error = ask("graph", folder[0], "--out", tmp_path / "graph", *arguments)
    assert code == 1
    assert message in " ".join(error.split())


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
