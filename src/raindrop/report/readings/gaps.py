"""Which gaps a report shows: the longest ones, those with the largest errors, and random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raindrop.estimators.hidden_readings import Comparison
from raindrop.table.event_table import EventTable
from raindrop.table.queries import OUTAGE, spans

Float64 = NDArray[np.float64]
MAX_SERIES = 5_000_000  # maximum number of samples x sensors searched for gaps
SHORT = 200  # typical intervals; samples up to this length are shown whole
PIECE = 48  # typical intervals; hidden readings this close together are one gap
FEW = 3  # hidden readings; a single one with a large error is not a case
CONTEXT = 24  # typical intervals shown before and after a gap
LONG = 400  # typical intervals; only the beginning of a longer gap is shown
MAX_TRIES = 20_000  # maximum number of candidates


@dataclass(frozen=True)
class Window:
    """A part of a sample, and the sensor that it was chosen for."""

    sample: int
    """Its position in the table."""
    sensor: int
    """Its position among the sensors of training."""
    start: float
    stop: float
    reason: str
    """Why it was chosen, such as 'long gap'."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Gaps that could be shown."""

    sample: NDArray[np.int64]
    sensor: NDArray[np.int64]
    start: Float64
    stop: Float64
    score: Float64
    """Larger scores are shown first."""

    def __len__(self) -> int:
        return len(self.sample)


def silent_periods(table: EventTable, codes: NDArray[np.int64], interval: Float64, seed: int = 0) -> Candidates:
    """The gaps of a table: where a sensor was silent for longer than usual; the score is the number of intervals.

    codes (sensors of the table,) are their positions in `interval`, -1 for a sensor that is left out; a sensor whose
    `interval` is infinite is left out too. A sensor without any reading in a sample is silent throughout. In a very
    large table, only some random samples are searched.
    """
    width, present = len(interval), np.flatnonzero(table.count > 0)
    most = max(1, MAX_SERIES // max(width, 1))
    if len(present) > most:
        present = np.sort(np.random.default_rng(seed).choice(present, most, replace=False))
    first, last = spans(table)
    rows = table.rows(present)
    series = np.repeat(present, table.count[present]) * width + codes[table.sensor[rows]]
    known = codes[table.sensor[rows]] >= 0
    edges = (present[:, None] * width + np.flatnonzero(np.isfinite(interval))).ravel()
    before, after = (end[edges // width] + sign * interval[edges % width] for end, sign in ((first, -1), (last, 1)))
    keys = np.concatenate([series[known], edges, edges])
    times = np.concatenate([np.asarray(table.time[rows])[known], before, after])
    order = np.lexsort([times, keys])
    keys, times = keys[order], times[order]
    length = np.diff(times) / interval[keys[1:] % width]
    at = np.flatnonzero((keys[1:] == keys[:-1]) & (length > OUTAGE))
    sample = keys[at] // width
    start, stop = np.maximum(times[at], first[sample]), np.minimum(times[at + 1], last[sample])
    return Candidates(sample, keys[at] % width, start, stop, length[at])


def hidden_periods(comparison: Comparison, interval: float) -> Candidates:
    """Hidden readings of one sensor that are close together; the score is their mean scaled error, lower for few."""
    sample, time = comparison.queries.sample, comparison.queries.time
    piece = np.floor(time / (PIECE * interval)).astype(np.int64)
    rows, inverse = np.unique(np.stack([sample, comparison.sensor, piece]), axis=1, return_inverse=True)
    inverse = inverse.ravel()
    number = np.bincount(inverse)
    start, stop = np.full(len(number), np.inf), np.full(len(number), -np.inf)
    np.minimum.at(start, inverse, time)
    np.maximum.at(stop, inverse, time)
    error = np.bincount(inverse, np.abs(comparison.error) / comparison.scale) / np.maximum(number, FEW)
    return Candidates(rows[0], rows[1], start, stop, error)


def choose(
    table: EventTable,
    candidates: Candidates,
    interval: float,
    number: int,
    reasons: tuple[str, str],
    seed: int = 0,
) -> list[Window]:
    """At most `number` windows that do not overlap: half with the largest scores, half drawn at random.

    interval: the typical time between readings; reasons: the names of the two halves.
    """
    first, last = spans(table)
    windows: list[Window] = []
    best = np.argsort(-candidates.score, kind="stable")
    drawn = np.random.default_rng(seed).permutation(len(candidates))
    for order, reason, most in ((best, reasons[0], (number + 1) // 2), (drawn, reasons[1], number)):
        for at in order[:MAX_TRIES].tolist():
            if len(windows) >= most:
                break
            window = _window(candidates, at, first, last, interval, reason)
            if not _overlaps(window, windows):
                windows.append(window)
    return windows


def _window(candidates: Candidates, at: int, first: Float64, last: Float64, interval: float, reason: str) -> Window:
    sample, start, stop = int(candidates.sample[at]), float(candidates.start[at]), float(candidates.stop[at])
    low, high = float(first[sample]), float(last[sample])
    if high - low > SHORT * interval:
        context = min(max(CONTEXT * interval, 0.5 * (stop - start)), LONG * interval / 4)
        low, high = max(low, start - context), min(high, stop + context, start + LONG * interval)
    return Window(sample, int(candidates.sensor[at]), low, high, reason)


def _overlaps(window: Window, others: Sequence[Window]) -> bool:
    return any(o.sample == window.sample and o.start <= window.stop and window.start <= o.stop for o in others)


def missing_times(time: Float64, first: float, last: float, interval: float) -> Float64:
    """When a sensor with readings at `time` should have been read between `first` and `last`, as in `fill`."""
    edges = np.concatenate([[first - interval], time, [last + interval]])
    gap = np.diff(edges)
    steps = gap / interval
    number = np.where(steps > OUTAGE, np.round(steps).astype(np.int64) - 1, 0)
    at = np.repeat(np.arange(len(gap)), number)
    rank = np.arange(len(at)) - np.repeat(np.cumsum(number) - number, number) + 1
    missing = edges[:-1][at] + gap[at] * rank / (number[at] + 1)
    return np.asarray(missing[(missing >= first - 1e-9) & (missing <= last + 1e-9)])
