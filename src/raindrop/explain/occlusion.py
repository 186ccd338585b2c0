"""Occlusion: leave out a sensor or a single reading and predict again. Works for every model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.progress import track
from scipy.special import logit

from raindrop.errors import ConfigError, DataError, suggest
from raindrop.estimators.classifier import Classifier
from raindrop.estimators.samples import SampleEstimator
from raindrop.table.event_table import EventTable

MAX_READINGS = 400_000  # maximum number of readings scored together

Positions = NDArray[np.int64]


def sensor_contributions(classifier: Classifier, table: EventTable, target: Any = None) -> pl.DataFrame:
    """For each sample and each sensor with readings in it: how the score changes when that sensor is left out.

    The score is the log odds of class `target` (by default the positive class of two). `contribution` is the score
    minus the score without the sensor, so it is positive if the readings raise the probability of the class.
    Contributions do not add up: of two sensors with the same information, each alone contributes little.
    Columns: sample, sensor, readings, contribution, probability, without (the probability without the sensor).
    """
    column = _column(classifier, target)
    sample, left_out, predicted = predictions_without_sensors(classifier, table)
    pair = sample * len(table.sensors) + left_out
    readings = np.bincount(np.searchsorted(pair, _pairs(table)), minlength=len(pair))
    names = pl.Series(table.sensors, dtype=pl.String)
    columns = {"sensor": names.gather(left_out), "readings": readings}
    return _frame(classifier, table, column, sample, columns, predicted[:, column].astype(np.float64))


def predictions_without_sensors(
    estimator: SampleEstimator, table: EventTable
) -> tuple[Positions, Positions, NDArray[np.float32]]:
    """For each sample and each sensor with readings in it: their positions, and the prediction without the sensor.

    Sorted by sample, then sensor. Predictions are calibrated, as in `estimator.predictions`.
    """
    sample, left_out = np.divmod(np.unique(_pairs(table)), max(len(table.sensors), 1))
    parts = [estimator.predictions(table[:0])]
    for chunk in _chunks(estimator, table, sample):
        copies = table[sample[chunk]]
        hidden = np.repeat(left_out[chunk], copies.count)
        partial = copies.where(copies.sensor[copies.rows()] != hidden)
        parts += [estimator.to_predictions(output) for _, output in estimator.run_model(partial)]
    return sample, left_out, np.concatenate(parts)


def _pairs(table: EventTable) -> Positions:
    """(readings,) one number for each pair of a sample and a sensor."""
    owner = np.repeat(np.arange(len(table)), table.count)
    return owner * len(table.sensors) + np.asarray(table.sensor[table.rows()], dtype=np.int64)


def reading_contributions(classifier: Classifier, table: EventTable, target: Any = None) -> pl.DataFrame:
    """For each reading of each sample: how the score changes when it is left out; see `sensor_contributions`.

    The cost grows with the square of a sample's readings, so select samples first, for example table[["132539"]].
    Columns: sample, time, sensor, value, contribution, probability, without.
    """
    column = _column(classifier, target)
    sample = np.repeat(np.arange(len(table)), table.count)  # one copy per reading
    left_out = _rank_in_sample(table.count)
    without = np.empty(len(sample), dtype=np.float64)
    for chunk in _chunks(classifier, table, sample):
        copies = table[sample[chunk]]
        keep = _rank_in_sample(copies.count) != np.repeat(left_out[chunk], copies.count)
        without[chunk] = _probability(classifier, copies.where(keep), column)
    events = table.events()
    columns = {"time": events["time"], "sensor": events["sensor"].cast(pl.String), "value": events["value"]}
    return _frame(classifier, table, column, sample, columns, without)


def _column(classifier: Classifier, target: Any) -> int:
    """The column of the probabilities that belongs to class `target`."""
    names = [str(label) for label in classifier.classes_]
    if target is None:
        if classifier.positive_code_ is None:
            raise ConfigError(f"The model has {len(names)} classes; choose one with target=CLASS: {', '.join(names)}.")
        return classifier.positive_code_
    if str(target) not in names:
        raise DataError(f"The model has no class '{target}'; {suggest(str(target), names)}")
    return names.index(str(target))


def _rank_in_sample(count: Positions) -> Positions:
    """(readings,) the number of earlier readings of the same sample."""
    first = np.cumsum(count) - count
    rank: Positions = np.arange(count.sum()) - np.repeat(first, count)
    return rank


def _chunks(estimator: SampleEstimator, table: EventTable, sample: Positions) -> Iterable[Positions]:
    """Positions in `sample`, one copy of a sample each, in chunks of bounded size; with a progress bar if enabled."""
    number = np.cumsum(table.count[sample]) // MAX_READINGS
    chunks = np.split(np.arange(len(sample)), np.flatnonzero(np.diff(number)) + 1) if len(sample) else []
    return track(chunks, "leaving out", disable=not estimator.progress)


def _probability(classifier: Classifier, table: EventTable, column: int) -> NDArray[np.float64]:
    """(sample,) the calibrated probability of the class at `column`."""
    parts = [classifier.to_predictions(output)[:, column] for _, output in classifier.run_model(table)]
    return np.concatenate([np.zeros(0), *parts])


def _frame(
    classifier: Classifier,
    table: EventTable,
    column: int,
    sample: Positions,
    columns: dict[str, Any],
    without: NDArray[np.float64],
) -> pl.DataFrame:
    """The frame of contributions, largest first within each sample."""
    probability = _probability(classifier, table, column)[sample]
    ids = pl.Series(table.ids, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "sample": ids.gather(sample),
            **columns,
            "contribution": log_odds(probability) - log_odds(without),
            "probability": probability,
            "without": without,
        }
    )
    order = np.lexsort((-np.abs(frame["contribution"].to_numpy()), sample))
    return frame[order]


def log_odds(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log odds, finite: probabilities that float32 rounds to 0 or 1 are replaced by the nearest value that is not."""
    odds: NDArray[np.float64] = logit(np.clip(probability, 6e-8, 1 - 6e-8))
    return odds
