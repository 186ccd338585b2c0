"""Baselines of a fitted estimator need no training data and agree with baselines that were fitted on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from waves import QUICK, wave_table

from raindrop import ConfigError, EventTable, Forecaster, Imputer, load
from raindrop.estimators.simple_baselines import baseline_names, simple_baseline
from raindrop.table.hide import hold_out_blocks, hold_out_future


def hourly(samples: int = 20, seed: int = 0) -> EventTable:
    """Waves whose sensors are read on the hour, so at the same times."""
    events = wave_table(samples, seed=seed).events()
    return EventTable.from_frames(events.with_columns(pl.col("time").round()), duplicates="last")


@pytest.mark.parametrize("model", ["mean", "last", "linear", "nearest"])
def test_a_baseline_of_a_saved_imputer_is_the_one_fitted_on_its_training_table(model, tmp_path):
    training, table = hourly(), hourly(5, seed=1)
    saved = Imputer(config=QUICK, seed=3).fit(training).save(tmp_path / "run")
    visible, truth = hold_out_blocks(table, 5.0)
    fitted = Imputer(model, seed=3).fit(training).evaluate(visible, truth)
    expected = {name: value for name, value in fitted.items() if not name.startswith("coverage")}
    assert simple_baseline(load(saved), model).evaluate(visible, truth) == pytest.approx(expected, rel=1e-6)


def test_a_forecaster_has_baselines_too_with_its_horizon_and_cutoff():
    fc = Forecaster(horizon=4.0, cutoff=12.0, config=QUICK).fit(wave_table())
    baseline = simple_baseline(fc, "last")
    assert (baseline.model, baseline.horizon, baseline.cutoff) == ("last", 4.0, 12.0)
    visible, truth = hold_out_future(wave_table(5, seed=1), 12.0, 4.0)
    expected = Forecaster("last", horizon=4.0, cutoff=12.0).fit(wave_table()).evaluate(visible, truth)
    assert baseline.evaluate(visible, truth)["mae"] == pytest.approx(expected["mae"], rel=1e-6)
    assert fc.model == "raindrop"


def test_a_grid_has_every_sensor_of_training_and_only_times_that_can_be_answered():
    table = wave_table(sensors=3)
    imputer = Imputer("linear").fit(table)
    few = wave_table(2, sensors=2, seed=1)
    queries = imputer.grid(few, 5.0)
    assert set(queries["sensor"]) == {"u0", "u1", "u2"}
    assert queries["time"].unique().sort().to_list() == [5.0, 10.0, 15.0, 20.0]
    assert len(imputer.readings_at(few, queries)) == len(queries) == 2 * 4 * 3
    forecaster = Forecaster("last", horizon=2.0, cutoff=12.0).fit(table)
    in_minutes = few.in_unit("minutes")
    asked = forecaster.grid(in_minutes, 60.0)
    assert asked["time"].unique().sort().to_list() == [780.0, 840.0]
    assert len(forecaster.readings_at(in_minutes, asked)) == 2 * 2 * 3


def test_the_nearest_sensors_are_a_baseline_where_they_can_be_known(tmp_path):
    fitted = Imputer("linear").fit(hourly())
    assert baseline_names(fitted) == ("last", "mean", "nearest")
    assert baseline_names(load(fitted.save(tmp_path / "run"))) == ("last", "mean", "nearest")
    assert baseline_names(Imputer("linear").fit(wave_table())) == ("last", "mean")  # no two readings at one time
    assert baseline_names(Imputer("nearest").fit(hourly())) == ("linear", "last", "mean")
    assert baseline_names(Forecaster("linear", horizon=4.0).fit(hourly())) == ("last", "mean")
    fitted.correlation_ = None  # saved by an earlier version, or too many sensors
    again = load(fitted.save(tmp_path / "old"))
    assert baseline_names(again) == ("last", "mean")
    with pytest.raises(ConfigError, match="'nearest' needs were not learned with this model"):
        simple_baseline(again, "nearest")


def test_correlations_are_learned_from_the_training_samples_alone():
    table = hourly()
    training = table.samples["sample"].to_list()[:15]
    shuffled = replace(table, value=np.random.default_rng(0).permutation(table.value))
    rows = np.repeat(np.isin(table.ids, training), table.count)
    changed = replace(table, value=np.where(rows, table.value, shuffled.value))
    one, other = (Imputer("mean").fit(each[training], validation=each[15:]) for each in (table, changed))
    assert np.array_equal(one.correlation_, other.correlation_)
    assert one.correlation_.max() > 0
