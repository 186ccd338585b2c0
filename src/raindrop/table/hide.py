"""The paper's Settings 2 and 3 as changes to a table: hide sensors by removing their readings.

A model is evaluated on the changed table like on any other; it has no notion of a setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import DataError, suggest
from raindrop.table.event_table import EventTable


def hide_sensors(table: EventTable, sensors: Sequence[str], *, values: ArrayLike | None = None) -> EventTable:
    """Setting 2: remove all readings of these sensors.

    With `values`, one per sensor of the table, the readings are overwritten with that value instead. The paper writes
    zeros over scaled readings; the means of the training readings have the same effect.
    """
    for name in sensors:
        if name not in table.sensors:
            raise DataError(f"There is no sensor '{name}' to hide; {suggest(name, table.sensors)}")
    hidden = np.isin(np.array(table.sensors), list(sensors))
    return _hide_readings(table, hidden[table.sensor[table.rows()]], values)


def hide_random_sensors(
    table: EventTable, share: float, *, seed: int = 0, values: ArrayLike | None = None
) -> EventTable:
    """Setting 3: in each sample remove, or overwrite with `values`, the readings of a random `share` of all sensors.

    Every sample draws its own sensors.
    """
    num_sensors = len(table.sensors)
    rank = np.random.default_rng(seed).random((len(table), num_sensors)).argsort(1).argsort(1)
    hidden = rank < num_hidden(share, num_sensors)
    sample = np.repeat(np.arange(len(table)), table.count)
    return _hide_readings(table, hidden[sample, table.sensor[table.rows()]], values)


def num_hidden(share: float, num_sensors: int) -> int:
    """The number of sensors in a share of them, rounded half to even as in the paper."""
    if not 0 <= share <= 1:
        raise DataError(f"The share of hidden sensors must be between 0 and 1, not {share}.")
    return round(share * num_sensors)


def _hide_readings(table: EventTable, hidden: NDArray[np.bool_], values: ArrayLike | None) -> EventTable:
    """Remove the readings where `hidden` (n,), or overwrite them with the value of their sensor."""
    if values is None:
        return table.where(~hidden)
    new_values = np.asarray(values, dtype=np.float64)
    if new_values.shape != (len(table.sensors),):
        raise DataError(
            f"There are {len(table.sensors)} sensors, but values of shape {new_values.shape} to write for them."
        )
    contiguous = table.where(np.ones(len(hidden), dtype=bool))  # readings in the order of `hidden`
    return replace(contiguous, value=np.where(hidden, new_values[contiguous.sensor], contiguous.value))
