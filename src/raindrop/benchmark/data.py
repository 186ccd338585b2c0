"""The data of an experiment: its table, and which samples of it train, validate and test."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.benchmark.spec import Data, Experiment, Splits
from raindrop.errors import ConfigError, DataError, format_count, suggest
from raindrop.table.event_table import EventTable
from raindrop.table.split_files import Split

Parts = tuple[EventTable, EventTable, EventTable]


def find_table(data: Path, about: Data) -> Path:
    """DATA/NAME, or DATA itself where it is the table."""
    if (data / about.folder).is_dir():
        return data / about.folder
    if not data.is_dir():
        raise DataError(f"{data}: there is no such folder.")
    if any(data.glob("events.*")):
        return data
    there = sorted(path.name for path in data.iterdir() if path.is_dir())
    raise DataError(
        f"{data}: there is no folder '{about.folder}'; {suggest(about.folder, there)}\n"
        f"Make it with: raindrop convert {about.folder} SOURCE --out {data / about.folder}"
    )


@lru_cache(maxsize=2)
def open_table(about: Data, folder: Path) -> EventTable:
    """The table with its label, without the statics that are left out."""
    table = EventTable.read(folder, **({"time_unit": about.time_unit} if about.time_unit else {}))
    statics = table.roles.statics
    for name in about.leave_out:
        if name not in statics:
            raise DataError(f"{folder}: there is no static '{name}' to leave out; {suggest(name, statics)}")
    table = table.with_roles(label=about.label, statics=[name for name in statics if name not in about.leave_out])
    if not table.labelled.any():
        raise DataError(f"{folder}: none of the {len(table):,} samples has a label '{about.label}'.")
    last = str(np.unique(table[table.labelled].labels)[-1])
    if about.positive is not None and str(about.positive) != last:
        raise ConfigError(
            f"{folder}: data.positive is '{about.positive}', but of the classes of '{about.label}' the last, which "
            f"figures are about, is '{last}'."
        )
    return table


def numbered(experiment: Experiment, table: EventTable, wanted: Sequence[int]) -> list[tuple[int, Splits]]:
    """The splits with these numbers, all where none is named; split 1 of every scenario first."""
    there = [
        (number, splits)
        for splits in experiment.splits
        for number in (range(1, len(_values(table, splits.by)) + 1) if splits.by else splits.numbers)
    ]
    unknown = sorted(set(wanted) - {number for number, _ in there})
    if unknown:
        known = ", ".join(map(str, sorted({number for number, _ in there})))
        raise ConfigError(f"{experiment.name} has no split {unknown[0]}; there are {known}.")
    return sorted(((n, s) for n, s in there if not wanted or n in wanted), key=lambda pair: pair[0])


def parts_of(table: EventTable, splits: Splits, number: int, folder: Path) -> Parts:
    """Training, validation and test samples of split `number`; samples without a label are in none."""
    train, val, test = (part[part.labelled] for part in _parts(table, splits, number, folder))
    for name, part in (("training", train), ("validation", val), ("test", test)):
        if not len(part):
            raise DataError(f"{folder}: split {number} has no {name} sample with a label '{table.roles.label}'.")
    return train, val, test


def _parts(table: EventTable, splits: Splits, number: int, folder: Path) -> Sequence[EventTable]:
    if splits.file is not None:
        return Split.read(folder / splits.file, number).apply(table)
    if splits.by is not None:
        values = _values(table, splits.by)
        held = table.samples[splits.by].cast(pl.String)
        tested, validated = values[number - 1], values[number % len(values)]
        others = (held != tested) & (held != validated)
        return [table[_true(chosen)] for chosen in (others, held == validated, held == tested)]
    if splits.train is not None:
        chosen = _condition(table, splits.train)
        return [table[_true(chosen)], *table[_true(~chosen)].split((0.5, 0.5), seed=number)]
    return table.split(seed=number)


def _true(condition: pl.Series) -> NDArray[np.bool_]:
    """Neither true nor false, because a value is missing, is not true."""
    return condition.fill_null(False).to_numpy()


def _values(table: EventTable, column: str) -> list[str]:
    if column not in table.samples.columns:
        raise DataError(f"There is no column '{column}' to split by; {suggest(column, table.samples.columns)}")
    values = table.samples[column].cast(pl.String).drop_nulls().unique().sort().to_list()
    if len(values) < 3:
        raise DataError(f"'{column}' has {len(values)} values; at least three are needed to train, validate and test.")
    return values


def _condition(table: EventTable, text: str) -> pl.Series:
    try:
        found = table.samples.select(pl.sql_expr(text)).to_series()
    except (pl.exceptions.PolarsError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"splits.train: '{text}' is no condition on the samples ({reason}).") from None
    if found.dtype != pl.Boolean:
        raise ConfigError(f"splits.train: '{text}' is neither true nor false; write a condition such as Age < 65.")
    held = int(found.sum() or 0)
    if held in (0, len(found) - found.null_count()):
        raise DataError(
            f"splits.train: '{text}' holds for {format_count(held, len(found), 'samples')}; that is no split."
        )
    return found
