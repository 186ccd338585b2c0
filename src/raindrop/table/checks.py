"""Shared by row checks: the names of the tables in messages, rejecting rows, and dropping rows."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from raindrop.errors import RowError


@dataclass(frozen=True)
class Sources:
    """The names of the two tables in messages."""

    events: str = "events"
    samples: str = "samples"

    @classmethod
    def from_option(cls, source: str | tuple[str, str] | None) -> Sources:
        """One name for both tables, or one each."""
        if isinstance(source, tuple):
            return cls(*source)
        return cls(f"{source} events", f"{source} samples") if source else cls()


def reject_rows(
    rows: pl.DataFrame,
    wrong: pl.Expr | pl.Series,
    source: str,
    fault: str,
    rule: str,
    fix: str = "; drop these rows or fix the export",
) -> None:
    """Raise if any row is `wrong`; the message gives source, fault, number of rows, the first one and the fix."""
    bad = rows.filter(wrong)
    if len(bad):
        first = bad.row(0, named=True)
        place = [f", {name} '{first[name]}'" for name in ("sample", "sensor") if first[name] is not None]
        sentence = f"{source}: {{count}} {fault} (first: {{row}}{''.join(place)}).\n{rule}{fix}."
        raise RowError(sentence, len(bad), len(rows), int(first["row"]))


def drop_rows(rows: pl.DataFrame, condition: pl.Expr | pl.Series, dropped: dict[str, int], reason: str) -> pl.DataFrame:
    """The rows that do not meet the condition; the number of the others is added to `dropped`."""
    kept = rows.filter(~condition)
    dropped[reason] = len(rows) - len(kept)
    return kept
