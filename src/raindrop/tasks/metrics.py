"""Metrics: how good predictions are. Each has one definition, used in training, evaluation, intervals and tables.

To add a metric, write its function, add its line to METRICS, and its name to the metrics of the tasks that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics as sk

from raindrop.errors import ConfigError, suggest

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]
Array = NDArray[Any]


@dataclass(frozen=True)
class Metric:
    """A number that says how good predictions are."""

    title: str
    """For tables and figures."""
    compute: Callable[[Array, Array], float]
    """(truth, predicted) -> value; NaN if it is undefined for the samples."""
    lower_is_better: bool = False
    is_share: bool = True
    """Whether it lies between 0 and 1, so that tables may show it in percent."""
    weighted: Callable[[Array, Array, Floats], Floats] | None = None
    """(truth, predicted, counts (draw, sample)) -> (draw,): its value if each sample is counted this often.

    A metric that has it gets confidence intervals, and a row in reports.
    """
    about_positive: bool = False
    """With two classes, whether it is about the positive one only."""
    over_classes: str = "all classes"
    """What it is about if it is not about the positive class, for titles in reports."""
    of_decisions: bool = False
    """Whether it depends only on the predicted class, not on its probability."""

    def __call__(self, truth: Array, predicted: Array) -> float:
        return self.compute(truth, predicted)

    def better(self, new: float, old: float | None) -> bool:
        """Whether `new` beats `old`; anything beats None, and NaN beats only None."""
        if old is None:
            return True
        if np.isnan(new) or np.isnan(old):
            return bool(np.isnan(old) and not np.isnan(new))
        return new < old if self.lower_is_better else new > old


# ---------------------------------------------------------------- classes: truth (n,) codes, predicted (n, class)


def _one_vs_rest(score: Callable[..., Any], truth: Codes, probability: Array) -> float:
    """With two classes: of the second, positive one. With more: the one-versus-rest mean over classes."""
    if len(np.unique(truth)) < 2:
        return float("nan")
    codes = [1] if probability.shape[1] == 2 else np.unique(truth).tolist()
    return float(np.mean([score(truth == code, probability[:, code]) for code in codes]))


def auroc(truth: Codes, probability: Array) -> float:
    """Area under the ROC curve."""
    return _one_vs_rest(sk.roc_auc_score, truth, probability)


def auprc(truth: Codes, probability: Array) -> float:
    """Area under the precision-recall curve (average precision)."""
    return _one_vs_rest(sk.average_precision_score, truth, probability)


def accuracy(truth: Codes, probability: Array) -> float:
    """Share of samples whose most probable class is right."""
    return float((probability.argmax(1) == truth).mean())


def _macro(score: Callable[..., Any], truth: Codes, probability: Array) -> float:
    labels = np.arange(probability.shape[1])
    return float(score(truth, probability.argmax(1), labels=labels, average="macro", zero_division=0))


def precision(truth: Codes, probability: Array) -> float:
    """Precision, mean over classes."""
    return _macro(sk.precision_score, truth, probability)


def recall(truth: Codes, probability: Array) -> float:
    """Recall, mean over classes."""
    return _macro(sk.recall_score, truth, probability)


def f1(truth: Codes, probability: Array) -> float:
    """F1 score, mean over classes."""
    return _macro(sk.f1_score, truth, probability)


def log_loss(truth: Codes, probability: Array) -> float:
    """Mean negative log probability of the true class."""
    return float(_log_losses(truth, probability).mean())


def brier(truth: Codes, probability: Array) -> float:
    """Mean squared distance from the one-hot truth; halved for two classes, where both terms are the same."""
    return float(_squared_distances(truth, probability).mean())


def _log_losses(truth: Codes, probability: Array) -> Floats:
    return -np.log(np.maximum(probability[np.arange(len(truth)), truth], 1e-12))


def _squared_distances(truth: Codes, probability: Array) -> Floats:
    classes = probability.shape[1]
    squared: Floats = ((probability - np.eye(classes)[truth]) ** 2).sum(1) / (2 if classes == 2 else 1)
    return squared


@dataclass(frozen=True)
class ReliabilityCurve:
    """Samples in bins of similar predicted probability: the prediction, and how often it was right."""

    predicted: Floats  # (bin,) mean predicted probability
    observed: Floats  # (bin,) share
    low: Floats  # (bin,) Wilson's 95 % interval of that share
    high: Floats
    count: NDArray[np.int64]  # (bin,) samples
    error: float
    """Expected calibration error: the mean distance between predicted and observed, weighted by samples."""


def reliability_curve(truth: Codes, probability: Array, bins: int = 10) -> ReliabilityCurve:
    """With two classes: the probability of the second. With more: that of the predicted class, against being right.

    Bins have equal numbers of samples, sorted by probability; samples of equal probability share a bin.
    """
    binary = probability.shape[1] == 2
    score = np.asarray(probability[:, 1] if binary else probability.max(1), dtype=np.float64)
    happened = (truth == 1) if binary else (probability.argmax(1) == truth)
    rank = np.searchsorted(np.sort(score), score)  # (sample,) how many have a smaller probability
    bin_of = np.unique(rank * bins // len(score), return_inverse=True)[1]
    count = np.bincount(bin_of)
    predicted, share = np.bincount(bin_of, score) / count, np.bincount(bin_of, happened) / count
    error = float((count * np.abs(predicted - share)).sum() / count.sum())
    low, high = wilson(share, count)
    return ReliabilityCurve(predicted, share, low, high, count, error)


def wilson(share: Array, count: Array) -> tuple[Floats, Floats]:
    """Wilson's 95 % interval of a share of `count` samples."""
    z = 1.96
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    margin = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    return np.clip(centre - margin, 0, 1), np.clip(centre + margin, 0, 1)


def calibration_error(truth: Codes, probability: Array) -> float:
    """Expected calibration error over ten bins of equal size."""
    return reliability_curve(truth, probability).error


# ---------------------------------------------------------------- the same where samples count several times


def _weighted_ranking(which: int) -> Callable[[Array, Array, Floats], Floats]:
    def value(truth: Array, probability: Array, counts: Floats) -> Floats:
        codes = [1] if probability.shape[1] == 2 else np.unique(truth).tolist()
        of_codes = [_ranked(truth == code, probability[:, code], counts)[which] for code in codes]
        mean: Floats = np.mean(of_codes, 0)
        return mean

    return value


def _ranked(positive: NDArray[np.bool_], score: Array, counts: Floats) -> tuple[Floats, Floats]:
    """(draw,) AUROC and average precision of one class; samples of equal score are one step."""
    if positive.all() or not positive.any():
        undefined = np.full(len(counts), np.nan)
        return undefined, undefined
    order = np.argsort(-score, kind="stable")
    ordered = score[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    true = np.add.reduceat(counts[:, order] * positive[order], starts, axis=1)  # (draw, step), highest score first
    false = np.add.reduceat(counts[:, order] * ~positive[order], starts, axis=1)
    true_so_far, false_so_far = true.cumsum(1), false.cumsum(1)
    below = false_so_far[:, -1:] - false_so_far  # negatives with a lower score
    area = (true * (below + false / 2)).sum(1) / (true_so_far[:, -1] * false_so_far[:, -1])
    flagged = true_so_far + false_so_far
    precision_at = true_so_far / np.where(flagged > 0, flagged, 1)
    return area, (true * precision_at).sum(1) / true_so_far[:, -1]


def _weighted_mean(per_sample: Callable[[Array, Array], Array]) -> Callable[[Array, Array, Floats], Floats]:
    def value(truth: Array, predicted: Array, counts: Floats) -> Floats:
        mean: Floats = counts @ per_sample(truth, predicted) / counts.sum(1)
        return mean

    return value


def _weighted_f1(truth: Array, probability: Array, counts: Floats) -> Floats:
    predicted, codes = probability.argmax(1), range(probability.shape[1])
    hits = np.stack([counts @ ((predicted == c) & (truth == c)) for c in codes])
    either = np.stack([counts @ ((predicted == c).astype(float) + (truth == c)) for c in codes])
    mean: Floats = (2 * hits / np.where(either > 0, either, 1)).mean(0)
    return mean


# ---------------------------------------------------------------- one class: truth (n,) 0 or 1, predicted (n, 2)


def _weighted_ratio(
    top: Callable[[Array, Array], Array], bottom: Callable[[Array, Array], Array]
) -> Callable[[Array, Array, Floats], Floats]:
    def value(truth: Array, predicted: Array, counts: Floats) -> Floats:
        flagged, actual = predicted.argmax(1) == 1, truth == 1
        below = counts @ bottom(flagged, actual)
        ratio: Floats = counts @ top(flagged, actual) / np.where(below > 0, below, 1)
        return np.where(counts @ actual > 0, ratio, np.nan)

    return value


def _one_class(title: str, top: Callable[[Array, Array], Array], bottom: Callable[[Array, Array], Array]) -> Metric:
    """A ratio of counts of flagged and actual samples; 0 if none is flagged, NaN if no sample is of the class."""
    weighted = _weighted_ratio(top, bottom)
    once = lambda truth, predicted: float(weighted(truth, predicted, np.ones((1, len(truth))))[0])  # noqa: E731
    return Metric(title, once, weighted=weighted, of_decisions=True)


ONE_CLASS: dict[str, Metric] = {
    "precision": _one_class("precision", lambda flagged, actual: flagged & actual, lambda flagged, actual: flagged),
    "recall": _one_class("recall", lambda flagged, actual: flagged & actual, lambda flagged, actual: actual),
    "f1": _one_class(
        "F1", lambda flagged, actual: 2.0 * (flagged & actual), lambda flagged, actual: flagged.astype(float) + actual
    ),
}
"""For one class against the others: the share of the samples predicted as it that are; the share of those that are it
that were predicted; the harmonic mean of both."""


# ---------------------------------------------------------------- quantities: truth (n,), predicted (n,) points


def mae(truth: Array, predicted: Array) -> float:
    """Mean absolute error."""
    return float(np.abs(predicted - truth).mean())


def rmse(truth: Array, predicted: Array) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.square(predicted - truth).mean()))


def r2(truth: Array, predicted: Array) -> float:
    """Share of the variance explained; NaN if all true values are equal."""
    spread = np.square(truth - truth.mean()).sum()
    return float(1 - np.square(predicted - truth).sum() / spread) if spread > 0 else float("nan")


def _weighted_r2(truth: Array, predicted: Array, counts: Floats) -> Floats:
    total = counts.sum(1)
    spread = counts @ np.square(truth) - np.square(counts @ truth) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        share: Floats = 1 - counts @ np.square(predicted - truth) / np.where(spread > 0, spread, np.nan)
    return share


def _weighted_rmse(truth: Array, predicted: Array, counts: Floats) -> Floats:
    root: Floats = np.sqrt(counts @ np.square(predicted - truth) / counts.sum(1))
    return root


LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles that quantile regression predicts, as (n, level)."""


def pinball(truth: Array, predicted: Array) -> float:
    """Mean over quantiles of the loss that the true quantile minimises."""
    return float(_pinball_losses(truth, predicted).mean())


def _pinball_losses(truth: Array, predicted: Array) -> Floats:
    error, level = truth[:, None] - predicted, np.array(LEVELS)
    losses: Floats = np.maximum(level * error, (level - 1) * error).mean(1)
    return losses


METRICS: dict[str, Metric] = {
    "auroc": Metric(
        "AUROC", auroc, weighted=_weighted_ranking(0), about_positive=True, over_classes="mean over classes"
    ),
    "auprc": Metric(
        "AUPRC", auprc, weighted=_weighted_ranking(1), about_positive=True, over_classes="mean over classes"
    ),
    "accuracy": Metric(
        "accuracy", accuracy, weighted=_weighted_mean(lambda truth, p: p.argmax(1) == truth), of_decisions=True
    ),
    "precision": Metric("macro precision", precision, over_classes="mean over classes", of_decisions=True),
    "recall": Metric("macro recall", recall, over_classes="mean over classes", of_decisions=True),
    "f1": Metric("macro F1", f1, weighted=_weighted_f1, over_classes="mean over classes", of_decisions=True),
    "log_loss": Metric(
        "log loss", log_loss, lower_is_better=True, is_share=False, weighted=_weighted_mean(_log_losses)
    ),
    "brier": Metric(
        "Brier score",
        brier,
        lower_is_better=True,
        weighted=_weighted_mean(_squared_distances),
        about_positive=True,
        over_classes="sum over classes",
    ),
    "calibration_error": Metric(
        "calibration error",
        calibration_error,
        lower_is_better=True,
        about_positive=True,
        over_classes="predicted class",
    ),
    "mae": Metric(
        "MAE", mae, lower_is_better=True, is_share=False, weighted=_weighted_mean(lambda truth, p: np.abs(p - truth))
    ),
    "rmse": Metric("RMSE", rmse, lower_is_better=True, is_share=False, weighted=_weighted_rmse),
    "r2": Metric("R²", r2, weighted=_weighted_r2),
    "pinball": Metric(
        "pinball loss", pinball, lower_is_better=True, is_share=False, weighted=_weighted_mean(_pinball_losses)
    ),
}
CLASSIFICATION = ("auroc", "auprc", "accuracy", "precision", "recall", "f1", "log_loss", "brier", "calibration_error")
YES_NO = ("auroc", "auprc", "accuracy", "f1", "log_loss", "brier", "calibration_error")
"""For each label of a multi-label task."""
REGRESSION = ("mae", "rmse", "r2")
"""For a point prediction; quantiles also have the pinball loss."""


def of_point(metric: Metric, middle: int) -> Metric:
    """The metric applied to the point prediction among (n, level)."""
    compute, weighted = metric.compute, metric.weighted
    point = replace(metric, compute=lambda truth, predicted: compute(truth, predicted[:, middle]))
    if weighted is None:
        return point
    return replace(point, weighted=lambda truth, predicted, counts: weighted(truth, predicted[:, middle], counts))


def metric_of(name: str) -> Metric:
    """The metric of this name; 'auroc/died' is the one for a single label."""
    return METRICS[name.partition("/")[0]]


def metric_title(name: str) -> str:
    """The display name of a metric; for a single label, it includes the label."""
    _, slash, label = name.partition("/")
    return metric_of(name).title + (f" ({label})" if slash else "")


def require_metric(name: str, known: Iterable[str] | Mapping[str, Any] = METRICS) -> None:
    """Raise unless there is such a metric."""
    if name not in known:
        raise ConfigError(f"Unknown metric '{name}': {suggest(name, known)}")
