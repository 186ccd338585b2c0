"""Readings outside a window: a sensor's latest ones before the window's readings, and its first ones after them.

In a gap longer than a window's margin, a sensor's own readings on one or both sides would otherwise be missing, and
filled values would jump at the border of two windows. A sensor that is read seldom has few readings in any margin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from raindrop.batch.gaps import bisect
from raindrop.table.event_table import EventTable

Positions = NDArray[np.int64]


class DistantReadings:
    """The rows of each series of some samples in order of time; a series is one sensor of one sample."""

    def __init__(self, table: EventTable, codes: NDArray[np.int64], num_sensors: int, samples: Positions):
        """`codes` are those of the table's sensors, -1 if unknown; `samples` are in ascending order."""
        parts, first = [], 0
        for block in table[samples].blocks():
            of_block, owner = block.rows(), np.repeat(np.arange(first, first + len(block)), block.count)
            sensor = codes[block.sensor[of_block]]
            known = sensor >= 0
            parts.append((of_block[known], owner[known] * num_sensors + sensor[known]))
            first += len(block)
        rows, series = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(series, kind="stable")
        self.rows, self.samples, self.num_sensors = rows[order], samples, num_sensors
        counts = np.bincount(series, minlength=len(samples) * num_sensors)
        self.offsets = np.concatenate([[0], np.cumsum(counts)])

    def before(self, sample: Positions, sensor: Positions, row: Positions, number: int) -> Positions:
        """(n, number) the latest readings of a sensor in earlier rows of its sample; -1 where there are fewer."""
        start, _, place = self._places(sample, sensor, row)
        places = place[:, None] - 1 - np.arange(number)
        return np.where(places >= start[:, None], self._row(places), -1)

    def after(self, sample: Positions, sensor: Positions, row: Positions, number: int) -> Positions:
        """(n, number) the first readings of a sensor in this row of its sample or later ones; -1 where there are
        fewer."""
        _, stop, place = self._places(sample, sensor, row)
        places = place[:, None] + np.arange(number)
        return np.where(places < stop[:, None], self._row(places), -1)

    def _places(self, sample: Positions, sensor: Positions, row: Positions) -> tuple[Positions, Positions, Positions]:
        series = np.searchsorted(self.samples, sample) * self.num_sensors + sensor
        start, stop = self.offsets[series], self.offsets[series + 1]
        return start, stop, bisect(self.rows, start, stop, row)

    def _row(self, place: Positions) -> Positions:
        return self.rows[np.clip(place, 0, len(self.rows) - 1)] if len(self.rows) else np.zeros_like(place)
