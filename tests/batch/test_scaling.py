"""Scaler: learned from the training table only, float64 throughout, identical after a JSON round trip."""

import json

import numpy as np
import polars as pl
import pytest
import torch
from closeness import tolerance

from raindrop.batch.collate import Collator
from raindrop.batch.scaling import Scaler
from raindrop.errors import DataError, RaindropWarning
from raindrop.table.event_table import EventTable


def make_table(values, statics=None, sensors=None):
    """One sample per row of `values`: {sensor: reading}."""
    rows = [(str(at), 0.0, name, value) for at, row in enumerate(values) for name, value in row.items()]
    columns = dict(zip(("sample", "time", "sensor", "value"), zip(*rows, strict=True), strict=True))
    samples = {"sample": [str(at) for at in range(len(values))], **(statics or {})}
    return EventTable.from_frames(columns, samples, statics=list(statics or ()), sensors=sensors)


def encode(train, test):
    """Statics of `test` as learned from `train`: two lists of one column."""
    fitted = Scaler.fit(make_table([{"x": 1.0}] * len(train), {"static": train}))
    return fitted.encode_statics(make_table([{"x": 1.0}] * len(test), {"static": test})).tolist()


def test_mean_and_scale_are_those_of_the_readings_of_each_sensor():
    rng = np.random.default_rng(0)
    readings = {name: rng.normal(at, at + 1, 50) for at, name in enumerate(("a", "b", "c"))}
    table = make_table([{name: readings[name][at] for name in readings} for at in range(50)])
    scaler = Scaler.fit(table)
    for at, name in enumerate(scaler.sensors):
        assert scaler.mean[at] == pytest.approx(readings[name].mean(), abs=tolerance(magnitude=at + 1))
        assert scaler.scale[at] == pytest.approx(readings[name].std(), abs=tolerance(magnitude=at + 1))


def test_only_the_training_samples_are_learned_from():
    statics = {"age": [50, 60, 70], "unit": ["A", "B", "A"]}
    table = make_table([{"x": 1.0, "y": 2.0}, {"x": 3.0}, {"y": 100.0}], statics)
    moved = make_table(
        [{"x": 1.0, "y": 2.0}, {"x": 3.0}, {"x": -1e6, "y": 1e6}], {"age": [50, 60, 999], "unit": ["A", "B", "Z"]}
    )
    fitted, again = Scaler.fit(table[:2]), Scaler.fit(moved[:2])
    assert fitted.to_dict() == again.to_dict()
    assert Scaler.fit(table).to_dict() != Scaler.fit(moved).to_dict()


def test_only_the_selected_readings_are_learned_from():
    table = make_table([{"x": 1.0}, {"x": 3.0}, {"x": 50.0}])
    assert Scaler.fit(table.where(pl.col("value") < 10)).mean.tolist() == [2.0]
    assert Scaler.fit(table[[1, 0]]).mean.tolist() == [2.0]


@pytest.mark.parametrize("value", [5.0, 0.1, 0.0, -1e6, 1e-20])
def test_a_constant_sensor_is_centred_and_not_scaled(value):
    scaler = Scaler.fit(make_table([{"x": value}] * 7))
    assert scaler.mean[0] == value
    assert scaler.scale[0] == 1.0


def test_a_sensor_that_varies_by_rounding_alone_is_constant():
    scaler = Scaler.fit(make_table([{"x": 1e6}, {"x": np.nextafter(1e6, np.inf)}]))
    assert scaler.scale[0] == 1.0


def test_a_constant_sensor_with_many_readings_is_still_constant():
    """A plain sum of 200,000 times 0.1 is off by more than the rounding of a single reading."""
    times = np.arange(200_000)
    scaler = Scaler.fit(EventTable.from_columns(["a"] * len(times), times, ["x"] * len(times), [0.1] * len(times)))
    assert scaler.mean[0] == 0.1
    assert scaler.scale[0] == 1.0


@pytest.mark.parametrize("offset", [0.0, 120_000_000_000.0, -1.7e15])
def test_readings_with_a_large_offset_are_scaled_as_without_it(offset):
    digits = np.arange(10.0)
    table = make_table([{"x": offset + digit} for digit in digits])
    scaler = Scaler.fit(table)
    assert scaler.mean[0] == offset + 4.5
    batch = Collator(table, scaler).batch(np.arange(10))
    assert batch.value.dtype == torch.float32
    assert batch.value.numpy() == pytest.approx((digits - 4.5) / digits.std(), rel=1e-6)
    back = Scaler.from_dict(json.loads(json.dumps(scaler.to_dict())))
    assert torch.equal(Collator(table, back).batch(np.arange(10)).value, batch.value)


def test_a_scaled_value_beyond_float32_is_its_largest_number():
    scaler = Scaler.fit(make_table([{"x": 1e-20}, {"x": 3e-20}]))
    scaled = scaler.scale_values(np.array([1e-20, 3e38, -3e38]), np.zeros(3, dtype=np.int64))
    largest = np.finfo(np.float32).max
    assert scaled.tolist() == [-1.0, largest, -largest]


def test_a_small_scale_is_kept_if_it_is_more_than_rounding():
    scaler = Scaler.fit(make_table([{"x": 1e-4}, {"x": 3e-4}]))
    assert scaler.scale[0] == pytest.approx(1e-4)


def test_a_sensor_without_a_training_reading_keeps_its_position_and_is_marked():
    scaler = Scaler.fit(make_table([{"x": 5.0}, {"x": 7.0}], sensors=["never", "x"]))
    assert scaler.sensors == ("never", "x")
    assert scaler.observed.tolist() == [False, True]
    assert scaler.observed_sensors == ("x",)
    assert (scaler.mean[0], scaler.scale[0]) == (0.0, 1.0)


def test_large_readings_do_not_overflow():
    scaler = Scaler.fit(make_table([{"x": 3e38}, {"x": -3e38}]))
    assert scaler.scale[0] == pytest.approx(3e38)


# ---------------------------------------------------------------- statics


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        ([1.0, 3.0], [1.0, 5.0, None, float("nan")], [[-1.0], [3.0], [0.0], [0.0]]),
        ([1, 3, None], [1, 2], [[-1.0], [0.0]]),
        ([1.0, 3.0, float("nan")], [3], [[1.0]]),
        ([True, False, None], [True, False, None], [[1.0], [-1.0], [0.0]]),
        ([None, None], [7, None], [[7.0], [0.0]]),
        ([4, 4], [4, 5], [[0.0], [1.0]]),
        (["b", "a", None, ""], ["a", "b", None, "", "c"], [[1, 0], [0, 1], [0, 0], [0, 0], [0, 0]]),
        (["7", "10"], [10, 7, 8], [[1, 0], [0, 1], [0, 0]]),
    ],
    ids=["float", "int", "nan", "bool", "all null", "constant", "text", "numbers for text"],
)
def test_statics_are_encoded_as_learned_in_training(train, test, expected):
    assert encode(train, test) == expected


def test_a_constant_static_is_not_divided_by_its_rounding():
    assert np.allclose(encode([0.1, 0.1, 0.1], [0.1, 0.2]), [[0.0], [0.1]])


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["z", "a", "b"])])
def test_categories_are_learned_from_values_and_not_from_the_type(dtype):
    assert encode(pl.Series(["b", "a"], dtype=dtype), pl.Series(["a", "z"], dtype=dtype)) == [[1, 0], [0, 0]]


def test_statics_are_concatenated_in_the_order_named():
    table = make_table([{"x": 1.0}] * 2, {"unit": ["B", "A"], "age": [1, 3]})
    scaler = Scaler.fit(table)
    assert scaler.static_width == 3
    assert scaler.encode_statics(table).tolist() == [[0, 1, -1], [1, 0, 1]]
    assert scaler.encode_statics(table[[1]]).tolist() == [[1, 0, 1]]


def test_without_statics_the_encoding_is_empty():
    table = make_table([{"x": 1.0}] * 2)
    assert Scaler.fit(table).encode_statics(table).shape == (2, 0)


# ---------------------------------------------------------------- JSON


def test_a_scaler_comes_back_from_json_identical():
    rng = np.random.default_rng(0)
    statics = {"age": rng.normal(size=30), "unit": ["é", "b", None] * 10, "void": [None] * 30}
    table = make_table([{"x": value, "ÿ": value * np.pi} for value in rng.normal(size=30)], statics)
    scaler = Scaler.fit(table)
    back = Scaler.from_dict(json.loads(json.dumps(scaler.to_dict())))
    assert back.to_dict() == scaler.to_dict()
    assert back.statics == scaler.statics
    assert np.array_equal(back.mean, scaler.mean)
    assert np.array_equal(back.scale, scaler.scale)
    assert np.array_equal(back.observed, scaler.observed)
    assert back.mean.dtype == back.scale.dtype == np.float64
    assert np.array_equal(back.encode_statics(table), scaler.encode_statics(table))


def test_a_scaler_written_by_0_1_counts_every_sensor_as_observed():
    content = Scaler.fit(make_table([{"x": 5.0}], sensors=["x", "never"])).to_dict()
    del content["observed"]
    assert Scaler.from_dict(content).observed.tolist() == [True, True]


# ---------------------------------------------------------------- sensors by name


def test_sensors_are_matched_by_name():
    scaler = Scaler.fit(make_table([{"a": 1.0, "b": 2.0, "c": 3.0}]))
    assert scaler.sensor_codes(make_table([{"c": 1.0, "a": 1.0}])).tolist() == [0, 2]


def test_an_unknown_sensor_is_an_error_unless_it_is_ignored_or_has_no_reading():
    scaler = Scaler.fit(make_table([{"HR": 1.0}]))
    table = make_table([{"HR": 1.0, "hr": 1.0}, {"hr": 2.0}])
    with pytest.raises(DataError) as caught:
        scaler.sensor_codes(table)
    assert str(caught.value).startswith("1 sensor was not read in training (first: 'hr'; 2 of 3 readings)")
    assert "unknown_sensors='ignore'" in str(caught.value)
    assert scaler.sensor_codes(table, ignore_unknown=True).tolist() == [0, -1]
    assert scaler.sensor_codes(table.where(pl.col("sensor") == "HR")).tolist() == [0, -1]


def test_a_sensor_without_a_training_reading_is_unknown_even_if_it_was_listed():
    training = make_table([{"HR": 1.0}, {"HR": 3.0}], sensors=["rare", "HR"])
    scaler = Scaler.from_dict(json.loads(json.dumps(Scaler.fit(training).to_dict())))
    assert Collator(training, scaler).batch(np.arange(2)).sensor.tolist() == [1, 1]
    table = make_table([{"HR": 1.0}, {"HR": 3.0, "rare": 1e6}], sensors=["rare", "HR"])
    with pytest.raises(DataError) as caught:
        scaler.sensor_codes(table)
    assert str(caught.value).startswith("1 sensor was not read in training (first: 'rare'; 1 of 3 readings).\n")
    assert "unknown_sensors='ignore'" in str(caught.value)
    assert scaler.sensor_codes(table, ignore_unknown=True).tolist() == [-1, 1]
    assert scaler.sensor_codes(table.where(pl.col("sensor") == "HR")).tolist() == [-1, 1]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([1.0, float("inf")], [1.0], "static 'static' is infinite in 1 of 2 rows (first: row 2)"),
        ([1.0, 1e39], [1.0], "static 'static' is infinite in 1 of 2 rows (first: row 2)"),
        ([1.0, 2.0], [-float("inf")], "static 'static' is infinite in 1 of 1 rows (first: row 1)"),
        ([1.0, 2.0], ["old"], "static 'static' was a number in training and is String here"),
        ([[1], [2]], [[1]], "static 'static' is of type List(Int64), which is neither a number nor a category"),
        ([f"id {at}" for at in range(101)], ["id 1"], "static 'static' has 101 different text values"),
    ],
)
def test_an_unusable_static_is_reported_by_name(train, test, message):
    with pytest.raises(DataError) as caught:
        encode(train, test)
    assert str(caught.value).startswith(f"samples: {message}")


def test_a_static_without_a_column_at_prediction_is_unknown_as_an_empty_one_is():
    train = {"weight": [60.0, 80.0], "ward": ["a", "b"], "age": [1.0, 2.0]}
    scaler = Scaler.fit(make_table([{"x": 1.0}] * 2, train))
    empty = make_table([{"x": 1.0}], {"weight": [None], "ward": [""], "age": [3.0]})
    absent = make_table([{"x": 1.0}], {"Weight": [70.0], "age": [3.0]})
    with pytest.warns(
        RaindropWarning, match=r"2 of 3 static attributes .* \(first: 'weight'\).* did you mean 'Weight'"
    ):
        encoded = scaler.encode_statics(absent)
    assert encoded.tolist() == scaler.encode_statics(empty).tolist()


def test_a_numeric_static_that_is_all_missing_text_is_unknown():
    assert encode([1.0, 3.0], ["", " "]) == [[0.0], [0.0]]
