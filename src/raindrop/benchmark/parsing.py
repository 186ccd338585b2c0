"""Parse TOML files into experiments: shipped tables by name, a user's own by path, with an error for every mistake."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from raindrop import config as configs
from raindrop.benchmark.spec import Data, Experiment, Plugin, Published, Row, Settings, Splits, column_name
from raindrop.errors import ConfigError, suggest
from raindrop.tasks.metrics import require_metric

TABLES_FOLDER = Path(__file__).parent / "tables"


def shipped_tables() -> list[str]:
    """Names of the tables that come with the package."""
    return sorted(path.stem for path in TABLES_FOLDER.glob("*.toml"))


def read_experiments(names: Iterable[str | os.PathLike[str]]) -> list[Experiment]:
    """Tables by name (shipped) or path (a user's own), each once; a file may list several others."""
    experiments: dict[str, tuple[Path, Experiment]] = {}
    for path in _table_files(names, ()):
        experiment = parse(configs.read_toml(path), path.stem, str(path))
        first, _ = experiments.setdefault(path.stem, (path, experiment))
        if first.resolve() != path.resolve():
            raise ConfigError(f"{first} and {path} both define the table '{path.stem}'; rename one of them.")
    return [experiment for _, experiment in experiments.values()]


def _table_files(names: Iterable[str | os.PathLike[str]], parents: tuple[Path, ...]) -> Iterator[Path]:
    """The files of the tables; a file with only `tables = [...]` is replaced by those it lists."""
    for name in names:
        path = _find(name)
        if path.resolve() in parents:
            raise ConfigError(f"{path}: this file lists itself, directly or through another file; remove the circle.")
        content = configs.read_toml(path)
        if "tables" not in content:
            yield path
            continue
        others = content["tables"]
        if len(content) > 1 or not isinstance(others, list) or not all(isinstance(other, str) for other in others):
            raise ConfigError(f"{path}: a file that lists other tables has only tables = ['NAME', ...].")
        yield from _table_files([_relative_to(path.parent, other) for other in others], (*parents, path.resolve()))


def _find(name: str | os.PathLike[str]) -> Path:
    text = os.fspath(name)
    if (TABLES_FOLDER / f"{text}.toml").exists():
        return TABLES_FOLDER / f"{text}.toml"
    if text.endswith(".toml"):
        return Path(text)
    raise ConfigError(
        f"There is no table '{text}': {suggest(text, shipped_tables())} A file of your own ends in .toml."
    )


def _relative_to(folder: Path, name: str) -> str:
    """A path in a file is relative to that file's folder; the name of a shipped table is unchanged."""
    return str(folder / name) if name.endswith(".toml") else name


def parse(content: Mapping[str, Any], name: str, file: str) -> Experiment:
    """An experiment from the content of its TOML file; every error message starts with the file's name."""
    try:
        return _parse(dict(content), name, Path(file).parent)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class _TopLevel:
    """The settings above the sections."""

    title: str
    note: str = ""
    reference: str = ""
    metrics: tuple[str, ...] = ("auroc", "auprc")
    seeds: tuple[int, ...] = (0,)


def _parse(content: dict[str, Any], name: str, folder: Path) -> Experiment:
    top_level = [setting.name for setting in fields(_TopLevel)]
    known = [*top_level, "plugins", "data", "splits", "settings", "rows_from", "rows", "published"]
    for key in content:
        if key not in known:
            raise ConfigError(f"Unknown setting '{key}': {suggest(key, known)}")
    plugins: list[Plugin] = []
    if "rows_from" in content:
        rows, plugins = _rows_from(content.pop("rows_from"), folder)
        content["rows"] = [*rows, *content.get("rows", [])]
    missing = [key for key in ("title", "data", "splits", "rows") if not content.get(key)]
    if missing:
        raise ConfigError(f"'{missing[0]}' is missing; a table has a title, [data], [[splits]] and [[rows]].")
    plugins += _plugins(content, folder)
    content.pop("plugins", None)
    sections: dict[str, Any] = {
        "plugins": tuple(dict.fromkeys(plugins)),
        "data": _section(Data, content.pop("data"), "data"),
        "splits": _list_of_sections(Splits, content.pop("splits"), "splits"),
        "settings": _section(Settings, content.pop("settings", {}), "settings").expand(),
        "rows": _list_of_sections(Row, content.pop("rows"), "rows", required=("name", "model")),
        "published": _section(Published, content.pop("published", {}), "published"),
    }
    experiment = Experiment(name=name, **sections, **vars(configs.make(_TopLevel, content)))
    for plugin in experiment.plugins:
        plugin.register()
    _check_names(experiment)
    return experiment


def _rows_from(name: Any, folder: Path) -> tuple[list[dict[str, Any]], list[Plugin]]:
    """The rows and the plugins of another table, given by its name or its path relative to this one."""
    if not isinstance(name, str):
        raise ConfigError(f"rows_from is the name of another table, not {name!r}.")
    path = _find(_relative_to(folder, name))
    content = configs.read_toml(path)
    if not isinstance(content.get("rows"), list):
        raise ConfigError(f"rows_from: the table '{name}' has no [[rows]] of its own.")
    return content["rows"], _plugins(content, path.parent)


def _plugins(content: Mapping[str, Any], folder: Path) -> list[Plugin]:
    section = _require_section(content.get("plugins", {}), "plugins")
    return [Plugin(name, str(target), str(folder.resolve())) for name, target in section.items()]


def _require_section(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"'{key}' is a section; write [{key}] and its settings below.")
    return value


def _section(kind: type[Any], value: Any, key: str) -> Any:
    return configs.make(kind, _require_section(value, key), where=f"{key}.")


def _list_of_sections(kind: type[Any], values: Any, key: str, required: tuple[str, ...] = ()) -> tuple[Any, ...]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ConfigError(f"'{key}' is a list of sections; write [[{key}]] and its settings below.")
    for position, value in enumerate(values, 1):
        for name in required:
            if name not in value:
                raise ConfigError(f"{key} {position} has no '{name}'.")
    return tuple(configs.make(kind, value, where=f"{key} {position}: ") for position, value in enumerate(values, 1))


def _check_names(experiment: Experiment) -> None:
    """Raise on unknown metrics, duplicate names, and references or published metrics without a row or column."""
    for metric in experiment.metrics:
        require_metric(metric.partition("/")[0])
    rows = [row.name for row in experiment.rows]
    for kind, names in (("row", rows), ("scenario", [splits.name for splits in experiment.splits])):
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise ConfigError(f"There are two {kind}s named '{duplicates[0]}'; each needs its own name.")
    if experiment.reference and experiment.reference not in rows:
        raise ConfigError(f"reference: there is no row '{experiment.reference}'; {suggest(experiment.reference, rows)}")
    published_rows = {row.published_as or row.name for row in experiment.rows}
    columns = [column_name(*column) for column in experiment.columns()]
    for row, by_column in experiment.published.metrics.items():
        if row not in published_rows:
            raise ConfigError(f"published.metrics: there is no row '{row}'; {suggest(row, sorted(published_rows))}")
        for column, by_metric in by_column.items():
            if column not in columns:
                raise ConfigError(f"published.metrics of '{row}': no column '{column}'; {suggest(column, columns)}")
            for metric in by_metric:
                require_metric(metric.partition("/")[0])
