"""Which readings are hidden in training: always some, drawn like real gaps; for a forecaster all after a cutoff."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from raindrop.batch.gaps import MAX_SAMPLES, Gaps, bisect, typical_intervals
from raindrop.table.event_table import EventTable
from raindrop.table.queries import OUTAGE


def hourly(samples: int = 4, hours: int = 30, sensors: int = 3) -> EventTable:
    """Every sensor of every sample once an hour, at its own minute."""
    rows = [
        (f"s{b}", hour + u / 10, f"x{u}", 1.0) for b in range(samples) for hour in range(hours) for u in range(sensors)
    ]
    return EventTable.from_columns(*zip(*rows, strict=True), sensors=[f"x{u}" for u in range(sensors)])


def readings(table: EventTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sample, sensor and time of all readings, with samples as windows."""
    rows = table.rows()
    owner = np.repeat(np.arange(len(table)), table.count)
    return owner, table.sensor[rows].astype(np.int64), np.asarray(table.time[rows])


def draw(table: EventTable, seed: int = 0, *, inside: np.ndarray | None = None, **options: float):
    """What is hidden and what is asked for when every sample is a window."""
    gaps = Gaps.learn(table, typical_intervals(table), **options)
    owner, sensor, time = readings(table)
    inside = np.ones(len(time), dtype=bool) if inside is None else inside
    return gaps.draw(np.random.default_rng(seed), owner, sensor, time, inside, len(table))


# ---------------------------------------------------------------- intervals


def test_a_typical_interval_is_the_median_between_readings_of_a_sensor(make_table):
    table = make_table(samples=12, sensors=6, times=14, observed=0.5)
    events = table.events()
    expected = []
    for name in table.sensors:
        between = []
        for sample in table.ids:
            times = [row["time"] for row in events.rows(named=True) if (row["sample"], row["sensor"]) == (sample, name)]
            between += [later - earlier for earlier, later in pairwise(times)]
        expected.append(sorted(between)[len(between) // 2])
        assert len(between) >= 5
    assert typical_intervals(table).tolist() == expected


def test_a_sensor_with_few_readings_has_the_typical_interval_of_the_others():
    table = hourly()
    rare = (table.events()["sensor"] != "x1").to_numpy() | (np.arange(table.num_readings) < 10)
    assert typical_intervals(table.where(rare)) == pytest.approx([1.0, 1.0, 1.0])
    assert typical_intervals(table.where(~rare)) == pytest.approx([1.0, 1.0, 1.0])  # x0 and x2 have none


def test_without_two_readings_of_a_sensor_an_interval_is_a_tenth_of_the_time_there_is():
    table = EventTable.from_columns(["a", "a", "b"], [3.0, 7.0, 23.0], ["x", "y", "x"], [1.0, 2.0, 3.0])
    assert typical_intervals(table) == pytest.approx([2.0, 2.0])
    alone = EventTable.from_columns(["a"], [3.0], ["x"], [1.0])
    assert (typical_intervals(alone) > 0).all()
    assert (typical_intervals(alone.where([False])) > 0).all()


def test_bisect_finds_the_place_in_each_stretch_of_a_rising_array():
    rng = np.random.default_rng(0)
    stretches = [np.sort(rng.integers(0, 9, size)) for size in (5, 0, 1, 7)]
    rising, ends = np.concatenate(stretches), np.cumsum([len(s) for s in stretches])
    for value in (-1, 0, 4, 4.5, 8, 99):
        for right, side in ((False, "left"), (True, "right")):
            found = bisect(rising, ends - [5, 0, 1, 7], ends, np.full(4, value), right=right)
            places = [np.searchsorted(stretch, value, side=side) for stretch in stretches]
            assert (found - (ends - [5, 0, 1, 7])).tolist() == places


# ---------------------------------------------------------------- gaps of an imputer


def test_asked_readings_are_hidden_ones_inside_the_window_and_some_are_left(make_table):
    table = make_table(samples=30, sensors=4, times=12, observed=0.7)
    inside = np.random.default_rng(5).random(table.num_readings) < 0.6
    hidden, asked = draw(table, inside=inside)
    assert hidden.shape == asked.shape == (table.num_readings,)
    assert np.array_equal(asked, hidden & inside)
    assert (hidden & ~inside).any()  # beside the window readings are hidden too
    assert 0.03 < hidden.mean() < 0.6


def test_the_same_seed_hides_the_same_readings():
    table = hourly()
    for first, second in zip(draw(table, 3), draw(table, 3), strict=True):
        assert np.array_equal(first, second)
    assert not np.array_equal(draw(table, 3)[0], draw(table, 4)[0])


@pytest.mark.parametrize(
    "options",
    [{}, {"horizon": 0.05}, {"horizon": 2.0, "cutoff": 1e6}],
    ids=["imputer", "short horizon", "cutoff behind all readings"],
)
def test_at_least_one_reading_is_asked_for_if_there_is_any(options):
    alone = hourly(samples=1, hours=6, sensors=1)
    for seed in range(60):
        hidden, asked = draw(alone, seed, **options)
        assert asked.any()
        assert hidden[asked].all()
        time = readings(alone)[2]
        assert not options or time[~hidden].max(initial=-np.inf) < time[hidden].min()
        nothing_inside = np.zeros(alone.num_readings, dtype=bool)
        assert not draw(alone, seed, inside=nothing_inside, **options)[1].any()


@pytest.mark.parametrize("empty", [[0], [2], [1, 4], [4], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("horizon", [None, 4.0])
def test_windows_without_readings_have_nothing_to_hide(empty, horizon):
    table = hourly(samples=5)
    table = table.where(~np.isin(np.repeat(np.arange(5), table.count), empty))
    gaps = Gaps.learn(hourly(), np.ones(3), horizon=horizon)
    owner, sensor, time = readings(table)
    hidden, asked = gaps.draw(np.random.default_rng(0), owner, sensor, time, np.ones(len(time), dtype=bool), 5)
    assert hidden.shape == asked.shape == time.shape
    assert asked.any() == (len(empty) < 5)


def test_single_readings_blocks_and_whole_sensors_are_hidden():
    table = hourly(samples=200, sensors=4)
    hidden, _ = draw(table)
    by_series = hidden.reshape(200, 30, 4).transpose(0, 2, 1).reshape(-1, 30)
    lengths = []
    for series in by_series:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], series.astype(int), [0]])))
        lengths += (edges[1::2] - edges[::2]).tolist()
    counts = np.bincount(lengths, minlength=31)
    assert counts[1] > 100
    assert counts[4:20].sum() > 50
    assert counts[30] > 10
    assert (~hidden.reshape(200, -1)).any(1).mean() > 0.95  # hardly a window is hidden altogether


def test_sensors_that_may_not_be_silent_are_never_hidden_whole():
    table = hourly(samples=200, sensors=4)
    gaps = Gaps.learn(table, typical_intervals(table))
    chosen = np.array([True, False, True, True])
    columns = readings(table)
    hidden, _ = replace(gaps, may_be_silent=chosen).draw(
        np.random.default_rng(0), *columns, np.ones(table.num_readings, dtype=bool), 200
    )
    whole = hidden.reshape(200, 30, 4).all(1).sum(0)
    assert whole[1] < 3 < whole[[0, 2, 3]].min()  # a block or two may happen to be as long


def test_gaps_of_outages_only_are_single_readings_where_the_data_have_no_outage():
    table = hourly(samples=200, sensors=4)
    gaps = replace(Gaps.learn(table, typical_intervals(table)), only_outages=True)
    every = np.ones(table.num_readings, dtype=bool)
    hidden, asked = gaps.draw(np.random.default_rng(0), *readings(table), every, 200)
    assert np.array_equal(hidden, asked)
    assert 0.01 < hidden.mean() < 0.03
    assert not hidden.reshape(200, 30, 4).all(1).any()
    outage = (np.arange(table.num_readings) % 4 == 1) & (np.arange(table.num_readings) // 4 % 30 > 10)
    gaps = replace(Gaps.learn(table.where(~outage), np.ones(4)), only_outages=True)
    hidden = gaps.draw(np.random.default_rng(0), *readings(table), every, 200)[0]
    share = hidden.reshape(-1, 4).mean(0)
    assert share[1] > 0.2 > 0.03 > share[[0, 2, 3]].max()


def test_outages_of_the_data_are_repeated_in_the_same_sensors():
    """All windows are as long as the only example, so it can only be laid over them in one place."""
    table = hourly(samples=1)
    _, sensor, time = readings(table)
    outage = (sensor == 1) & (time > 10) & (time < 16)
    gaps = Gaps.learn(table.where(~outage), np.ones(3))
    before, after = 9.1, 16.1  # the last reading before the outage and the first after it
    assert after - before > OUTAGE
    windows = 200
    many = [np.concatenate([column] * windows) for column in (sensor, time)]
    copies = np.repeat(np.arange(windows), len(time))
    found = gaps._outages(np.random.default_rng(0), copies, *many, np.zeros(windows), windows).reshape(windows, -1)
    expected = (sensor == 1) & (time - before >= 0.5) & (after - time >= 0.5)
    assert np.array_equal(expected, outage)
    drawn = found.any(1)
    assert 0.5 < drawn.mean() < 0.9
    assert (found[drawn] == expected).all()


def test_gaps_are_learned_from_a_limited_number_of_samples(monkeypatch):
    monkeypatch.setattr("raindrop.batch.gaps.MAX_SAMPLES", 3)
    assert MAX_SAMPLES > 100
    assert len(Gaps.learn(hourly(samples=8), np.ones(3)).span) == 3


# ---------------------------------------------------------------- gaps of a forecaster


@pytest.mark.parametrize("cutoff", [None, 12.0])
def test_nothing_after_a_cutoff_is_visible_and_asked_readings_lie_within_the_horizon(make_table, cutoff):
    table = make_table(samples=60, sensors=4, times=20, observed=0.7)
    owner, _, time = readings(table)
    inside = np.random.default_rng(1).random(len(time)) < 0.8
    fixed = 0
    for seed in range(5):
        hidden, asked = draw(table, seed, inside=inside, horizon=6.0, cutoff=cutoff)
        assert asked.sum() > 30
        for window in np.unique(owner):
            own = owner == window
            visible, gone = time[own & ~hidden], time[own & hidden]
            if not len(gone):
                continue
            assert visible.max(initial=-np.inf) < gone.min()
            predicted = time[own & asked]
            late = time[own & inside & hidden & ~asked]
            # The cutoff lies between what is visible and what is not.
            assert predicted.max(initial=-np.inf) < gone.min() + 6.0
            assert late.min(initial=np.inf) > visible.max(initial=-np.inf) + 6.0
            fixed += cutoff is not None and visible.max(initial=-np.inf) <= cutoff < gone.min()
    assert cutoff is None or fixed > 0.3 * 5 * len(table)
