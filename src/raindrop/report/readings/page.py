"""Render the report on an imputer or a forecaster as one self-contained HTML file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raindrop.report.charts import PALETTE
from raindrop.report.graph_page import SENDERS
from raindrop.report.graph_picture import picture_html
from raindrop.report.numbers import digits, quantity_text, share_text
from raindrop.report.page import render
from raindrop.report.readings.cases import COVERAGE, Filled, GapCase, time_title
from raindrop.report.readings.charts import all_charts, has_horizons
from raindrop.report.readings.content import ReadingsReport
from raindrop.report.readings.scores import ScenarioScore
from raindrop.table.time_columns import SECONDS, TimeUnit


def error_text(value: float) -> str:
    """An error with three significant digits, but all digits before the point."""
    if not 1e-3 <= abs(value) < 999.5:
        return quantity_text(value)
    return f"{value:#.3g}".rstrip(".")


MILLISECONDS = 1e3  # per second, of dates in a browser
HISTORY = {"mae": "MAE, in standard deviations", "rmse": "RMSE, in standard deviations"}
METRICS = {
    "mae": ("MAE", error_text),
    "rmse": ("RMSE", error_text),
    "standardised_mae": ("Scaled MAE", share_text),
    "coverage_80": ("In 80 %", lambda share: f"{100 * share:.1f} %"),
    "coverage_95": ("In 95 %", lambda share: f"{100 * share:.1f} %"),
}
"""Names and formats of the columns of the comparison."""


def page(report: ReadingsReport) -> str:
    """The page as text."""
    return render(
        "readings/page.html",
        page_data(report),
        all_charts(report),
        ("common.js", "graph.js", "readings/page.js"),
        report=report,
        metrics=METRICS,
        names=list(report.scores[0].metrics) if report.scores else [],
        horizons=has_horizons(report),
        time_title=time_title(report.dates, report.time_unit),
        graph="" if report.graph is None else picture_html(report.graph),
        graph_about=SENDERS,
        history_metrics=HISTORY,
        metric_text=lambda _, value: share_text(value),
    )


def page_data(report: ReadingsReport) -> dict[str, Any]:
    """The data for the script of the page, compact."""
    mean, scale = report.scale
    return {
        "sensors": report.sensors,
        "unit": report.time_unit,
        "mean": digits(mean, 5),
        "scale": digits(scale, 5),
        "messages": report.passes_messages,
        "palette": PALETTE[1:],
        "coverage": COVERAGE,
        "scenarios": [_scenario(score) for score in report.scores],
        "forecasts": report.forecasts,
        "dated": report.dates is not None,
        "perUnit": 1.0 if report.dates is None else MILLISECONDS * SECONDS[report.time_unit],
        "cases": [_case(case, None if report.dates is None else report.time_unit) for case in report.cases],
    }


def _scenario(score: ScenarioScore) -> dict[str, Any]:
    errors = score.by_sensor
    return {
        "title": score.title,
        "best": score.best_baseline,
        "sensor": errors.sensor.tolist(),
        "count": errors.count.tolist(),
        "mae": digits(errors.mae, 3),
        "scaled": digits(errors.scaled_mae, 3),
        "baseline": digits(errors.baseline, 3),
        "coverage": [digits(share, 3) for share in errors.coverage.values()],
    }


def _case(case: GapCase, dated_unit: TimeUnit | None) -> dict[str, Any]:
    """A case; times are milliseconds since `zero`, itself since 1970, if they are shown as dates."""
    decimals = 4 - math.floor(math.log10(max(case.stop - case.start, 1e-300)))

    def times(values: Any) -> list[float]:
        if dated_unit is not None:
            since: list[float] = (case.in_dates(values, dated_unit) - case.zero).astype(np.int64).tolist()
            return since
        rounded: list[float] = np.round(np.asarray(values, dtype=np.float64), decimals).tolist()
        return rounded

    return {
        "kind": case.kind,
        "reason": case.reason,
        "sample": case.sample,
        "zero": 0 if dated_unit is None else case.zero.astype(np.int64).item(),
        "start": times(case.start),
        "stop": times(case.stop),
        "thinned": case.thinned,
        "filled": [_filled(each, times) for each in case.filled],
        "readings": {str(sensor): [times(time), digits(value, 5)] for sensor, (time, value) in case.readings.items()},
    }


def _filled(filled: Filled, times: Any) -> dict[str, Any]:
    return {
        "sensor": filled.sensor,
        "time": times(filled.time),
        "value": digits(filled.value, 5),
        "low": digits(_finite(filled.low), 5),
        "high": digits(_finite(filled.high), 5),
        "truth": digits(filled.truth, 5) if np.isfinite(filled.truth).any() else None,
        "gaps": [[times(gap.start), times(gap.stop), gap.values.start, gap.values.stop] for gap in filled.gaps],
        "listed": [
            {"gap": at, "senders": [[code, *digits(np.array([weight]), 3)] for code, weight in filled.gaps[at].senders]}
            for at in filled.listed
        ],
        "senders": filled.senders.tolist(),
        "weights": digits(filled.weights, 2),
    }


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(values), values, np.nan)
