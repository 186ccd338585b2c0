"""A column of the samples table as classes or groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, count_of


def classes_of(column: pl.Series, ids: pl.Series) -> NDArray[Any]:
    """The label of each sample as true/false, a whole number or text; an error where one is missing."""
    name, column = column.name, missing_as_null(column)
    if column.null_count():
        first = ids.filter(column.is_null())[0]
        raise DataError(
            f"{count_of(column.null_count(), len(column), 'samples')} have no label '{name}' (first: '{first}').\n"
            "Leave them out with table[table.labelled], or fill the label in."
        )
    if column.dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        odd = column.filter((whole.cast(pl.Float64) != column).fill_null(True))
        if len(odd):
            raise DataError(
                f"Label '{name}' holds numbers such as {odd[0]}: "
                "that is a quantity, not a class. Turn it into classes first, for example died = risk > 0.5."
            )
        column = whole
    if column.dtype == pl.Boolean:
        return column.to_numpy(writable=True)
    if column.dtype.is_integer() and not column.cast(pl.Int64, strict=False).null_count():
        return column.cast(pl.Int64).to_numpy(writable=True)
    return np.asarray(as_text(column).to_list(), dtype=str)


def codes_of(column: pl.Series) -> NDArray[np.int64]:
    """A number from 1 for each class or group, 0 where it is missing."""
    return as_text(missing_as_null(column)).rank("dense").fill_null(0).to_numpy().astype(np.int64)


def missing_as_null(column: pl.Series) -> pl.Series:
    """NaN and '' stand for a missing label or group too."""
    if column.dtype.is_float():
        return column.fill_nan(None)
    return column.set(column == "", None) if column.dtype == pl.String else column


def as_text(column: pl.Series) -> pl.Series:
    """Classes or groups as text, so that any two can be compared."""
    try:
        return column.cast(pl.String)
    except pl.exceptions.PolarsError:
        raise DataError(
            f"samples: column '{column.name}' is of type {column.dtype}, which is neither text, a number nor "
            "true/false. Turn it into one of these."
        ) from None
