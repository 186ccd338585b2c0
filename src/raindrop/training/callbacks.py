"""Callbacks, called after every epoch to monitor training or to stop it; logging to TensorBoard and MLflow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from raindrop.errors import ConfigError, MissingExtraError


class Callback:
    """Override the methods you need. Callbacks observe training; they cannot change it, except by stopping it."""

    def on_start(self, settings: Mapping[str, Any]) -> None:
        """Before the first epoch of this call, with every setting by name, such as 'train.epochs'."""

    def on_epoch(self, epoch: int, metrics: Mapping[str, float]) -> bool | None:
        """After an epoch, with its 'loss', 'seconds' and validation metrics. True stops training.

        The weights of the epoch that validated best so far are kept. Where messages are optional, the epochs of both
        networks are counted together; to stop during the first leaves messages out.
        """

    def on_end(self) -> None:
        """After the last epoch of this call, even if training failed."""


class TensorBoard(Callback):
    """Scalars for TensorBoard: 'loss', and 'validation/NAME' of each metric."""

    def __init__(self, folder: str | os.PathLike[str]):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("tensorboard", "log", "Writing TensorBoard logs") from None
        self._writer = SummaryWriter(os.fspath(folder))

    def on_epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            if name != "seconds":
                tag = name if name == "loss" else f"validation/{name}"
                self._writer.add_scalar(tag, value, epoch)
        self._writer.flush()

    def on_end(self) -> None:
        self._writer.close()


class MLflow(Callback):
    """An MLflow run with all settings as parameters and every epoch's metrics.

    Uses the active run, or a new one, which is ended after training. MLflow decides where it is stored:
    `mlflow.set_tracking_uri` and `mlflow.set_experiment`.
    """

    def __init__(self, run_name: str | None = None):
        try:
            mlflow = import_module("mlflow")
        except ImportError:
            raise MissingExtraError("mlflow", "mlflow", "Logging to MLflow") from None
        self._mlflow, self.run_name, self._own = mlflow, run_name, False

    def on_start(self, settings: Mapping[str, Any]) -> None:
        if self._mlflow.active_run() is None:
            self._mlflow.start_run(run_name=self.run_name)
            self._own = True
        self._mlflow.log_params(dict(settings))

    def on_epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        # MLflow allows fewer characters in names than a class may have: 'recall/<2 h' becomes 'recall/_2 h'.
        allowed = " _-./:"
        clean = {"".join(c if c.isalnum() or c in allowed else "_" for c in name): v for name, v in metrics.items()}
        self._mlflow.log_metrics(clean, step=epoch)

    def on_end(self) -> None:
        if self._own:
            self._mlflow.end_run()
            self._own = False


def board_of(run: Path | None) -> TensorBoard:
    """A TensorBoard log in the run's folder."""
    if run is None:
        raise ConfigError("TensorBoard logs go into the run's folder; give one with run='FOLDER'.")
    return TensorBoard(run / "tensorboard")


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Raise unless each has the methods that training calls."""
    for each in callbacks:
        if not callable(getattr(each, "on_epoch", None)):
            raise ConfigError(
                f"callbacks: {each!r} has no on_epoch(epoch, metrics). Derive it from raindrop.training.Callback."
            )


class CallbackList(Callback):
    """Several callbacks as one; methods that a callback does not have are skipped."""

    def __init__(self, callbacks: Sequence[Any]):
        self.callbacks = list(callbacks)

    def on_start(self, settings: Mapping[str, Any]) -> None:
        for each in self.callbacks:
            if hasattr(each, "on_start"):
                each.on_start(settings)

    def on_epoch(self, epoch: int, metrics: Mapping[str, float]) -> bool:
        return any([bool(each.on_epoch(epoch, metrics)) for each in self.callbacks])  # noqa: C419 (call all of them)

    def on_end(self) -> None:
        for each in self.callbacks:
            if hasattr(each, "on_end"):
                each.on_end()
