"""Plots: each is a Figure with the right data, and names are drawn literally."""

from __future__ import annotations

import io

import numpy as np
import pytest
from awkward import CLASSES, IDS, SENSORS
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from sklearn.metrics import roc_curve

from raindrop import ConfigError, DataError, SensorGraph, SensorGraphs
from raindrop.report import plots
from raindrop.table.hide import hide_random_sensors
from raindrop.tasks.metrics import auroc

pytestmark = pytest.mark.slow

rng = np.random.default_rng(0)
NAMES = (*SENSORS, "broken $ formula_{", r"\alpha^", "日本 sensor")


@pytest.fixture
def graphs() -> SensorGraphs:
    weights = rng.random((6, len(NAMES), len(NAMES))).astype(np.float32)
    return SensorGraphs(NAMES, [f"s{at}" for at in range(6)], weights)


def painted(figure: Figure) -> list[str]:
    """Every text of a figure, after rendering it without warnings."""
    assert isinstance(figure, Figure)
    figure.savefig(io.BytesIO(), format="svg")
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text)]


def arrows(axes) -> list[FancyArrowPatch]:
    return [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]


def without_glyph_warnings(test):
    return pytest.mark.filterwarnings("ignore:Glyph .* missing from font")(test)


@without_glyph_warnings
def test_a_graph_has_its_strongest_edges_and_every_name_literally(graphs):
    graph = graphs["s0"]
    figure = plots.graph(graph, top=7)
    assert len(arrows(figure.axes[0])) == 7
    assert set(NAMES) <= set(painted(figure))
    widest = max(arrows(figure.axes[0]), key=lambda arrow: arrow.get_linewidth())
    sender, receiver, _ = graph.top(1).row(0)
    place = {text.get_text(): np.array(text.get_position()) / 1.08 for text in figure.axes[0].texts}
    ends = widest._posA_posB
    np.testing.assert_allclose(ends, [place[sender], place[receiver]], atol=1e-9)


@without_glyph_warnings
def test_two_classes_are_drawn_on_one_scale_with_their_difference_by_sign(graphs):
    by_class = graphs.by_class(np.array([0, 0, 0, 1, 1, 1]))
    figure = plots.class_graphs(by_class, top=9, warning="not stable, $ & all.")
    assert len(figure.axes) == 3
    assert r"Warning: not stable, \$ & all." in painted(figure)
    difference = by_class[1] - by_class[0]
    signs = [weight > 0 for _, _, weight in reversed(difference.top(9).rows())]
    colours = [arrow.get_edgecolor()[:3] for arrow in arrows(figure.axes[2])]
    assert len(set(colours)) == len(set(signs)) == 2
    assert [colour == colours[signs.index(True)] for colour in colours] == signs


@without_glyph_warnings
def test_more_than_two_classes_have_no_difference(graphs):
    figure = plots.class_graphs(graphs.by_class(np.array(list("aabbcc"))))
    assert [axes.get_title() for axes in figure.axes] == ["a", "b", "c"]


def test_a_graph_without_edges_is_one_sentence_with_the_reason_instead_of_a_circle():
    reason = "no two sensors are ever read at the same time"
    empty = SensorGraph(("a", "b"), np.eye(2, dtype=np.float32), "mean", reason)
    sentence = f"There are no edges between sensors: {reason}."
    texts = painted(plots.graph(empty))
    assert sentence in [text.replace("\n", " ") for text in texts]
    assert not {"a", "b"} & set(texts)
    figure = plots.class_graphs({"sick": empty, "well": empty})
    assert [text.replace("\n", " ") for text in painted(figure)].count(sentence) == 3
    assert any(sentence in text for text in painted(plots.heat_map(empty)))


def test_a_difference_of_equal_graphs_says_that_they_are_the_same(graphs):
    one = SensorGraph(("a", "b"), np.ones((2, 2), dtype=np.float32))
    figure = plots.class_graphs({"sick": one, "well": one})
    assert sum("the two graphs are the same" in text.replace("\n", " ") for text in painted(figure)) == 1
    assert len(arrows(figure.axes[0])) == 2


@without_glyph_warnings
@pytest.mark.parametrize("sign", [1, -1])
def test_a_heat_map_has_senders_in_rows(graphs, sign):
    graph = SensorGraph(NAMES, graphs["s1"].weights * np.where(np.eye(len(NAMES)), 1, sign))
    figure = plots.heat_map(graph)
    assert set(NAMES) <= set(painted(figure))
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), graph.weights)
    assert figure.axes[0].get_ylabel() == "sender"
    low, high = figure.axes[0].images[0].get_clim()
    assert low == (0 if sign > 0 else -high)


def test_a_sample_is_drawn_with_its_readings_and_the_models_attention(model, table):
    name = IDS.format(3)
    figure = plots.sample(model, table, name, max_sensors=4)
    one = table[[name]]
    count = np.bincount(one.sensor[one.rows()], minlength=len(SENSORS))
    panels = [axes for axes in figure.axes if axes.lines]
    assert [len(axes.lines[0].get_xdata()) for axes in panels] == sorted(count, reverse=True)[:4]
    assert sum(bool(axes.collections) for axes in figure.axes) == 4
    assert any(text.startswith(name) and CLASSES[0] in text for text in painted(figure))


def test_an_unknown_sample_is_refused(model, table):
    with pytest.raises(DataError, match="not in the table"):
        plots.sample(model, table, "nobody")


def test_robustness_is_the_auroc_with_sensors_hidden(model, table):
    figure = plots.robustness({"$ours$": model}, table, (0.0, 0.5))
    hidden = hide_random_sensors(table, 0.5)
    truth = (table.labels == CLASSES[1]).astype(int)
    expected = [auroc(truth, model.predict_proba(part)) for part in (table, hidden)]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), expected)
    texts = painted(figure)
    assert any("ours" in text for text in texts)
    assert f"AUROC ({CLASSES[1]})" in texts
    with pytest.raises(ConfigError, match="no estimator"):
        plots.robustness({}, table)


def test_scores_are_the_curves_of_scikit_learn(model, table):
    truth = (table.labels == CLASSES[1]).astype(int)
    probability = model.predict_proba(table)
    figure = plots.scores(truth, {"a_b$": probability}, positive=CLASSES[1], label="$$")
    assert f"precision ({CLASSES[1]})" in painted(figure)
    np.testing.assert_allclose(figure.axes[0].lines[0].get_data(), roc_curve(truth, probability[:, 1])[:2])
    with pytest.raises(DataError, match="two classes"):
        plots.scores(np.zeros(4), {"a": np.full((4, 2), 0.5)})
    with pytest.raises(DataError, match="shape"):
        plots.scores(truth, {"a": probability[:3]})


def test_graphs_side_by_side_each_have_a_scale_of_their_own():
    names = ("a_b", "$x$", "c")
    planted = SensorGraph(names, np.eye(3, k=1, dtype=np.float32), "planted")
    found = SensorGraph(names, 0.01 * planted.weights, "found")
    figure = plots.side_by_side({"planted $": planted, "found": found})
    assert {"planted $", "found", "$x$"} <= set(painted(figure))
    first, second = figure.axes
    widths = [[arrow.get_linewidth() for arrow in arrows(axes)] for axes in (first, second)]
    assert widths[0] == pytest.approx(widths[1])
    assert len(widths[0]) == 2
    with pytest.raises(DataError, match="no graph"):
        plots.side_by_side({})
