from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
FIRST_CAPACITY = 64


@dataclass
class LiveSample:
    """One sample: its readings sorted by (time, sensor), and its attributes.

    The arrays have room to grow; the first `count` entries are readings.
    """

    statics: dict[str, Any] = field(default_factory=dict)
    cutoff: float = np.nan
    reference: float = np.nan
    arrived: float = 0.0
    """When something last arrived for it, in seconds since 1970."""
    count: int = 0
    time: Float64 = field(default_factory=lambda: np.empty(0))
    sensor: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    value: Float64 = field(default_factory=lambda: np.empty(0))

    @property
    def latest(self) -> float:
        """The time of its last reading; -inf without readings."""
        return float(self.time[self.count - 1]) if self.count else -np.inf

    @property
    def end(self) -> float:
        """The end of its window: its latest reading, or its cutoff if that is earlier."""
        return float(np.fmin(self.latest, self.cutoff))

    @property
    def first(self) -> float:
        """The time of its first reading; NaN without readings."""
        return float(self.time[0]) if self.count else np.nan

    def add(self, time: Float64, sensor: NDArray[np.int32], value: Float64) -> tuple[int, int, int]:
        """Add readings, sorted and with each (time, sensor) once; existing readings get the new value.

        Returns the number of new readings, of changed values, and of readings that changed nothing.
        """
        start = int(np.searchsorted(self.time[: self.count], time[0]))  # earlier readings are unchanged
        old = self.count - start
        if not old:
            self._replace_from(start, time, sensor, value)
            return len(time), 0, 0
        tail = slice(start, self.count)
        time = np.concatenate([self.time[tail], time])
        sensor = np.concatenate([self.sensor[tail], sensor])
        value = np.concatenate([self.value[tail], value])
        order = np.lexsort((sensor, time))  # stable: a new reading comes after the old one it repeats
        time, sensor, value = time[order], sensor[order], value[order]
        again = (time[1:] == time[:-1]) & (sensor[1:] == sensor[:-1])
        if again.any():
            corrected = int((again & (value[1:] != value[:-1])).sum())
            keep = np.append(~again, True)
            time, sensor, value = time[keep], sensor[keep], value[keep]
        else:
            corrected = 0
        self._replace_from(start, time, sensor, value)
        return len(time) - old, corrected, int(again.sum()) - corrected

    def _replace_from(self, start: int, time: Float64, sensor: NDArray[np.int32], value: Float64) -> None:
        self.count = start + len(time)
        if self.count > len(self.time):
            capacity = max(FIRST_CAPACITY, 2 * self.count)
            for name in ("time", "sensor", "value"):
                old = getattr(self, name)
                grown = np.empty(capacity, dtype=old.dtype)
                grown[:start] = old[:start]
                setattr(self, name, grown)
        place = slice(start, self.count)
        self.time[place], self.sensor[place], self.value[place] = time, sensor, value

    def up_to_cutoff(self) -> int:
        """The number of readings at or before its cutoff."""
        if np.isnan(self.cutoff):
            return self.count
        return int(np.searchsorted(self.time[: self.count], self.cutoff, side="right"))

    def let_go_before(self, time: float) -> None:
        """Drop the readings before `time`."""
        first = int(np.searchsorted(self.time[: self.count], time))
        if first:
            kept = self.count - first
            for array in (self.time, self.sensor, self.value):
                array[:kept] = array[first : self.count].copy()
            self.count = kept
