"""The charts of a report on an imputer or a forecaster. Those of a case start empty; the page's script fills them.

As in the other reports, no name from the data goes into a title, an axis label or a legend of Bokeh.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.embed import json_item
from bokeh.models import ColumnDataSource, DataRange1d, HoverTool, Range1d

from raindrop.report.charts import BLUE, INK, ORANGE, base_chart, draw, history_chart
from raindrop.report.readings.cases import time_title
from raindrop.report.readings.content import ReadingsReport
from raindrop.report.tasks import Chart, Series

Tips = list[tuple[str, str]]
AXIS = 70  # pixels left of a chart for numbers, so that the time axes of two charts are aligned


def all_charts(report: ReadingsReport) -> dict[str, Any]:
    """Every chart that the report has data for, by the id of its element on the page, as Bokeh JSON."""
    drawn: dict[str, Any] = {}
    if any("validation" in row or "loss" in row for row in report.history):
        drawn["chart-history"] = history_chart(report.history, report.epoch_metric, "scaled MAE")
    if has_horizons(report):
        drawn["chart-horizons"] = _horizons(report)
    if report.cases:
        drawn["chart-case"] = _case(report)
        if report.passes_messages:
            drawn["chart-senders"] = _senders(report)
    return {element: json_item(chart) for element, chart in drawn.items()}


def has_horizons(report: ReadingsReport) -> bool:
    """Whether errors are known for several horizons."""
    return sum(score.length > 0 for score in report.scores) > 1


def _horizons(report: ReadingsReport) -> Any:
    x = np.array([score.length for score in report.scores])
    names = list(report.scores[0].metrics)
    errors = [np.array([score.metrics[name]["standardised_mae"] for score in report.scores]) for name in names]
    return draw(
        Chart(f"up to this many {report.time_unit} ahead", "scaled MAE", [Series(x, y, dots=7) for y in errors])
    )


def _time_axis(report: ReadingsReport) -> dict[str, str]:
    return {"x": time_title(report.dates, report.time_unit)} | (
        {} if report.dates is None else {"x_axis_type": "datetime"}
    )


def _hover(report: ReadingsReport, points: Any, before: Tips, after: Tips) -> HoverTool:
    """A tooltip at these points, with their time between other lines."""
    time = "@time" if report.dates is None else "@time{%Y-%m-%d %H:%M:%S}"
    return HoverTool(
        renderers=[points],
        tooltips=[*before, ("time", time), *after],
        formatters={} if report.dates is None else {"@time": "datetime"},
    )


def _case(report: ReadingsReport) -> Any:
    """One sensor around a gap: its readings, filled values with intervals, and true values."""
    chart = base_chart(
        height=340,
        **_time_axis(report),
        y="value",
        x_range=Range1d(start=0, end=1, name="case-x"),
        y_range=DataRange1d(range_padding=0.08),
        min_border_left=AXIS,
    )
    gaps = ColumnDataSource({"left": [], "right": [], "alpha": []}, name="case-gaps")
    bands = ColumnDataSource({"xs": [], "ys": []}, name="case-bands")
    bars = ColumnDataSource({"time": [], "low": [], "high": []}, name="case-bars")
    lines = ColumnDataSource({"xs": [], "ys": []}, name="case-lines")
    readings = ColumnDataSource({"time": [], "value": []}, name="case-readings")
    truth = ColumnDataSource({"time": [], "value": []}, name="case-truth")
    filled = ColumnDataSource(
        {key: [] for key in ("time", "value", "interval", "truth", "first", "second", "third")}, name="case-filled"
    )
    chart.vstrip(x0="left", x1="right", fill_color="#dfe6ec", fill_alpha="alpha", line_color=None, source=gaps)
    fills = [
        chart.patches("xs", "ys", fill_color=ORANGE, fill_alpha=0.2, line_color=None, source=bands),
        chart.segment("time", "low", "time", "high", color=ORANGE, alpha=0.4, line_width=3, source=bars),
        chart.multi_line("xs", "ys", color=ORANGE, line_width=1.5, source=lines),
        chart.line("time", "value", color=BLUE, alpha=0.35, line_width=1, source=readings),
    ]
    dots = chart.scatter("time", "value", color=BLUE, size=5, source=readings)
    values = chart.scatter("time", "value", color=ORANGE, size=6, source=filled)
    known = chart.scatter("time", "value", marker="x", color=INK, size=8, line_width=1.5, source=truth)
    chart.y_range.renderers = [*fills, dots, values, known]
    senders = [("informed by", "@first"), ("", "@second"), ("", "@third")] if report.passes_messages else []
    filled_tips = [("filled", "@value"), ("90 % interval", "@interval"), ("truth", "@truth")]
    chart.add_tools(
        _hover(report, values, [], [*filled_tips, *senders]), _hover(report, dots, [], [("reading", "@value")])
    )
    return chart


def _senders(report: ReadingsReport) -> Any:
    """The readings of the strongest senders in the same period, each in its own standard deviations."""
    chart = base_chart(
        height=200,
        **_time_axis(report),
        y="standard deviations",
        x_range=Range1d(start=0, end=1, name="senders-x"),
        min_border_left=AXIS,
    )
    gap = ColumnDataSource({"left": [], "right": []}, name="senders-gap")
    lines = ColumnDataSource({"xs": [], "ys": [], "color": []}, name="senders-lines")
    dots = ColumnDataSource({key: [] for key in ("time", "scaled", "value", "color", "sensor")}, name="senders-dots")
    chart.vstrip(x0="left", x1="right", fill_color="#dfe6ec", fill_alpha=0.9, line_color=None, source=gap)
    curves = chart.multi_line("xs", "ys", color="color", alpha=0.5, line_width=1, source=lines)
    points = chart.scatter("time", "scaled", color="color", size=4, source=dots)
    chart.y_range.renderers = [curves, points]
    chart.add_tools(_hover(report, points, [("sensor", "@sensor")], [("reading", "@value")]))
    return chart
