"""Readings: predicted readings with intervals, which can be written, or added to their table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError
from raindrop.table.event_table import EventTable
from raindrop.table.growing_files import growing_file
from raindrop.table.queries import QueryTable


@dataclass(frozen=True, eq=False)
class Readings:
    """A value for each query, in order, with an interval that contains the true value with probability `coverage`."""

    queries: QueryTable
    value: NDArray[np.float64]  # (q,)
    low: NDArray[np.float64]  # (q,)
    high: NDArray[np.float64]  # (q,)
    coverage: float

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"Readings({len(self):,} readings, intervals with a coverage of {self.coverage:g})"

    def _repr_html_(self) -> str:
        return self.frame()._repr_html_()

    def frame(self) -> pl.DataFrame:
        """sample, time, sensor, value, low, high."""
        columns = {"value": self.value, "low": self.low, "high": self.high}
        return self.queries.frame().with_columns(**{name: pl.Series(column) for name, column in columns.items()})

    def with_dates(self) -> Readings:
        """The same with date times, if the table was built from date times."""
        return replace(self, queries=self.queries.with_dates())

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> Path:
        """Write a Parquet or CSV file, depending on the suffix. overwrite: whether other content may be replaced."""
        write_readings([self], path, overwrite=overwrite)
        return Path(path)

    def fill_blocks(self) -> Iterator[EventTable]:
        """The same as `fill`, block by block if the table is large."""
        for rows, queries in self.queries.in_blocks():
            yield Readings(queries, self.value[rows], self.low[rows], self.high[rows], self.coverage).fill()

    def fill(self) -> EventTable:
        """The table of the queries with these readings added and marked in `filled`; its own readings are unchanged."""
        queries, table = self.queries, self.queries.table
        rows = table.rows()
        owner = np.concatenate([np.repeat(np.arange(len(table)), table.count), queries.sample])
        time = np.concatenate([np.asarray(table.time[rows]), queries.time])
        sensor = np.concatenate([np.asarray(table.sensor[rows]), queries.sensor.astype(np.int32)])
        value = np.concatenate([np.asarray(table.value[rows]), self.value])
        before = np.zeros(len(rows), dtype=bool) if table.filled is None else table.filled[rows]
        filled = np.concatenate([before, np.ones(len(self), dtype=bool)])
        order = np.lexsort([filled, sensor, time, owner])
        keep = np.ones(len(order), dtype=bool)  # a measured reading takes precedence over a filled one at the same time
        same = [column[order][1:] == column[order][:-1] for column in (owner, time, sensor)]
        keep[1:] = ~np.logical_and.reduce(same)
        order = order[keep]
        count = np.bincount(owner[order], minlength=len(table)).astype(np.int64)
        return replace(
            table,
            time=time[order],
            sensor=sensor[order],
            value=value[order],
            filled=filled[order],
            start=np.cumsum(count) - count,
            count=count,
        )


def write_readings(parts: Iterable[Readings], path: str | os.PathLike[str], *, overwrite: bool = True) -> int:
    """Write one Parquet or CSV file, depending on the suffix, from blocks of readings; returns their number."""
    number = 0
    with growing_file(require_suffix(path), overwrite=overwrite, for_spreadsheets=True) as append:
        for part in parts:
            append(part.frame())
            number += len(part)
    return number


def require_suffix(path: str | os.PathLike[str]) -> Path:
    """The path; raises unless it ends in .parquet or .csv."""
    target = Path(path)
    if target.suffix not in (".parquet", ".csv"):
        raise DataError(f"{target}: readings are written as .parquet or .csv; the path must end in one of these.")
    return target
