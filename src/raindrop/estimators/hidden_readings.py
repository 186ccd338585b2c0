"""Hide readings of a table, predict them, and compare the predictions with the true values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import ConfigError
from raindrop.estimators.forecaster import Forecaster
from raindrop.estimators.imputer import Imputer
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hold_out_blocks, hold_out_future, hold_out_readings, hold_out_sensors
from raindrop.table.queries import QueryTable, spans
from raindrop.table.time_columns import SECONDS

BLOCK = 12  # default length of a block, in typical intervals
COVERAGES = (0.8, 0.95)


@dataclass(frozen=True)
class Scenario:
    """A set of hidden readings."""

    title: str
    """A description of what is hidden."""
    visible: EventTable
    truth: pl.DataFrame
    """The hidden readings: sample, time, sensor, value."""


def with_known_sensors(estimator: ReadingsEstimator, table: EventTable) -> EventTable:
    """The table with only the sensors seen in training; readings of other sensors raise unless they are ignored."""
    codes = estimator.scaler_.sensor_codes(table, ignore_unknown=estimator.unknown_sensors == "ignore")
    known = codes[table.sensor[table.rows()]] >= 0
    return table if known.all() else table.where(known)


def typical_block(estimator: ReadingsEstimator, table: EventTable) -> float:
    """The default length of a hidden block, in the table's time unit."""
    return float(f"{BLOCK * float(np.median(intervals_of(estimator, table))):.3g}")


def intervals_of(estimator: ReadingsEstimator, table: EventTable) -> NDArray[np.float64]:
    """(sensors of training,) the typical time between two readings, in the table's time unit."""
    return estimator.interval_ * (SECONDS[estimator.time_unit_] / SECONDS[table.time_unit])


def hide_in_gaps(
    imputer: Imputer,
    table: EventTable,
    *,
    readings: Sequence[float] = (),
    blocks: Sequence[float] = (),
    sensors: Sequence[float] = (),
    seed: int = 0,
) -> Iterator[Scenario]:
    """Hide single readings, blocks, or whole sensors; one scenario of each if nothing is given."""
    if not (readings or blocks or sensors):
        readings, blocks, sensors = (0.1,), (typical_block(imputer, table),), (0.1,) if len(table.sensors) > 1 else ()
    for share in readings:
        yield Scenario(f"{share:.0%} of all readings", *hold_out_readings(table, share, seed=seed))
    for length in blocks:
        yield Scenario(f"blocks of {length:g} {table.time_unit}", *hold_out_blocks(table, length, seed=seed))
    for share in sensors:
        yield Scenario(f"{share:.0%} of the sensors", *hold_out_sensors(table, share, seed=seed))


def horizon_of(forecaster: Forecaster, table: EventTable) -> float:
    """The forecaster's horizon in the table's time unit."""
    return float(forecaster.horizon) * SECONDS[forecaster.time_unit_] / SECONDS[table.time_unit]


def with_cutoffs(forecaster: Forecaster, table: EventTable) -> tuple[EventTable, NDArray[np.float64]]:
    """The samples with a reading up to the cutoff, and (samples,) their cutoffs.

    If the forecaster has no cutoff, each sample is cut one horizon before its last reading.
    """
    first, last = spans(table)
    cutoff = last - horizon_of(forecaster, table) if forecaster.cutoff is None else forecaster.cutoffs(table)
    known = (first <= cutoff) & (table.count > 0)
    if not known.any():
        raise ConfigError("No sample has a reading up to the cutoff. Choose a later cutoff.")
    return table[np.flatnonzero(known)], cutoff[known]


def hide_future(
    forecaster: Forecaster, table: EventTable, cutoff: NDArray[np.float64], horizons: Sequence[float] = ()
) -> Iterator[Scenario]:
    """Hide everything after the cutoff and compare up to each horizon; by default, up to the forecaster's horizon."""
    for horizon in horizons or (horizon_of(forecaster, table),):
        title = f"up to {horizon:g} {table.time_unit} ahead"
        yield Scenario(title, *hold_out_future(table, cutoff, horizon))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Predicted and true readings, in their own units."""

    queries: QueryTable
    sensor: NDArray[np.int64]  # (q,) position among the sensors of training
    truth: NDArray[np.float64]  # (q,)
    predicted: NDArray[np.float64]  # (q,)
    scale: NDArray[np.float64]  # (q,) the standard deviation of the sensor in training
    covered: dict[float, NDArray[np.bool_]]
    """(q,) whether the interval contains the true value, by coverage; empty if there are no intervals."""

    @property
    def error(self) -> NDArray[np.float64]:
        """(q,) predicted minus true."""
        return self.predicted - self.truth

    def __len__(self) -> int:
        return len(self.truth)

    def __getitem__(self, chosen: NDArray[Any]) -> Comparison:
        """A subset of the readings."""
        queries = replace(
            self.queries, **{name: getattr(self.queries, name)[chosen] for name in ("sample", "sensor", "time")}
        )
        covered = {coverage: inside[chosen] for coverage, inside in self.covered.items()}
        return Comparison(
            queries, self.sensor[chosen], self.truth[chosen], self.predicted[chosen], self.scale[chosen], covered
        )

    def metrics(self) -> dict[str, float]:
        """The same metrics as `evaluate` of the estimator."""
        count = np.bincount(self.sensor)
        asked = count > 0
        scaled = self.error / self.scale
        sums = [np.bincount(self.sensor, weights) for weights in (np.abs(scaled), scaled**2)]
        mae, mse = (each[asked] / count[asked] for each in sums)
        return {
            "mae": float(np.abs(self.error).mean()),
            "rmse": float(np.sqrt((self.error**2).mean())),
            "standardised_mae": float(mae.mean()),
            "standardised_rmse": float(np.sqrt(mse).mean()),
            **{f"coverage_{100 * coverage:.0f}": float(inside.mean()) for coverage, inside in self.covered.items()},
        }


def compare(estimator: ReadingsEstimator, visible: EventTable, truth: Any) -> Comparison:
    """Predict the readings of `truth` from the visible ones, as `estimator.evaluate` does."""
    queries, value, answers, distance = estimator._answers_to(visible, truth)
    codes = estimator._codes(queries)
    scale, mean = estimator.scaler_.scale[codes], estimator.scaler_.mean[codes]
    levels, covered = estimator.task_.levels, {}
    scaled = (value - mean) / scale
    if estimator.conformal_ is not None:
        for coverage in COVERAGES:
            interval = estimator.conformal_.intervals(answers, distance, coverage, levels)
            covered[coverage] = (interval[:, 0] <= scaled) & (scaled <= interval[:, 1])
    predicted = answers[:, len(levels) // 2] * scale + mean
    return Comparison(queries, codes, value, predicted, scale, covered)
