"""What a report says, as plain values, before any of it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from raindrop.batch import encode_labels
from raindrop.classifier import Classifier
from raindrop.errors import ConfigError, DataError
from raindrop.events import EventTable
from raindrop.explain import information_graphs
from raindrop.graph import SensorGraphs
from raindrop.metrics import Calibration, Interval, bootstrap, calibration
from raindrop.models.raindrop import Raindrop
from raindrop.report.card import Card, card_of
from raindrop.report.cases import MOST_READINGS, Case, cases, choose
from raindrop.settings import hide_random_sensors

FIGURES = ("auroc", "auprc", "accuracy", "f1", "brier", "log_loss")
HIDDEN = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class Score:
    """How one model does on the samples of the report."""

    name: str
    figures: dict[str, Interval]
    robustness: list[Interval]  # AUROC with each share of HIDDEN


@dataclass(frozen=True)
class Reading:
    """One way to read sensor graphs off the model, for every sample of the report."""

    name: str
    about: str
    graphs: SensorGraphs
    warning: str = ""


@dataclass(frozen=True)
class Report:
    """Everything on the page. A run by itself has a card and a history; the rest needs data."""

    title: str
    card: Card
    history: list[dict[str, Any]]
    metric: str | None
    classes: list[str]
    sensors: tuple[str, ...]
    time_unit: str
    label: str = ""
    truth: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    probability: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 2), dtype=np.float32))
    scores: list[Score] = field(default_factory=list)
    calibration: Calibration | None = None
    readings: list[Reading] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    chosen: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scale: tuple[NDArray[Any], NDArray[Any]] = (np.empty(0), np.empty(0))

    @property
    def chance(self) -> dict[str, float]:
        """What a model that knows the share of each class and nothing else would get."""
        share = np.bincount(self.truth, minlength=len(self.classes)) / max(len(self.truth), 1)
        binary = len(share) == 2
        brier = float((share * (1 - share)).sum() / (2 if binary else 1))
        known = share[share > 0]
        ranked = float(share[1]) if binary else float(known.mean())
        entropy = float(-(known * np.log(known)).sum())
        return {"auroc": 0.5, "auprc": ranked, "accuracy": float(share.max()), "brier": brier, "log_loss": entropy}

    def curves(self) -> list[dict[str, Any]]:
        """ROC and precision-recall points of the second of two classes, or of each of more against the rest."""
        wanted = [1] if len(self.classes) == 2 else np.unique(self.truth).tolist()
        drawn = []
        for code in wanted:
            of_class = self.truth == code
            if of_class.all() or not of_class.any():
                continue
            false, true, _ = roc_curve(of_class, self.probability[:, code])
            precision, recall, _ = precision_recall_curve(of_class, self.probability[:, code])
            drawn.append({"code": code, "false": false, "true": true, "precision": precision, "recall": recall})
        return drawn


def report_on_run(classifier: Classifier, *, title: str = "") -> Report:
    """What a run knows of itself, without data: its card and how its training went."""
    return Report(
        title=title or f"A {classifier.model} model of '{classifier.label_ or 'label'}'",
        card=card_of(classifier),
        history=list(classifier.history_),
        metric=_metric(classifier),
        classes=[str(name) for name in classifier.classes_],
        sensors=classifier.scaler_.sensors,
        time_unit=classifier.time_unit_,
        label=classifier.label_ or "label",
    )


def report_on(
    classifier: Classifier,
    table: EventTable,
    *,
    rivals: Mapping[str, Classifier] | None = None,
    readings: Sequence[Reading] | None = None,
    notes: Mapping[str, str] | None = None,
    samples: int = 200,
    seed: int = 0,
    title: str = "",
) -> Report:
    """What a model does on a labelled table, and why.

    rivals: other classifiers to compare with, by the name to show; readings: the sensor graphs to show instead of all
    that the model has; notes: more lines for the model card; samples: how many can be picked on the page.
    """
    if samples < 1:
        raise ConfigError(f"samples={samples}: a report shows at least one sample.")
    if not len(table):
        raise DataError("The table is empty, so there is nothing to report on.")
    table = classifier._with_label(table)
    truth = encode_labels(table.labels, classifier.classes_)
    probability = classifier.predict_proba(table)
    chosen = choose(truth, probability, samples, seed)
    base = report_on_run(classifier, title=title)
    models = {_shown(classifier.model): classifier, **(rivals or {})}
    return Report(
        **{name: getattr(base, name) for name in ("title", "history", "metric", "classes", "sensors", "time_unit")},
        card=card_of(classifier, table, truth, notes or {}),
        label=table.roles.label or "label",
        truth=truth,
        probability=probability,
        scores=[_score(name, model, table, seed) for name, model in models.items()],
        calibration=calibration(truth, probability),
        readings=list(graph_readings(classifier, table) if readings is None else readings),
        cases=cases(classifier, table[chosen], truth[chosen], MOST_READINGS),
        chosen=chosen,
        scale=(classifier.scaler_.mean, classifier.scaler_.scale),
    )


def graph_readings(classifier: Classifier, table: EventTable) -> list[Reading]:
    """Every sensor graph that the model has to give."""
    model, found = classifier.model_, []
    if isinstance(model, Raindrop) and model.config.reconstruction:
        found.append(Reading("information", INFORMATION, information_graphs(classifier, table)))
    try:
        found.append(Reading("edge weights", WEIGHTS, classifier.graphs(table)))
    except ConfigError:  # a model without a graph
        pass
    return found


INFORMATION = (
    "How much worse the receiver's readings would be told without the sender's messages: the fall of the squared error, "
    "in units of the receiver's variance. About 0 where the sender tells nothing of the receiver."
)
WEIGHTS = (
    "The weights of the paper's Eq. 3, by which messages are scaled. A heavy edge is one the model listens along; "
    "whether what it hears is of use to the score, the weight alone does not say."
)


def _score(name: str, classifier: Classifier, table: EventTable, seed: int) -> Score:
    table = classifier._with_label(table)
    truth = encode_labels(table.labels, classifier.classes_)
    robustness, figures = [], {}
    for share in HIDDEN:
        probability = classifier.predict_proba(hide_random_sensors(table, share, seed=seed) if share else table)
        if not share:
            figures = bootstrap(truth, probability, FIGURES, seed=seed)
        found = figures["auroc"] if not share else bootstrap(truth, probability, ["auroc"], draws=200, seed=seed)["auroc"]
        robustness.append(found)
    return Score(name, figures, robustness)


def _shown(model: str) -> str:
    return "Raindrop" if model == "raindrop" else model


def _metric(classifier: Classifier) -> str | None:
    """By which figure the epoch was chosen, where there was a choice."""
    _, _, train = classifier._configs()
    return train.metric if any("validation" in row for row in classifier.history_) else None
