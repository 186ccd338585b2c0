"""What a report needs to know about a task: names, groups of samples, charts, coverage, and one sample in words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import DataError
from raindrop.report.numbers import quantity_text, share_text
from raindrop.table.event_table import EventTable
from raindrop.tasks.base import Task
from raindrop.tasks.bootstrap import Interval
from raindrop.tasks.metrics import ReliabilityCurve
from raindrop.tasks.predictions import Predictions

Array = NDArray[Any]
COVERAGES = (0.8, 0.9)
CASE_COVERAGE = 0.9  # of the set or interval shown for one sample


@dataclass(frozen=True)
class Score:
    """The results of one model on the samples of the report."""

    name: str
    metrics: dict[str, Interval]
    robustness: list[Interval]  # the task's first metric with each of HIDDEN_SHARES
    predicted: Array
    by_column: dict[str, dict[str, Interval]] = field(default_factory=dict)
    """The metrics of each label or quantity, if there are several."""


@dataclass(frozen=True)
class Series:
    """Points of a chart, as a line, as dots or both; each may have a vertical bar from low to high."""

    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    line: bool = True
    dots: float = 0.0
    """The size of dots; 0 draws none."""


@dataclass(frozen=True)
class Chart:
    """A chart without its drawing. None of its text may come from the data (see charts.py)."""

    x: str
    y: str
    series: list[Series]
    dashed: list[tuple[list[float], list[float]]] = field(default_factory=list)
    unit_square: bool = False


@dataclass(frozen=True)
class Section:
    """The task's own part of Performance: charts by the id of their element, and values for its template."""

    charts: dict[str, Chart]
    values: dict[str, Any]


@dataclass(frozen=True)
class Coverage:
    """How often sets or intervals contain the true value."""

    name: str
    """The label or quantity; empty if there is only one."""
    requested: float
    reached: float
    size: float
    """Mean number of answers in a set, or mean width of an interval."""
    count: int
    """Samples with a known true value."""


@dataclass(frozen=True)
class Summary:
    """One sample's true value and prediction in words."""

    truth: str
    predicted: str
    score: float
    """The samples are listed by this, largest first."""
    facts: list[tuple[str, str]]
    bars: list[tuple[str, float, str, bool]] = field(default_factory=list)
    """Name, probability, its text, and whether it is highlighted."""
    explained: list[tuple[str, str]] = field(default_factory=list)
    """What the contributions of sensors refer to, and its value with all readings."""


class TaskView(ABC):
    """What a report shows about a task."""

    template: ClassVar[str]
    """Its template."""
    noun: ClassVar[str] = "Label"
    plural: ClassVar[str] = "Labels"
    constant_name: ClassVar[str] = "Constant"
    constant_note: ClassVar[str]
    region_name: ClassVar[str] = "set"
    """The name of a conformal prediction."""
    size_name: ClassVar[str] = "Mean size of sets"
    picker: str
    """The text in parentheses after the id of a sample."""
    effect_name: ClassVar[str] = "Log odds"
    effect_note: ClassVar[tuple[str, str, str]]
    """Text before, between and after the name and the value of what is explained."""
    shares: ClassVar[bool] = True
    """Whether what is explained is a probability."""
    headline: Sequence[str]
    """Metrics on the tiles; the first three also by epoch."""
    groups: Sequence[str] = ("all samples",)
    """The groups whose sensor graphs are compared; a single one if there is nothing to compare."""
    main_group: int = 0
    mix_note: ClassVar[str] = ""
    """How random samples are drawn."""

    def __init__(self, task: Task):
        self.task = task
        self.metrics = tuple(name for name, metric in task.metrics.items() if metric.weighted is not None)
        """The task's metrics that have confidence intervals."""

    # ---------------------------------------------------------------- names

    def label(self, table: EventTable | None = None) -> str:
        """The target, by the name of its columns."""
        return ", ".join(self.task.labels)

    def metric_title(self, name: str) -> str:
        """A metric's name, including what it is about."""
        return capitalised(self.task.title(name))

    def metric_name(self, name: str) -> str:
        """The same, and a note if lower values are better."""
        return self.metric_title(name) + (", lower is better" if self.task.metrics[name].lower_is_better else "")

    def short_title(self, name: str) -> str:
        """A metric's name alone."""
        return capitalised(self.task.metrics[name].title)

    def metric_text(self, name: str, value: float) -> str:
        """A metric's value."""
        return share_text(value) if self.task.metrics[name].is_share else quantity_text(value)

    def size_text(self, size: float) -> str:
        """The size of a set, or the width of an interval."""
        return quantity_text(size)

    def card_rows(self) -> list[tuple[str, str]]:
        """Rows about the target, for the model card."""
        return [(self.noun if len(self.task.labels) == 1 else self.plural, self.label())]

    def sample_rows(self, truth: Array) -> list[tuple[str, str]]:
        """Rows about the distribution of the true values of these samples, for the model card."""
        return [("Truth of these samples", self.task.describe(truth))]

    def require_same_task(self, name: str, other: Task) -> None:
        """Raise if a baseline predicts something else."""
        if (other.name, other.labels, other.num_outputs) != (self.task.name, self.task.labels, self.task.num_outputs):
            raise DataError(
                f"'{name}' is a model of {other.name} for {', '.join(other.labels)}, not of {self.task.name} for "
                f"{self.label()}, or has another loss. Give baselines of the same task."
            )

    # ---------------------------------------------------------------- all samples

    def group_codes(self, truth: Array) -> NDArray[np.int64]:
        """(samples,) the position in `groups` of each sample."""
        return np.zeros(len(truth), dtype=np.int64)

    def by_column(self, truth: Array, predicted: Array, seed: int) -> dict[str, dict[str, Interval]]:
        """The metrics of each label or quantity with intervals, if there are several."""
        labels = [column.name for column in self.task.columns(truth, predicted)]
        if len(labels) == 1:
            return {}
        names = [f"{metric}/{label}" for label in labels for metric in self.metrics]
        intervals = self.task.bootstrap(truth, predicted, names, seed=seed)
        return {label: {metric: intervals[f"{metric}/{label}"] for metric in self.metrics} for label in labels}

    @abstractmethod
    def section(self, truth: Array, scores: Sequence[Score], regions: dict[float, Array]) -> Section:
        """The task-specific part of Performance; the first score is the model's."""

    @abstractmethod
    def region(self, predictions: Predictions) -> Array:
        """The sets or intervals among predictions with a coverage."""

    @abstractmethod
    def coverage(self, truth: Array, region: Array, requested: float) -> list[Coverage]:
        """How often these sets or intervals contain the true value, for each label or quantity."""

    # ---------------------------------------------------------------- single samples

    @abstractmethod
    def errors(self, truth: Array, predicted: Array) -> NDArray[np.float64]:
        """(samples,) the error of each prediction; NaN if the true value is unknown."""

    @abstractmethod
    def scores(self, predicted: Array) -> NDArray[np.float64]:
        """(samples,) one number to sort predictions by."""

    @abstractmethod
    def outputs(self, predicted: Array, full: Array) -> NDArray[np.float64]:
        """(n, output) the part of predictions that contributions explain; `full` are those with all readings."""

    @abstractmethod
    def effect(self, value: Array, without: Array) -> NDArray[np.float64]:
        """The contribution of left-out readings, from the outputs with and without them."""

    @abstractmethod
    def prediction_text(self, predicted: Array) -> str:
        """One sample's prediction on one line."""

    @abstractmethod
    def summary(self, truth: Any, predicted: Array, region: Array | None) -> Summary:
        """One sample in words; `region` is its set or interval with CASE_COVERAGE."""


def reliability_series(curve: ReliabilityCurve) -> Series:
    """A reliability curve with its intervals."""
    return Series(curve.predicted, curve.observed, curve.low, curve.high, dots=8)


def capitalised(text: str) -> str:
    """The text with its first letter capitalised."""
    return text[:1].upper() + text[1:]


def diagonal(low: float = 0.0, high: float = 1.0) -> tuple[list[float], list[float]]:
    """A dashed line on which both axes are equal."""
    return [low, high], [low, high]
