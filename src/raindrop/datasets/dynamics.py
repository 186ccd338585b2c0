"""Synthetic dynamical systems in which sensors drive one another with a lag, to test methods that recover the graph.

A sample is a window of a simulated system, with readings dropped at random. In the class "coupled" all sensors come
from one run. In the class "apart" each sensor comes from a different run of the same system: the distribution of a
single sensor is the same, but no observed sensor drives another. There is a true edge u -> v where u occurs in the
equation of v.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.datasets.synthetic import PlantedGraph
from raindrop.errors import ConfigError, suggest
from raindrop.table.event_table import EventTable

Dynamics = Literal["var", "nonlinear", "lorenz96"]
States = NDArray[np.float64]  # (run, sensor)
BURN_IN = 200  # steps before a window starts


def driven_sensors(
    dynamics: Dynamics = "var",
    num_samples: int = 1500,
    *,
    num_sensors: int = 8,
    times: int = 40,
    dropped: float = 0.3,
    seed: int = 0,
) -> PlantedGraph:
    """Windows of `times` steps of a system, each reading dropped with the probability `dropped`.

    var: linear, x_v(t) = 0.5 x_v(t-1) + sum of ±0.6 x_u(t-1) + noise, two senders for half of the sensors;
    nonlinear: the same senders, but through 1.2 |x_u| - 1, which correlation cannot detect;
    lorenz96: the chaotic ring dx_v/dt = (x_v+1 - x_v-2) x_v-1 - x_v + 8, a step is 0.1.
    """
    if dynamics not in get_args(Dynamics):
        raise ConfigError(f"There are no dynamics '{dynamics}'; {suggest(dynamics, get_args(Dynamics))}")
    if num_sensors < 4 or num_samples < 2 or times < 2 or not 0 <= dropped < 1:
        raise ConfigError(
            "A system needs at least 4 sensors, 2 samples and 2 times, and a share below 1 of dropped readings, not "
            f"{num_sensors}, {num_samples}, {times} and {dropped}."
        )
    rng = np.random.default_rng(seed)
    if dynamics == "lorenz96":
        drives, step = lorenz96(num_sensors)
    else:
        drives, step = _sparse_system(num_sensors, rng, linear=dynamics == "var")
    state = rng.normal(size=(num_samples, num_sensors))
    steps = []
    for _ in range(BURN_IN + times):
        state = step(state)
        steps.append(state)
    signal = np.stack(steps[BURN_IN:], axis=1)  # (sample, t, sensor)

    apart = np.flatnonzero(rng.random(num_samples) < 0.5)
    for at in range(num_sensors):
        signal[apart, :, at] = signal[rng.permutation(apart), :, at]
    names = [f"sensor {at + 1:02d}" for at in range(num_sensors)]
    sample, time, sensor = np.nonzero(rng.random(signal.shape) >= dropped)
    ids = pl.Series([f"window {number:05d}" for number in range(num_samples)])
    events = pl.DataFrame(
        {
            "sample": ids.gather(sample),
            "time": time.astype(np.float64),
            "sensor": pl.Series(names).gather(sensor),
            "value": signal[sample, time, sensor],
        }
    )
    label = np.full(num_samples, "coupled")
    label[apart] = "apart"
    samples = pl.DataFrame({"sample": ids, "label": label})
    table = EventTable.from_frames(events, samples, label="label", sensors=names)
    edges = tuple((names[u], names[v]) for u, v in np.argwhere(drives).tolist())
    return PlantedGraph(table, edges)


def lorenz96(num_sensors: int, force: float = 8.0, dt: float = 0.05) -> tuple[NDArray[np.bool_], Callable[..., States]]:
    """(u, v) whether u drives v in the ring, and a function for one step (two Runge-Kutta steps) of many runs."""
    ring = np.arange(num_sensors)
    drives = np.zeros((num_sensors, num_sensors), dtype=bool)
    for offset in (1, -1, -2):
        drives[(ring + offset) % num_sensors, ring] = True

    def slope(x: States) -> States:
        next_one, previous, second_previous = (np.roll(x, shift, axis=1) for shift in (-1, 1, 2))
        return (next_one - second_previous) * previous - x + force

    def step(x: States) -> States:
        for _ in range(2):
            k1 = slope(x)
            k2 = slope(x + dt / 2 * k1)
            k3 = slope(x + dt / 2 * k2)
            k4 = slope(x + dt * k3)
            x = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x

    return drives, step


def _sparse_system(
    num_sensors: int, rng: np.random.Generator, *, linear: bool
) -> tuple[NDArray[np.bool_], Callable[..., States]]:
    """A system in which half of the sensors are each driven by two of the other half: no cycles, so it is stable."""
    order = rng.permutation(num_sensors)
    senders, receivers = order[: num_sensors // 2], order[num_sensors // 2 :]
    strength = np.zeros((num_sensors, num_sensors))  # (u, v)
    for receiver in receivers:
        strength[rng.choice(senders, 2, replace=False), receiver] = rng.choice([-0.6, 0.6], 2)

    def step(x: States) -> States:
        sent = x if linear else 1.2 * np.abs(x) - 1.0
        new_state: States = 0.5 * x + sent @ strength + 0.5 * rng.normal(size=x.shape)
        return new_state

    return strength != 0, step
