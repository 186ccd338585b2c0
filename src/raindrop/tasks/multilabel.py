"""Multi-label classification: several yes/no labels per sample, some of them unknown for some samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from raindrop.errors import ConfigError, DataError
from raindrop.table.event_table import EventTable
from raindrop.tasks.base import CONSTANT_MARGIN, Column, Task, Watched, label_columns
from raindrop.tasks.boosting import BINARY, BoostingProblem
from raindrop.tasks.metrics import METRICS, YES_NO, Array, Metric

YES, NO = ("yes", "true", "1", "1.0"), ("no", "false", "0", "0.0")


@dataclass(frozen=True, eq=False)
class MultiLabel(Task):
    """Yes/no labels by their logits: p = sigmoid(scores). Unknown labels are left out of the loss and the metrics."""

    name: ClassVar[str] = "multilabel"
    default_metric: ClassVar[str] = "auroc"
    loss_name: ClassVar[str] = "log_loss"
    averages: ClassVar[tuple[str, str]] = ("log-odds", "probabilities")

    labels: tuple[str, ...]

    @classmethod
    def learn(cls, table: EventTable, labels: Sequence[str]) -> Self:
        """Learn from a training table, in which every label must have both answers."""
        if isinstance(labels, str) or not labels:
            raise ConfigError("Name the yes/no columns to predict: labels=['NAME', ...].")
        if len(set(labels)) < len(labels):
            raise ConfigError("labels=[...] names a column twice; remove one of them.")
        task = cls(tuple(labels))
        truth = task.encode(table)
        for at, name in enumerate(labels):
            known = truth[~np.isnan(truth[:, at]), at]
            if len(np.unique(known)) < 2:
                same = f"'{'yes' if known[0] else 'no'}' in all of them" if len(known) else "unknown in all of them"
                raise DataError(
                    f"Label '{name}' is {same} ({len(table):,} training samples). Each label needs both answers."
                )
        return task

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {name: METRICS[name] for name in YES_NO}

    @property
    def num_outputs(self) -> int:
        return len(self.labels)

    # ---------------------------------------------------------------- learning

    def encode(self, table: EventTable) -> NDArray[np.float64]:
        """(samples, label): 1 yes, 0 no, NaN unknown."""
        return np.column_stack([yes_or_no(column) for column in label_columns(table, self.labels)])

    def targets(self, truth: Array) -> Array:
        return truth.astype(np.float32)

    def loss(self, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Binary cross entropy with answers or probabilities, over the known labels."""
        known = ~target.isnan()
        counts = known.to(scores.dtype) if weight is None else known * weight[:, None]
        losses = F.binary_cross_entropy_with_logits(scores, target.nan_to_num(0.0), reduction="none")
        return (losses * counts).sum() / counts.sum().clamp_min(torch.finfo(scores.dtype).tiny)

    def boosting_problems(self) -> Sequence[BoostingProblem]:
        return [BoostingProblem((at,), BINARY, column=at) for at in range(self.num_outputs)]

    def soft_targets(self, scores: Tensor, truth: Array, weight: float) -> Array | None:
        """Targets mixed with the teacher's; an unknown label gets the teacher's prediction."""
        predicted = self.predict(scores)
        mixed = weight * predicted + (1 - weight) * np.nan_to_num(truth)
        return np.where(np.isnan(truth), predicted, mixed).astype(np.float32)

    def knows(self, scores: Tensor, truth: Array) -> bool:
        said = self.evaluate(truth, self.predict(scores), ["log_loss"])["log_loss"]
        return said < CONSTANT_MARGIN * self.evaluate(truth, self.constant_prediction(truth), ["log_loss"])["log_loss"]

    # ---------------------------------------------------------------- predicting

    def combine(self, members: Tensor) -> Tensor:
        """Logit of the members' mean probability."""
        size = math.log(members.shape[1])
        yes, no = F.logsigmoid(members).logsumexp(1) - size, F.logsigmoid(-members).logsumexp(1) - size
        return yes - no

    def mix(self, parts: Tensor, weights: Tensor, of_scores: bool) -> Tensor:
        """The average of log-odds, or of probabilities."""
        if of_scores:
            return (weights[..., None] * parts).sum(0)
        log_weight = weights[..., None].log()
        yes, no = (torch.logsumexp(F.logsigmoid(sign * parts) + log_weight, dim=0) for sign in (1, -1))
        return yes - no

    def predict(self, scores: Tensor) -> NDArray[np.float32]:
        """(n, label) the probability of yes."""
        return cast(NDArray[np.float32], torch.sigmoid(scores.detach().cpu().double()).float().numpy())

    def watched(self, predicted: Array, truth: Array | None = None) -> list[Watched]:
        """The probability of each label."""
        return [
            Watched(
                name, predicted[:, at].astype(np.float64), None if truth is None else truth[:, at].astype(np.float64)
            )
            for at, name in enumerate(self.labels)
        ]

    # ---------------------------------------------------------------- judging

    def columns(self, truth: Array, predicted: Array) -> list[Column]:
        """Each label as a problem of two classes, no and yes."""
        columns = []
        for at, name in enumerate(self.labels):
            rows = np.flatnonzero(~np.isnan(truth[:, at]))
            yes = predicted[rows, at].astype(np.float64)
            columns.append(Column(name, rows, truth[rows, at].astype(np.int64), np.column_stack([1 - yes, yes])))
        return columns

    def title(self, metric: str) -> str:
        mean = f", mean of {self.num_outputs} labels" if "/" not in metric and self.num_outputs > 1 else ""
        return super().title(metric) + mean

    def describe(self, truth: Array) -> str:
        shares = self.constant_prediction(truth)[:1].ravel()
        known = (~np.isnan(truth)).sum(0)
        rates = ", ".join(
            f"{name} {share:.1%} of {count:,} known"
            for name, share, count in zip(self.labels, shares, known, strict=True)
        )
        return f"labels {rates}"

    def constant_prediction(self, truth: Array) -> NDArray[np.float32]:
        known = ~np.isnan(truth)
        shares = np.where(known, truth, 0).sum(0) / np.maximum(known.sum(0), 1)
        return np.tile(shares.astype(np.float32), (len(truth), 1))

    # ---------------------------------------------------------------- keeping

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "labels": list(self.labels)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        return cls(tuple(content["labels"]))


def yes_or_no(column: pl.Series) -> NDArray[np.float64]:
    """1 for yes, 0 for no, NaN if unknown: true/false, 0/1, or the words yes and no."""
    if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        number = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
        wrong = ~np.isnan(number) & (number != 0) & (number != 1)
    else:
        text = column.cast(pl.String).str.strip_chars().str.to_lowercase()
        text = text.set(text == "", None)
        number = np.where(text.is_in(YES).fill_null(False), 1.0, np.where(text.is_null(), np.nan, 0.0))
        wrong = (~text.is_in((*YES, *NO)).fill_null(True)).to_numpy()
    if wrong.any():
        raise DataError(
            f"samples: label '{column.name}' holds '{column[int(wrong.argmax())]}', which is neither yes nor no.\n"
            "A label of several is true/false, 1/0 or yes/no, and empty where unknown."
        )
    return np.asarray(number, dtype=np.float64)
