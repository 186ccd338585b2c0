"""The charts of a report, drawn by Bokeh. Interactive ones start empty and are filled by the script of the page.

No name from the data goes into a Bokeh title, axis label or legend: Bokeh renders $$...$$ there as a formula and would
load MathJax from the network. Names are factors of an axis or text glyphs, which are drawn literally.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.embed import json_item
from bokeh.models import BasicTicker, ColumnDataSource, FactorRange, HoverTool, Range1d
from bokeh.plotting import figure

from raindrop.report.content import HIDDEN_SHARES, Report
from raindrop.report.tasks import Chart

INK, MUTED, LINE = "#1a2433", "#52606d", "#d9e0e7"
ORANGE, BLUE = "#b4531a", "#1f5f8b"
PALETTE = ("#b4531a", "#1f5f8b", "#4b7f32", "#7a4b9c", "#8a6d00", "#b03060", "#008080", "#6b7785")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def all_charts(report: Report) -> dict[str, Any]:
    """Every chart that the report has data for, by the id of its element on the page, as Bokeh JSON."""
    drawn: dict[str, Any] = {}
    if any("validation" in row or "loss" in row for row in report.history):
        metric = report.epoch_metric
        title = report.view.task.metrics[metric].title if metric else ""
        drawn["chart-history"] = history_chart(report.history, metric, title)
    if report.section is not None:
        drawn |= {element: draw(chart) for element, chart in report.section.charts.items()}
    if report.scores:
        drawn["chart-robustness"] = _robustness(report)
    if report.graph_views:
        for name in ("class", "others", "difference") if len(report.view.groups) > 1 else ("class",):
            drawn[f"graph-{name}"] = _graph(f"graph-{name}")
        if report.cases:
            drawn["graph-sample"] = _graph("graph-sample")
    if report.cases:
        drawn["chart-readings"] = _readings(report)
        drawn["chart-sensor"] = _sensor(report)
    return {element: json_item(chart) for element, chart in drawn.items()}


def base_chart(*, height: int, x: str = "", y: str = "", **more: Any) -> Any:
    """An empty chart: no toolbar, light grid, as wide as its element."""
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


def draw(content: Chart) -> Any:
    """A chart of the task's view; each series has its own colour."""
    ranges = {}
    if content.unit_square:
        ranges = {"x_range": Range1d(start=-0.01, end=1.01), "y_range": Range1d(start=-0.01, end=1.02)}
    chart = base_chart(height=300, x=content.x, y=content.y, **ranges)
    for x, y in content.dashed:
        chart.line(x, y, color=MUTED, line_dash="dashed")
    for at, series in enumerate(content.series):
        color = PALETTE[at % len(PALETTE)]
        x, y = (series.x.tolist(), series.y.tolist()) if series.dots else _downsample(series.x, series.y)
        if series.low is not None:
            chart.segment(series.x, series.low, series.x, series.high, color=color, line_width=2, alpha=0.5)
        if series.line:
            chart.line(x, y, color=color, line_width=2)
        if series.dots:
            chart.scatter(x, y, color=color, size=series.dots, alpha=1.0 if series.line or series.dots > 5 else 0.5)
    return chart


def _downsample(x: np.ndarray, y: np.ndarray, number: int = 400) -> tuple[list[float], list[float]]:
    """At most `number` points, evenly over the curve, rounded to screen resolution."""
    at = np.unique(np.linspace(0, len(x) - 1, min(len(x), number)).round().astype(int))
    return np.round(x[at], 4).tolist(), np.round(y[at], 4).tolist()


def _robustness(report: Report) -> Any:
    chart = base_chart(height=300, x="sensors hidden, in %", y=next(iter(report.view.task.metrics.values())).title)
    hidden = [100 * share for share in HIDDEN_SHARES]
    for at, score in enumerate(report.scores):
        color = PALETTE[at % len(PALETTE)]
        low, high = [each.low for each in score.robustness], [each.high for each in score.robustness]
        middle = [each.value for each in score.robustness]
        chart.varea(hidden, low, high, color=color, alpha=0.15)
        chart.line(hidden, middle, color=color, line_width=2)
        chart.scatter(hidden, middle, color=color, size=7, marker="circle" if at == 0 else "square")
    return chart


def history_chart(history: Sequence[Mapping[str, Any]], metric: str | None, title: str) -> Any:
    """The validation metric by epoch; the training loss if no metric is given."""
    chart = base_chart(height=240, x="epoch", y=f"validation {title}" if metric else "training loss")
    chart.xaxis.ticker = BasicTicker(desired_num_ticks=6, min_interval=1)
    values = [row.get("validation", {}).get(metric) if metric else row.get("loss") for row in history]
    kept = [at for at, value in enumerate(values) if value is not None]
    x, y = [history[at].get("epoch", at + 1) for at in kept], [values[at] for at in kept]
    chart.line(x, y, color=ORANGE, line_width=2)
    chart.scatter(x, y, color=ORANGE, size=6)
    return chart


# ---------------------------------------------------------------- filled by the script of the page


def _graph(name: str) -> Any:
    """Sensors on a circle, with radial names; edges are curves with an arrow at the receiver."""
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
    """A row per sensor, a dot per reading; colour shows low or high values, size shows attention."""
    rows = FactorRange(factors=["-"], name="readings-sensors")
    chart = base_chart(height=120 + 20 * len(report.sensors), x=f"time in {report.time_unit}", y_range=rows)
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
    """The readings of one sensor, in their own unit."""
    chart = base_chart(height=200, x=f"time in {report.time_unit}", y="value")
    source = ColumnDataSource({"time": [], "value": []}, name="sensor")
    band = ColumnDataSource({"left": [], "right": [], "bottom": [], "top": []}, name="sensor-band")
    chart.quad("left", "right", "top", "bottom", color="#eef2f5", source=band)
    chart.line("time", "value", color=BLUE, line_width=1.5, source=source)
    dots = chart.scatter("time", "value", color=BLUE, size=6, source=source)
    chart.add_tools(HoverTool(renderers=[dots], tooltips=[("time", "@time"), ("value", "@value")]))
    return chart
