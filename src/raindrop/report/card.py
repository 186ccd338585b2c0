"""The model card: what a reader must know before trusting a score."""

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
    """Terms and what is to be said of them, by section."""

    model: Rows
    data: Rows
    limits: list[str]
    settings: Rows = field(default_factory=list)


LIMITS = [
    "A score is a statement about samples like those of training. Another site, time or device can move it; "
    "measure it there before use.",
    "Confidence intervals say how far other samples of the same kind would move a figure. They leave out that another "
    "training run gives another model.",
    "What moved a score is measured by taking a sensor's readings away and asking the model again. It says what the "
    "model used, not what caused the outcome; of two sensors that tell the same, each alone may seem to matter little.",
    "The graph describes the model: along which edges it passes messages, or what those messages tell. An edge is no "
    "proof that one sensor acts on another; both may follow a third that nobody reads, and direction is weak evidence "
    "where two sensors tell the same at the same time.",
]


def card_of(
    classifier: Classifier,
    table: EventTable | None = None,
    truth: NDArray[np.int64] | None = None,
    notes: Mapping[str, str] | None = None,
) -> Card:
    """The card of a model; with a table, also of the samples it is reported on."""
    held, scaler = classifier.data_, classifier.scaler_
    first, last = held["window"]
    parameters = sum(p.numel() for p in classifier.model_.parameters())
    model: Rows = [
        ("Model", f"{classifier.model}, preset '{classifier.preset}'"),
        ("Learned numbers", f"{parameters:,}" if parameters else "none (not trained by gradients)"),
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
        ("Trained on", f"{held['samples']:,} samples with {held['readings']:,} readings"),
        ("Training data", f"fingerprint {held['fingerprint']}"),
        ("Sensors", f"{len(scaler.sensors):,}: {', '.join(scaler.sensors)}"),
        ("Times", f"{first:.4g} to {last:.4g} {classifier.time_unit_}"),
        ("Statics", ", ".join(column.name for column in scaler.statics) or "none"),
    ]
    if table is not None and truth is not None:
        count = np.bincount(truth, minlength=len(classifier.classes_))
        rates = [f"{name} {n / len(truth):.1%} ({n:,})" for name, n in zip(classifier.classes_, count, strict=True)]
        data += [
            ("Reported on", f"{len(table):,} samples with {table.num_readings:,} readings"),
            ("Base rate there", ", ".join(rates)),
        ]
        if table.dropped:
            left_out = ", ".join(f"{reason}: {number:,}" for reason, number in table.dropped.items())
            data.append(("Readings left out when the table was built", left_out))
    data += list((notes or {}).items())
    return Card(model, data, LIMITS, _settings(classifier))


def _settings(classifier: Classifier) -> Rows:
    groups = classifier.resolved()
    return [(f"{group}.{name}", str(value)) for group, held in groups.items() for name, value in held.items()]
