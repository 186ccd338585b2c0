"""Graphs in a notebook: a short repr, and HTML with the strongest edges."""

from __future__ import annotations

import numpy as np
import polars as pl

from raindrop.graphs.graph import SensorGraph, SensorGraphs
from raindrop.graphs.informed import EVIDENCE, InformedGraph

WEIGHTS = np.array([[0.5, 0.25, 0], [0, 0, -0.75], [0, 0, 0]], dtype=np.float32)


def test_a_graph_is_one_short_line_and_a_table_of_edges() -> None:
    graph = SensorGraph(("HR", "MAP", "<b>"), WEIGHTS, "day & night")
    assert repr(graph) == "SensorGraph 'day & night'(3 sensors, 2 edges)"
    html = graph._repr_html_()
    assert "day &amp; night" in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert html.index("-0.75") < html.index("0.25")  # the strongest first


def test_a_graph_without_edges_says_why() -> None:
    graph = SensorGraph(("HR", "MAP"), np.zeros((2, 2), dtype=np.float32), empty_reason="they never meet")
    assert repr(graph) == "SensorGraph(2 sensors, 0 edges)"
    assert "There are no edges between sensors: they never meet." in graph._repr_html_()


def test_graphs_of_samples_show_their_mean() -> None:
    graphs = SensorGraphs(("HR", "MAP", "RR"), ["a", "b"], np.stack([WEIGHTS, 0 * WEIGHTS]))
    assert repr(graphs) == "SensorGraphs(2 samples, 3 sensors)"
    html = graphs._repr_html_()
    assert "SensorGraph &#x27;mean&#x27;(3 sensors, 2 edges)" in html
    assert "-0.375" in html
    empty = SensorGraphs(("HR",), [], np.zeros((0, 1, 1), dtype=np.float32))
    assert "0 samples" in empty._repr_html_()


def test_an_informed_graph_shows_its_evidence() -> None:
    row = ["HR", "MAP", "lagged", 1.5, 0.2, 0.1, 0.3, 0.001, 0.004]
    evidence = pl.DataFrame([row], schema=EVIDENCE, orient="row")
    weights = np.array([[0, 0.4], [0, 0]], dtype=np.float32)
    graph = InformedGraph(("HR", "MAP"), weights, "g", evidence=evidence)
    assert repr(graph) == "InformedGraph 'g'(2 sensors, 1 edge)"
    assert "lagged" in graph._repr_html_()
    assert "0.004" in graph._repr_html_()
