"""What commands print about decisions: the threshold, precision and recall of each class, and the confusion matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from raindrop.cli.samples import console
from raindrop.errors import ConfigError

if TYPE_CHECKING:  # torch loads only when a command needs it
    from numpy.typing import NDArray

    from raindrop.estimators import SampleEstimator
    from raindrop.tasks.threshold import CostRatio, Sensitivity

MAX_COLUMNS = 12  # of a printed confusion matrix; larger ones are only in the JSON file


def threshold_rule(sensitivity: float | None, cost_ratio: float | None) -> Sensitivity | CostRatio | None:
    """The threshold rule for the values of `--sensitivity` and `--cost-ratio`."""
    from raindrop.tasks.threshold import CostRatio, Sensitivity

    if sensitivity is not None and cost_ratio is not None:
        raise ConfigError("--sensitivity and --cost-ratio both choose the threshold; give one of them.")
    if sensitivity is not None:
        return Sensitivity(sensitivity)
    return None if cost_ratio is None else CostRatio(cost_ratio)


def print_threshold(estimator: SampleEstimator) -> None:
    """Print the probability from which the positive class is predicted, if the run has a threshold."""
    threshold = getattr(estimator.task_, "threshold", None)
    if threshold is not None:
        console.print(f"predicts {escape(threshold.describe(estimator.positive_))}")


def print_decisions(
    estimator: SampleEstimator, truth: NDArray[Any], predicted: NDArray[Any], metrics: Mapping[str, Any]
) -> dict[str, Any]:
    """For classification: print precision, recall and F1 of each class, and the confusion matrix; returned as JSON."""
    from raindrop.tasks.classification import Classification

    task = estimator.task_
    if not isinstance(task, Classification):
        return {}
    confusion = task.confusion(truth, predicted)
    rows = Table("class", *(task.part_metrics[name].title for name in task.part_metrics), "samples", "predicted as it",
                 title="each class against the others", title_justify="left")  # fmt: skip
    for at, name in enumerate(confusion.classes):
        values = (f"{metrics[f'{metric}/{name}']:.3f}" for metric in task.part_metrics)
        rows.add_row(escape(name), *values, f"{confusion.counts[at].sum():,}", f"{confusion.counts[:, at].sum():,}")
    console.print(rows)
    if len(confusion.classes) <= MAX_COLUMNS:
        names = [escape(name) for name in confusion.classes]
        counts = Table("true class", *names, title="predicted class", title_justify="left")
        for name, row in zip(names, confusion.counts, strict=True):
            counts.add_row(name, *(f"{count:,}" for count in row))
        console.print(counts)
    return {"confusion": {"classes": list(confusion.classes), "counts": confusion.counts.tolist()}}
