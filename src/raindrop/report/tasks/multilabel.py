"""Multi-label classification in a report: a curve and a row for each label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from raindrop.explain.occlusion import log_odds
from raindrop.report.numbers import digits, percent_text, share_text
from raindrop.report.tasks.base import (
    Array,
    Coverage,
    Score,
    Section,
    Series,
    Summary,
    TaskView,
    reliability_series,
)
from raindrop.report.tasks.classification import calibration_chart, curve_points, precision_recall_chart, roc_chart
from raindrop.tasks.metrics import reliability_curve
from raindrop.tasks.multilabel import MultiLabel
from raindrop.tasks.predictions import LabelPredictions, Predictions

EMPTY: dict[str, Array] = {name: np.empty(0) for name in ("false", "true", "precision", "recall")}


class LabelView(TaskView):
    """Each label separately, on the samples where it is known, and the mean over labels."""

    task: MultiLabel
    template: ClassVar[str] = "tasks/multilabel.html"
    constant_note: ClassVar[str] = "a model that always predicts the share of yes of each label"
    effect_note: ClassVar[tuple[str, str, str]] = (
        "The readings of one sensor at a time are removed. Log odds: by how much they raise (+) or lower (−) the log "
        "odds of yes for ",
        ". Without: the probability of yes without them (with all readings: ",
        ").",
    )
    picker = "labels that are yes; highest probability"
    headline = ("auroc", "auprc", "accuracy", "brier")

    def metric_text(self, name: str, value: float) -> str:
        return share_text(value)

    def section(self, truth: Array, scores: Sequence[Score], regions: dict[float, Array]) -> Section:
        curves, series, calibrations = [], [], []
        for column in self.task.columns(truth, scores[0].predicted):
            yes = column.truth == 1
            both = len(np.unique(yes)) == 2
            curves.append(curve_points(yes, column.predicted[:, 1]) if both else EMPTY)
            curve = reliability_curve(column.truth, column.predicted) if len(column.rows) else None
            calibrations.append((column.name, curve))
            series.append(Series(np.empty(0), np.empty(0)) if curve is None else reliability_series(curve))
        charts = {
            "chart-roc": roc_chart(curves),
            "chart-pr": precision_recall_chart(curves),
            "chart-calibration": calibration_chart(series),
        }
        return Section(charts, {"calibrations": calibrations, "legend": list(self.task.labels)})

    def region(self, predictions: Predictions) -> Array:
        sets = cast(LabelPredictions, predictions).sets
        assert sets is not None
        return sets

    def coverage(self, truth: Array, region: Array, requested: float) -> list[Coverage]:
        result = []
        for at, name in enumerate(self.task.labels):
            rows = np.flatnonzero(~np.isnan(truth[:, at]))
            sets = region[rows, at]
            reached = sets[np.arange(len(rows)), truth[rows, at].astype(np.int64)]
            mean = (float(reached.mean()), float(sets.sum(1).mean())) if len(rows) else (np.nan, np.nan)
            result.append(Coverage(name if len(self.task.labels) > 1 else "", requested, *mean, len(rows)))
        return result

    # ---------------------------------------------------------------- single samples

    def errors(self, truth: Array, predicted: Array) -> NDArray[np.float64]:
        """The largest error over the known labels."""
        error = np.where(np.isnan(truth), -1.0, np.abs(predicted - truth)).max(1)
        return np.where(error < 0, np.nan, error)

    def scores(self, predicted: Array) -> NDArray[np.float64]:
        return np.asarray(predicted.max(1), dtype=np.float64)

    def outputs(self, predicted: Array, full: Array) -> NDArray[np.float64]:
        return np.asarray(predicted, dtype=np.float64)

    def effect(self, value: Array, without: Array) -> NDArray[np.float64]:
        return log_odds(value) - log_odds(without)

    def prediction_text(self, predicted: Array) -> str:
        return ", ".join(f"{name} {p:.1%}" for name, p in zip(self.task.labels, predicted, strict=True))

    def summary(self, truth: Any, predicted: Array, region: Array | None) -> Summary:
        probability, names = digits(predicted, 4), self.task.labels
        answers = ["unknown" if np.isnan(each) else "yes" if each else "no" for each in truth]
        yes = [name for name, answer in zip(names, answers, strict=True) if answer == "yes"]
        likeliest = int(np.argmax(probability))
        facts = []
        for name, answer, p in zip(names, answers, probability, strict=True):
            guess = "yes" if p > 0.5 else "no"
            wrong = " (wrong)" if answer != "unknown" and guess != answer else ""
            facts.append((name, f"true: {answer}, predicted: {guess}{wrong}"))
        if region is not None:
            unsure = [name for name, both in zip(names, region.sum(1) != 1, strict=True) if both]
            facts.append(("Not decided with coverage 90 %", ", ".join(unsure) or "none"))
        return Summary(
            truth=", ".join(yes) or "none",
            predicted=f"{names[likeliest]} {percent_text(probability[likeliest])}",
            score=probability[likeliest],
            facts=facts,
            bars=[
                (name, p, percent_text(p), answer == "yes")
                for name, p, answer in zip(names, probability, answers, strict=True)
            ],
            explained=[(name, percent_text(p)) for name, p in zip(names, probability, strict=True)],
        )
