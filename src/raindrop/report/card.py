"""The model card: model, settings, data, label, base rates and limitations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from raindrop.estimators.classifier import Classifier
from raindrop.table.event_table import EventTable
from raindrop.version import VERSION

Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class Card:
    """Terms and their descriptions, by section."""

    model: Rows
    data: Rows
    limits: list[str]
    settings: Rows = field(default_factory=list)


LIMITS = [
    "Metrics hold for samples like those of training. At another site, at another time or with other devices they can "
    "change; measure them there before use.",
    "Confidence intervals show how far a metric would vary over other samples of the same kind. They do not include "
    "that another training run gives another model.",
    "A sensor's contribution is measured by removing its readings and predicting again. It shows what the model used, "
    "not what caused the outcome; of two sensors with the same information, each alone can seem unimportant.",
]
GRAPH_LIMIT = (
    "A graph describes the model: along which edges it passes messages, or what those messages predict. An edge is no "
    "proof that one sensor acts on another; both can depend on a third that is not measured, and the direction is weak "
    "evidence where two sensors carry the same information at the same time."
)


def card_of(
    classifier: Classifier,
    table: EventTable | None = None,
    truth: NDArray[np.int64] | None = None,
    notes: Mapping[str, str] | None = None,
    *,
    graphs: bool = False,
) -> Card:
    """The card of a model; with a table, also of the samples it is reported on; with `graphs`, their limitations."""
    training, scaler = classifier.data_, classifier.scaler_
    first, last = training["window"]
    parameters = sum(p.numel() for p in classifier.model_.parameters())
    model: Rows = [
        ("Model", f"{classifier.model}, preset '{classifier.preset}'"),
        ("Parameters", f"{parameters:,}" if parameters else "none (not trained by gradients)"),
        ("Random seed", str(classifier.seed)),
        ("Written by", f"raindrop {VERSION}"),
        ("Run", classifier.identity_[:16]),
    ]
    if classifier.calibrate != "none":
        model.append(("Probabilities", f"calibrated on validation samples ({classifier.calibrate})"))
    if "share_of_raindrop" in classifier.notes_:
        share = classifier.notes_["share_of_raindrop"]
        model.append(("Mixed of", f"{share:.1%} raindrop and {1 - share:.1%} trees, chosen on validation samples"))
    data: Rows = [
        ("Label", f"{classifier.label_ or 'label'}, classes: {', '.join(map(str, classifier.classes_))}"),
        *([] if classifier.positive_ is None else [("Positive class", str(classifier.positive_))]),
        ("Trained on", f"{training['samples']:,} samples with {training['readings']:,} readings"),
        ("Training data", f"fingerprint {training['fingerprint']}"),
        ("Sensors", f"{len(scaler.sensors):,}: {', '.join(scaler.sensors)}"),
        ("Times", f"{first:.4g} to {last:.4g} {classifier.time_unit_}"),
        ("Statics", ", ".join(column.name for column in scaler.statics) or "none"),
    ]
    if table is not None and truth is not None:
        count = np.bincount(truth, minlength=len(classifier.classes_))
        rates = [f"{name} {n / len(truth):.1%} ({n:,})" for name, n in zip(classifier.classes_, count, strict=True)]
        data += [
            ("Reported on", f"{len(table):,} samples with {table.num_readings:,} readings"),
            ("Base rates of these samples", ", ".join(rates)),
        ]
        if table.dropped:
            dropped = ", ".join(f"{reason}: {number:,}" for reason, number in table.dropped.items())
            data.append(("Readings dropped when the table was built", dropped))
    data += list((notes or {}).items())
    return Card(model, data, [*LIMITS, GRAPH_LIMIT] if graphs else LIMITS, _settings(classifier))


def _settings(classifier: Classifier) -> Rows:
    groups = classifier.resolved()
    return [(f"{group}.{name}", str(value)) for group, values in groups.items() for name, value in values.items()]
