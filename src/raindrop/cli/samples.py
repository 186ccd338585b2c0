"""The samples a command works on: read the table, split it, and select parts of a split or a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.markup import escape

from raindrop.errors import ConfigError

if TYPE_CHECKING:  # torch and polars load only when a command needs them
    import numpy as np
    from numpy.typing import NDArray

    from raindrop.cli.table_options import ReadOptions
    from raindrop.table.event_table import EventTable
    from raindrop.table.run_split import FoundParts

console = Console(soft_wrap=True, highlight=False)


def load_run(
    run: Path, kind: Literal["samples", "imputer", "forecaster"], *, otherwise: str = "", key: Path | None = None
) -> Any:
    """The estimator of a run; if it is of another kind, the error names the command for it.

    otherwise: that command, if it is not the one that applies the run.
    key: file with the key that the run must be signed with.
    """
    from raindrop.estimators import Forecaster, Imputer, SampleEstimator, load

    estimator = load(run, key=key)
    kinds = {"samples": SampleEstimator, "imputer": Imputer, "forecaster": Forecaster}
    if isinstance(estimator, kinds[kind]):
        return estimator
    if isinstance(estimator, Imputer):
        holds, command = "an imputer", f"fill gaps with 'raindrop impute apply {run} DATA --out FILLED'"
    elif isinstance(estimator, Forecaster):
        holds, command = "a forecaster", f"apply it with 'raindrop forecast apply {run} DATA --every 1.0 --out FILE'"
    else:
        task = estimator.task_.name
        holds, command = f"a model for {task}", f"apply it with 'raindrop predict {run} DATA --out predictions.parquet'"
    if otherwise:
        raise ConfigError(f"{run}: the run holds {holds}; write its report with '{otherwise}'.")
    raise ConfigError(f"{run}: the run holds {holds}; {command}, or evaluate it with 'raindrop evaluate {run} DATA'.")


def number_or_text(text: str | None) -> float | str | None:
    """The value of an option that is a number, or text such as a date, a duration or the name of a column."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def print_next(command: str, options: ReadOptions) -> None:
    """The command to go on with, and the options that this table needs to be read."""
    console.print(escape(f"next: raindrop {command}{options.as_text()}"), soft_wrap=True)


def split_table(table: EventTable, split: str, seed: int, *, stratify: bool = True) -> dict[str, EventTable]:
    """The parts by name for the value of `--split`; a stratified random split has the same mix of classes in each."""
    from dataclasses import replace

    if split == "none":
        return {"train": table}
    if split == "random":
        source = table if stratify else replace(table, roles=replace(table.roles, label=None))
        parts = [replace(part, roles=table.roles) for part in source.split(seed=seed)]
        return dict(zip(("train", "val", "test"), parts, strict=True))
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


def drop_unlabelled(parts: dict[str, EventTable], labels: Sequence[str]) -> dict[str, EventTable]:
    """The parts without samples that have none of these labels, with a message; by default, the table's label.

    A part without any label is returned unchanged.
    """
    kept = {}
    for name, part in parts.items():
        known = labelled_samples(part, labels)
        kept[name] = part[known] if known.any() else part
    num_dropped = sum(len(part) - len(kept[name]) for name, part in parts.items())
    if num_dropped:
        label = ", ".join(labels) or next(iter(parts.values())).roles.label
        noun = "sample" if num_dropped == 1 else "samples"
        console.print(f"leaving out {num_dropped:,} {noun} without a label '{escape(str(label))}'")
    return kept


def labelled_samples(table: EventTable, labels: Sequence[str]) -> NDArray[np.bool_]:
    """(samples,) which have any of these labels, or the table's label if it has none of these columns."""
    import numpy as np

    from raindrop.table.sample_columns import missing_to_null

    columns = [missing_to_null(table.samples[label]) for label in labels if label in table.samples.columns]
    return np.any([c.is_not_null().to_numpy() for c in columns], axis=0) if columns else table.labelled


def select_run_part(table: EventTable, run: Path, part: str, estimator: Any) -> EventTable:
    """The samples of `table` in `part` of the run's split.

    'auto' leaves out the samples that the run was trained or validated on; 'all' is the whole table.
    """
    found = None if part == "all" else find_run_parts(table, run, estimator)
    if found is None:
        if part not in ("auto", "all"):
            raise ConfigError(f"{run}: the run has no split, so there is no part '{part}'. Use --part all.")
        return table
    for number, what, taken_as in (
        (found.changed, "have the id of one of the run's but other readings", "it"),
        (found.renamed, "have the readings of one of the run's under another id", "it"),
        (found.same_ids, "have the id of one of the run's, but none has its readings", "other samples"),
    ):
        if number:
            console.print(f"note: {number:,} samples {what}; they count as {taken_as}")
    part_name = "test" if part == "auto" else part
    selected = found.is_in(None, "test") if part == "auto" else found.is_in(part_name)
    if not selected.any():
        what = "was left out of training" if part == "auto" else f"is in part '{part_name}' of its split"
        raise ConfigError(f"{run}: none of the table's {len(table):,} samples {what}. Use --part all to take them all.")
    if part == "auto" and not selected.all():
        console.print(f"leaving out {int((~selected).sum()):,} samples that the run was trained or validated on")
    return table[selected]


def find_run_parts(table: EventTable, run: Path, estimator: Any) -> FoundParts | None:
    """Which part of the run's split each sample of a table belongs to; None if the run has no split."""
    from raindrop.estimators.persistence import read_split

    if estimator.split_checksum_ is None:
        return None
    return read_split(run, estimator.split_checksum_).find(table)
