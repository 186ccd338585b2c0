"""What all estimators share: settings, fitting, saving and loading.

An estimator keeps its arguments as they came (scikit-learn's convention); what it learned ends in an underscore. Each
subclass says which task it fits, what the model is trained on, and what is made of its scores.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from torch import Tensor

from raindrop.batch.collate import BatchSource
from raindrop.batch.scaling import Scaler
from raindrop.errors import ConfigError
from raindrop.estimators.inputs import shared_times_warning, time_window
from raindrop.estimators.persistence import refuse_other_run, smallest, write_model
from raindrop.estimators.settings import Settings
from raindrop.files import content_checksum, refuse_to_overwrite, run_folder
from raindrop.hardware import limit_threads, resolve_device
from raindrop.models.base import DataSpec, DirectModel, Model
from raindrop.table.event_table import EventTable
from raindrop.table.split_files import write_parts
from raindrop.tasks.base import Task
from raindrop.training import distributed
from raindrop.training.distill import soft_targets
from raindrop.training.loop import train
from raindrop.training.scoring import scores_of
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
    def _training_source(self, table: EventTable) -> BatchSource:
        """What the model is trained on."""

    @abstractmethod
    def _validation_source(self, table: EventTable) -> BatchSource:
        """What the epoch is chosen by, with its truth."""

    def _check_network(self, network: Estimator | None, held_out: EventTable | None) -> None:
        """Raise where a network that is given instead of being trained does not fit."""

    def _calibrate(self, truth: NDArray[Any], predicted: NDArray[Any], source: BatchSource) -> None:
        """Learn from truth and predictions of the validation source, once the model is trained."""

    def _forget_calibration(self) -> None:
        """As `_calibrate` without validation samples."""

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What the subclass saves beside the model: JSON values, and arrays."""
        return {}, {}

    def _restore_state(self, content: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Take back what `_state` gave."""

    # ---------------------------------------------------------------- fitting

    def _fit(
        self,
        table: EventTable,
        training: EventTable,
        held_out: EventTable | None,
        *,
        run: str | os.PathLike[str] | None,
        resume: bool,
        tensorboard: bool,
        parts: Mapping[str, EventTable] | None,
        network: Estimator | None = None,
    ) -> Self:
        """Train on `training`, choose the epoch on `held_out` where there is any, and save to the run's folder."""
        entry, model_config, train_config = self._configs()
        device = resolve_device(self.device)
        folder = None if run is None else Path(run)
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
        self._check_network(network, held_out)
        if folder is not None and resume:
            refuse_other_run(folder, self.identity_)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.seed))
            self.model_ = entry.model(model_config, self._spec())
        shared_times_warning(self.model_, training)
        learned_from = self._training_source(training)
        chosen_by = None if held_out is None else self._validation_source(held_out)
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
                self._calibrate(truth, self.task_.predict(scores_of(self.model_, chosen_by)), chosen_by)
            if folder is not None and distributed.rank() == 0:
                if parts is not None:  # before the model: no kill leaves a model that does not know its split
                    write_parts(folder / "split.parquet", parts)
                self._write(folder)
        distributed.wait()
        return self

    @staticmethod
    def _check_run(run: str | os.PathLike[str] | None, resume: bool) -> None:
        """Raise where a run cannot be written or resumed, before anything is written."""
        if resume and run is None:
            raise ConfigError("resume continues the run in a folder; give it with run='FOLDER'.")
        if run is not None and not resume:
            refuse_to_overwrite(Path(run))

    def _require_validation(self, held_out: EventTable | None) -> None:
        """Raise where the subclass needs validation samples and there are none."""

    def _require_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError(
                "This estimator is not fitted yet. Call fit(table) first, or load one with load(folder)."
            )

    def _identity(self, held_out: EventTable | None, data: Estimator | None = None) -> str:
        """Identifies what is trained on what."""
        described = {"model": self.model, "config": self.resolved(), "seed": int(self.seed)}
        fitted = data or self
        fingerprint = None if held_out is None else held_out.fingerprint
        return content_checksum([described, VERSION, fitted.task_.to_dict(), fitted.data_, fingerprint])

    def _spec(self) -> DataSpec:
        first, last = self.data_["window"]
        return DataSpec(self.scaler_.sensors, self.task_, self.scaler_.static_width, (first, last))

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
    def _restored(cls, about: Mapping[str, Any], **options: Any) -> Self:
        """An estimator with the arguments of the saved one, not fitted."""
        return cls(about["model"], **options)

    @classmethod
    def _restore(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor], task: Task) -> Self:
        """The estimator that `_write` described."""
        flat = {f"{group}.{name}": value for group, part in about["config"].items() for name, value in part.items()}
        self = cls._restored(about, preset=about["preset"], config=flat, seed=about["seed"])
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
