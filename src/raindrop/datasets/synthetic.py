"""Synthetic samples with a known sensor graph, to test whether a model finds it.

Some sensors drive others: along a planted edge u -> v, v is |u + 1| up to scale, so u determines v, but v determines u
only in part. In samples of the class "coupled", v follows the u of the same sample. In the class "apart", it follows
an unobserved copy of u. The distribution of a single sensor is the same in both classes; they differ only in pairs of
sensors at the same times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import ConfigError, check_seed
from raindrop.graphs.graph import SensorGraph
from raindrop.table.event_table import EventTable

HOURS = 48.0
SIMULTANEOUS = 0.5  # share of times at which the two sensors of an edge are either both read or both not read


@dataclass(frozen=True)
class PlantedGraph:
    """A table and its true edges (sender, receiver)."""

    table: EventTable
    edges: tuple[tuple[str, str], ...]

    def adjacency(self) -> NDArray[np.bool_]:
        """(u, v) whether there is an edge u -> v."""
        names = self.table.sensors
        adjacency = np.zeros((len(names), len(names)), dtype=bool)
        for sender, receiver in self.edges:
            adjacency[names.index(sender), names.index(receiver)] = True
        return adjacency

    def graph(self, name: str = "planted") -> SensorGraph:
        """The true edges as a graph, each with weight 1."""
        return SensorGraph(self.table.sensors, self.adjacency().astype(np.float32), name)


def planted_graph(
    num_samples: int = 2000,
    *,
    num_sensors: int = 8,
    num_edges: int = 4,
    times: float = 100.0,
    noise: float = 0.2,
    seed: int = 0,
) -> PlantedGraph:
    """Samples over 48 hours with `num_edges` planted edges between different pairs of sensors.

    Each sample has about `times` irregular timestamps. Each sensor is read at some of them, and one in ten sensors of a
    sample is missing entirely. The statics are `age` and `site`; the label depends weakly on `age`.
    """
    if num_samples < 1:
        raise ConfigError(f"{num_samples} samples: there must be at least one.")
    if num_edges < 1 or 2 * num_edges > num_sensors:
        raise ConfigError(f"{num_edges} edges need at least {2 * max(num_edges, 1)} sensors, not {num_sensors}.")
    rng = np.random.default_rng(check_seed(seed))
    names = [f"sensor {at + 1:02d}" for at in range(num_sensors)]
    ends = rng.permutation(num_sensors)[: 2 * num_edges].reshape(num_edges, 2)  # (edge, sender and receiver)

    age = rng.normal(60, 12, num_samples).round(1)
    coupled = rng.random(num_samples) < 1 / (1 + np.exp(-(age - 60) / 60))
    site = rng.choice(["north", "south", "west"], num_samples)
    missing = rng.random((num_samples, num_sensors)) < 0.1
    read_rate = rng.uniform(0.3, 0.5, num_sensors)
    level = rng.normal(0, 50, num_sensors)
    unit = rng.lognormal(0, 1, num_sensors)

    count = np.maximum(1, rng.poisson(times, num_samples))
    owner = np.repeat(np.arange(num_samples), count)  # (t,)
    time = rng.uniform(0, HOURS, len(owner)).round(4)
    signal = _smooth(owner, time, num_samples, num_sensors, rng)  # (t, sensor)
    unobserved = _smooth(owner, time, num_samples, num_edges, rng)  # (t, edge)
    for edge, (sender, receiver) in enumerate(ends):
        driver = np.where(coupled[owner], signal[:, sender], unobserved[:, edge])
        signal[:, receiver] = (np.abs(driver + 1) - 1.167) / 0.799  # mean 0 and variance 1 for a normal driver
    signal += noise * rng.standard_normal(signal.shape)

    draw = rng.random(signal.shape)
    for sender, receiver in ends:
        draw[:, receiver] = np.where(rng.random(len(draw)) < SIMULTANEOUS, draw[:, sender], draw[:, receiver])
    observed = (draw < read_rate) & ~missing[owner]
    at, sensor = np.nonzero(observed)
    ids = pl.Series([f"sample {number:05d}" for number in range(num_samples)])
    events = pl.DataFrame(
        {
            "sample": ids.gather(owner[at]),
            "time": time[at],
            "sensor": pl.Series(names).gather(sensor),
            "value": signal[at, sensor] * unit[sensor] + level[sensor],
        }
    )
    label = np.where(coupled, "coupled", "apart")
    samples = pl.DataFrame({"sample": ids, "label": label, "age": age, "site": site})
    table = EventTable.from_frames(
        events, samples, label="label", statics=["age", "site"], sensors=names, duplicates="last"
    )
    return PlantedGraph(table, tuple((names[sender], names[receiver]) for sender, receiver in ends))


def _smooth(
    owner: NDArray[np.int64], time: NDArray[np.float64], num_samples: int, width: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(t, width) smooth random curves, each about standard normal at every time, evaluated at irregular times."""
    waves = 6
    frequency = rng.uniform(2.0, 12.0, (num_samples, width, waves))
    phase = rng.uniform(0, 2 * np.pi, (num_samples, width, waves))
    angle = frequency[owner] * time[:, None, None] + phase[owner]
    curve: NDArray[np.float64] = np.cos(angle).sum(-1) * np.sqrt(2 / waves)
    return curve
