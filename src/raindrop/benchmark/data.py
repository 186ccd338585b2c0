"""The data of an experiment: its event table, and the training, validation and test samples of each split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.benchmark.spec import Data, Experiment, Splits
from raindrop.datasets import DATASETS
from raindrop.errors import ConfigError, DataError, format_count, suggest
from raindrop.estimators import estimator_type
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns
from raindrop.table.sample_columns import missing_to_null
from raindrop.table.split_files import Split


def find_table(data_folder: Path, data: Data) -> Path:
    """The table's folder inside `data_folder`, or `data_folder` itself if it is the table."""
    folder = data_folder / data.folder
    if folder.is_dir():
        return folder
    if not data_folder.is_dir():
        raise DataError(f"{data_folder}: there is no such folder.")
    if any(data_folder.glob("events.*")):
        return data_folder
    siblings = sorted(path.name for path in data_folder.iterdir() if path.is_dir())
    advice = (
        f"Make it with: raindrop convert {data.folder} SOURCE --out {folder}"
        if data.folder in DATASETS
        else "It must hold events.parquet or .csv (sample, time, sensor, value) and samples.parquet or .csv "
        f"(sample, {', '.join(data.labels)})."
    )
    raise DataError(f"{data_folder}: there is no folder '{data.folder}'; {suggest(data.folder, siblings)}\n{advice}")


@lru_cache(maxsize=2)
def open_table(data: Data, folder: Path) -> EventTable:
    """The table with its label, without the excluded static attributes."""
    table = EventTable.read(folder, **({"time_unit": data.time_unit} if data.time_unit else {}))  # type: ignore[arg-type]
    statics = table.roles.statics
    for name in data.exclude_statics:
        if name not in statics:
            raise DataError(f"{folder}: there is no static attribute '{name}' to exclude; {suggest(name, statics)}")
    kept = [name for name in statics if name not in data.exclude_statics]
    for name in data.labels:
        require_columns(table.samples, {"label": name}, str(folder / "samples"))
    table = table.with_roles(label=data.labels[0], statics=kept)
    if not has_label(table, data).any():
        raise DataError(f"{folder}: none of the {len(table):,} samples has a label '{', '.join(data.labels)}'.")
    return table


def has_label(table: EventTable, data: Data) -> NDArray[np.bool_]:
    """(samples,) which of them have at least one of the labels."""
    columns = [missing_to_null(table.samples[name]) for name in data.labels]
    known: NDArray[np.bool_] = np.any([column.is_not_null().to_numpy() for column in columns], axis=0)
    return known


def positive_class(data: Data, classes: Sequence[str]) -> str | None:
    """The class that the metrics of a two-class label refer to; None if there are more classes."""
    if data.positive is not None and str(data.positive) not in classes:
        known = suggest(str(data.positive), classes)
        raise ConfigError(f"{data.folder}: data.positive is '{data.positive}', which is no class: {known}")
    if len(classes) != 2:
        return None
    return classes[-1] if data.positive is None else str(data.positive)


def list_splits(experiment: Experiment, table: EventTable, numbers: Sequence[int]) -> list[tuple[int, Splits]]:
    """(number, splits) of the requested splits, by default all; split 1 of every scenario comes first."""
    available = [
        (number, splits)
        for splits in experiment.splits
        for number in (range(1, len(_values(table, splits.rotate_by)) + 1) if splits.rotate_by else splits.numbers)
    ]
    unknown = sorted(set(numbers) - {number for number, _ in available})
    if unknown:
        known = ", ".join(map(str, sorted({number for number, _ in available})))
        raise ConfigError(f"{experiment.name} has no split {unknown[0]}; there are {known}.")
    chosen = [(number, splits) for number, splits in available if not numbers or number in numbers]
    return sorted(chosen, key=lambda pair: pair[0])


def split_table(
    table: EventTable, data: Data, splits: Splits, number: int, folder: Path
) -> tuple[EventTable, EventTable, EventTable]:
    """Training, validation and test samples of split `number`; samples without a label are left out."""
    roles = table.roles
    if not estimator_type(data.task).task_type.stratified:
        table = replace(table, roles=replace(roles, label=None))
    subsets = [replace(subset, roles=roles) for subset in _split(table, splits, number, folder)]
    train, val, test = (subset[has_label(subset, data)] for subset in subsets)
    for name, subset in (("training", train), ("validation", val), ("test", test)):
        if not len(subset):
            raise DataError(f"{folder}: split {number} has no {name} sample with a label '{', '.join(data.labels)}'.")
    return train, val, test


def _split(table: EventTable, splits: Splits, number: int, folder: Path) -> Sequence[EventTable]:
    if splits.file is not None:
        return Split.read(folder / splits.file, number).apply(table)
    if splits.rotate_by is not None:
        values = _values(table, splits.rotate_by)
        column = table.samples[splits.rotate_by].cast(pl.String)
        in_test, in_val = column == values[number - 1], column == values[number % len(values)]
        return [table[_is_true(mask)] for mask in (~in_test & ~in_val, in_val, in_test)]
    if splits.train_where is not None:
        in_train = _evaluate_condition(table, splits.train_where)
        return [table[_is_true(in_train)], *table[_is_true(~in_train)].split((0.5, 0.5), seed=number)]
    return table.split(seed=number)


def _is_true(condition: pl.Series) -> NDArray[np.bool_]:
    """A condition on a missing value is null, which counts as false."""
    return condition.fill_null(False).to_numpy()


def _values(table: EventTable, column: str) -> list[str]:
    if column not in table.samples.columns:
        raise DataError(f"There is no column '{column}' to split by; {suggest(column, table.samples.columns)}")
    values = table.samples[column].cast(pl.String).drop_nulls().unique().sort().to_list()
    if len(values) < 3:
        raise DataError(f"'{column}' has {len(values)} values; training, validation and test need at least three.")
    return values


def _evaluate_condition(table: EventTable, text: str) -> pl.Series:
    try:
        condition = table.samples.select(pl.sql_expr(text)).to_series()
    except (pl.exceptions.PolarsError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"splits.train_where: '{text}' is not a condition on the samples ({reason}).") from None
    if condition.dtype != pl.Boolean:
        raise ConfigError(
            f"splits.train_where: '{text}' is neither true nor false; write a condition such as Age < 65."
        )
    num_true = int(condition.sum() or 0)
    if num_true in (0, len(condition) - condition.null_count()):
        count = format_count(num_true, len(condition), "samples")
        raise DataError(f"splits.train_where: '{text}' is true for {count}, so it does not split them.")
    return condition
