"""Regression in a report: predictions against true values, residuals, calibration of quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from raindrop.report.numbers import quantity_text
from raindrop.report.tasks.base import (
    CASE_COVERAGE,
    Array,
    Chart,
    Coverage,
    Score,
    Section,
    Series,
    Summary,
    TaskView,
    diagonal,
)
from raindrop.tasks.base import Column, Task
from raindrop.tasks.predictions import Predictions, QuantityPredictions
from raindrop.tasks.regression import Regression

MAX_POINTS = 1000  # of a chart
MAX_INTERVALS = 30  # drawn in a chart; more would hide each other


class QuantityView(TaskView):
    """Each quantity in its own unit, on the samples where it is known."""

    task: Regression
    template: ClassVar[str] = "tasks/regression.html"
    constant_note: ClassVar[str] = "a model that always predicts the quantiles, or the mean, of these samples"
    noun: ClassVar[str] = "Quantity"
    plural: ClassVar[str] = "Quantities"
    region_name: ClassVar[str] = "interval"
    size_name: ClassVar[str] = "Mean width"
    effect_name: ClassVar[str] = "Change"
    effect_note: ClassVar[tuple[str, str, str]] = (
        "The readings of one sensor at a time are removed. Change: by how much they raise (+) or lower (−) the "
        "predicted ",
        ". Without: the prediction without them (with all readings: ",
        ").",
    )
    shares: ClassVar[bool] = False
    picker = "true value; prediction"

    def __init__(self, task: Task):
        super().__init__(task)
        self.headline = self.metrics[:4]
        if len(self.task.labels) > 1:
            self.picker = "true values; predictions"

    def section(self, truth: Array, scores: Sequence[Score], regions: dict[float, Array]) -> Section:
        columns = self.task.columns(truth, scores[0].predicted)
        charts, quantiles, series = {}, [], []
        for at, column in enumerate(columns):
            region = regions.get(CASE_COVERAGE)
            charts[f"chart-truth-{at}"] = self._against_truth(column, None if region is None else region[:, at])
            charts[f"chart-residuals-{at}"] = self._residuals(column)
            below = self.share_below(column)
            quantiles.append((column.name, below, len(column.rows)))
            series.append(Series(np.array(self.task.levels), below, dots=8))
        if len(self.task.levels) > 1:
            charts["chart-quantiles"] = Chart(
                "level of the predicted quantile", "share of true values below it", series, [diagonal()], True
            )
        values = {"levels": self.task.levels, "quantiles": quantiles, "legend": list(self.task.labels)}
        return Section(charts, {**values, "intervals": CASE_COVERAGE in regions})

    def share_below(self, column: Column) -> NDArray[np.float64]:
        """(level,) the share of true values at or below each predicted quantile."""
        if not len(column.rows):
            return np.full(len(self.task.levels), np.nan)
        return np.asarray((column.truth[:, None] <= column.predicted).mean(0), dtype=np.float64)

    def _against_truth(self, column: Column, region: Array | None) -> Chart:
        points = self.task.point(column.predicted)
        rows = _spread(len(points), MAX_POINTS)
        series = [Series(column.truth[rows], points[rows], line=False, dots=5)]
        if region is not None:
            low, high = region[column.rows].T
            bounded = np.flatnonzero(np.isfinite(low) & np.isfinite(high))
            few = bounded[np.argsort(column.truth[bounded], kind="stable")][_spread(len(bounded), MAX_INTERVALS)]
            series.append(Series(column.truth[few], points[few], low[few], high[few], line=False, dots=6))
        ends = [float(f(np.concatenate([column.truth, points]))) for f in (np.min, np.max)] if len(points) else [0, 1]
        return Chart("true value", "prediction", series, [diagonal(*ends)])

    def _residuals(self, column: Column) -> Chart:
        points = self.task.point(column.predicted)
        rows = _spread(len(points), MAX_POINTS)
        ends = [float(points.min()), float(points.max())] if len(points) else [0.0, 1.0]
        residuals = Series(points[rows], (column.truth - points)[rows], line=False, dots=5)
        return Chart("prediction", "true value minus prediction", [residuals], [(ends, [0, 0])])

    def region(self, predictions: Predictions) -> Array:
        intervals = cast(QuantityPredictions, predictions).intervals
        assert intervals is not None
        return intervals

    def coverage(self, truth: Array, region: Array, requested: float) -> list[Coverage]:
        result = []
        for at, name in enumerate(self.task.labels):
            rows = np.flatnonzero(~np.isnan(truth[:, at]))
            low, high = region[rows, at].T
            inside = (low <= truth[rows, at]) & (truth[rows, at] <= high)
            mean = (float(inside.mean()), float((high - low).mean())) if len(rows) else (np.nan, np.nan)
            result.append(Coverage(name if len(self.task.labels) > 1 else "", requested, *mean, len(rows)))
        return result

    # ---------------------------------------------------------------- single samples

    def errors(self, truth: Array, predicted: Array) -> NDArray[np.float64]:
        """The largest error over the known quantities, in units of their scale."""
        error = np.abs(self.task.point(predicted) - truth) / np.array(self.task.scale)
        error = np.where(np.isnan(truth), -1.0, error).max(1)
        return np.where(error < 0, np.nan, error)

    def scores(self, predicted: Array) -> NDArray[np.float64]:
        """The first quantity."""
        return np.asarray(self.task.point(predicted)[:, 0], dtype=np.float64)

    def outputs(self, predicted: Array, full: Array) -> NDArray[np.float64]:
        return np.asarray(self.task.point(predicted), dtype=np.float64)

    def effect(self, value: Array, without: Array) -> NDArray[np.float64]:
        return np.asarray(value - without, dtype=np.float64)

    def prediction_text(self, predicted: Array) -> str:
        points = self.task.point(predicted)
        return ", ".join(f"{name} {quantity_text(p)}" for name, p in zip(self.task.labels, points, strict=True))

    def summary(self, truth: Any, predicted: Array, region: Array | None) -> Summary:
        points = [float(value) for value in self.task.point(predicted)]
        true = [quantity_text(float(value)) if not np.isnan(value) else "unknown" for value in truth]
        facts, several = [], len(points) > 1
        for at, (name, value) in enumerate(zip(self.task.labels, points, strict=True)):
            suffix = f" of {name}" if several else ""
            facts += [(f"True value{suffix}", true[at]), (f"Prediction{suffix}", quantity_text(value))]
            if region is not None:
                low, high = (quantity_text(float(end)) for end in region[at])
                facts.append((f"{CASE_COVERAGE:.0%} interval{suffix}".replace("%", " %"), f"{low} to {high}"))
        return Summary(
            truth=", ".join(true),
            predicted=", ".join(map(quantity_text, points)),
            score=points[0],
            facts=facts,
            explained=[(name, quantity_text(value)) for name, value in zip(self.task.labels, points, strict=True)],
        )


def _spread(number: int, limit: int) -> NDArray[np.int64]:
    """At most `limit` positions, evenly over `number`."""
    return np.unique(np.linspace(0, number - 1, min(number, limit)).round().astype(np.int64))
