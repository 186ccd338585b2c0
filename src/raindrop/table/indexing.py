"""Which samples of a table are meant: by position, mask or id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import DataError, count_of, suggest


def positions(key: Any, ids: Sequence[str]) -> NDArray[np.int64]:
    """Where the samples lie that `key` means: a position, a mask, ids, or a list of positions."""
    try:
        chosen = np.atleast_1d(np.asarray(key))
    except ValueError:  # lists of unequal length
        chosen = np.empty((0, 0))
    if (
        chosen.dtype.kind in "OUT"
        and chosen.ndim == 1
        and len(chosen)
        and all(isinstance(name, str) for name in chosen.tolist())
    ):
        chosen = np.array(_positions_of(chosen.tolist(), ids))
    if chosen.ndim == 1 and chosen.dtype == bool:
        if len(chosen) != len(ids):
            raise DataError(f"The mask has {len(chosen):,} entries, the table {len(ids):,} samples.")
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or (len(chosen) and chosen.dtype.kind not in "iu"):
        raise DataError(
            f"Samples are chosen by position, slice, mask or id, or a list of one of these, not by {key!r}."
        )
    outside = chosen[(chosen >= len(ids)) | (chosen < -len(ids))]
    if len(outside):  # an IndexError, by which `for sample in table` knows its end
        raise IndexError(f"Sample position {outside[0]} is outside a table of {len(ids):,} samples.")
    chosen = chosen.astype(np.int64)
    return np.where(chosen < 0, chosen + len(ids), chosen)


def _positions_of(ids: Sequence[str], known: Sequence[str]) -> list[int]:
    position = {name: at for at, name in enumerate(known)}
    unknown = [name for name in ids if name not in position]
    if unknown:
        raise DataError(
            f"{count_of(len(unknown), len(ids), 'sample ids')} are not in the table "
            f"(first: '{unknown[0]}'; {suggest(unknown[0], known[:1000])})"
        )
    return [position[name] for name in ids]
