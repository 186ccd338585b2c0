"""Select samples of a table by position, mask or id, and readings by mask or expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import DataError, format_count, suggest


def sample_positions(key: Any, ids: pl.Series) -> NDArray[np.int64]:
    """The positions of the samples that `key` selects: a position, an id, a boolean mask, or a list of either."""
    try:
        selected = np.atleast_1d(np.asarray(key))
    except ValueError:  # nested lists of unequal length
        selected = np.empty((0, 0))
    if (
        selected.dtype.kind in "OUT"
        and selected.ndim == 1
        and len(selected)
        and all(isinstance(name, str) for name in selected.tolist())
    ):
        selected = np.array(_positions_of_ids(selected.tolist(), ids))
    if selected.ndim == 1 and selected.dtype == bool:
        if len(selected) != len(ids):
            raise DataError(f"The mask has {len(selected):,} entries, the table {len(ids):,} samples.")
        selected = np.flatnonzero(selected)
    if selected.ndim != 1 or (len(selected) and selected.dtype.kind not in "iu"):
        raise DataError(
            f"Samples are selected by position, slice, mask or id, or a list of one of these, not by {key!r}."
        )
    outside = selected[(selected >= len(ids)) | (selected < -len(ids))]
    if len(outside):  # must be an IndexError: it ends `for sample in table`
        raise IndexError(f"Sample position {outside[0]} is outside a table of {len(ids):,} samples.")
    selected = selected.astype(np.int64)
    return np.where(selected < 0, selected + len(ids), selected)


def _positions_of_ids(selected: Sequence[str], ids: pl.Series) -> list[int]:
    position = {name: at for at, name in enumerate(ids)}
    unknown = [name for name in selected if name not in position]
    if unknown:
        raise DataError(
            f"{format_count(len(unknown), len(selected), 'sample ids')} are not in the table "
            f"(first: '{unknown[0]}'; {suggest(unknown[0], ids[:1000])})"
        )
    return [position[name] for name in selected]


def reading_mask(
    keep: pl.Expr | ArrayLike | Callable[[pl.DataFrame], Any], events: Callable[[], pl.DataFrame], num_readings: int
) -> NDArray[np.bool_]:
    """(n,) which readings to keep, from what `EventTable.where` accepts; `events` returns the frame of the readings."""
    if callable(keep):
        keep = keep(events())
    try:
        mask = np.asarray(events().select(keep).to_series() if isinstance(keep, pl.Expr) else keep)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"where(...): {str(error).splitlines()[0]} (columns: sample, time, sensor, value)") from None
    if mask.dtype != bool or mask.shape != (num_readings,):
        raise DataError(
            f"where(...) needs one true or false per reading ({num_readings:,}), "
            f"not {mask.dtype} of shape {mask.shape}."
        )
    return mask
