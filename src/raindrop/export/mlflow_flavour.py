"""Models in MLflow: `log_model`, `save_model` and `load_model`, and the pyfunc form that every MLflow tool can score.

The folder that `save` writes (safetensors and JSON) is stored, and loaded by this module; nothing is pickled. A pyfunc
model takes one frame of readings, with the columns sample, time, sensor and value, and the static attributes as further
columns. It returns a frame: the predictions for each sample; for an imputer or a forecaster, the value, low and high of
every row whose value is missing.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from raindrop.errors import DataError, MissingExtraError
from raindrop.estimators.base import Estimator
from raindrop.estimators.loading import load
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns, to_polars
from raindrop.version import VERSION

FLAVOUR = "raindrop"
RUN = "run"  # the folder of the saved model within an MLflow model
COLUMNS = ("sample", "time", "sensor", "value")


def log_model(model: Estimator, name: str = "model", **options: Any) -> Any:
    """Log a fitted model to the active MLflow run, or a new one; options are those of `mlflow.models.Model.log`."""
    return _mlflow("mlflow.models").Model.log(
        artifact_path=None, name=name, flavor=sys.modules[__name__], raindrop_model=model, **options
    )


def save_model(
    raindrop_model: Estimator, path: str | os.PathLike[str], mlflow_model: Any = None, **options: Any
) -> None:
    """Write a fitted model as an MLflow model to a new folder."""
    described = _mlflow("mlflow.models").Model() if mlflow_model is None else mlflow_model
    raindrop_model.save(Path(path) / RUN)
    _mlflow("mlflow.pyfunc").add_to_model(described, loader_module=__name__, data=RUN)
    described.add_flavor(FLAVOUR, raindrop_version=VERSION, data=RUN, model=raindrop_model.model)
    (Path(path) / "requirements.txt").write_text(f"raindrop-ts=={VERSION}\n", encoding="utf-8")
    described.save(os.fspath(Path(path) / "MLmodel"))


def load_model(model_uri: str | os.PathLike[str]) -> Any:
    """The estimator that was logged or saved, by its MLflow URI or its folder."""
    folder = _mlflow("mlflow.artifacts").download_artifacts(artifact_uri=os.fspath(model_uri))
    return load(Path(folder) / RUN)


def _load_pyfunc(path: str) -> PyFunc:
    """Called by `mlflow.pyfunc.load_model`."""
    return PyFunc(load(path))


class PyFunc:
    """The pyfunc form of a fitted model."""

    def __init__(self, model: Any):
        self.model = model

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Predictions for a frame of readings, as a pandas frame."""
        frame = to_polars(model_input, "readings")
        require_columns(frame, {name: name for name in COLUMNS}, "readings")
        asked = frame["value"].is_null() | frame["value"].cast(pl.Float64, strict=False).is_nan().fill_null(False)
        readings = frame.filter(~asked)
        statics = [column.name for column in self.model.scaler_.statics if column.name in frame.columns]
        if isinstance(self.model, ReadingsEstimator):
            queries = frame.filter(asked).select("sample", "time", "sensor")
            if not len(queries):
                raise DataError("There is nothing to predict: the rows to fill in are those without a value.")
            answers = self.model.readings_at(self._table(readings, statics), queries).frame()
        else:
            answers = self.model.predict_table(self._table(readings, statics)).frame()
        return _mlflow("pandas").DataFrame(answers.to_dict(as_series=False))

    def _table(self, readings: pl.DataFrame, statics: list[str]) -> EventTable:
        samples = readings.select("sample", *statics).unique("sample", keep="first", maintain_order=True)
        unit: Any = self.model.time_unit_
        return EventTable.from_frames(readings.select(*COLUMNS), samples, statics=statics, time_unit=unit)


def _mlflow(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mlflow", "pandas"):
            raise
        raise MissingExtraError("mlflow", "mlflow", "Models in MLflow") from None
