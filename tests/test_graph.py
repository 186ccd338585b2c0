"""SensorGraph: names on the nodes, weights on the edges, u -> v."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from raindrop.errors import DataError
from raindrop.graph import SensorGraph, SensorGraphs

SENSORS = ("HR", "MAP", "Temp")
WEIGHTS = np.array([[0.9, 0.5, 0.0], [0.1, 0.0, -0.7], [0.0, 0.2, 0.3]], dtype=np.float32)


@pytest.fixture
def graph() -> SensorGraph:
    return SensorGraph(SENSORS, WEIGHTS, "one")


@pytest.fixture
def graphs() -> SensorGraphs:
    return SensorGraphs(SENSORS, ["a", "b", "c"], np.stack([WEIGHTS, 3 * WEIGHTS, np.eye(3, dtype=np.float32)]))


def test_an_edge_is_read_from_sender_to_receiver(graph: SensorGraph) -> None:
    assert graph["HR", "MAP"] == pytest.approx(0.5)
    assert graph["MAP", "HR"] == pytest.approx(0.1)


def test_edges_are_listed_strongest_first_without_those_to_itself(graph: SensorGraph) -> None:
    assert graph.edges().rows() == [
        ("MAP", "Temp", pytest.approx(-0.7)),
        ("HR", "MAP", pytest.approx(0.5)),
        ("Temp", "MAP", pytest.approx(0.2)),
        ("MAP", "HR", pytest.approx(0.1)),
    ]
    assert graph.edges(itself=True).row(0) == ("HR", "HR", pytest.approx(0.9))
    assert graph.top(2).rows() == graph.edges().rows()[:2]


def test_a_graph_without_edges_has_an_empty_list_of_the_same_columns(graph: SensorGraph) -> None:
    nothing = SensorGraph(SENSORS, np.eye(3, dtype=np.float32)).edges()
    assert nothing.is_empty()
    assert nothing.schema == graph.edges().schema == {"sender": pl.String, "receiver": pl.String, "weight": pl.Float32}


def test_an_unknown_sensor_suggests_the_near_one(graph: SensorGraph) -> None:
    with pytest.raises(DataError, match="The graph has no sensor 'temp'; did you mean 'Temp'"):
        graph["HR", "temp"]


def test_the_weights_must_fit_the_sensors() -> None:
    with pytest.raises(DataError, match=r"A graph of 3 sensors has weights of shape \(3, 3\), not \(2, 2\)"):
        SensorGraph(SENSORS, np.zeros((2, 2), dtype=np.float32))


def test_two_graphs_have_a_difference(graph: SensorGraph, graphs: SensorGraphs) -> None:
    difference = graphs["b"] - graph
    assert difference["HR", "MAP"] == pytest.approx(1.0)
    assert difference.name == "b - one"
    with pytest.raises(DataError, match="same sensors"):
        graph - SensorGraph(("A", "B", "C"), WEIGHTS)


def test_each_sample_has_its_graph_by_id(graphs: SensorGraphs) -> None:
    assert list(graphs) == ["a", "b", "c"]
    assert len(graphs) == 3
    assert "b" in graphs
    assert {name: graph.name for name, graph in graphs.items()} == {"a": "a", "b": "b", "c": "c"}
    assert np.array_equal(graphs["b"].weights, 3 * WEIGHTS)
    with pytest.raises(KeyError, match="no sample 'd'"):
        graphs["d"]


def test_the_mean_graph_is_of_all_samples_or_of_chosen_ones(graphs: SensorGraphs) -> None:
    assert np.allclose(graphs.mean().weights, graphs.weights.mean(0))
    mask = np.array([True, True, False])
    assert np.allclose(graphs.mean(mask, "both").weights, 2 * WEIGHTS)
    assert np.allclose(graphs.mean([0, 1]).weights, 2 * WEIGHTS)
    assert graphs.mean(mask, "both").name == "both"
    with pytest.raises(DataError, match="No sample was chosen"):
        graphs.mean(~np.ones(3, dtype=bool))
