"""Classification in a report: curves, calibration, a graph per class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from raindrop.errors import DataError
from raindrop.explain.occlusion import log_odds
from raindrop.report.numbers import digits, percent_text, share_text
from raindrop.report.tasks.base import (
    Array,
    Chart,
    Coverage,
    Score,
    Section,
    Series,
    Summary,
    TaskView,
    capitalised,
    diagonal,
    reliability_series,
)
from raindrop.table.event_table import EventTable
from raindrop.tasks.base import Task
from raindrop.tasks.classification import Classification
from raindrop.tasks.metrics import reliability_curve
from raindrop.tasks.predictions import ClassPredictions, Predictions


class ClassView(TaskView):
    """With two classes everything is about the positive one, with more about the predicted one or the mean."""

    task: Classification
    template: ClassVar[str] = "tasks/classification.html"
    constant_name: ClassVar[str] = "Chance"
    constant_note: ClassVar[str] = "a model that always predicts the share of each class"
    effect_note: ClassVar[tuple[str, str, str]] = (
        "The readings of one sensor at a time are removed. Log odds: by how much they raise (+) or lower (−) the log "
        "odds of ",
        ". Without: its probability without them (with all readings: ",
        ").",
    )
    mix_note: ClassVar[str] = ", balanced over classes as far as possible"
    headline = ("auroc", "auprc", "accuracy", "brier")

    def __init__(self, task: Task):
        super().__init__(task)
        self.groups = self.classes = [str(name) for name in self.task.classes]
        self.positive = 1 if len(self.classes) == 2 else None
        """The position of the positive class of two; None if there are more classes."""
        self.main_group = self.positive or 0
        named = "the predicted class" if self.positive is None else self.classes[self.positive]
        self.picker = f"true class; probability of {named}"

    # ---------------------------------------------------------------- names

    def label(self, table: EventTable | None = None) -> str:
        return (table.roles.label if table is not None else None) or self.task.label

    def metric_title(self, name: str) -> str:
        metric = self.task.metrics[name]
        of_positive = self.positive is not None and metric.about_positive
        about = self.classes[self.positive or 0] if of_positive else metric.over_classes
        return f"{capitalised(metric.title.removeprefix('macro '))} ({about})"

    def metric_text(self, name: str, value: float) -> str:
        return share_text(value)

    def card_rows(self) -> list[tuple[str, str]]:
        rows = [("Label", f"{self.task.label}, classes: {', '.join(self.classes)}")]
        rows += [] if self.positive is None else [("Positive class", self.classes[self.positive])]
        return rows if self.task.threshold is None else [*rows, ("Decision", self.decision())]

    def sample_rows(self, truth: Array) -> list[tuple[str, str]]:
        count = np.bincount(truth, minlength=len(self.classes))
        rates = [f"{name} {n / len(truth):.1%} ({n:,})" for name, n in zip(self.classes, count, strict=True)]
        return [("Base rates of these samples", ", ".join(rates))]

    def require_same_task(self, name: str, other: Task) -> None:
        classes = [str(each) for each in other.classes] if isinstance(other, Classification) else None
        if classes is None:
            super().require_same_task(name, other)
        elif classes != self.classes:
            raise DataError(f"'{name}' has the classes {', '.join(classes)}, not {', '.join(self.classes)}.")

    # ---------------------------------------------------------------- all samples

    def group_codes(self, truth: Array) -> NDArray[np.int64]:
        return np.asarray(truth, dtype=np.int64)

    def section(self, truth: Array, scores: Sequence[Score], regions: dict[float, Array]) -> Section:
        calibration = reliability_curve(truth, scores[0].predicted)
        curves = self.curves(truth, scores)
        base: list[tuple[list[float], list[float]]] = []
        if self.positive is not None:
            share = float((truth == self.positive).mean())
            base = [([0, 1], [share, share])]
        charts = {
            "chart-roc": roc_chart(curves),
            "chart-pr": precision_recall_chart(curves, base),
            "chart-calibration": calibration_chart([reliability_series(calibration)]),
        }
        names = [f"{metric}/{name}" for name in self.classes for metric in self.task.part_metrics]
        intervals = self.task.bootstrap(truth, scores[0].predicted, names)
        by_class = [[intervals[f"{metric}/{name}"] for metric in self.task.part_metrics] for name in self.classes]
        confusion = self.task.confusion(truth, scores[0].predicted)
        positive = None if self.positive is None else self.classes[self.positive]
        legend = self.classes if positive is None else [score.name for score in scores]
        values = {"positive": positive, "calibration": calibration, "legend": legend}
        return Section(charts, values | {"by_class": by_class, "confusion": confusion, "decision": self.decision()})

    def decision(self) -> str:
        """The decision rule as a sentence."""
        if self.task.threshold is None:
            return "The most probable class is predicted."
        return f"Predicted is {self.task.threshold.describe(self.task.positive)}."

    def curves(self, truth: Array, scores: Sequence[Score]) -> list[dict[str, Array]]:
        """ROC and precision-recall points: for two classes one curve per model, for more one per class of the model."""
        if self.positive is not None:
            pairs = [(self.positive, score.predicted) for score in scores]
        else:
            pairs = [(code, scores[0].predicted) for code in np.unique(truth).tolist()]
        return [
            curve_points(truth == code, predicted[:, code])
            for code, predicted in pairs
            if 0 < (truth == code).mean() < 1
        ]

    def region(self, predictions: Predictions) -> Array:
        sets = cast(ClassPredictions, predictions).sets
        assert sets is not None
        return sets

    def coverage(self, truth: Array, region: Array, requested: float) -> list[Coverage]:
        reached = region[np.arange(len(truth)), truth].mean()
        return [Coverage("", requested, float(reached), float(region.sum(1).mean()), len(truth))]

    # ---------------------------------------------------------------- single samples

    def errors(self, truth: Array, predicted: Array) -> NDArray[np.float64]:
        return np.asarray(-predicted[np.arange(len(truth)), truth], dtype=np.float64)

    def scores(self, predicted: Array) -> NDArray[np.float64]:
        return np.asarray(predicted.max(1) if self.positive is None else predicted[:, self.positive], dtype=np.float64)

    def explained(self, predicted: Array) -> NDArray[np.int64]:
        """(samples,) the class that contributions explain: the positive one of two, or the predicted one of more."""
        if self.positive is None:
            return np.asarray(predicted.argmax(1), dtype=np.int64)
        return np.full(len(predicted), self.positive, dtype=np.int64)

    def outputs(self, predicted: Array, full: Array) -> NDArray[np.float64]:
        return np.asarray(predicted[np.arange(len(full)), self.explained(full)][:, None], dtype=np.float64)

    def effect(self, value: Array, without: Array) -> NDArray[np.float64]:
        return log_odds(value) - log_odds(without)

    def prediction_text(self, predicted: Array) -> str:
        return ", ".join(f"{name} {p:.1%}" for name, p in zip(self.classes, predicted, strict=True))

    def summary(self, truth: Any, predicted: Array, region: Array | None) -> Summary:
        probability = digits(predicted, 4)
        decided, explained = int(self.task.decide(predicted[None])[0]), int(self.explained(predicted[None])[0])
        score = probability[decided] if self.positive is None else probability[self.positive]
        wrong = "" if decided == truth else " (wrong)"
        return Summary(
            truth=self.classes[int(truth)],
            predicted=percent_text(score),
            score=score,
            facts=[("True class", self.classes[int(truth)]), ("Predicted class", self.classes[decided] + wrong)],
            bars=[
                (name, p, percent_text(p), code == explained)
                for code, (name, p) in enumerate(zip(self.classes, probability, strict=True))
            ],
            explained=[(self.classes[explained], percent_text(probability[explained]))],
        )


def curve_points(happened: Array, probability: Array) -> dict[str, Array]:
    """ROC and precision-recall points of one class or label."""
    false, true, _ = roc_curve(happened, probability)
    precision, recall, _ = precision_recall_curve(happened, probability)
    return {"false": false, "true": true, "precision": precision, "recall": recall}


def roc_chart(curves: Sequence[dict[str, Array]]) -> Chart:
    """ROC curves with the line of chance."""
    series = [Series(curve["false"], curve["true"]) for curve in curves]
    return Chart("false positive rate", "true positive rate", series, [diagonal()], unit_square=True)


def precision_recall_chart(
    curves: Sequence[dict[str, Array]], dashed: list[tuple[list[float], list[float]]] | None = None
) -> Chart:
    """Precision-recall curves."""
    series = [Series(curve["recall"], curve["precision"]) for curve in curves]
    return Chart("recall", "precision", series, dashed or [], unit_square=True)


def calibration_chart(series: list[Series]) -> Chart:
    """Reliability curves with the line of calibrated probabilities."""
    return Chart("predicted probability", "observed share", series, [diagonal()], unit_square=True)
