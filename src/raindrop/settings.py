"""The paper's settings as changes to a table: a model never knows in which one it is.

Settings 2 and 3 hide sensors, which removes their readings; Setting 4 chooses samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raindrop.errors import DataError, suggest
from raindrop.events import EventTable


def hide_sensors(table: EventTable, sensors: Sequence[str]) -> EventTable:
    """Setting 2: these sensors have no reading in any sample."""
    for name in sensors:
        if name not in table.sensors:
            raise DataError(f"There is no sensor '{name}' to hide; {suggest(name, table.sensors)}")
    hidden = np.isin(np.array(table.sensors), list(sensors))
    return table.where(~hidden[table.sensor[table.rows()]])


def hide_random_sensors(table: EventTable, share: float, *, seed: int = 0) -> EventTable:
    """Setting 3: in each sample its own random `share` of all sensors has no reading."""
    if not 0 <= share <= 1:
        raise DataError(f"The share of hidden sensors lies between 0 and 1, not at {share}.")
    width = len(table.sensors)
    rank = np.random.default_rng(seed).random((len(table), width)).argsort(1).argsort(1)
    hidden = rank < round(share * width)
    owner = np.repeat(np.arange(len(table)), table.count)
    return table.where(~hidden[owner, table.sensor[table.rows()]])
