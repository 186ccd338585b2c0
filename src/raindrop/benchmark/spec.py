"""The parts of a results table: data, splits, settings, rows, plugins and published metrics."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from raindrop.errors import ConfigError
from raindrop.estimators import estimator_type
from raindrop.files import file_checksum
from raindrop.models.registry import MODELS, Entry
from raindrop.table.time_columns import TimeUnit
from raindrop.tasks.metrics import ONE_CLASS, metric_title


@dataclass(frozen=True, kw_only=True)
class Data:
    """The event table, the label, and the columns to use."""

    folder: str
    """Name of the table's folder inside the data folder."""
    label: str | tuple[str, ...]
    """Column of the samples table to predict; several columns for multilabel and regression."""
    task: str = "classification"
    """What is predicted: classification (one of several classes), multilabel (yes/no labels) or regression."""
    loss: Literal["quantile", "absolute", "squared"] | None = None
    """The loss of a regression."""
    positive: str | int | None = None
    """The positive class of a two-class label; by default the class that sorts last."""
    exclude_statics: tuple[str, ...] = ()
    """Static attributes that no model may use."""
    time_unit: TimeUnit | None = None
    """Unit of the times, if the table does not state it."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns to predict."""
        return (self.label,) if isinstance(self.label, str) else tuple(self.label)


@dataclass(frozen=True, kw_only=True)
class Splits:
    """One way to split the samples; exactly one of `file`, `rotate_by`, `train_where` and `random` is given."""

    name: str = ""
    """Name of the scenario, if a table has several."""
    file: str | None = None
    """Split file in the table's folder; split NUMBER is read from it."""
    rotate_by: str | None = None
    """Column whose values take turns: one value is the test set, the next one validation, all others training."""
    train_where: str | None = None
    """Condition such as "Age < 65" for the training set; the other samples are halved at random with seed NUMBER."""
    random: bool = False
    """80 % training, 10 % validation and 10 % test, stratified by class, with seed NUMBER."""
    numbers: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Numbers of the splits; `rotate_by` has one split per value instead."""

    def __post_init__(self) -> None:
        kinds = ("file", "rotate_by", "train_where", "random")
        given = [name for name in kinds if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"give exactly one of file, rotate_by, train_where and random, not {len(given)} of them.")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Which sensors are hidden from a trained model."""

    hidden: Literal["none", "fixed", "random"] = "none"
    share: float = 0.0
    replace_with: Literal["nothing", "zeros"] = "nothing"

    @property
    def name(self) -> str:
        """The name used in tables and for published metrics, such as 'fixed 10 %'."""
        if self.hidden == "none":
            return "all sensors"
        return f"{self.hidden} {100 * self.share:g} %" + (" (zeros)" if self.replace_with == "zeros" else "")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings 2 and 3, evaluated in addition to Setting 1 (all sensors)."""

    fixed: tuple[float, ...] = ()
    """Shares of the sensors to hide, most informative first."""
    random: tuple[float, ...] = ()
    """Shares of the sensors to hide at random in each sample."""
    replace_with: Literal["nothing", "zeros"] = "nothing"
    """Hidden readings are removed ("nothing"), or set to zero after scaling as in the paper ("zeros")."""

    def __post_init__(self) -> None:
        invalid = [share for share in (*self.fixed, *self.random) if not 0 < share <= 1]
        if invalid:
            raise ValueError(f"a share of hidden sensors must be above 0 and at most 1, not {invalid[0]}.")

    def expand(self) -> tuple[Setting, ...]:
        """One Setting for each share, starting with all sensors."""
        fixed = (Setting(hidden="fixed", share=share, replace_with=self.replace_with) for share in self.fixed)
        random = (Setting(hidden="random", share=share, replace_with=self.replace_with) for share in self.random)
        return (Setting(), *fixed, *random)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model with its preset and changes to it."""

    name: str
    model: str
    preset: str = "tuned"
    config: dict[str, Any] = field(default_factory=dict)
    published_as: str = ""
    """Name under which its metrics were published, if it differs from `name`."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """Published metrics in percent: row -> setting or scenario -> metric -> mean, or (mean, standard deviation)."""

    source: str = ""
    same_data: bool = True
    """Whether they were measured on this data set and label, so that differences are meaningful."""
    metrics: dict[str, dict[str, dict[str, float | tuple[float, float]]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plugin:
    """A model that a table brings along; every process that runs its jobs imports it."""

    name: str
    target: str
    """Its `Entry`, as "module:NAME"."""
    folder: str
    """Folder to import the module from, searched before installed packages."""

    def register(self) -> None:
        """Import the module, which runs its code, and add the model to the registry of this process."""
        module_name, _, attribute = self.target.partition(":")
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            module = importlib.import_module(module_name)
            entry = getattr(module, attribute)
        except Exception as error:  # a user's code may raise anything
            raise ConfigError(f"plugins.{self.name}: '{self.target}' cannot be imported ({error}).") from None
        expected = Path(self.folder, *module_name.split(".")).with_suffix(".py")
        if expected.exists() and (module.__file__ is None or not expected.samefile(module.__file__)):
            raise ConfigError(
                f"plugins.{self.name}: '{module_name}' is already imported from elsewhere, so {expected} cannot be; "
                "rename that file."
            )
        if not isinstance(entry, Entry):
            kind = type(entry).__name__
            raise ConfigError(f"plugins.{self.name}: '{self.target}' is not a raindrop.models.Entry, but {kind}.")
        if MODELS.setdefault(self.name, entry) is not entry:
            raise ConfigError(f"plugins.{self.name}: a model of that name exists already; choose another.")

    def checksum(self) -> str:
        """Checksum of the module's file; modules that it imports are not included."""
        source = getattr(importlib.import_module(self.target.partition(":")[0]), "__file__", None)
        return file_checksum(Path(source)) if source else ""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A results table: every row on every split under every setting."""

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
    """The row that all others are compared with; by default the best row of each metric."""
    published: Published = field(default_factory=Published)
    plugins: tuple[Plugin, ...] = ()

    def published_metric(
        self, row: Row, scenario: str, setting: Setting, metric: str
    ) -> tuple[float, float | None] | None:
        """(mean, standard deviation) in percent; None for what was not published."""
        columns = self.published.metrics.get(row.published_as or row.name, {})
        value = columns.get(column_name(scenario, setting), {}).get(metric)
        return value if value is None or isinstance(value, tuple) else (value, None)

    def metric_title(self, metric: str) -> str:
        """A metric's display name; 'recall/died' is that of one class, or of one label."""
        name, slash, part = metric.partition("/")
        if slash and estimator_type(self.data.task).task_type.parts_are_classes:
            return f"{ONE_CLASS[name].title} ({part})"
        return metric_title(metric)

    def columns(self) -> list[tuple[str, Setting]]:
        """(scenario, setting) of each block of the table."""
        return [(splits.name, setting) for splits in self.splits for setting in self.settings]

    def select_rows(self, names: Iterable[str]) -> tuple[Row, ...]:
        """The rows with these names or of these models; all rows if no name is given."""
        chosen = {name.casefold() for name in names}
        models = chosen - {row.name.casefold() for row in self.rows}  # a row's name selects only that row
        return tuple(row for row in self.rows if not chosen or row.name.casefold() in chosen or row.model in models)


def column_name(scenario: str, setting: Setting) -> str:
    """'all sensors', 'fixed 10 %', 'young to old', 'young to old, fixed 10 %'."""
    if not scenario:
        return setting.name
    return scenario if setting.hidden == "none" else f"{scenario}, {setting.name}"
