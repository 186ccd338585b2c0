"""Regression: one or several quantities per sample, some of them unknown for some samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast, get_args

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.errors import ConfigError, DataError, format_count, suggest
from raindrop.table.event_table import EventTable
from raindrop.tasks.base import CONSTANT_MARGIN, Column, Task, Watched, label_columns
from raindrop.tasks.boosting import ABSOLUTE, SQUARED, BoostingProblem, quantile
from raindrop.tasks.metrics import LEVELS, METRICS, REGRESSION, Array, Metric, of_point

Loss = Literal["quantile", "absolute", "squared"]


@dataclass(frozen=True, eq=False)
class Regression(Task):
    """Quantities, standardised for learning: y = centre + scale * score.

    loss: "quantile" learns five quantiles, and predicts the median; "absolute" learns the median alone, "squared" the
    mean. The first two are robust against a few extreme values. Unknown quantities are left out of the loss and the
    metrics.
    """

    name: ClassVar[str] = "regression"
    default_metric: ClassVar[str] = "mae"

    labels: tuple[str, ...]
    objective: Loss
    centre: tuple[float, ...]
    scale: tuple[float, ...]

    @classmethod
    def learn(cls, table: EventTable, labels: Sequence[str], loss: Loss = "quantile") -> Self:
        """Centre and scale of each quantity over the training samples that have it."""
        if loss not in get_args(Loss):
            raise ConfigError(f"loss='{loss}' is not known: {suggest(str(loss), get_args(Loss))}")
        if isinstance(labels, str) or not labels:
            raise ConfigError("Name the columns to predict: labels=['NAME', ...].")
        if len(set(labels)) < len(labels):
            raise ConfigError("labels=[...] names a column twice; remove one of them.")
        truth = quantities(table, labels)
        centre, scale = [], []
        for name, column in zip(labels, truth.T, strict=True):
            known = column[~np.isnan(column)]
            if len(np.unique(known)) < 2:
                raise DataError(
                    f"Quantity '{name}' has {len(np.unique(known))} different known values in {len(table):,} training "
                    "samples. There must be at least two."
                )
            low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
            spread = (high - low) / 1.349 if high > low and loss != "squared" else known.std()
            centre.append(float(known.mean() if loss == "squared" else middle))
            scale.append(float(spread))
        return cls(tuple(labels), loss, tuple(centre), tuple(scale))

    @property
    def levels(self) -> tuple[float, ...]:
        """The quantiles among the scores of a quantity; for a point prediction only the middle one."""
        return LEVELS if self.objective == "quantile" else (0.5,)

    @property
    def num_outputs(self) -> int:
        return len(self.labels) * len(self.levels)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """For predictions (n, level): the metrics of the point prediction, and the pinball loss of all quantiles."""
        points = {name: of_point(METRICS[name], len(self.levels) // 2) for name in REGRESSION}
        return points | ({"pinball": METRICS["pinball"]} if len(self.levels) > 1 else {})

    # ---------------------------------------------------------------- learning

    def encode(self, table: EventTable) -> NDArray[np.float64]:
        """(samples, quantity) in their own units, NaN if unknown."""
        return quantities(table, self.labels)

    def targets(self, truth: Array) -> Array:
        standard: Array = ((truth - np.array(self.centre)) / np.array(self.scale)).astype(np.float32)
        return standard

    def loss(self, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean over the known quantities, and over their quantiles."""
        known = ~target.isnan()
        counts = known.to(scores.dtype) if weight is None else known * weight[:, None]
        error = target.nan_to_num(0.0)[..., None] - scores.view(len(scores), len(self.labels), -1)
        if self.objective == "squared":
            losses = error.square().mean(-1)
        else:
            level = torch.tensor(self.levels, device=scores.device, dtype=scores.dtype)
            losses = torch.maximum(level * error, (level - 1) * error).mean(-1)
        return (losses * counts).sum() / counts.sum().clamp_min(torch.finfo(scores.dtype).tiny)

    def boosting_problems(self) -> Sequence[BoostingProblem]:
        size, single = len(self.levels), {"squared": SQUARED, "absolute": ABSOLUTE}
        return [
            BoostingProblem((at * size + place,), single.get(self.objective) or quantile(level), column=at)
            for at in range(len(self.labels))
            for place, level in enumerate(self.levels)
        ]

    def soft_targets(self, scores: Tensor, truth: Array, weight: float) -> Array | None:
        """Mixed targets for the squared loss only: for the others, mixing in predictions narrows the quantiles."""
        if self.objective != "squared":
            return None
        predicted = scores.detach().cpu().numpy()
        targets = self.targets(truth)
        mixed = weight * predicted + (1 - weight) * np.nan_to_num(targets)
        return np.where(np.isnan(targets), predicted, mixed).astype(np.float32)

    def knows(self, scores: Tensor, truth: Array) -> bool:
        said = self.evaluate(truth, self.predict(scores), ["rmse"])["rmse"]
        return said**2 < CONSTANT_MARGIN * self.evaluate(truth, self.constant_prediction(truth), ["rmse"])["rmse"] ** 2

    # ---------------------------------------------------------------- predicting

    def combine(self, members: Tensor) -> Tensor:
        return members.mean(1)

    def mix(self, parts: Tensor, weights: Tensor, of_scores: bool) -> Tensor:
        return (weights[..., None] * parts).sum(0)

    def predict(self, scores: Tensor) -> NDArray[np.float32]:
        """(n, quantity, level) in their own units; quantiles in ascending order."""
        by_level = scores.detach().cpu().double().view(len(scores), len(self.labels), len(self.levels))
        standard = by_level.sort(-1).values.numpy()
        own_units = standard * np.array(self.scale)[:, None] + np.array(self.centre)[:, None]
        return cast(NDArray[np.float32], own_units.astype(np.float32))

    def point(self, predicted: Array) -> Array:
        """(n, quantity, level) -> (n, quantity): the median, or the mean if that was learned."""
        return predicted[..., len(self.levels) // 2]

    def watched(self, predicted: Array, truth: Array | None = None) -> list[Watched]:
        """The point prediction of each quantity."""
        point = self.point(predicted).astype(np.float64)
        return [
            Watched(name, point[:, at], None if truth is None else truth[:, at], is_probability=False)
            for at, name in enumerate(self.labels)
        ]

    # ---------------------------------------------------------------- judging

    def columns(self, truth: Array, predicted: Array) -> list[Column]:
        columns = []
        for at, (name, scale) in enumerate(zip(self.labels, self.scale, strict=True)):
            rows = np.flatnonzero(~np.isnan(truth[:, at]))
            columns.append(Column(name, rows, truth[rows, at], predicted[rows, at].astype(np.float64), scale))
        return columns

    def title(self, metric: str) -> str:
        mean = f", mean of {len(self.labels)} standardised quantities"
        return super().title(metric) + (mean if "/" not in metric and len(self.labels) > 1 else "")

    def describe(self, truth: Array) -> str:
        parts = []
        for name, column in zip(self.labels, truth.T, strict=True):
            known = column[~np.isnan(column)]
            low, middle, high = np.quantile(known, [0.25, 0.5, 0.75]) if len(known) else (np.nan,) * 3
            parts.append(f"{name} (median {middle:.4g}, quartiles {low:.4g} and {high:.4g}; {len(known):,} known)")
        return "quantities " + ", ".join(parts)

    def constant_prediction(self, truth: Array) -> NDArray[np.float32]:
        """The quantiles of these samples, or their mean."""
        shape = (len(self.labels), len(self.levels))
        constant = np.zeros(shape)
        for at, column in enumerate(truth.T):
            known = column[~np.isnan(column)]
            if len(known):
                constant[at] = known.mean() if self.objective == "squared" else np.quantile(known, self.levels)
        return np.broadcast_to(constant.astype(np.float32), (len(truth), *shape))

    # ---------------------------------------------------------------- keeping

    def to_dict(self) -> dict[str, Any]:
        kept = {"labels": list(self.labels), "centre": list(self.centre), "scale": list(self.scale)}
        return {"name": self.name, "loss": self.objective, **kept}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        labels, centre, scale = (tuple(content[name]) for name in ("labels", "centre", "scale"))
        numbers = all(isinstance(number, (int, float)) for number in (*centre, *scale))
        if not numbers or not len(labels) == len(centre) == len(scale):
            raise ValueError("each quantity has a centre and a scale")
        return cls(labels, content["loss"], centre, scale)


def quantities(table: EventTable, labels: Sequence[str]) -> NDArray[np.float64]:
    """(samples, quantity): numbers, NaN if unknown."""
    columns = []
    for column in label_columns(table, labels):
        name = column.name
        if not column.dtype.is_numeric() and column.dtype not in (pl.Boolean, pl.Null):
            raise DataError(
                f"samples: quantity '{name}' is of type {column.dtype}, not a number.\n"
                "Turn it into numbers, empty where unknown, or predict classes with --task classification."
            )
        number = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
        infinite = np.isinf(number)
        if infinite.any():
            raise DataError(
                f"samples: quantity '{name}' is infinite in {format_count(int(infinite.sum()), len(number), 'rows')} "
                f"(first: row {int(infinite.argmax()) + 1:,}); leave them empty or fix the export."
            )
        columns.append(number)
    return np.column_stack(columns)
