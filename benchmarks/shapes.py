"""Random events in the shape of P12 and P19, for benchmarks: the values mean nothing, the sizes do."""

from __future__ import annotations

import numpy as np

from raindrop import EventTable

# sensors, mean timestamps, most timestamps, mean readings
SHAPES = {"P12": (36, 70, 215, 400), "P19": (34, 36, 60, 240)}


def random_events(
    num_samples: int, sensors: int, times: float, most_times: int, readings: float, seed: int = 0
) -> EventTable:
    """Samples with about `times` timestamps over 48 hours and `readings` readings each."""
    rng = np.random.default_rng(seed)
    count = np.clip(rng.gamma(4, times / 4, num_samples), 1, most_times).astype(int)
    owner = np.repeat(np.arange(num_samples), count)
    time = rng.uniform(0, 48, len(owner))
    observed = rng.random((len(owner), sensors)) < readings / (times * sensors)
    at, sensor = np.nonzero(observed)
    samples = {"sample": [str(n) for n in range(num_samples)], "label": rng.integers(0, 2, num_samples)}
    return EventTable.from_columns(
        owner[at].astype(str),
        time[at],
        np.char.add("s", np.char.zfill(sensor.astype(str), 2)),
        rng.standard_normal(len(at)),
        samples,
        sensors=[f"s{n:02d}" for n in range(sensors)],
    )
