"""A table in a notebook: an HTML summary and its first readings."""

from __future__ import annotations

from html import escape

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import format_count, printable
from raindrop.table.store import Roles

MAX_SENSORS = 12


def to_html(
    count: NDArray[np.int64],
    sensors: tuple[str, ...],
    samples: pl.DataFrame,
    roles: Roles,
    time_unit: str,
    notices: tuple[str, ...],
    first: pl.DataFrame,
) -> str:
    """The fields of an EventTable as a small HTML table, with its `first` readings below."""
    label = roles.label
    rows = {
        "samples": f"{len(count):,}" + _without_readings(count),
        "readings": f"{int(count.sum()):,}",
        "sensors": _shorten(sensors),
        "time": f"in {time_unit}",
        "label": "none" if label is None else f"{label} ({_known_labels(samples[label])})",
        "statics": ", ".join(roles.statics) or "none",
        **{f"notice {at + 1}": notice for at, notice in enumerate(notices)},
    }
    cells = "".join(
        f'<tr><th style="text-align:left">{name}</th><td style="text-align:left">{escape(printable(text))}</td></tr>'
        for name, text in rows.items()
    )
    header = "".join(f"<th>{name}</th>" for name in first.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_format(cell))}</td>" for cell in row) + "</tr>" for row in first.iter_rows()
    )
    return (
        f"<div><strong>EventTable</strong><table><tbody>{cells}</tbody></table>"
        f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _without_readings(count: NDArray[np.int64]) -> str:
    empty = int((count == 0).sum())
    return f", {empty:,} of them without readings" if empty else ""


def _known_labels(column: pl.Series) -> str:
    missing = column.null_count()
    different = column.drop_nulls().n_unique()
    return f"{different:,} values" + (f", {format_count(missing, len(column), 'samples')} without" if missing else "")


def _shorten(names: tuple[str, ...]) -> str:
    more = f", ... ({len(names):,})" if len(names) > MAX_SENSORS else ""
    return ", ".join(names[:MAX_SENSORS]) + more


def _format(cell: object) -> str:
    return f"{cell:g}" if isinstance(cell, float) else printable(str(cell))
