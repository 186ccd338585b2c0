"""Choose the task from a table's label columns: classes, yes/no labels, quantities, or readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from raindrop.errors import ConfigError, DataError
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns
from raindrop.table.sample_columns import missing_to_null
from raindrop.tasks.multilabel import NO, YES

READINGS = "readings"
"""The task where there is no label: fill gaps."""
MAX_CLASSES = 20  # whole numbers with more distinct values are a quantity
MIN_LABELLED = 20


@dataclass(frozen=True)
class Guess:
    """The task, its label columns, and the reason for the choice."""

    task: str
    labels: tuple[str, ...]
    reason: str


def guess_task(table: EventTable, labels: Sequence[str] = (), task: str | None = None) -> Guess:
    """The task of these label columns, or of the table's label; a given `task` is used as it is."""
    names = tuple(labels) or ((table.roles.label,) if table.roles.label else ())
    for name in names:
        require_columns(table.samples, {"label": name}, "samples")
    if task is not None:
        if task != READINGS and not names:
            raise ConfigError(f"The task '{task}' needs a label; name its column with label='NAME' (--label NAME).")
        return Guess(task, () if task == READINGS else names, "as asked for")
    if not names:
        return Guess(READINGS, (), "the table has no label, so its gaps are filled")
    columns = [missing_to_null(table.samples[name]) for name in names]
    if len(names) > 1:
        if all(_is_yes_or_no(column) for column in columns):
            return Guess("multilabel", names, f"{len(names)} labels of yes and no")
        if all(column.dtype.is_numeric() for column in columns):
            return Guess("regression", names, f"{len(names)} quantities")
        wrong = next(c.name for c in columns if not (_is_yes_or_no(c) or c.dtype.is_numeric()))
        raise ConfigError(
            f"Several labels must be all yes/no or all numbers; '{wrong}' is neither. Give one label, or name the task."
        )
    (column,) = columns
    known = column.drop_nulls()
    if len(known) < MIN_LABELLED:
        raise DataError(
            f"Only {len(known):,} of {len(table):,} samples have a label '{column.name}'; at least {MIN_LABELLED} are "
            "needed to learn it and to check that it was learned."
        )
    distinct = known.n_unique()
    is_number = column.dtype.is_numeric()
    whole = is_number and bool((known.cast(pl.Float64) == known.cast(pl.Float64).round()).all())
    if is_number and (not whole or distinct > MAX_CLASSES):
        return Guess("regression", names, f"'{column.name}' holds {distinct:,} different numbers, a quantity")
    if distinct > len(known) / 2:
        raise ConfigError(
            f"Label '{column.name}' has {distinct:,} different values in {len(known):,} samples: that looks like a "
            "name or an id, not like a class. Choose another column with label='NAME' (--label NAME)."
        )
    return Guess("classification", names, f"'{column.name}' has {distinct} classes")


def labelled_part(table: EventTable, guess: Guess) -> EventTable:
    """The samples with a known label; for classification, only classes with at least two samples."""
    if not guess.labels:
        return table
    columns = [missing_to_null(table.samples[name]) for name in guess.labels]
    known = np.any([column.is_not_null().to_numpy() for column in columns], axis=0)
    table = replace(table, roles=replace(table.roles, label=guess.labels[0]))[known]
    if guess.task != "classification":
        return table
    classes, code, count = np.unique(table.labels, return_inverse=True, return_counts=True)
    if (count < 2).any():
        table = table[count[code] >= 2]
    if (count >= 2).sum() < 2:
        raise DataError(f"All labelled samples have the label '{classes[0]}'. There must be at least two classes.")
    return table


def _is_yes_or_no(column: pl.Series) -> bool:
    if column.dtype == pl.Boolean:
        return True
    text = column.drop_nulls().cast(pl.String).str.strip_chars().str.to_lowercase()
    return bool(text.is_in((*YES, *NO)).all())
