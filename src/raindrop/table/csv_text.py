"""CSV files for spreadsheets: text that a spreadsheet would run as a formula is escaped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO

import polars as pl

FORMULA = r"^[=+\-@\t\r]"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def write_csv(frame: pl.DataFrame, path: Path | IO[bytes], *, include_header: bool = True) -> None:
    """Write a CSV file in which no text starts a formula.

    Text that starts with =, +, -, @, a tab or a carriage return, and is not a number, is prefixed with an apostrophe,
    as spreadsheets mark text. The same holds for column names.
    """
    names = {name: plain_text(name) for name in frame.columns if plain_text(name) != name}
    is_formula = pl.col(pl.String).str.contains(FORMULA) & ~pl.col(pl.String).str.contains(NUMBER)
    marked = pl.when(is_formula).then("'" + pl.col(pl.String)).otherwise(pl.col(pl.String))
    categorical = [name for name, kind in frame.schema.items() if isinstance(kind, (pl.Categorical, pl.Enum))]
    text = frame.with_columns(pl.col(categorical).cast(pl.String)) if categorical else frame
    if pl.String in text.dtypes:
        text = text.with_columns(marked.name.keep())
    text.rename(names).write_csv(path, include_header=include_header)


def plain_text(text: str) -> str:
    """One cell as `write_csv` writes it."""
    return f"'{text}" if re.match(FORMULA, text) and not re.match(NUMBER, text) else text
