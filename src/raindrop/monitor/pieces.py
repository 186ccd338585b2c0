"""The units that are counted: statistics of each sensor in each piece. A piece is a sample, or a stretch of a series.

Readings of one sample are not independent, so a test that treated them as independent would raise false alarms. Pieces
are compared instead. Axes: n a piece, u a sensor, g a (piece, sensor) with readings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from raindrop.table.event_table import EventTable

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
MIN_CONSTANT = 3  # minimum number of equal readings in a piece to count as constant


@dataclass(frozen=True)
class Pieces:
    """Each sensor of each piece that was read."""

    count: int  # n
    piece: Int64  # (g,)
    sensor: Int64  # (g,)
    level: Float64  # (g,) median value
    readings: Float64  # (g,) how many readings
    repeated: NDArray[np.bool_]  # (g,) whether it was read often enough to be tested for a constant value
    constant: NDArray[np.bool_]  # (g,) whether all its readings are the same
    low: Float64  # (g,)
    high: Float64  # (g,)

    @classmethod
    def of(cls, table: EventTable, sensors: Sequence[str], length: float | None = None) -> Self:
        """The pieces of a table: its samples, or stretches of this length; readings of other sensors are left out."""
        code = {name: at for at, name in enumerate(sensors)}
        codes = np.array([code.get(name, -1) for name in table.sensors], dtype=np.int64)
        rows = table.rows()
        sensor = codes[np.asarray(table.sensor[rows])]
        owner, time = np.repeat(np.arange(len(table)), table.count), np.asarray(table.time[rows])
        piece, count = owner, len(table)
        if length is not None:
            starts = np.repeat(np.cumsum(table.count) - table.count, table.count)  # readings are in order of time
            with np.errstate(over="ignore", invalid="ignore"):  # extreme times
                changed = np.diff((time - time[starts]) // length, prepend=0.0) != 0
            piece = np.cumsum(changed | (np.diff(owner, prepend=-1) != 0)) - 1
            count = int(piece.max(initial=-1)) + 1
        known = sensor >= 0
        value, key = np.asarray(table.value[rows], dtype=np.float64)[known], (piece * len(sensors) + sensor)[known]
        order = np.lexsort([value, key])
        value, key = value[order], key[order]
        start = np.flatnonzero(np.diff(key, prepend=-1))
        size = np.diff(start, append=len(key))
        low, high = value[start], value[start + size - 1]
        of_group = key[start]
        return cls(
            count,
            of_group // len(sensors),
            of_group % len(sensors),
            (value[start + (size - 1) // 2] + value[start + size // 2]) / 2,
            size.astype(np.float64),
            size >= MIN_CONSTANT,
            (size >= MIN_CONSTANT) & (low == high),
            low,
            high,
        )

    def __getitem__(self, chosen: Int64) -> Self:
        """Only these pieces, each once."""
        place = np.full(self.count, -1)
        place[chosen] = np.arange(len(chosen))
        keep = place[self.piece] >= 0
        columns: dict[str, Any] = {
            name: getattr(self, name)[keep]
            for name in ("sensor", "level", "readings", "repeated", "constant", "low", "high")
        }
        return type(self)(count=len(chosen), piece=place[self.piece[keep]], **columns)
