"""The options of every command that reads DATA: roles of columns, units, and what to do with questionable rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from shlex import quote
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
    """Options needed if DATA is not yet a raindrop table; `raindrop import` makes one."""

    sample: str | None = None
    """column of sample ids; default 'sample'."""
    time: str | None = None
    """column of times; default 'time'."""
    sensor: str | None = None
    """column of sensor names; default 'sensor'."""
    value: str | None = None
    """column of values; default 'value'."""
    wide: Annotated[bool, Parameter(negative=())] = False
    """each sensor has its own column; without --sample the file is one long series."""
    samples_file: Path | None = None
    """file with one row per sample, if DATA is a file of readings."""
    time_unit: Literal["seconds", "minutes", "hours", "days"] | None = None
    """unit of numeric times, and of the table; default hours."""
    duplicates: Literal["error", "last", "mean"] | None = None
    """if sample, time and sensor occur twice: raise an error, keep the last, or average."""
    missing: Literal["error", "drop"] | None = None
    """rows without a value: raise an error, or drop them; by default dropped from CSV files."""
    reference: str | None = None
    """column of the samples table with the time that times are relative to."""
    before_reference: Literal["error", "keep", "drop"] | None = None
    """readings before the reference: raise an error, keep them with negative times, or drop them."""
    unlisted: Literal["error", "drop"] | None = None
    """readings of samples that the samples table does not list: raise an error, or drop them."""

    def given(self) -> dict[str, Any]:
        """The options that were set, by their name in Python."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None and value is not False}

    def as_text(self) -> str:
        """The options that were set, as they are typed behind a command, such as ' --sample stay --wide'."""
        words = [
            f" --{name.replace('_', '-')}" + ("" if value is True else f" {quote(str(value))}")
            for name, value in self.given().items()
        ]
        return "".join(words)


@Parameter(name="*", group=READING)
@dataclass(frozen=True, kw_only=True)
class TableOptions(ReadOptions):
    """The same for commands that have no other cutoff."""

    cutoff: str | None = None
    """column of the samples table with the cutoff; later readings are dropped."""


DEFAULT = TableOptions()


def roles_as_text(label: Sequence[str], statics: Sequence[str], group: str | None) -> str:
    """The roles that were given, as they are typed behind a command, such as ' --label died --group patient'."""
    named = {"label": label, "statics": statics, "group": (group,) if group else ()}
    return "".join(f" --{name} {' '.join(map(quote, given))}" for name, given in named.items() if given)


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
    """The table in a folder or in files; given roles replace the stored ones."""
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
