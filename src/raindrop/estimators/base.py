"""What all estimators share: settings, fitting, saving and loading.

An estimator stores its arguments unchanged (scikit-learn's convention); fitted attributes end in an underscore. Each
subclass defines the task, the data the model is trained on, and how scores become predictions.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from torch import Tensor

from raindrop import config as configs
from raindrop.batch.collate import BatchSource
from raindrop.batch.scaling import Scaler
from raindrop.errors import ConfigError, DataError
from raindrop.estimators.inputs import shared_times_warning, time_window
from raindrop.estimators.persistence import check_description, check_weights, refuse_other_run, smallest, write_model
from raindrop.estimators.settings import Settings
from raindrop.files import atomic_folder, content_checksum, refuse_to_overwrite, run_folder
from raindrop.hardware import limit_threads, resolve_device
from raindrop.models.base import DataSpec, DirectModel, Model
from raindrop.monitor.reference import Reference
from raindrop.table.event_table import EventTable
from raindrop.table.run_split import RunSplit
from raindrop.tasks.base import Task, Watched
from raindrop.training import distributed
from raindrop.training.callbacks import board_of
from raindrop.training.memory import only_without_messages_fits, require_room_for_weights
from raindrop.training.network import SOFT_TARGETS, fit_network, without_leftovers
from raindrop.training.progress import note
from raindrop.training.scoring import scores_of
from raindrop.version import VERSION

LENGTH_SETTINGS = ("epochs", "min_steps", "patience", "minutes")  # these may change when a run is resumed


class Estimator(Settings, ABC):
    """Any model of the library on some task."""

    task_type: ClassVar[type[Task]]
    task_: Task
    model_: Model
    scaler_: Scaler
    history_: list[dict[str, Any]]
    notes_: dict[str, Any]
    split_checksum_: str | None
    reference_: Reference | None = None
    """Distribution of readings and scores in training (`raindrop monitor`); None for a model saved without it."""
    soft_targets_file: Path | None = None
    """Where soft targets are kept for other fits on the same samples, as in a search; None: in the run's folder."""
    split_: RunSplit | None
    """The samples it was trained on; None if they have no identity, such as windows of one series, or if a saved model
    has lost its split."""

    # ---------------------------------------------------------------- what a subclass provides

    @abstractmethod
    def learn_task(self, table: EventTable) -> Task:
        """The task, including what it learns from the training table."""

    @abstractmethod
    def _training_source(self, table: EventTable) -> BatchSource:
        """The batches that the model is trained on."""

    @abstractmethod
    def _validation_source(self, table: EventTable) -> BatchSource:
        """The batches, with targets, that the best epoch is chosen on."""

    def _own_parts(self, training: EventTable, held_out: EventTable | None) -> Mapping[str, EventTable] | None:
        """The split of a run that was not given one."""
        return None

    def _check_network(self, network: Estimator | None, held_out: EventTable | None) -> None:
        """Raise if a pre-trained network does not match this estimator."""

    def _calibrate(self, truth: NDArray[Any], predicted: NDArray[Any], source: BatchSource) -> None:
        """Calibrate on targets and predictions of the validation source, after training."""

    def _about_dates(self, training: EventTable) -> dict[str, str]:
        """{"dated": "local" or "UTC"} if the model is to know the time of day."""
        return {}

    def _forget_calibration(self) -> None:
        """Reset the calibration; called instead of `_calibrate` when there are no validation samples."""

    def _calibrated(self, predicted: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply the calibration to predictions."""
        return predicted

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What the subclass saves in addition to the model: JSON values, and arrays."""
        return {}, {}

    def _restore_state(self, content: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what `_state` returned."""

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
        callbacks: Sequence[Any] = (),
        network: Estimator | None = None,
        start_from: Estimator | None = None,
    ) -> Self:
        """Train on `training`, choose the epoch on `held_out` if there is any, and save to the run's folder."""
        alike = start_from is not None and type(start_from) is type(self) and start_from.model == self.model
        self.chosen_ = cast(Estimator, start_from).chosen_ if alike else {}
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
        } | self._about_dates(training)
        if start_from is not None:
            self._adopt(start_from, training)
        self.identity_ = self._identity(held_out)
        known = parts if parts is not None else self._own_parts(training, held_out)
        self.split_, self.split_checksum_ = None if known is None else RunSplit.of(known), None
        lineage = self._identity(held_out, resumable=True)
        self._check_network(network, held_out)
        if folder is not None and resume:
            refuse_other_run(folder, lineage)
        self.lineage_ = lineage
        with torch.random.fork_rng(devices=[]):
            require_room_for_weights(lambda: entry.model(model_config, self._spec()), len(self.scaler_.sensors))
            torch.manual_seed(int(self.seed))
            self.model_ = entry.model(model_config, self._spec())
            torch.manual_seed(int(self.seed))
            compared = held_out is not None and start_from is None and network is None
            without = self.model_.network.without_messages() if compared else None
        messages: dict[str, Any] | None = None if start_from is None else start_from.notes_.get("messages")
        shared_times_warning(self.model_, training)
        learned_from = self._training_source(training)
        distributed.join()
        only_without = (
            network is None
            and not isinstance(self.model_, DirectModel)
            and only_without_messages_fits(self.model_.network, without, learned_from)
        )
        chosen_by = None if held_out is None else self._validation_source(held_out)
        within_run = nullcontext() if folder is None or distributed.rank() else run_folder(folder)
        with within_run, without_leftovers(folder), limit_threads(self.threads):
            if folder is not None and resume and distributed.rank() == 0:
                refuse_other_run(folder, lineage)  # again: another run may have finished there in the meantime
            distributed.wait()
            if isinstance(self.model_, DirectModel):
                self._refuse_train_settings(train_config, tensorboard or bool(callbacks))
                self.history_ = self.model_.fit(learned_from, chosen_by, int(self.seed))
            else:
                self.model_.prepare(learned_from, chosen_by, int(self.seed))
                if start_from is not None:
                    self.model_.load_state_dict(start_from.model_.state_dict())
                if network is not None:
                    self._use(deepcopy(network.model_.network))
                    self.history_, messages = network.history_, network.notes_.get("messages")
                else:
                    fewer = self.fewer_steps(len(learned_from), float(np.mean(learned_from.lengths)))
                    note(self.progress and fewer is not None, str(fewer))
                    # Soft targets depend on the samples and the seed, but on no setting of the network.
                    samples = [int(self.seed), VERSION, self.task_.to_dict(), self.data_, training.fingerprint]
                    boards = [board_of(folder)] if tensorboard and not distributed.rank() else []
                    trained = fit_network(
                        None if only_without else self.model_.network,
                        without,
                        learned_from,
                        chosen_by,
                        train_config,
                        spec=self._spec(),
                        targets_file=self._targets_file(folder),
                        samples_identity=content_checksum(samples),
                        task=self.task_,
                        seed=int(self.seed),
                        device=device,
                        run=folder,
                        resume=resume,
                        identity=lineage,
                        show=self.progress,
                        callbacks=[*callbacks, *boards],
                    )
                    self.history_, messages = trained.history, trained.messages
                    self._use(trained.network)
                self.model_.to("cpu")
            self.notes_ = self.model_.finish(chosen_by) | ({} if messages is None else {"messages": messages})
            self._forget_calibration()
            watched: list[Watched] = []
            if chosen_by is not None:
                truth = cast(NDArray[Any], chosen_by.truth)
                predicted = self.task_.predict(scores_of(self.model_, chosen_by))
                self._calibrate(truth, predicted, chosen_by)
                watched = self.task_.watched(self._calibrated(predicted), truth)
            own_unit = training.in_unit(self.time_unit_)
            self.reference_ = Reference.learn(own_unit, self.scaler_.sensors, watched, seed=int(self.seed))
            if folder is not None and distributed.rank() == 0:
                self._write(folder)
        distributed.wait()
        return self

    def _targets_file(self, folder: Path | None) -> Path | None:
        """Where soft targets are kept, by the first process only."""
        own = None if folder is None else folder / SOFT_TARGETS
        return None if distributed.rank() else self.soft_targets_file or own

    def _use(self, network: Model) -> None:
        """Make `network`, which may have other settings than the model's own, its network."""
        if network is self.model_.network:
            return
        former = configs.to_dict(self.model_.network.config)
        prefix = f"model.{self.model_.network_settings}"
        own = configs.to_dict(network.config)
        self.chosen_ = {f"{prefix}{name}": value for name, value in own.items() if value != former[name]}
        self.model_ = self.model_.with_network(network)

    @staticmethod
    def _check_run(run: str | os.PathLike[str] | None, resume: bool) -> None:
        """Raise if a run cannot be written or resumed, before anything is written."""
        if resume and run is None:
            raise ConfigError("resume continues the run in a folder; give it with run='FOLDER'.")
        if run is not None and not resume:
            refuse_to_overwrite(Path(run))

    def _require_validation(self, held_out: EventTable | None) -> None:
        """Raise if the subclass needs validation samples and there are none."""

    def _require_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError(
                "This estimator is not fitted yet. Call fit(table) first, or load one with load(folder)."
            )

    def _identity(self, held_out: EventTable | None, data: Estimator | None = None, *, resumable: bool = False) -> str:
        """A hash of model, settings and data; `resumable` leaves out the training length, so that a run can grow."""
        config = self.resolved()
        if resumable:
            config["train"] = {name: value for name, value in config["train"].items() if name not in LENGTH_SETTINGS}
        described = {"model": self.model, "config": config, "seed": int(self.seed)}
        fitted = data or self
        fingerprint = None if held_out is None else held_out.fingerprint
        return content_checksum([described, VERSION, fitted.task_.to_dict(), fitted.data_, fingerprint])

    def _adopt(self, start: Estimator, training: EventTable) -> None:
        """Take over from `start` what its weights depend on: classes, scaling, time unit and window."""
        start._require_fitted()
        mine, its = self.resolved()["model"], start.resolved()["model"]
        requested = configs.to_dict(self._configs(chosen={})[1])  # what training chose before may not replace it
        given = {name for name in self._given_model_settings() if not name.endswith("graph.optional")}
        other = [name for name in mine if mine[name] != its.get(name)]
        other += [name for name in mine if name in given and mine[name] != requested[name]]
        if type(start) is not type(self) or start.model != self.model or other:
            settings = f", with other settings (model.{other[0]})" if start.model == self.model and other else ""
            raise ConfigError(
                f"start_from is a {type(start).__name__} of the model '{start.model}'{settings}; this is a "
                f"{type(self).__name__} of '{self.model}'. Its weights fit only the same model with the same settings."
            )
        if isinstance(start.model_, DirectModel):
            raise ConfigError(
                f"start_from: '{self.model}' is not trained by gradients, so it cannot be trained further."
            )
        self.task_ = start.task_.with_weights_of(self.task_)
        self.time_unit_, self.scaler_ = start.time_unit_, start.scaler_
        self.data_ |= {"window": start.data_["window"], "start_from": start.identity_}
        try:
            self.scaler_.sensor_codes(training, ignore_unknown=self.unknown_sensors == "ignore")
        except DataError as error:
            raise DataError(
                f"start_from: {error}\nTo learn new sensors, train one model on a table of both sites, whose sensors "
                "are the union."
            ) from None

    def _spec(self) -> DataSpec:
        first, last = self.data_["window"]
        dated = "dated" in self.data_
        return DataSpec(self.scaler_.sensors, self.task_, self.scaler_.static_width, (first, last), dated)

    # ---------------------------------------------------------------- saving

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the fitted model to a new folder as safetensors and JSON, which contain no executable code."""
        if not hasattr(self, "model_"):
            raise NotFittedError("This estimator is not fitted yet, so there is nothing to save.")
        with atomic_folder(folder) as partial:
            self._write(partial)
        return Path(folder)

    def _write(self, folder: Path) -> Path:
        state, arrays = self._state()
        reference, statistics = (None, {}) if self.reference_ is None else self.reference_.to_dict()
        about = {
            "model": self.model,
            "preset": self.preset,
            "config": self.resolved(),
            "chosen": self.chosen_,
            "seed": int(self.seed),
            "task": self.task_.to_dict(),
            "time_unit": self.time_unit_,
            "scaler": self.scaler_.to_dict(),
            "data": self.data_,
            "history": self.history_,
            "notes": self.notes_,
            "state": state,
            "reference": reference,
            "identity": self.identity_,
            "split_sha256": self.split_checksum_,
            "lineage": self.lineage_,
        }
        weights = {f"model/{name}": smallest(tensor.cpu()) for name, tensor in self.model_.state_dict().items()}
        weights |= {f"state/{name}": torch.from_numpy(array) for name, array in arrays.items()}
        weights |= {f"reference/{name}": torch.from_numpy(np.asarray(array)) for name, array in statistics.items()}
        return write_model(folder, about, weights, self.split_)

    @classmethod
    def _restored(cls, about: Mapping[str, Any], **options: Any) -> Self:
        """An unfitted estimator with the arguments of the saved one."""
        return cls(about["model"], **options)

    @classmethod
    def _restore(
        cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor], task: Task, split: RunSplit | None = None
    ) -> Self:
        """The estimator that `_write` saved."""
        check_description(about)
        if not all(isinstance(label, str) for label in task.labels):
            raise ValueError("labels have names")
        flat = {f"{group}.{name}": value for group, part in about["config"].items() for name, value in part.items()}
        self = cls._restored(about, preset=about["preset"], config=flat, seed=about["seed"])
        self.chosen_ = about.get("chosen", {})
        entry, model_config, _ = self._configs()
        self.task_ = task
        self.time_unit_ = about["time_unit"]
        self.scaler_ = Scaler.from_dict(about["scaler"])
        self.data_ = about["data"]
        self.history_ = about["history"]
        self.notes_ = about["notes"]
        self.identity_, self.lineage_ = about["identity"], about.get("lineage", "")
        self.split_, self.split_checksum_ = split, about.get("split_sha256")
        groups: dict[str, dict[str, Tensor]] = {"model": {}, "state": {}, "reference": {}}
        for name, tensor in tensors.items():
            group, _, key = name.partition("/")
            groups[group][key] = tensor
        self._restore_state(about["state"], {name: tensor.numpy() for name, tensor in groups["state"].items()})
        check_weights(groups["model"], lambda: entry.model(model_config, self._spec()))
        statistics = {name: tensor.numpy() for name, tensor in groups["reference"].items()}
        self.reference_ = (
            Reference.from_dict(about["reference"], statistics, self.scaler_.sensors, self.time_unit_)
            if about.get("reference") is not None
            else None
        )
        with torch.random.fork_rng(devices=[]):  # these weights are overwritten; keep the global random state
            self.model_ = entry.model(model_config, self._spec())
        self.model_.load_state_dict(groups["model"])
        self.model_.eval()
        return self
