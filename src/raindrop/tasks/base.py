"""The interface of every task: targets, loss, predictions, metrics.

A task is learned from the training table (its classes, the scale of its quantities) and saved with the model. Models
and the training loop use only this interface. To add a task, write its file here and its estimator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from raindrop.errors import ConfigError, DataError
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns
from raindrop.tasks.boosting import BoostingProblem
from raindrop.tasks.bootstrap import Interval, interval, resampled_counts
from raindrop.tasks.metrics import Array, Floats, Metric, require_metric

CONSTANT_MARGIN = 0.95  # of a constant's error: predictions must have a lower error than this


@dataclass(frozen=True)
class Column:
    """One label or quantity of a task, for the samples where its true value is known."""

    name: str
    rows: NDArray[np.int64]  # (known,) positions of these samples
    truth: Array  # (known,)
    predicted: Array  # (known, ...)
    scale: float = 1.0
    """A typical difference, used to make quantities of different units comparable."""

    def standardised(self) -> Column:
        """The column in units of its scale."""
        if self.scale == 1.0:
            return self
        return replace(self, truth=self.truth / self.scale, predicted=self.predicted / self.scale, scale=1.0)


@dataclass(frozen=True)
class Watched:
    """A number predicted for every sample that is monitored while a model is in use."""

    name: str
    score: NDArray[np.float64]  # (n,)
    outcome: NDArray[np.float64] | None = None  # (n,) 1 or 0, or the quantity; NaN if unknown; None without labels
    is_probability: bool = True

    def __getitem__(self, rows: NDArray[np.int64]) -> Watched:
        return replace(self, score=self.score[rows], outcome=None if self.outcome is None else self.outcome[rows])

    @classmethod
    def joined(cls, parts: Sequence[Watched]) -> Watched:
        """The same number for the samples of all parts, concatenated."""
        outcomes = [part.outcome for part in parts if part.outcome is not None]
        return replace(
            parts[0],
            score=np.concatenate([part.score for part in parts]),
            outcome=np.concatenate(outcomes) if outcomes else None,
        )


class Task(ABC):
    """What is predicted. `scores` are a model's raw outputs (b, num_outputs); the task defines what they mean."""

    name: ClassVar[str]
    """Its name on the command line and in saved models."""
    default_metric: ClassVar[str]
    """The validation metric used to choose the epoch."""
    loss_name: ClassVar[str] = "loss"
    """The name of the loss of its boosted trees in their history."""
    stratified: ClassVar[bool] = False
    """Whether random splits should have the same mix of labels in every part."""
    coverage_by_class: ClassVar[bool] = False
    """Whether `predict_table` takes `by_class`: coverage that holds for each class separately."""
    averages: ClassVar[tuple[str, str]] = ("predictions", "predictions")
    """What `mix` averages: with `of_scores`, and without."""
    parts_are_classes: ClassVar[bool] = False
    """Whether 'recall/NAME' is the recall of a class; for other tasks it is that of a label or quantity."""
    labels: tuple[str, ...]
    """The columns of the samples table it predicts."""

    @property
    @abstractmethod
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics by name, in display order."""

    # ---------------------------------------------------------------- learning

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """The number of scores per sample."""

    @abstractmethod
    def encode(self, table: EventTable) -> Array:
        """The true values, (samples,) or (samples, column); NaN if unknown, for tasks that allow it."""

    def targets(self, truth: Array) -> Array:
        """The targets of the loss, in the shape of the truth."""
        return truth

    @abstractmethod
    def loss(self, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean loss of scores (n, output), each sample weighted by weight (n,)."""

    def member_loss(self, members: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean loss of ensemble members (b, member, output), each by itself so that they stay different."""
        size = members.shape[1]
        weight = None if weight is None else weight.repeat_interleave(size, dim=0)
        return self.loss(members.flatten(0, 1), target.repeat_interleave(size, dim=0), weight)

    def strata(self, truth: Array) -> NDArray[np.int64]:
        """(samples,) the class of each sample, for balanced batches, splits and draws; all 0 without classes."""
        return np.zeros(len(truth), dtype=np.int64)

    def sample_weights(self, truth: Array) -> NDArray[np.float32] | None:
        """(samples,) the weight of each sample in the loss; None if all are equal."""
        return None

    def with_weights_of(self, other: Self) -> Self:
        """This task with the class weights of another one that has the same classes."""
        return self

    @abstractmethod
    def boosting_problems(self) -> Sequence[BoostingProblem]:
        """The tree ensembles that learn this task."""

    def soft_targets(self, scores: Tensor, truth: Array, weight: float) -> Array | None:
        """Targets mixed with a teacher's scores, which have this `weight`; None if the loss does not support it."""
        return None

    def knows(self, scores: Tensor, truth: Array) -> bool:
        """Whether these scores of held-out samples are clearly better than a constant."""
        return True

    # ---------------------------------------------------------------- predicting

    @abstractmethod
    def combine(self, members: Tensor) -> Tensor:
        """Scores of ensemble members (b, member, output) -> (b, output) of their mean prediction."""

    @abstractmethod
    def mix(self, parts: Tensor, weights: Tensor, of_scores: bool) -> Tensor:
        """Scores (b, output) of the weighted mean of several models' predictions, or of their scores.

        parts (model, b, output) are their scores; weights (model, b) sum to 1 for each sample.
        """

    @abstractmethod
    def predict(self, scores: Tensor) -> NDArray[np.float32]:
        """Scores -> user-facing predictions: probabilities, or quantities in their own unit."""

    def watched(self, predicted: Array, truth: Array | None = None) -> list[Watched]:
        """The numbers of each sample whose distribution is monitored while a model is in use; none by default."""
        return []

    # ---------------------------------------------------------------- judging

    @abstractmethod
    def columns(self, truth: Array, predicted: Array) -> list[Column]:
        """Each label or quantity with the samples for which it is known."""

    @property
    def part_metrics(self) -> Mapping[str, Metric]:
        """The metrics of each single label, quantity or class."""
        return self.metrics

    def parts(self, columns: Sequence[Column]) -> Sequence[Column]:
        """The parts with their own metrics, 'metric/name': each label or quantity if there are several."""
        return columns if len(columns) > 1 else []

    def evaluate(self, truth: Array, predicted: Array, names: Collection[str] | None = None) -> dict[str, float]:
        """Every metric by name: the mean over labels or quantities, and each as 'metric/label' if there are several.

        For several quantities, the mean is over standardised values, so that their units do not matter. Given `names`,
        only these are computed.
        """
        columns = self.columns(truth, predicted)
        several = len(columns) > 1
        values = {
            name: _mean([_compute(metric, column.standardised() if several else column) for column in columns])
            for name, metric in self.metrics.items()
            if names is None or name in names
        }
        values |= {
            f"{name}/{column.name}": _compute(metric, column)
            for column in self.parts(columns)
            for name, metric in self.part_metrics.items()
            if names is None or f"{name}/{column.name}" in names
        }
        return values

    def bootstrap(
        self,
        truth: Array,
        predicted: Array,
        names: Sequence[str] | None = None,
        *,
        draws: int = 1000,
        seed: int = 0,
    ) -> dict[str, Interval]:
        """Metrics with 95 % percentile intervals, by drawing samples with replacement within each stratum.

        Strata are the true classes if there are any, so that each draw has every class and AUROC stays defined for rare
        outcomes. The interval covers the choice of test samples, not the variation between training runs. Named as in
        `evaluate`: 'auroc' is the mean over labels or quantities, 'auroc/died' that of one of them.
        """
        drawn = self.bootstrap_draws(truth, predicted, names, draws=draws, seed=seed)
        exact = self.evaluate(truth, predicted, drawn)
        return {name: interval(exact[name], values) for name, values in drawn.items()}

    def bootstrap_draws(
        self,
        truth: Array,
        predicted: Array,
        names: Sequence[str] | None = None,
        *,
        draws: int = 1000,
        seed: int = 0,
    ) -> dict[str, Floats]:
        """(draws,) of each metric of `bootstrap`; paired: the same truth and seed draw the same samples."""
        if not len(truth):
            raise DataError("There are no samples, so there is no metric and no interval.")
        if draws < 1:
            raise ConfigError(f"An interval needs at least 1 draw, not {draws}.")
        fast = {name: metric.weighted for name, metric in self.metrics.items() if metric.weighted is not None}
        of_parts = {name: metric.weighted for name, metric in self.part_metrics.items() if metric.weighted is not None}
        for name in names or ():
            require_metric(name.partition("/")[0], of_parts if "/" in name else fast)
        columns = self.columns(truth, predicted)
        each = {column.name: column for column in self.parts(columns)}
        comparable = [column.standardised() if len(columns) > 1 else column for column in columns]
        drawn: dict[str, list[Floats]] = {name: [] for name in (names or fast)}
        for counts in resampled_counts(self.strata(truth), draws, seed):
            for name, parts in drawn.items():
                metric, slash, label = name.partition("/")
                chosen = [c for c in ([each[label]] if slash else comparable) if len(c.rows)]
                with np.errstate(invalid="ignore", divide="ignore"):  # a draw may have no sample of a label
                    compute = (of_parts if slash else fast)[metric]
                    values = [compute(c.truth, c.predicted, counts[:, c.rows]) for c in chosen]
                    parts.append(np.mean(values, 0) if chosen else np.full(len(counts), np.nan))
        return {name: np.concatenate(parts) for name, parts in drawn.items()}

    def title(self, metric: str) -> str:
        """The display name of the metric, including what it is about."""
        name, slash, label = metric.partition("/")
        return (self.part_metrics if slash else self.metrics)[name].title + (f" ({label})" if slash else "")

    def require_metric(self, name: str) -> str:
        """The name of one of this task's metrics; 'auto' is its default."""
        name = self.default_metric if name == "auto" else name
        require_metric(name, self.metrics)
        return name

    def require_judgeable(self, truth: Array, metric: str) -> None:
        """Raise if the metric is undefined on these validation samples, so that no epoch could be chosen by it."""
        values = self.evaluate(truth, self.constant_prediction(truth), [metric])
        if np.isnan(values[metric]):
            raise DataError(
                f"All {len(truth):,} validation samples are alike, so there is no {self.title(metric)} to choose an "
                "epoch by. Give a validation table with several classes or values, or set train.metric to another one."
            )

    @abstractmethod
    def describe(self, truth: Array) -> str:
        """A description of the target and its distribution, such as base rates, for captions."""

    @abstractmethod
    def constant_prediction(self, truth: Array) -> NDArray[np.float32]:
        """The same prediction for every sample, in the form of `predict`."""

    # ---------------------------------------------------------------- keeping

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """JSON values from which `from_dict` restores the task."""

    @classmethod
    @abstractmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The task that `to_dict` described."""


def label_columns(table: EventTable, labels: Sequence[str]) -> list[pl.Series]:
    """These columns of the samples table; raises if one is missing."""
    for name in labels:
        require_columns(table.samples, {"label": name}, "samples")
    return [table.samples[name] for name in labels]


def _compute(metric: Metric, column: Column) -> float:
    return metric(column.truth, column.predicted) if len(column.rows) else float("nan")


def _mean(values: Sequence[float]) -> float:
    """The mean over labels that have a value."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")
