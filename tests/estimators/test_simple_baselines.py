"""Baselines of a fitted estimator need no training data and agree with baselines that were fitted on it."""

from __future__ import annotations

import pytest
from waves import QUICK, wave_table

from raindrop import Forecaster, Imputer
from raindrop.estimators.simple_baselines import simple_baseline
from raindrop.table.hide import hold_out_blocks, hold_out_future


@pytest.mark.parametrize("model", ["mean", "last", "linear"])
def test_a_baseline_of_a_saved_imputer_is_the_one_fitted_on_its_training_table(model, tmp_path):
    from raindrop import load

    training, table = wave_table(), wave_table(5, seed=1)
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
