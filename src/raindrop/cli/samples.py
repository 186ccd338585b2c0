"""The samples a command works on: read the table, split it, and select parts of a split or a run."""

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


def read_table(data: Path, label: str | None, statics: Sequence[str], group: str | None) -> EventTable:
    """The table in a folder; roles that are given replace those it was written with."""
    from raindrop.table.event_table import EventTable

    options: dict[str, Any] = {"label": label, "statics": list(statics) or None, "group": group}
    return EventTable.read(data, **{name: value for name, value in options.items() if value is not None})


def has_label(data: Path, label: str | None) -> bool:
    """Whether the table in a folder has a column with this name."""
    return label is not None and label in read_table(data, None, (), None).samples.columns


def split_table(table: EventTable, split: str, seed: int) -> dict[str, EventTable]:
    """The parts by name for the value of `--split`."""
    if split == "none":
        return {"train": table}
    if split == "random":
        return dict(zip(("train", "val", "test"), table.split(seed=seed), strict=True))
    if not Path(split).exists() and ":" not in split:
        raise ConfigError(f"--split is 'random', 'none' or FILE:1 (split 1 of a file), not '{split}'.")
    return read_split(table, split)


def read_split(table: EventTable, split: str) -> dict[str, EventTable]:
    """The parts by name for a split in a file, given as FILE:1."""
    from raindrop.table.split_files import PARTS, Split

    return dict(zip(PARTS, Split.parse(split).apply(table), strict=True))


def select_split_part(table: EventTable, split: str, part: str) -> EventTable:
    """One part of a split in a file; 'auto' is the test part, 'all' the whole table."""
    return table if part == "all" else read_split(table, split)["test" if part == "auto" else part]


def drop_unlabelled(parts: dict[str, EventTable]) -> dict[str, EventTable]:
    """The parts without unlabelled samples, and a message; a part without any label is returned as it is."""
    kept = {name: part[part.labelled] if part.labelled.any() else part for name, part in parts.items()}
    num_dropped = sum(len(part) - len(kept[name]) for name, part in parts.items())
    if num_dropped:
        label = next(iter(parts.values())).roles.label
        console.print(f"leaving out {num_dropped:,} samples without a label '{escape(str(label))}'")
    return kept


def select_run_part(table: EventTable, run: Path, part: str) -> EventTable:
    """The samples of `table` in `part` of the run's split.

    'auto' leaves out the samples that the run was trained or validated on; 'all' is the whole table.
    """
    import polars as pl

    path = run / "split.parquet"
    if part == "all" or (part == "auto" and not path.exists()):
        return table
    if not path.exists():
        raise ConfigError(f"{run}: the run has no split, so there is no part '{part}'. Use --part all.")
    split = pl.read_parquet(path)
    part_name = "test" if part == "auto" else part
    ids_in_part = split.filter(pl.col("part") == part_name)["sample"]
    selected = table.samples["sample"].is_in(ids_in_part.implode()).to_numpy()
    in_split = table.samples["sample"].is_in(split["sample"].implode()).to_numpy()
    if part == "auto" and not in_split.any():
        return table  # none of these samples belongs to the run
    if not selected.any():
        raise ConfigError(f"{run}: none of the table's samples is in part '{part_name}' of its split. Use --part all.")
    if part == "auto":
        selected |= ~in_split
        console.print(f"leaving out {int((~selected).sum()):,} samples that the run was trained or validated on")
    return table[selected]
