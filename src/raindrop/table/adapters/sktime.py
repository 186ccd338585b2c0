"""Frames of sktime: nested (a series in each cell) and pandas frames with the index (instance, time)."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from raindrop.errors import DataError, MissingExtraError
from raindrop.table.adapters.long_frames import LongFrames
from raindrop.table.adapters.wide import from_wide


def from_sktime(frame: Any, labels: ArrayLike | None = None) -> LongFrames:
    """A nested frame, or one with an index of (instance, time) and a column for each sensor; labels by instance."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise MissingExtraError("pandas", "pandas", "Reading a frame of sktime") from None
    if not isinstance(frame, pd.DataFrame):
        raise DataError(
            f"sktime: a pandas frame is needed, nested or with an index (instance, time), not {type(frame).__name__}.\n"
            "For arrays (sample, channel, time) use EventTable.from_aeon."
        )
    if isinstance(frame.index, pd.MultiIndex):
        return _with_labels(_from_multi_index(frame), labels)
    if frame.shape[0] and frame.shape[1] and all(isinstance(cell, pd.Series) for cell in frame.iloc[0]):
        return _with_labels(_from_nested(frame), labels)
    raise DataError(
        "sktime: the frame has neither a series in each cell nor an index with two levels (instance, time).\n"
        "A frame with one row per time is read by EventTable.from_wide, one with a row per reading by from_frames."
    )


def _from_multi_index(frame: Any) -> LongFrames:
    """The last level is the time, the levels before it identify the sample."""
    *levels, time = (frame.index.get_level_values(level) for level in range(frame.index.nlevels))
    ids = pl.Series("sample", [" / ".join(str(part) for part in parts) for parts in zip(*levels, strict=True)])
    columns = {str(name): frame[name].to_numpy() for name in frame.columns}
    if len(columns) != frame.shape[1] or {"sample", "time"} & set(columns):
        raise DataError("sktime: columns must have different names, other than 'sample' and 'time'.")
    wide = pl.DataFrame([ids, pl.Series("time", time.to_numpy()), *(_series(n, c) for n, c in columns.items())])
    return _in_order(from_wide(wide, "sample", "time", list(columns), (), "frame"), ids)


def _from_nested(frame: Any) -> LongFrames:
    """Each cell holds the series of one sensor in one sample, with its times as index."""
    parts = []
    for name in frame.columns:
        for sample, cell in zip(frame.index, frame[name], strict=True):
            time = pl.Series("time", cell.index.to_numpy())
            part = pl.DataFrame([time, _series("value", cell.to_numpy())]).filter(pl.col("value").is_not_null())
            parts.append(part.with_columns(pl.lit(str(sample)).alias("sample"), pl.lit(str(name)).alias("sensor")))
    events = pl.concat(parts, how="vertical_relaxed")
    ids = pl.Series("sample", [str(sample) for sample in frame.index])
    return _in_order(LongFrames(events, None, {"sensors": [str(name) for name in frame.columns]}), ids)


def _series(name: str, values: Any) -> pl.Series:
    """A column, with NaN as null."""
    if values.dtype == object:
        return pl.Series(name, [None if cell is None or cell != cell else cell for cell in values.tolist()])
    return pl.Series(name, values, nan_to_null=True) if values.dtype.kind == "f" else pl.Series(name, values)


def _in_order(frames: LongFrames, ids: pl.Series) -> LongFrames:
    """The same with all samples listed in the order of the frame, including those without a reading."""
    samples = pl.DataFrame({"sample": ids.unique(maintain_order=True)})
    return LongFrames(frames.events, samples, frames.options, frames.notices)


def _with_labels(frames: LongFrames, labels: ArrayLike | None) -> LongFrames:
    if labels is None:
        return frames
    column = np.asarray(labels)
    if column.shape != (len(frames.samples),):
        raise DataError(f"labels: {len(frames.samples):,} samples, but labels of shape {column.shape}.")
    samples = frames.samples.with_columns(pl.Series("label", column.tolist(), strict=False))
    return LongFrames(frames.events, samples, frames.options, frames.notices)
