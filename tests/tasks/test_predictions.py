"""Predictions: a row per sample, in a file that is whole or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from raindrop.errors import ConfigError, OutputExistsError
from raindrop.tasks.predictions import ClassPredictions, LabelPredictions, QuantityPredictions


def predictions(classes: Any = ("no", "yes")) -> ClassPredictions:
    return ClassPredictions(["007", "b"], np.array(classes), np.array([[0.25, 0.75], [0.5, 0.5]], dtype=np.float32))


@pytest.mark.parametrize("classes", [["no", "yes"], [0, 10], [False, True]])
def test_a_row_per_sample_with_the_probability_of_every_class(classes: list[Any]) -> None:
    frame = predictions(classes).frame()
    assert frame.columns == ["sample", "predicted", *(f"probability_{name}" for name in classes)]
    assert frame["sample"].to_list() == ["007", "b"]
    assert frame["predicted"].to_list() == [classes[1], classes[0]]
    assert frame[f"probability_{classes[1]}"].to_list() == [0.75, 0.5]


@pytest.mark.parametrize("classes", [["no", "yes"], [0, 10], [False, True]])
def test_no_sample_gives_an_empty_frame_of_the_same_columns(classes: list[Any]) -> None:
    nobody = ClassPredictions([], np.array(classes), np.zeros((0, 2), dtype=np.float32))
    assert nobody.frame().is_empty()
    assert nobody.frame().schema == predictions(classes).frame().schema


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    for name in ("p.parquet", "p.csv"):
        assert predictions().write(tmp_path / "new" / name) == tmp_path / "new" / name
    back = pl.read_parquet(tmp_path / "new/p.parquet")
    assert back.equals(predictions().frame())
    text = pl.read_csv(tmp_path / "new/p.csv", schema_overrides={"sample": pl.String})
    assert text["sample"].to_list() == ["007", "b"]
    assert text["probability_yes"].to_list() == [0.75, 0.5]


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"p\.xlsx: predictions are written as \.parquet or \.csv"):
        predictions().write(tmp_path / "p.xlsx")


def test_an_existing_file_is_overwritten_only_when_asked(tmp_path: Path) -> None:
    path = predictions().write(tmp_path / "p.csv")
    with pytest.raises(OutputExistsError, match="this file exists already"):
        predictions(["a", "b"]).write(path)
    assert "probability_yes" in path.read_text()
    predictions(["a", "b"]).write(path, overwrite=True)
    assert "probability_b" in path.read_text()
    assert [held.name for held in tmp_path.iterdir()] == ["p.csv"]


def test_yes_no_labels_have_a_column_each_and_say_what_is_possible() -> None:
    sets = np.array([[[True, False], [True, True]]])
    held = LabelPredictions(["a"], ["died", "long stay"], np.array([[0.2, 0.7]], dtype=np.float32), sets)
    row = held.frame().row(0, named=True)
    assert row["predicted_died"] is False
    assert row["predicted_long stay"] is True
    assert (row["possible_died_no"], row["possible_died_yes"]) == (True, False)
    assert held.unsure is not None
    assert held.unsure.tolist() == [True]


def test_quantities_have_their_interval_beside_them() -> None:
    held = QuantityPredictions(["a"], ["days"], np.array([[3.5]], dtype=np.float32), np.array([[[1.0, 9.0]]]))
    assert held.frame().row(0) == ("a", 3.5, 1.0, 9.0)
    assert held.frame().columns == ["sample", "days", "days_low", "days_high"]


def test_predictions_are_short_to_print_and_a_table_in_a_notebook():
    many = ClassPredictions([f"s{at}" for at in range(1000)], np.array(["a", "b"]), np.full((1000, 2), 0.5, np.float32))
    assert repr(many) == "ClassPredictions(1,000 samples: predicted, probability_a, probability_b)"
    assert "<table" in many._repr_html_()
    assert len(many) == 1000
    assert many.to_polars().equals(many.frame())
    frame = pytest.importorskip("pandas") and many.to_pandas()
    assert list(frame.columns) == many.frame().columns
    assert len(frame) == 1000
