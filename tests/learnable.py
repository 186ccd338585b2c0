"""Tables whose label can be learned in a second, and settings that do so."""

from __future__ import annotations

from typing import Any

import numpy as np

from raindrop.table.event_table import EventTable

SENSORS = ("heart rate", "pressure", "temperature")
QUICK: dict[str, Any] = {
    "model.observation_dim": 4,
    "model.receiver_dim": 4,
    "model.time_dim": 4,
    "model.attention_dim": 4,
    "model.sensor_dim": 4,
    "model.hidden": 8,
    "model.head.activation": "relu",
    "model.temporal_attention.scores": "mean",
    "model.graph.optional": False,
    "train.batch_size": 16,
    "train.epochs": 3,
    "train.learning_rate": 0.05,
    "train.metric": "log_loss",
    "train.soft_targets": 0.0,
}


def words(**more: Any) -> list[str]:
    """QUICK as the command line takes it; train__epochs=1 stands for train.epochs=1."""
    changes = QUICK | {name.replace("__", "."): value for name, value in more.items()}
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in changes.items()]


def easy_table(
    samples: int = 48,
    *,
    classes: tuple[Any, ...] = (0, 1),
    statics: tuple[str, ...] = (),
    prefix: str = "s",
    label: str = "label",
    seed: int = 0,
    **options: Any,
) -> EventTable:
    """Irregular readings of three sensors; the first two are higher for a class that comes later in `classes`."""
    rng = np.random.default_rng(seed)
    ids = [f"{prefix}{at:03d}" for at in range(samples)]
    code = np.arange(samples) % len(classes)
    count = rng.integers(4, 9, samples)
    owner = np.repeat(np.arange(samples), count)
    sensor = rng.integers(0, len(SENSORS), len(owner))
    value = rng.normal(0, 1, len(owner)) + 4 * np.where(sensor < 2, code[owner], 0)
    about = {
        "sample": ids,
        label: [classes[at] for at in code],
        "age": rng.normal(60, 10, samples).tolist(),
        "ward": [("north", "south")[at % 2] for at in rng.integers(0, 2, samples)],
    }
    return EventTable.from_columns(
        [ids[at] for at in owner],
        rng.uniform(0, 48, len(owner)),
        [SENSORS[at] for at in sensor],
        value,
        about,
        label=label,
        statics=list(statics),
        sensors=SENSORS,
        **options,
    )
