"""A table whose names would do harm wherever they are not shown as they are, and a model of it."""

from __future__ import annotations

import numpy as np
from learnable import QUICK

from raindrop import Classifier, EventTable

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
        rng.integers(0, 12, len(owner)) * 4.0,  # few times, so that sensors are read together
        [SENSORS[at] for at in sensor],
        value,
        about,
        label="<label>",
        statics=["<static>"],
        sensors=SENSORS,
        duplicates="last",
    )


def awkward_model(table: EventTable, **changes: object) -> Classifier:
    config = QUICK | {"model.graph.reconstruction": 1.0} | changes
    return Classifier(config=config).fit(table, validation=table)
