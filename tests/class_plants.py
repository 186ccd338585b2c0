"""Labelled tables in which an edge between two sensors exists in one class only."""

from __future__ import annotations

import numpy as np

from raindrop.table.event_table import EventTable

SENSORS = ("drive", "follows", "other", "tracks")


def one_class_edge(
    samples: int = 60, steps: int = 20, *, seed: int = 0, lag: int = 1, noise: float = 0.4, walk: bool = False
) -> EventTable:
    """drive -> follows, `lag` steps later, in every second sample, labelled 'on' (the rest: 'off').

    other -> tracks exists in both classes. Sensors are read at the same times; two samples make a person. walk: random
    walks instead of independent values.
    """
    rng = np.random.default_rng(seed)
    drive, other, apart = rng.normal(size=(3, samples, steps + lag))
    if walk:
        drive, other, apart = (np.cumsum(each, axis=1) for each in (drive, other, apart))
    on = np.arange(samples) // 2 % 2 == 1
    shape = (samples, steps)
    follows = np.where(on[:, None], drive, apart)[:, :steps] + noise * rng.normal(size=shape)
    tracks = other[:, :steps] + noise * rng.normal(size=shape)
    values = np.stack([drive[:, lag:], follows, other[:, lag:], tracks], axis=1)  # (sample, sensor, step)
    sample, sensor, time = np.meshgrid(np.arange(samples), np.arange(4), np.arange(float(steps)), indexing="ij")
    ids = np.array([f"s{at:03d}" for at in range(samples)])
    table = EventTable.from_columns(
        ids[sample.ravel()],
        time.ravel(),
        np.array(SENSORS)[sensor.ravel()],
        values.ravel(),
        samples={"sample": ids, "person": [f"p{at // 2}" for at in range(samples)]},
        group="person",
    )
    return table.with_labels(np.where(on, "on", "off"))
