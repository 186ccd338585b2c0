"""Arrays: (sample, time, sensor) with NaN for missing values, or one array (time, sensor) for each sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import DataError
from raindrop.table.adapters.long_frames import LongFrames
from raindrop.table.frames import to_name_tuple, to_polars

SHAPES = "values: an array (sample, time, sensor), an array (time, sensor), or a list or dict of arrays (time, sensor)"


def from_arrays(
    values: Any,
    times: Any = None,
    samples: Any = None,
    sensors: Sequence[str] | None = None,
    labels: ArrayLike | None = None,
) -> LongFrames:
    """One reading for each entry that is not NaN."""
    ids, arrays = _by_sample(values)
    width = arrays[0].shape[1]
    lengths = np.array([len(array) for array in arrays])
    owner = np.repeat(np.arange(len(arrays)), lengths)
    time = _flat_times(times, ids, lengths)
    flat = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
    names = [f"sensor {at}" for at in range(width)] if sensors is None else to_name_tuple(sensors, "sensors")
    if len(names) != width:
        raise DataError(f"sensors: {len(names)} names are given, but the arrays have {width} columns.")
    frame = _samples_frame(samples, ids, labels, len(arrays))
    row, column = np.nonzero(~np.isnan(flat))
    events = pl.DataFrame(
        {
            "sample": frame["sample"].gather(owner[row]),
            "time": time.gather(row),
            "sensor": pl.Series(names, dtype=pl.String).gather(column),
            "value": flat[row, column],
        }
    )
    return LongFrames(events, frame, {"sensors": names})


def from_pypots(data: Any) -> LongFrames:
    """A dictionary of PyPOTS: "X" (sample, time, sensor) with NaN, and maybe "y", one class per sample."""
    if not isinstance(data, Mapping) or "X" not in data:
        found = f"keys {', '.join(map(repr, data))}" if isinstance(data, Mapping) else type(data).__name__
        raise DataError(f"A PyPOTS dictionary has 'X' (sample, time, sensor) and maybe 'y', not {found}.")
    if np.ndim(data["X"]) != 3:
        raise DataError(f"'X' of a PyPOTS dictionary is an array (sample, time, sensor), not {np.ndim(data['X'])}-D.")
    return from_arrays(data["X"], labels=data.get("y"))


def from_aeon(values: Any, labels: ArrayLike | None = None, sensors: Sequence[str] | None = None) -> LongFrames:
    """The arrays of aeon and of sktime's "numpy3D": (sample, channel, time), or a list of (channel, time)."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        if values.ndim != 3:
            raise DataError(f"An array of aeon has the axes (sample, channel, time), not {values.ndim} axes.")
        return from_arrays(values.transpose(0, 2, 1), labels=labels, sensors=sensors)
    if isinstance(values, Mapping) or not isinstance(values, (Sequence, np.ndarray)):
        raise DataError(f"aeon has an array (sample, channel, time) or a list of (channel, time), not {type(values)}.")
    return from_arrays([np.atleast_2d(np.asarray(v)).T for v in values], labels=labels, sensors=sensors)


def _by_sample(values: Any) -> tuple[list[str] | None, list[NDArray[np.float64]]]:
    """The ids if they are given, and an array (time, sensor) for each sample."""
    ids = None
    if isinstance(values, Mapping):
        ids, values = [str(name) for name in values], list(values.values())
    elif not isinstance(values, (list, tuple)):
        whole = _to_floats(values, "values")
        if whole.ndim not in (2, 3):
            raise DataError(f"{SHAPES}; this one has {whole.ndim} axes.")
        values = whole[None] if whole.ndim == 2 else whole
    elif len(values) and np.ndim(values[0]) < 2 and all(np.ndim(row) == 1 for row in values):
        raise DataError(f"{SHAPES}; this is a list of rows. Turn it into one array first.")
    if not len(values):
        raise DataError("values: there is no sample.")
    arrays = [_to_floats(array, f"values of sample {at}") for at, array in enumerate(values)]
    for at, array in enumerate(arrays):
        if array.ndim != 2 or array.shape[1] != arrays[0].shape[1]:
            raise DataError(
                f"values of sample {at} have the shape {array.shape}, those of sample 0 {arrays[0].shape}.\n"
                "Every sample has an array (time, sensor) with the same sensors; the number of times may differ."
            )
    if arrays[0].shape[1] == 0:
        raise DataError("values: there is no sensor.")
    return ids, arrays


def _to_floats(values: Any, what: str) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{what}: not an array of numbers ({str(error).splitlines()[0]}).\n"
            "Missing entries are NaN; text such as on/off is read by EventTable.from_frames and from_wide."
        ) from None


def _flat_times(times: Any, ids: list[str] | None, lengths: NDArray[np.int64]) -> pl.Series:
    """One time per row of all samples: counted 0, 1, 2, ..., shared by all samples, or given for each."""
    if times is None:
        return pl.Series(np.concatenate([np.arange(length, dtype=np.float64) for length in lengths]))
    if isinstance(times, Mapping):
        if ids is None:
            raise DataError("times is a dict, but values is not; give both as dicts, or both as lists.")
        by_name = {str(name): each for name, each in times.items()}
        absent = [name for name in ids if name not in by_name]
        if absent:
            raise DataError(f"times: {len(absent):,} of {len(ids):,} samples have none (first: '{absent[0]}').")
        times = [by_name[name] for name in ids]
    if len(times) and np.ndim(times[0]) == 0:  # the same for all samples
        times = [times] * len(lengths)
    if len(times) != len(lengths):
        raise DataError(f"times: there are {len(times):,} lists of times, but {len(lengths):,} samples.")
    wrong = [at for at, each in enumerate(times) if len(each) != lengths[at]]
    if wrong:
        raise DataError(
            f"times: {len(wrong):,} of {len(lengths):,} samples have another number of times than rows (first: sample "
            f"{wrong[0]} with {len(times[wrong[0]]):,} times and {lengths[wrong[0]]:,} rows)."
        )
    try:
        return pl.concat([pl.Series("time", each) for each in times if len(each)])
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"times: not one type of numbers or date times ({str(error).splitlines()[0]}).") from None


def _samples_frame(samples: Any, ids: list[str] | None, labels: ArrayLike | None, number: int) -> pl.DataFrame:
    """One row per sample: ids, attributes if a frame is given, and labels."""
    if samples is None:
        frame = pl.DataFrame({"sample": [str(at) for at in range(number)] if ids is None else ids})
    elif isinstance(samples, (list, tuple, pl.Series)) or getattr(samples, "ndim", 0) == 1:
        frame = pl.DataFrame({"sample": pl.Series([str(name) for name in samples], dtype=pl.String)})
    else:
        frame = to_polars(samples, "samples")
        if "sample" not in frame.columns:
            given = [str(at) for at in range(number)] if ids is None else ids
            if len(frame) == number:
                frame = frame.insert_column(0, pl.Series("sample", given))
        elif ids is not None:
            order = pl.DataFrame({"sample": ids})
            frame = order.join(frame.with_columns(pl.col("sample").cast(pl.String)), on="sample", how="left",
                               maintain_order="left")  # fmt: skip
    if len(frame) != number:
        raise DataError(f"samples: there are {len(frame):,} of them, but {number:,} arrays of values.")
    if labels is None:
        return frame
    column = np.asarray(labels)
    if column.shape != (number,):
        raise DataError(
            f"labels: one for each of {number:,} samples is needed, but they have the shape {column.shape}."
        )
    return frame.with_columns(pl.Series("label", column.tolist(), strict=False))
