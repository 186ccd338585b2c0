"""The charts of a report, drawn by Bokeh. Those that follow what a person picks start empty and are filled on the page.

No name from the data is put into a Bokeh title, axis label or legend: Bokeh reads $$...$$ there as a formula and would
fetch a typesetter from the network. Names are factors of an axis or text glyphs, which are shown as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.embed import json_item
from bokeh.models import ColumnDataSource, FactorRange, HoverTool, Range1d
from bokeh.plotting import figure

from raindrop.report.content import HIDDEN, Report

INK, MUTED, LINE = "#1a2433", "#52606d", "#d9e0e7"
OURS, OTHER, RIVAL = "#b4531a", "#1f5f8b", "#6b7785"
PALETTE = ("#b4531a", "#1f5f8b", "#4b7f32", "#7a4b9c", "#8a6d00", "#b03060", "#008080", "#6b7785")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def all_figures(report: Report) -> dict[str, Any]:
    """Every chart the report has content for, by the id of the place it goes to, as Bokeh's own JSON."""
    drawn: dict[str, Any] = {}
    if any("validation" in row or "loss" in row for row in report.history):
        drawn["chart-history"] = _history(report)
    if report.scores:
        curves = report.curves()
        drawn["chart-roc"] = _roc(curves)
        drawn["chart-pr"] = _precision_recall(curves, report.chance["auprc"] if len(report.classes) == 2 else None)
        drawn["chart-calibration"] = _calibration(report)
        drawn["chart-robustness"] = _robustness(report)
    if report.readings:
        for place in ("class", "others", "difference"):
            drawn[f"graph-{place}"] = _graph(f"graph-{place}")
        if report.cases:
            drawn["graph-sample"] = _graph("graph-sample")
    if report.cases:
        drawn["chart-readings"] = _readings(report)
        drawn["chart-sensor"] = _sensor(report)
    return {place: json_item(chart) for place, chart in drawn.items()}


def _plain(*, height: int, x: str = "", y: str = "", **more: Any) -> Any:
    """A quiet frame: no toolbar, light grid, as wide as its place."""
    chart = figure(
        height=height, sizing_mode="stretch_width", toolbar_location=None, tools="", background_fill_color=None, **more
    )
    chart.border_fill_color = None
    chart.outline_line_color = None
    chart.grid.grid_line_color = LINE
    chart.xaxis.axis_label, chart.yaxis.axis_label = x or None, y or None
    chart.axis.axis_label_text_font_style = "normal"
    chart.axis.axis_label_text_color = chart.axis.major_label_text_color = MUTED
    chart.axis.axis_label_text_font = chart.axis.major_label_text_font = FONT
    chart.axis.axis_label_text_font_size = "13px"
    chart.axis.major_label_text_font_size = "12px"
    chart.axis.axis_line_color = chart.axis.major_tick_line_color = LINE
    chart.axis.minor_tick_line_color = None
    return chart


def _unit_square(x: str, y: str) -> Any:
    return _plain(height=300, x=x, y=y, x_range=Range1d(start=-0.01, end=1.01), y_range=Range1d(start=-0.01, end=1.02))


def _roc(curves: list[dict[str, Any]]) -> Any:
    chart = _unit_square("false positive rate", "true positive rate")
    chart.line([0, 1], [0, 1], color=MUTED, line_dash="dashed")
    for at, curve in enumerate(curves):
        x, y = _few(curve["false"], curve["true"])
        chart.line(x, y, color=PALETTE[at % len(PALETTE)], line_width=2)
    return chart


def _precision_recall(curves: list[dict[str, Any]], base: float | None) -> Any:
    chart = _unit_square("recall", "precision")
    if base is not None:
        chart.line([0, 1], [base, base], color=MUTED, line_dash="dashed")
    for at, curve in enumerate(curves):
        x, y = _few(curve["recall"], curve["precision"])
        chart.line(x, y, color=PALETTE[at % len(PALETTE)], line_width=2)
    return chart


def _few(x: np.ndarray, y: np.ndarray, most: int = 400) -> tuple[list[float], list[float]]:
    """At most `most` points, evenly over the curve and rounded: what a screen can show."""
    at = np.unique(np.linspace(0, len(x) - 1, min(len(x), most)).round().astype(int))
    return np.round(x[at], 4).tolist(), np.round(y[at], 4).tolist()


def _calibration(report: Report) -> Any:
    chart = _unit_square("predicted probability", "share that came true")
    chart.line([0, 1], [0, 1], color=MUTED, line_dash="dashed")
    held = report.calibration
    assert held is not None
    chart.segment(held.predicted, held.low, held.predicted, held.high, color=OURS, line_width=2, alpha=0.5)
    chart.line(held.predicted, held.observed, color=OURS, line_width=2)
    chart.scatter(held.predicted, held.observed, color=OURS, size=8)
    return chart


def _robustness(report: Report) -> Any:
    chart = _plain(height=300, x="share of sensors hidden in each sample, in %", y="AUROC")
    hidden = [100 * share for share in HIDDEN]
    for at, score in enumerate(report.scores):
        color = OURS if at == 0 else PALETTE[at % len(PALETTE)]
        low, high = [held.low for held in score.robustness], [held.high for held in score.robustness]
        middle = [held.value for held in score.robustness]
        chart.varea(hidden, low, high, color=color, alpha=0.15)
        chart.line(hidden, middle, color=color, line_width=2)
        chart.scatter(hidden, middle, color=color, size=7, marker="circle" if at == 0 else "square")
    return chart


def _history(report: Report) -> Any:
    metric = report.metric
    chart = _plain(height=240, x="epoch", y=f"{_written(metric)} on validation" if metric else "training loss")
    chart.xaxis.ticker.desired_num_ticks = 6
    values = [row.get("validation", {}).get(metric) if metric else row.get("loss") for row in report.history]
    kept = [at for at, value in enumerate(values) if value is not None]
    x, y = [report.history[at].get("epoch", at + 1) for at in kept], [values[at] for at in kept]
    chart.line(x, y, color=OURS, line_width=2)
    chart.scatter(x, y, color=OURS, size=6)
    return chart


def _written(metric: str) -> str:
    return metric.upper() if metric.startswith("au") else metric.replace("_", " ")


# ---------------------------------------------------------------- filled on the page


def _graph(name: str) -> Any:
    """Sensors on a circle; edges are curves with an arrow near their receiver, names stand radially."""
    chart = figure(
        aspect_ratio=1,
        sizing_mode="stretch_width",
        max_width=560,
        x_range=Range1d(start=-1.7, end=1.7, name=f"{name}-x"),
        y_range=Range1d(start=-1.7, end=1.7, name=f"{name}-y"),
        toolbar_location=None,
        tools="",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border=0,
    )
    chart.axis.visible = False
    chart.grid.visible = False
    edges = ColumnDataSource(
        {key: [] for key in ("xs", "ys", "width", "color", "alpha", "dash", "sender", "receiver", "weight")},
        name=f"{name}-edges",
    )
    heads = ColumnDataSource({key: [] for key in ("x", "y", "angle", "size", "color", "alpha")}, name=f"{name}-heads")
    nodes = ColumnDataSource({key: [] for key in ("x", "y", "color", "size", "sensor")}, name=f"{name}-nodes")
    labels = ColumnDataSource(
        {key: [] for key in ("x", "y", "angle", "align", "text", "color", "font")}, name=f"{name}-labels"
    )
    curves = chart.multi_line(
        "xs", "ys", line_width="width", color="color", alpha="alpha", line_dash="dash", source=edges
    )
    chart.scatter("x", "y", marker="triangle", angle="angle", size="size", color="color", alpha="alpha", source=heads)
    dots = chart.scatter("x", "y", size="size", fill_color="color", line_color="white", line_width=2, source=nodes)
    chart.text(
        "x",
        "y",
        text="text",
        angle="angle",
        text_align="align",
        text_baseline="middle",
        text_color="color",
        text_font=value(FONT),
        text_font_size="font",
        source=labels,
    )
    chart.add_tools(
        HoverTool(renderers=[curves], tooltips=[("from", "@sender"), ("to", "@receiver"), ("weight", "@weight")]),
        HoverTool(renderers=[dots], tooltips=[("sensor", "@sensor")]),
    )
    return chart


def _readings(report: Report) -> Any:
    """A row per sensor, a dot per reading: colour is low or high, size is attention."""
    rows = FactorRange(factors=["-"], name="readings-sensors")
    chart = _plain(height=120 + 20 * len(report.sensors), x=f"time in {report.time_unit}", y_range=rows)
    chart.name = "readings-chart"
    chart.ygrid.grid_line_color = "#eef2f5"
    source = ColumnDataSource(
        {key: [] for key in ("time", "sensor", "value", "color", "size", "name", "attention")}, name="readings"
    )
    dots = chart.scatter("time", "sensor", color="color", size="size", line_color="#33415522", source=source)
    tips = [("sensor", "@name"), ("time", "@time"), ("value", "@value"), ("attention", "@attention")]
    chart.add_tools(HoverTool(renderers=[dots], tooltips=tips))
    return chart


def _sensor(report: Report) -> Any:
    """The readings of one sensor in their own unit."""
    chart = _plain(height=200, x=f"time in {report.time_unit}", y="value")
    source = ColumnDataSource({"time": [], "value": []}, name="sensor")
    usual = ColumnDataSource({"left": [], "right": [], "bottom": [], "top": []}, name="sensor-usual")
    chart.quad("left", "right", "top", "bottom", color="#eef2f5", source=usual)
    chart.line("time", "value", color=OTHER, line_width=1.5, source=source)
    dots = chart.scatter("time", "value", color=OTHER, size=6, source=source)
    chart.add_tools(HoverTool(renderers=[dots], tooltips=[("time", "@time"), ("value", "@value")]))
    return chart
