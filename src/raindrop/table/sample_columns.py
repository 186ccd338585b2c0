"""Columns of the samples table as class labels or as codes of classes and groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, format_count


def class_labels(column: pl.Series, ids: pl.Series) -> NDArray[Any]:
    """One label per sample as bool, int64 or text; raises if a label is missing."""
    name, column = column.name, missing_to_null(column)
    if column.null_count():
        first = ids.filter(column.is_null())[0]
        raise DataError(
            f"{format_count(column.null_count(), len(column), 'samples')} have no label '{name}' (first: '{first}').\n"
            "Leave them out with table[table.labelled], or fill the label in."
        )
    if column.dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        fractions = column.filter((whole.cast(pl.Float64) != column).fill_null(True))
        if len(fractions):
            raise DataError(
                f"Label '{name}' holds numbers such as {fractions[0]}: "
                "that is a quantity, not a class. Turn it into classes first, for example died = risk > 0.5."
            )
        column = whole
    if column.dtype == pl.Boolean:
        return column.to_numpy(writable=True)
    if column.dtype.is_integer() and not column.cast(pl.Int64, strict=False).null_count():
        return column.cast(pl.Int64).to_numpy(writable=True)
    return np.asarray(to_text(column).to_list(), dtype=str)


def encode_column(column: pl.Series) -> NDArray[np.int64]:
    """A code from 1 for each class or group; 0 means missing."""
    return to_text(missing_to_null(column)).rank("dense").fill_null(0).to_numpy().astype(np.int64)


def group_codes(column: pl.Series, ids: pl.Series) -> NDArray[np.int64]:
    """A code from 1 for each group; raises if a sample has no group."""
    codes = encode_column(column)
    if not codes.all():
        raise DataError(
            f"{format_count(int((codes == 0).sum()), len(codes), 'samples')} have no '{column.name}' "
            f"(first: '{ids[int(codes.argmin())]}'), so their group cannot be kept together.\n"
            "Fill it in, or leave these samples out."
        )
    return codes


def group_or_own_codes(column: pl.Series) -> NDArray[np.int64]:
    """A code for each group; a sample without a group is its own group, with a negative code."""
    codes = encode_column(column)
    missing = codes == 0
    codes[missing] = -np.arange(1, missing.sum() + 1)
    return codes


def missing_to_null(column: pl.Series) -> pl.Series:
    """The column with NaN and '' turned into null: they also mean a missing label or group."""
    if column.dtype.is_float():
        return column.fill_nan(None)
    return column.set(column == "", None) if column.dtype == pl.String else column


def to_text(column: pl.Series) -> pl.Series:
    """The column as text, so that any two classes or groups can be compared."""
    try:
        return column.cast(pl.String)
    except pl.exceptions.PolarsError:
        raise DataError(
            f"samples: column '{column.name}' is of type {column.dtype}, which is neither text, a number nor "
            "true/false. Turn it into one of these."
        ) from None
