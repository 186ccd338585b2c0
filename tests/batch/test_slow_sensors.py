"""A sensor that is read much more seldom than the others shows its nearest readings around every window."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from followers import SMALL, followers
from small_blocks import make_small

from raindrop.batch.gap_windows import GapWindows, HeldOutWindows
from raindrop.batch.gaps import Gaps, typical_intervals
from raindrop.batch.scaling import Scaler
from raindrop.batch.windows import MARGIN, NEAREST, QueryWindows, Windows, slow_sensors
from raindrop.estimators import Forecaster, Imputer
from raindrop.table.event_table import EventTable

EVERY = {"fast": 1.0, "other": 1.0, "slow": 60.0}


def plant(hours: int = 3000, every: dict[str, float] = EVERY, samples: tuple[str, ...] = ("a", "b")) -> EventTable:
    """Long series of sensors that are read at these intervals; `slow` follows a curve of its own."""
    parts = []
    for name in samples:
        for sensor, interval in every.items():
            time = np.arange(0.0, hours, interval)
            value = 10 * np.sin(time / (4 * interval if sensor == "slow" else 300) + (name == "b"))
            parts.append((np.full(len(time), name), time, np.full(len(time), sensor), value))
    return EventTable.from_columns(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@pytest.fixture(scope="module")
def table() -> EventTable:
    return plant()


def source_of(table: EventTable, windows: Windows) -> GapWindows:
    interval = typical_intervals(table)
    gaps = Gaps.learn(table, interval)
    return GapWindows(table, Scaler.fit(table), windows, gaps, slow=slow_sensors(interval))


def tensors(content: Any) -> list[torch.Tensor]:
    """All tensors in a batch."""
    if is_dataclass(content):
        return [found for field in fields(content) for found in tensors(getattr(content, field.name))]
    return [content] if isinstance(content, torch.Tensor) else []


def test_a_sensor_is_slow_if_a_margin_is_too_short_for_its_nearest_readings():
    limit = MARGIN / NEAREST
    assert slow_sensors(np.array([1.0, 1.0, 0.1, limit, 1.01 * limit])).tolist() == [False] * 4 + [True]
    assert not slow_sensors(np.array([24.0])).any()


def test_a_window_shows_the_nearest_readings_of_a_slow_sensor_beyond_its_margin_and_no_others(table):
    windows, slow = Windows.cut(table, 1.0), table.sensors.index("slow")
    rows, owner, sensor = source_of(table, windows).readings(np.arange(len(windows)))
    middle = 0
    for at in range(len(windows)):
        first, last = windows.row[at], windows.row[at] + windows.count[at]
        start = table.start[windows.sample[at]]
        own = np.arange(start, start + table.count[windows.sample[at]])
        own = own[table.sensor[own] == slow]
        before, after = own[own < first][-NEAREST:], own[own >= last][:NEAREST]
        expected = np.sort(np.concatenate([np.arange(first, last), before, after]))
        assert rows[owner == at].tolist() == expected.tolist()
        middle += len(before) == len(after) == NEAREST
    assert middle > 5
    assert (sensor == table.sensor[rows]).all()


def test_a_short_sample_is_seen_as_before():
    short = plant(150)
    windows = Windows.cut(short, 1.0)
    rows, _, _ = source_of(short, windows).readings(np.arange(len(windows)))
    assert rows.tolist() == short.rows().tolist()


def test_in_a_large_table_windows_show_the_same(table, monkeypatch):
    windows = Windows.cut(table, 1.0)
    expected = source_of(table, windows).readings(np.arange(len(windows)))
    source = source_of(table, windows)
    make_small(monkeypatch)
    assert len(list(table.blocks())) == 2
    for found, column in zip(source.readings(np.arange(len(windows))), expected, strict=True):
        assert np.array_equal(found, column)


def test_the_readings_seen_grow_with_the_length_of_the_table():
    seen = []
    for hours in (3000, 6000, 12000):
        table = plant(hours)
        windows = Windows.cut(table, 1.0)
        rows, _, _ = source_of(table, windows).readings(np.arange(len(windows)))
        assert len(rows) <= windows.count.sum() + 2 * NEAREST * len(windows)
        seen.append(len(rows) / len(table.time))
    assert max(seen) < 1.2 * min(seen)


@pytest.mark.parametrize("most", [1.0, 5.0])
def test_tables_of_sensors_of_about_the_same_speed_keep_every_bit(most):
    """A sensor that was silent for a week is not slow: its typical interval is still short."""
    table = plant(every={"x": 1.0, "y": 1.0, "z": most})
    table = table.where((pl.col("sensor") != "y") | (pl.col("time") < 1000) | (pl.col("time") > 1000 + 24 * 21))
    interval, scaler, windows = typical_intervals(table), Scaler.fit(table), Windows.cut(table, 1.0)
    slow = slow_sensors(interval)
    assert not slow.any()
    asked = np.zeros(40, dtype=int), np.arange(40) % 3, np.linspace(1000, 1500, 40)
    gaps = Gaps.learn(table, interval)
    pairs = [
        [QueryWindows(table, scaler, 1.0, asked, **options) for options in ({}, {"slow": slow})],
        [GapWindows(table, scaler, windows, gaps, **options) for options in ({}, {"slow": slow})],
        [HeldOutWindows(table, scaler, windows, gaps, **options) for options in ({}, {"slow": slow})],
    ]
    for plain, other in pairs:
        at = np.arange(len(plain))
        first, second = (tensors(each.batch(at, rng=np.random.default_rng(3))) for each in (plain, other))
        assert len(first) > 8
        assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


def test_readings_beyond_a_margin_are_hidden_in_training_too_and_never_predicted(table):
    windows = Windows.cut(table, 1.0)
    source = source_of(table, windows)
    positions = np.arange(len(source))
    rows, owner, _ = source.readings(positions)
    beyond = (rows < windows.row[owner]) | (rows >= (windows.row + windows.count)[owner])
    hidden, asked = source.draw(positions, np.random.default_rng(0))
    assert 0 < hidden[beyond].mean() < 1
    assert not asked[beyond].any()


@pytest.mark.parametrize("seed", range(3))
def test_a_forecaster_in_training_sees_no_reading_of_a_slow_sensor_after_the_cutoff(table, seed):
    interval = typical_intervals(table)
    gaps = Gaps.learn(table, interval, horizon=24.0)
    windows = Windows.cut(table, 1.0, 24.0).with_readings(table)
    options = {"slow": slow_sensors(interval)}
    for source in (
        GapWindows(table, Scaler.fit(table), windows, gaps, **options),
        HeldOutWindows(table, Scaler.fit(table), windows, gaps, seed=seed, **options),
    ):
        batch = source.batch(np.arange(len(source)), rng=np.random.default_rng(seed))
        slow = batch.time[batch.step][batch.sensor == table.sensors.index("slow")]
        assert len(slow) > len(source)  # they do see its earlier readings
        for window in np.unique(batch.queries.sample):
            seen = batch.time[batch.step_sample == int(window)]
            assert float(batch.queries.time[batch.queries.sample == int(window)].min()) > seen.max()


TINY = SMALL | {"train.min_steps": 2, "train.patience": 1}


def test_an_imputer_fills_a_slow_sensor_from_its_neighbouring_readings():
    """After two steps, answers are close to the line between the neighbouring readings, if these are visible."""
    table = plant(9000, EVERY | {"slow": 250.0}, ("a",))
    fitted = Imputer(config=TINY).fit(table)
    own = table.events().filter(pl.col("sensor") == "slow")[2:-2]
    answers = fitted.readings_at(table, own.drop("value")).value  # each is hidden from its own answer
    line = (own["value"].shift(1) + own["value"].shift(-1)).to_numpy()[1:-1] / 2
    assert np.abs(answers[1:-1] - line).mean() < 1.5 < 5.0 < np.abs(own["value"].to_numpy()).mean()


def test_what_comes_after_the_cutoff_cannot_change_a_forecast_of_a_slow_sensor():
    table = plant(samples=("a",))
    fitted = Forecaster(horizon=100.0, cutoff=2000.0, config=TINY).fit(table)
    asked = pl.DataFrame({"sample": "a", "time": [2020.0, 2040.0, 2060.0], "sensor": "slow"})
    later = table.events().with_columns(value=pl.when(pl.col("time") > 2000).then(1e3).otherwise(pl.col("value")))
    changed = EventTable.from_frames(later)
    expected = fitted.readings_at(table, asked).value
    assert np.array_equal(fitted.readings_at(changed, asked).value, expected)
    assert np.array_equal(fitted.readings_at(table.where(pl.col("time") <= 2000), asked).value, expected)


def test_hourly_stations_with_gaps_have_no_slow_sensor():
    gappy = followers(1, hours=600).where((pl.col("sensor") != "same") | (pl.col("time") % 100 < 60))
    assert not slow_sensors(typical_intervals(gappy)).any()
