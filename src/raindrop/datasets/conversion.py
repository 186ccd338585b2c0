"""The result of a converter: the table, and a report of everything it left out or changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from raindrop.errors import DataError
from raindrop.files import write_json
from raindrop.table.event_table import EventTable
from raindrop.table.split_files import Split, write_splits
from raindrop.table.store import Writer

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A folder or archive, or several of them."""
Limits = Mapping[str, tuple[float, float]]
"""The lowest and highest possible value by sensor or static; names that are not listed have no limits."""
UNITS = ("files", "rows", "readings", "statics", "labels", "samples")


@dataclass
class Report:
    """What was read, and how much of it was left out or changed, by reason."""

    title: str
    read: dict[str, int] = field(default_factory=dict)
    changes: dict[tuple[str, str], int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def count(self, reason: str, number: int, unit: str) -> None:
        """Add `number` items of `unit` (one of UNITS) that were left out or changed for `reason`; 0 adds nothing."""
        if unit not in UNITS:
            raise ValueError(f"'{unit}' is not one of {UNITS}")
        if number:
            self.changes[unit, reason] = self.changes.get((unit, reason), 0) + int(number)

    def count_read(self, noun: str, number: int) -> None:
        """Add to the number of files, rows, ... that were read."""
        self.read[noun] = self.read.get(noun, 0) + int(number)

    def total(self, reason: str, unit: str | None = None) -> int:
        """The number of items counted for `reason`."""
        return sum(n for (u, r), n in self.changes.items() if r == reason and unit in (None, u))

    def rows(self) -> list[tuple[str, str, int]]:
        """(unit, reason, number), in the order of UNITS, most frequent first within a unit."""
        ordered = sorted(self.changes.items(), key=lambda c: (UNITS.index(c[0][0]), -c[1], c[0][1]))
        return [(unit, reason, number) for (unit, reason), number in ordered]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        changes = [{"unit": unit, "reason": reason, "count": number} for unit, reason, number in self.rows()]
        return {"title": self.title, "read": dict(self.read), "changes": changes, "notes": list(self.notes)}

    def __str__(self) -> str:
        read = ", ".join(f"{number:,} {noun}" for noun, number in self.read.items())
        lines = [f"{self.title}: read {read}"]
        lines += [f"  {number:>10,} {unit:<8}  {reason}" for unit, reason, number in self.rows()]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True)
class Conversion:
    """A converted data set."""

    table: EventTable
    report: Report
    splits: Mapping[int, Split] | None = None
    """Splits by number that keep the table's groups apart; None if the published splits, if any, apply instead."""

    @classmethod
    def from_table(cls, table: EventTable, report: Report, splits: Mapping[int, Split] | None = None) -> Conversion:
        """Add the readings that building the table dropped to the report, and the report's readings to the table."""
        for reason, number in table.dropped.items():
            report.count(reason, number, "readings")
        reasons = {reason: number for unit, reason, number in report.rows() if unit in ("rows", "readings")}
        return cls(replace(table, dropped=reasons), report, splits)

    def write(
        self, folder: str | os.PathLike[str], *, overwrite: bool = False, splits: Mapping[int, Split] | None = None
    ) -> Path:
        """Write the table's folder, with the report as `conversion.json` and, if there are any, the splits.

        `splits` are written if the conversion has none of its own. The folder appears when all files are complete.
        """
        beside: dict[str, Writer] = {"conversion.json": lambda path: write_json(path, self.report.to_dict())}
        chosen = splits if self.splits is None else self.splits
        if chosen:
            beside[self.splits_file] = lambda path: write_splits(path, chosen)
        return self.table.write(folder, overwrite=overwrite, beside=beside)

    @property
    def splits_file(self) -> str:
        """The name of the file with the splits: by the table's group, or the published ones."""
        return "splits.parquet" if self.splits is None else f"splits_by_{self.table.roles.group}.parquet"


def concatenate(tables: Sequence[EventTable]) -> EventTable:
    """One table with the samples of all `tables`, which must have the same sensors, roles and time unit."""
    first = tables[0]
    if any((t.sensors, t.roles, t.time_unit) != (first.sensors, first.roles, first.time_unit) for t in tables):
        raise ValueError("The tables differ in sensors, roles or time unit.")
    counts = np.concatenate([table.count for table in tables])
    dropped: dict[str, int] = {}
    for table in tables:
        for reason, number in table.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + number
    return replace(
        first,
        time=np.concatenate([table.time[table.rows()] for table in tables]),
        sensor=np.concatenate([table.sensor[table.rows()] for table in tables]),
        value=np.concatenate([table.value[table.rows()] for table in tables]),
        start=np.cumsum(counts) - counts,
        count=counts,
        samples=pl.concat([table.samples for table in tables]),
        dropped=dropped,
    )


def concatenate_by_number(tables: Sequence[EventTable]) -> EventTable:
    """One table with samples in ascending order of their numeric ids, the order that published splits refer to."""
    table = concatenate(tables)
    return table[table.samples["sample"].cast(pl.Int64).arg_sort().to_numpy()]


def drop_impossible(events: pl.DataFrame, limits: Limits | None, report: Report) -> pl.DataFrame:
    """Drop the readings outside `limits`; the report counts them by sensor."""
    for sensor, (low, high) in (limits or {}).items():
        impossible = (pl.col("sensor") == sensor) & ~pl.col("value").is_between(low, high)
        kept = events.filter(~impossible)
        report.count(f"{sensor} outside {low:g} to {high:g}", len(events) - len(kept), "readings")
        events = kept
    return events


def no_files_error(source: Source, files: str, layout: str) -> DataError:
    """The error for a source that has none of the expected files; `layout` says what is expected."""
    paths = source if isinstance(source, (str, os.PathLike)) else ", ".join(str(path) for path in source)
    return DataError(f"{paths}: there are no {files} in it.\n{layout}")
