"""Nine numbers per sensor that say most of what a table of readings knows, without any network."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from raindrop.events import EventTable

SUMMARIES = ("count", "mean", "min", "max", "std", "first", "last", "change", "time_of_last")


def summarise(table: EventTable) -> NDArray[np.float64]:
    """(samples, sensors, 9): the SUMMARIES of each sensor of each sample; NaN where it has no reading, but count 0."""
    width = len(table.sensors)
    rows = table.rows()
    owner = np.repeat(np.arange(len(table)), table.count)
    key = owner * width + table.sensor[rows]
    order = np.argsort(key, kind="stable")  # readings stay in time order within a sensor
    key, rows = key[order], rows[order]
    out = np.full((len(table) * width, len(SUMMARIES)), np.nan)
    out[:, 0] = 0
    if len(key):
        starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        count = np.diff(np.append(starts, len(key)))
        value = np.asarray(table.value[rows], dtype=np.float64)
        first, last = value[starts], value[starts + count - 1]
        mean = np.add.reduceat(value, starts) / count
        spread = np.sqrt(np.add.reduceat((value - np.repeat(mean, count)) ** 2, starts) / count)
        low, high = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
        end = np.asarray(table.time[rows], dtype=np.float64)[starts + count - 1]
        out[key[starts]] = np.column_stack([count, mean, low, high, spread, first, last, last - first, end])
    return out.reshape(len(table), width, len(SUMMARIES))
