"""The page of a sensor graph."""

import numpy as np
import polars as pl
import pytest
from closeness import assert_close
from opened_page import foreign_markup_works

from raindrop import DataError
from raindrop.graphs.informed import EVIDENCE, InformedGraph
from raindrop.graphs.layout import sensor_places
from raindrop.report.graph_page import graph_page, write_graph_page


def a_graph(*rows):
    names = ("<u>", "v", "w")
    weights = np.zeros((3, 3), dtype=np.float32)
    for sender, receiver, *_ in rows:
        weights[names.index(sender), names.index(receiver)] = 0.5
    evidence = pl.DataFrame(rows, schema=EVIDENCE, orient="row").with_columns(found=pl.lit(True))
    return InformedGraph(names, weights, "a & b", "nothing", evidence=evidence, untested=("w",))


def test_an_arrow_has_its_evidence_on_hover_and_names_stay_text():
    page = graph_page(a_graph(("<u>", "v", "lagged", 2.0, 0.2, 0.1, 0.3, 1e-4, 1e-3)), unit="hours")
    assert "<title>&lt;u&gt; → v, at a lag of 2 hours: removes 20.0% of the error (10.0% to 30.0%), q = 0.001" in page
    assert "<u>" not in page
    assert page.count("marker-end") == 1
    assert "Too few readings to be tested as receivers: w." in page


def test_a_pair_at_the_same_time_is_one_line_without_a_head():
    rows = [(*pair, "same time", 0.0, 0.2, 0.1, 0.3, 1e-4, 1e-3) for pair in (("v", "w"), ("w", "v"))]
    page = graph_page(a_graph(*rows))
    assert page.count('class="edge"') == 1
    assert "marker-end" not in page


def test_an_empty_graph_says_why():
    assert "There are no edges between sensors: nothing." in graph_page(a_graph())


def test_a_map_keeps_its_proportions():
    place = sensor_places(["b", "a"], pl.DataFrame({"sensor": ["a", "b"], "x": [0, 10], "y": [0, 5]}))
    assert_close(place, np.array([[1.0, 0.5], [-1.0, -0.5]]))


def test_a_position_must_be_a_number():
    with pytest.raises(DataError, match="finite numbers"):
        sensor_places(["a"], pl.DataFrame({"sensor": ["a"], "x": ["here"], "y": [0]}))


def test_the_policy_lets_the_page_s_own_style_work_and_no_other(browser, tmp_path):
    rows = [("<u>", "v", "lagged", 2.0, 0.2, 0.1, 0.3, 1e-4, 1e-3)]
    path = write_graph_page(a_graph(*rows), tmp_path / "graph.html")
    assert "unsafe" not in path.read_text(encoding="utf-8")
    page = browser.new_page()
    errors = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(path.as_uri())
    assert page.evaluate("getComputedStyle(document.querySelector('path.edge')).stroke") == "rgb(180, 83, 26)"
    assert errors == []
    assert foreign_markup_works(page) == []
    page.close()
