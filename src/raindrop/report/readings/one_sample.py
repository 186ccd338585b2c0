"""The gaps of one sample, for a plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from raindrop.errors import ConfigError, DataError, suggest
from raindrop.estimators.forecaster import Forecaster
from raindrop.estimators.hidden_readings import horizon_of, intervals_of, with_known_sensors
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.report.readings.cases import GapCase, gap_cases
from raindrop.report.readings.gaps import Window, silent_periods
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns, to_polars
from raindrop.table.hide import hold_out_future
from raindrop.table.queries import spans

MAX_POINTS = 2000  # per sensor; more than a plot can show


def sample_case(
    estimator: ReadingsEstimator,
    table: EventTable,
    sample: str,
    sensors: Sequence[str] | None,
    *,
    truth: Any,
    coverage: float,
    max_sensors: int,
) -> GapCase | None:
    """The content of a plot of a sample, from its first reading to its last or to the horizon; None without a gap.

    If no truth is given, readings after a forecaster's cutoff are the truth.
    """
    if max_sensors < 1:
        raise ConfigError(f"max_sensors={max_sensors}: a plot needs at least one sensor.")
    estimator._require_fitted()
    one = with_known_sensors(estimator, table[[sample]])
    if not one.num_readings:
        raise DataError(f"Sample '{sample}' has no readings, so there is nothing to fill.")
    hidden = None if truth is None else _of_sample(truth, sample)
    start, stop, ahead = float(spans(one)[0][0]), float(spans(one)[1][0]), None
    if isinstance(estimator, Forecaster):
        cutoff = estimator.cutoffs(one)
        if hidden is None and stop > cutoff[0]:
            one, hidden = hold_out_future(one, cutoff, horizon_of(estimator, one))
        ahead = (cutoff, cutoff + horizon_of(estimator, one))
        stop = float(ahead[1][0])
    codes = _chosen(estimator, one, sensors, max_sensors)
    if not codes:
        return None
    cases = gap_cases(
        estimator,
        one,
        [Window(0, codes[0], start, stop, "")],
        truth=hidden,
        ahead=ahead,
        sensors=codes,
        coverage=coverage,
        max_values=MAX_POINTS,
        max_readings=MAX_POINTS,
    )
    return cases[0] if cases else None


def _of_sample(truth: Any, sample: str) -> pl.DataFrame:
    frame = to_polars(truth, "truth")
    require_columns(frame, {name: name for name in ("sample", "time", "sensor", "value")}, "truth")
    return frame.filter(pl.col("sample").cast(pl.String) == sample).with_columns(pl.col("sensor").cast(pl.String))


def _chosen(
    estimator: ReadingsEstimator, one: EventTable, sensors: Sequence[str] | None, max_sensors: int
) -> list[int]:
    """The positions of these sensors in training; by default those with the longest gaps or most readings."""
    scaler = estimator.scaler_
    if sensors is not None:
        known = scaler.observed_sensors
        for name in sensors:
            if name not in known:
                raise DataError(f"Sensor '{name}' was not read in training; {suggest(name, known)}")
        return [scaler.sensors.index(name) for name in sensors]
    codes = scaler.sensor_codes(one, ignore_unknown=True)
    if isinstance(estimator, Forecaster):
        count = np.bincount(codes[one.sensor[one.rows()]], minlength=len(scaler.sensors))
        order = np.argsort(-count, kind="stable")
        return [int(code) for code in order[:max_sensors] if count[code]]
    interval = np.where(scaler.observed, intervals_of(estimator, one), np.inf)
    gaps = silent_periods(one, codes, interval)
    order = np.argsort(-gaps.score, kind="stable")
    return list(dict.fromkeys(gaps.sensor[order].tolist()))[:max_sensors]
