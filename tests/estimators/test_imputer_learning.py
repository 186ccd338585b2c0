"""Imputer: it learns from other sensors and needs no labels, from many samples or one long series."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from closeness import assert_close
from followers import LEARNING, SMALL, followers, hide_blocks
from refusal import is_sound

from raindrop import DataError, EventTable, RaindropWarning
from raindrop.batch.gaps import Gaps
from raindrop.errors import ConfigError
from raindrop.estimators import Forecaster, Imputer, load


@pytest.fixture(scope="module")
def train() -> EventTable:
    return followers(40, seed=0)


@pytest.fixture(scope="module")
def test() -> tuple[EventTable, pl.DataFrame]:
    """A table with blocks hidden, and the hidden readings."""
    return hide_blocks(followers(30, seed=1))


@pytest.fixture(scope="module")
def imputer(train: EventTable) -> Imputer:
    """Learned something."""
    return Imputer(config=LEARNING).fit(train)


@pytest.fixture(scope="module")
def small(train: EventTable) -> Imputer:
    """Learned next to nothing, in a fraction of a second."""
    return Imputer(config=SMALL).fit(train)


def values(imputer: Imputer, table: EventTable, queries: Any) -> list[np.ndarray]:
    answers = imputer.readings_at(table, queries)
    return [answers.value, answers.low, answers.high]


# ---------------------------------------------------------------- learning


@pytest.mark.slow
def test_messages_from_a_sensor_that_others_follow_halve_the_error(imputer, train, test):
    with_messages = imputer.evaluate(*test)["mae"]
    without = Imputer(config=LEARNING | {"model.messages": False}).fit(train).evaluate(*test)["mae"]
    linear = Imputer("linear").fit(train).evaluate(*test)["mae"]
    assert with_messages < 0.6 * without
    assert with_messages < 0.6 * linear


@pytest.mark.slow
@pytest.mark.parametrize("model", ["raindrop", "linear"])
def test_intervals_cover_as_much_of_fresh_readings_as_asked(model):
    """Readings hidden like those of training, of samples that were used for nothing else.

    Whole gaps are easy or hard: 300 samples with their own gaps leave a standard error of about a point.
    """
    config = SMALL | {"train.epochs": 8, "train.batch_readings": 600} if model == "raindrop" else None
    fresh = followers(300, hours=20, seed=7)
    fitted = Imputer(model, config=config).fit(followers(40), validation=followers(300, hours=20, seed=6))
    owner, rows = np.repeat(np.arange(len(fresh)), fresh.count), fresh.rows()
    sensor, every = fresh.sensor[rows].astype(np.int64), np.ones(len(rows), dtype=bool)
    gaps = Gaps.learn(fresh, fitted.interval_)
    hidden, _ = gaps.draw(np.random.default_rng(3), owner, sensor, fresh.time[rows], every, len(fresh))
    metrics = fitted.evaluate(fresh.where(~hidden), fresh.events().filter(hidden))
    assert metrics["coverage_80"] == pytest.approx(0.80, abs=0.03)
    assert metrics["coverage_95"] == pytest.approx(0.95, abs=0.02)


@pytest.mark.slow
def test_senders_are_the_other_sensors_with_weights_that_sum_to_at_most_1(small, test):
    visible, hidden = test
    queries = hidden.select("sample", "time", "sensor")[::-7]
    found = small.senders(visible, queries)
    assert found.columns == ["sample", "time", "sensor", "sender", "weight"]
    assert len(found) == 2 * len(queries)
    assert found.select("sample", "time", "sensor")[::2].rows() == queries.cast({"sensor": pl.String}).rows()
    assert (found["sender"] != found["sensor"]).all()
    assert (found["weight"] >= 0).all()
    assert found.group_by("sample", "time", "sensor").agg(pl.col("weight").sum())["weight"].max() <= 1
    without_messages = Imputer(config=SMALL | {"model.messages": False}).fit(visible)
    with pytest.raises(ConfigError, match="passes no messages"):
        without_messages.senders(visible, queries)


@pytest.mark.slow
def test_labels_are_never_used(train, test):
    rng = np.random.default_rng(0)
    queries = test[1].drop("value")
    found = []
    for labels in (None, rng.integers(0, 2, len(train)), rng.permutation(len(train)) % 5):
        table = train if labels is None else train.with_labels(labels)
        found.append(values(Imputer(config=SMALL).fit(table), test[0], queries))
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_samples_of_a_group_stay_together_when_some_are_held_out(train, monkeypatch):
    people = pl.Series([f"p{b // 4}" for b in range(len(train))])
    table = replace(train, samples=train.samples.with_columns(person=people)).with_roles(group="person")
    parts = {}
    for name in ("_training_source", "_validation_source"):
        source = getattr(Imputer, name)

        def keep(self, table, name=name, source=source):
            parts[name] = set(table.samples["person"])
            return source(self, table)

        monkeypatch.setattr(Imputer, name, keep)
    Imputer("linear").fit(table)
    training, held_out = parts["_training_source"], parts["_validation_source"]
    assert len(training) + len(held_out) == 10
    assert training
    assert held_out
    assert not training & held_out


@pytest.mark.slow
@pytest.mark.parametrize(
    "listed", [("same", "lead", "mirror"), ("mirror", "same"), ("other", "lead", "same", "mirror")]
)
def test_a_validation_table_may_list_its_sensors_in_another_order_or_fewer_or_more(train, test, listed):
    columns = followers(12, seed=5).events().filter(pl.col("sensor").cast(pl.String).is_in(listed))
    validation = EventTable.from_frames(columns.cast({"sensor": pl.String}), sensors=listed)
    fitted = Imputer(config=SMALL).fit(train, validation=validation)
    assert np.isfinite(fitted.history_[0]["validation"]["mae"])
    in_training_order = replace(followers(12, seed=5), roles=train.roles)
    if len(listed) >= 3:
        expected = Imputer(config=SMALL).fit(train, validation=in_training_order)
        assert_close(fitted.history_[0]["validation"]["mae"], expected.history_[0]["validation"]["mae"], dtype="f4")


@pytest.mark.slow
def test_samples_without_readings_do_not_disturb_training(train, small):
    """Some batches have nothing but such samples."""
    gone = np.isin(np.repeat(np.arange(40), train.count), np.arange(1, 40, 2))
    fitted = Imputer(config=SMALL | {"train.batch_readings": 1, "train.epochs": 1}).fit(train.where(~gone))
    assert np.isfinite(fitted.history_[0]["loss"])


def test_training_settings_that_hide_readings_themselves_are_refused(train):
    for name in ("drop_readings", "drop_sensors", "soft_targets"):
        with pytest.raises(ConfigError, match=f"train.{name}.* have no effect here"):
            Imputer(config={f"train.{name}": 0.1}).fit(train)


def test_a_table_without_readings_cannot_be_learned_from(train):
    empty = train.where(np.zeros(train.num_readings, dtype=bool))
    with pytest.raises(DataError, match="training table has no readings"):
        Imputer(config=SMALL).fit(empty)
    with pytest.raises(DataError, match="validation table has no readings"):
        Imputer(config=SMALL).fit(train, validation=empty)


# ---------------------------------------------------------------- one long series


@pytest.mark.slow
def test_one_long_series_is_learned_and_filled_like_many_short_ones(tmp_path):
    series = followers(1, hours=1200, seed=2)
    fitted = Imputer(config=SMALL | {"train.batch_readings": 1500}).fit(series)
    assert "validation" in fitted.history_[0]  # windows were held out
    visible, hidden = hide_blocks(followers(1, hours=1200, seed=3), 200.0)
    metrics = fitted.evaluate(visible, hidden)
    assert np.isfinite(list(metrics.values())).all()
    filled = fitted.fill(visible)
    assert is_sound(filled)
    assert filled.filled.sum() > 300
    assert filled.num_readings == visible.num_readings + filled.filled.sum()


def test_a_series_too_short_to_hold_windows_out_is_learned_with_a_warning(test):
    short = followers(2, hours=40)
    with pytest.warns(RaindropWarning, match="No validation samples are held out"):
        fitted = Imputer(config=SMALL).fit(short)
    assert "validation" not in fitted.history_[0]


def test_a_long_series_is_interpolated_across_the_edges_of_its_windows():
    series = followers(1, hours=1500, seed=4)
    fitted = Imputer("linear").fit(series)
    events = series.events()
    times = np.random.default_rng(0).uniform(1, 1499, 400)
    asked = pl.DataFrame({"sample": ["s000"] * 400, "time": times, "sensor": ["same"] * 400})
    own = events.filter(pl.col("sensor") == "same")
    expected = np.interp(times, own["time"], own["value"])
    scale = float(np.abs(own["value"].to_numpy()).max())
    assert_close(fitted.readings_at(series, asked).value, expected, magnitude=scale, dtype=np.float32)


# ---------------------------------------------------------------- time of day


def daily(dated: bool, *, days: int = 60, seed: int = 0, unit: Any = "hours") -> EventTable:
    """A pump that runs from 9 to 13 every morning; its readings come about once an hour, from 04:30 on."""
    rng = np.random.default_rng(seed)
    hours = np.arange(24 * days) + rng.uniform(0, 0.9, 24 * days)
    clock = (hours + 4.5) % 24
    value = 5.0 * ((clock > 9) & (clock < 13)) + 0.1 * rng.normal(size=len(hours))
    start = datetime(2026, 3, 1, 4, 30)
    time = pl.Series([start + timedelta(hours=float(hour)) for hour in hours]) if dated else hours
    return EventTable.from_columns(["plant"] * len(hours), time, ["pump"] * len(hours), value, time_unit=unit)


def mornings(table: EventTable) -> tuple[EventTable, pl.DataFrame]:
    """The table without most of its mornings, and the readings of these: dates where the table has dates."""
    hours = table.time[table.rows()] * {"hours": 1.0, "minutes": 1 / 60}[table.time_unit]
    clock = (hours + 4.5) % 24
    hidden = (clock > 7) & (clock < 15) & ((hours // 24) % 3 > 0)
    return table.where(~hidden), table.events().filter(pl.Series(hidden))


def with_zone(table: EventTable) -> EventTable:
    return replace(table, samples=table.samples.with_columns(pl.col("time_zero").dt.replace_time_zone("UTC")))


def test_boosted_trees_learn_what_happens_at_which_time_of_day():
    errors = {}
    for dated in (True, False):
        imputer = Imputer("trees", config={"model.rounds": 40, "model.patience": 40}).fit(daily(dated, days=30))
        errors[dated] = imputer.evaluate(*mornings(daily(dated, days=30, seed=1)))["mae"]
    assert errors[True] < 0.8 * errors[False]


def test_a_forecaster_of_dated_readings_knows_the_time_of_day():
    table = daily(True, days=12)
    forecaster = Forecaster(horizon=6, config=SMALL | {"train.holdout": 0.0}).fit(table)
    later = table.samples.with_columns(pl.col("time_zero") + pl.duration(hours=8))
    queries = pl.DataFrame({"sample": ["plant"], "time": [table.time.max() + 3.5], "sensor": ["pump"]})
    first, second = (forecaster.readings_at(each, queries).value for each in (table, replace(table, samples=later)))
    assert first != second


@pytest.mark.parametrize("column", [pl.lit("noon"), pl.lit(3.5), pl.lit(None).cast(pl.Date)])
def test_a_time_zero_that_is_no_date_time_is_refused(column):
    table = daily(False, days=40)
    with pytest.raises(DataError, match=r"^The column 'time_zero' of the samples is of type .* It needs date times: "):
        Imputer("linear").fit(replace(table, samples=table.samples.with_columns(time_zero=column)))


def test_tables_on_another_clock_than_the_training_table_are_refused():
    table = daily(True, days=12)
    imputer = Imputer(config=SMALL | {"train.holdout": 0.0}).fit(with_zone(table))
    queries = pl.DataFrame({"sample": ["plant"], "time": [7.5], "sensor": ["pump"]})
    refused = r"^The date times of this table have no time zone, and those of training had one, so their times of day "
    for use in (
        lambda: imputer.readings_at(table, queries),
        lambda: imputer.calibrate(table),
        lambda: Imputer(config=SMALL).fit(with_zone(table), validation=table),
    ):
        with pytest.raises(DataError, match=refused):
            use()
    assert np.isfinite(imputer.readings_at(with_zone(table), queries).value).all()


@pytest.mark.slow
def test_a_model_of_dated_readings_learns_what_happens_at_which_time_of_day(tmp_path):
    config = LEARNING | {"train.epochs": 90}
    errors = {}
    for dated in (True, False):
        imputer = Imputer(config=config).fit(daily(dated))
        errors[dated] = imputer.evaluate(*mornings(daily(dated, seed=1)))["mae"]
        if dated:
            known = imputer
    assert errors[True] < 0.5 * errors[False]
    visible, truth = mornings(daily(True, seed=1))
    answers = known.readings_at(visible, truth).value
    known.save(tmp_path / "run")
    assert np.array_equal(load(tmp_path / "run").readings_at(visible, truth).value, answers)
    in_minutes, same = mornings(daily(True, seed=1, unit="minutes"))
    assert_close(known.readings_at(in_minutes, same).value, answers, magnitude=10.0)
    undated = known.evaluate(*mornings(daily(False, seed=1)))["mae"]  # worse, but no worse than one that never knew
    assert errors[True] < undated < 1.3 * errors[False]
