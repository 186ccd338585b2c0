"""The page of a sensor graph."""

import numpy as np
import polars as pl
import pytest
from closeness import assert_close
from opened_page import Opened, foreign_markup_works

from raindrop import DataError, EventTable, SensorGraph
from raindrop.estimators.sender_graphs import SenderEffects, SenderGraph
from raindrop.graphs.informed import EVIDENCE, InformedGraph
from raindrop.graphs.layout import sensor_places
from raindrop.report.graph_frames import effects_picture, graph_picture, with_places
from raindrop.report.graph_page import graph_page, write_graph_page
from raindrop.report.graph_picture import Arrow, Frame, Picture


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
    assert "script-src 'sha256-" in page
    assert "Too few readings to be tested as receivers: w." in page


def test_a_pair_at_the_same_time_is_one_line_without_a_head():
    rows = [(*pair, "same time", 0.0, 0.2, 0.1, 0.3, 1e-4, 1e-3) for pair in (("v", "w"), ("w", "v"))]
    page = graph_page(a_graph(*rows))
    assert page.count('class="edge more"') == 1
    assert "marker-end" not in page


def test_an_empty_graph_says_why():
    assert "There are no edges between sensors: nothing." in graph_page(a_graph())


def test_positions_of_the_table_make_a_map_without_being_asked_for():
    table = EventTable.from_columns(["a"] * 3, [0.0, 1.0, 2.0], ["<u>", "v", "w"], [1.0, 2.0, 3.0])
    picture = graph_picture(a_graph(("<u>", "v", "lagged", 2.0, 0.2, 0.1, 0.3, 1e-4, 1e-3)))
    assert with_places(picture, table=table).places is None
    placed = table.with_sensor_info(pl.DataFrame({"sensor": ["<u>", "v", "w"], "x": [0, 4, 2], "y": [0, 2, 1]}))
    assert_close(with_places(picture, table=placed).places, np.array([[-1.0, -0.5], [1.0, 0.5], [0.0, 0.0]]))
    given = pl.DataFrame({"sensor": ["<u>", "v", "w"], "x": [4, 0, 2], "y": [0, 2, 1]})
    assert_close(with_places(picture, given, placed).places, np.array([[1.0, -0.5], [-1.0, 0.5], [0.0, 0.0]]))
    some = table.with_sensor_info(pl.DataFrame({"sensor": ["<u>", "v"], "x": [0, 4], "y": [0, 2]}))
    partly = with_places(picture, table=some)
    assert partly.places is None
    assert "No map is drawn: 1 of 3 sensors have no position (first: 'w')" in partly.notes[-1]


def test_of_many_sensors_only_those_with_edges_are_drawn():
    names = tuple(f"sensor {at}" for at in range(200))
    weights = np.zeros((200, 200), dtype=np.float32)
    weights[3, 4] = weights[10, 4] = 1
    page = graph_page(SensorGraph(names, weights, "many"))
    assert page.count("<circle") == 3
    assert "197 sensors without an edge are not drawn." in page


def test_in_a_stretch_of_a_long_series_an_edge_is_as_strong_as_it_is_there():
    """u helps v in the first window alone; v's hidden readings of the third are too few."""
    rng = np.random.default_rng(0)
    owner = np.array([0] * 20 + [1] * 20 + [2] * 2)
    grows = np.where(owner == 0, 1.0, 0.0) + 0.01 * rng.normal(size=42)
    error = np.ones(42)
    without = np.stack([error + grows, error], axis=1)
    ids = ("s, from 0", "s, from 9", "s, from 18")
    effects = SenderEffects(("u", "v"), ids, owner, np.ones(42, dtype=int), error, without, without, np.abs(without),
                            np.zeros(3, dtype=int), np.array([0.0, 9.0, 18.0]), np.zeros(1, dtype=int))  # fmt: skip
    graph = SenderGraph(("u", "v"), np.array([[0, 0.5], [0, 0]], dtype=np.float32), "", "", effects.evidence())
    picture = effects_picture(effects, graph, unit="hours")
    assert [frame.title for frame in picture.frames] == ["whole table", *(f"{name} hours" for name in ids)]
    first, second, third = (frame.arrows[0] for frame in picture.frames[1:])
    assert first.kind == "more"
    assert first.size == 1
    assert second.size < 0.1
    assert third.kind == "none"
    assert "2 hidden readings of v here are too few" in third.text


def stretches_page() -> str:
    arrows = [Arrow(0, 1, 1.0, "<b>a</b> -> b strong"), Arrow(1, 2, 0.5, "b -> c weak")]
    frames = [
        Frame("whole table", arrows),
        Frame("from 0 hours", arrows[:1]),
        Frame("from 5 hours", [], "Nothing is known here."),
    ]
    return graph_page(Picture(("a", "b", "c", "d", "e", "f", "g"), frames, "time"), title="Long <series>")


@pytest.fixture(scope="module")
def opened(tmp_path_factory, browser):
    path = tmp_path_factory.mktemp("graph") / "graph.html"
    path.write_text(stretches_page(), encoding="utf-8")
    return Opened(browser, path)


@pytest.mark.slow
def test_the_slider_moves_through_time_from_the_keyboard(opened):
    shown = "document.querySelectorAll('g.frame:not([hidden]) path').length"
    title = "document.querySelector('.frame-title').innerText"
    assert (opened.evaluate(shown), opened.evaluate(title)) == (2, "whole table")
    opened.page.focus(".frame-slider")
    opened.page.keyboard.press("ArrowRight")
    assert (opened.evaluate(shown), opened.evaluate(title)) == (1, "from 0 hours")
    assert opened.evaluate("document.querySelector('.frame-slider').getAttribute('aria-valuetext')") == "from 0 hours"
    assert opened.evaluate("document.querySelectorAll('.edges li').length") == 1
    opened.page.keyboard.press("End")
    assert opened.evaluate("document.querySelector('.frame-note:not([hidden])').innerText") == "Nothing is known here."
    opened.page.keyboard.press("Home")
    assert opened.evaluate(shown) == 2
    assert opened.errors == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []


@pytest.mark.slow
def test_an_edge_of_the_list_is_lit_and_says_its_evidence_and_the_filter_finds_a_sensor(opened):
    opened.page.focus(".edges button")
    assert opened.evaluate("document.querySelector('.edge-text').textContent") == "<b>a</b> -> b strong"
    assert opened.evaluate("document.querySelectorAll('path.lit').length") == 1
    opened.page.fill(".edge-filter", "C")
    assert opened.evaluate("document.querySelectorAll('.edges li').length") == 1
    assert opened.evaluate("document.querySelectorAll('g.frame:not([hidden]) path.faded').length") == 1
    opened.page.fill(".edge-filter", "nobody")
    assert "No edge of such a sensor" in opened.evaluate("document.querySelector('.edge-text').textContent")
    opened.page.fill(".edge-filter", "")
    assert opened.errors == []


@pytest.mark.slow
def test_the_page_fits_a_phone(tmp_path, browser):
    path = tmp_path / "graph.html"
    path.write_text(stretches_page(), encoding="utf-8")
    phone = Opened(browser, path, viewport={"width": 400, "height": 800})
    assert phone.evaluate("document.documentElement.scrollWidth") <= 400


def test_a_map_keeps_its_proportions():
    place = sensor_places(["b", "a"], pl.DataFrame({"sensor": ["a", "b"], "x": [0, 10], "y": [0, 5]}))
    assert_close(place, np.array([[1.0, 0.5], [-1.0, -0.5]]))


def test_a_position_must_be_a_number():
    with pytest.raises(DataError, match="finite numbers"):
        sensor_places(["a"], pl.DataFrame({"sensor": ["a"], "x": ["here"], "y": [0]}))


@pytest.mark.slow
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
