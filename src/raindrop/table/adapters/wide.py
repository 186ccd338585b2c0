"""Wide frames: one row per time, a column for each sensor, empty cells where a sensor was not read."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import polars as pl

from raindrop.errors import DataError, format_count
from raindrop.table.adapters.long_frames import LongFrames
from raindrop.table.frames import ids_as_text, require_columns, to_name_tuple
from raindrop.table.sample_table import attributes_of_events
from raindrop.table.time_columns import numbers_and_text, parse_numbers

ONLY_SAMPLE = "series"
"""The id of the only sample, if no column has sample ids."""


def from_wide(
    frame: pl.DataFrame,
    sample: str | None,
    time: str,
    sensors: Sequence[str] | None,
    attributes: Collection[str],
    source: str,
) -> LongFrames:
    """One reading for each non-missing cell; `attributes` are columns that describe the sample.

    These become the samples table, and must have the same value in all rows of a sample.
    """
    if sample is None:
        sample = "sample" if "sample" in frame.columns else ""
    require_columns(frame, {"sample": sample} if sample else {}, source)
    require_columns(frame, {"time": time}, source)
    kept = [name for name in frame.columns if name in attributes and name not in (sample, time)]
    if sensors is None:
        sensors = [name for name in frame.columns if name not in (sample, time, *kept)]
    names = to_name_tuple(sensors, "sensors")
    require_columns(frame, {f"sensors[{name}]": name for name in names}, source)
    if "" in names:
        raise DataError(
            f"{source}: column {frame.columns.index('') + 1} of {len(frame.columns)} has no name, so it is no sensor. "
            "Name it, or leave it out if it is an index that was saved with the table."
        )
    if not names:
        raise DataError(f"{source}: there is no column for a sensor besides {', '.join(map(repr, frame.columns))}.")
    _require_one_row_per_time(frame, sample, time, source)
    ids = ids_as_text(frame[sample], "sample", source) if sample else pl.repeat(ONLY_SAMPLE, len(frame), eager=True)
    ids, notices = ids.alias("sample"), list[str]()
    index = pl.DataFrame([ids, frame[time].alias("time")])
    events = pl.concat([_readings(index, frame[name], source) for name in names], how="diagonal")
    samples = None
    if kept:
        beside = pl.DataFrame([ids, *(frame[name] for name in kept)])
        samples = attributes_of_events(beside, "sample", kept, source, notices, implied=False)
    if samples is None:
        samples = pl.DataFrame({"sample": ids.drop_nulls().unique(maintain_order=True)})
    has_text = "text" in events.columns
    options = {"sensors": None if has_text else names, "text": "text" if has_text else None}
    return LongFrames(events, samples, options, tuple(notices))


def _require_one_row_per_time(frame: pl.DataFrame, sample: str, time: str, source: str) -> None:
    """Raise if this looks like a long table: many rows with the same sample and time."""
    if not len(frame):
        raise DataError(f"{source}: the table is empty.")
    keys = [name for name in (sample, time) if name]
    if any(frame[name].dtype.is_nested() or frame[name].dtype in (pl.Binary, pl.Object) for name in keys):
        return
    repeated = len(frame) - frame.select(keys).n_unique()
    if repeated and {"sensor", "value"} <= set(frame.columns):
        raise DataError(
            f"{source}: {format_count(repeated, len(frame), 'rows')} repeat the sample and time of another row, and "
            "there are columns 'sensor' and 'value': this is a long table. Read it with EventTable.from_frames "
            "(without --wide)."
        )


def _readings(index: pl.DataFrame, column: pl.Series, source: str) -> pl.DataFrame:
    """The readings of one sensor: the rows in which its column is not missing."""
    text = None
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        number, text = numbers_and_text(column)
    else:
        number = parse_numbers(column, "value", source)
    number = number.fill_nan(None)
    present = number.is_not_null() if text is None else number.is_not_null() | text.is_not_null()
    columns = [number.alias("value"), *([] if text is None else [text.alias("text")])]
    rows = index.with_columns(columns).filter(present)
    return rows.with_columns(pl.lit(column.name).alias("sensor"))
