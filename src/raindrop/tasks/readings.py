"""ReadingsAt: the value of a sensor at a time. Filling gaps and forecasting differ only in what is hidden."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.table.event_table import EventTable
from raindrop.tasks.base import Column, Task
from raindrop.tasks.boosting import BoostingProblem, quantile
from raindrop.tasks.metrics import METRICS, Array, Metric, of_point

LEVELS = (0.025, 0.1, 0.5, 0.9, 0.975)


@dataclass(frozen=True, eq=False)
class ReadingsAt(Task):
    """Quantiles of queried readings, in units of each sensor's standard deviation; the prediction is the median.

    A row of truth (q, 2) is the scaled value and the code of its sensor; scores are (q, level). Metrics are means over
    sensors, so that each sensor has the same weight, however rarely it is read.
    """

    name: ClassVar[str] = "readings"
    default_metric: ClassVar[str] = "mae"
    levels: ClassVar[tuple[float, ...]] = LEVELS

    sensors: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.sensors

    @property
    def num_outputs(self) -> int:
        return len(self.levels)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {name: of_point(METRICS[name], len(self.levels) // 2) for name in ("mae", "rmse")}

    # ---------------------------------------------------------------- learning

    def encode(self, table: EventTable) -> Array:
        raise TypeError("readings are predicted for queries, not for a column of the samples table")

    def loss(self, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean pinball loss over readings and levels."""
        level = torch.tensor(self.levels, device=scores.device, dtype=scores.dtype)
        error = target[:, None] - scores
        losses = torch.maximum(level * error, (level - 1) * error).mean(-1)
        return losses.mean() if weight is None else (losses * weight).sum() / weight.sum()

    def boosting_problems(self) -> Sequence[BoostingProblem]:
        return [BoostingProblem((at,), quantile(level)) for at, level in enumerate(self.levels)]

    # ---------------------------------------------------------------- predicting

    def combine(self, members: Tensor) -> Tensor:
        return members.mean(1)

    def mix(self, parts: Tensor, weights: Tensor, of_scores: bool) -> Tensor:
        return (weights[..., None] * parts).sum(0)

    def predict(self, scores: Tensor) -> NDArray[np.float32]:
        """(q, level) scaled quantiles in ascending order."""
        rising: NDArray[np.float32] = scores.sort(-1).values.cpu().numpy()
        return rising

    # ---------------------------------------------------------------- judging

    def columns(self, truth: Array, predicted: Array) -> list[Column]:
        """Each queried sensor."""
        code = truth[:, 1].astype(np.int64)
        order = np.argsort(code, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(code[order])) + 1) if len(order) else []
        return [Column(self.sensors[code[part[0]]], part, truth[part, 0], predicted[part]) for part in parts]

    def evaluate(self, truth: Array, predicted: Array, names: Collection[str] | None = None) -> dict[str, float]:
        """The means over sensors; `by_sensor` returns the values of each."""
        return super().evaluate(truth, predicted, self.metrics if names is None else names)

    def by_sensor(self, truth: Array, predicted: Array) -> dict[str, dict[str, float]]:
        """Each metric of each queried sensor."""
        columns = self.columns(truth, predicted)
        return {c.name: {name: m(c.truth, c.predicted) for name, m in self.metrics.items()} for c in columns}

    def describe(self, truth: Array) -> str:
        return f"{len(truth):,} readings of {len(np.unique(truth[:, 1]))} sensors"

    def constant_prediction(self, truth: Array) -> NDArray[np.float32]:
        return np.zeros((len(truth), len(self.levels)), dtype=np.float32)

    # ---------------------------------------------------------------- keeping

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "sensors": list(self.sensors)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        return cls(tuple(content["sensors"]))
