"""Written graphs are read back by other libraries."""

from __future__ import annotations

import csv
import json

import networkx
import numpy as np
import pandas
import polars as pl
import pytest

from raindrop.errors import DataError
from raindrop.graphs.graph import SensorGraph, SensorGraphs

SENSORS = ("blood pressure, mean", "a/b\\c", "Müller ✓ 心拍", "<b>&amp;\"'</b>", "edge 0", "=1+1", "two\nlines")


@pytest.fixture
def graph() -> SensorGraph:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(len(SENSORS),) * 2).astype(np.float32)
    weights[rng.random(weights.shape) < 0.4] = 0
    weights[:, 5] = weights[5] = 0  # a sensor without any edge
    return SensorGraph(SENSORS, weights, "mean of <all>")


def edges_of(graph: SensorGraph) -> dict[tuple[str, str], float]:
    return {(u, v): weight for u, v, weight in graph.edges(include_self=True).iter_rows()}


def edges_in(network: networkx.DiGraph) -> dict[tuple[str, str], float]:
    return {(u, v): weight for u, v, weight in network.edges(data="weight")}


def test_networkx_gets_all_sensors_and_edges(graph):
    network = graph.to_networkx()
    assert list(network) == list(SENSORS)
    assert network.is_directed()
    assert network.name == graph.name
    assert edges_in(network) == edges_of(graph)
    assert not any(u == v for u, v in graph.to_networkx(include_self=False).edges)


def test_graphml_is_read_back_by_networkx(graph, tmp_path):
    read = networkx.read_graphml(graph.write(tmp_path / "graph.graphml"))
    assert set(read) == set(SENSORS)
    assert read.is_directed()
    assert edges_in(read) == edges_of(graph)


def test_cytoscape_json_is_read_back_by_networkx(graph, tmp_path):
    content = json.loads(graph.write(tmp_path / "graph.cyjs").read_text(encoding="utf-8"))
    read = networkx.cytoscape_graph(content)
    assert set(read) == set(SENSORS)
    assert read.is_directed()
    assert edges_in(read) == edges_of(graph)


def test_cytoscape_json_has_what_the_desktop_program_needs(graph, tmp_path):
    content = json.loads(graph.write(tmp_path / "graph.cyjs").read_text(encoding="utf-8"))
    assert content["format_version"] == "1.0"
    assert content["data"]["name"] == graph.name
    nodes = [node["data"] for node in content["elements"]["nodes"]]
    edges = [edge["data"] for edge in content["elements"]["edges"]]
    ids = [element["id"] for element in nodes + edges]
    assert len(set(ids)) == len(ids)  # also with a sensor named 'edge 0'
    assert {end for edge in edges for end in (edge["source"], edge["target"])} <= {node["id"] for node in nodes}
    assert all({"name", "shared_name"} <= set(element) for element in nodes + edges)


def test_parquet_has_the_edges(graph, tmp_path):
    read = pl.read_parquet(graph.write(tmp_path / "graph.parquet"))
    assert read.schema == graph.edges().schema
    assert {(u, v): weight for u, v, weight in read.iter_rows()} == edges_of(graph)


def test_csv_has_the_exact_matrix(graph, tmp_path):
    with open(graph.write(tmp_path / "graph.CSV"), newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    names = [name.replace("=1+1", "'=1+1") for name in SENSORS]  # no cell starts a formula
    assert header == ["sender", *names]
    assert [row[0] for row in rows] == names
    assert np.array_equal(np.array([row[1:] for row in rows], dtype=np.float32), graph.weights)
    read = pandas.read_csv(tmp_path / "graph.CSV", index_col="sender")
    assert np.array_equal(read.to_numpy(dtype=np.float32), graph.weights)
    assert list(read.columns) == list(read.index) == names


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_graphs_of_all_samples_are_one_file(graph, tmp_path, ending):
    graphs = SensorGraphs(SENSORS, ["α", "<i>"], np.stack([graph.weights, 2 * graph.weights]))
    path = graphs.write(tmp_path / f"graphs.{ending}")
    read = pl.read_parquet(path) if ending == "parquet" else pl.read_csv(path)
    expected = graphs.frame(include_self=True)
    assert read.drop("weight").rows() == expected.drop("weight").rows()
    assert read["weight"].to_list() == pytest.approx(expected["weight"].to_list())


def test_an_unknown_ending_suggests_a_known_one(graph, tmp_path):
    with pytest.raises(DataError, match=r"cannot write files ending in '.graphm'; did you mean '.graphml'"):
        graph.write(tmp_path / "graph.graphm")
    assert not list(tmp_path.iterdir())


def test_a_name_that_xml_cannot_contain_is_refused_before_anything_is_written(tmp_path):
    odd = SensorGraph(("a\x00b", "c"), np.ones((2, 2), dtype=np.float32))
    with pytest.raises(DataError, match=r"'a\\x00b' contains a control character"):
        odd.write(tmp_path / "graph.graphml")
    assert not list(tmp_path.iterdir())
    assert json.loads(odd.write(tmp_path / "graph.cyjs").read_text())["elements"]["nodes"][0]["data"]["id"] == "a\x00b"


def test_a_graph_without_edges_can_be_written(tmp_path):
    empty = SensorGraph(("a", "b"), np.zeros((2, 2), dtype=np.float32))
    assert pl.read_parquet(empty.write(tmp_path / "graph.parquet")).is_empty()
    assert list(networkx.read_graphml(empty.write(tmp_path / "graph.graphml"))) == ["a", "b"]
