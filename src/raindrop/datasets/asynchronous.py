"""Synthetic long series with a planted directed graph: sensors on clocks of their own, with gaps and lagged influence.

Along a planted edge u -> v, v follows u with a lag of some hours. Each sensor also fluctuates on its own, is read at
irregular times that no other sensor shares, and is silent for hours now and then. What u measured before v's gap ends
says what v would have measured, so messages fill a gap better than a line through it.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.datasets.synthetic import PlantedGraph
from raindrop.errors import ConfigError
from raindrop.table.event_table import EventTable

STEP = 0.1  # hours
MEMORY = 8.0  # hours after which a fluctuation has decayed to a third
OWN, NOISE = 0.55, 0.08  # standard deviations of a receiver's own fluctuations and of the reading error
LAGS = (1.0, 4.0)  # hours, the shortest and the longest


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
    rng = np.random.default_rng(seed)
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
