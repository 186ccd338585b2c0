"""Why a sensor graph may have no edges, as the reason that `SensorGraph.describe_empty` prints."""

from __future__ import annotations

import numpy as np

from raindrop.table.event_table import EventTable

WEIGHTS_REASON = "no sensor has a reading, or every edge was pruned"
"""For edge weights (Eq. 3): a sensor without readings sends nothing."""


def no_shared_times_reason(table: EventTable) -> str:
    """Why no two sensors can be compared at the same time; an empty string if some can be."""
    if len(table.sensors) < 2:
        return "the table has only one sensor"
    if not table.num_readings:
        return "the samples have no readings"
    return "" if _some_times_are_shared(table) else "no two sensors are ever read at the same time"


def _some_times_are_shared(table: EventTable) -> bool:
    """Whether two sensors have a reading at the same time of the same sample. Readings are in (sample, time) order."""
    return any(_shared_in_block(part) for part in table.blocks())


def _shared_in_block(table: EventTable) -> bool:
    rows = table.rows()
    sample = np.repeat(np.arange(len(table)), table.count)
    time, sensor = np.asarray(table.time[rows]), np.asarray(table.sensor[rows])
    same_time = (sample[1:] == sample[:-1]) & (time[1:] == time[:-1])
    return bool((same_time & (sensor[1:] != sensor[:-1])).any())
