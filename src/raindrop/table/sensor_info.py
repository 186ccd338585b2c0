"""Attributes of the sensors themselves, such as their positions: `sensors.parquet` beside the readings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from raindrop.errors import DataError, format_count, suggest
from raindrop.table.frame_files import find_file, read_frame
from raindrop.table.frames import ids_as_text, require_columns, to_polars

POSITION = ("x", "y")


def check_sensor_info(info: Any, sensors: Sequence[str], source: str = "sensors") -> pl.DataFrame:
    """The frame with the column `sensor` first; raises on unknown or repeated sensors, and on non-numeric positions.

    A sensor of the table may be missing here.
    """
    frame = to_polars(info, source)
    require_columns(frame, {"sensor": "sensor"}, source)
    names = ids_as_text(frame["sensor"], "sensor", source)
    unknown = ~names.is_in(list(sensors)).fill_null(False)
    if unknown.any():
        row = int(unknown.arg_max() or 0)
        raise DataError(
            f"{source}: {format_count(int(unknown.sum()), len(names), 'rows')} name no sensor of the table (first: row "
            f"{row + 1:,}, '{names[row]}'; {suggest(str(names[row]), sensors)})\nFix the name, or remove the row."
        )
    repeated = names.is_duplicated()
    if repeated.any():
        raise DataError(
            f"{source}: {format_count(int(repeated.sum()), len(names), 'rows')} share their sensor with another row "
            f"(first: '{names.filter(repeated)[0]}'). There is one row per sensor; remove the others."
        )
    for name in POSITION:
        if name in frame.columns:
            frame = frame.with_columns(_numbers(frame[name], source))
    return frame.drop("sensor").insert_column(0, names.alias("sensor"))


def _numbers(column: pl.Series, source: str) -> pl.Series:
    number = column.cast(pl.Float64, strict=False)
    wrong = column.is_not_null() & ~number.is_finite().fill_null(False)
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise DataError(
            f"{source}: column '{column.name}' is not a finite number in "
            f"{format_count(int(wrong.sum()), len(column), 'rows')} (first: row {row + 1:,}, '{column[row]}'). "
            "Positions are numbers; leave the cell empty where one is not known, or rename the column."
        )
    return number


def read_sensor_info(folder: Path, sensors: Sequence[str]) -> pl.DataFrame | None:
    """`sensors.parquet` or `sensors.csv` of a table's folder; None if there is none."""
    path = find_file(folder, "sensors")
    if not path.exists():
        return None
    return check_sensor_info(read_frame(path, ids=("sensor",)).frame, sensors, str(path))
