"""Write an export: the core as model.onnx or model.pt2, its description, and the reader."""

from __future__ import annotations

import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from raindrop.batch.windows import slow_sensors
from raindrop.errors import ConfigError, MissingExtraError, check_choice
from raindrop.estimators.base import Estimator
from raindrop.estimators.classifier import Classifier
from raindrop.estimators.imputer import Imputer
from raindrop.estimators.loading import load
from raindrop.estimators.multilabel import MultiLabelClassifier
from raindrop.estimators.samples import SampleEstimator
from raindrop.export import reader
from raindrop.export.predictions import Predictions
from raindrop.export.query_core import QueryCore
from raindrop.export.sample_core import SampleCore
from raindrop.files import atomic_folder, file_checksum, refuse_to_overwrite, write_json
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.raindrop.queries import RaindropQueries
from raindrop.version import VERSION

Format = Literal["onnx", "pt2"]
FORMATS: tuple[str, ...] = get_args(Format)
MAX_TIMES = 1024  # timestamps of a sample, or of a window of a long one
OPSET = 18
INPUTS = ("value", "observed", "time", "statics")
QUERY_INPUTS = (*INPUTS, "query_sample", "query_sensor", "query_time")
DATED_INPUTS = (*QUERY_INPUTS, "query_time_of_day")


def export_model(
    model: Estimator | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: Format = "onnx",
    max_times: int = MAX_TIMES,
) -> Path:
    """Write a folder to use a fitted model, or the one in a run's folder, without raindrop and torch.

    It contains model.onnx (or model.pt2, a program of torch.export), model.json and reader.py, which only needs NumPy
    and ONNX Runtime. `max_times` is the maximum number of timestamps of a sample; a larger one makes the model slower.
    """
    check_choice(format, Format, "format")
    if not 1 <= max_times <= 1 << 20:
        raise ConfigError(f"max_times={max_times}: the largest number of timestamps is from 1 to {1 << 20:,}.")
    refuse_to_overwrite(Path(out))
    if format == "onnx":
        _require_onnx()
    estimator: Estimator = model if isinstance(model, Estimator) else load(model)
    estimator._require_fitted()
    core = Exported(estimator, rounds=max(1, (max_times - 1).bit_length()))
    with atomic_folder(out) as partial:
        path = partial / f"model.{format}"
        program = core.program()
        if format == "onnx":
            _write_onnx(program, core.inputs, path)
        else:
            torch.export.save(program, path)
        write_json(partial / "model.json", describe(estimator, format, max_times) | {"sha256": file_checksum(path)})
        shutil.copyfile(reader.__file__, partial / "reader.py")
    return Path(out)


class Exported(nn.Module):
    """The core of an estimator's model, from a grid of readings to predictions."""

    def __init__(self, estimator: Estimator, rounds: int):
        super().__init__()
        network = estimator.model_
        if isinstance(network, Raindrop):
            self.core: nn.Module = SampleCore(network, rounds)
        elif isinstance(network, RaindropQueries) and isinstance(estimator, Imputer):
            self.core = QueryCore(network, rounds)
        else:
            raise ConfigError(
                f"A {type(estimator).__name__} of the model '{estimator.model}' cannot be exported; only "
                "classifiers, regressors and imputers of the model 'raindrop' can be."
            )
        self.predict = Predictions(estimator.task_)
        self.inputs: tuple[str, ...] = INPUTS
        if isinstance(network, RaindropQueries):
            self.inputs = DATED_INPUTS if network.dated else QUERY_INPUTS
        self.width, self.statics = len(estimator.scaler_.sensors), estimator.scaler_.static_width

    def forward(self, *inputs: Tensor) -> Tensor:
        predicted: Tensor = self.predict(self.core(*inputs))
        return predicted

    def program(self) -> torch.export.ExportedProgram:
        """Traced once, for any number of samples, timestamps and queries."""
        from torch.export import Dim

        samples, times, queries = Dim("samples", min=1), Dim("times", min=1), Dim("queries", min=1)
        b, t, q = 3, 5, 7
        generator = torch.Generator().manual_seed(0)
        value = torch.randn(b, t, self.width, generator=generator)
        example: list[Tensor] = [
            value, value > 0, torch.arange(t, dtype=torch.float64).repeat(b, 1), torch.zeros(b, self.statics),
        ]  # fmt: skip
        shapes: list[dict[int, Any]] = [{0: samples, 1: times}] * 3 + [{0: samples}]
        if isinstance(self.core, QueryCore):
            example += [torch.arange(q) % b, torch.arange(q) % self.width, torch.linspace(0.5, 4.5, q).double()]
            example += [torch.zeros(q, 2)] * (self.inputs == DATED_INPUTS)
            shapes += [{0: queries}] * (len(self.inputs) - len(INPUTS))
        with torch.no_grad(), _quietly():
            return torch.export.export(self.eval(), tuple(example), dynamic_shapes=(tuple(shapes),), strict=False)


def describe(estimator: Estimator, format: str, max_times: int) -> dict[str, Any]:
    """What the reader needs to know besides the core, and its origin."""
    task = estimator.task_
    about: dict[str, Any] = {
        "kind": "queries" if isinstance(estimator, Imputer) else "samples",
        "format": format,
        "max_times": max_times,
        "time_unit": estimator.time_unit_,
        "scaler": estimator.scaler_.to_dict(),
        "task": task.to_dict(),
        "calibration": _calibration(estimator),
        "raindrop": VERSION,
        "identity": estimator.identity_,
    }
    if isinstance(estimator, Imputer):
        slow = np.flatnonzero(slow_sensors(estimator.interval_)).tolist()
        windows = {"window_interval": estimator._window_interval, "slow_sensors": slow}
        return about | windows | {"levels": list(estimator.task_.levels)}
    assert isinstance(estimator, SampleEstimator)
    return about | {"columns": _columns(estimator)}


def _calibration(estimator: Estimator) -> dict[str, Any] | None:
    """The calibration of probabilities; for several labels, one for each."""
    if isinstance(estimator, Classifier):
        return estimator.calibrator_.to_dict()
    if isinstance(estimator, MultiLabelClassifier) and estimator.calibrate != "none":
        return {"method": "labels", "labels": [calibrator.to_dict() for calibrator in estimator.calibrators_]}
    return None


def _columns(estimator: SampleEstimator) -> list[str]:
    """A name for each predicted number of a sample."""
    task = estimator.task_
    if isinstance(estimator, Classifier):
        return [f"{task.labels[0]}={name}" for name in estimator.classes_]
    levels = getattr(task, "levels", (0.5,))
    return [f"{label} q{level:g}" if len(levels) > 1 else label for label in task.labels for level in levels]


def _write_onnx(program: torch.export.ExportedProgram, inputs: tuple[str, ...], path: Path) -> None:
    with _quietly():
        exported = torch.onnx.export(
            program,
            dynamo=True,
            input_names=list(inputs),
            output_names=["predicted"],
            opset_version=OPSET,
            verbose=False,
        )
    assert exported is not None
    exported.save(os.fspath(path), external_data=False)


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "onnx", "export", "Exporting to ONNX") from None


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence the tracer's notes about its own parts and about optional packages."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
