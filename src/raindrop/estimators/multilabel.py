"""MultiLabelClassifier: several yes/no labels per sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin

from raindrop.batch.collate import BatchSource
from raindrop.errors import ConfigError, suggest
from raindrop.estimators.classifier import calibration_halves
from raindrop.estimators.inputs import label_names, with_columns
from raindrop.estimators.samples import SampleEstimator
from raindrop.table.event_table import EventTable
from raindrop.tasks.calibration import METHODS, Calibrator, Method
from raindrop.tasks.conformal import ConformalSets
from raindrop.tasks.multilabel import MultiLabel
from raindrop.tasks.predictions import LabelPredictions


class MultiLabelClassifier(ClassifierMixin, SampleEstimator):  # type: ignore[misc]
    """Predict several yes/no labels at once, with any model of the library.

    labels: the columns of the samples table to predict, each true/false, 1/0 or yes/no, empty if unknown; unknown
    labels are left out of the loss and the metrics. The other arguments are those of `Classifier`.
    """

    task_type = MultiLabel
    task_: MultiLabel

    def __init__(
        self,
        model: str = "raindrop",
        *,
        preset: str = "tuned",
        config: Mapping[str, Any] | None = None,
        labels: Sequence[str] = (),
        calibrate: Method = "none",
        seed: int = 0,
        unknown_sensors: Literal["error", "ignore"] = "error",
        device: str = "cpu",
        threads: int | None = None,
        progress: bool = False,
    ):
        self.model = model
        self.preset = preset
        self.config = config
        self.labels = labels
        self.calibrate = calibrate
        self.seed = seed
        self.unknown_sensors = unknown_sensors
        self.device = device
        self.threads = threads
        self.progress = progress

    # ---------------------------------------------------------------- predicting

    def predict_proba(self, X: EventTable) -> NDArray[np.float32]:
        """(samples, labels) the probability of yes."""
        return self.predictions(X)

    def predict(self, X: EventTable) -> NDArray[np.bool_]:
        """(samples, labels) whether yes is more probable than no."""
        return self.predict_proba(X) > 0.5

    def predict_sets(self, X: EventTable, coverage: float = 0.9) -> NDArray[np.bool_]:
        """(samples, labels, 2): whether no and yes are in the label's set, which has the true answer this often."""
        return self._sets(self.predict_proba(X), coverage)

    def predict_table(self, X: EventTable, *, coverage: float | None = None) -> LabelPredictions:
        """Sample ids with the probability of every label; with `coverage` also which answers are in the set."""
        probability = self.predict_proba(X)
        sets = None if coverage is None else self._sets(probability, coverage)
        return LabelPredictions(X.ids, self.task_.labels, probability, sets)

    def score(self, X: EventTable, y: ArrayLike | None = None, sample_weight: Any = None) -> float:
        """Share of known labels that are predicted correctly, mean over labels."""
        table = self._nonempty(X) if y is None else self._with_targets(self._nonempty(X), y)
        return self.evaluate(table)["accuracy"]

    def _sets(self, probability: NDArray[np.float32], coverage: float) -> NDArray[np.bool_]:
        if self.conformal_ is None:
            raise ConfigError(
                "Sets with a coverage need validation samples, and this model was fitted without any. "
                "Fit it with validation=TABLE or a train.holdout above 0."
            )
        both = no_and_yes(probability)
        return np.stack([sets.sets(both[:, at], coverage) for at, sets in enumerate(self.conformal_)], axis=1)

    def _calibrated(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.calibrate == "none":
            return predicted
        both = no_and_yes(predicted)
        return np.column_stack([calibrate(both[:, at])[:, 1] for at, calibrate in enumerate(self.calibrators_)])

    # ---------------------------------------------------------------- learning

    def _check_arguments(self) -> None:
        if self.calibrate not in METHODS:
            raise ConfigError(f"Unknown calibration '{self.calibrate}': {suggest(str(self.calibrate), METHODS)}")

    def learn_task(self, table: EventTable) -> MultiLabel:
        return MultiLabel.learn(table, self.labels)

    def _with_targets(self, table: EventTable, y: ArrayLike) -> EventTable:
        return with_columns(table, y, label_names(list(self.labels), None))

    def _require_validation(self, held_out: EventTable | None) -> None:
        if held_out is None and self.calibrate != "none":
            raise ConfigError(
                f"calibrate='{self.calibrate}' is fitted on validation samples, and there are none. Give some with "
                "validation=TABLE, or a train.holdout above 0."
            )

    def _forget_calibration(self) -> None:
        self.calibrators_: list[Calibrator] = [Calibrator() for _ in self.task_.labels]
        self.conformal_: list[ConformalSets] | None = None

    def _calibrate(self, truth: NDArray[Any], predicted: NDArray[Any], source: BatchSource) -> None:
        """Calibrate each label separately, as `Classifier` does."""
        first = second = np.arange(len(truth))
        if self.calibrate != "none":
            first, second = calibration_halves(np.zeros(len(truth), dtype=np.int64), source.table, int(self.seed))
        both = no_and_yes(predicted)
        self.calibrators_, self.conformal_ = [], []
        for at in range(truth.shape[1]):
            known = ~np.isnan(truth[:, at])
            fit, judge = (half[known[half]] for half in (first, second))
            calibrate = Calibrator.fit(self.calibrate, truth[fit, at].astype(np.int64), both[fit, at])
            self.calibrators_.append(calibrate)
            sets = ConformalSets.fit(truth[judge, at].astype(np.int64), calibrate(both[judge, at]))
            self.conformal_.append(sets)

    # ---------------------------------------------------------------- saving

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays = {
            f"conformal/{at}/{name}": array
            for at, sets in enumerate(self.conformal_ or ())
            for name, array in vars(sets).items()
        }
        return {
            "calibrate": self.calibrate,
            "calibrators": [calibrator.to_dict() for calibrator in self.calibrators_],
        }, arrays

    def _restore_state(self, content: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.labels = list(self.task_.labels)
        self.calibrate = content["calibrate"]
        self.calibrators_ = [Calibrator.from_dict(part) for part in content["calibrators"]]
        saved: list[dict[str, NDArray[Any]]] = [{} for _ in self.task_.labels]
        for name, array in arrays.items():
            _, at, field = name.split("/")
            saved[int(at)][field] = array
        self.conformal_ = [ConformalSets(**part) for part in saved] if arrays else None


def no_and_yes(probability: NDArray[Any]) -> NDArray[np.float32]:
    """(samples, labels) probabilities of yes -> (samples, labels, 2) of no and yes."""
    return np.stack([1 - probability, probability], axis=-1).astype(np.float32)
