"""What a report shows of each task. Nothing else in the report asks which task it is.

To report on another task, write its file and its part of the page here, and add it to VIEWS.
"""

from raindrop.estimators.samples import SampleEstimator
from raindrop.report.tasks.base import Chart, Coverage, Score, Section, Series, Summary, TaskView
from raindrop.report.tasks.classification import ClassView
from raindrop.report.tasks.multilabel import LabelView
from raindrop.report.tasks.regression import QuantityView

__all__ = ["VIEWS", "Chart", "Coverage", "Score", "Section", "Series", "Summary", "TaskView", "view_of"]

VIEWS: dict[str, type[TaskView]] = {
    "classification": ClassView,
    "multilabel": LabelView,
    "regression": QuantityView,
}
"""By the name of the task."""


def view_of(estimator: SampleEstimator) -> TaskView:
    """What a report shows of this estimator's task."""
    return VIEWS[estimator.task_.name](estimator.task_)
