"""The content of a report, as plain values, before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import ConfigError, DataError, check_seed
from raindrop.estimators.samples import SampleEstimator
from raindrop.report.card import Card, card_of
from raindrop.report.cases import MAX_READINGS, Case, cases, choose
from raindrop.report.graph_views import GraphView, graph_views
from raindrop.report.tasks import Coverage, Score, Section, TaskView, view_of
from raindrop.report.tasks.base import CASE_COVERAGE, COVERAGES
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hide_random_sensors

HIDDEN_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
MAX_OCCLUDED = 5_000_000  # maximum number of readings scored while leaving out sensors one by one
MIN_OCCLUDED = 100  # minimum number of samples for it


@dataclass(frozen=True)
class Importances:
    """How much worse the first metric is without each sensor, and the number of samples it was measured on."""

    rows: list[dict[str, Any]]
    """The rows of `estimator.importances`, largest first."""
    samples: int

    @property
    def largest(self) -> float:
        """The longest bar."""
        return max((row["importance"] for row in self.rows if row["importance"] > 0), default=0.0)


@dataclass(frozen=True)
class Report:
    """The content of the page. A run alone has a card and a training history; the rest needs data."""

    title: str
    view: TaskView
    """The task-specific part."""
    card: Card
    history: list[dict[str, Any]]
    epoch_metric: str | None
    """The validation metric that chose the epoch, if there was a choice."""
    sensors: tuple[str, ...]
    time_unit: str
    label: str = ""
    truth: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scores: list[Score] = field(default_factory=list)
    """Scores of the model, then of the baselines."""
    constant: dict[str, float] = field(default_factory=dict)
    """The metrics of a model that predicts the same for every sample."""
    section: Section | None = None
    coverage: list[Coverage] = field(default_factory=list)
    """Coverage of sets or intervals; empty if the model was fitted without validation samples."""
    importances: Importances | None = None
    graph_views: list[GraphView] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    case_positions: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scale: tuple[NDArray[Any], NDArray[Any]] = (np.empty(0), np.empty(0))

    @property
    def metric_names(self) -> dict[str, str]:
        """Each metric's name, including what it is about."""
        return {name: self.view.metric_name(name) for name in self.view.metrics}


def report_on_run(estimator: SampleEstimator, *, title: str = "") -> Report:
    """A report about a run without data: its card and its training history."""
    view = view_of(estimator)
    return Report(
        title=title or f"Model '{estimator.model}' for '{view.label()}'",
        view=view,
        card=card_of(estimator, view),
        history=list(estimator.history_),
        epoch_metric=_epoch_metric(estimator),
        sensors=estimator.scaler_.sensors,
        time_unit=estimator.time_unit_,
        label=view.label(),
    )


def report_on(
    estimator: SampleEstimator,
    table: EventTable,
    *,
    baselines: Mapping[str, SampleEstimator] | None = None,
    other_seeds: Sequence[SampleEstimator] = (),
    notes: Mapping[str, str] | None = None,
    samples: int = 200,
    seed: int = 0,
    title: str = "",
) -> Report:
    """Metrics, sensor graphs and explanations of a model on a labelled table.

    baselines: other estimators for the same task, by display name; other_seeds: the same model trained with other
    seeds, to check whether its graphs agree; notes: additional lines for the model card; samples: the number of samples
    that can be selected on the page.
    """
    if samples < 1:
        raise ConfigError(f"samples={samples}: a report shows at least one sample.")
    check_seed(seed)
    if not len(table):
        raise DataError("The table is empty, so there is nothing to report on.")
    base = report_on_run(estimator, title=title)
    view, task = base.view, estimator.task_
    truth = estimator.truth(table)
    models = {_display_name(estimator.model): estimator, **(baselines or {})}
    for name, model in models.items():
        view.require_same_task(name, model.task_)
    scores = [_score(name, model, view, table, seed) for name, model in models.items()]
    predicted = scores[0].predicted
    regions = _regions(estimator, view, table)
    views = graph_views(estimator, table, view.group_codes(truth), view.groups, other_seeds, seed)
    chosen = choose(view.errors(truth, predicted), view.scores(predicted), task.strata(truth), samples, seed)
    region = regions.get(CASE_COVERAGE)
    return replace(
        base,
        card=card_of(estimator, view, table, truth, notes or {}, graphs=any(not graph.empty for graph in views)),
        label=view.label(table),
        truth=truth,
        scores=scores,
        constant={
            name: value
            for name, value in task.evaluate(truth, task.constant_prediction(truth)).items()
            if name in task.metrics or name.partition("/")[2] in scores[0].by_column  # not those of single classes
        },
        section=view.section(truth, scores, regions),
        coverage=[row for share in regions for row in view.coverage(truth, regions[share], share)],
        importances=_importances(estimator, table, seed),
        graph_views=views,
        cases=cases(
            estimator, view, table[chosen], truth[chosen], None if region is None else region[chosen], MAX_READINGS
        ),
        case_positions=chosen,
        scale=(estimator.scaler_.mean, estimator.scaler_.scale),
    )


def _score(name: str, estimator: SampleEstimator, view: TaskView, table: EventTable, seed: int) -> Score:
    task, truth, predicted = estimator.task_, estimator.truth(table), estimator.predictions(table)
    first = next(iter(task.metrics))
    robustness = []
    for share in HIDDEN_SHARES:
        partial = estimator.predictions(hide_random_sensors(table, share, seed=seed)) if share else predicted
        robustness.append(task.bootstrap(truth, partial, [first], seed=seed)[first])
    metrics = task.bootstrap(truth, predicted, view.metrics, seed=seed)
    return Score(name, metrics, robustness, predicted, view.by_column(truth, predicted, seed))


def _importances(estimator: SampleEstimator, table: EventTable, seed: int) -> Importances:
    """Importances by occlusion, on as many random samples as can be computed quickly."""
    readings = table.num_readings / len(table) * len(np.unique(table.sensor[table.rows()]))
    most = max(MIN_OCCLUDED, int(MAX_OCCLUDED / max(readings, 1)))
    chosen = np.sort(np.random.default_rng(seed).permutation(len(table))[:most])
    frame = estimator.importances(table[chosen], method="occlusion", seed=seed)
    return Importances(frame.fill_nan(None).drop_nulls("importance").rows(named=True), len(chosen))


def _regions(estimator: SampleEstimator, view: TaskView, table: EventTable) -> dict[float, NDArray[Any]]:
    """Conformal sets or intervals of every sample, by coverage; empty without validation samples in training."""
    try:
        return {share: view.region(estimator.predict_table(table, coverage=share)) for share in COVERAGES}
    except ConfigError:
        return {}


def _display_name(model: str) -> str:
    return "Raindrop" if model == "raindrop" else model


def _epoch_metric(estimator: SampleEstimator) -> str | None:
    validated = any("validation" in row for row in estimator.history_)
    return estimator.task_.require_metric(estimator.resolved()["train"]["metric"]) if validated else None
