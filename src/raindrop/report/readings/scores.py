"""Errors of predicted readings: of the model and of simple baselines, over all readings and by sensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.estimators.hidden_readings import Comparison, Scenario, compare
from raindrop.estimators.readings import ReadingsEstimator

MAX_CELLS = 20_000_000  # compared readings x sensors; keeps a report on 1,000 sensors to minutes
MIN_COMPARED = 1000  # minimum number of compared readings, whatever the number of sensors
STRETCH = 128  # typical intervals, about the window of a model
MIN_STRETCHES, MAX_SEEN = 16, 2_000_000  # for a very large table: stretches, and readings in them
BASELINES = {
    "linear": "linear interpolation",
    "last": "last value",
    "mean": "mean of the sensor",
    "nearest": "nearest sensors",
}


@dataclass(frozen=True, eq=False)
class SensorErrors:
    """The errors of each sensor with hidden readings."""

    sensor: NDArray[np.int64]  # (s,) position among the sensors of training
    count: NDArray[np.int64]  # (s,) readings
    mae: NDArray[np.float64]  # (s,) in the sensor's own unit
    scaled_mae: NDArray[np.float64]  # (s,) in standard deviations of its training readings
    baseline: NDArray[np.float64]  # (s,) the same for the best baseline over all sensors; NaN if there is none
    coverage: dict[float, NDArray[np.float64]]  # (s,) share of readings within their intervals


@dataclass(frozen=True)
class ScenarioScore:
    """The errors in one scenario of hidden readings."""

    title: str
    hidden: int
    """The number of hidden readings."""
    compared: int
    """The number of those that were predicted."""
    metrics: dict[str, dict[str, float]]
    """By model, then by metric; the report's own model is first."""
    best_baseline: str
    """The baseline with the smallest scaled error; empty if there is none."""
    by_sensor: SensorErrors
    length: float = 0.0
    """How far ahead it looks; 0 if not applicable."""


def limited(scenario: Scenario, num_sensors: int, interval: float, seed: int) -> Scenario:
    """The scenario with few enough hidden readings to compare that a large table takes minutes.

    They are drawn at random from some stretches of the samples, so that not every reading of the table is processed.
    All hidden readings stay hidden. interval: the typical time between readings.
    """
    most = max(MIN_COMPARED, MAX_CELLS // max(num_sensors, 1))
    if len(scenario.truth) <= most:
        return scenario
    rng = np.random.default_rng(seed)
    stretches = pl.struct("sample", (pl.col("time") / (STRETCH * interval)).floor())
    stretch = scenario.truth.select(stretches.rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
    number = int(stretch.max()) + 1
    seen = min(number, max(MIN_STRETCHES, int(MAX_SEEN * number / max(scenario.visible.num_readings, 1))))
    chosen = np.zeros(number, dtype=bool)
    chosen[rng.choice(number, seen, replace=False)] = True
    rows = np.flatnonzero(chosen[stretch])
    rows = np.sort(rng.choice(rows, min(most, len(rows)), replace=False))
    return Scenario(scenario.title, scenario.visible, scenario.truth[rows])


def compare_models(models: Mapping[str, ReadingsEstimator], scenario: Scenario) -> dict[str, Comparison]:
    """Each model on the same hidden readings."""
    return {name: compare(model, scenario.visible, scenario.truth) for name, model in models.items()}


def score(title: str, hidden: int, comparisons: Mapping[str, Comparison], length: float = 0.0) -> ScenarioScore:
    """The errors of the models; the first is the report's own."""
    metrics = {name: comparison.metrics() for name, comparison in comparisons.items()}
    own, *baselines = comparisons
    best = min(baselines, key=lambda name: metrics[name]["standardised_mae"], default="")
    by_sensor = sensor_errors(comparisons[own], comparisons.get(best))
    return ScenarioScore(title, hidden, len(comparisons[own]), metrics, best, by_sensor, length)


def sensor_errors(comparison: Comparison, baseline: Comparison | None) -> SensorErrors:
    """The errors by sensor, and those of a baseline on the same readings."""
    sensor, inverse, count = np.unique(comparison.sensor, return_inverse=True, return_counts=True)

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(inverse, values, minlength=len(sensor)) / count)

    size = np.abs(comparison.error)
    return SensorErrors(
        sensor=sensor,
        count=count,
        mae=mean(size),
        scaled_mae=mean(size / comparison.scale),
        baseline=np.full(len(sensor), np.nan) if baseline is None else mean(np.abs(baseline.error) / baseline.scale),
        coverage={share: mean(inside.astype(np.float64)) for share, inside in comparison.covered.items()},
    )
