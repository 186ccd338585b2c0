"""Forecaster: nothing after a cutoff can reach a forecast, whatever the cutoff is given by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from closeness import assert_close
from followers import SMALL, followers
from sklearn.base import clone

from raindrop import DataError, EventTable, load
from raindrop.errors import ConfigError
from raindrop.estimators import Forecaster, Imputer

CUTOFF, HORIZON = 18.0, 6.0


@pytest.fixture(scope="module")
def train() -> EventTable:
    return followers(30, seed=0)


@pytest.fixture(scope="module")
def table() -> EventTable:
    """Samples with a column of cutoffs, each its own."""
    table = followers(8, seed=1)
    cutoffs = np.linspace(10, 20, len(table))
    return replace(table, samples=table.samples.with_columns(decided=cutoffs))


@pytest.fixture(scope="module")
def forecaster(train: EventTable) -> Forecaster:
    return Forecaster(horizon=HORIZON, cutoff=CUTOFF, config=SMALL).fit(train)


def after(cutoffs: np.ndarray, table: EventTable, steps: tuple[float, ...] = (0.5, 3.25, 6.0)) -> pl.DataFrame:
    """Queries of all sensors up to the horizon after each sample's cutoff."""
    rows = [(b, c + h, u) for b, c in zip(table.ids, cutoffs, strict=True) for h in steps for u in table.sensors]
    return pl.DataFrame(rows, schema=["sample", "time", "sensor"], orient="row")


def values(forecaster: Forecaster, table: EventTable, queries: Any) -> list[np.ndarray]:
    answers = forecaster.readings_at(table, queries)
    return [answers.value, answers.low, answers.high]


@pytest.mark.parametrize("kind", ["a number", "a column", "the last reading"])
def test_readings_after_the_cutoff_change_nothing(forecaster, table, train, kind):
    if kind == "a number":
        cutoffs = np.full(len(table), CUTOFF)
    elif kind == "a column":
        cutoffs = table.samples["decided"].to_numpy()
        forecaster = Forecaster(horizon=HORIZON, cutoff="decided", config=SMALL)
        forecaster.fit(replace(train, samples=train.samples.with_columns(decided=pl.lit(12.0))))
    else:
        forecaster = Forecaster(horizon=HORIZON, config=SMALL).fit(train)
        table = table.where(table.time[table.rows()] <= 15.0)
        cutoffs = table.time[table.start + table.count - 1]
        assert forecaster.cutoffs(table).tolist() == cutoffs.tolist()
    later = table.time[table.rows()] > np.repeat(cutoffs, table.count)
    assert later.any() == (kind != "the last reading")
    queries = after(cutoffs, table)
    expected = values(forecaster, table, queries)
    wild = replace(table, value=np.where(later, 1e4, table.value))
    for changed in (wild, table.where(~later)):
        for one, other in zip(values(forecaster, changed, queries), expected, strict=True):
            assert np.array_equal(one, other)
    own = ~later & (table.time[table.rows()] > 5)
    earlier = replace(table, value=np.where(own, table.value + 1, table.value))
    assert not np.array_equal(values(forecaster, earlier, queries)[0], expected[0])


def test_readings_after_the_cutoff_may_even_be_missing_altogether(forecaster, table):
    """A forecast is made when nothing of the future is known: the table ends at the cutoff or before."""
    queries = after(np.full(len(table), CUTOFF), table)
    early = table.where(table.time[table.rows()] <= 13.0)
    assert np.isfinite(values(forecaster, early, queries)[0]).all()


def test_training_never_asks_for_what_lies_before_something_visible(train):
    forecaster = Forecaster(horizon=HORIZON, config=SMALL).fit(train)
    for source in (forecaster._training_source(train), forecaster._validation_source(train)):
        batch = source.batch(np.arange(len(source)), rng=np.random.default_rng(0))
        for b in np.unique(batch.queries.sample):
            seen = batch.time[batch.step_sample == int(b)]
            asked = batch.queries.time[batch.queries.sample == int(b)]
            assert not len(seen) or float(seen.max()) < float(asked.min())
            assert float(asked.max() - asked.min()) <= HORIZON


def test_intervals_of_a_long_series_cover_as_much_as_asked():
    """Linear interpolation would profit most from readings behind a held-out window.

    A random walk: intervals that were made with the future in sight are far too narrow.
    """
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=20_000))
    series = EventTable.from_columns(["walk"] * 20_000, np.arange(20_000.0), ["x"] * 20_000, walk)
    fitted = Forecaster("linear", horizon=40.0, config={"train.holdout": 0.5}).fit(series)
    fresh = np.cumsum(rng.normal(size=(400, 100)), axis=1)
    ids = [f"s{b}" for b in range(400)]
    future = EventTable.from_columns(np.repeat(ids, 100), np.tile(np.arange(100.0), 400), ["x"] * 40_000, fresh.ravel())
    cutoff = np.repeat(rng.uniform(40, 59, 400), future.count)
    seen = future.time <= cutoff
    inside = ~seen & (future.time <= cutoff + 40.0)
    metrics = fitted.evaluate(future.where(seen), future.events().filter(inside))
    assert metrics["coverage_80"] == pytest.approx(0.80, abs=0.06)
    assert metrics["coverage_95"] == pytest.approx(0.95, abs=0.04)


# ---------------------------------------------------------------- what can be asked


BAD = {
    "at the cutoff": ({"time": [CUTOFF]}, "lie at or before the cutoff .* ask an Imputer"),
    "before it": ({"time": [3.0]}, "lie at or before the cutoff"),
    "after the horizon": ({"time": [24.5]}, "lie more than the horizon of 6 hours after the cutoff .* longer horizon"),
    "unknown sensor": ({"sensor": ["smae"]}, "did you mean 'same'"),
    "unknown sample": ({"sample": ["s900"]}, "is not in the table"),
    "twice": ({"sample": ["s000"] * 2, "time": [20.0] * 2, "sensor": ["same"] * 2}, "repeat another one"),
    "none": ({"sample": [], "time": [], "sensor": []}, "There are no queries"),
}


@pytest.mark.parametrize(("columns", "message"), BAD.values(), ids=BAD)
def test_each_bad_query_gets_one_sentence(forecaster, table, columns, message):
    with pytest.raises(DataError, match=message):
        forecaster.readings_at(table, {"sample": ["s000"], "time": [20.0], "sensor": ["same"]} | columns)


def test_what_lies_before_the_cutoff_is_not_judged(forecaster, table):
    events = table.events()
    late = (events["time"] > CUTOFF) & (events["time"] <= CUTOFF + HORIZON)
    metrics = forecaster.evaluate(table, events.filter(late))
    assert np.isfinite(list(metrics.values())).all()
    without = table.where(~late.to_numpy())
    assert forecaster.evaluate(without, events.filter(late)) == pytest.approx(metrics)
    with pytest.raises(DataError, match="lie at or before the cutoff"):
        forecaster.evaluate(table, events.filter(events["time"] > CUTOFF - 1))


@pytest.mark.parametrize("horizon", [0, -1.0, float("inf"), float("nan"), 10**400, "a day", None])
def test_a_horizon_is_a_positive_number(train, horizon):
    with pytest.raises(ConfigError, match="horizon="):
        Forecaster(horizon=horizon).fit(train)


def test_a_cutoff_is_a_finite_time_or_a_column_of_finite_times(forecaster, train, table):
    with pytest.raises(ConfigError, match="cutoff=inf"):
        Forecaster(horizon=1.0, cutoff=float("inf")).fit(train)
    with pytest.raises(ConfigError, match="cutoff=1000"):
        Forecaster(horizon=1.0, cutoff=10**400).fit(train)
    with pytest.raises(DataError, match="decided"):
        Forecaster(horizon=1.0, cutoff="decided").cutoffs(train)
    unknown = replace(table, samples=table.samples.with_columns(decided=pl.Series([1.0, None] + [2.0] * 6)))
    with pytest.raises(DataError, match=r"'decided' has no finite cutoff in row 2 \(sample 's001'\)"):
        Forecaster(horizon=1.0, cutoff="decided").cutoffs(unknown)


def test_a_table_in_another_time_unit_gives_the_same_forecasts(forecaster, table):
    """The horizon and a cutoff that is a number count in the unit of the training table."""
    queries = after(np.full(len(table), CUTOFF), table)
    minutes = queries.with_columns(pl.col("time") * 60)
    for one, other in zip(
        values(forecaster, table, queries), values(forecaster, table.in_unit("minutes"), minutes), strict=True
    ):
        assert_close(one, other, magnitude=100, dtype=np.float32)
    with pytest.raises(DataError, match="horizon of 360 minutes"):
        forecaster.readings_at(table.in_unit("minutes"), minutes.with_columns(pl.col("time") + 400))


# ---------------------------------------------------------------- saving


@pytest.mark.parametrize("cutoff", [CUTOFF, "decided", None])
def test_a_saved_forecaster_keeps_its_horizon_and_cutoff(train, table, cutoff, tmp_path):
    trained_on = replace(train, samples=train.samples.with_columns(decided=pl.lit(12.0)))
    fitted = Forecaster(horizon=HORIZON, cutoff=cutoff, config=SMALL).fit(trained_on, run=tmp_path / "run")
    again = load(tmp_path / "run")
    assert type(again) is Forecaster
    assert (again.horizon, again.cutoff) == (HORIZON, cutoff)
    queries = after(fitted.cutoffs(table), table)
    for one, other in zip(values(fitted, table, queries), values(again, table, queries), strict=True):
        assert np.array_equal(one, other)


def test_parameters_are_kept_as_they_came_and_cloned(forecaster, train, table):
    assert forecaster.get_params()["horizon"] == HORIZON
    assert forecaster.get_params()["cutoff"] == CUTOFF
    second = clone(forecaster).fit(train)
    queries = after(np.full(len(table), CUTOFF), table)
    for one, other in zip(values(forecaster, table, queries), values(second, table, queries), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("other", ["horizon", "cutoff", "estimator"])
def test_a_run_is_not_resumed_by_another_estimator_horizon_or_cutoff(train, other, tmp_path):
    Forecaster(horizon=HORIZON, config=SMALL).fit(train, run=tmp_path / "run")
    estimator = {
        "horizon": Forecaster(horizon=3.0, config=SMALL),
        "cutoff": Forecaster(horizon=HORIZON, cutoff=12.0, config=SMALL),
        "estimator": Imputer(config=SMALL),
    }[other]
    with pytest.raises(ConfigError, match="other data, settings, seed or version"):
        estimator.fit(train, run=tmp_path / "run", resume=True)
