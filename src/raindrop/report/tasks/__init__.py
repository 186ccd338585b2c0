"""What a report shows about each task. No other part of the report depends on the task.

A task that derives from another one uses that one's view. To add a view, write its file and its part of the page here,
and add it to VIEWS.
"""

from raindrop.errors import ConfigError
from raindrop.estimators.samples import SampleEstimator
from raindrop.report.tasks.base import Chart, Coverage, Score, Section, Series, Summary, TaskView
from raindrop.report.tasks.classification import ClassView
from raindrop.report.tasks.multilabel import LabelView
from raindrop.report.tasks.regression import QuantityView
from raindrop.tasks import Classification, MultiLabel, Regression, Task

__all__ = ["VIEWS", "Chart", "Coverage", "Score", "Section", "Series", "Summary", "TaskView", "view_of", "view_type"]

VIEWS: dict[type[Task], type[TaskView]] = {
    Classification: ClassView,
    MultiLabel: LabelView,
    Regression: QuantityView,
}
"""By task."""


def view_of(estimator: SampleEstimator) -> TaskView:
    """The view for this estimator's task."""
    return view_type(type(estimator.task_))(estimator.task_)


def view_type(task: type[Task]) -> type[TaskView]:
    """The view of a task, or of the closest task that it derives from."""
    for kind in task.__mro__:
        if kind in VIEWS:
            return VIEWS[kind]
    known = ", ".join(f"'{kind.name}'" for kind in VIEWS)
    raise ConfigError(
        f"There is no report on the task '{task.name}': it derives from none of {known}.\n"
        "Write a TaskView for it and add it to VIEWS in raindrop/report/tasks/__init__.py."
    )
