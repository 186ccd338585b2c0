"""What all estimators share: settings, fitting, running the model, saving and loading.

An estimator keeps its arguments as they came (scikit-learn's convention); what it learned ends in an underscore. Each
subclass says which task it fits and what it makes of the model's scores.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator, in_order
from raindrop.batch.host import to_numpy
from raindrop.batch.scaling import Scaler
from raindrop.errors import ConfigError, DataError, ResumeError, format_count
from raindrop.estimators.inputs import WEIGHT, no_holdout_warning, require_table, time_window, with_weights
from raindrop.estimators.persistence import refuse_other_run, smallest, write_model
from raindrop.estimators.settings import Settings
from raindrop.files import content_checksum, refuse_to_overwrite, run_folder
from raindrop.graphs.empty import WEIGHTS_REASON
from raindrop.graphs.graph import SensorGraphs
from raindrop.hardware import limit_threads, resolve_device
from raindrop.models.base import DataSpec, DirectModel, Model, Output
from raindrop.table.event_table import EventTable
from raindrop.table.split_files import write_parts
from raindrop.tasks.base import Task
from raindrop.tasks.predictions import Predictions
from raindrop.training import distributed
from raindrop.training.distill import soft_targets
from raindrop.training.loop import train
from raindrop.training.scoring import run_model, scores_of
from raindrop.version import VERSION


class Estimator(Settings, ABC):
    """Any model of the library on some task."""

    task_type: ClassVar[type[Task]]
    task_: Task
    model_: Model
    scaler_: Scaler
    history_: list[dict[str, Any]]
    notes_: dict[str, Any]

    # ---------------------------------------------------------------- what a subclass provides

    @abstractmethod
    def learn_task(self, table: EventTable) -> Task:
        """The task, with what it needs to know of the training table."""

    @abstractmethod
    def _with_targets(self, table: EventTable, y: ArrayLike) -> EventTable:
        """The table with `y` as what is to be predicted."""

    @abstractmethod
    def predict_table(self, X: EventTable, *, coverage: float | None = None) -> Predictions:
        """Sample ids with what is predicted of each, to look at or to write."""

    def _split_off(self, table: EventTable, share: float) -> tuple[EventTable, EventTable]:
        """Training samples, and a random share of the table to validate on."""
        unlabelled = replace(table, roles=replace(table.roles, label=None))  # not stratified
        try:
            training, held_out = unlabelled.split((1 - share, share), seed=self.seed)
        except DataError as error:
            no_holdout_warning(table, str(error).splitlines()[0].rstrip("."))
            return table, table[:0]
        return replace(training, roles=table.roles), replace(held_out, roles=table.roles)

    def _calibrate(self, truth: NDArray[Any], predicted: NDArray[Any], table: EventTable) -> None:
        """Learn from the validation samples' truth and predictions, once the model is trained."""

    def _forget_calibration(self) -> None:
        """As `_calibrate` without validation samples."""

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What the subclass saves beside the model: JSON values, and arrays."""
        return {}, {}

    def _restore_state(self, content: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Take back what `_state` gave."""

    def _labelled(self, table: EventTable) -> EventTable:
        """The table with the columns of training as its labels, where it does not say otherwise."""
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
        network: Estimator | None = None,
    ) -> Self:
        """Learn from a table. What to predict is the table's own unless `y` is given.

        Without `validation` a random share of X (train.holdout) chooses the epoch to keep. `sample_weight` says how
        much each sample counts in the loss. With `run`, a folder, the run is logged and checkpointed there, the fitted
        model is saved there, and `resume` continues it; `parts` (train, val and test, as far as there are) are saved
        there as the run's split. A blend takes a fitted `network` that was trained as its own would be (see
        `network_alone`) instead of training it again.
        """
        entry, model_config, train_config = self._configs()
        device = resolve_device(self.device)
        table = require_table(X, "fit") if y is None else self._with_targets(require_table(X, "fit"), y)
        if not len(table):
            raise DataError("The training table is empty. There must be at least one sample.")
        table = with_weights(table, sample_weight)
        self.learn_task(table).require_metric(train_config.metric)  # before anything is written
        folder = None if run is None else Path(run)
        if resume and folder is None:
            raise ConfigError("resume continues the run in a folder; give it with run='FOLDER'.")
        if folder is not None and not resume:
            refuse_to_overwrite(folder)
        training, held_out = self._hold_out(table, validation, train_config.holdout, own_labels=y is None)
        self._require_validation(held_out)
        self.task_ = self.learn_task(training)
        self.time_unit_ = table.time_unit
        self.scaler_ = Scaler.fit(training)
        self.data_: dict[str, Any] = {
            "fingerprint": table.fingerprint,
            "samples": len(table),
            "readings": table.num_readings,
            "window": time_window(training),
        }
        self.identity_ = self._identity(held_out)
        if network is not None and network.identity_ != self.network_alone()._identity(held_out, self):
            raise ResumeError("network: was trained on other data, or with other settings, seed or version than here.")
        if folder is not None and resume:
            refuse_other_run(folder, self.identity_)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.seed))
            self.model_ = entry.model(model_config, self._spec())
        learned_from = self._collator(training, labelled=True)
        chosen_by = None if held_out is None else self._validation(held_out)
        distributed.join()
        within_run = nullcontext() if folder is None or distributed.rank() else run_folder(folder)
        with within_run, limit_threads(self.threads):
            distributed.wait()
            if isinstance(self.model_, DirectModel):
                self._refuse_train_settings(train_config, tensorboard)
                self.history_ = self.model_.fit(learned_from, chosen_by, int(self.seed))
            else:
                self.model_.prepare(learned_from, chosen_by, int(self.seed))
                if network is not None:
                    self.model_.network.load_state_dict(network.model_.state_dict())
                    self.history_ = network.history_
                else:
                    if train_config.soft_targets:
                        mixed = soft_targets(
                            learned_from, self._spec(), train_config.soft_targets, int(self.seed), self.progress
                        )
                        learned_from.targets = learned_from.targets if mixed is None else mixed
                    self.history_ = train(
                        self.model_.network,
                        learned_from,
                        chosen_by,
                        train_config,
                        task=self.task_,
                        seed=int(self.seed),
                        device=device,
                        run=folder,
                        resume=resume,
                        identity=self.identity_,
                        show=self.progress,
                        tensorboard=tensorboard,
                    )
                self.model_.to("cpu")
            self.notes_ = self.model_.finish(chosen_by)
            self._forget_calibration()
            if chosen_by is not None:
                truth = cast(NDArray[Any], chosen_by.truth)
                self._calibrate(truth, self.task_.predict(scores_of(self.model_, chosen_by)), chosen_by.table)
            if folder is not None and distributed.rank() == 0:
                if parts is not None:  # before the model: no kill leaves a model that does not know its split
                    write_parts(folder / "split.parquet", parts)
                self._write(folder)
        distributed.wait()
        return self

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

    def _require_validation(self, held_out: EventTable | None) -> None:
        """Raise where the subclass needs validation samples and there are none."""

    def network_alone(self) -> Self:
        """The network of a blend as an estimator of its own, not fitted."""
        if self.model != "blend":
            raise ConfigError(f"Only a blend has a network beside something else; this is '{self.model}'.")
        resolved = self.resolved()
        own = {f"train.{name}": value for name, value in resolved["train"].items()}
        for name, value in resolved["model"].items():
            part, _, setting = name.partition(".")
            own |= {f"model.{setting}": value} if part == "raindrop" else {}
        return type(self)(**(self.get_params() | {"model": "raindrop", "config": own}))

    def _identity(self, held_out: EventTable | None, data: Estimator | None = None) -> str:
        """Identifies what is trained on what."""
        described = {"model": self.model, "config": self.resolved(), "seed": int(self.seed)}
        fitted = data or self
        fingerprint = None if held_out is None else held_out.fingerprint
        return content_checksum([described, VERSION, fitted.task_.to_dict(), fitted.data_, fingerprint])

    def _spec(self) -> DataSpec:
        first, last = self.data_["window"]
        return DataSpec(self.scaler_.sensors, self.task_, self.scaler_.static_width, (first, last))

    # ---------------------------------------------------------------- using

    def run_model(self, X: EventTable) -> Iterator[tuple[Batch, Output]]:
        """Each batch of the samples, in order, with the model's output for it, without gradients."""
        data, device = self._data(X), resolve_device(self.device)
        self.model_.to(device)
        return run_model(self.model_, data, device)

    def batches(self, X: EventTable) -> Iterator[Batch]:
        """The table as the model sees it, a few samples at a time, in order."""
        return in_order(self._data(X))

    def truth(self, X: EventTable) -> NDArray[Any]:
        """What is to be predicted of each sample, as the task encodes it."""
        self._require_fitted()
        return self.task_.encode(self._labelled(require_table(X, "truth")))

    def evaluate(self, X: EventTable) -> dict[str, float]:
        """Every metric of the task on a labelled table."""
        truth = self.truth(self._nonempty(X))
        return self.task_.evaluate(truth, self.predictions(X))

    def embed(self, X: EventTable) -> NDArray[np.float32]:
        """(samples, z): the embedding of each sample before the statics and the head."""
        return np.concatenate(self._collect(X, lambda output: output.embedding))

    def graphs(self, X: EventTable) -> SensorGraphs:
        """Each sample's directed graph of which sensor informs which."""

        def edges(output: Output) -> Tensor:
            if output.edges is None:
                raise ConfigError(f"Model '{self.model}' with these settings has no sensor graph.")
            return output.edges

        weights = self._collect(X, edges)
        return SensorGraphs(self.scaler_.sensors, X.ids, np.concatenate(weights), WEIGHTS_REASON)

    def to_predictions(self, output: Output) -> NDArray[np.float32]:
        """A model's output as predictions, calibrated where the estimator is: the one way from scores to them."""
        return self._calibrated(self.task_.predict(output.scores))

    def _calibrated(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        return predicted

    def predictions(self, X: EventTable) -> NDArray[np.float32]:
        """(samples, ...) as the task has them: probabilities, or quantiles of quantities; calibrated."""
        data = self._data(X)
        if not len(data):
            return self._calibrated(self.task_.predict(torch.zeros(0, self.task_.num_outputs)))
        device = resolve_device(self.device)
        self.model_.to(device)
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

    def _require_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError(
                "This estimator is not fitted yet. Call fit(table) first, or load one with load(folder)."
            )

    def _validation(self, table: EventTable) -> Collator:
        """Labelled; a sensor that training lists but never reads is ignored, since a rare one can end up here."""
        listed = set(table.sensors) <= set(self.scaler_.sensors)
        return self._collator(table, labelled=True, ignore_unknown=listed or self.unknown_sensors == "ignore")

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

    # ---------------------------------------------------------------- saving

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the fitted model to a new folder: safetensors and JSON, nothing that can run."""
        if not hasattr(self, "model_"):
            raise NotFittedError("This estimator is not fitted yet, so there is nothing to save.")
        refuse_to_overwrite(Path(folder))
        return self._write(Path(folder))

    def _write(self, folder: Path) -> Path:
        state, arrays = self._state()
        about = {
            "model": self.model,
            "preset": self.preset,
            "config": self.resolved(),
            "seed": int(self.seed),
            "task": self.task_.to_dict(),
            "time_unit": self.time_unit_,
            "scaler": self.scaler_.to_dict(),
            "data": self.data_,
            "history": self.history_,
            "notes": self.notes_,
            "state": state,
            "identity": self.identity_,
        }
        weights = {f"model/{name}": smallest(tensor.cpu()) for name, tensor in self.model_.state_dict().items()}
        weights |= {f"state/{name}": torch.from_numpy(array) for name, array in arrays.items()}
        return write_model(folder, about, weights)

    @classmethod
    def _restore(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor], task: Task) -> Self:
        """The estimator that `_write` described."""
        flat = {f"{group}.{name}": value for group, part in about["config"].items() for name, value in part.items()}
        self = cls(about["model"], preset=about["preset"], config=flat, seed=about["seed"])
        entry, model_config, _ = self._configs()
        self.task_ = task
        self.time_unit_ = about["time_unit"]
        self.scaler_ = Scaler.from_dict(about["scaler"])
        self.data_ = about["data"]
        self.history_ = about["history"]
        self.notes_ = about["notes"]
        self.identity_ = about["identity"]
        groups: dict[str, dict[str, Tensor]] = {"model": {}, "state": {}}
        for name, tensor in tensors.items():
            group, _, key = name.partition("/")
            groups[group][key] = tensor
        self._restore_state(about["state"], {name: tensor.numpy() for name, tensor in groups["state"].items()})
        with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced; leave no trace of the draw
            self.model_ = entry.model(model_config, self._spec())
        self.model_.load_state_dict(groups["model"])
        self.model_.eval()
        return self
