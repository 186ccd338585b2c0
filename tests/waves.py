"""Tables for imputers and forecasters: sensors that follow one wave, each read at its own times."""

from __future__ import annotations

from typing import Any

import numpy as np

from raindrop.table.event_table import EventTable

QUICK: dict[str, Any] = {"train.epochs": 1, "model.hidden": 8, "model.heads": 1}


def wave_table(
    samples: int = 20, *, sensors: int = 3, readings: int = 20, hours: float = 24.0, seed: int = 0, **options: Any
) -> EventTable:
    """`readings` of each sensor within `hours`, at random times, around levels of 0, 10, 20, ..."""
    rng = np.random.default_rng(seed)
    sample, sensor = (axis.ravel() for axis in np.indices((samples, sensors, readings))[:2])
    time = rng.uniform(0, hours, len(sample))
    phase = rng.uniform(0, 6, samples)[sample]
    value = 10 * sensor + np.sin(time / 3 + phase + 0.3 * sensor) + rng.normal(0, 0.1, len(sample))
    names = [f"s{at:02d}" for at in sample], [f"u{at}" for at in sensor]
    return EventTable.from_columns(names[0], time, names[1], value, **options)
