"""The samples that can be selected on the page: which ones, and what the page shows of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raindrop.batch.host import to_numpy
from raindrop.estimators.classifier import Classifier
from raindrop.explain.occlusion import sensor_contributions
from raindrop.table.event_table import EventTable

MAX_READINGS = 120_000  # over all samples; more would make the page slow on a phone


@dataclass(frozen=True)
class Case:
    """One sample as the page shows it."""

    id: str
    label: int
    probability: NDArray[np.float32]  # (class,)
    sensor: NDArray[np.int64]  # (n,) ordered by sensor, then time
    time: NDArray[np.float64]
    value: NDArray[np.float64]
    attention: NDArray[np.float64] | None  # (n,) relative to uniform attention over the sample's times
    contribution: NDArray[np.float64]  # (sensor,) to the log odds of the class that `explained_class` gives
    without: NDArray[np.float64]  # (sensor,) the probability of that class without the sensor's readings
    statics: dict[str, Any]


def choose(
    truth: NDArray[np.int64], probability: NDArray[Any], number: int, seed: int, positive: int | None
) -> NDArray[np.int64]:
    """Positions of at most `number` samples: a quarter the worst errors, a quarter extreme scores, the rest random.

    The score is the probability of the positive class of two, or of the predicted class of more. The random ones are
    balanced over classes as far as possible, so that a rare class is represented.
    """
    if len(truth) <= number:
        return np.arange(len(truth))
    score = probability.max(1) if positive is None else probability[:, positive]
    order = np.argsort(score, kind="stable")
    extremes = number // 8  # at each end
    errors = np.argsort(probability[np.arange(len(truth)), truth], kind="stable")[: number // 4]
    chosen = np.unique(np.concatenate([errors, order[:extremes], order[len(order) - extremes :]]))
    rest = np.setdiff1d(np.arange(len(truth)), chosen)
    rest = np.random.default_rng(seed).permutation(rest)
    rank = np.empty(len(rest), dtype=np.int64)  # rank within its class: low ranks of all classes come first
    for code in np.unique(truth[rest]):
        members = truth[rest] == code
        rank[members] = np.arange(members.sum())
    random = rest[np.argsort(rank, kind="stable")[: number - len(chosen)]]
    return np.sort(np.concatenate([chosen, random]))


def cases(classifier: Classifier, table: EventTable, truth: NDArray[np.int64], max_readings: int) -> list[Case]:
    """What the page shows of each sample of `table`; long samples are thinned evenly until all of them fit."""
    table = table.in_unit(classifier.time_unit_)
    known = np.isin(np.array(table.sensors), classifier.scaler_.observed_sensors)
    table = table.where(known[table.sensor[table.rows()]])  # the model ignores the readings of any other sensor
    probability = classifier.predict_proba(table)
    contribution, without = contributions(classifier, table, probability)
    attention = attention_of_readings(classifier, table)
    keep = thinned(table.count, max_readings)
    position = {name: at for at, name in enumerate(classifier.scaler_.sensors)}
    code = np.array([position.get(name, -1) for name in table.sensors], dtype=np.int64)
    offsets, rows = table.offsets, table.rows()
    static_names = [column.name for column in classifier.scaler_.statics]
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
                label=int(truth[at]),
                probability=probability[at],
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


def explained_class(probability: NDArray[Any], positive: int | None) -> NDArray[np.int64]:
    """(samples,) the class whose score contributions explain: the positive one of two, the predicted one of more."""
    if positive is None:
        return np.asarray(probability.argmax(1), dtype=np.int64)
    return np.full(len(probability), positive, dtype=np.int64)


def contributions(
    classifier: Classifier, table: EventTable, probability: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(samples, sensors) each sensor's contribution to the log odds, and the probability without its readings.

    Both are of `explained_class`, and 0 for a sensor without readings.
    """
    sensors = classifier.scaler_.sensors
    contribution, without = np.zeros((2, len(table), len(sensors)))
    explained = explained_class(probability, classifier.positive_code_)
    position = {name: at for at, name in enumerate(table.ids)}
    for code in np.unique(explained):
        frame = sensor_contributions(classifier, table[np.flatnonzero(explained == code)], classifier.classes_[code])
        sample = [position[name] for name in frame["sample"].to_list()]
        sensor = [sensors.index(name) for name in frame["sensor"].to_list()]
        contribution[sample, sensor] = frame["contribution"].to_numpy()
        without[sample, sensor] = frame["without"].to_numpy()
    return contribution, without


def attention_of_readings(classifier: Classifier, table: EventTable) -> NDArray[np.float64] | None:
    """(readings,): a sensor's attention to the times of its own readings, times the number of the sample's times."""
    parts = []
    for batch, output in classifier.run_model(table):
        if output.time_weights is None:
            return None
        relative = output.time_weights.flatten()[batch.cell] * batch.samples.counts[batch.sample]
        parts.append(to_numpy(relative).astype(np.float64))
    return np.concatenate(parts) if parts else None
