"""Imputer: what can be asked of it, and answers that are the same however the table comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from closeness import assert_close
from followers import SENSORS, SMALL, followers, hide_blocks
from refusal import is_sound
from sklearn.base import clone

from raindrop import DataError, EventTable, load
from raindrop.errors import ConfigError
from raindrop.estimators import Imputer
from raindrop.table.queries import grid, in_gaps


@pytest.fixture(scope="module")
def train() -> EventTable:
    return followers(40, seed=0)


@pytest.fixture(scope="module")
def test() -> tuple[EventTable, pl.DataFrame]:
    """A table with blocks hidden, and the hidden readings."""
    return hide_blocks(followers(30, seed=1))


@pytest.fixture(scope="module")
def small(train: EventTable) -> Imputer:
    """Learned next to nothing, in a fraction of a second."""
    return Imputer(config=SMALL).fit(train)


def values(imputer: Imputer, table: EventTable, queries: Any) -> list[np.ndarray]:
    answers = imputer.readings_at(table, queries)
    return [answers.value, answers.low, answers.high]


# ---------------------------------------------------------------- asking


def test_a_query_at_a_reading_is_answered_as_if_that_reading_were_not_there(small, test):
    table = test[0]
    events = table.events()
    rng = np.random.default_rng(0)
    for row in rng.choice(len(events), 5, replace=False):
        asked = events[[int(row)]].drop("value")
        alone = table.where(np.arange(len(events)) != row)
        first, last = alone.events().filter(pl.col("sample") == asked["sample"][0])["time"].to_numpy()[[0, -1]]
        if not first <= asked["time"][0] <= last:
            continue
        answers = zip(values(small, table, asked), values(small, alone, asked), strict=True)
        for with_it, without in answers:
            assert_close(with_it, without, dtype=np.float32)


def test_answers_come_in_the_order_of_the_queries(small, test):
    queries = test[1].drop("value")
    order = np.random.default_rng(0).permutation(len(queries))
    expected, turned = values(small, test[0], queries), values(small, test[0], queries[order])
    for one, other in zip(expected, turned, strict=True):
        assert_close(other, one[order], dtype=np.float32)
    answers = small.readings_at(test[0], queries[order])
    assert answers.frame().drop("value", "low", "high").rows() == queries[order].cast({"sensor": pl.String}).rows()
    assert (answers.low <= answers.value).all()
    assert (answers.value <= answers.high).all()


def test_a_higher_coverage_has_wider_intervals(small, test):
    queries = test[1].drop("value")
    narrow, wide = (small.readings_at(test[0], queries, coverage=coverage) for coverage in (0.5, 0.95))
    assert (wide.high - wide.low).mean() > 1.5 * (narrow.high - narrow.low).mean()
    assert np.array_equal(narrow.value, wide.value)
    with pytest.raises(ConfigError, match=r"coverage=1\.5"):
        small.readings_at(test[0], queries, coverage=1.5)


# ---------------------------------------------------------------- calibrating on another table


def share_inside(imputer: Imputer, table: EventTable, truth: pl.DataFrame, coverage: float) -> float:
    answers = imputer.readings_at(table, truth.drop("value"), coverage=coverage)
    value = truth["value"].to_numpy()
    return float(((answers.low <= value) & (value <= answers.high)).mean())


@pytest.fixture
def noisy() -> tuple[EventTable, pl.DataFrame]:
    """A table whose sensors are much noisier than those of training."""
    return hide_blocks(followers(60, seed=5, noise=6.0), length=4.0)


def test_calibrated_on_a_noisier_table_intervals_cover_what_was_asked_there(train, noisy):
    imputer = Imputer(config=SMALL).fit(train)
    visible, truth = noisy
    before = imputer.readings_at(visible, truth.drop("value"))
    assert share_inside(imputer, visible, truth, 0.8) < 0.65
    assert imputer.calibrate(visible) is imputer
    for coverage in (0.8, 0.95):
        assert share_inside(imputer, visible, truth, coverage) == pytest.approx(coverage, abs=0.07)
    after = imputer.readings_at(visible, truth.drop("value"))
    assert np.array_equal(after.value, before.value)


def test_calibration_does_not_depend_on_the_order_of_sensors_or_the_time_unit(train, noisy):
    visible, truth = noisy
    turned = EventTable.from_frames(visible.events(), sensors=visible.sensors[::-1]).in_unit("minutes")
    answers = []
    for table in (visible, turned):
        imputer = Imputer(config=SMALL).fit(train).calibrate(table)
        answers.append(imputer.readings_at(visible, truth.drop("value")))
    assert_close(answers[0].low, answers[1].low, dtype=np.float32, magnitude=100)
    assert_close(answers[0].high, answers[1].high, dtype=np.float32, magnitude=100)


def test_a_calibration_is_saved_with_the_model(train, noisy, tmp_path):
    visible, truth = noisy
    imputer = Imputer(config=SMALL).fit(train).calibrate(visible)
    imputer.save(tmp_path / "calibrated")
    before, after = (
        each.readings_at(visible, truth.drop("value")) for each in (imputer, load(tmp_path / "calibrated"))
    )
    assert np.array_equal(before.low, after.low)
    assert np.array_equal(before.high, after.high)


def test_a_table_with_too_few_readings_cannot_calibrate(small):
    with pytest.raises(DataError, match=r"of the table's 90 readings could be hidden .*; at least 100 are needed"):
        small.calibrate(followers(1, seed=3))
    with pytest.raises(DataError, match="Only 0 of the table's 0 readings"):
        small.calibrate(followers(1, seed=3).where(np.zeros(90, dtype=bool)))


@pytest.mark.parametrize("unit", ["minutes", "seconds", "days"])
def test_a_table_in_another_time_unit_gives_the_same_values(small, test, unit):
    visible, hidden = test[0], test[1].drop("value")
    factor = {"minutes": 60.0, "seconds": 3600.0, "days": 1 / 24}[unit]
    other = visible.in_unit(unit)
    moved = hidden.with_columns(pl.col("time") * factor)
    for one, another in zip(values(small, visible, hidden), values(small, other, moved), strict=True):
        assert_close(one, another, magnitude=100, dtype=np.float32)
    assert small.fill(other).filled.sum() == small.fill(visible).filled.sum()


def test_sensors_in_another_order_give_the_same_values(small, test):
    visible, hidden = test[0], test[1].drop("value")
    names = ("same", "lead", "mirror")
    turned = EventTable.from_frames(visible.events().cast({"sensor": pl.String}), sensors=names)
    for one, other in zip(values(small, visible, hidden), values(small, turned, hidden), strict=True):
        assert_close(other, one, dtype=np.float32)


def test_a_sensor_that_the_table_does_not_list_can_be_asked_for_and_is_filled(small, test):
    events = test[0].events().filter(pl.col("sensor") != "same").cast({"sensor": pl.String})
    without = EventTable.from_frames(events)
    assert without.sensors == ("lead", "mirror")
    never_read = test[0].where(pl.col("sensor") != "same")
    queries = test[1].filter(pl.col("sensor") == "same").drop("value")
    for one, other in zip(values(small, without, queries), values(small, never_read, queries), strict=True):
        assert np.array_equal(one, other)
    filled = small.fill(without)
    assert set(filled.events().filter(pl.col("filled"))["sensor"]) >= {"same"}
    assert is_sound(filled)


def test_unknown_sensors_are_an_error_or_ignored(small, test):
    rows = test[0].events().cast({"sensor": pl.String})
    strange = pl.DataFrame({"sample": ["s000"], "time": [3.0], "sensor": ["colour"], "value": [1.0]})
    table, queries = EventTable.from_frames(pl.concat([rows, strange])), test[1].drop("value")
    with pytest.raises(DataError, match=r"not read in training \(first: 'colour'"):
        small.readings_at(table, queries)
    ignoring = clone(small).set_params(unknown_sensors="ignore").fit(followers(40, seed=0))
    for one, other in zip(values(ignoring, table, queries), values(small, test[0], queries), strict=True):
        assert_close(one, other, dtype=np.float32)
    with pytest.raises(DataError, match="ask for a sensor without a training reading"):
        ignoring.readings_at(table, {"sample": ["s000"], "time": [3.0], "sensor": ["colour"]})


def test_gaps_are_filled_where_a_sensor_was_silent_and_marked(small, test):
    visible = test[0]
    filled = small.fill(visible)
    expected = in_gaps(visible, small.interval_).frame()
    marked = filled.events().filter(pl.col("filled"))
    key = ["sample", "sensor", "time"]
    assert marked.select(key).cast({"sensor": pl.String}).sort(key).equals(expected.select(key).sort(key))
    own = filled.events().filter(~pl.col("filled")).drop("filled")
    assert own.equals(visible.events())
    again = small.readings_at(visible, expected).frame().sort(key)
    assert marked.cast({"sensor": pl.String}).sort(key)["value"].to_list() == again["value"].to_list()


def test_a_table_without_gaps_stays_as_it_is(small):
    hours = np.arange(20.0)
    rows = [(name, float(hour), sensor, 1.0) for name in ("a", "b") for hour in hours for sensor in SENSORS]
    table = EventTable.from_columns(*zip(*rows, strict=True))
    filled = small.fill(table)
    assert not filled.filled.any()
    assert filled.events().drop("filled").equals(table.events())


def test_times_and_frames_can_be_filled_too(small, test):
    table = test[0][:3]
    at = [5.0, 12.5]
    filled = small.fill(table, at)
    assert filled.filled.sum() == 2 * 3 * 3
    assert set(filled.events().filter(pl.col("filled"))["time"]) == set(at)
    every = grid(table, 4.0, ["same"])
    own = table.events().select("sample", "time", "sensor").cast({"sensor": pl.String})
    assert small.fill(table, every).filled.sum() == len(every.join(own, on=own.columns, how="anti"))
    with pytest.raises(ConfigError, match="at='holes'"):
        small.fill(table, "holes")


BAD = {
    "unknown sensor": (
        {"sensor": ["smae"]},
        "is not a sensor of the table .first: row 1, 'smae'.: did you mean 'same'",
    ),
    "unknown sample": ({"sample": ["p7"]}, "is not in the table .first: row 1, 'p7'."),
    "before the sample": ({"time": [-9.0]}, "lie before the first reading of their sample .* ask for later times"),
    "after the sample": ({"time": [900.0]}, "ask a Forecaster for what comes after"),
    "twice": ({name: [x] * 2 for name, x in (("sample", "s000"), ("time", 5.0), ("sensor", "same"))}, "repeat another"),
    "none": ({"sample": [], "time": [], "sensor": []}, "There are no queries"),
    "no time": ({"time": [float("nan")]}, "have no finite time"),
    "text": ({"time": ["noon"]}, "'time' is of type String, not a number"),
}


@pytest.mark.parametrize(("columns", "message"), BAD.values(), ids=BAD)
def test_each_bad_query_gets_one_sentence(small, test, columns, message):
    queries = {"sample": ["s000"], "time": [5.0], "sensor": ["same"]} | columns
    for ask in (small.readings_at, small.fill):
        with pytest.raises(DataError, match=message):
            ask(test[0], queries)


def test_what_cannot_be_asked_of_any_table(small, test):
    with pytest.raises(DataError, match="takes an EventTable"):
        small.readings_at(test[1], test[1])
    with pytest.raises(DataError, match="table is empty"):
        small.readings_at(test[0][:0], test[1])


# ---------------------------------------------------------------- judging


def test_evaluation_equals_loops_over_the_readings(small, test):
    visible, hidden = test
    metrics = small.evaluate(visible, hidden)
    answers = small.readings_at(visible, hidden.drop("value"), coverage=0.8)
    errors = [float(x) - truth for x, truth in zip(answers.value, hidden["value"], strict=True)]
    assert metrics["mae"] == pytest.approx(sum(map(abs, errors)) / len(errors), rel=1e-6)
    assert metrics["rmse"] == pytest.approx((sum(e * e for e in errors) / len(errors)) ** 0.5, rel=1e-6)
    scale = dict(zip(small.scaler_.sensors, small.scaler_.scale, strict=True))
    by_sensor = [
        np.mean([abs(e) / scale[name] for e, name in zip(errors, hidden["sensor"], strict=True) if name == sensor])
        for sensor in ("mirror", "same")
    ]
    assert metrics["standardised_mae"] == pytest.approx(np.mean(by_sensor), rel=1e-5)
    inside = (answers.low <= hidden["value"].to_numpy()) & (hidden["value"].to_numpy() <= answers.high)
    assert metrics["coverage_80"] == pytest.approx(inside.mean(), abs=2 / len(errors))


def test_readings_that_are_judged_are_hidden_if_the_table_still_has_them(small, test):
    visible, hidden = test
    complete = followers(30, seed=1)
    assert complete.num_readings == visible.num_readings + len(hidden)
    assert small.evaluate(complete, hidden) == pytest.approx(small.evaluate(visible, hidden), rel=1e-6)


# ---------------------------------------------------------------- saving


def test_a_saved_imputer_gives_identical_readings(small, test, tmp_path):
    queries = test[1].drop("value")
    again = load(small.save(tmp_path / "model"))
    assert type(again) is Imputer
    for one, other in zip(values(small, test[0], queries), values(again, test[0], queries), strict=True):
        assert np.array_equal(one, other)
    assert again.fill(test[0]).events().equals(small.fill(test[0]).events())
    assert again.senders(test[0], queries).equals(small.senders(test[0], queries))


@pytest.mark.parametrize("model", ["mean", "last", "linear", "nearest"])
def test_baselines_are_fitted_saved_and_loaded_too(model, train, test, tmp_path):
    fitted = Imputer(model).fit(train)
    queries = test[1].drop("value")
    again = load(fitted.save(tmp_path / "model"))
    for one, other in zip(values(fitted, test[0], queries), values(again, test[0], queries), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.slow
def test_a_run_of_an_imputer_can_be_loaded(train, test, tmp_path: Path):
    queries = test[1].drop("value")
    fitted = Imputer(config=SMALL).fit(train, run=tmp_path / "run")
    for one, other in zip(
        values(fitted, test[0], queries), values(load(tmp_path / "run"), test[0], queries), strict=True
    ):
        assert np.array_equal(one, other)


@pytest.mark.slow
def test_parameters_are_kept_as_they_came_and_cloned(train, test):
    config = dict(SMALL)
    first = Imputer("raindrop", config=config, seed=3)
    assert first.get_params() == {
        "model": "raindrop",
        "preset": "tuned",
        "config": config,
        "seed": 3,
        "unknown_sensors": "error",
        "device": "cpu",
        "threads": None,
        "progress": False,
    }
    second = clone(first)
    assert second.get_params() == first.get_params()
    queries = test[1].drop("value")
    found = [values(estimator.fit(train), test[0], queries) for estimator in (first, second)]
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))  # the same seed, the same answers
    other = values(clone(first).set_params(seed=4).fit(train), test[0], queries)
    assert not np.array_equal(other[0], found[0][0])
