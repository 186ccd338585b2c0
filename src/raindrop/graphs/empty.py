"""Why a sensor graph may have no edges, as the reason that `SensorGraph.describe_empty` prints."""

from __future__ import annotations

import numpy as np

from raindrop.errors import format_count
from raindrop.table.event_table import EventTable

WEIGHTS_REASON = "no sensor has a reading, or every edge was pruned"
"""For edge weights (Eq. 3): a sensor without readings sends nothing."""
FEW = 0.01  # of the readings; fewer at the same time as another sensor's are chance


def no_shared_times_reason(table: EventTable) -> str:
    """Why sensors can hardly be compared at the same time; an empty string if they can be."""
    if len(table.sensors) < 2:
        return "the table has only one sensor"
    if not table.num_readings:
        return "the samples have no readings"
    shared, total = sum(_shared_in_block(part) for part in table.blocks()), table.num_readings
    if not shared:
        return "no two sensors are ever read at the same time"
    if shared >= FEW * total:
        return ""
    return f"only {format_count(shared, total, 'readings')} have another sensor's at the same time"


def _shared_in_block(table: EventTable) -> int:
    """The number of readings at the same time of the same sample as another sensor's.

    Readings are in (sample, time) order.
    """
    rows = table.rows()
    sample = np.repeat(np.arange(len(table)), table.count)
    time, sensor = np.asarray(table.time[rows]), np.asarray(table.sensor[rows])
    same = (sample[1:] == sample[:-1]) & (time[1:] == time[:-1]) & (sensor[1:] != sensor[:-1])
    shared = np.zeros(len(time), dtype=bool)
    shared[1:] |= same
    shared[:-1] |= same
    return int(shared.sum())
