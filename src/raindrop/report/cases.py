"""The samples a report lets a person pick: which ones, and what is kept of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from raindrop.estimators.classifier import Classifier
from raindrop.explain.occlusion import sensor_contributions
from raindrop.table.event_table import EventTable

MOST_READINGS = 120_000  # of all samples together; more would make the page slow on a phone


@dataclass(frozen=True)
class Case:
    """One sample as the page shows it."""

    id: str
    label: int
    probability: NDArray[np.float32]  # (class,)
    sensor: NDArray[np.int64]  # (n,) in order of sensor, then time
    time: NDArray[np.float64]
    value: NDArray[np.float64]
    attention: NDArray[np.float64] | None  # (n,) 1 is what even attention over the sample's times would give
    contribution: NDArray[np.float64]  # (sensor,) to the log odds of the class in question
    without: NDArray[np.float64]  # (sensor,) the probability of that class without the sensor's readings
    statics: dict[str, Any]


def choose(truth: NDArray[np.int64], probability: NDArray[Any], most: int, seed: int) -> NDArray[np.int64]:
    """Positions of at most `most` samples: a quarter the worst errors, a quarter the extreme scores, others by chance.

    Of these, as many are drawn of each class as there are to be had, so that a rare class can be looked at.
    """
    if len(truth) <= most:
        return np.arange(len(truth))
    score = probability[:, -1]
    order = np.argsort(score, kind="stable")
    ends = most // 8
    errors = np.argsort(probability[np.arange(len(truth)), truth], kind="stable")[: most // 4]
    chosen = np.unique(np.concatenate([errors, order[:ends], order[len(order) - ends :]]))
    rest = np.setdiff1d(np.arange(len(truth)), chosen)
    rest = np.random.default_rng(seed).permutation(rest)
    turn = np.empty(len(rest), dtype=np.int64)  # the how-manieth of its class: low turns of all classes come first
    for code in np.unique(truth[rest]):
        of_class = truth[rest] == code
        turn[of_class] = np.arange(of_class.sum())
    taken = rest[np.argsort(turn, kind="stable")[: most - len(chosen)]]
    return np.sort(np.concatenate([chosen, taken]))


def cases(classifier: Classifier, table: EventTable, truth: NDArray[np.int64], most_readings: int) -> list[Case]:
    """What the page keeps of each sample of `table`; long samples are thinned evenly until all of it fits."""
    table = table.in_unit(classifier.time_unit_)
    known = np.isin(np.array(table.sensors), classifier.scaler_.observed_sensors)
    table = table.where(known[table.sensor[table.rows()]])  # the model ignores the readings of any other sensor
    probability = classifier.predict_proba(table)
    contribution, without = contributions(classifier, table, probability)
    attention = attention_of_readings(classifier, table)
    keep = thinned(table.count, most_readings)
    position = {name: at for at, name in enumerate(classifier.scaler_.sensors)}
    code = np.array([position.get(name, -1) for name in table.sensors], dtype=np.int64)
    offsets, rows = table.offsets, table.rows()
    named = [column.name for column in classifier.scaler_.statics]
    statics = table.samples.select(named).to_dicts() if named else [{}] * len(table)
    held = []
    for at, name in enumerate(table.ids):
        mine = np.arange(offsets[at], offsets[at + 1])[keep[offsets[at] : offsets[at + 1]]]
        sensor = code[table.sensor[rows[mine]]]
        order = np.argsort(sensor, kind="stable")
        mine = mine[order]
        held.append(
            Case(
                id=name,
                label=int(truth[at]),
                probability=probability[at],
                sensor=sensor[order],
                time=np.asarray(table.time[rows[mine]], dtype=np.float64),
                value=np.asarray(table.value[rows[mine]], dtype=np.float64),
                attention=None if attention is None else attention[mine],
                contribution=contribution[at],
                without=without[at],
                statics=statics[at],
            )
        )
    return held


def thinned(count: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Which readings to keep so that there are at most `most`: the longest samples give first, evenly over time."""
    low, high = 1, int(max(count.max(initial=1), 1))
    while low < high:  # the largest number per sample that fits
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(count, middle).sum() <= most else (low, middle - 1)
    owner = np.repeat(np.arange(len(count)), count)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    wanted = np.minimum(count, low)[owner]
    return np.asarray((rank + 1) * wanted // count[owner] > rank * wanted // count[owner])


def contributions(
    classifier: Classifier, table: EventTable, probability: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(samples, sensors) what each sensor adds to the log odds, and the probability without its readings.

    Two classes: of the second one. More: of the class that the sample is predicted to be of. 0 without a reading.
    """
    sensors, found = classifier.scaler_.sensors, np.zeros((2, len(table), len(classifier.scaler_.sensors)))
    asked = np.ones(len(table), dtype=np.int64) if len(classifier.classes_) == 2 else probability.argmax(1)
    for code in np.unique(asked):
        chosen = np.flatnonzero(asked == code)
        frame = sensor_contributions(classifier, table[chosen], classifier.classes_[code])
        place = {name: at for at, name in enumerate(table.ids)}
        sample = [place[name] for name in frame["sample"].to_list()]
        sensor = [sensors.index(name) for name in frame["sensor"].to_list()]
        found[0, sample, sensor] = frame["contribution"].to_numpy()
        found[1, sample, sensor] = frame["without"].to_numpy()
    return found[0], found[1]


@torch.inference_mode()
def attention_of_readings(classifier: Classifier, table: EventTable) -> NDArray[np.float64] | None:
    """(readings,): a sensor's attention to the times of its own readings, times the number of the sample's times."""
    model, parts = classifier.model_.eval(), []
    for batch in classifier.batches(table):
        weights = model(batch).time_weights
        if weights is None:
            return None
        relative = weights.flatten()[batch.cell] * batch.samples.counts[batch.sample]
        parts.append(relative.numpy().astype(np.float64))
    return np.concatenate(parts) if parts else None
