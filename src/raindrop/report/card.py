"""The model card: model, settings, data, label, base rates and limitations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from numpy.typing import NDArray

from raindrop.estimators.base import Estimator
from raindrop.estimators.samples import SampleEstimator
from raindrop.report.numbers import size_text
from raindrop.report.tasks import TaskView
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
    "A graph describes the model: along which edges it passes messages, or what those messages predict. An edge is not "
    "proof that one sensor acts on another; both can depend on a third that is not measured, and the direction is weak "
    "evidence where two sensors carry the same information at the same time."
)


def card_of(
    estimator: SampleEstimator,
    view: TaskView,
    table: EventTable | None = None,
    truth: NDArray[Any] | None = None,
    notes: Mapping[str, str] | None = None,
    *,
    graphs: bool = False,
) -> Card:
    """The card of a model; with a table, also about the report's samples; with `graphs`, also their limitations."""
    training, scaler = estimator.data_, estimator.scaler_
    first, last = training["window"]
    model = model_rows(estimator)
    calibrate = estimator.get_params().get("calibrate", "none")  # not every estimator has probabilities
    if calibrate != "none":
        model.append(("Probabilities", f"calibrated on validation samples ({calibrate})"))
    if "messages" in estimator.notes_:
        model.append(("Messages between sensors", messages_text(estimator)))
    if "share_of_raindrop" in estimator.notes_:
        share, most = estimator.notes_["share_of_raindrop"], estimator.notes_["weights"][-1]
        mixed = f"{share:.1%} raindrop and {1 - share:.1%} trees, chosen on validation samples"
        missing = f"where {most['missing']:.0%} of the usual sensors are missing"
        model.append(("Mixed of", f"{mixed}; raindrop counts {most['raindrop']:.0%} {missing}"))
    data: Rows = [
        *view.card_rows(),
        ("Trained on", size_text(training["samples"], training["readings"])),
        ("Training data", f"fingerprint {training['fingerprint']}"),
        ("Sensors", f"{len(scaler.sensors):,}: {', '.join(scaler.sensors)}"),
        ("Times", f"{first:.4g} to {last:.4g} {estimator.time_unit_}"),
        ("Statics", ", ".join(column.name for column in scaler.statics) or "none"),
    ]
    if table is not None and truth is not None:
        data += [
            ("Reported on", size_text(len(table), table.num_readings)),
            *view.sample_rows(truth),
        ]
        if table.dropped:
            dropped = ", ".join(f"{reason}: {number:,}" for reason, number in table.dropped.items())
            data.append(("Readings dropped when the table was built", dropped))
    data += list((notes or {}).items())
    return Card(model, data, [*LIMITS, GRAPH_LIMIT] if graphs else LIMITS, setting_rows(estimator))


def messages_text(estimator: Estimator) -> str:
    """Whether optional messages are used, and why."""
    found = estimator.notes_["messages"]
    if not found["used"]:
        return f"left out: {cast(SampleEstimator, estimator).why_no_messages()}"
    title = estimator.task_.title(found["metric"])
    return f"used: validation {title} {found['with']:.4f} with them, {found['without']:.4f} without"


def model_rows(estimator: Estimator) -> Rows:
    """Rows that identify the model."""
    parameters = sum(p.numel() for p in estimator.model_.parameters())
    return [
        ("Task", estimator.task_.name),
        ("Model", f"{estimator.model}, preset '{estimator.preset}'"),
        ("Parameters", f"{parameters:,}" if parameters else "none (not trained by gradients)"),
        ("Random seed", str(estimator.seed)),
        ("Written by", f"raindrop {VERSION}"),
        ("Run", estimator.identity_[:16]),
    ]


def setting_rows(estimator: Estimator) -> Rows:
    """All settings of the model and of its training."""
    groups = estimator.resolved()
    return [(f"{group}.{name}", str(value)) for group, values in groups.items() for name, value in values.items()]
