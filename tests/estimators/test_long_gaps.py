"""Gaps that are longer than a window: what lies beyond a window's margin is still seen."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from closeness import assert_close
from followers import SMALL, followers

from raindrop.batch.gap_windows import HeldOutWindows
from raindrop.batch.gaps import Gaps, typical_intervals
from raindrop.batch.scaling import Scaler
from raindrop.batch.windows import QueryWindows, Windows
from raindrop.estimators import Imputer


def test_a_gap_longer_than_a_window_is_filled_from_both_of_its_ends():
    """The readings at its ends lie out of sight of the windows within it."""
    series = followers(1, hours=1500, seed=4)
    fitted = Imputer("linear").fit(series)
    gappy = series.where((pl.col("sensor") != "same") | (pl.col("time") < 300) | (pl.col("time") > 1200))
    own = gappy.events().filter(pl.col("sensor") == "same")
    times = np.linspace(301, 1199, 200)
    asked = pl.DataFrame({"sample": ["s000"] * 200, "time": times, "sensor": ["same"] * 200})
    scale = float(np.abs(own["value"].to_numpy()).max())
    expected = np.interp(times, own["time"], own["value"])
    assert_close(fitted.readings_at(gappy, asked).value, expected, magnitude=scale, dtype=np.float32)


def test_a_window_sees_one_reading_beyond_its_margin_of_each_sensor_that_is_silent_there():
    series = followers(1, hours=1500, seed=4)
    gappy = series.where((pl.col("sensor") != "same") | (pl.col("time") < 300) | (pl.col("time") > 1200))
    scaler = Scaler.fit(gappy)
    code = gappy.sensors.index("same")
    asked = (np.zeros(1, dtype=int), np.array([code]), np.array([750.0]))
    plain, seeing = (QueryWindows(gappy, scaler, 1.0, asked, sees_distant=flag) for flag in (False, True))
    first, second = (source.batch(np.array([0])) for source in (plain, seeing))
    own = second.time[second.step][second.sensor == code]
    times = gappy.events().filter(pl.col("sensor") == "same")["time"]
    assert own.tolist() == [times.filter(times < 300).max(), times.filter(times > 1200).min()]
    assert (first.sensor == code).sum() == 0
    assert len(second.value) == len(first.value) + 2
    assert (torch.diff(second.time) > 0).all()
    assert np.isinf(plain.distance).all()
    assert seeing.distance.tolist() == [float(np.abs(own.numpy() - 750.0).min())]


def test_a_forecaster_in_training_sees_no_distant_reading_after_its_windows():
    series = followers(1, hours=1500, seed=4)
    gaps = Gaps.learn(series, typical_intervals(series), horizon=24.0)
    windows = Windows.cut(series, 1.0, 24.0)
    source = HeldOutWindows(series, Scaler.fit(series), windows, gaps, sees_distant=True)
    batch = source.batch(np.arange(len(source)))
    for window in np.unique(batch.queries.sample):
        seen = batch.time[batch.step_sample == int(window)]
        assert float(batch.queries.time[batch.queries.sample == int(window)].min()) > seen.max()


@pytest.mark.slow
def test_a_long_series_validates_on_many_short_stretches_that_are_never_asked_for_in_training():
    series = followers(1, hours=1500, seed=4)
    fitted = Imputer(config=SMALL | {"train.batch_readings": 1500}).fit(series)
    training, validation = fitted._training_source(series), fitted._validation_source(series)
    held_out = fitted._held_out_rows(series)
    assert 0.08 < held_out.mean() < 0.12
    stretches = np.count_nonzero(np.diff(series.time[held_out]) > 3.0) + 1
    assert stretches > 6
    asked = [
        {
            float(time)
            for seed in range(seeds)
            for time in source.batch(np.arange(len(source)), rng=np.random.default_rng(seed)).queries.time
        }
        for source, seeds in ((training, 5), (validation, 1))
    ]
    times = set(series.time[held_out].tolist())
    assert min(len(each) for each in asked) > 50
    assert asked[0].isdisjoint(times)
    assert asked[1] <= times
