"""What a table of results consists of, as a TOML file declares it: data, splits, settings, rows, published figures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from raindrop import config as configs
from raindrop.benchmark.plugins import OwnModel
from raindrop.errors import ConfigError, suggest
from raindrop.table.time_columns import TimeUnit
from raindrop.tasks.metrics import require_metric

SHIPPED = Path(__file__).parent / "tables"


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which table, and what of it."""

    folder: str
    """Its folder within that of all data."""
    label: str
    """The column of the samples table to predict."""
    positive: str | int | None = None
    """The class that figures of two classes are about; it must be the one that comes last."""
    leave_out: tuple[str, ...] = ()
    """Statics that no model may see."""
    time_unit: TimeUnit | None = None
    """Of a table that does not say so itself."""


@dataclass(frozen=True, kw_only=True)
class Splits:
    """One way to split the samples; exactly one of `file`, `by`, `train` and `random` is given."""

    name: str = ""
    """Of the scenario, where a table has several."""
    file: str | None = None
    """Split NUMBER of this file, within the folder of the table."""
    by: str | None = None
    """Each value of this column in turn is the test part, the next one validates, all others train."""
    train: str | None = None
    """A condition such as "Age < 65": these train; the others are halved at random, under seed NUMBER."""
    random: bool = False
    """80 % train, 10 % validate, 10 % test, with the same mix of classes, under seed NUMBER."""
    numbers: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Which splits there are; `by` has one for each value instead."""

    def __post_init__(self) -> None:
        given = [name for name in ("file", "by", "train", "random") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"give exactly one of file, by, train and random, not {len(given)} of them.")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is hidden from a model that is trained already."""

    hidden: Literal["none", "fixed", "random"] = "none"
    share: float = 0.0
    instead: Literal["nothing", "zeros"] = "nothing"

    @property
    def name(self) -> str:
        """As tables and published figures call it."""
        if self.hidden == "none":
            return "all sensors"
        return f"{self.hidden} {100 * self.share:g} %" + (" (zeros)" if self.instead == "zeros" else "")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings 2 and 3 beside Setting 1, which always is."""

    fixed: tuple[float, ...] = ()
    """Shares of the sensors to hide, the most informative ones first."""
    random: tuple[float, ...] = ()
    """Shares of the sensors to hide at random in each sample."""
    instead: Literal["nothing", "zeros"] = "nothing"
    """What stands for hidden readings: nothing, or zeros after scaling as in the paper."""

    def __post_init__(self) -> None:
        wrong = [share for share in (*self.fixed, *self.random) if not 0 < share <= 1]
        if wrong:
            raise ValueError(f"a share of hidden sensors lies above 0 and up to 1, not at {wrong[0]}.")

    def all(self) -> tuple[Setting, ...]:
        """Each of them, nothing hidden first."""
        fixed = (Setting(hidden="fixed", share=share, instead=self.instead) for share in self.fixed)
        random = (Setting(hidden="random", share=share, instead=self.instead) for share in self.random)
        return (Setting(), *fixed, *random)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model with its settings."""

    name: str
    model: str
    preset: str = "tuned"
    config: dict[str, Any] = field(default_factory=dict)
    published: str = ""
    """Whose published figures stand beside it, where that is not its own name."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """Figures of others, in percent: row -> setting or scenario -> metric -> mean, or (mean, standard deviation)."""

    source: str = ""
    same_data: bool = True
    """Whether they are of this data set and label, so that a difference means something."""
    figures: dict[str, dict[str, dict[str, float | tuple[float, float]]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table of results: every row on every split under every setting."""

    name: str
    title: str
    data: Data
    splits: tuple[Splits, ...]
    rows: tuple[Row, ...]
    settings: tuple[Setting, ...] = (Setting(),)
    metrics: tuple[str, ...] = ("auroc", "auprc")
    seeds: tuple[int, ...] = (0,)
    note: str = ""
    reference: str = ""
    """The row that the others are measured from; the best of each figure where none is named."""
    published: Published = field(default_factory=Published)
    models: tuple[OwnModel, ...] = ()

    def published_for(
        self, row: Row, scenario: str, setting: Setting, metric: str
    ) -> tuple[float, float | None] | None:
        """(mean, standard deviation) in percent, as far as they are known."""
        columns = self.published.figures.get(row.published or row.name, {})
        found = columns.get(column_name(scenario, setting), {}).get(metric)
        return found if found is None or isinstance(found, tuple) else (found, None)

    def columns(self) -> list[tuple[str, Setting]]:
        """(scenario, setting) of each block of the table."""
        return [(splits.name, setting) for splits in self.splits for setting in self.settings]

    def choose(self, names: Iterable[str]) -> tuple[Row, ...]:
        """The rows with these names, or of these models; all where none is named."""
        wanted = {name.casefold() for name in names}
        models = wanted - {row.name.casefold() for row in self.rows}  # a row's own name means that row alone
        return tuple(row for row in self.rows if not wanted or row.name.casefold() in wanted or row.model in models)


def column_name(scenario: str, setting: Setting) -> str:
    """'all sensors', 'fixed 10 %', 'young to old', 'young to old, fixed 10 %'."""
    if not scenario:
        return setting.name
    return scenario if setting.hidden == "none" else f"{scenario}, {setting.name}"


# ---------------------------------------------------------------- reading


def shipped() -> list[str]:
    """Names of the tables that come with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read_experiments(names: Iterable[str | os.PathLike[str]]) -> list[Experiment]:
    """Tables by name (those that are shipped) or by path (one's own), each once; a file may name several others."""
    found: dict[str, tuple[Path, Experiment]] = {}
    for path in _files(names, ()):
        there, _ = found.setdefault(path.stem, (path, parse(configs.read_toml(path), path.stem, str(path))))
        if there.resolve() != path.resolve():
            raise ConfigError(f"{there} and {path} would both be the table '{path.stem}'; rename one of them.")
    return [experiment for _, experiment in found.values()]


def _files(names: Iterable[str | os.PathLike[str]], within: tuple[Path, ...]) -> Iterator[Path]:
    """The files of tables; one that names others stands for those."""
    for name in names:
        path = _find(name)
        if path.resolve() in within:
            raise ConfigError(f"{path}: this file is among its own tables; files may not name each other in a circle.")
        content = configs.read_toml(path)
        if "tables" not in content:
            yield path
            continue
        others = content["tables"]
        if len(content) > 1 or not isinstance(others, list) or not all(isinstance(other, str) for other in others):
            raise ConfigError(f"{path}: a file that names other tables has only tables = ['NAME', ...].")
        yield from _files([_beside(path.parent, other) for other in others], (*within, path.resolve()))


def _find(name: str | os.PathLike[str]) -> Path:
    text = os.fspath(name)
    if (SHIPPED / f"{text}.toml").exists():
        return SHIPPED / f"{text}.toml"
    if text.endswith(".toml"):
        return Path(text)
    raise ConfigError(f"There is no table '{text}': {suggest(text, shipped())} A file of your own ends in .toml.")


def _beside(folder: Path, name: str) -> str:
    """A path in a file is meant from the folder the file lies in; the name of a shipped table stays as it is."""
    return str(folder / name) if name.endswith(".toml") else name


def parse(content: Mapping[str, Any], name: str, where: str) -> Experiment:
    """An experiment from the content of its file; what is wrong is said with the file's name in front."""
    try:
        return _parse(dict(content), name, Path(where).parent)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _parse(content: dict[str, Any], name: str, folder: Path) -> Experiment:
    above = [setting.name for setting in fields(_Plain)]
    known = [*above, "models", "data", "splits", "settings", "rows_of", "rows", "published"]
    for key in content:
        if key not in known:
            raise ConfigError(f"Unknown setting '{key}': {suggest(key, known)}")
    models: list[OwnModel] = []
    if "rows_of" in content:
        rows, models = _rows_of(content.pop("rows_of"), folder)
        content["rows"] = [*rows, *content.get("rows", [])]
    missing = [key for key in ("title", "data", "splits", "rows") if not content.get(key)]
    if missing:
        raise ConfigError(f"'{missing[0]}' is missing; a table has a title, [data], [[splits]] and [[rows]].")
    models += _own_models(content, folder)
    content.pop("models", None)
    parts: dict[str, Any] = {
        "models": tuple(dict.fromkeys(models)),
        "data": configs.make(Data, _table(content.pop("data"), "data"), where="data."),
        "splits": _each(Splits, content.pop("splits"), "splits"),
        "settings": configs.make(Settings, _table(content.pop("settings", {}), "settings"), where="settings.").all(),
        "rows": _each(Row, content.pop("rows"), "rows"),
        "published": configs.make(Published, _table(content.pop("published", {}), "published"), where="published."),
    }
    plain = configs.make(_Plain, content)
    made = Experiment(name=name, **parts, **vars(plain))
    for model in made.models:
        model.register()
    _check(made)
    return made


@dataclass(frozen=True, kw_only=True)
class _Plain:
    """What stands above the sections."""

    title: str
    note: str = ""
    reference: str = ""
    metrics: tuple[str, ...] = ("auroc", "auprc")
    seeds: tuple[int, ...] = (0,)


def _table(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"'{key}' is a section; write [{key}] and its settings below.")
    return value


def _own_models(content: Mapping[str, Any], folder: Path) -> list[OwnModel]:
    named = _table(content.get("models", {}), "models")
    return [OwnModel(model, str(target), str(folder.resolve())) for model, target in named.items()]


def _rows_of(name: Any, folder: Path) -> tuple[list[dict[str, Any]], list[OwnModel]]:
    """The rows of another table and the models it brings, by its name or its path from this one."""
    if not isinstance(name, str):
        raise ConfigError(f"rows_of is the name of another table, not {name!r}.")
    path = _find(_beside(folder, name))
    content = configs.read_toml(path)
    if not isinstance(content.get("rows"), list):
        raise ConfigError(f"rows_of: the table '{name}' has no [[rows]] of its own.")
    return content["rows"], _own_models(content, path.parent)


def _each(kind: type[Any], values: Any, key: str) -> tuple[Any, ...]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ConfigError(f"'{key}' is a list of sections; write [[{key}]] and its settings below.")
    required = {"rows": ("name", "model")}.get(key, ())
    for at, value in enumerate(values, 1):
        for name in required:
            if name not in value:
                raise ConfigError(f"{key} {at} has no '{name}'.")
    return tuple(configs.make(kind, value, where=f"{key} {at}: ") for at, value in enumerate(values, 1))


def _check(made: Experiment) -> None:
    for metric in made.metrics:
        require_metric(metric)
    rows = [row.name for row in made.rows]
    for what, names in (("row", rows), ("scenario", [way.name for way in made.splits])):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"The {what} '{twice[0]}' is there twice; each needs a name of its own.")
    if made.reference and made.reference not in rows:
        raise ConfigError(f"reference: there is no row '{made.reference}'; {suggest(made.reference, rows)}")
    owners = {row.published or row.name for row in made.rows}
    columns = [column_name(*column) for column in made.columns()]
    for row, figures in made.published.figures.items():
        if row not in owners:
            raise ConfigError(f"published.figures: there is no row '{row}'; {suggest(row, sorted(owners))}")
        for column, by_metric in figures.items():
            if column not in columns:
                raise ConfigError(f"published.figures of '{row}': no column '{column}'; {suggest(column, columns)}")
            for metric in by_metric:
                require_metric(metric)
