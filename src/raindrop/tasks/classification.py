"""Classification: one of several classes per sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from raindrop.errors import ConfigError, DataError, format_count, suggest
from raindrop.table.event_table import EventTable
from raindrop.tasks.base import CONSTANT_MARGIN, Column, Task, Watched
from raindrop.tasks.boosting import BINARY, MULTICLASS, BoostingProblem
from raindrop.tasks.confusion import ConfusionMatrix
from raindrop.tasks.metrics import CLASSIFICATION, METRICS, ONE_CLASS, Array, Metric, log_loss
from raindrop.tasks.threshold import Threshold

ClassWeight = str | Mapping[Any, float] | None


@dataclass(frozen=True, eq=False)
class Classification(Task):
    """Classes by their logits: p = softmax(scores)."""

    name: ClassVar[str] = "classification"
    default_metric: ClassVar[str] = "auroc"
    loss_name: ClassVar[str] = "log_loss"
    stratified: ClassVar[bool] = True
    coverage_by_class: ClassVar[bool] = True
    averages: ClassVar[tuple[str, str]] = ("log-odds", "probabilities")
    parts_are_classes: ClassVar[bool] = True

    label: str
    classes: NDArray[Any]
    """The classes in the order of the scores; of two classes, the positive one is last."""
    weights: tuple[float, ...] | None = None
    """The weight of each class in the loss."""
    threshold: Threshold | None = None
    """With two classes: the probability from which the positive one is predicted; None predicts the most probable."""

    @classmethod
    def learn(cls, table: EventTable, *, positive: Any = None, class_weight: ClassWeight = None) -> Self:
        """The classes of a training table."""
        labels = table.labels
        classes, counts = np.unique(labels, return_counts=True)
        if len(classes) < 2:
            raise DataError(
                f"All {len(table):,} training samples have the label '{classes[0]}'. "
                "There must be at least two classes to tell apart."
            )
        if positive is not None:
            order = _positive_last(classes, positive)
            classes, counts = classes[order], counts[order]
        return cls(table.roles.label or "label", classes, _class_weights(classes, counts, class_weight))

    @property
    def labels(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.label,)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics; accuracy, precision, recall and F1 are about decisions, so they use the threshold."""
        metrics = {name: METRICS[name] for name in CLASSIFICATION}
        if self.threshold is None:
            return metrics
        return {name: _decided(metric, self) if metric.of_decisions else metric for name, metric in metrics.items()}

    @property
    def part_metrics(self) -> Mapping[str, Metric]:
        """Precision, recall and F1 of each class against the others."""
        return ONE_CLASS

    def parts(self, columns: Sequence[Column]) -> Sequence[Column]:
        """Each class as a two-class problem: all others, and this one."""
        (whole,) = columns
        decided = self.decide(whole.predicted)
        return [
            Column(str(name), whole.rows, (whole.truth == code).astype(np.int64), np.eye(2)[(decided == code) * 1])
            for code, name in enumerate(self.classes)
        ]

    @property
    def num_outputs(self) -> int:
        return len(self.classes)

    @property
    def positive(self) -> Any:
        """With two classes, the one that AUROC, AUPRC and the reliability curve refer to; None if there are more."""
        return self.classes[1] if len(self.classes) == 2 else None

    # ---------------------------------------------------------------- learning

    def encode(self, table: EventTable) -> NDArray[np.int64]:
        """(samples,) the position of each label in `classes`."""
        return encode_labels(table.labels, self.classes)

    def loss(self, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Cross entropy with codes (n,) or probabilities (n, class)."""
        if weight is None:
            return F.cross_entropy(scores, target)
        return (weight * F.cross_entropy(scores, target, reduction="none")).sum() / weight.sum()

    def strata(self, truth: Array) -> NDArray[np.int64]:
        return np.asarray(truth, dtype=np.int64)

    def sample_weights(self, truth: Array) -> NDArray[np.float32] | None:
        return None if self.weights is None else np.array(self.weights, dtype=np.float32)[truth]

    def with_weights_of(self, other: Self) -> Self:
        same = [str(name) for name in self.classes] == [str(name) for name in other.classes]
        return replace(self, weights=other.weights if same else None, threshold=None)

    def boosting_problems(self) -> Sequence[BoostingProblem]:
        if self.num_outputs == 2:
            return [BoostingProblem((1,), BINARY)]
        return [BoostingProblem(tuple(range(self.num_outputs)), MULTICLASS)]

    def soft_targets(self, scores: Tensor, truth: Array, weight: float) -> Array | None:
        one_hot = np.eye(self.num_outputs, dtype=np.float32)[truth]
        return cast(Array, np.float32(weight) * self.predict(scores) + np.float32(1 - weight) * one_hot)

    def knows(self, scores: Tensor, truth: Array) -> bool:
        constant = log_loss(truth, self.constant_prediction(truth))
        return log_loss(truth, self.predict(scores)) < CONSTANT_MARGIN * constant

    # ---------------------------------------------------------------- predicting

    def combine(self, members: Tensor) -> Tensor:
        return mean_log_prob(members)

    def mix(self, parts: Tensor, weights: Tensor, of_scores: bool) -> Tensor:
        """The average of log-odds, or of probabilities."""
        log_p = parts.log_softmax(-1)
        if of_scores:
            return (weights[..., None] * log_p).sum(0)
        return torch.logsumexp(log_p + weights[..., None].log(), dim=0)

    def predict(self, scores: Tensor) -> NDArray[np.float32]:
        """(n, class) probabilities; logits become probabilities only here."""
        return cast(NDArray[np.float32], torch.softmax(scores.detach().cpu().double(), dim=-1).float().numpy())

    def decide(self, probability: Array) -> NDArray[np.int64]:
        """(n,) the position in `classes` of the predicted class; probabilities become decisions only here."""
        if self.threshold is not None:
            return self.threshold.flags(probability).astype(np.int64)
        return np.asarray(probability.argmax(1), dtype=np.int64)

    def watched(self, predicted: Array, truth: Array | None = None) -> list[Watched]:
        """The probability of the positive class, or of every class if there are more than two."""
        codes = [1] if self.num_outputs == 2 else range(self.num_outputs)
        return [
            Watched(
                f"{self.label}={self.classes[code]}",
                predicted[:, code].astype(np.float64),
                None if truth is None else (truth == code).astype(np.float64),
            )
            for code in codes
        ]

    def confusion(self, truth: Array, predicted: Array) -> ConfusionMatrix:
        """How many samples of each class were predicted as each class."""
        pairs = np.asarray(truth, dtype=np.int64) * self.num_outputs + self.decide(predicted)
        counts = np.bincount(pairs, minlength=self.num_outputs**2).reshape(self.num_outputs, -1)
        return ConfusionMatrix(tuple(map(str, self.classes)), counts)

    # ---------------------------------------------------------------- judging

    def columns(self, truth: Array, predicted: Array) -> list[Column]:
        return [Column(self.label, np.arange(len(truth)), truth, predicted)]

    def title(self, metric: str) -> str:
        about_positive = self.positive is not None and "/" not in metric and self.metrics[metric].about_positive
        return super().title(metric) + (f" ({self.positive})" if about_positive else "")

    def describe(self, truth: Array) -> str:
        shares = np.bincount(truth, minlength=self.num_outputs) / max(len(truth), 1)
        rates = ", ".join(f"{name} {share:.1%}" for name, share in zip(self.classes, shares, strict=True))
        return f"label {self.label} ({rates})"

    def constant_prediction(self, truth: Array) -> NDArray[np.float32]:
        shares = np.bincount(truth, minlength=self.num_outputs) / max(len(truth), 1)
        return np.tile(shares.astype(np.float32), (len(truth), 1))

    # ---------------------------------------------------------------- keeping

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "label": self.label,
            "classes": self.classes.tolist(),
            "weights": None if self.weights is None else list(self.weights),
            "threshold": None if self.threshold is None else self.threshold.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        weights, threshold = content["weights"], content.get("threshold")
        classes = np.array(content["classes"])
        if classes.ndim != 1 or classes.dtype.kind not in "biufU":
            raise ValueError("classes are names or numbers")
        return cls(
            content["label"],
            classes,
            None if weights is None else tuple(weights),
            None if threshold is None else Threshold.from_dict(threshold),
        )


def _decided(metric: Metric, task: Classification) -> Metric:
    """The metric computed from the task's decisions instead of the most probable classes."""
    compute, weighted, classes = metric.compute, metric.weighted, np.eye(task.num_outputs)
    decided = replace(metric, compute=lambda truth, p: compute(truth, classes[task.decide(p)]))
    if weighted is None:
        return decided
    return replace(decided, weighted=lambda truth, p, counts: weighted(truth, classes[task.decide(p)], counts))


def mean_log_prob(members: Tensor) -> Tensor:
    """Logits (b, member, class) -> (b, class): the log of the members' mean probability."""
    return members.log_softmax(-1).logsumexp(1) - math.log(members.shape[1])


def encode_labels(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Position of each label in `classes`."""
    labels, classes = comparable(labels, classes)
    order = np.argsort(classes)
    code = order[np.searchsorted(classes, labels, sorter=order).clip(max=len(classes) - 1)]
    wrong = classes[code] != labels
    if wrong.any():
        known = ", ".join(f"'{name}'" for name in classes[:20])
        raise DataError(
            f"{format_count(int(wrong.sum()), len(labels), 'samples')} have a label that was not there in training "
            f"(first: '{labels[wrong][0]}').\nThe model knows the classes {known}."
        )
    return np.asarray(code, dtype=np.int64)


def comparable(labels: NDArray[Any], classes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both unchanged, or both as text if only one is text."""
    if labels.dtype.kind != classes.dtype.kind and {labels.dtype.kind, classes.dtype.kind} - set("biu"):
        return labels.astype(str), classes.astype(str)
    return labels, classes


def _positive_last(classes: NDArray[Any], positive: Any) -> list[int]:
    """The order of two classes in which `positive` is last."""
    if len(classes) != 2:
        raise ConfigError(
            f"positive='{positive}' chooses one of two classes, but there are {len(classes)}: "
            f"{', '.join(map(str, classes[:20]))}. Leave it out."
        )
    names = [str(name) for name in classes]
    if str(positive) not in names:
        raise ConfigError(f"positive='{positive}' is not a class: {suggest(str(positive), names)}")
    at = names.index(str(positive))
    return [1 - at, at]


def _class_weights(
    classes: NDArray[Any], counts: NDArray[np.int64], class_weight: ClassWeight
) -> tuple[float, ...] | None:
    """One weight per class: scikit-learn's 'balanced' (all classes count the same), or as given, with 1 for others."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ConfigError(f"class_weight is 'balanced' or a weight for each class, not '{class_weight}'.")
        return tuple((counts.sum() / (len(classes) * counts)).tolist())
    names = [str(name) for name in classes]
    given = {str(name): weight for name, weight in class_weight.items()}
    for name, weight in given.items():
        if name not in names:
            raise ConfigError(f"class_weight: '{name}' is not a class: {suggest(name, names)}")
        if not isinstance(weight, (int, float)) or not 0 <= weight < math.inf:
            raise ConfigError(f"class_weight: the weight of '{name}' must be a number of at least 0, not {weight!r}.")
    weights = tuple(float(given.get(name, 1.0)) for name in names)
    if sum(weight > 0 for weight in weights) < 2:
        raise ConfigError("class_weight: at least two classes need a weight above 0.")
    return weights
