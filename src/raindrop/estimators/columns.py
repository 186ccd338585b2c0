"""The label columns of estimators that predict several of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from raindrop.errors import ConfigError, DataError
from raindrop.table.event_table import EventTable


def label_names(label: str | Sequence[str] | None, table: EventTable | None) -> list[str]:
    """The named columns, or the table's own label; "label" where neither is named."""
    if label is not None:
        return [label] if isinstance(label, str) else [str(name) for name in label]
    if table is None:
        return ["label"]
    if table.roles.label is None:
        raise ConfigError("Name the column to predict with label='NAME'; the table does not say which one it is.")
    return [table.roles.label]


def with_columns(table: EventTable, y: ArrayLike, names: Sequence[str]) -> EventTable:
    """The table with y (samples,) or (samples, columns) as these columns of its samples."""
    values = np.asarray(y)
    values = values[:, None] if values.ndim == 1 else values
    if values.shape != (len(table), len(names)):
        raise DataError(
            f"There are {len(table):,} samples and {len(names)} columns to predict ({', '.join(names)}), but y has the "
            f"shape {np.asarray(y).shape}."
        )
    columns = [pl.Series(name, values[:, at].tolist()) for at, name in enumerate(names)]
    samples = table.samples.with_columns(columns)
    label = names[0] if table.roles.label is None else table.roles.label
    return replace(table, samples=samples, roles=replace(table.roles, label=label))
