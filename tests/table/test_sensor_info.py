"""What is known about the sensors: given with the table or as a file beside it, checked, kept, and never an input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from raindrop import DataError, EventTable
from raindrop.estimators import Imputer

PLACES = pl.DataFrame({"sensor": ["y", "x"], "x": [1, 2], "y": [0.5, None], "kind": ["pump", "valve"]})


def small(**options) -> EventTable:
    columns = (["a", "a", "b"], [0.0, 1.0, 0.0], ["x", "y", "x"], [1.0, 2.0, 3.0])
    return EventTable.from_columns(*columns, **options)


def test_there_is_a_row_for_each_sensor_in_the_order_of_the_table():
    table = small().with_sensor_info(PLACES)
    assert table.sensor_columns.rows() == [("x", 2.0, None, "valve"), ("y", 1.0, 0.5, "pump")]
    assert table.sensor_columns.columns == ["sensor", "x", "y", "kind"]
    assert small().sensor_columns.rows() == [("x",), ("y",)]
    wider = replace(table, sensors=("x", "y", "z"))
    assert wider.sensor_columns.rows()[2] == ("z", None, None, None)


def test_a_frame_in_place_of_names_gives_the_order_and_the_facts():
    table = small(sensors=PLACES)
    assert table.sensors == ("y", "x")
    assert table.sensor_columns["kind"].to_list() == ["pump", "valve"]
    assert small(sensors={"sensor": ["x", "y", "z"], "floor": [1, 2, 3]}).sensor_columns["floor"].to_list() == [1, 2, 3]
    assert small(sensors=["y", "x"]).sensor_info is None


def test_facts_are_kept_when_samples_or_readings_are_selected():
    table = small().with_sensor_info(PLACES)
    for part in (table[["b"]], table.where(pl.col("time") < 1), *table.split((0.5, 0.5)), table.in_unit("days")):
        assert part.sensor_columns.equals(table.sensor_columns)


@pytest.mark.parametrize("damage", [False, True])
def test_facts_are_written_and_read_with_the_table(tmp_path: Path, damage):
    table = small().with_sensor_info(PLACES)
    table.write(tmp_path / "data")
    if damage:  # rebuilt from the Parquet files
        (tmp_path / "data" / "readings" / "time.npy").unlink()
        (tmp_path / "data" / "readings").rename(tmp_path / "gone")
    back = EventTable.read(tmp_path / "data")
    assert back.sensor_columns.equals(table.sensor_columns)
    assert back.fingerprint == table.fingerprint != small().fingerprint


def test_a_file_of_sensors_may_be_added_to_any_table(tmp_path: Path):
    small().write(tmp_path / "data")
    (tmp_path / "data" / "sensors.csv").write_text("sensor,x,y\nx,1.5,\ny,2,7\n")
    assert EventTable.read(tmp_path / "data").sensor_columns.rows() == [("x", 1.5, None), ("y", 2.0, 7.0)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sensor": ["x", "Y"]}, r"sensors: 1 of 2 rows name no sensor of the table \(first: row 2, 'Y'; did you mean"),
        ({"sensor": ["x", None]}, r"1 of 2 rows name no sensor of the table \(first: row 2"),
        ({"sensor": ["x", "x"]}, r"2 of 2 rows share their sensor with another row \(first: 'x'\)"),
        ({"name": ["x"]}, "there is no column 'sensor'"),
        (
            {"sensor": ["x"], "x": ["left"]},
            r"column 'x' is not a finite number in 1 of 1 rows \(first: row 1, 'left'",
        ),
        ({"sensor": ["x"], "y": [np.inf]}, r"column 'y' is not a finite number in 1 of 1 rows \(first: row 1, 'inf'\)"),
    ],
)
def test_bad_facts_get_one_sentence(columns, message):
    with pytest.raises(DataError, match=message):
        small().with_sensor_info(columns)


def test_models_do_not_see_facts():
    rng = np.random.default_rng(0)
    columns = (["a"] * 200, np.arange(200.0), ["x", "y"] * 100, rng.normal(size=200))
    table = EventTable.from_columns(*columns)
    asked = {"sample": ["a"], "time": [50.5], "sensor": ["x"]}
    config = {"train.holdout": 0.0, "train.epochs": 1, "train.min_steps": 2}
    values = [
        Imputer(config=config).fit(each).readings_at(each, asked).value.tolist()
        for each in (table, table.with_sensor_info(PLACES))
    ]
    assert values[0] == values[1]
