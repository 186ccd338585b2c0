"""Tables in which two sensors follow a third, each on its own clock, and settings that learn so in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from raindrop.table.event_table import EventTable

SENSORS = ("lead", "mirror", "same")  # same = 10 + lead, mirror = -50 - 2 lead
SMALL: dict[str, Any] = {
    "model.hidden": 16,
    "model.evidence_hidden": 8,
    "model.heads": 2,
    "model.sensor_dim": 2,
    "train.epochs": 1,
    "train.batch_readings": 1000,
}
LEARNING = SMALL | {
    "model.hidden": 32,
    "train.epochs": 45,
    "train.batch_readings": 600,
    "train.learning_rate": 0.015,
    "train.ema_decay": 0.9,
}


def followers(
    samples: int = 40, hours: int = 30, *, seed: int = 0, noise: float = 0.1, start: float = 0.0, **options: Any
) -> EventTable:
    """A random walk, read about every hour by three sensors at times of their own; options are `from_columns`'s."""
    rng = np.random.default_rng(seed)
    ids = [f"s{b:03d}" for b in range(samples)]
    parts = []
    for name in ids:
        walk = np.cumsum(rng.normal(size=hours + 1))
        walk -= walk.mean()
        for sensor, factor, level in (("lead", 1, 0), ("mirror", -2, -50), ("same", 1, 10)):
            time = np.arange(hours) + rng.uniform(0, 0.9, hours)
            value = level + factor * np.interp(time, np.arange(hours + 1), walk) + noise * rng.normal(size=hours)
            parts.append((np.full(hours, name), start + time, np.full(hours, sensor), value))
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return EventTable.from_columns(*columns, **options)


def hide_blocks(table: EventTable, length: float = 8.0, *, seed: int = 0) -> tuple[EventTable, pl.DataFrame]:
    """The table without a block of each follower in each sample, and the readings of these blocks."""
    rng = np.random.default_rng(seed)
    events = table.events()
    sample, sensor = events["sample"].to_numpy(), events["sensor"].cast(pl.String).to_numpy()
    hidden = np.zeros(len(events), dtype=bool)
    for name in table.ids:
        own = events.filter(pl.col("sample") == name)["time"]
        for follower in SENSORS[1:]:
            start = rng.uniform(own.min() + 2, own.max() - length - 2)
            inside = (events["time"] > start) & (events["time"] < start + length)
            hidden |= (sample == name) & (sensor == follower) & inside.to_numpy()
    return table.where(~hidden), events.filter(hidden)
