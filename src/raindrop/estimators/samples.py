"""Base of estimators with one prediction, embedding and graph per sample of a table."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator, in_order
from raindrop.batch.host import to_numpy
from raindrop.errors import ConfigError, DataError, ResumeError, format_count
from raindrop.estimators.base import Estimator
from raindrop.estimators.importances import Method, importances
from raindrop.estimators.inputs import WEIGHT, no_holdout_warning, require_table, shared_times_warning, with_weights
from raindrop.graphs.empty import WEIGHTS_REASON
from raindrop.graphs.graph import SensorGraphs
from raindrop.hardware import limit_threads, resolve_device
from raindrop.models.base import Output
from raindrop.table.event_table import EventTable
from raindrop.tasks.predictions import Predictions
from raindrop.training.scoring import run_model, scores_of


class SampleEstimator(Estimator):
    """Any model of the library on a task with one prediction per sample."""

    # ---------------------------------------------------------------- what a subclass provides

    @abstractmethod
    def _with_targets(self, table: EventTable, y: ArrayLike) -> EventTable:
        """The table with `y` as its target."""

    @abstractmethod
    def predict_table(self, X: EventTable, *, coverage: float | None = None) -> Predictions:
        """Sample ids with their predictions, to print or to write."""

    def _split_off(self, table: EventTable, share: float) -> tuple[EventTable, EventTable]:
        """Training samples, and a random share of the table to validate on."""
        unlabelled = replace(table, roles=replace(table.roles, label=None))  # not stratified
        try:
            training, held_out = unlabelled.split((1 - share, share), seed=self.seed)
        except DataError as error:
            no_holdout_warning(table, str(error).splitlines()[0].rstrip("."))
            return table, table[:0]
        return replace(training, roles=table.roles), replace(held_out, roles=table.roles)

    def _labelled(self, table: EventTable) -> EventTable:
        """The table with the label columns of training, unless it names its own."""
        return table

    # ---------------------------------------------------------------- fitting

    def fit(
        self,
        X: EventTable,
        y: ArrayLike | None = None,
        *,
        validation: EventTable | None = None,
        sample_weight: ArrayLike | None = None,
        run: str | os.PathLike[str] | None = None,
        resume: bool = False,
        tensorboard: bool = False,
        parts: Mapping[str, EventTable] | None = None,
        callbacks: Sequence[Any] = (),
        network: Estimator | None = None,
        start_from: Estimator | None = None,
    ) -> Self:
        """Learn from a table. The target is the table's label unless `y` is given.

        Without `validation`, a random share of X (train.holdout) is used to choose the epoch. `sample_weight` is the
        weight of each sample in the loss. With `run`, a folder, the run is logged, checkpointed and saved there, and
        `resume` continues it; `parts` (train, val and test, as available) are saved there as the run's split. A blend
        accepts a fitted `network`, trained as its own would be (see `network_alone`), instead of training one.
        `callbacks` (`raindrop.training.Callback`) are called after every epoch. `start_from`, a fitted estimator of the
        same model and settings, provides the initial weights, the scaling and the classes: training continues from
        there on this table.
        """
        _, _, train_config = self._configs(chosen={})
        resolve_device(self.device)
        table = require_table(X, "fit") if y is None else self._with_targets(require_table(X, "fit"), y)
        if not len(table):
            raise DataError("The training table is empty. There must be at least one sample.")
        table = with_weights(table, sample_weight)
        self.learn_task(table).require_metric(train_config.metric)  # before anything is written
        self._check_run(run, resume)
        training, held_out = self._hold_out(table, validation, train_config.holdout, own_labels=y is None)
        return self._fit(
            table,
            training,
            held_out,
            run=run,
            resume=resume,
            tensorboard=tensorboard,
            parts=parts,
            callbacks=callbacks,
            network=network,
            start_from=start_from,
        )

    def _own_parts(self, training: EventTable, held_out: EventTable | None) -> Mapping[str, EventTable] | None:
        return {"train": training} | ({} if held_out is None else {"val": held_out})

    def _hold_out(
        self, table: EventTable, validation: EventTable | None, share: float, *, own_labels: bool
    ) -> tuple[EventTable, EventTable | None]:
        if validation is not None:
            validation = require_table(validation, "validation")
            if not len(validation):
                raise DataError("The validation table is empty. Leave it out, or give at least one sample.")
            return table, validation.with_roles(label=table.roles.label) if own_labels else validation
        if share <= 0:
            return table, None
        training, held_out = self._split_off(table, share)
        return (training, held_out) if len(held_out) and len(training) else (table, None)

    def network_alone(self) -> Self:
        """The network of a blend as a separate, unfitted estimator."""
        if self.model != "blend":
            raise ConfigError(f"Only a blend has a network beside something else; this is '{self.model}'.")
        resolved = self.resolved()
        own = {f"train.{name}": value for name, value in resolved["train"].items()}
        for name, value in resolved["model"].items():
            part, _, setting = name.partition(".")
            own |= {f"model.{setting}": value} if part == "raindrop" else {}
        return type(self)(**(self.get_params() | {"model": "raindrop", "config": own}))

    def _check_network(self, network: Estimator | None, held_out: EventTable | None) -> None:
        if network is not None and network.identity_ != self.network_alone()._identity(held_out, self):
            raise ResumeError("network: was trained on other data, or with other settings, seed or version than here.")

    # ---------------------------------------------------------------- using

    def run_model(self, X: EventTable) -> Iterator[tuple[Batch, Output]]:
        """Each batch of the samples, in order, with the model's output for it, without gradients."""
        return run_model(self.model_, self._data(X), resolve_device(self.device))

    def batches(self, X: EventTable) -> Iterator[Batch]:
        """The table as the model sees it, one batch at a time, in order."""
        return in_order(self._data(X))

    def truth(self, X: EventTable) -> NDArray[Any]:
        """The target of each sample, as the task encodes it."""
        self._require_fitted()
        return self.task_.encode(self._labelled(require_table(X, "truth")))

    def evaluate(self, X: EventTable) -> dict[str, float]:
        """Every metric of the task on a labelled table."""
        truth = self.truth(self._nonempty(X))
        return self.task_.evaluate(truth, self.predictions(X))

    def importances(
        self,
        X: EventTable,
        *,
        method: Method = "permutation",
        metric: str | None = None,
        repeats: int = 5,
        seed: int = 0,
    ) -> pl.DataFrame:
        """How much worse the metric gets without each sensor and each static, largest first.

        method: "permutation" gives every sample the sensor's readings of another sample, averaged over `repeats`;
        "occlusion" removes them, so that the model also sees that they are missing. metric: by default the task's
        first. Columns: name, kind (sensor or static), metric, importance, low and high (a 95 % interval over samples
        and permutations), without (the metric then). Sensors with the same information hide each other's importance.
        """
        self._require_fitted()
        return importances(self, self._nonempty(X), method=method, metric=metric, repeats=repeats, seed=seed)

    def embed(self, X: EventTable) -> NDArray[np.float32]:
        """(samples, z): the embedding of each sample before the statics and the head."""
        return np.concatenate(self._collect(X, lambda output: output.embedding))

    def graphs(self, X: EventTable) -> SensorGraphs:
        """The directed graph of each sample: which sensors inform which."""

        def edges(output: Output) -> Tensor:
            if output.edges is None:
                raise self.no_graph(f"Model '{self.model}' with these settings has no sensor graph.")
            return output.edges

        weights = self._collect(X, edges)
        shared_times_warning(self.model_, X)
        return SensorGraphs(self.scaler_.sensors, X.ids, np.concatenate(weights), WEIGHTS_REASON)

    def why_no_messages(self) -> str:
        """Why training left out optional messages between sensors; "" if it has not."""
        messages = getattr(self, "notes_", {}).get("messages", {"used": True})
        if messages["used"]:
            return ""
        if messages["reason"] == "memory":
            return "messages between sensors would have exceeded the memory"
        if messages["reason"] == "stopped":
            return "a callback stopped training before messages between sensors were tried"
        title = self.task_.title(messages["metric"])
        return (
            "messages between sensors did not help on the validation samples "
            f"({title} without messages {messages['without']:.3f}, with them {messages['with']:.3f})"
        )

    def no_graph(self, otherwise: str) -> ConfigError:
        """The error for a graph of a model without messages: why it has none, or what is said `otherwise`."""
        why = self.why_no_messages()
        if not why:
            return ConfigError(otherwise)
        return ConfigError(
            f"This model has no sensor graph: {why}, so it was trained without them. For a graph, fit with "
            'preset="graph" or with config={"model.graph.optional": False}; rd.sensor_graph(table) needs no model.'
        )

    def to_predictions(self, output: Output) -> NDArray[np.float32]:
        """A model's output as calibrated predictions; every method that predicts goes through here."""
        return self._calibrated(self.task_.predict(output.scores))

    def predictions(self, X: EventTable) -> NDArray[np.float32]:
        """(samples, ...) calibrated predictions in the form of the task: probabilities, or quantiles of quantities."""
        data = self._data(X)
        if not len(data):
            return self._calibrated(self.task_.predict(torch.zeros(0, self.task_.num_outputs)))
        device = resolve_device(self.device)
        with limit_threads(self.threads):
            scores = scores_of(self.model_, data, device, show=self.progress)
        wrong = np.flatnonzero(~scores.isfinite().all(1).numpy())
        if len(wrong):
            raise DataError(
                f"{format_count(len(wrong), len(data), 'samples')} have no finite prediction (first: "
                f"'{data.table.ids[wrong[0]]}'). Their values are too extreme for the model; look at them with "
                "'raindrop inspect'."
            )
        return self._calibrated(self.task_.predict(scores))

    def _collect(self, X: EventTable, take: Callable[[Output], Tensor]) -> list[NDArray[Any]]:
        self._nonempty(X)
        with limit_threads(self.threads):
            return [to_numpy(take(output)) for _, output in self.run_model(X)]

    def _nonempty(self, X: EventTable) -> EventTable:
        self._require_fitted()
        if not len(require_table(X, "predict")):
            raise DataError("The table is empty; at least one sample is needed.")
        return X

    def _data(self, X: EventTable) -> Collator:
        self._require_fitted()
        return self._collator(require_table(X, "predict"))

    def _validation_source(self, table: EventTable) -> Collator:
        """Labelled; ignores a sensor that training lists but never reads, since a rare one may occur only here."""
        listed = set(table.sensors) <= set(self.scaler_.sensors)
        return self._collator(table, labelled=True, ignore_unknown=listed or self.unknown_sensors == "ignore")

    def _training_source(self, table: EventTable) -> Collator:
        return self._collator(table, labelled=True)

    def _collator(self, table: EventTable, *, labelled: bool = False, ignore_unknown: bool | None = None) -> Collator:
        truth = self.task_.encode(self._labelled(table)) if labelled else None
        return Collator(
            table.in_unit(self.time_unit_),
            self.scaler_,
            truth=truth,
            targets=None if truth is None else self.task_.targets(truth),
            weights=None if truth is None else self._sample_weights(table, truth),
            ignore_unknown=self.unknown_sensors == "ignore" if ignore_unknown is None else ignore_unknown,
        )

    def _sample_weights(self, table: EventTable, truth: NDArray[Any]) -> NDArray[np.float32] | None:
        of_task = self.task_.sample_weights(truth)
        if WEIGHT not in table.samples.columns:
            return of_task
        own = table.samples[WEIGHT].to_numpy().astype(np.float32)
        return own if of_task is None else own * of_task
