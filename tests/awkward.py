"""Tables that are awkward to show: names that look like markup or formulas, or many sensors; and a model of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from learnable import QUICK

from raindrop import Classifier, EventTable, MultiLabelClassifier, Regressor

SENSORS = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "a/b",
    "µ °C",
    "\"double\" 'single'",
    "$$x^2$$",
    "{{ 7 * 7 }}",
    "under_score & <b>bold</b>",
)
CLASSES = ("<i>ill</i>", 'well & "good"')
IDS = "<u>sample</u> {}"
QUANTITIES = ("<i>days</i> in & out", "$$cost^2$$ </script><img src=x>")
LABELS = ("<b>died</b>", "{{ 7 * 7 }}/long 'stay'")


def awkward_table(samples: int = 24, classes: tuple[str, ...] = CLASSES, seed: int = 0) -> EventTable:
    rng = np.random.default_rng(seed)
    ids = [IDS.format(at) for at in range(samples)]
    code = np.arange(samples) % len(classes)
    owner = np.repeat(np.arange(samples), rng.integers(12, 30, samples))
    sensor = rng.integers(0, len(SENSORS), len(owner))
    value = rng.normal(0, 1, len(owner)) + 3 * np.where(sensor < 3, code[owner], 0)
    about = {
        "sample": ids,
        "<label>": [classes[at] for at in code],
        "<static>": rng.choice(["<em>north</em>", "south"], samples).tolist(),
    }
    return EventTable.from_columns(
        [ids[at] for at in owner],
        rng.integers(0, 12, len(owner)) * 4.0,  # few times, so that sensors share some
        [SENSORS[at] for at in sensor],
        value,
        about,
        label="<label>",
        statics=["<static>"],
        sensors=SENSORS,
        duplicates="last",
    )


def many_sensors_table(samples: int = 24, sensors: int = 40, seed: int = 0) -> EventTable:
    """Sensors with ordinary clinical names, and an age with all digits of a float."""
    rng = np.random.default_rng(seed)
    stems = ("Heart rate", "Mean arterial pressure", "FiO2", "Temperature", "Serum creatinine", "Bilirubin total")
    names = [f"{stems[at % len(stems)]} {at // len(stems) + 1}" for at in range(sensors)]
    ids = [f"patient {at}" for at in range(samples)]
    code = np.arange(samples) % 2
    sample, time, sensor = np.indices((samples, 6, sensors)).reshape(3, -1)
    observed = rng.random(len(sample)) < 0.4
    sample, time, sensor = sample[observed], time[observed], sensor[observed]
    value = rng.normal(size=len(sample)) + np.where(sensor < 4, code[sample], 0)
    about = {"sample": ids, "outcome": [("alive", "died")[at] for at in code], "age": rng.normal(63, 12, samples)}
    return EventTable.from_columns(
        [ids[at] for at in sample],
        time * 4.0,
        [names[at] for at in sensor],
        value,
        about,
        label="outcome",
        statics=["age"],
        sensors=names,
    )


def awkward_model(table: EventTable, **changes: object) -> Classifier:
    config = QUICK | {"model.graph.reconstruction": 1.0} | changes
    return Classifier(config=config).fit(table, validation=table)


def awkward_outcomes(samples: int = 40, seed: int = 0) -> EventTable:
    """The same with two quantities and two yes/no labels, some of them unknown."""
    table, rng = awkward_table(samples, seed=seed), np.random.default_rng(seed)
    high = (table.labels == CLASSES[1]).astype(float)
    values = [np.exp(1 + high + rng.normal(0, 0.3, samples)), 1e5 * (1 - high) + rng.normal(0, 1e4, samples)]
    answers = [high.copy(), (rng.random(samples) < 0.3 + 0.4 * high).astype(float)]
    values[1][::7] = answers[1][::5] = np.nan
    columns = zip((*QUANTITIES, *LABELS), (*values, *answers), strict=True)
    return replace(table, samples=table.samples.with_columns(pl.Series(name, column) for name, column in columns))


def awkward_estimator(kind: type[Any], table: EventTable, model: str = "raindrop", **options: Any) -> Any:
    """A Regressor of both quantities or a MultiLabelClassifier of both labels, validated on the last ten samples."""
    named = {Regressor: {"label": list(QUANTITIES)}, MultiLabelClassifier: {"labels": list(LABELS)}}[kind]
    config = {name: value for name, value in QUICK.items() if name != "train.metric"}
    config = config | {"model.graph.reconstruction": 1.0, "train.epochs": 2} if model == "raindrop" else {}
    return kind(model, config=config, **(named | options)).fit(table[:-10], validation=table[-10:])


def embedded_json(page: str, element: str) -> Any:
    """The data that a report's page has in the script with this id."""
    return json.loads(re.search(rf'<script id="{element}" type="application/json">(.*?)</script>', page, re.S)[1])
