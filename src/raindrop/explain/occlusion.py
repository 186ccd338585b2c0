"""What moved a sample's score: leave out a sensor, or one reading, and score it again. Works for every model."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from rich.progress import track

from raindrop.errors import DataError, suggest
from raindrop.estimators.classifier import Classifier
from raindrop.table.event_table import EventTable

MAX_READINGS = 400_000  # of copies that are scored at once

Positions = NDArray[np.int64]


def sensor_contributions(classifier: Classifier, table: EventTable, target: Any = None) -> pl.DataFrame:
    """For each sample and each sensor it has: how the score changes through that sensor's readings.

    The score is the log odds of the class `target` (the last of `classes_` where not given). `contribution` is the
    score minus that without the sensor: above 0 where its readings speak for the class. Contributions do not add up:
    two sensors that say the same contribute little each.
    Columns: sample, sensor, readings, contribution, probability, without (the probability without the sensor).
    """
    column = _column(classifier, target)
    sensor = np.asarray(table.sensor[table.rows()], dtype=np.int64)
    owner = np.repeat(np.arange(len(table)), table.count)
    pair, readings = np.unique(owner * len(table.sensors) + sensor, return_counts=True)
    sample, left_out = np.divmod(pair, max(len(table.sensors), 1))
    without = np.empty(len(pair), dtype=np.float64)
    for chosen in _chunks(classifier, table, sample):
        copies = table[sample[chosen]]
        gone = np.repeat(left_out[chosen], copies.count)
        without[chosen] = _scored(classifier, copies.where(copies.sensor[copies.rows()] != gone), column)
    names = pl.Series(table.sensors, dtype=pl.String)
    told = {"sensor": names.gather(left_out), "readings": readings}
    return _frame(classifier, table, column, sample, told, without)


def reading_contributions(classifier: Classifier, table: EventTable, target: Any = None) -> pl.DataFrame:
    """For each reading of each sample: how the score changes through it; as `sensor_contributions`.

    Cost grows with the square of a sample's readings: choose the samples first, such as table[["132539"]].
    Columns: sample, time, sensor, value, contribution, probability, without.
    """
    column = _column(classifier, target)
    sample = np.repeat(np.arange(len(table)), table.count)  # one copy per reading
    place = np.arange(table.num_readings) - np.repeat(np.cumsum(table.count) - table.count, table.count)
    without = np.empty(len(sample), dtype=np.float64)
    for chosen in _chunks(classifier, table, sample):
        copies = table[sample[chosen]]
        rank = np.arange(copies.num_readings) - np.repeat(np.cumsum(copies.count) - copies.count, copies.count)
        without[chosen] = _scored(classifier, copies.where(rank != np.repeat(place[chosen], copies.count)), column)
    events = table.events()
    told = {"time": events["time"], "sensor": events["sensor"].cast(pl.String), "value": events["value"]}
    return _frame(classifier, table, column, sample, told, without)


def _column(classifier: Classifier, target: Any) -> int:
    """Which column of the probabilities is the class `target`."""
    names = [str(label) for label in classifier.classes_]
    if target is None:
        return len(names) - 1
    if str(target) not in names:
        raise DataError(f"The model has no class '{target}'; {suggest(str(target), names)}")
    return names.index(str(target))


def _chunks(classifier: Classifier, table: EventTable, sample: Positions) -> Any:
    """The copies, one of `sample` each, in runs of bounded size, with a bar where the classifier shows some."""
    number = np.cumsum(table.count[sample]) // MAX_READINGS
    chunks = np.split(np.arange(len(sample)), np.flatnonzero(np.diff(number)) + 1) if len(sample) else []
    return track(chunks, "leaving out", disable=not classifier.progress)


@torch.inference_mode()
def _scored(classifier: Classifier, copies: EventTable, column: int) -> NDArray[np.float64]:
    """(copy,) the probability of the class at `column`."""
    parts = [classifier.to_predictions(output)[:, column] for _, output in classifier.run_model(copies)]
    return np.concatenate([np.zeros(0), *parts])


def _frame(
    classifier: Classifier,
    table: EventTable,
    column: int,
    sample: Positions,
    told: dict[str, Any],
    without: NDArray[np.float64],
) -> pl.DataFrame:
    """The frame of contributions, strongest first within each sample."""
    probability = _scored(classifier, table, column)[sample]
    ids = pl.Series(table.ids, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "sample": ids.gather(sample),
            **told,
            "contribution": _log_odds(probability) - _log_odds(without),
            "probability": probability,
            "without": without,
        }
    )
    order = np.lexsort((-np.abs(frame["contribution"].to_numpy()), sample))
    return frame[order]


def _log_odds(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log odds; a probability that float32 cannot tell from 0 or 1 counts as the nearest that it can."""
    bounded = np.clip(probability, 6e-8, 1 - 6e-8)
    odds: NDArray[np.float64] = np.log(bounded / (1 - bounded))
    return odds
