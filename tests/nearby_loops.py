"""Decaying averages of a sensor's readings around a time, written from their definition, one reading at a time."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

import numpy as np
from torch import Tensor

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.nearby import MAX_AGE, NO_EVIDENCE

Reading = tuple[float, float]  # time, value


@dataclass(frozen=True)
class Around:
    """A sensor of a sample at a time; lists have one number for each width."""

    both: list[float]
    before: list[float]
    after: list[float]
    log_before: list[float]
    log_after: list[float]
    last: float
    next: float
    line: float
    age: float  # of the latest reading, in typical intervals; MAX_AGE where there is none
    wait: float
    last_time: float | None
    next_time: float | None
    share: float  # how far the time is on the way from the latest reading to the next one

    @property
    def values(self) -> np.ndarray:
        return np.array([*self.both, *self.before, *self.after, self.last, self.next, self.line])

    @property
    def ages(self) -> list[float]:
        return [log(1 + self.age), log(1 + self.wait)]

    @property
    def evidence(self) -> np.ndarray:
        return np.array([*self.log_before, *self.log_after, *self.ages])


def readings_of(batch: Batch, sample: int | Tensor, sensor: int | Tensor) -> list[Reading]:
    """Times and values of one sensor of one sample, in order of time."""
    chosen = ((batch.sample == sample) & (batch.sensor == sensor)).nonzero().flatten().tolist()
    return sorted((float(batch.time[batch.step[n]]), float(batch.value[n])) for n in chosen)


def around(
    readings: list[Reading], time: float, interval: float, scales: list[float], *, strict: bool = False
) -> Around:
    """Weights are exp(-age / (scale * interval)); with `strict`, a reading at the very time is left out."""
    earlier = [(t, x) for t, x in readings if t < time or (t == time and not strict)]
    later = [(t, x) for t, x in readings if t > time]
    sides = [one_side(part, time, interval, scale) for part in (earlier, later) for scale in scales]
    before, log_before = zip(*sides[: len(scales)], strict=True)
    after, log_after = zip(*sides[len(scales) :], strict=True)
    both = []
    for k in range(len(scales)):
        weights = [exp(log_before[k]) * bool(earlier), exp(log_after[k]) * bool(later)]
        both.append((weights[0] * before[k] + weights[1] * after[k]) / (sum(weights) or 1.0))
    last, coming = (earlier or [(None, 0.0)])[-1], (later or [(None, 0.0)])[0]
    share = 0.0 if earlier else 1.0
    if earlier and later:
        share = (time - last[0]) / (coming[0] - last[0])
    return Around(
        both,
        list(before),
        list(after),
        list(log_before),
        list(log_after),
        last[1],
        coming[1],
        last[1] + share * (coming[1] - last[1]),
        min((time - last[0]) / interval, MAX_AGE) if earlier else MAX_AGE,
        min((coming[0] - time) / interval, MAX_AGE) if later else MAX_AGE,
        last[0],
        coming[0],
        share,
    )


def one_side(readings: list[Reading], time: float, interval: float, scale: float) -> tuple[float, float]:
    """The average of these readings and the log of their weights' sum; older than MAX_AGE counts as MAX_AGE old."""
    if not readings:
        return 0.0, NO_EVIDENCE
    ages = [abs(time - t) / interval for t, _ in readings]
    nearest = min(ages)
    weights = [exp(-(age - nearest) / scale) for age in ages]
    average = sum(w * x for w, (_, x) in zip(weights, readings, strict=True)) / sum(weights)
    return average, max(log(sum(weights)) - min(nearest, MAX_AGE) / scale, NO_EVIDENCE)


def of_query(batch: Batch, queries: Queries, at: int, interval: Tensor, scales: list[float], **options: bool) -> Around:
    """The asked sensor at the asked time."""
    sensor = int(queries.sensor[at])
    readings = readings_of(batch, int(queries.sample[at]), sensor)
    return around(readings, float(queries.time[at]), float(interval[sensor]), scales, **options)
