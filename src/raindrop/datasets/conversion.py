"""What a converter hands over: the table, and an account of everything it left out or changed."""

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

Limits = Mapping[str, tuple[float, float]]
"""By name, the lowest and highest value that can be; names without limits may take any value."""
UNITS = ("files", "rows", "readings", "statics", "labels", "samples")


@dataclass
class Report:
    """What was read, and how much of it was left out or changed, by reason."""

    title: str
    read: dict[str, int] = field(default_factory=dict)
    changes: dict[tuple[str, str], int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def count(self, reason: str, number: int, unit: str) -> None:
        """Add to what happened to `unit` (one of UNITS) for `reason`; nothing happened where `number` is 0."""
        if unit not in UNITS:
            raise ValueError(f"'{unit}' is not one of {UNITS}")
        if number:
            self.changes[unit, reason] = self.changes.get((unit, reason), 0) + int(number)

    def saw(self, what: str, number: int) -> None:
        """Add to what was read."""
        self.read[what] = self.read.get(what, 0) + int(number)

    def of(self, reason: str, unit: str | None = None) -> int:
        """How often `reason` was counted."""
        return sum(n for (u, r), n in self.changes.items() if r == reason and unit in (None, u))

    def rows(self) -> list[tuple[str, str, int]]:
        """(unit, reason, number), files first and samples last, most frequent first within a unit."""
        ordered = sorted(self.changes.items(), key=lambda c: (UNITS.index(c[0][0]), -c[1], c[0][1]))
        return [(unit, reason, number) for (unit, reason), number in ordered]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        changes = [{"unit": unit, "reason": reason, "count": number} for unit, reason, number in self.rows()]
        return {"title": self.title, "read": dict(self.read), "changes": changes, "notes": list(self.notes)}

    def __str__(self) -> str:
        read = ", ".join(f"{number:,} {what}" for what, number in self.read.items())
        lines = [f"{self.title}: read {read}"]
        lines += [f"  {number:>10,} {unit:<8}  {reason}" for unit, reason, number in self.rows()]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True)
class Conversion:
    """A converted data set."""

    table: EventTable
    report: Report

    @classmethod
    def of(cls, table: EventTable, report: Report) -> Conversion:
        """The table with the report's reasons among those it carries, and the report with the table's."""
        for reason, number in table.dropped.items():
            report.count(reason, number, "readings")
        reasons = {reason: number for unit, reason, number in report.rows() if unit in ("rows", "readings")}
        return cls(replace(table, dropped=reasons), report)

    def write(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the table, and beside it `conversion.json`: the report."""
        path = self.table.write(folder, overwrite=overwrite)
        write_json(path / "conversion.json", self.report.as_dict())
        return path


def concatenate(tables: Sequence[EventTable]) -> EventTable:
    """One table of the samples of all `tables`, which share sensors, roles and time unit."""
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


def in_order_of_number(tables: Sequence[EventTable]) -> EventTable:
    """Concatenated, samples by ascending number of their ids: the order in which published splits count them."""
    table = concatenate(tables)
    return table[table.samples["sample"].cast(pl.Int64).arg_sort().to_numpy()]


def drop_impossible(events: pl.DataFrame, limits: Limits | None, report: Report) -> pl.DataFrame:
    """Without the readings outside `limits`; each sensor is counted by name."""
    for sensor, (low, high) in (limits or {}).items():
        impossible = (pl.col("sensor") == sensor) & ~pl.col("value").is_between(low, high)
        kept = events.filter(~impossible)
        report.count(f"{sensor} outside {low:g} to {high:g}", len(events) - len(kept), "readings")
        events = kept
    return events


def nothing_found(source: object, wanted: str, layout: str) -> DataError:
    """The error for a source without a single record."""
    shown = source if isinstance(source, (str, os.PathLike)) else ", ".join(str(path) for path in source)  # type: ignore[attr-defined]
    return DataError(f"{shown}: there are no {wanted} in it.\n{layout}")
