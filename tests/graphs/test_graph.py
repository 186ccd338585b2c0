"""SensorGraph: named sensors, weighted edges u -> v."""

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


def test_an_edge_is_indexed_by_sender_and_receiver(graph: SensorGraph) -> None:
    assert graph["HR", "MAP"] == pytest.approx(0.5)
    assert graph["MAP", "HR"] == pytest.approx(0.1)


def test_edges_are_listed_strongest_first_without_self_edges(graph: SensorGraph) -> None:
    assert graph.edges().rows() == [
        ("MAP", "Temp", pytest.approx(-0.7)),
        ("HR", "MAP", pytest.approx(0.5)),
        ("Temp", "MAP", pytest.approx(0.2)),
        ("MAP", "HR", pytest.approx(0.1)),
    ]
    assert graph.edges(include_self=True).row(0) == ("HR", "HR", pytest.approx(0.9))
    assert graph.top(2).rows() == graph.edges().rows()[:2]


def test_a_graph_without_edges_has_an_empty_list_of_the_same_columns(graph: SensorGraph) -> None:
    edges = SensorGraph(SENSORS, np.eye(3, dtype=np.float32)).edges()
    assert edges.is_empty()
    assert edges.schema == graph.edges().schema == {"sender": pl.String, "receiver": pl.String, "weight": pl.Float32}


def test_an_empty_graph_says_why_in_one_sentence(graph: SensorGraph) -> None:
    assert not graph.is_empty
    assert graph.describe_empty() == ""
    loops = SensorGraph(SENSORS, np.eye(3, dtype=np.float32))
    assert loops.is_empty
    assert loops.describe_empty() == "There are no edges between sensors: every weight is 0."
    reason = "no two sensors are ever read at the same time"
    empty = SensorGraphs(SENSORS, ["a", "b"], np.zeros((2, 3, 3), dtype=np.float32), reason)
    sentence = f"There are no edges between sensors: {reason}."
    for one in (empty["a"], empty.mean(), empty.by_class([0, 1])[1], empty.difference([True, False])):
        assert one.describe_empty() == sentence
        assert one.threshold(0.5).describe_empty() == sentence


def test_a_difference_or_a_threshold_without_edges_gives_its_own_reason(graph: SensorGraph) -> None:
    assert (graph - graph).describe_empty() == "There are no edges between sensors: the two graphs are the same."
    assert graph.threshold(5).describe_empty() == "There are no edges between sensors: no weight reaches 5."


def test_an_unknown_sensor_suggests_the_closest_name(graph: SensorGraph) -> None:
    with pytest.raises(DataError, match="The graph has no sensor 'temp'; did you mean 'Temp'"):
        graph["HR", "temp"]


def test_weights_must_have_a_row_and_a_column_per_sensor() -> None:
    with pytest.raises(DataError, match=r"A graph of 3 sensors has weights of shape \(3, 3\), not \(2, 2\)"):
        SensorGraph(SENSORS, np.zeros((2, 2), dtype=np.float32))


def test_graphs_of_the_same_sensors_can_be_subtracted(graph: SensorGraph, graphs: SensorGraphs) -> None:
    difference = graphs["b"] - graph
    assert difference["HR", "MAP"] == pytest.approx(1.0)
    assert difference.name == "b - one"
    with pytest.raises(DataError, match="same sensors"):
        graph - SensorGraph(("A", "B", "C"), WEIGHTS)


def test_graphs_are_looked_up_by_sample_id(graphs: SensorGraphs) -> None:
    assert list(graphs) == ["a", "b", "c"]
    assert len(graphs) == 3
    assert "b" in graphs
    assert {name: graph.name for name, graph in graphs.items()} == {"a": "a", "b": "b", "c": "c"}
    assert np.array_equal(graphs["b"].weights, 3 * WEIGHTS)
    with pytest.raises(KeyError, match="no sample 'd'"):
        graphs["d"]


def test_the_mean_graph_is_of_all_samples_or_of_selected_ones(graphs: SensorGraphs) -> None:
    assert np.allclose(graphs.mean().weights, graphs.weights.mean(0))
    mask = np.array([True, True, False])
    assert np.allclose(graphs.mean(mask, "both").weights, 2 * WEIGHTS)
    assert np.allclose(graphs.mean([0, 1]).weights, 2 * WEIGHTS)
    assert graphs.mean(mask, "both").name == "both"
    with pytest.raises(DataError, match="No sample was selected"):
        graphs.mean(~np.ones(3, dtype=bool))


def test_strongest_keeps_the_edges_with_the_largest_absolute_weight(graph: SensorGraph) -> None:
    strongest = graph.strongest(2)
    assert strongest.edges(include_self=True).rows() == graph.edges().rows()[:2]
    assert np.array_equal(graph.strongest(99).weights, WEIGHTS * ~np.eye(3, dtype=bool))


def test_a_threshold_applies_to_the_absolute_weight(graph: SensorGraph) -> None:
    assert graph.threshold(0.5).edges(include_self=True)["weight"].to_list() == pytest.approx([0.9, -0.7, 0.5])


def test_strength_sums_the_absolute_weights_of_a_sensors_edges(graph: SensorGraph) -> None:
    rows = {name: rest for name, *rest in graph.strength().iter_rows()}
    assert rows["HR"] == [pytest.approx(0.5), pytest.approx(0.1), 1, 1]
    assert rows["MAP"] == [pytest.approx(0.8), pytest.approx(0.7), 2, 2]
    assert graph.strength().columns == ["sensor", "out", "into", "receivers", "senders"]
    assert graph.strength()["sensor"][0] == "MAP"


def test_means_by_class_and_their_difference(graphs: SensorGraphs) -> None:
    by_class = graphs.by_class(["sick", "sick", "well"])
    assert np.allclose(by_class["sick"].weights, 2 * WEIGHTS)
    assert by_class["well"].name == "well"
    difference = graphs.difference(np.array([False, False, True]), "well - sick")
    assert np.allclose(difference.weights, np.eye(3) - 2 * WEIGHTS)
    assert difference.name == "well - sick"


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([True, False], r"3 graphs, but labels of shape \(2,\)"),
        ([1, 0, 1], "one true or false per sample, not int64"),
        ([False, False, False], "0 of 3 samples are selected"),
        ([True, True, True], "3 of 3 samples are selected"),
    ],
)
def test_a_mask_that_does_not_split_the_samples_is_refused(graphs: SensorGraphs, mask: list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        graphs.difference(mask)


def test_weights_must_have_one_matrix_per_sample() -> None:
    with pytest.raises(DataError, match=r"Graphs of 2 samples and 3 sensors have weights of shape \(2, 3, 3\)"):
        SensorGraphs(SENSORS, ["a", "b"], WEIGHTS[None])


def test_all_edges_of_all_samples_are_one_tidy_frame(graphs: SensorGraphs) -> None:
    frame = graphs.frame()
    assert frame.columns == ["sample", "sender", "receiver", "weight"]
    assert frame.filter(sample="c").is_empty()
    for name in ("a", "b"):
        rows = frame.filter(sample=name).drop("sample").sort("weight").rows()
        assert rows == graphs[name].edges().sort("weight").rows()
    assert len(graphs.frame(include_self=True).filter(sample="c")) == 3
