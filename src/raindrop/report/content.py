"""What a report contains, as plain values, before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from raindrop.errors import ConfigError, DataError
from raindrop.estimators.classifier import Classifier
from raindrop.report.card import Card, card_of
from raindrop.report.cases import MAX_READINGS, Case, cases, choose
from raindrop.report.graph_views import GraphView, graph_views
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hide_random_sensors
from raindrop.tasks.bootstrap import Interval, bootstrap
from raindrop.tasks.metrics import ReliabilityCurve, reliability_curve

HIDDEN_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class Score:
    """How well one model does on the samples of the report."""

    name: str
    metrics: dict[str, Interval]
    robustness: list[Interval]  # AUROC with each of HIDDEN_SHARES
    probability: NDArray[np.float32]


@dataclass(frozen=True)
class Report:
    """Everything on the page. A run alone has a card and a training history; the rest needs data."""

    title: str
    card: Card
    history: list[dict[str, Any]]
    epoch_metric: str | None
    """The validation metric that chose the epoch, where there was a choice."""
    classes: list[str]
    sensors: tuple[str, ...]
    time_unit: str
    positive: int | None = None
    """The code of the positive class of two; None with more classes."""
    label: str = ""
    truth: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    probability: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 2), dtype=np.float32))
    scores: list[Score] = field(default_factory=list)
    calibration: ReliabilityCurve | None = None
    graph_views: list[GraphView] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    case_positions: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scale: tuple[NDArray[Any], NDArray[Any]] = (np.empty(0), np.empty(0))

    @property
    def metric_names(self) -> dict[str, str]:
        """Each metric's name with the class that it is about."""
        if self.positive is None:
            about = {"auroc": "mean over classes", "auprc": "mean over classes", "brier": "sum over classes"}
        else:
            about = dict.fromkeys(("auroc", "auprc", "brier"), self.classes[self.positive])
        return {
            "auroc": f"AUROC ({about['auroc']})",
            "auprc": f"AUPRC ({about['auprc']})",
            "accuracy": "Accuracy (all classes)",
            "f1": "F1 (mean over classes)",
            "brier": f"Brier score ({about['brier']}), lower is better",
            "log_loss": "Log loss (all classes), lower is better",
        }

    @property
    def chance(self) -> dict[str, float]:
        """The metrics of a model that always predicts the share of each class."""
        share = np.bincount(self.truth, minlength=len(self.classes)) / max(len(self.truth), 1)
        brier = float((share * (1 - share)).sum() / (1 if self.positive is None else 2))
        present = share[share > 0]
        auprc = float(present.mean()) if self.positive is None else float(share[self.positive])
        entropy = float(-(present * np.log(present)).sum())
        return {"auroc": 0.5, "auprc": auprc, "accuracy": float(share.max()), "brier": brier, "log_loss": entropy}

    def curves(self) -> list[dict[str, Any]]:
        """ROC and precision-recall points: of two classes one curve per model, of more one per class of the model."""
        if self.positive is not None:
            pairs = [(self.positive, score.probability) for score in self.scores]
        else:
            pairs = [(code, self.probability) for code in np.unique(self.truth).tolist()]
        curves = []
        for code, probability in pairs:
            is_class = self.truth == code
            if is_class.any() and not is_class.all():
                false, true, _ = roc_curve(is_class, probability[:, code])
                precision, recall, _ = precision_recall_curve(is_class, probability[:, code])
                curves.append({"false": false, "true": true, "precision": precision, "recall": recall})
        return curves


def report_on_run(classifier: Classifier, *, title: str = "") -> Report:
    """What is known of a run without data: its card and its training history."""
    return Report(
        title=title or f"Model '{classifier.model}' for '{classifier.label_ or 'label'}'",
        card=card_of(classifier),
        history=list(classifier.history_),
        epoch_metric=_epoch_metric(classifier),
        classes=[str(name) for name in classifier.classes_],
        sensors=classifier.scaler_.sensors,
        time_unit=classifier.time_unit_,
        positive=classifier.positive_code_,
        label=classifier.label_ or "label",
    )


def report_on(
    classifier: Classifier,
    table: EventTable,
    *,
    baselines: Mapping[str, Classifier] | None = None,
    other_seeds: Sequence[Classifier] = (),
    notes: Mapping[str, str] | None = None,
    samples: int = 200,
    seed: int = 0,
    title: str = "",
) -> Report:
    """Metrics, sensor graphs and explanations of a model on a labelled table.

    baselines: other classifiers to compare with, by the name to display; other_seeds: the same model trained with
    other seeds, to see whether its graphs agree; notes: more lines for the model card; samples: how many can be
    selected on the page.
    """
    if samples < 1:
        raise ConfigError(f"samples={samples}: a report shows at least one sample.")
    if not len(table):
        raise DataError("The table is empty, so there is nothing to report on.")
    truth = classifier.truth(table)
    probability = classifier.predict_proba(table)
    base, positive = report_on_run(classifier, title=title), classifier.positive_code_
    models = {_display_name(classifier.model): classifier, **(baselines or {})}
    for name, model in models.items():
        if [str(label) for label in model.classes_] != base.classes:
            raise DataError(f"'{name}' has the classes {', '.join(map(str, model.classes_))}, not {base.classes}.")
    views = graph_views(classifier, table, truth, other_seeds, seed)
    chosen = choose(truth, probability, samples, seed, positive)
    kept = ("title", "history", "epoch_metric", "classes", "sensors", "time_unit", "positive")
    return Report(
        **{name: getattr(base, name) for name in kept},
        card=card_of(classifier, table, truth, notes or {}, graphs=any(not view.empty for view in views)),
        label=table.roles.label or base.label,
        truth=truth,
        probability=probability,
        scores=[_score(name, model, table, positive, seed) for name, model in models.items()],
        calibration=reliability_curve(*positive_second(truth, probability, positive)),
        graph_views=views,
        cases=cases(classifier, table[chosen], truth[chosen], MAX_READINGS),
        case_positions=chosen,
        scale=(classifier.scaler_.mean, classifier.scaler_.scale),
    )


def positive_second(
    truth: NDArray[np.int64], probability: NDArray[np.float32], positive: int | None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The same with the positive class of two as the second one, which the metrics are about."""
    return (1 - truth, probability[:, ::-1]) if positive == 0 else (truth, probability)


def _score(name: str, classifier: Classifier, table: EventTable, positive: int | None, seed: int) -> Score:
    truth, probability = classifier.truth(table), classifier.predict_proba(table)
    robustness = []
    for share in HIDDEN_SHARES:
        partial = classifier.predict_proba(hide_random_sensors(table, share, seed=seed)) if share else probability
        robustness.append(bootstrap(*positive_second(truth, partial, positive), ["auroc"], seed=seed)["auroc"])
    metrics = bootstrap(*positive_second(truth, probability, positive), seed=seed)
    return Score(name, metrics, robustness, probability)


def _display_name(model: str) -> str:
    return "Raindrop" if model == "raindrop" else model


def _epoch_metric(classifier: Classifier) -> str | None:
    validated = any("validation" in row for row in classifier.history_)
    return str(classifier.resolved()["train"]["metric"]) if validated else None
