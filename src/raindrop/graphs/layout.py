"""Where sensors are drawn: on a circle, or on a map if their positions are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, format_count
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns, to_polars


def circle_places(number: int) -> NDArray[np.float64]:
    """(sensor, 2) on a circle of radius 1, clockwise from the top."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(number) / max(number, 1)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def table_positions(table: EventTable) -> tuple[pl.DataFrame | None, str]:
    """The positions of a table's sensors (`sensor_columns`), a frame for `sensor_places`; and a note.

    None if the table has no positions, or not for all sensors; then the note says how many are missing.
    """
    columns = table.sensor_columns
    if not {"x", "y"} <= set(columns.columns):
        return None, ""
    missing = columns.filter(pl.any_horizontal(pl.col("x", "y").is_null()))
    if not len(missing):
        return columns.select("sensor", "x", "y"), ""
    if len(missing) == len(columns):
        return None, ""
    return None, (
        f"No map is drawn: {format_count(len(missing), len(columns), 'sensors')} have no position (first: "
        f"'{missing['sensor'][0]}'). Fill in x and y in the table's file of sensors."
    )


def sensor_places(sensors: Sequence[str], positions: Any) -> NDArray[np.float64]:
    """(sensor, 2) from a frame with the columns sensor, x and y, moved and scaled to lie between -1 and 1.

    Both axes have the same scale, so that a map is not distorted.
    """
    frame = to_polars(positions, "positions")
    require_columns(frame, {name: name for name in ("sensor", "x", "y")}, "positions")
    names = frame["sensor"].cast(pl.String).to_list()
    missing = [name for name in sensors if name not in set(names)]
    if missing:
        raise DataError(
            f"positions: {format_count(len(missing), len(sensors), 'sensors')} have no position "
            f"(first: '{missing[0]}'). Add a row for each, or draw without positions."
        )
    place = frame.select(pl.col("x", "y").cast(pl.Float64, strict=False)).fill_null(np.nan).to_numpy()
    place = place[[names.index(name) for name in sensors]]
    if not np.isfinite(place).all():
        at = int(np.argmin(np.isfinite(place).all(1)))
        raise DataError(f"positions: x and y of sensor '{sensors[at]}' must be finite numbers.")
    centre, size = (place.max(0) + place.min(0)) / 2, float(np.ptp(place, axis=0).max()) / 2
    return np.asarray((place - centre) / (size or 1.0), dtype=np.float64)
