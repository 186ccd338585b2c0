"""The commands `raindrop import`, `prepare`, `export-table` and `inspect`: convert files to tables and back."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.markup import escape

from raindrop.cli.samples import console
from raindrop.cli.table_options import DEFAULT, TableOptions, Words, read_table
from raindrop.errors import ConfigError

if TYPE_CHECKING:  # polars loads only when a command needs it
    from raindrop.table.event_table import EventTable
    from raindrop.table.split_files import Split

SPLIT_FILE = "splits.parquet"


def import_table(
    *files: Path,
    out: Path,
    label: str | None = None,
    statics: Words = (),
    group: str | None = None,
    labels: Path | None = None,
    codes: Words = (),
    window: float | None = None,
    options: TableOptions = DEFAULT,
) -> None:
    """Convert files to a table that all commands open quickly.

    Args:
        files: CSV, TSV or Parquet files of readings (samples.csv or samples.parquet has the samples), a file of
            arrays (.npy, .npz), a MEDS folder, or a folder with events and samples.
        out: folder for the table; must not exist yet.
        label: column to predict.
        statics: columns to use as static attributes.
        group: column whose values a split keeps together.
        labels: for a MEDS folder: Parquet file or folder of labels; each is a sample, cut at its prediction time.
        codes: for a MEDS folder: read only these codes.
        window: for a MEDS folder: read only this many hours before each prediction time.
    """
    from raindrop.files import refuse_to_overwrite
    from raindrop.table.split_files import write_splits

    if not files:
        raise ConfigError("Which files? For example: raindrop import readings.csv samples.csv --out DATA")
    refuse_to_overwrite(out)
    with console.status("reading ..."):
        if labels is None and not codes and window is None:
            table = read_table(files, options, label=label, statics=statics, group=group)
        else:
            table = _read_meds(files, labels, codes, window, options, label, statics, group)
    split = _subjects_split(table)
    table.write(out, beside={} if split is None else {SPLIT_FILE: partial(write_splits, splits={1: split})})
    _say_written(table, out)
    if split is not None:
        console.print(f"wrote the split of its subjects; train with --split {escape(str(out / SPLIT_FILE))}:1")


def prepare(
    *files: Path,
    out: Path,
    label: str | None = None,
    statics: Words = (),
    group: str | None = None,
    options: TableOptions = DEFAULT,
) -> None:
    """Convert files of readings of any size, in any order, to a table; they may be larger than memory.

    Args:
        files: CSV, TSV or Parquet files with a row per reading; samples.csv or samples.parquet has the samples.
        out: folder for the table; must not exist yet. Needs disk space for twice the readings.
        label: column to predict.
        statics: columns to use as static attributes.
        group: column whose values a split keeps together.
    """
    from raindrop.table.prepare import prepare as prepare_table

    if not files:
        raise ConfigError("Which files? For example: raindrop prepare readings-*.parquet samples.csv --out DATA")
    roles = {"label": label, "statics": list(statics) or None, "group": group}
    chosen = options.given() | {role: name for role, name in roles.items() if name is not None}
    if chosen.pop("wide", False):
        raise ConfigError("--wide: files with a column per sensor are read whole; use 'raindrop import'.")
    folders = [path for path in files if path.is_dir()]
    if folders:
        raise ConfigError(f"{folders[0]}: this is a folder; name the files in it, such as {folders[0]}/*.parquet.")
    with console.status("reading ..."):
        table = prepare_table(*files, out=out, samples=chosen.pop("samples_file", None), **chosen)
    _say_written(table, out)


def _say_written(table: EventTable, out: Path) -> None:
    """Print the content of a table, what was left out of it, and the next command."""
    for reason, number in table.dropped.items():
        console.print(f"left out {number:,} reading{'s' * (number != 1)}: {escape(reason)}")
    console.print(escape(repr(table)))
    console.print(f"wrote the table to {escape(str(out))}; look at it with: raindrop inspect {escape(str(out))}")


def export_table(
    data: Path,
    *,
    out: Path,
    format: Literal["csv", "wide", "parquet", "meds"] = "csv",
    options: TableOptions = DEFAULT,
) -> None:
    """Write a table as files for other programs.

    Args:
        data: folder with events.parquet or .csv, and samples.parquet or .csv; or one such file, or a MEDS folder.
        out: file for the readings, a file NAME.samples beside it has the samples; or a folder for MEDS. Must not exist.
        format: csv (a row per reading), wide (CSV with a row per time and a column per sensor), parquet, or meds.
    """
    from raindrop.table.export import export, refuse_existing

    refuse_existing(out, format)
    for path in export(read_table(data, options), out, format):
        console.print(f"wrote {escape(str(path))}")


def inspect(
    data: Path,
    *,
    label: str | None = None,
    statics: Words = (),
    group: str | None = None,
    picture: Path | None = None,
    verify: Annotated[bool, Parameter(negative=())] = False,
    seed: int = 0,
    options: TableOptions = DEFAULT,
) -> None:
    """Show what is in a table: samples, sensors, readings, intervals, labels, and how well gaps predict the label.

    Args:
        data: folder with events.parquet or .csv, and samples.parquet or .csv; or one such file, or a MEDS folder.
        label: column of the samples table to predict.
        statics: columns of the samples table to use as static attributes.
        group: column of the samples table whose values a split keeps together.
        picture: also save a figure, as .png, .svg or .pdf.
        verify: compare every byte of the folder with its checksums, whatever its size.
        seed: random seed for choosing samples if there are many.
    """
    from raindrop.table.folder_checks import CHECKED, VERIFIED
    from raindrop.table.overview import overview

    was_written = (data / "table.json").exists()
    if verify and not was_written:
        raise ConfigError(f"{data}: there is no table.json with checksums to verify it by; leave --verify out.")
    table = read_table(data, options, label=label, statics=statics, group=group, verify=verify)
    console.print(escape(repr(table)))
    if was_written:
        console.print(VERIFIED if verify else CHECKED)
    about = overview(table, seed=seed)
    console.print(about)
    if picture is not None:
        console.print(f"wrote the picture to {escape(str(about.save(picture)))}")


def _read_meds(
    files: tuple[Path, ...],
    labels: Path | None,
    codes: tuple[str, ...],
    window: float | None,
    options: TableOptions,
    label: str | None,
    statics: tuple[str, ...],
    group: str | None,
) -> EventTable:
    from raindrop.table.event_table import EventTable

    if len(files) != 1 or not files[0].is_dir():
        raise ConfigError("--labels, --codes and --window are about a MEDS folder; give one such folder.")
    roles = {"label": label, "statics": list(statics) or None, "group": group}
    chosen = options.given() | {role: name for role, name in roles.items() if name is not None}
    misplaced = {"wide", "samples_file", "sample", "time", "sensor", "value"} & set(chosen)
    if misplaced:
        raise ConfigError(f"--{min(misplaced).replace('_', '-')} has no effect with a MEDS folder; leave it out.")
    return EventTable.from_meds(files[0], labels, codes=list(codes) or None, window=window, **chosen)


def _subjects_split(table: EventTable) -> Split | None:
    """The split of a MEDS folder by subject, if every sample is in one of its three parts."""
    from raindrop.table.adapters.meds import SPLITS
    from raindrop.table.split_files import Split

    if "split" not in table.samples.columns or not set(SPLITS) <= set(table.samples["split"].to_list()):
        return None
    part = table.samples["split"]
    if not part.is_in(list(SPLITS)).all():
        console.print("does not write the split: some samples are in none of train, tuning and held_out")
        return None
    return Split.from_tables([table[(part == name).to_numpy()] for name in SPLITS])
