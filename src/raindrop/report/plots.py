"""Pictures for papers and slides. Every function returns a matplotlib Figure and shows nothing by itself.

Names from the data are drawn as they are: a $ or _ in a name is no formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from raindrop.errors import ConfigError, DataError, MissingExtraError
from raindrop.estimators.classifier import Classifier
from raindrop.graphs.graph import SensorGraph
from raindrop.table.event_table import EventTable
from raindrop.tasks.metrics import reliability_curve

try:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize, TwoSlopeNorm
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch
except ImportError as error:
    raise MissingExtraError(error.name or "matplotlib", "plot", "Drawing pictures") from None

ORANGE, BLUE, INK, GREY = "#b4531a", "#1f5f8b", "#1a2433", "#9aa5b1"
COLOURS = (ORANGE, BLUE, "#4b7f32", "#7a4b9c", "#8a6d00", "#b03060", "#008080", "#6b7785")


def graph(held: SensorGraph, *, top: int = 50, title: str | None = None, warning: str = "") -> Figure:
    """A graph's `top` strongest edges, sensors on a circle; negative weights are blue. `warning` goes on the figure."""
    figure, (axes,) = _panels(1, 5.5)
    _draw_graph(axes, held, top, _largest([held], top), held.name if title is None else title)
    _warn(figure, warning)
    return figure


def class_graphs(by_class: Mapping[Any, SensorGraph], *, top: int = 50, warning: str = "") -> Figure:
    """The paper's figure: the mean graph of each class, widths on one scale; of two classes, also their difference.

    `by_class` is what `SensorGraphs.by_class` gives. In the difference an edge is orange where it is stronger in the
    second class and blue where it is stronger in the first. `warning`, such as `Stability.reason`, goes on the figure.
    """
    if not by_class:
        raise DataError("There is no class, so there is no graph to draw.")
    names, graphs = [str(name) for name in by_class], list(by_class.values())
    two = len(graphs) == 2
    figure, panels = _panels(len(graphs) + two, 4.6)
    largest = _largest(graphs, top)
    for axes, name, held in zip(panels, names, graphs, strict=False):
        _draw_graph(axes, held, top, largest, name)
    if two:
        difference = graphs[1] - graphs[0]
        title = f"{names[1]} minus {names[0]}, the {top} largest"
        _draw_graph(panels[-1], difference, top, _largest([difference], top), title)
    _warn(figure, warning)
    return figure


def heat_map(held: SensorGraph, *, title: str | None = None, warning: str = "") -> Figure:
    """All weights of a graph as a table of colours: a row sends, a column receives."""
    size = max(4.0, 0.26 * len(held.sensors) + 2)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.add_subplot()
    largest = float(np.abs(held.weights).max()) or 1.0
    signed = bool((held.weights < 0).any())
    norm = TwoSlopeNorm(0, -largest, largest) if signed else Normalize(0, largest)
    image = axes.imshow(held.weights, cmap="RdBu_r" if signed else "Oranges", norm=norm)
    at = np.arange(len(held.sensors))
    axes.set_xticks(at, held.sensors, rotation=90, fontsize=8)
    axes.set_yticks(at, held.sensors, fontsize=8)
    _literal(axes)
    axes.set_xlabel("receiver")
    axes.set_ylabel("sender")
    _title(axes, held.name if title is None else title)
    figure.colorbar(image, ax=axes, label="weight", shrink=0.8)
    _warn(figure, warning)
    return figure


def sample(classifier: Classifier, table: EventTable, name: str, *, most: int = 12) -> Figure:
    """A sample's readings, a panel per sensor, with the model's attention over time below each where it has any.

    Shown are the `most` sensors with most readings. A bar's height is the attention of that sensor to that time.
    """
    one = table[[name]].in_unit(classifier.time_unit_)
    weights = _attention(classifier, one)
    counts = np.bincount(one.sensor[one.rows()], minlength=len(one.sensors))
    chosen = [code for code in np.argsort(-counts, kind="stable")[:most].tolist() if counts[code]]
    figure = Figure(figsize=(8, 1.1 * max(len(chosen), 1) + 1), layout="constrained")
    panels = figure.subplots(max(len(chosen), 1), 1, sharex=True, squeeze=False)[:, 0]
    time, sensor, value = (np.asarray(column[one.rows()]) for column in (one.time, one.sensor, one.value))
    for axes, code in zip(panels, chosen, strict=False):
        mine = sensor == code
        axes.plot(time[mine], value[mine], "o-", color=BLUE, markersize=3, linewidth=0.8)
        axes.set_ylabel(one.sensors[code], rotation=0, ha="right", va="center", fontsize=8, parse_math=False)
        axes.tick_params(labelsize=7)
        if weights is not None and one.sensors[code] in classifier.scaler_.sensors:
            column = weights[1][:, classifier.scaler_.sensors.index(one.sensors[code])]
            below = axes.twinx()
            below.vlines(weights[0], 0, column, color=ORANGE, alpha=0.6, linewidth=1.2)
            below.set_ylim(0, 3 * max(float(column.max()), 1e-9))
            below.set_yticks([])
    panels[-1].set_xlabel(f"time in {one.time_unit}")
    predicted = classifier.predict_proba(one)[0]
    probability = ", ".join(f"{label} {p:.1%}" for label, p in zip(classifier.classes_, predicted, strict=True))
    figure.suptitle(f"{name}: {probability}", fontsize=10, parse_math=False)
    return figure


def robustness(
    classifiers: Mapping[str, Classifier],
    table: EventTable,
    shares: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    *,
    seed: int = 0,
) -> Figure:
    """AUROC against the share of sensors hidden in each sample, with 95 % bootstrap intervals over samples."""
    from raindrop.table.hide import hide_random_sensors
    from raindrop.tasks.bootstrap import bootstrap

    if not classifiers:
        raise ConfigError("There is no classifier to draw a curve of.")
    figure, (axes,) = _panels(1, 4.5)
    for at, (name, classifier) in enumerate(classifiers.items()):
        truth = classifier.truth(table)
        hidden = [hide_random_sensors(table, share, seed=seed) for share in shares]
        found = [bootstrap(truth, classifier.predict_proba(part), ["auroc"], seed=seed)["auroc"] for part in hidden]
        colour, percent = COLOURS[at % len(COLOURS)], [100 * share for share in shares]
        axes.plot(percent, [held.value for held in found], "o-", color=colour, label=_plain(name))
        low, high = [held.low for held in found], [held.high for held in found]
        axes.fill_between(percent, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("share of sensors hidden in each sample, in %")
    axes.set_ylabel("AUROC")
    axes.legend(frameon=False)
    return figure


def scores(truth: ArrayLike, probabilities: Mapping[str, NDArray[Any]], *, label: str = "") -> Figure:
    """ROC curve, precision against recall, and calibration of the second of two classes, for each model by name.

    truth: 0 or 1 of each sample; probabilities: by name, (samples, 2).
    """
    codes = np.asarray(truth).astype(np.int64)
    if not probabilities or not set(np.unique(codes)) == {0, 1}:
        raise DataError("Curves need at least one model, and samples of two classes, given as 0 and 1.")
    figure, (roc, recall, honest) = _panels(3, 4.0)
    for at, (name, probability) in enumerate(probabilities.items()):
        if probability.shape != (len(codes), 2):
            raise DataError(f"'{name}': probabilities of shape {probability.shape}, but {(len(codes), 2)} is needed.")
        colour = COLOURS[at % len(COLOURS)]
        roc.plot(*roc_curve(codes, probability[:, 1])[:2], color=colour, label=_plain(name))
        precision, called, _ = precision_recall_curve(codes, probability[:, 1])
        recall.plot(called, precision, color=colour)
        held = reliability_curve(codes, probability)
        reach = [held.observed - held.low, held.high - held.observed]
        honest.errorbar(held.predicted, held.observed, np.maximum(reach, 0), fmt="o-", color=colour, markersize=4)
    roc.plot([0, 1], [0, 1], "--", color=GREY)
    recall.axhline(codes.mean(), linestyle="--", color=GREY)
    honest.plot([0, 1], [0, 1], "--", color=GREY)
    for axes, x, y in (
        (roc, "false positive rate", "true positive rate"),
        (recall, "recall", "precision"),
        (honest, "predicted probability", "share that came true"),
    ):
        axes.set(xlabel=x, ylabel=y, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    roc.legend(frameon=False)
    figure.suptitle(label, fontsize=10, parse_math=False)
    return figure


# ---------------------------------------------------------------- parts


def _panels(number: int, size: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(number * size, size), layout="constrained")
    return figure, list(figure.subplots(1, number, squeeze=False)[0])


def _largest(graphs: Sequence[SensorGraph], top: int) -> float:
    """The size of the strongest edge that is drawn; 1 where there is none."""
    strongest = [held.strongest(top).weights for held in graphs]
    return max((float(np.abs(weights).max(initial=0)) for weights in strongest), default=0) or 1.0


def _draw_graph(axes: Axes, held: SensorGraph, top: int, largest: float, title: str) -> None:
    """Sensors on a circle, an arrow per edge; its width and opacity are the weight's share of `largest`."""
    if top < 1:
        raise ConfigError(f"top={top}: a picture has at least one edge.")
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(held.sensors)) / max(len(held.sensors), 1)
    place = np.column_stack([np.cos(angle), np.sin(angle)])
    number = {name: at for at, name in enumerate(held.sensors)}
    for sender, receiver, weight in reversed(held.top(top).rows()):
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
    axes.plot(place[:, 0], place[:, 1], "o", color=INK, markersize=5)
    for name, (x, y), turn in zip(held.sensors, place, np.degrees(angle), strict=True):
        left = x < -1e-9
        axes.text(
            1.08 * x,
            1.08 * y,
            name,
            rotation=(turn + 180 if left else turn) % 360,
            rotation_mode="anchor",
            ha="right" if left else "left",
            va="center",
            fontsize=8 if len(held.sensors) <= 24 else 6.5,
            parse_math=False,
        )
    axes.set(xlim=(-1.75, 1.75), ylim=(-1.75, 1.75), aspect="equal")
    axes.axis("off")
    _title(axes, title)


def _attention(classifier: Classifier, one: EventTable) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The times of a sample, and (times, sensors) the attention to them; None where the model has none."""
    import torch

    with torch.inference_mode():
        for batch in classifier.batches(one):
            weights = classifier.model_.eval()(batch).time_weights
            return None if weights is None else (batch.time.numpy(), weights.numpy())
    return None


def _warn(figure: Figure, warning: str) -> None:
    """A framed sentence below the picture, so that it is not copied without it."""
    if warning:
        box = {"facecolor": "#fff4e0", "edgecolor": "#b7791f", "boxstyle": "round,pad=0.4"}
        figure.supxlabel(f"Warning: {warning}", fontsize=9, color=INK, wrap=True, bbox=box, parse_math=False)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, fontsize=10, parse_math=False)


def _literal(axes: Axes) -> None:
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_parse_math(False)


def _plain(name: str) -> str:
    """A name for a legend, which reads formulas: a $ stands for itself."""
    return name.replace("$", r"\$")
