"""Regressor: one or several quantities per sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from raindrop.batch.collate import BatchSource
from raindrop.errors import ConfigError
from raindrop.estimators.inputs import label_names, with_columns
from raindrop.estimators.samples import SampleEstimator
from raindrop.table.event_table import EventTable
from raindrop.tasks.conformal import ConformalIntervals
from raindrop.tasks.metrics import r2
from raindrop.tasks.predictions import QuantityPredictions
from raindrop.tasks.regression import Loss, Regression


class Regressor(RegressorMixin, SampleEstimator):  # type: ignore[misc]
    """Predict one or several quantities, with any model of the library.

    label: the column of the samples table to predict, or a list of columns; by default the table's label. A quantity
    may be unknown for some samples. loss: "quantile" (five quantiles; the prediction is the median), "absolute" (the
    median) or "squared" (the mean). The other arguments are those of `Classifier`.
    """

    task_type = Regression
    task_: Regression

    def __init__(
        self,
        model: str = "raindrop",
        *,
        preset: str = "tuned",
        config: Mapping[str, Any] | None = None,
        label: str | Sequence[str] | None = None,
        loss: Loss = "quantile",
        seed: int = 0,
        unknown_sensors: Literal["error", "ignore"] = "error",
        device: str = "cpu",
        threads: int | None = None,
        progress: bool = False,
    ):
        self.model = model
        self.preset = preset
        self.config = config
        self.label = label
        self.loss = loss
        self.seed = seed
        self.unknown_sensors = unknown_sensors
        self.device = device
        self.threads = threads
        self.progress = progress

    # ---------------------------------------------------------------- predicting

    def predict(self, X: EventTable) -> NDArray[np.float32]:
        """(samples,), or (samples, quantities) if `label` is a list of columns."""
        values = self.task_.point(self.predictions(X))
        return values[:, 0] if isinstance(self.label, str | None) else values

    def predict_quantiles(self, X: EventTable) -> NDArray[np.float32]:
        """(samples, quantities, levels): the quantiles `task_.levels` as the model predicts them, not conformalised."""
        return self.predictions(X)

    def predict_interval(self, X: EventTable, coverage: float = 0.9) -> NDArray[np.float64]:
        """(samples, 2) low and high, or (samples, quantities, 2): an interval that contains the truth this often.

        Split conformal prediction on the validation samples; docs/uncertainty.md states the conditions. Infinite if
        there are too few validation samples for the coverage.
        """
        intervals = self._intervals(self.predictions(X), coverage)
        return intervals[:, 0] if isinstance(self.label, str | None) else intervals

    def predict_table(self, X: EventTable, *, coverage: float | None = None) -> QuantityPredictions:
        """Sample ids with every quantity; with `coverage` also its interval."""
        predicted = self.predictions(X)
        intervals = None if coverage is None else self._intervals(predicted, coverage)
        return QuantityPredictions(X.ids, self.task_.labels, self.task_.point(predicted), intervals)

    def score(self, X: EventTable, y: ArrayLike | None = None, sample_weight: Any = None) -> float:
        """R², as for scikit-learn's regressors, mean over quantities; `evaluate` returns the other metrics."""
        table = self._nonempty(X) if y is None else self._with_targets(self._nonempty(X), y)
        truth, predicted = self.truth(table), self.task_.point(self.predictions(X))
        known = ~np.isnan(truth)
        return float(np.mean([r2(t[k], p[k]) for t, p, k in zip(truth.T, predicted.T, known.T, strict=True)]))

    def _intervals(self, predicted: NDArray[Any], coverage: float) -> NDArray[np.float64]:
        if self.conformal_ is None:
            raise ConfigError(
                "Intervals with a coverage need validation samples, and this model was fitted without any. "
                "Fit it with validation=TABLE or a train.holdout above 0."
            )
        return self.conformal_.intervals(predicted, coverage, self.task_.levels)

    # ---------------------------------------------------------------- learning

    def learn_task(self, table: EventTable) -> Regression:
        return Regression.learn(table, label_names(self.label, table), self.loss)

    def _with_targets(self, table: EventTable, y: ArrayLike) -> EventTable:
        return with_columns(table, y, label_names(self.label, None))

    def _forget_calibration(self) -> None:
        self.conformal_: ConformalIntervals | None = None

    def _calibrate(self, truth: NDArray[Any], predicted: NDArray[Any], source: BatchSource) -> None:
        self.conformal_ = ConformalIntervals.fit(truth, predicted)

    # ---------------------------------------------------------------- saving

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays = {} if self.conformal_ is None else {f"conformal/{k}": v for k, v in vars(self.conformal_).items()}
        return {"several": not isinstance(self.label, str | None)}, arrays

    def _restore_state(self, content: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.label = list(self.task_.labels) if content["several"] else self.task_.labels[0]
        self.loss = self.task_.objective
        saved = {name.removeprefix("conformal/"): array for name, array in arrays.items()}
        self.conformal_ = ConformalIntervals(**saved) if saved else None
