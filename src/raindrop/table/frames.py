"""Frames given by the user are converted to polars, with the required columns and with ids as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import polars as pl

from raindrop.errors import DataError, MissingExtraError, format_count, suggest

LARGEST_EXACT = 2**53 - 1, 2**24 - 1  # of float64 and float32: the next whole number is the same float as the one after


def to_polars(frame: Any, source: str) -> pl.DataFrame:
    """A polars frame from polars, pandas, Arrow, DuckDB or a mapping of columns; `source` names it in messages."""
    try:
        if isinstance(frame, pl.LazyFrame):
            return frame.collect()
        if isinstance(frame, pl.DataFrame):
            return frame
        if frame is None or isinstance(frame, (str, bytes, PathLike)):
            raise TypeError(f"it is {frame!r}; a folder is read with EventTable.read")
        return _from_mapping(frame) if isinstance(frame, Mapping) else pl.DataFrame(frame)
    except ImportError as error:
        raise MissingExtraError(error.name or "pyarrow", "pandas", f"Reading {source} of this kind") from None
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError, NotImplementedError, OSError) as error:
        raise DataError(
            f"{source}: cannot be read as a table ({(str(error) or type(error).__name__).splitlines()[0]}).\n"
            "Give a polars or pandas frame, an Arrow table, a DuckDB relation or a mapping of equally long columns, "
            "each of one type."
        ) from None


def to_pandas(frame: pl.DataFrame, purpose: str) -> Any:
    """A pandas frame from a polars frame."""
    try:
        return frame.to_pandas()
    except ImportError as error:
        raise MissingExtraError(error.name or "pandas", "pandas", purpose) from None


def _from_mapping(columns: Mapping[str, Any]) -> pl.DataFrame:
    """A frame from lists or arrays. Lists may mix integers, floats and text; text in numbers is reported later."""
    frame = pl.DataFrame(columns, strict=False)
    for name, column in columns.items():
        if isinstance(column, (list, tuple)) and frame[name].null_count() > sum(entry is None for entry in column):
            raise TypeError(f"column '{name}' mixes types, or holds numbers that are too large")
    return frame


def require_columns(frame: pl.DataFrame, columns: Mapping[str, str], source: str) -> None:
    """Raise unless every column of `columns` (role -> name) exists; the message suggests the closest name."""
    for role, name in columns.items():
        if name not in frame.columns:
            if role.isidentifier():
                option = f"{role}='NAME' (--{role.replace('_', '-')} NAME)"
            else:
                option = "statics=['NAME', ...] (--statics NAME ...)"
            wide = "\nIf each sensor has a column of its own, read it with EventTable.from_wide (--wide)."
            raise DataError(
                f"{source}: there is no column '{name}' (needed as {role}); {suggest(str(name), frame.columns)}\n"
                f"Rename the column, or say which one it is with {option}.{wide if role in ('sensor', 'value') else ''}"
            )


def to_name_tuple(names: Sequence[str], option: str) -> tuple[str, ...]:
    """A list of names as a tuple; a single string raises, because it would be taken as a list of letters."""
    if isinstance(names, str):
        raise DataError(f"{option}='{names}' is one name; give a list: {option}=['{names}'].")
    return tuple(str(name) for name in names)


def ids_as_text(column: pl.Series, role: str, source: str) -> pl.Series:
    """Sample ids or sensor names as text: 17.0 and 17 are the same name, NaN and '' become null."""
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object, pl.Duration):
        raise DataError(
            f"{source}: column '{column.name}' is of type {column.dtype}, which cannot name a {role}.\n"
            f"Turn it into text or whole numbers, or say which column it is with {role}='NAME' (--{role} NAME)."
        )
    if column.dtype.is_float():
        column = column.fill_nan(None)
        largest = LARGEST_EXACT[column.dtype == pl.Float32]
        merged = (column.abs() > largest).fill_null(False)
        if merged.any():
            raise DataError(
                f"{source}: column '{column.name}' holds {role} ids above {largest:,} as {column.dtype} numbers in "
                f"{format_count(int(merged.sum()), len(column), 'rows')} (first: {column.filter(merged)[0]:.17g}), "
                "where several ids are the same number.\n"
                "Read the column as text or whole numbers; one missing id is enough for pandas to make floats of it."
            )
        whole = column.cast(pl.Int64, strict=False)
        is_whole = whole.cast(pl.Float64) == column.cast(pl.Float64)
        return whole.cast(pl.String).zip_with(is_whole.fill_null(False), column.cast(pl.String))
    if column.dtype.is_integer() or column.dtype == pl.Boolean:
        return column.cast(pl.String)
    text = column.cast(pl.String)
    if (text.str.starts_with(" ") | text.str.ends_with(" ")).any():
        text = text.str.strip_chars(" ")
    if text.str.ends_with(".0").any():
        text = text.str.replace(r"^(-?(?:0|[1-9][0-9]*))\.0$", "$1")
    return text.set(text == "", None)
