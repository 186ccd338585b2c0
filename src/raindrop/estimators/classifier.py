"""Classifier: one of several classes per sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin

from raindrop.batch.collate import BatchSource
from raindrop.errors import ConfigError, DataError, suggest
from raindrop.estimators.inputs import no_holdout_warning
from raindrop.estimators.samples import SampleEstimator
from raindrop.table.event_table import EventTable
from raindrop.table.splits import stratified_parts
from raindrop.tasks.calibration import METHODS, Calibrator, Method
from raindrop.tasks.classification import Classification, ClassWeight, comparable
from raindrop.tasks.conformal import ConformalSets
from raindrop.tasks.confusion import ConfusionMatrix
from raindrop.tasks.predictions import ClassPredictions
from raindrop.tasks.threshold import CostRatio, Rule, Sensitivity, Threshold, check_rule


class Classifier(ClassifierMixin, SampleEstimator):  # type: ignore[misc]
    """Predict one of several classes, with any model of the library.

    model: its name; preset: "paper" (as published), "tuned" (our best settings) or, for Raindrop, "graph" (for
    inspecting the sensor graph); config: changes to the preset, such as {"train.epochs": 5, "model.hidden": 64}; label:
    the column of the samples table to predict, by default the table's label; positive: of two classes, the one that
    AUROC, AUPRC and the reliability curve refer to, by default the last in sorted order; class_weight: "balanced", or a
    weight for each class; calibrate: calibrate probabilities on the validation samples, by "temperature" scaling or
    "isotonic" regression; threshold: the probability from which the positive class is predicted, a number, or a rule
    that chooses it on the validation samples: rd.Sensitivity(0.9) or rd.CostRatio(10); by default the most probable
    class is predicted; unknown_sensors: "error", or "ignore" to skip readings of sensors that had no reading in
    training; device: "cpu", "cuda", "mps" or "auto"; threads: the number of CPU threads, one unless OMP_NUM_THREADS or
    torch say otherwise; progress: show progress bars.
    """

    task_type = Classification
    task_: Classification

    def __init__(
        self,
        model: str = "raindrop",
        *,
        preset: str = "tuned",
        config: Mapping[str, Any] | None = None,
        label: str | None = None,
        positive: Any = None,
        class_weight: ClassWeight = None,
        calibrate: Method = "none",
        threshold: Rule | None = None,
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
        self.positive = positive
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.threshold = threshold
        self.seed = seed
        self.unknown_sensors = unknown_sensors
        self.device = device
        self.threads = threads
        self.progress = progress

    # ---------------------------------------------------------------- predicting

    def predict_proba(self, X: EventTable) -> NDArray[np.float32]:
        """(samples, classes), columns in the order of `classes_`."""
        return self.predictions(X)

    def predict(self, X: EventTable) -> NDArray[Any]:
        """The most probable class of each sample; with a threshold, the positive class from that probability on."""
        probability = self.predict_proba(X)
        predicted: NDArray[Any] = self.classes_[self.task_.decide(probability)]
        return predicted

    def predict_log_proba(self, X: EventTable) -> NDArray[np.float32]:
        """(samples, classes): the logarithm of `predict_proba`, -inf where a probability is 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def confusion(self, X: EventTable) -> ConfusionMatrix:
        """How many samples of each class of a labelled table are predicted as each class."""
        truth = self.truth(self._nonempty(X))
        return self.task_.confusion(truth, self.predictions(X))

    def choose_threshold(self, X: EventTable, rule: Rule | None) -> Threshold | None:
        """Choose a new decision threshold on a labelled table that the model has not seen; None removes it."""
        truth = self.truth(self._nonempty(X))
        self.threshold = rule
        self._check_arguments()
        self._set_threshold(truth, self.predictions(X))
        return self.task_.threshold

    def predict_sets(self, X: EventTable, coverage: float = 0.9, *, by_class: bool = False) -> NDArray[np.bool_]:
        """(samples, classes): a set of classes for each sample that contains the true one with this probability.

        A set with several classes, or none, means that the model is undecided. With `by_class`, `coverage` holds for
        the samples of each class, however rare, and not only overall. docs/uncertainty.md states the conditions.
        """
        return self._sets(self.predict_proba(X), coverage, by_class)

    def predict_table(
        self, X: EventTable, *, coverage: float | None = None, by_class: bool = False
    ) -> ClassPredictions:
        """Sample ids with the probability of every class; with `coverage` also prediction sets, and when to abstain."""
        if coverage is None and by_class:
            raise ConfigError("by_class needs a coverage, for example coverage=0.9.")
        probability = self.predict_proba(X)
        sets = None if coverage is None else self._sets(probability, coverage, by_class)
        return ClassPredictions(X.ids, self.classes_, probability, sets, self.task_.decide(probability))

    def score(self, X: EventTable, y: ArrayLike | None = None, sample_weight: Any = None) -> float:
        """Accuracy, as for scikit-learn's classifiers; `evaluate` returns the other metrics."""
        table = self._labelled(self._nonempty(X)) if y is None else self._nonempty(X).with_labels(y)
        truth, predicted = comparable(table.labels, self.predict(X))
        return float(np.average(predicted == truth, weights=sample_weight))

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of the columns of `predict_proba`; of two classes, the positive one is last."""
        return self.task_.classes

    @property
    def positive_(self) -> Any:
        """Of two classes, the one that AUROC, AUPRC and the reliability curve refer to; None if there are more."""
        return self.task_.positive

    @property
    def positive_code_(self) -> int | None:
        """The position of the positive class in `classes_`; None if there are more than two classes."""
        return None if self.positive_ is None else 1

    @property
    def label_(self) -> str:
        """The column of the samples table that the model predicts."""
        return self.task_.label

    def _sets(self, probability: NDArray[np.float32], coverage: float, by_class: bool) -> NDArray[np.bool_]:
        if self.conformal_ is None:
            raise ConfigError(
                "Sets with a coverage need validation samples, and this model was fitted without any. "
                "Fit it with validation=TABLE or a train.holdout above 0."
            )
        return self.conformal_.sets(probability, coverage, by_class=by_class)

    def _calibrated(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.calibrator_(predicted)

    # ---------------------------------------------------------------- learning

    def _check_arguments(self) -> None:
        if not isinstance(self.label, str | None):
            raise ConfigError(
                "label: a classifier predicts one column; use a MultiLabelClassifier or a Regressor for several."
            )
        if self.calibrate not in METHODS:
            raise ConfigError(f"Unknown calibration '{self.calibrate}': {suggest(str(self.calibrate), METHODS)}")
        check_rule(self.threshold)

    def learn_task(self, table: EventTable) -> Classification:
        task = Classification.learn(self._labelled(table), positive=self.positive, class_weight=self.class_weight)
        if self.threshold is not None and task.positive is None:
            raise ConfigError(
                f"threshold: a threshold decides between two classes, and '{task.label}' has {len(task.classes)}. "
                "Leave it out; class_weight can make some of them count more."
            )
        return task

    def _with_targets(self, table: EventTable, y: ArrayLike) -> EventTable:
        table = table.with_labels(y)
        if self.label is None:
            return table
        return replace(table, samples=table.samples.with_columns(table.samples["label"].alias(self.label)))

    def _labelled(self, table: EventTable) -> EventTable:
        """The table with the given, or learned, label column if the table itself does not name one."""
        if self.label is not None:
            return table.with_roles(label=self.label)
        known = self.task_.label if hasattr(self, "task_") else None
        named = table.roles.label is None and known in table.samples.columns
        return table.with_roles(label=known) if named else table

    def _split_off(self, table: EventTable, share: float) -> tuple[EventTable, EventTable]:
        """Training and validation samples. Every class stays in training; a class too rare to share is not held out."""
        table = self._labelled(table)
        try:
            training, held_out = table.split((1 - share, share), seed=self.seed)
        except DataError as error:
            no_holdout_warning(table, str(error).splitlines()[0].rstrip("."))
            return table, table[:0]
        missing = np.setdiff1d(np.unique(held_out.labels), np.unique(training.labels))
        if len(missing):
            back = np.isin(held_out.labels, missing)
            if table.roles.group is not None:  # a group stays on one side
                of_group = held_out.samples[table.roles.group]
                back = of_group.is_in(of_group.filter(back).implode()).to_numpy()
            held_out = held_out[~back]
            training = table[~np.isin(np.array(table.ids), held_out.ids)]
        if len(held_out) and len(np.unique(held_out.labels)) < 2:
            held_out = held_out[:0]
        if not len(held_out):
            no_holdout_warning(table, "they would not have two classes")
        return training, held_out

    def _require_validation(self, held_out: EventTable | None) -> None:
        if held_out is None and self.calibrate != "none":
            raise ConfigError(
                f"calibrate='{self.calibrate}' is fitted on validation samples, and there are none. Give some with "
                "validation=TABLE, or a train.holdout above 0 with enough samples of each class."
            )
        if held_out is None and isinstance(self.threshold, Sensitivity | CostRatio):
            raise ConfigError(
                f"A threshold for {self.threshold} is chosen on validation samples, and there are none. Give some with "
                "validation=TABLE, or a train.holdout above 0 with enough samples of each class."
            )

    def _set_threshold(self, truth: NDArray[Any], probability: NDArray[Any]) -> None:
        chosen = None if self.threshold is None else Threshold.fit(self.threshold, truth, probability)
        self.task_ = replace(self.task_, threshold=chosen)

    def _forget_calibration(self) -> None:
        if isinstance(self.threshold, (int, float)):
            self.task_ = replace(self.task_, threshold=Threshold(float(self.threshold), float(self.threshold)))
        self.calibrator_: Calibrator = Calibrator()
        self.conformal_: ConformalSets | None = None

    def _calibrate(self, truth: NDArray[Any], predicted: NDArray[Any], source: BatchSource) -> None:
        """Fit the calibration on half of the validation samples and the sets on the other half.

        Prediction sets fitted on the same samples as the calibration would contain the true class too rarely.
        """
        first = second = np.arange(len(truth))
        if self.calibrate != "none":
            first, second = calibration_halves(truth, source.table, int(self.seed))
        self.calibrator_ = Calibrator.fit(self.calibrate, truth[first], predicted[first])
        if len(second):
            self.conformal_ = ConformalSets.fit(truth[second], self.calibrator_(predicted[second]))
        if self.threshold is not None:
            self._set_threshold(truth, self.calibrator_(predicted))

    # ---------------------------------------------------------------- saving

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays = {} if self.conformal_ is None else {f"conformal/{k}": v for k, v in vars(self.conformal_).items()}
        return {"calibrator": self.calibrator_.to_dict()}, arrays

    def _restore_state(self, content: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.calibrator_ = Calibrator.from_dict(content["calibrator"])
        self.calibrate = self.calibrator_.method
        self.positive = self.task_.positive
        self.threshold = None if self.task_.threshold is None else self.task_.threshold.rule
        saved = {name.removeprefix("conformal/"): array for name, array in arrays.items()}
        self.conformal_ = ConformalSets(**saved) if saved else None


def calibration_halves(
    strata: NDArray[np.int64], table: EventTable, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of two random halves of the validation samples, with the same mix of classes, groups kept together."""
    groups = None
    if table.roles.group is not None:
        groups = np.unique(table.samples[table.roles.group].cast(str), return_inverse=True)[1]
    first, second = stratified_parts(strata, [0.5, 0.5], seed, groups)
    return cast(NDArray[np.int64], np.sort(first)), cast(NDArray[np.int64], np.sort(second))
