"""The options of every command that reads DATA: which columns are what, units, and what to do with doubtful rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from raindrop.errors import ConfigError

if TYPE_CHECKING:  # polars loads only when a command needs it
    from raindrop.table.event_table import EventTable

Words = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]
READING = Group("How DATA is read", sort_key=10)
DATA = "folder with events.parquet or .csv, and samples.parquet or .csv; or one such file, or a MEDS folder."


@Parameter(name="*", group=READING)
@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options that are needed where DATA is not yet a table of ours; `raindrop import` makes it one."""

    sample: str | None = None
    """column of sample ids; 'sample' where not given."""
    time: str | None = None
    """column of times; 'time' where not given."""
    sensor: str | None = None
    """column of sensor names; 'sensor' where not given."""
    value: str | None = None
    """column of values; 'value' where not given."""
    wide: Annotated[bool, Parameter(negative=())] = False
    """each sensor has a column of its own; without --sample the file is one long series."""
    samples_file: Path | None = None
    """file with one row per sample, where DATA is a file of readings."""
    time_unit: Literal["seconds", "minutes", "hours", "days"] | None = None
    """unit of times that are numbers, and of the table; hours where not given."""
    duplicates: Literal["error", "last", "mean"] | None = None
    """the same sample, time and sensor twice: an error, keep the last, or average."""
    missing: Literal["error", "drop"] | None = None
    """rows without a value: an error, or left out; left out of a CSV where not given."""
    reference: str | None = None
    """column of the samples table with the time from which times count."""
    before_reference: Literal["error", "keep", "drop"] | None = None
    """readings before the reference: an error, kept with negative times, or left out."""
    unlisted: Literal["error", "drop"] | None = None
    """readings of samples that the samples table does not list: an error, or left out."""

    def given(self) -> dict[str, Any]:
        """The options that are given, by their name in Python."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None and value is not False}


@Parameter(name="*", group=READING)
@dataclass(frozen=True, kw_only=True)
class TableOptions(ReadOptions):
    """The same for commands that have no other cutoff."""

    cutoff: str | None = None
    """column of the samples table with the last time that may be known; later readings are left out."""


DEFAULT = TableOptions()


def read_table(
    data: Path | Sequence[Path],
    options: ReadOptions = DEFAULT,
    *,
    label: str | None = None,
    statics: Sequence[str] = (),
    group: str | None = None,
    cutoff: str | None = None,
    verify: bool = False,
) -> EventTable:
    """The table in a folder or in files; roles that are given replace those it was written with."""
    from raindrop.table.event_table import EventTable

    roles = {"label": label, "statics": list(statics) or None, "group": group, "cutoff": cutoff}
    chosen = options.given() | {role: name for role, name in roles.items() if name is not None}
    wide, samples_file = chosen.pop("wide", False), chosen.pop("samples_file", None)
    paths = [data] if isinstance(data, Path) else list(data)
    is_folder = len(paths) == 1 and (paths[0].is_dir() or not paths[0].suffix)
    if is_folder and not wide and samples_file is None:
        return EventTable.read(paths[0], verify=verify, **chosen)
    if any(path.is_dir() for path in paths):
        paths = _files_of_folder(paths)
    return EventTable.from_files(*paths, samples=samples_file, wide=wide, **chosen)


def _files_of_folder(paths: Sequence[Path]) -> list[Path]:
    """The files of a folder that is read with --wide or --samples-file."""
    from raindrop.table.frame_files import find_file

    if len(paths) > 1:
        raise ConfigError("Give one folder, or files; a folder and other paths are not read as one table.")
    found = [find_file(paths[0], name) for name in ("events", "samples")]
    return [found[0], *(path for path in found[1:] if path.exists())]
