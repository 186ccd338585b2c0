"""Small synthetic tables that look like real ones: a ward with two sites, a machine, a city's measuring stations.

For tutorials and tests: they are generated within a second, and the process behind them is known.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.signal import lfilter

from raindrop.errors import ConfigError, check_seed
from raindrop.table.event_table import EventTable

Floats = NDArray[np.float64]

# mean, standard deviation, change per unit of severity in standard deviations, hours between readings
WARD_SENSORS = {
    "HR": (85.0, 12.0, 0.6, 2.0),
    "MAP": (80.0, 10.0, -0.6, 2.0),
    "RR": (18.0, 4.0, 0.6, 2.5),
    "SpO2": (96.0, 2.0, -0.5, 2.5),
    "Temp": (37.0, 0.6, 0.2, 5.0),
    "GCS": (13.0, 2.0, -0.5, 6.0),
    "Urine": (90.0, 35.0, -0.5, 5.0),
    "Lactate": (1.8, 0.8, 2.0, 8.0),
    "Creatinine": (1.1, 0.5, 1.5, 10.0),
    "WBC": (10.0, 3.5, 1.0, 10.0),
}
LABORATORY = ("Lactate", "Creatinine", "WBC")
WARD_HOURS = 36.0


def ward(num_samples: int = 800, *, seed: int = 0) -> EventTable:
    """Stays of 36 hours at the sites north and south, with the label `outcome` (worse or stable).

    An unobserved severity, which changes linearly during the stay, moves all sensors and determines the outcome. The
    site south has no laboratory: Lactate, Creatinine and WBC are never read there. `age` is a static.
    """
    if num_samples < 2:
        raise ConfigError(f"A ward has at least 2 samples, not {num_samples}.")
    rng = np.random.default_rng(check_seed(seed))
    start, slope = rng.normal(0, 0.7, num_samples), rng.normal(0, 1.0, num_samples)
    worse = rng.random(num_samples) < 1 / (1 + np.exp(-2.5 * (start + slope - 1.0)))
    south = rng.random(num_samples) < 0.4
    ids = np.array([f"stay {at:04d}" for at in range(num_samples)])
    frames = []
    for name, (mean, deviation, effect, interval) in WARD_SENSORS.items():
        count = rng.poisson(WARD_HOURS / interval, num_samples)
        if name in LABORATORY:
            count[south] = 0
        owner = np.repeat(np.arange(num_samples), count)
        time = rng.uniform(0, WARD_HOURS, len(owner))
        usual = rng.normal(0, 0.7, num_samples)  # the individual baseline
        severity = start[owner] + slope[owner] * time / WARD_HOURS
        value = mean + deviation * (effect * severity + usual[owner] + rng.normal(0, 0.7, len(owner)))
        frames.append(pl.DataFrame({"sample": ids[owner], "time": time.round(2), "sensor": name, "value": value}))
    samples = pl.DataFrame(
        {
            "sample": ids,
            "outcome": np.where(worse, "worse", "stable"),
            "site": np.where(south, "south", "north"),
            "age": rng.normal(62, 14, num_samples).round(),
        }
    )
    return EventTable.from_frames(
        pl.concat(frames), samples, label="outcome", statics=["age"], sensors=list(WARD_SENSORS), duplicates="mean"
    )


def machine(num_shifts: int = 60, *, num_sensors: int = 12, seed: int = 0) -> EventTable:
    """Shifts of eight hours of one machine: sensors that follow its load, each on its own clock, with outages.

    A sensor reads the load (temperatures smoothed, others at once), in its own unit and with noise, every two to ten
    minutes. In each shift about a third of the sensors are out for one to three hours. Times are in hours.
    """
    if num_shifts < 1 or num_sensors < 2:
        raise ConfigError(f"A machine has at least 1 shift and 2 sensors, not {num_shifts} and {num_sensors}.")
    rng = np.random.default_rng(check_seed(seed))
    kinds = ("power", "flow", "pressure", "temperature", "vibration", "speed")
    names = [f"{kinds[at % len(kinds)]} {at // len(kinds) + 1}" for at in range(num_sensors)]
    interval = rng.uniform(2, 10, num_sensors) / 60
    level, unit = rng.uniform(20, 400, num_sensors), rng.uniform(1, 20, num_sensors)
    step = 1 / 60
    frames = []
    for shift in range(num_shifts):
        load = _fluctuation(int(8 / step) + 1, 0.8 / step, rng)
        slow = lfilter([step / 0.5], [1, step / 0.5 - 1], load)  # reacts within half an hour
        for at, name in enumerate(names):
            time = np.cumsum(rng.uniform(0.5, 1.5, int(16 / interval[at])) * interval[at])
            out, length = rng.uniform(0, 7), rng.uniform(1, 3) if rng.random() < 1 / 3 else 0.0
            time = time[(time < 8) & ~((time > out) & (time < out + length))]
            signal = slow if name.startswith("temperature") else load
            value = signal[(time / step).astype(np.int64)] + 0.15 * rng.standard_normal(len(time))
            frames.append(
                pl.DataFrame(
                    {
                        "sample": f"shift {shift:03d}",
                        "time": time.round(5),
                        "sensor": name,
                        "value": level[at] + unit[at] * value,
                    }
                )
            )
    return EventTable.from_frames(pl.concat(frames), sensors=names)


def stations(days: float = 40.0, *, num_stations: int = 12, gaps: float = 0.15, seed: int = 0) -> EventTable:
    """One long series of a city's measuring stations, with their positions in `table.sensor_columns` (x and y, in km).

    A field of pollution drifts over the city with the wind, from west to east, three kilometres per hour: a station
    reads what the stations to its west read before. Each reads about once an hour at its own minute, and is silent for
    six to thirty hours now and then; `gaps` is that share of its time. Times are in hours.
    """
    if days <= 1 or num_stations < 2 or not 0 <= gaps < 0.9:
        raise ConfigError(
            f"Stations need more than 1 day, 2 stations and a share of gaps below 0.9, not {days}, {num_stations} and "
            f"{gaps}."
        )
    rng = np.random.default_rng(check_seed(seed))
    x, y = rng.uniform(0, 12, num_stations), rng.uniform(0, 6, num_stations)
    names = [f"station {at + 1:02d}" for at in range(num_stations)]
    speed, hours, waves = 3.0, 24 * days, 40  # km per hour
    length, angle = rng.uniform(15, 60, waves), rng.normal(0, 0.4, waves)  # km, direction
    phase = rng.uniform(0, 2 * np.pi, waves)
    frames = []
    for at, name in enumerate(names):
        time = np.arange(0, hours) + rng.uniform(0, 1) + rng.uniform(-0.1, 0.1, int(np.ceil(hours)))
        silent = np.zeros(len(time), dtype=bool)
        while silent.mean() < gaps:
            start = rng.uniform(0, hours)
            silent |= (time >= start) & (time < start + rng.uniform(6, 30))
        time = np.unique(np.clip(time[~silent], 0, None))
        along = np.cos(angle) * (x[at] - speed * time[:, None]) + np.sin(angle) * y[at]
        field = np.cos(2 * np.pi * along / length + phase).sum(1) * np.sqrt(2 / waves)
        daily = 0.4 * np.sin(2 * np.pi * time / 24)
        value = 60 + 18 * (field + daily + 0.25 * rng.standard_normal(len(time)))
        frames.append(pl.DataFrame({"sample": "city", "time": time.round(4), "sensor": name, "value": value.round(2)}))
    positions = pl.DataFrame({"sensor": names, "x": x.round(2), "y": y.round(2)})
    return EventTable.from_frames(pl.concat(frames), sensors=positions)


def _fluctuation(steps: int, memory: float, rng: np.random.Generator) -> Floats:
    """A stationary autoregressive series of variance 1 that forgets over `memory` steps."""
    kept = np.exp(-1 / memory)
    noise = rng.standard_normal(steps) * np.sqrt(1 - kept**2)
    noise[0] = rng.standard_normal()
    series: Floats = lfilter([1.0], [1.0, -kept], noise)
    return series
