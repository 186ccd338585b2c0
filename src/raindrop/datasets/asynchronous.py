"""Synthetic data with a planted directed graph: each sensor has its own clock, with gaps and lagged influence.

Along a planted edge u -> v, v follows u with a lag of some hours. Each sensor is read at irregular times that no other
sensor shares, and is occasionally silent for hours. `delayed_sensors` is one long series without labels;
`delayed_samples` are many short ones, whose class is whether v follows the measured u.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.datasets.synthetic import PlantedGraph
from raindrop.errors import ConfigError, check_seed
from raindrop.table.event_table import EventTable

STEP = 0.1  # hours
MEMORY = 8.0  # time constant of fluctuations, in hours
OWN, NOISE = 0.55, 0.08  # standard deviations of a receiver's own fluctuations and of the reading error
LAGS = (1.0, 4.0)  # hours, the shortest and the longest
SAMPLE_LAGS = (0.5, 2.0)  # hours, in short samples
PERIODS = (4.0, 16.0)  # hours, of the waves in short samples


def delayed_sensors(
    days: float = 60.0,
    *,
    num_sensors: int = 8,
    num_edges: int = 7,
    interval: float = 0.7,
    gaps: float = 0.15,
    seed: int = 0,
) -> PlantedGraph:
    """One series of `days` with `num_edges` planted edges; each sensor is read about every `interval` hours.

    `gaps` is the share of each series that lies in gaps of 6 to 18 hours. The edges have no cycle, and a sensor has at
    most two senders.
    """
    most = 2 * num_sensors - 3
    if num_sensors < 2 or not 1 <= num_edges <= most or days <= 2 or interval <= 0 or not 0 <= gaps < 0.9:
        raise ConfigError(
            f"A series needs 2 sensors, 1 to {max(most, 1)} edges among {num_sensors}, more than 2 days, a positive "
            f"interval and a share of gaps below 0.9, not {num_edges} edges, {days} days, {interval} and {gaps}."
        )
    rng = np.random.default_rng(check_seed(seed))
    names = [f"sensor {at + 1:02d}" for at in range(num_sensors)]
    slots = [v for v in range(1, num_sensors) for _ in range(min(v, 2))]  # receivers, once for each possible sender
    receivers = np.sort(rng.choice(slots, num_edges, replace=False))
    chosen = [
        (int(u), v)
        for v, number in zip(*(x.tolist() for x in np.unique(receivers, return_counts=True)), strict=True)
        for u in rng.choice(v, number, replace=False)
    ]
    place = rng.permutation(num_sensors)
    steps = int(24 * days / STEP)
    burn_in = int(LAGS[1] * num_sensors / STEP)
    signal = np.empty((steps + burn_in, num_sensors))
    for v in range(num_sensors):
        senders = [u for u, receiver in chosen if receiver == v]
        signal[:, v] = _fluctuation(len(signal), rng) * (OWN if senders else 1.0)
        for u in senders:
            lag = int(rng.uniform(*LAGS) / STEP)
            sent = np.roll(signal[:, u], lag)
            sent[:lag] = 0.0
            signal[:, v] += rng.choice([-1.0, 1.0]) * sent * np.sqrt(1 - OWN**2) / np.sqrt(len(senders))
        signal[:, v] /= signal[:, v].std()
    signal = signal[burn_in:]
    frames = []
    level, unit = rng.normal(0, 50, num_sensors), rng.lognormal(0, 1, num_sensors)
    for v in range(num_sensors):
        time = _clock(24 * days, interval, gaps, rng)
        value = signal[np.minimum((time / STEP).astype(np.int64), steps - 1), v] + NOISE * rng.standard_normal(
            len(time)
        )
        at = place[v]
        frames.append(
            pl.DataFrame({"sample": "plant", "time": time, "sensor": names[at], "value": value * unit[at] + level[at]})
        )
    table = EventTable.from_frames(pl.concat(frames), sensors=names)
    return PlantedGraph(table, tuple((names[place[u]], names[place[v]]) for u, v in chosen))


def delayed_samples(
    num_samples: int = 2000,
    *,
    num_sensors: int = 8,
    num_edges: int = 4,
    hours: float = 36.0,
    interval: float = 0.8,
    gaps: float = 0.15,
    seed: int = 0,
) -> PlantedGraph:
    """Samples whose label is whether sensors follow each other, with `num_edges` planted edges between pairs.

    Along an edge u -> v, v is |u + 0.3| as u was half an hour to two hours before, up to scale and noise; it correlates
    little with u. In samples of the class "coupled" it is the u that is measured, in the class "apart" an unobserved
    copy of it. A single sensor has the same distribution in both classes. Each sensor of each sample is read about
    every `interval` hours on a clock of its own; `gaps` is the share of its time that lies in one gap, and one in ten
    sensors of a sample is never read.
    """
    if num_edges < 1 or 2 * num_edges > num_sensors:
        raise ConfigError(f"{num_edges} edges need at least {2 * max(num_edges, 1)} sensors, not {num_sensors}.")
    if num_samples < 1:
        raise ConfigError(f"{num_samples} samples: there must be at least one.")
    if interval <= 0 or hours <= 4 * interval:
        raise ConfigError(f"interval={interval:g}: a positive time of less than a quarter of the {hours:g} hours.")
    if not 0 <= gaps < 0.9:
        raise ConfigError(f"gaps={gaps:g}: the share of time in a gap is at least 0 and below 0.9.")
    rng = np.random.default_rng(check_seed(seed))
    names = [f"sensor {at + 1:02d}" for at in range(num_sensors)]
    ends = rng.permutation(num_sensors)[: 2 * num_edges].reshape(num_edges, 2)
    lags = rng.uniform(*SAMPLE_LAGS, num_edges)
    coupled = rng.random(num_samples) < 0.5
    waves = [_Waves(num_samples, rng) for _ in range(num_sensors)]
    hidden = [_Waves(num_samples, rng) for _ in range(num_edges)]
    level, unit = rng.normal(0, 50, num_sensors), rng.lognormal(0, 1, num_sensors)
    edge_of = {int(v): (edge, int(u)) for edge, (u, v) in enumerate(ends.tolist())}
    ids = pl.Series([f"sample {number:05d}" for number in range(num_samples)])
    frames = []
    for v in range(num_sensors):
        owner, time = _clocks(num_samples, hours, interval, gaps, rng)
        if v in edge_of:
            edge, u = edge_of[v]
            before = time - lags[edge]
            driver = np.where(coupled[owner], waves[u].at(owner, before), hidden[edge].at(owner, before))
            signal = (np.abs(driver + 0.3) - 0.834) / 0.628  # mean 0 and variance 1 for a normal driver
        else:
            signal = waves[v].at(owner, time)
        value = signal + 0.15 * rng.standard_normal(len(time))
        frames.append(
            pl.DataFrame(
                {
                    "sample": ids.gather(owner),
                    "time": time.round(4),
                    "sensor": names[v],
                    "value": value * unit[v] + level[v],
                }
            )
        )
    samples = pl.DataFrame({"sample": ids, "label": np.where(coupled, "coupled", "apart")})
    table = EventTable.from_frames(pl.concat(frames), samples, label="label", sensors=names, duplicates="last")
    return PlantedGraph(table, tuple((names[u], names[v]) for u, v in ends.tolist()))


class _Waves:
    """A smooth random curve for each sample, approximately standard normal at every time."""

    def __init__(self, num_samples: int, rng: np.random.Generator, waves: int = 6):
        self.frequency = 2 * np.pi / rng.uniform(*PERIODS, (num_samples, waves))
        self.phase = rng.uniform(0, 2 * np.pi, (num_samples, waves))

    def at(self, owner: NDArray[np.int64], time: NDArray[np.float64]) -> NDArray[np.float64]:
        """Its values at these times of these samples."""
        angle = self.frequency[owner] * time[:, None] + self.phase[owner]
        curve: NDArray[np.float64] = np.cos(angle).sum(1) * np.sqrt(2 / angle.shape[1])
        return curve


def _clocks(
    num_samples: int, hours: float, interval: float, gaps: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sample and time of each reading of one sensor: irregular, with a gap in each sample, missing in one of ten."""
    steps = rng.uniform(0.5, 1.5, (num_samples, int(2 * hours / interval))) * interval
    time = np.cumsum(steps, axis=1)
    start = rng.uniform(0, hours * (1 - gaps), (num_samples, 1))
    silent = (time >= start) & (time < start + gaps * hours)
    owner, at = np.nonzero((time < hours) & ~silent & (rng.random((num_samples, 1)) >= 0.1))
    return owner, time[owner, at]


def _fluctuation(steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A stationary autoregressive series of variance 1."""
    from scipy.signal import lfilter

    kept = np.exp(-STEP / MEMORY)
    noise = rng.standard_normal(steps) * np.sqrt(1 - kept**2)
    noise[0] = rng.standard_normal()
    series: NDArray[np.float64] = lfilter([1.0], [1.0, -kept], noise)
    return series


def _clock(hours: float, interval: float, gaps: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """The irregular times at which one sensor is read, without those in its gaps."""
    time = np.cumsum(rng.uniform(0.5, 1.5, int(2 * hours / interval)) * interval) + rng.uniform(0, interval)
    time = time[time < hours]
    silent = np.zeros(len(time), dtype=bool)
    while silent.mean() < gaps:
        start, length = rng.uniform(0, hours), rng.uniform(6, 18)
        silent |= (time >= start) & (time < start + length)
    return np.round(time[~silent], 5)
