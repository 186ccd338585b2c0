"""Global importances: how much worse a model predicts without each sensor or static, over all samples of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import ConfigError, DataError, check_choice
from raindrop.table.event_table import EventTable
from raindrop.tasks.base import Task
from raindrop.tasks.bootstrap import interval
from raindrop.tasks.metrics import require_metric

Method = Literal["permutation", "occlusion"]
DRAWS = 1000
IMPORTANCES = {
    "name": pl.String,
    "kind": pl.String,
    "metric": pl.String,
    "importance": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "without": pl.Float64,
}


class Predictor(Protocol):
    """The part of an estimator that is needed here."""

    task_: Task

    def truth(self, X: EventTable) -> NDArray[Any]:
        """The target of each sample."""

    def predictions(self, X: EventTable) -> NDArray[np.float32]:
        """The prediction for each sample."""


def importances(
    estimator: Predictor,
    table: EventTable,
    *,
    method: Method = "permutation",
    metric: str | None = None,
    repeats: int = 5,
    seed: int = 0,
) -> pl.DataFrame:
    """See `SampleEstimator.importances`."""
    check_choice(method, Method, "method")
    if repeats < 1:
        raise ConfigError(f"repeats={repeats}: a sensor is permuted at least once.")
    if method == "permutation" and len(table) < 2:
        raise DataError(
            "Readings are exchanged between samples, so at least two are needed; use method='occlusion' for one."
        )
    task, truth = estimator.task_, estimator.truth(table)
    name = next(iter(task.metrics)) if metric is None else metric
    require_metric(name, {key: each for key, each in task.metrics.items() if each.weighted is not None})
    sign = -1.0 if task.metrics[name].lower_is_better else 1.0

    def judge(changed: EventTable) -> tuple[float, NDArray[np.float64]]:
        """The metric, and its bootstrap draws: the same samples in each, so that differences are paired."""
        predicted = estimator.predictions(changed)
        drawn = task.bootstrap_draws(truth, predicted, [name], draws=DRAWS, seed=seed)[name]
        return task.evaluate(truth, predicted, [name])[name], drawn

    rng = np.random.default_rng(seed)
    whole, whole_drawn = judge(table)
    rows = []
    for what, kind, change in _parts(table):
        orders = [rng.permutation(len(table)) for _ in range(repeats)] if method == "permutation" else [None]
        values, drawn = zip(*(judge(change(order)) for order in orders), strict=True)
        lost = sign * (whole_drawn - np.stack(drawn))  # (repeat, draw)
        again = rng.integers(len(orders), size=(len(orders), DRAWS))  # resample repeats too
        found = interval(sign * (whole - float(np.mean(values))), lost[again, np.arange(DRAWS)].mean(0))
        rows.append((what, kind, name, found.value, found.low, found.high, float(np.mean(values))))
    frame = pl.DataFrame(rows, schema=IMPORTANCES, orient="row")
    return frame.sort("importance", descending=True, maintain_order=True, nulls_last=True)


Change = Callable[["NDArray[np.int64] | None"], EventTable]


def _parts(table: EventTable) -> Iterator[tuple[str, str, Change]]:
    """Each sensor with readings and each static: name, kind, and a function that returns the table with it changed."""
    rows = table.rows()
    sensor = table.sensor[rows]
    for code in np.unique(sensor).tolist():

        def change(order: NDArray[np.int64] | None, mine: NDArray[np.bool_] = sensor == code) -> EventTable:
            return table.where(~mine) if order is None else exchange_readings(table, mine, order)

        yield table.sensors[code], "sensor", change
    for name in table.roles.statics:

        def replaced(order: NDArray[np.int64] | None, name: str = name) -> EventTable:
            column = table.samples[name]
            new = pl.Series(name, [None] * len(column), dtype=column.dtype) if order is None else column.gather(order)
            return replace(table, samples=table.samples.with_columns(new.alias(name)))

        yield name, "static", replaced


def exchange_readings(table: EventTable, mine: NDArray[np.bool_], order: NDArray[np.int64]) -> EventTable:
    """The table in which sample i gets the readings selected by `mine` from sample order[i], and keeps its others."""
    rows, owner = table.rows(), np.repeat(np.arange(len(table)), table.count)
    receiver = np.empty(len(table), dtype=np.int64)
    receiver[order] = np.arange(len(table))
    owner = np.where(mine, receiver[owner], owner)
    new = rows[np.lexsort((table.sensor[rows], table.time[rows], owner))]
    count = np.bincount(owner, minlength=len(table)).astype(np.int64)
    return replace(
        table,
        time=table.time[new],
        sensor=table.sensor[new],
        value=table.value[new],
        filled=None if table.filled is None else table.filled[new],
        start=np.cumsum(count) - count,
        count=count,
    )
