"""Which samples of a table a command works on: reading it, its split, and the parts of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from raindrop.errors import ConfigError

if TYPE_CHECKING:  # torch and polars load only when a command needs them
    from raindrop.table.event_table import EventTable

console = Console(soft_wrap=True, highlight=False)


def read(data: Path, label: str | None, statics: Sequence[str], group: str | None) -> EventTable:
    """The table in a folder, with these roles where they are given."""
    from raindrop.table.event_table import EventTable

    options: dict[str, Any] = {"label": label, "statics": list(statics) or None, "group": group}
    return EventTable.read(data, **{name: value for name, value in options.items() if value is not None})


def split_table(table: EventTable, split: str, seed: int, *, stratify: bool = True) -> dict[str, EventTable]:
    """The parts by name that `--split` asks for; a random split has the same mix of classes in every part."""
    from dataclasses import replace

    if split == "none":
        return {"train": table}
    if split == "random":
        source = table if stratify else replace(table, roles=replace(table.roles, label=None))
        parts = [replace(part, roles=table.roles) for part in source.split(seed=seed)]
        return dict(zip(("train", "val", "test"), parts, strict=True))
    if not Path(split).exists() and ":" not in split:
        raise ConfigError(f"--split is 'random', 'none' or FILE:1 (split 1 of a file), not '{split}'.")
    return parts_of(table, split)


def parts_of(table: EventTable, split: str) -> dict[str, EventTable]:
    """The parts of split 1 of a file, given as FILE:1."""
    from raindrop.table.split_files import PARTS, Split

    return dict(zip(PARTS, Split.parse(split).apply(table), strict=True))


def part_of(table: EventTable, split: str, part: str) -> EventTable:
    """One of them; the test part where nothing is said."""
    return table if part == "all" else parts_of(table, split)["test" if part == "auto" else part]


def labelled(parts: dict[str, EventTable], labels: Sequence[str]) -> dict[str, EventTable]:
    """Without the samples that have none of these labels, or not the table's own where none is named; says how many."""
    import numpy as np

    from raindrop.table.labels import missing_as_null

    kept = {}
    for name, part in parts.items():
        columns = [column for column in labels if column in part.samples.columns]
        known = part.labelled
        if columns:
            known = np.any([missing_as_null(part.samples[c]).is_not_null().to_numpy() for c in columns], axis=0)
        kept[name] = part[known] if known.any() else part
    without = sum(len(part) - len(kept[name]) for name, part in parts.items())
    if without:
        names = ", ".join(labels) or next(iter(parts.values())).roles.label
        console.print(f"leaving out {without:,} samples without a label '{escape(str(names))}'")
    return kept


def choose(table: EventTable, run: Path, part: str) -> EventTable:
    """The samples of `table` that belong to `part` of the run's split."""
    import polars as pl

    path = run / "split.parquet"
    if part == "all" or (part == "auto" and not path.exists()):
        return table
    if not path.exists():
        raise ConfigError(f"{run}: has no split of its own, so there is no part '{part}'. Use --part all.")
    listed = pl.read_parquet(path)
    named = "test" if part == "auto" else part
    wanted = listed.filter(pl.col("part") == named)["sample"]
    chosen = table.samples["sample"].is_in(wanted.implode()).to_numpy()
    known = table.samples["sample"].is_in(listed["sample"].implode()).to_numpy()
    if part == "auto" and not known.any():
        return table  # other samples than those of the run
    if not chosen.any():
        raise ConfigError(f"{run}: none of the table's samples is in part '{named}' of its split. Use --part all.")
    if part == "auto":
        chosen |= ~known
        console.print(f"leaving out {int((~chosen).sum()):,} samples that the run was trained or validated on")
    return table[chosen]
