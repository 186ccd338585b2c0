"""Small random tables; what is drawn depends on the seed alone."""

from __future__ import annotations

from functools import cache

import numpy as np

from raindrop.table.event_table import EventTable


@cache
def random_table(
    *,
    samples: int = 6,
    sensors: int = 5,
    times: int = 8,
    observed: float = 0.4,
    classes: int = 2,
    statics: tuple[str, ...] = ("age", "ward"),
    extremes: bool = True,
    seed: int = 0,
) -> EventTable:
    """Irregular readings: sensors share some times and not others, and every sample has its own length and times.

    A table is drawn once for the same arguments, because tables do not change.
    With `extremes`, sensor 1 is never read in sample 0, the last sample has no reading and the one before it one.
    """
    rng = np.random.default_rng(seed)
    names = [f"sensor {u}" for u in range(sensors)]
    rows: list[tuple[str, float, str, float]] = []
    for b in range(samples):
        length = times - b % max(1, times // 2)
        for time in rng.choice(1000, size=length, replace=False) / 20:
            active = rng.random(sensors) < observed
            active[rng.integers(sensors)] = True
            for u in np.flatnonzero(active):
                rows.append((f"sample {b}", float(time), names[u], float(rng.normal(u, 1 + u))))
    if extremes:
        last, single = f"sample {samples - 1}", f"sample {samples - 2}"
        rows = [row for row in rows if row[::2] != ("sample 0", "sensor 1") and row[0] not in (last, single)]
        rows.append((single, 3.25, names[-1], 1.5))
    about = {
        "sample": [f"sample {b}" for b in range(samples)],
        "label": [b % classes for b in range(samples)],
        "age": rng.normal(60, 15, samples).tolist(),
        "ward": [("north", "south", "west")[b % 3] for b in range(samples)],
    }
    columns = zip(*rows, strict=True)
    return EventTable.from_columns(*columns, about, label="label", statics=list(statics), sensors=names)
