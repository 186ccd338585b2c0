"""How good predictions are: one place computes each figure, for training, evaluation and tables alike."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics as sk

from raindrop.errors import ConfigError, suggest

Codes = NDArray[np.int64]
Probabilities = NDArray[Any]


def _ranking(score: Callable[..., Any], truth: Codes, probability: Probabilities) -> float:
    """Binary: of the last class. More classes: mean over classes of one against the rest."""
    if len(np.unique(truth)) < 2:
        return float("nan")
    if probability.shape[1] == 2:
        return float(score(truth == 1, probability[:, 1]))
    present = np.unique(truth)
    return float(np.mean([score(truth == code, probability[:, code]) for code in present]))


def auroc(truth: Codes, probability: Probabilities) -> float:
    """Area under the ROC curve."""
    return _ranking(sk.roc_auc_score, truth, probability)


def auprc(truth: Codes, probability: Probabilities) -> float:
    """Area under the precision-recall curve (average precision)."""
    return _ranking(sk.average_precision_score, truth, probability)


def accuracy(truth: Codes, probability: Probabilities) -> float:
    """Share of samples whose most probable class is right."""
    return float((probability.argmax(1) == truth).mean())


def _macro(score: Callable[..., Any], truth: Codes, probability: Probabilities) -> float:
    labels = np.arange(probability.shape[1])
    return float(score(truth, probability.argmax(1), labels=labels, average="macro", zero_division=0))


def precision(truth: Codes, probability: Probabilities) -> float:
    """Precision, mean over classes."""
    return _macro(sk.precision_score, truth, probability)


def recall(truth: Codes, probability: Probabilities) -> float:
    """Recall, mean over classes."""
    return _macro(sk.recall_score, truth, probability)


def f1(truth: Codes, probability: Probabilities) -> float:
    """F1 score, mean over classes."""
    return _macro(sk.f1_score, truth, probability)


def log_loss(truth: Codes, probability: Probabilities) -> float:
    """Mean negative log probability of the right class."""
    right = probability[np.arange(len(truth)), truth]
    return float(-np.log(np.maximum(right, 1e-12)).mean())


def brier(truth: Codes, probability: Probabilities) -> float:
    """Mean squared distance from the right answer; for two classes that of the second class."""
    wanted = np.eye(probability.shape[1])[truth]
    squared = ((probability - wanted) ** 2).sum(1)
    return float(squared.mean() / (2 if probability.shape[1] == 2 else 1))


@dataclass(frozen=True)
class Calibration:
    """Samples in groups of similar predicted probability: what was predicted, and what came true."""

    predicted: NDArray[np.float64]  # (group,) mean predicted probability
    came_true: NDArray[np.float64]  # (group,) share
    low: NDArray[np.float64]  # (group,) Wilson's 95 % interval of that share
    high: NDArray[np.float64]
    count: NDArray[np.int64]  # (group,) samples
    error: float
    """Expected calibration error: the mean distance of the two, weighted by samples."""


def calibration(truth: Codes, probability: Probabilities, groups: int = 10) -> Calibration:
    """Two classes: the probability of the second. More: that of the predicted class, against being right.

    Groups are of equal size, by probability; samples of equal probability share one.
    """
    binary = probability.shape[1] == 2
    score = np.asarray(probability[:, 1] if binary else probability.max(1), dtype=np.float64)
    happened = (truth == 1) if binary else (probability.argmax(1) == truth)
    smaller = np.searchsorted(np.sort(score), score)  # (sample,) how many have a smaller probability
    group = np.unique(smaller * groups // len(score), return_inverse=True)[1]
    count = np.bincount(group)
    predicted, share = np.bincount(group, score) / count, np.bincount(group, happened) / count
    z = 1.96
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    reach = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    error = float((count * np.abs(predicted - share)).sum() / count.sum())
    low, high = np.clip(middle - reach, 0, 1), np.clip(middle + reach, 0, 1)
    return Calibration(predicted, share, low, high, count, error)


def calibration_error(truth: Codes, probability: Probabilities) -> float:
    """Mean distance between what ten groups of samples of similar probability say and the share that came true."""
    return calibration(truth, probability).error


METRICS: dict[str, Callable[[Codes, Probabilities], float]] = {
    "auroc": auroc,
    "auprc": auprc,
    "accuracy": accuracy,
    "precision": precision,
    "recall": recall,
    "f1": f1,
    "log_loss": log_loss,
    "brier": brier,
    "calibration_error": calibration_error,
}
LOWER_IS_BETTER = frozenset({"log_loss", "brier", "calibration_error"})
NAMES = {name: name for name in METRICS} | {  # in tables and pictures
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "f1": "F1",
    "log_loss": "log loss",
    "brier": "Brier",
    "calibration_error": "calibration error",
}


def evaluate(truth: Codes, probability: Probabilities) -> dict[str, float]:
    """Every figure, by name; NaN where the samples do not allow it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sk._classification.UndefinedMetricWarning)
        return {name: metric(truth, probability) for name, metric in METRICS.items()}


def require_metric(name: str) -> None:
    """Raise unless there is such a figure."""
    if name not in METRICS:
        raise ConfigError(f"Unknown metric '{name}': {suggest(name, METRICS)}")


def better(name: str, new: float, old: float | None) -> bool:
    """Whether `new` beats `old`; anything beats nothing, NaN beats nothing but nothing."""
    if old is None:
        return True
    if np.isnan(new) or np.isnan(old):
        return bool(np.isnan(old) and not np.isnan(new))
    return new < old if name in LOWER_IS_BETTER else new > old
