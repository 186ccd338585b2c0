"""The paper's settings as changes to a table: a model never knows in which one it is.

Settings 2 and 3 hide sensors, which removes their readings; Setting 4 chooses samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import DataError, suggest
from raindrop.table.event_table import EventTable


def hide_sensors(table: EventTable, sensors: Sequence[str], *, values: ArrayLike | None = None) -> EventTable:
    """Setting 2: these sensors have no reading in any sample.

    With `values`, one for each sensor of the table, their readings stay and have that value instead. The paper writes
    zeros over scaled readings; the means of the training readings become just that.
    """
    for name in sensors:
        if name not in table.sensors:
            raise DataError(f"There is no sensor '{name}' to hide; {suggest(name, table.sensors)}")
    hidden = np.isin(np.array(table.sensors), list(sensors))
    return _without(table, hidden[table.sensor[table.rows()]], values)


def hide_random_sensors(
    table: EventTable, share: float, *, seed: int = 0, values: ArrayLike | None = None
) -> EventTable:
    """Setting 3: in each sample its own random `share` of all sensors has no reading, or has `values` instead."""
    width = len(table.sensors)
    rank = np.random.default_rng(seed).random((len(table), width)).argsort(1).argsort(1)
    hidden = rank < number_hidden(share, width)
    owner = np.repeat(np.arange(len(table)), table.count)
    return _without(table, hidden[owner, table.sensor[table.rows()]], values)


def number_hidden(share: float, sensors: int) -> int:
    """How many of `sensors` a share of them is: the nearest whole number, and of two the even one, as in the paper."""
    if not 0 <= share <= 1:
        raise DataError(f"The share of hidden sensors lies between 0 and 1, not at {share}.")
    return round(share * sensors)


def _without(table: EventTable, hidden: NDArray[np.bool_], values: ArrayLike | None) -> EventTable:
    if values is None:
        return table.where(~hidden)
    given = np.asarray(values, dtype=np.float64)
    if given.shape != (len(table.sensors),):
        raise DataError(f"There are {len(table.sensors)} sensors, but values of shape {given.shape} to write for them.")
    shown = table.where(np.ones(len(hidden), dtype=bool))  # its readings lie one after another, as `hidden` does
    return replace(shown, value=np.where(hidden, given[shown.sensor], shown.value))
