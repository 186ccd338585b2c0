"""Classifier: fit, predict, embed, graphs, save and load, with scikit-learn's conventions, over an EventTable."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator, in_order
from raindrop.batch.scaling import Scaler
from raindrop.errors import ConfigError, DataError, ModelFileError
from raindrop.estimators.base import Configured
from raindrop.estimators.persistence import read_model, refuse_other_run, smallest, write_model
from raindrop.files import content_checksum, refuse_to_overwrite, run_folder
from raindrop.graphs.graph import SensorGraphs
from raindrop.models.base import DataSpec, DirectModel, Model
from raindrop.models.registry import MODELS
from raindrop.table.event_table import EventTable
from raindrop.table.split_files import write_parts
from raindrop.tasks.calibration import Calibrator, Method
from raindrop.tasks.conformal import Conformal
from raindrop.tasks.metrics import evaluate
from raindrop.tasks.predictions import Predictions
from raindrop.training import distributed
from raindrop.training.distill import goals_of
from raindrop.training.loop import outputs, probabilities, train
from raindrop.version import VERSION

CONFORMAL = "conformal/"  # before the names of its arrays, beside the weights


class Classifier(ClassifierMixin, Configured):  # type: ignore[misc]
    """Any model of the library behind one interface.

    model: its name; preset: "paper" (as written), "tuned" (the best we know) or, for Raindrop, "graph" (to
    look at who informs whom); config: changes to the preset, such
    as {"train.epochs": 5, "model.prune": 0.3}; unknown_sensors: "error", or "ignore" readings of sensors that
    training never saw; calibrate: make probabilities mean what they say, by a "temperature" or "isotonic", both fitted
    on validation samples; progress: show bars.
    """

    # ---------------------------------------------------------------- learning

    def fit(
        self,
        X: EventTable,
        y: ArrayLike | None = None,
        *,
        validation: EventTable | None = None,
        run: str | os.PathLike[str] | None = None,
        resume: bool = False,
        tensorboard: bool = False,
        parts: Mapping[str, EventTable] | None = None,
        network: Classifier | None = None,
    ) -> Classifier:
        """Learn from a table. Labels are the table's own unless `y` is given.

        Without `validation` a stratified share of X (train.holdout) chooses the epoch to keep. With `run`, a folder,
        the run is logged and checkpointed there, the fitted model is saved there, and `resume` continues it; `parts`
        (train, val and test, as far as there are) are remembered there as the run's split. A blend takes a fitted
        `network` that was trained as its own would be (see `network_alone`) instead of training it again.
        """
        entry, model_config, train_config = self._configs()
        table = _table(X, "fit") if y is None else _table(X, "fit").with_labels(y)
        if not len(table):
            raise DataError("The training table is empty. There must be at least one sample of each class.")
        self.classes_ = np.unique(table.labels)
        if len(self.classes_) < 2:
            raise DataError(
                f"All {len(table):,} training samples have the label '{self.classes_[0]}'. "
                "There must be at least two classes to tell apart."
            )
        folder = None if run is None else Path(run)
        if resume and folder is None:
            raise ConfigError("resume continues the run in a folder; give it with run='FOLDER'.")
        if folder is not None and not resume:
            refuse_to_overwrite(folder)
        label = table.roles.label if y is None else None  # with y, the validation table's own label counts
        training, held_out = self._hold_out(table, validation, label, train_config.holdout)
        if held_out is None and self.calibrate != "none":
            raise ConfigError(
                f"calibrate='{self.calibrate}' is fitted on validation samples, and there are none. Give some with "
                "validation=TABLE, or a train.holdout above 0 with enough samples of each class."
            )
        self.label_ = table.roles.label
        self.time_unit_ = table.time_unit
        self.scaler_ = Scaler.fit(training)
        self.data_: dict[str, Any] = {
            "fingerprint": table.fingerprint,
            "samples": len(table),
            "readings": table.num_readings,
            "window": _window(training),
        }
        self.identity_ = self._identity(held_out)
        if network is not None and network.identity_ != self.network_alone()._identity(held_out, self.data_):
            raise ConfigError("network: was trained on other data, or with other settings, seed or version than here.")
        if folder is not None and resume:
            refuse_other_run(folder, self.identity_)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.seed))
            self.model_: Model = entry.model(model_config, self._spec())
        learned_from = Collator(training, self.scaler_, self.classes_)
        chosen_by = None if held_out is None else self._validation(held_out)
        distributed.join()
        with nullcontext() if folder is None or distributed.rank() else run_folder(folder):
            distributed.wait()
            if isinstance(self.model_, DirectModel):
                self._refuse_train_settings(train_config, tensorboard)
                self.history_ = self.model_.fit(learned_from, chosen_by, int(self.seed))
            else:
                self.model_.prepare(learned_from, chosen_by, int(self.seed))
                if train_config.teacher and network is None:
                    learned_from.goals = goals_of(
                        learned_from, self._spec(), train_config.teacher, int(self.seed), self.progress
                    )
                if network is not None:
                    self.model_.network.load_state_dict(network.model_.state_dict())
                    self.history_ = network.history_
                else:
                    self.history_ = train(
                        self.model_.network,
                        learned_from,
                        chosen_by,
                        train_config,
                        seed=int(self.seed),
                        run=folder,
                        resume=resume,
                        identity=self.identity_,
                        show=self.progress,
                        tensorboard=tensorboard,
                    )
            self.notes_ = self.model_.finish(chosen_by)
            self._learn_from_validation(chosen_by)
            if folder is not None and distributed.rank() == 0:
                if parts is not None:  # before the model: no kill leaves a model that does not know its split
                    write_parts(folder / "split.parquet", parts)
                self._write(folder)
        distributed.wait()
        return self

    def _hold_out(
        self, table: EventTable, validation: EventTable | None, label: str | None, share: float
    ) -> tuple[EventTable, EventTable | None]:
        if validation is not None:
            validation = _table(validation, "validation")
            if not len(validation):
                raise DataError("The validation table is empty. Leave it out, or give at least one sample.")
            return table, validation.with_roles(label=label)
        if share <= 0:
            return table, None
        training, held_out = table.split((1 - share, share), seed=self.seed)
        classes = len(self.classes_)
        if len(np.unique(held_out.labels)) < classes or len(np.unique(training.labels)) < classes:
            return table, None  # too few samples to spare any
        return training, held_out

    def _learn_from_validation(self, validation: Collator | None) -> None:
        """How to calibrate probabilities, and which ones to expect for the right class."""
        self.calibrator_, self.conformal_ = Calibrator(), None
        if validation is not None:
            truth, probability = cast(NDArray[np.int64], validation.labels), probabilities(self.model_, validation)
            self.calibrator_ = Calibrator.fit(self.calibrate, truth, probability)
            self.conformal_ = Conformal.fit(truth, self.calibrator_(probability))

    def network_alone(self) -> Classifier:
        """The network of a blend as a classifier of its own, not fitted."""
        if self.model != "blend":
            raise ConfigError(f"Only a blend has a network beside something else; this is '{self.model}'.")
        resolved = self.resolved()
        own = {f"train.{name}": value for name, value in resolved["train"].items()}
        for name, value in resolved["model"].items():
            part, _, setting = name.partition(".")
            own |= {f"model.{setting}": value} if part == "raindrop" else {}
        return Classifier("raindrop", preset=self.preset, config=own, seed=self.seed)

    def _identity(self, held_out: EventTable | None, data: Mapping[str, Any] | None = None) -> str:
        """Names what is trained on what."""
        described = {"model": self.model, "config": self.resolved(), "seed": int(self.seed)}
        fingerprint = None if held_out is None else held_out.fingerprint
        return content_checksum([described, VERSION, data or self.data_, fingerprint])

    def _spec(self) -> DataSpec:
        first, last = self.data_["window"]
        return DataSpec(self.scaler_.sensors, len(self.classes_), self.scaler_.static_width, (first, last))

    # ---------------------------------------------------------------- using

    def predict_proba(self, X: EventTable) -> NDArray[np.float32]:
        """(samples, classes), columns in the order of `classes_`."""
        data = self._data(X)
        return self._probabilities(data) if len(data) else self._nothing()

    def predict(self, X: EventTable) -> NDArray[Any]:
        """The most probable class of each sample."""
        probability = self.predict_proba(X)
        chosen: NDArray[Any] = self.classes_[probability.argmax(1)]
        return chosen

    def predict_sets(self, X: EventTable, coverage: float = 0.9, *, by_class: bool = False) -> NDArray[np.bool_]:
        """(samples, classes): a set of classes for each sample, which holds the right one as often as `coverage` says.

        A set of several classes, or of none, says that the sample cannot be told. By class, `coverage` holds for the
        samples of each class, however rare it is, instead of for all together. docs/uncertainty.md has the conditions.
        """
        return self._sets(self.predict_proba(X), coverage, by_class)

    def predict_table(self, X: EventTable, *, coverage: float | None = None, by_class: bool = False) -> Predictions:
        """Sample ids with the probability of every class; with `coverage` also sets, and where to abstain."""
        if coverage is None and by_class:
            raise ConfigError("by_class says whose coverage counts, so it needs one, for example coverage=0.9.")
        probability = self.predict_proba(X)
        sets = None if coverage is None else self._sets(probability, coverage, by_class)
        return Predictions(X.ids, self.classes_, probability, sets)

    def embed(self, X: EventTable) -> NDArray[np.float32]:
        """(samples, z): the embedding of each sample before the statics and the classifier."""
        data = self._data(X, needed=True)
        return np.concatenate([o.embedding.numpy() for o in outputs(self.model_, data, self.progress)])

    def graphs(self, X: EventTable) -> SensorGraphs:
        """Each sample's directed graph of which sensor informs which."""
        data, weights = self._data(X, needed=True), []
        for output in outputs(self.model_, data, self.progress):
            if output.edges is None:
                raise ConfigError(f"Model '{self.model}' with these settings has no sensor graph.")
            weights.append(output.edges.numpy())
        return SensorGraphs(self.scaler_.sensors, X.ids, np.concatenate(weights))

    def batches(self, X: EventTable) -> Iterator[Batch]:
        """The table as the model sees it, a few samples at a time, in order."""
        return in_order(self._data(X))

    def score(self, X: EventTable, y: ArrayLike | None = None, sample_weight: Any = None) -> float:
        """Accuracy, as scikit-learn's classifiers have it; `evaluate` has the other figures."""
        data = self._data(X, needed=True)
        table = data.table if y is None else data.table.with_labels(y)
        truth = self._with_label(table).labels
        predicted = self.predict(X)
        if truth.dtype.kind != predicted.dtype.kind and "U" in (truth.dtype.kind, predicted.dtype.kind):
            truth, predicted = truth.astype(str), predicted.astype(str)
        return float(np.average(predicted == truth, weights=sample_weight))

    def evaluate(self, X: EventTable) -> dict[str, float]:
        """Every figure of `metrics` on a labelled table."""
        data = self._data(X, labelled=True, needed=True)
        assert data.labels is not None
        return evaluate(data.labels, self._probabilities(data))

    def _probabilities(self, data: Collator) -> NDArray[np.float32]:
        """The one place where probabilities leave the model."""
        return self.calibrator_(probabilities(self.model_, data, self.progress))

    def _sets(self, probability: NDArray[np.float32], coverage: float, by_class: bool) -> NDArray[np.bool_]:
        if self.conformal_ is None:
            raise ConfigError(
                "Sets with a coverage need validation samples, and this model was fitted without any. "
                "Fit it with validation=TABLE or a train.holdout above 0."
            )
        return self.conformal_.sets(probability, coverage, by_class=by_class)

    def _nothing(self) -> NDArray[np.float32]:
        return np.zeros((0, len(self.classes_)), dtype=np.float32)

    def _data(self, X: EventTable, *, labelled: bool = False, needed: bool = False) -> Collator:
        if not hasattr(self, "model_"):
            raise NotFittedError(
                "This classifier is not fitted yet. Call fit(table) first, or load one with load(folder)."
            )
        if needed and not len(_table(X, "predict")):
            raise DataError("The table is empty; at least one sample is needed.")
        return self._collator(_table(X, "predict"), labelled=labelled)

    def _collator(self, table: EventTable, *, labelled: bool = False, ignore_unknown: bool | None = None) -> Collator:
        return Collator(
            (self._with_label(table) if labelled else table).in_unit(self.time_unit_),
            self.scaler_,
            self.classes_ if labelled else None,
            ignore_unknown=self.unknown_sensors == "ignore" if ignore_unknown is None else ignore_unknown,
        )

    def _validation(self, table: EventTable) -> Collator:
        """As `_collator`, but a sensor that training lists and never reads is ignored: a rare one can end up here."""
        listed = set(table.sensors) <= set(self.scaler_.sensors)
        return self._collator(table, labelled=True, ignore_unknown=listed or self.unknown_sensors == "ignore")

    def _with_label(self, table: EventTable) -> EventTable:
        """Where a table does not say which column is its label, that of training is."""
        named = table.roles.label is None and self.label_ in table.samples.columns
        return table.with_roles(label=self.label_) if named else table

    # ---------------------------------------------------------------- keeping

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the fitted model to a new folder: safetensors and JSON, nothing that can run."""
        if not hasattr(self, "model_"):
            raise NotFittedError("This classifier is not fitted yet, so there is nothing to save.")
        refuse_to_overwrite(Path(folder))
        return self._write(Path(folder))

    def _write(self, folder: Path) -> Path:
        about = {
            "model": self.model,
            "preset": self.preset,
            "config": self.resolved(),
            "seed": int(self.seed),
            "label": self.label_,
            "classes": self.classes_.tolist(),
            "time_unit": self.time_unit_,
            "scaler": self.scaler_.to_dict(),
            "data": self.data_,
            "history": self.history_,
            "notes": self.notes_,
            "calibrator": self.calibrator_.to_dict(),
            "identity": self.identity_,
        }
        weights = {name: smallest(tensor) for name, tensor in self.model_.state_dict().items()}
        if self.conformal_ is not None:
            weights |= {f"{CONFORMAL}{name}": torch.from_numpy(x) for name, x in vars(self.conformal_).items()}
        return write_model(folder, about, weights)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """The model that `save` or a run wrote; a RaindropClassifier where it is Raindrop."""
        about, weights = read_model(Path(folder), set(MODELS))
        if about["model"] != "raindrop" and issubclass(cls, RaindropClassifier):
            raise ModelFileError(f"{folder}: holds the model '{about['model']}', not raindrop. Use raindrop.load.")
        kind: Any = RaindropClassifier if about["model"] == "raindrop" and cls is Classifier else cls
        try:
            return cast(Self, kind._restore(about, weights))
        except (ConfigError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise ModelFileError(
                f"{folder}: model.json does not describe a model of this version ({reason}). "
                f"It was written by raindrop {about['versions']['raindrop']}; this is {VERSION}."
            ) from error

    @classmethod
    def _restore(cls, about: Mapping[str, Any], weights: dict[str, torch.Tensor]) -> Self:
        flat = {f"{group}.{name}": value for group, held in about["config"].items() for name, value in held.items()}
        calibrator = Calibrator.from_dict(about["calibrator"]) if "calibrator" in about else Calibrator()
        self = cls(preset=about["preset"], config=flat, seed=about["seed"], calibrate=calibrator.method)
        self.model = about["model"]
        entry, model_config, _ = self._configs()
        self.label_ = about["label"]
        self.classes_ = np.array(about["classes"])
        self.time_unit_ = about["time_unit"]
        self.scaler_ = Scaler.from_dict(about["scaler"])
        self.data_ = about["data"]
        self.history_ = about["history"]
        self.notes_ = about.get("notes", {})
        self.calibrator_ = calibrator
        held = {
            name.removeprefix(CONFORMAL): weights.pop(name).numpy()
            for name in list(weights)
            if name.startswith(CONFORMAL)
        }
        self.conformal_ = Conformal(**held) if held else None
        self.identity_ = about["identity"]
        with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced; leave no trace of the draw
            self.model_ = entry.model(model_config, self._spec())
        self.model_.load_state_dict(weights)
        self.model_.eval()
        return self


class RaindropClassifier(Classifier):
    """Classifier with the Raindrop model."""

    def __init__(
        self,
        *,
        preset: str = "tuned",
        config: Mapping[str, Any] | None = None,
        seed: int = 0,
        unknown_sensors: Literal["error", "ignore"] = "error",
        calibrate: Method = "none",
        progress: bool = False,
    ):
        super().__init__(
            "raindrop",
            preset=preset,
            config=config,
            seed=seed,
            unknown_sensors=unknown_sensors,
            calibrate=calibrate,
            progress=progress,
        )


def load(folder: str | os.PathLike[str]) -> Classifier:
    """The model that `save` or `raindrop train` wrote."""
    return Classifier.load(folder)


def _window(table: EventTable) -> list[float]:
    """Earliest and latest time of a reading."""
    time = np.asarray(table.time[table.rows()])
    return [float(time.min()), float(time.max())] if len(time) else [0.0, 1.0]


def _table(X: Any, what: str) -> EventTable:
    if not isinstance(X, EventTable):
        raise DataError(
            f"{what} takes an EventTable, not {type(X).__name__}. "
            "Make one with EventTable.from_frames(events, samples) or EventTable.read(folder)."
        )
    return X
