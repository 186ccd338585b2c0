"""Models in MLflow: logged to a local store, loaded as they were and as pyfunc, without pickle."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from random_tables import random_table

import raindrop as rd
from raindrop.export.mlflow_flavour import PyFunc, load_model, log_model, save_model

SHORT: dict[str, Any] = {"train.epochs": 1, "train.min_steps": 1, "train.soft_targets": 0.0, "train.batch_size": 8}


@pytest.fixture(scope="module")
def table() -> rd.EventTable:
    return random_table(samples=16, times=8, extremes=False)


@pytest.fixture(scope="module")
def model(table: rd.EventTable) -> rd.Classifier:
    return rd.Classifier(config=SHORT).fit(table)


def flat(table: rd.EventTable) -> pd.DataFrame:
    """Readings with the static attributes as further columns."""
    joined = table.events().join(table.samples, on="sample")
    return pd.DataFrame(joined.to_dict(as_series=False))


@pytest.mark.slow
def test_pyfunc_predicts_from_a_frame_of_readings(model: rd.Classifier, table: rd.EventTable) -> None:
    predicted = PyFunc(model).predict(flat(table))
    assert predicted["sample"].tolist() == list(table.ids)
    expected = model.predict_table(table).frame()
    assert predicted.columns.tolist() == expected.columns
    numbers = predicted.select_dtypes("float").columns
    assert np.allclose(predicted[numbers].to_numpy(), expected[list(numbers)].to_numpy(), atol=1e-6)


def test_pyfunc_of_an_imputer_fills_the_rows_without_a_value(table: rd.EventTable) -> None:
    imputer = rd.Imputer("linear").fit(table)
    frame = flat(table)
    first = frame["time"].groupby(frame["sample"]).transform("min")
    last = frame["time"].groupby(frame["sample"]).transform("max")
    asked = np.flatnonzero((frame["time"] > first) & (frame["time"] < last))[::5]
    frame.loc[asked, "value"] = np.nan
    answers = PyFunc(imputer).predict(frame)
    assert (
        answers[["sample", "time", "sensor"]].values.tolist()
        == frame.loc[asked, ["sample", "time", "sensor"]].values.tolist()
    )
    assert np.isfinite(answers["value"]).all()
    with pytest.raises(rd.DataError, match="those without a value"):
        PyFunc(imputer).predict(frame.drop(asked))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_logged_model_is_loaded_from_a_local_store(
    model: rd.Classifier, table: rd.EventTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    with mlflow.start_run():
        logged = log_model(model, "ward")
    again = load_model(logged.model_uri)
    assert np.array_equal(again.predict_proba(table), model.predict_proba(table))
    scored = importlib.import_module("mlflow.pyfunc").load_model(logged.model_uri).predict(flat(table))
    assert scored["sample"].tolist() == list(table.ids)
    assert np.allclose(scored.select_dtypes("float").iloc[:, :2].to_numpy(), model.predict_proba(table), atol=1e-6)
    names = [path.name for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert not [name for name in names if name.endswith((".pkl", ".pickle", ".joblib"))]
    save_model(model, tmp_path / "saved")
    assert np.array_equal(load_model(tmp_path / "saved").predict_proba(table), model.predict_proba(table))
