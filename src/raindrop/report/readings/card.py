"""The model card of an imputer or a forecaster."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raindrop.estimators.cutoffs import describe_cutoff
from raindrop.estimators.forecaster import Forecaster
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.report.card import Card, Rows, model_rows, setting_rows
from raindrop.report.numbers import size_text
from raindrop.table.event_table import EventTable

MAX_NAMES = 60  # maximum number of sensors named on the card
LIMITS = [
    "A filled value is a prediction, not a measurement.",
    "Errors hold for readings like these, hidden at random. A real sensor may fail just when something unusual "
    "happens; then errors can be larger.",
    "Intervals are calibrated on readings that were hidden as in training, over all sensors and gaps together. For one "
    "sensor, for long gaps or on data that have changed since, they can contain the truth less often.",
    "The weight of a sensor shows how much the model attended to it. It is not proof that one sensor acts on another; "
    "both can depend on a third that is not measured.",
]


def readings_card(
    estimator: ReadingsEstimator, table: EventTable | None = None, notes: Mapping[str, str] | None = None
) -> Card:
    """The card of a model; with a table, also about the readings of the report."""
    training, scaler, unit = estimator.data_, estimator.scaler_, estimator.time_unit_
    first, last = training["window"]
    model = model_rows(estimator)
    if isinstance(estimator, Forecaster):
        model += [
            ("Horizon", f"{estimator.horizon:g} {unit}"),
            ("Cutoff", describe_cutoff(estimator.cutoff, unit)),
        ]
    calibrated = "calibrated on validation readings" if estimator.conformal_ is not None else "none: no validation"
    model.append(("Intervals", calibrated))
    names = ", ".join(scaler.sensors[:MAX_NAMES])
    more = len(scaler.sensors) - MAX_NAMES
    low, middle, high = (f"{float(f(estimator.interval_)):.3g}" for f in (np.min, np.median, np.max))
    data: Rows = [
        ("Trained on", size_text(training["samples"], training["readings"])),
        ("Training data", f"fingerprint {training['fingerprint']}"),
        ("Sensors", f"{len(scaler.sensors):,}: {names}" + (f" and {more:,} more" if more > 0 else "")),
        ("Times", f"{first:.4g} to {last:.4g} {unit}"),
        ("Typical interval between readings", f"{middle} {unit} (from {low} to {high}, by sensor)"),
        ("Statics", ", ".join(column.name for column in scaler.statics) or "none"),
    ]
    if table is not None:
        data.append(("Reported on", size_text(len(table), table.num_readings)))
        if table.dropped:
            dropped = ", ".join(f"{reason}: {number:,}" for reason, number in table.dropped.items())
            data.append(("Readings dropped when the table was built", dropped))
    data += list((notes or {}).items())
    return Card(model, data, LIMITS, setting_rows(estimator))
