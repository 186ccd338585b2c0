"""The samples that can be selected on the page: how they are chosen, and what the page shows about each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raindrop.batch.host import to_numpy
from raindrop.estimators.samples import SampleEstimator
from raindrop.explain.occlusion import predictions_without_sensors
from raindrop.report.tasks import TaskView
from raindrop.table.event_table import EventTable

MAX_READINGS = 120_000  # over all samples; more would make the page slow on a phone


@dataclass(frozen=True)
class Case:
    """The content of the page about one sample."""

    id: str
    truth: Any  # as the task encodes it
    predicted: NDArray[np.float32]  # as the task predicts it
    region: NDArray[Any] | None  # its set or interval, if the model has any
    sensor: NDArray[np.int64]  # (n,) ordered by sensor, then time
    time: NDArray[np.float64]
    value: NDArray[np.float64]
    attention: NDArray[np.float64] | None  # (n,) relative to uniform attention over the sample's times
    contribution: NDArray[np.float64]  # (output, sensor) to the outputs that the task's view explains
    without: NDArray[np.float64]  # (output, sensor) their values without the sensor's readings
    statics: dict[str, Any]


def choose(
    error: NDArray[np.float64], score: NDArray[np.float64], strata: NDArray[np.int64], number: int, seed: int
) -> NDArray[np.int64]:
    """Positions of at most `number` samples: a quarter the worst errors, a quarter extreme scores, the rest random.

    The random ones are balanced over strata as far as possible, so that a rare class is represented.
    """
    if len(error) <= number:
        return np.arange(len(error))
    order = np.argsort(score, kind="stable")
    extremes = number // 8  # at each end
    errors = np.argsort(-error, kind="stable")[: number // 4]
    chosen = np.unique(np.concatenate([errors, order[:extremes], order[len(order) - extremes :]]))
    rest = np.setdiff1d(np.arange(len(error)), chosen)
    rest = np.random.default_rng(seed).permutation(rest)
    rank = np.empty(len(rest), dtype=np.int64)  # rank within its class: low ranks of all classes come first
    for code in np.unique(strata[rest]):
        members = strata[rest] == code
        rank[members] = np.arange(members.sum())
    random = rest[np.argsort(rank, kind="stable")[: number - len(chosen)]]
    return np.sort(np.concatenate([chosen, random]))


def cases(
    estimator: SampleEstimator,
    view: TaskView,
    table: EventTable,
    truth: NDArray[Any],
    regions: NDArray[Any] | None,
    max_readings: int,
) -> list[Case]:
    """The content of the page about each sample of `table`; long samples are thinned evenly until all of them fit."""
    table = table.in_unit(estimator.time_unit_)
    known = np.isin(np.array(table.sensors), estimator.scaler_.observed_sensors)
    table = table.where(known[table.sensor[table.rows()]])  # the model ignores the readings of any other sensor
    predicted = estimator.predictions(table)
    contribution, without = contributions(estimator, view, table, predicted)
    attention = attention_of_readings(estimator, table)
    keep = thinned(table.count, max_readings)
    code = sensor_codes(estimator, table)
    offsets, rows = table.offsets, table.rows()
    static_names = [column.name for column in estimator.scaler_.statics]
    statics = table.samples.select(static_names).to_dicts() if static_names else [{}] * len(table)
    result = []
    for at, name in enumerate(table.ids):
        readings = np.arange(offsets[at], offsets[at + 1])[keep[offsets[at] : offsets[at + 1]]]
        sensor = code[table.sensor[rows[readings]]]
        order = np.argsort(sensor, kind="stable")
        readings = readings[order]
        result.append(
            Case(
                id=name,
                truth=truth[at],
                predicted=predicted[at],
                region=None if regions is None else regions[at],
                sensor=sensor[order],
                time=np.asarray(table.time[rows[readings]], dtype=np.float64),
                value=np.asarray(table.value[rows[readings]], dtype=np.float64),
                attention=None if attention is None else attention[readings],
                contribution=contribution[at],
                without=without[at],
                statics=statics[at],
            )
        )
    return result


def sensor_codes(estimator: SampleEstimator, table: EventTable) -> NDArray[np.int64]:
    """(sensors of the table,) their positions among the sensors of the model; -1 if unknown."""
    position = {name: at for at, name in enumerate(estimator.scaler_.sensors)}
    return np.array([position.get(name, -1) for name in table.sensors], dtype=np.int64)


def thinned(count: NDArray[np.int64], limit: int) -> NDArray[np.bool_]:
    """Which readings to keep so that at most `limit` remain; the longest samples are thinned first, evenly."""
    low, high = 1, int(max(count.max(initial=1), 1))
    while low < high:  # the largest number per sample that fits
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(count, middle).sum() <= limit else (low, middle - 1)
    sample = np.repeat(np.arange(len(count)), count)
    rank = np.arange(len(sample)) - np.repeat(np.cumsum(count) - count, count)
    kept = np.minimum(count, low)[sample]
    return np.asarray((rank + 1) * kept // count[sample] > rank * kept // count[sample])


def contributions(
    estimator: SampleEstimator, view: TaskView, table: EventTable, predicted: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(samples, outputs, sensors) each sensor's contribution to the outputs, and their values without its readings.

    Both are 0 for a sensor without readings.
    """
    sensors = estimator.scaler_.sensors
    sample, left_out, occluded = predictions_without_sensors(estimator, table)
    value, value_without = view.outputs(predicted, predicted), view.outputs(occluded, predicted[sample])
    contribution, without = np.zeros((2, len(table), value.shape[1], len(sensors)))
    code = sensor_codes(estimator, table)[left_out]
    contribution[sample, :, code] = view.effect(value[sample], value_without)
    without[sample, :, code] = value_without
    return contribution, without


def attention_of_readings(estimator: SampleEstimator, table: EventTable) -> NDArray[np.float64] | None:
    """(readings,): a sensor's attention to the times of its own readings, times the number of the sample's times."""
    parts = []
    for batch, output in estimator.run_model(table):
        if output.time_weights is None:
            return None
        relative = output.time_weights.flatten()[batch.cell] * batch.samples.counts[batch.sample]
        parts.append(to_numpy(relative).astype(np.float64))
    return np.concatenate(parts) if parts else None
