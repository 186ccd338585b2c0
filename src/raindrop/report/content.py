"""What a report says, as plain values, before any of it is drawn."""

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
from raindrop.report.cases import MOST_READINGS, Case, cases, choose
from raindrop.report.graphs import Reading, readings_of
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hide_random_sensors
from raindrop.tasks.bootstrap import Interval, bootstrap
from raindrop.tasks.metrics import ReliabilityCurve, reliability_curve

HIDDEN = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class Score:
    """How one model does on the samples of the report."""

    name: str
    figures: dict[str, Interval]
    robustness: list[Interval]  # AUROC with each share of HIDDEN
    probability: NDArray[np.float32]


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
    calibration: ReliabilityCurve | None = None
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
        """ROC and precision-recall points: of each model for the second of two classes, else of each class of ours."""
        if len(self.classes) == 2:
            asked = [(1, score.probability) for score in self.scores]
        else:
            asked = [(code, self.probability) for code in np.unique(self.truth).tolist()]
        drawn = []
        for code, probability in asked:
            of_class = self.truth == code
            if of_class.any() and not of_class.all():
                false, true, _ = roc_curve(of_class, probability[:, code])
                precision, recall, _ = precision_recall_curve(of_class, probability[:, code])
                drawn.append({"false": false, "true": true, "precision": precision, "recall": recall})
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
    others: Sequence[Classifier] = (),
    notes: Mapping[str, str] | None = None,
    samples: int = 200,
    seed: int = 0,
    title: str = "",
) -> Report:
    """What a model does on a labelled table, and why.

    rivals: other classifiers to compare with, by the name to show; others: the same model trained with other seeds, to
    see whether its graphs recur; notes: more lines for the model card; samples: how many can be picked on the page.
    """
    if samples < 1:
        raise ConfigError(f"samples={samples}: a report shows at least one sample.")
    if not len(table):
        raise DataError("The table is empty, so there is nothing to report on.")
    truth = classifier.truth(table)
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
        calibration=reliability_curve(truth, probability),
        readings=readings_of(classifier, table, truth, others, seed),
        cases=cases(classifier, table[chosen], truth[chosen], MOST_READINGS),
        chosen=chosen,
        scale=(classifier.scaler_.mean, classifier.scaler_.scale),
    )


def _score(name: str, classifier: Classifier, table: EventTable, seed: int) -> Score:
    truth = classifier.truth(table)
    probability = classifier.predict_proba(table)
    robustness = []
    for share in HIDDEN:
        seen = classifier.predict_proba(hide_random_sensors(table, share, seed=seed)) if share else probability
        robustness.append(bootstrap(truth, seen, ["auroc"], seed=seed)["auroc"])
    return Score(name, bootstrap(truth, probability, seed=seed), robustness, probability)


def _shown(model: str) -> str:
    return "Raindrop" if model == "raindrop" else model


def _metric(classifier: Classifier) -> str | None:
    """By which figure the epoch was chosen, where there was a choice."""
    return (
        str(classifier.resolved()["train"]["metric"])
        if any("validation" in row for row in classifier.history_)
        else None
    )
