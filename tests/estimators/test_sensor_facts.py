"""Facts about sensors as inputs: only those asked for, those of the training table, and saved with the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from followers import SENSORS, SMALL, followers

from raindrop import ConfigError, DataError, EventTable, load
from raindrop.batch.scaling import scale_sensor_columns
from raindrop.cli.app import main
from raindrop.estimators import Forecaster, Imputer

INFO: dict[str, Any] = {
    "sensor": list(SENSORS),
    "x": [0.0, 1.0, 5.0],
    "y": [2.0, None, 1.0],
    "height": [10, 10, 10],
    "city": ["Berlin", "Bonn", None],
    "empty": [None, None, None],
    "wrong": [1.0, float("inf"), 2.0],
}
ASKED = SMALL | {"model.sensor_facts": ["x", "y"]}


@pytest.fixture(scope="module")
def table() -> EventTable:
    return followers(12).with_sensor_info(INFO)


@pytest.fixture(scope="module")
def queries(table: EventTable) -> pl.DataFrame:
    return table.events().drop("value")[::7]


def moved(table: EventTable, **columns: list[float | None]) -> EventTable:
    return table.with_sensor_info(INFO | columns)


def answers(table: EventTable, queries: pl.DataFrame, config: dict[str, Any]) -> np.ndarray:
    return Imputer(config=config).fit(table).readings_at(table, queries).value


def test_facts_are_scaled_over_sensors_and_0_where_they_are_not_known(table):
    value, known = scale_sensor_columns(table, ["x", "y", "height"])
    assert value[:, 0] == pytest.approx((np.array([0.0, 1.0, 5.0]) - 2) / np.std([0, 1, 5]))
    assert value[:, 1].tolist() == [1.0, 0.0, -1.0]
    assert value[:, 2].tolist() == [0.0, 0.0, 0.0]
    assert known.tolist() == [[True, True, True], [True, False, True], [True, True, True]]
    without = table.with_sensor_info(pl.DataFrame(INFO).filter(pl.col("sensor") != "mirror"))
    assert scale_sensor_columns(without, ["x"])[1][:, 0].tolist() == [True, False, True]


def test_without_the_setting_no_fact_is_an_input(table, queries):
    plain = Imputer(config=SMALL).fit(table)
    expected = plain.readings_at(table, queries).value
    assert not any("facts" in name for name in plain.model_.state_dict())
    for other in (moved(table, x=[9.0, -3.0, 4.0]), replace(table, sensor_info=None)):
        assert np.array_equal(answers(other, queries, SMALL), expected)
    assert np.array_equal(answers(table, queries, SMALL | {"model.sensor_facts": []}), expected)


def test_facts_that_are_asked_for_are_inputs_and_no_others(table, queries):
    expected = answers(table, queries, ASKED)
    assert not np.array_equal(expected, answers(table, queries, SMALL))
    for name in ("x", "y"):
        assert not np.array_equal(expected, answers(moved(table, **{name: [9.0, -3.0, 4.0]}), queries, ASKED))
    assert np.array_equal(expected, answers(moved(table, height=[1.0, 2.0, 4.0]), queries, ASKED))


def test_the_facts_of_training_hold_for_tables_with_others_or_none(table, queries, tmp_path):
    fitted = Imputer(config=ASKED).fit(table)
    expected = fitted.readings_at(table, queries).value
    loaded = load(fitted.save(tmp_path / "saved"))
    assert {path.suffix for path in (tmp_path / "saved").iterdir()} <= {".json", ".safetensors", ".parquet"}
    for estimator in (fitted, loaded):
        for other in (table, moved(table, x=[9.0, -3.0, 4.0]), replace(table, sensor_info=None)):
            assert np.array_equal(estimator.readings_at(other, queries).value, expected)


def test_facts_reach_attention_and_the_network_that_reads_own_readings(table, queries):
    model = Imputer(config=ASKED).fit(table).model_
    v = pl.Series([0, 1, 2]).to_torch()
    assert model.facts.of(v).shape == (3, 4)
    compared = model.facts.compare(v).numpy()  # difference, size and known, of x and y each
    x = model.facts.value[:, 0].numpy()
    assert np.array_equal(compared[..., 0], x[None, :] - x[:, None])
    assert np.array_equal(compared[..., 2], np.abs(compared[..., 0]))
    assert (compared[1, :, [1, 3, 5]] == 0).all()  # y of the second is not known
    assert (compared[:, 1, [1, 3, 5]] == 0).all()
    assert compared[..., 5].sum() == 4


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (["x", "z"], "asks for 'z', which is not a numeric column .* numeric columns: x, y, height, wrong"),
        (["city"], "asks for 'city', which is not a numeric column"),
        (["empty"], "asks for 'empty', which is not a numeric column"),
        (["wrong"], "column 'wrong' is infinite"),
    ],
)
def test_a_fact_that_is_no_number_is_refused_and_no_run_is_left(table, tmp_path, facts, message):
    with pytest.raises(DataError, match=message):
        Imputer(config=SMALL | {"model.sensor_facts": facts}).fit(table, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_table_that_does_not_describe_its_sensors_has_no_facts():
    with pytest.raises(DataError, match=r"asks for 'x', .* numeric columns: none"):
        Imputer(config=ASKED).fit(followers(12))


@pytest.mark.parametrize("wrong", ["x", [1, 2]])
def test_facts_are_a_list_of_names(table, wrong):
    with pytest.raises(ConfigError, match=r"model\.sensor_facts"):
        Imputer(config={"model.sensor_facts": wrong}).fit(table)


def test_a_forecaster_takes_facts_too(table, queries):
    fitted = Forecaster(horizon=5.0, config=ASKED).fit(table)
    grid = fitted.grid(table, every=1.0)
    assert np.isfinite(fitted.readings_at(table, grid).value).all()


def test_the_command_line_takes_facts(table, tmp_path):
    table.write(tmp_path / "data")
    settings = [f"{name}={value}" for name, value in SMALL.items()] + ['model.sensor_facts=["x","y"]']
    main(["impute", "train", str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--set", *settings])
    model = load(Path(tmp_path / "run"))
    assert model.resolved()["model"]["sensor_facts"] == ("x", "y")
    assert model.model_.facts.known.sum() == 5
