"""Text cells: surrounding white space, missing markers, types, control characters; and the order of names."""

from __future__ import annotations

import re
from collections.abc import Iterable

import polars as pl

from raindrop.errors import CONTROL, DataError

MISSING_MARKERS = (
    *("NA", "na", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "NaT"),
    *("null", "NULL", "Null", "None", "-", "--", "?", "."),
)
"""Text that means "missing", besides empty text, in all columns except sample ids and sensor names."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_DIGITS = re.compile(r"([0-9]{1,18})")


def clean_text(column: pl.Series) -> tuple[pl.Series, int]:
    """Stripped text, null where it is empty or a missing marker; and the number of markers."""
    text = column.cast(pl.String).str.strip_chars()
    marked = text.is_in(MISSING_MARKERS).fill_null(False)
    return text.set(marked | (text == "").fill_null(False), None), int(marked.sum())


def clean_columns(frame: pl.DataFrame, names: Iterable[str], source: str, notices: list[str]) -> pl.DataFrame:
    """The frame with these columns cleaned if they are text; a notice reports how many cells count as missing."""
    cleaned, found = [], {}
    for name in names:
        if frame[name].dtype in (pl.String, pl.Categorical, pl.Enum):
            column, marked = clean_text(frame[name])
            if marked:
                found[name] = marked
            if marked or frame[name].dtype == pl.String:
                cleaned.append(column)
    if found:
        listed = ", ".join(f"{number:,} in '{name}'" for name, number in found.items())
        notices.append(f"{source}: cells such as NA, null or - are taken as missing: {listed}.")
    return frame.with_columns(cleaned)


def infer_type(column: pl.Series) -> pl.Series:
    """A column of clean text as whole numbers, numbers or true/false, if every cell is one.

    Whole numbers of more than 63 bits stay text: as floats, different ids would be the same number.
    """
    if column.dtype != pl.String or not column.count():
        return column
    for dtype in (pl.Int64, pl.Float64):
        number = column.cast(dtype, strict=False)
        if number.null_count() == column.null_count():
            is_id = dtype == pl.Float64 and column.str.contains(r"^[+-]?[0-9]+$").all()
            return column if is_id else number
    lower = column.str.to_lowercase()
    return lower == "true" if lower.is_in(["true", "false"]).all() else column


def require_printable(names: Iterable[str], what: str, source: str) -> None:
    """Raise if a name has control characters: they would act on a terminal, and two names could look the same."""
    strange = [name for name in names if CONTROL.search(name)]
    if strange:
        raise DataError(
            f"{source}: {len(strange):,} {what} with control characters (first: {strange[0]!r}).\n"
            "Remove line breaks, tabs and other control characters from names."
        )


def natural_key(name: str) -> tuple[int, float, list[str | int]]:
    """Sort key: names that are numbers come first, by value; numbers within other names also sort by value."""
    if _NUMBER.fullmatch(name):
        return 0, float(name), [name]
    parts = _DIGITS.split(name)
    return 1, 0.0, [int(part) if at % 2 else part for at, part in enumerate(parts)]
