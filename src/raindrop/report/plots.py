"""Plots for papers and slides. Every function returns a matplotlib Figure and does not show it.

Names from the data are drawn literally: a $ or _ in a name is not read as a formula.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from raindrop.batch.host import to_numpy
from raindrop.errors import ConfigError, DataError, MissingExtraError
from raindrop.estimators.forecaster import Forecaster
from raindrop.estimators.imputer import Imputer
from raindrop.estimators.inputs import kind_of_dates
from raindrop.estimators.samples import SampleEstimator
from raindrop.graphs.class_differences import ClassGraphs
from raindrop.graphs.graph import SensorGraph
from raindrop.graphs.layout import circle_places, sensor_places
from raindrop.report.readings.cases import Filled, time_title
from raindrop.report.readings.one_sample import sample_case
from raindrop.report.tasks import view_of
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hide_random_sensors
from raindrop.tasks.metrics import reliability_curve

try:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize, TwoSlopeNorm
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch
except ImportError as error:
    raise MissingExtraError(error.name or "matplotlib", "plot", "Drawing plots") from None

ORANGE, BLUE, INK, GREY = "#b4531a", "#1f5f8b", "#1a2433", "#9aa5b1"
MANY = 40  # sensors; with more, those without a drawn edge are not labelled
COLOURS = (ORANGE, BLUE, "#4b7f32", "#7a4b9c", "#8a6d00", "#b03060", "#008080", "#6b7785")


def graph(
    sensor_graph: SensorGraph, *, top: int = 50, title: str | None = None, warning: str = "", positions: Any = None
) -> Figure:
    """The `top` strongest edges of a graph, sensors on a circle or a map; negative weights are blue.

    positions: a frame with the columns sensor, x and y, for a map. `warning` is printed on the figure. For a graph
    without edges, the figure shows a sentence that says why.
    """
    place = None if positions is None else sensor_places(sensor_graph.sensors, positions)
    figure, (axes,) = _panels(1, 5.5 if len(sensor_graph.sensors) <= MANY else 8.0)
    title = sensor_graph.name if title is None else title
    _draw_graph(axes, sensor_graph, top, _largest([sensor_graph], top), title, place)
    _warn(figure, warning)
    return figure


def side_by_side(graphs: Mapping[str, SensorGraph], *, top: int = 50) -> Figure:
    """Several graphs, each with its own scale of widths, such as planted and found edges."""
    if not graphs:
        raise DataError("There is no graph to draw.")
    figure, panels = _panels(len(graphs), 4.2)
    for axes, (name, each) in zip(panels, graphs.items(), strict=True):
        _draw_graph(axes, each, top, _largest([each], top), name)
    return figure


def class_graphs(by_class: Mapping[Any, SensorGraph], *, top: int = 50, warning: str = "") -> Figure:
    """The paper's figure: the mean graph of each class, with a common scale of widths; for two classes also the
    difference.

    `by_class` is the result of `SensorGraphs.by_class`. In the difference an edge is orange if it is stronger in the
    second class and blue if it is stronger in the first. `warning`, such as `Stability.reason`, is printed on the
    figure.
    """
    if not by_class:
        raise DataError("There is no class, so there is no graph to draw.")
    names, graphs = [str(name) for name in by_class], list(by_class.values())
    two = len(graphs) == 2
    figure, panels = _panels(len(graphs) + two, 4.6)
    largest = _largest(graphs, top)
    for axes, name, each in zip(panels, names, graphs, strict=False):
        _draw_graph(axes, each, top, largest, name)
    if two:
        difference = graphs[1] - graphs[0]
        title = f"{names[1]} minus {names[0]}, {top} largest"
        _draw_graph(panels[-1], difference, top, _largest([difference], top), title)
    _warn(figure, warning)
    return figure


def class_differences(classes: ClassGraphs, *, top: int = 50, positions: Any = None) -> Figure:
    """Each class's graph, then the differences that have evidence; orange if a sender helps more in the class.

    positions: as in `graph`. A difference without edges is shown as a sentence that says why.
    """
    graphs = list(classes.graphs.values())
    differences = list(classes.differences.values())
    place = None if positions is None else sensor_places(graphs[0].sensors, positions)
    figure, panels = _panels(len(graphs) + len(differences), 4.6)
    for part, axes in ((graphs, panels[: len(graphs)]), (differences, panels[len(graphs) :])):
        for each, panel in zip(part, axes, strict=True):
            _draw_graph(panel, each, top, _largest(part, top), each.name, place)
    _warn(figure, classes.describe_stability() if classes.num_other_seeds else "")
    return figure


def heat_map(graph: SensorGraph, *, title: str | None = None, warning: str = "") -> Figure:
    """All weights of a graph as a heat map; rows are senders, columns are receivers.

    If no edge connects two sensors, a sentence below says why.
    """
    size = max(4.0, 0.26 * len(graph.sensors) + 2)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.add_subplot()
    largest = float(np.abs(graph.weights).max()) or 1.0
    signed = bool((graph.weights < 0).any())
    norm = TwoSlopeNorm(0, -largest, largest) if signed else Normalize(0, largest)
    image = axes.imshow(graph.weights, cmap="RdBu_r" if signed else "Oranges", norm=norm)
    positions = np.arange(len(graph.sensors))
    axes.set_xticks(positions, graph.sensors, rotation=90, fontsize=8)
    axes.set_yticks(positions, graph.sensors, fontsize=8)
    _literal(axes)
    axes.set_xlabel("receiver")
    axes.set_ylabel("sender")
    _title(axes, graph.name if title is None else title)
    figure.colorbar(image, ax=axes, label="weight", shrink=0.8)
    _warn(figure, " ".join(text for text in (graph.describe_empty(), warning) if text))
    return figure


def sample(estimator: SampleEstimator, table: EventTable, name: str, *, max_sensors: int = 12) -> Figure:
    """A sample's readings, one panel per sensor, with the model's attention over time below each if it has any.

    Only the `max_sensors` sensors with most readings are drawn. A bar's height is the sensor's attention to that time.
    """
    one = table[[name]].in_unit(estimator.time_unit_)
    attention = _attention(estimator, one)
    counts = np.bincount(one.sensor[one.rows()], minlength=len(one.sensors))
    codes = [code for code in np.argsort(-counts, kind="stable")[:max_sensors].tolist() if counts[code]]
    figure = Figure(figsize=(8, 1.1 * max(len(codes), 1) + 1), layout="constrained")
    panels = figure.subplots(max(len(codes), 1), 1, sharex=True, squeeze=False)[:, 0]
    time, sensor, value = (np.asarray(column[one.rows()]) for column in (one.time, one.sensor, one.value))
    for axes, code in zip(panels, codes, strict=False):
        of_sensor = sensor == code
        axes.plot(time[of_sensor], value[of_sensor], "o-", color=BLUE, markersize=3, linewidth=0.8)
        axes.set_ylabel(one.sensors[code], rotation=0, ha="right", va="center", fontsize=8, parse_math=False)
        axes.tick_params(labelsize=7)
        if attention is not None and one.sensors[code] in estimator.scaler_.sensors:
            times, weights = attention
            column = weights[:, estimator.scaler_.sensors.index(one.sensors[code])]
            below = axes.twinx()
            below.vlines(times, 0, column, color=ORANGE, alpha=0.6, linewidth=1.2)
            below.set_ylim(0, 3 * max(float(column.max()), 1e-9))
            below.set_yticks([])
    panels[-1].set_xlabel(f"time in {one.time_unit}")
    figure.suptitle(
        f"{name}: {view_of(estimator).prediction_text(estimator.predictions(one)[0])}", fontsize=10, parse_math=False
    )
    return figure


def filled(
    estimator: Imputer | Forecaster,
    table: EventTable,
    sample: str,
    sensors: Sequence[str] | None = None,
    *,
    truth: Any = None,
    coverage: float = 0.9,
    max_sensors: int = 6,
) -> Figure:
    """A sample's readings, its gaps or its future filled with intervals, and which sensors informed the main gap.

    sensors: the sensors to draw; by default the `max_sensors` with the longest gaps or, for a forecaster, with most
    readings. truth: hidden readings to draw too, a frame with the columns sample, time, sensor and value.
    """
    case = sample_case(estimator, table, sample, sensors, truth=truth, coverage=coverage, max_sensors=max_sensors)
    if case is None:
        figure, (axes,) = _panels(1, 4.0)
        axes.axis("off")
        axes.text(0.5, 0.5, "There are no gaps to fill.", ha="center", va="center", transform=axes.transAxes)
        return figure
    names, with_senders = estimator.scaler_.sensors, any(gap.senders for each in case.filled for gap in each.gaps)
    figure = Figure(figsize=(11 if with_senders else 8, 1.9 * len(case.filled) + 1), layout="constrained")
    columns = {"ncols": 2, "width_ratios": [4, 1]} if with_senders else {"ncols": 1}
    panels = figure.subplots(len(case.filled), squeeze=False, **columns)
    dated = not np.isnat(case.zero)
    clock = partial(case.in_dates, time_unit=table.time_unit) if dated else np.asarray
    for row, each in zip(panels, case.filled, strict=True):
        _draw_filled(row[0], each, *case.readings[each.sensor], clock)
        row[0].set_title(names[each.sensor], fontsize=9, loc="left", parse_math=False)
        row[0].set_xlim(*clock([case.start, case.stop]))
        if with_senders:
            strongest = each.gaps[each.listed[0]].senders[:6][::-1]
            row[1].barh(range(len(strongest)), [100 * weight for _, weight in strongest], color=BLUE)
            row[1].set_yticks(range(len(strongest)), [names[code] for code, _ in strongest], fontsize=7)
            row[1].tick_params(axis="x", labelsize=7)
            _literal(row[1])
    panels[-1, 0].set_xlabel(time_title(kind_of_dates(table) if dated else None, table.time_unit))
    if with_senders:
        panels[0, 1].set_title("informed by", fontsize=9, loc="left")
        panels[-1, 1].set_xlabel("attention in %")
    figure.suptitle(sample, fontsize=10, parse_math=False)
    return figure


def _draw_filled(
    axes: Axes, filled: Filled, time: NDArray[Any], value: NDArray[Any], clock: Callable[..., NDArray[Any]]
) -> None:
    """Readings, filled values with their intervals, hidden readings; the main gap is shaded; times by `clock`."""
    main = filled.gaps[filled.listed[0]]
    axes.axvspan(*clock([main.start, main.stop]), color="#e6ebf0", linewidth=0)
    moments = clock(filled.time)
    axes.plot(clock(time), value, "o", color=BLUE, markersize=2.5)
    for gap in filled.gaps:
        at = gap.values
        axes.plot(moments[at], filled.value[at], "o-", color=ORANGE, markersize=2.5, linewidth=0.9)
        bounded = np.isfinite(filled.low[at]) & np.isfinite(filled.high[at])
        times, low, high = (column[at][bounded] for column in (moments, filled.low, filled.high))
        if len(times) > 1:
            axes.fill_between(times, low, high, color=ORANGE, alpha=0.2, linewidth=0)
        else:
            axes.vlines(times, low, high, color=ORANGE, alpha=0.4, linewidth=2)
    axes.plot(moments, filled.truth, "x", color=INK, markersize=4)
    axes.tick_params(labelsize=7)


def robustness(
    estimators: Mapping[str, SampleEstimator],
    table: EventTable,
    shares: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    *,
    seed: int = 0,
) -> Figure:
    """The task's first metric against the share of sensors hidden in each sample, with 95 % bootstrap intervals."""
    if not estimators:
        raise ConfigError("There is no estimator to draw a curve for.")
    figure, (axes,) = _panels(1, 4.5)
    titles = set()
    for at, (name, estimator) in enumerate(estimators.items()):
        task, truth = estimator.task_, estimator.truth(table)
        first = next(iter(task.metrics))
        titles.add(view_of(estimator).metric_title(first))
        partial = [estimator.predictions(hide_random_sensors(table, share, seed=seed)) for share in shares]
        intervals = [task.bootstrap(truth, each, [first], seed=seed)[first] for each in partial]
        colour, percent = COLOURS[at % len(COLOURS)], [100 * share for share in shares]
        axes.plot(percent, [each.value for each in intervals], "o-", color=colour, label=_escaped(name))
        low, high = [each.low for each in intervals], [each.high for each in intervals]
        axes.fill_between(percent, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("share of sensors hidden in each sample, in %")
    axes.set_ylabel(" / ".join(sorted(titles)), parse_math=False)
    axes.legend(frameon=False)
    return figure


def scores(
    truth: ArrayLike, probabilities: Mapping[str, NDArray[Any]], *, positive: str = "class 1", label: str = ""
) -> Figure:
    """ROC curve, precision-recall curve and calibration of the positive class of two, for each model by name.

    truth: 1 for samples of the positive class, 0 for others; probabilities: by name, (samples, 2), the second column
    for the positive class; positive: its name, for the axes.
    """
    codes = np.asarray(truth).astype(np.int64)
    if not probabilities or not set(np.unique(codes)) == {0, 1}:
        raise DataError("Curves need at least one model, and samples of two classes, given as 0 and 1.")
    figure, (roc, recall, reliability) = _panels(3, 4.0)
    for at, (name, probability) in enumerate(probabilities.items()):
        if probability.shape != (len(codes), 2):
            raise DataError(f"'{name}': probabilities of shape {probability.shape}, but {(len(codes), 2)} is needed.")
        colour = COLOURS[at % len(COLOURS)]
        roc.plot(*roc_curve(codes, probability[:, 1])[:2], color=colour, label=_escaped(name))
        precisions, recalls, _ = precision_recall_curve(codes, probability[:, 1])
        recall.plot(recalls, precisions, color=colour)
        groups = reliability_curve(codes, probability)
        error = np.maximum([groups.observed - groups.low, groups.high - groups.observed], 0)
        reliability.errorbar(groups.predicted, groups.observed, error, fmt="o-", color=colour, markersize=4)
    roc.plot([0, 1], [0, 1], "--", color=GREY)
    recall.axhline(codes.mean(), linestyle="--", color=GREY)
    reliability.plot([0, 1], [0, 1], "--", color=GREY)
    for axes, x, y in (
        (roc, "false positive rate", f"true positive rate ({positive})"),
        (recall, "recall", f"precision ({positive})"),
        (reliability, "predicted probability", f"observed share ({positive})"),
    ):
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel=x)
        axes.set_ylabel(y, parse_math=False)
    roc.legend(frameon=False)
    figure.suptitle(label, fontsize=10, parse_math=False)
    return figure


# ---------------------------------------------------------------- parts


def _panels(number: int, size: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(number * size, size), layout="constrained")
    return figure, list(figure.subplots(1, number, squeeze=False)[0])


def _largest(graphs: Sequence[SensorGraph], top: int) -> float:
    """The absolute weight of the strongest edge; 1 if there is none."""
    strongest = [graph.strongest(top).weights for graph in graphs]
    return max((float(np.abs(weights).max(initial=0)) for weights in strongest), default=0) or 1.0


def _draw_graph(
    axes: Axes, graph: SensorGraph, top: int, largest: float, title: str, place: NDArray[Any] | None = None
) -> None:
    """Sensors on a circle, or at `place`; an arrow per edge: width and opacity are the weight's share of `largest`."""
    if top < 1:
        raise ConfigError(f"top={top}: a plot needs at least one edge.")
    axes.axis("off")
    _title(axes, title)
    if graph.is_empty:
        sentence = textwrap.fill(graph.describe_empty(), 40)
        axes.text(0.5, 0.5, sentence, ha="center", va="center", transform=axes.transAxes, parse_math=False)
        return
    on_map = place is not None
    edges = graph.top(top)
    used = set(edges["sender"]) | set(edges["receiver"])
    named = [name for name in graph.sensors if name in used or len(graph.sensors) <= MANY]
    number = {name: at for at, name in enumerate(graph.sensors if on_map else named)}
    place = circle_places(len(named)) if place is None else place
    for sender, receiver, weight in reversed(edges.rows()):
        share = abs(weight) / largest
        axes.add_patch(
            FancyArrowPatch(
                tuple(place[number[sender]]),
                tuple(place[number[receiver]]),
                connectionstyle="arc3,rad=0.18",
                arrowstyle="-|>",
                mutation_scale=6 + 6 * share,
                linewidth=0.4 + 2.8 * share,
                color=ORANGE if weight > 0 else BLUE,
                alpha=0.25 + 0.7 * share,
                shrinkA=4,
                shrinkB=4,
            )
        )
    axes.plot(place[:, 0], place[:, 1], "o", color=INK, markersize=5 if len(place) <= MANY else 2.5)
    size = 8 if len(named) <= 24 else 6.5 if len(named) <= MANY else 5
    taken: list[tuple[float, float, float]] = []  # names on a map: left, middle, width
    for name in named:
        x, y = place[number[name]]
        width, height = 0.0055 * size * len(name), 0.01 * size
        if on_map and any(abs(y - at) < height and x < left + wide and left < x + width for left, at, wide in taken):
            continue
        taken.append((x, y, width))
        turn = 0.0 if on_map else float(np.degrees(np.arctan2(y, x)))
        left_side = x < -1e-9 and not on_map
        axes.text(
            x + 0.04 if on_map else 1.08 * x,
            1.08 * y if not on_map else y,
            name,
            rotation=(turn + 180 if left_side else turn) % 360,
            rotation_mode="anchor",
            ha="right" if left_side else "left",
            va="center",
            fontsize=size,
            parse_math=False,
        )
    if len(named) < len(graph.sensors) and not on_map:
        note = f"{len(graph.sensors) - len(named)} sensors without a drawn edge are left out"
        axes.text(0.5, 0.0, note, ha="center", transform=axes.transAxes, fontsize=7, color=GREY)
    edge = 1.75 if len(named) <= MANY else 1.45
    low, high = (
        (place.min(0) - 0.15, place.max(0) + np.array([0.7, 0.15])) if on_map else (np.full(2, -edge), np.full(2, edge))
    )
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")


def _attention(estimator: SampleEstimator, one: EventTable) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The times of a sample, and (times, sensors) the attention to them; None if the model has none."""
    for batch, output in estimator.run_model(one):
        return None if output.time_weights is None else (to_numpy(batch.time), to_numpy(output.time_weights))
    return None


def _warn(figure: Figure, warning: str) -> None:
    """A framed warning below the plot, so that the plot cannot be copied without it."""
    if warning:
        box = {"facecolor": "#fff4e0", "edgecolor": "#b7791f", "boxstyle": "round,pad=0.4"}
        text = _escaped(f"Warning: {warning}")  # wrapping ignores parse_math=False
        figure.supxlabel(text, fontsize=9, color=INK, wrap=True, bbox=box)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, fontsize=10, parse_math=False)


def _literal(axes: Axes) -> None:
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_parse_math(False)


def _escaped(name: str) -> str:
    """Text for places where $ always starts a formula, such as a legend."""
    return name.replace("$", r"\$")
