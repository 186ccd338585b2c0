"""SensorGraph: names on the nodes, weights on the edges, u -> v."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from raindrop.errors import DataError
from raindrop.graphs.graph import SensorGraph, SensorGraphs

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


def test_the_strongest_edges_by_size_stay_and_no_others(graph: SensorGraph) -> None:
    kept = graph.strongest(2)
    assert kept.edges(itself=True).rows() == graph.edges().rows()[:2]
    assert np.array_equal(graph.strongest(99).weights, WEIGHTS * ~np.eye(3, dtype=bool))


def test_a_threshold_is_of_the_size_of_a_weight(graph: SensorGraph) -> None:
    assert graph.threshold(0.5).edges(itself=True)["weight"].to_list() == pytest.approx([0.9, -0.7, 0.5])


def test_strength_is_what_a_sensor_sends_to_and_gets_from_others(graph: SensorGraph) -> None:
    rows = {name: rest for name, *rest in graph.strength().iter_rows()}
    assert rows["HR"] == [pytest.approx(0.5), pytest.approx(0.1), 1, 1]
    assert rows["MAP"] == [pytest.approx(0.8), pytest.approx(0.7), 2, 2]
    assert graph.strength().columns == ["sensor", "out", "into", "receivers", "senders"]
    assert graph.strength()["sensor"][0] == "MAP"


def test_each_class_has_its_mean_graph_and_two_cohorts_a_difference(graphs: SensorGraphs) -> None:
    by_class = graphs.by_class(["sick", "sick", "well"])
    assert np.allclose(by_class["sick"].weights, 2 * WEIGHTS)
    assert by_class["well"].name == "well"
    difference = graphs.difference(np.array([False, False, True]), "well - sick")
    assert np.allclose(difference.weights, np.eye(3) - 2 * WEIGHTS)
    assert difference.name == "well - sick"


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([True, False], r"3 graphs, but labels of shape \(2,\)"),
        ([1, 0, 1], "one true or false per sample, not by int64"),
        ([False, False, False], "0 of 3 samples are chosen"),
        ([True, True, True], "3 of 3 samples are chosen"),
    ],
)
def test_cohorts_that_cannot_be_compared_are_refused(graphs: SensorGraphs, chosen: list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        graphs.difference(chosen)


def test_graphs_must_fit_samples_and_sensors() -> None:
    with pytest.raises(DataError, match=r"Graphs of 2 samples and 3 sensors have weights of shape \(2, 3, 3\)"):
        SensorGraphs(SENSORS, ["a", "b"], WEIGHTS[None])


def test_all_edges_of_all_samples_are_one_tidy_frame(graphs: SensorGraphs) -> None:
    frame = graphs.frame()
    assert frame.columns == ["sample", "sender", "receiver", "weight"]
    assert frame.filter(sample="c").is_empty()
    for name in ("a", "b"):
        rows = frame.filter(sample=name).drop("sample").sort("weight").rows()
        assert rows == graphs[name].edges().sort("weight").rows()
    assert len(graphs.frame(itself=True).filter(sample="c")) == 3
