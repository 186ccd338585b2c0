"""Windows of a table: every reading lies in one, queries find theirs, and the cut hardly changes what is seen near."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
import torch
from closeness import ONE_SUM, tolerance

from raindrop.batch.batch import Batch
from raindrop.batch.gap_windows import GapWindows, HeldOutWindows
from raindrop.batch.gaps import Gaps, typical_intervals
from raindrop.batch.nearby import SCALES, Series
from raindrop.batch.scaling import Scaler
from raindrop.batch.windows import LENGTH, MARGIN, QueryWindows, Windows
from raindrop.table.event_table import EventTable

INTERVAL = 1.0


def plant(hours: int = 1500, seed: int = 0) -> EventTable:
    """A long series of two sensors, hourly with jitter, after a short one; a sample without readings; one with one."""
    rng = np.random.default_rng(seed)
    rows = [("short", hour + rng.uniform(0, 0.8), name, rng.normal()) for hour in range(40) for name in ("x", "y")]
    for hour in range(hours):
        shared = 500 + hour + rng.uniform(0, 0.8)
        own = shared if hour % 3 else shared + 0.1
        rows += [("long", shared, "x", rng.normal(5)), ("long", own, "y", rng.normal())]
    rows.append(("one", 7.0, "y", 2.0))
    samples = {"sample": ["short", "none", "long", "one"], "age": [1.0, 2.0, 3.0, 4.0]}
    return EventTable.from_columns(*zip(*rows, strict=True), samples, sensors=["x", "y"], statics=["age"])


@pytest.fixture(scope="module")
def table() -> EventTable:
    return plant()


def owners(table: EventTable) -> np.ndarray:
    return np.repeat(np.arange(len(table)), table.count)


# ---------------------------------------------------------------- cutting


@pytest.mark.parametrize("interval", [0.1, 1.0, 3.0, 1000.0])
@pytest.mark.parametrize("horizon", [None, 200.0])
def test_every_reading_lies_in_exactly_one_window(table, interval, horizon):
    windows = Windows.cut(table, interval, horizon)
    rows, owner = table.rows(), owners(table)
    number = np.zeros(len(rows), dtype=int)
    for sample, start, stop in zip(windows.sample, windows.start, windows.stop, strict=True):
        number += (owner == sample) & (start <= table.time[rows]) & (table.time[rows] < stop)
    assert (number == 1).all()
    assert set(windows.sample.tolist()) == {0, 1, 2, 3}  # a sample without readings has a window too


def test_a_window_sees_the_readings_within_the_margin_around_it(table):
    windows = Windows.cut(table, INTERVAL)
    assert len(windows) > 10
    for at in range(len(windows)):
        sample, start, stop = windows.sample[at], windows.start[at], windows.stop[at]
        seen = np.arange(windows.row[at], windows.row[at] + windows.count[at])
        own = np.arange(table.start[sample], table.start[sample] + table.count[sample])
        near = (table.time[own] >= start - MARGIN * INTERVAL) & (table.time[own] < stop + MARGIN * INTERVAL)
        assert seen.tolist() == own[near].tolist()


def test_windows_of_a_sample_are_equally_long_and_about_as_long_as_they_should_be(table):
    windows = Windows.cut(table, INTERVAL)
    middle = windows[(windows.sample == 2) & np.isfinite(windows.start) & np.isfinite(windows.stop)]
    assert np.ptp(middle.stop - middle.start) < 1e-9
    assert middle.stop - middle.start == pytest.approx(LENGTH * INTERVAL, rel=0.5)
    wide = Windows.cut(table, INTERVAL, 300.0)
    middle = wide[np.isfinite(wide.start) & np.isfinite(wide.stop)]
    assert ((middle.stop - middle.start) > 450).all()  # a horizon must fit into a window, with room before it


@pytest.mark.parametrize(("hours", "number"), [(int(1.4 * LENGTH), 1), (int(1.7 * LENGTH), 2)])
def test_a_short_sample_is_one_window(hours, number):
    table = plant(hours)
    windows = Windows.cut(table, INTERVAL)
    assert np.bincount(windows.sample).tolist() == [1, 1, number, 1]
    assert windows.count[0] == table.count[0]
    assert (windows.start[0], windows.stop[0]) == (-np.inf, np.inf)


def test_samples_in_another_order_keep_their_own_readings(table):
    turned = table[[3, 2, 0]]
    windows = Windows.cut(turned, INTERVAL)
    first = Windows.cut(table, INTERVAL)
    for name, position in (("one", 0), ("long", 1), ("short", 2)):
        found, expected = windows[windows.sample == position], first[first.sample == table.ids.index(name)]
        assert found.row.tolist() == expected.row.tolist()
        assert found.count.tolist() == expected.count.tolist()


def test_queries_find_their_window(table):
    windows = Windows.cut(table, INTERVAL)
    rng = np.random.default_rng(0)
    sample = np.concatenate([rng.integers(0, 4, 300), np.full(len(windows), 2)])
    edges = np.where(np.isfinite(windows.stop), windows.stop, 1e6)  # the time of an edge belongs to the later window
    time = np.concatenate([rng.uniform(-100, 2200, 300), edges])
    found = windows.of(sample, time)
    assert (windows.sample[found] == sample).all()
    assert ((windows.start[found] <= time) & (time < windows.stop[found])).all()


# ---------------------------------------------------------------- queries in windows


def asked(table: EventTable, number: int = 200, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples, sensors and times anywhere in the samples, in no order."""
    rng = np.random.default_rng(seed)
    sample = rng.choice([0, 2, 3], number)
    low, high = np.array([0.0, 0.0, 500.0, 7.0]), np.array([40.0, 0.0, 2000.0, 7.0])
    return sample, rng.integers(0, 2, number), rng.uniform(low[sample], high[sample])


def batches(source: QueryWindows, size: int) -> list[Batch]:
    return [source.batch(np.arange(len(source))[at : at + size]) for at in range(0, len(source), size)]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_queries_of_all_windows_are_those_asked_and_scores_return_in_their_order(table, size):
    sample, sensor, time = asked(table)
    value = np.random.default_rng(2).normal(size=len(time))
    source = QueryWindows(table, Scaler.fit(table), INTERVAL, (sample, sensor, time), value)
    made = batches(source, size)
    assert sum(batch.num_samples for batch in made) == len(source) < 20
    times = torch.cat([batch.queries.time for batch in made]).numpy()
    sensors = torch.cat([batch.queries.sensor for batch in made]).numpy()
    assert source.in_asked_order(times).tolist() == time.tolist()
    assert source.in_asked_order(sensors).tolist() == sensor.tolist()
    ages = torch.cat([batch.statics[batch.queries.sample, 0] for batch in made]).numpy()  # 1 to 4, scaled
    assert np.argsort(np.unique(source.in_asked_order(ages))).tolist() == [0, 1, 2]
    assert (np.unique(source.in_asked_order(ages), return_inverse=True)[1] == np.searchsorted([0, 2, 3], sample)).all()
    scaled = Scaler.fit(table).scale_values(value, sensor)
    assert source.in_asked_order(torch.cat([batch.target for batch in made]).numpy()).tolist() == scaled.tolist()
    assert source.in_asked_order(source.truth).tolist() == np.stack([scaled.astype(float), sensor], axis=1).tolist()


def test_windows_without_a_query_are_not_computed(table):
    source = QueryWindows(table, Scaler.fit(table), INTERVAL, (np.array([2]), np.array([0]), np.array([1400.0])))
    assert len(source) == 1
    batch = source.batch(np.array([0]))
    assert batch.queries.sample.tolist() == [0]
    assert 0.5 * LENGTH < float(batch.time.max() - batch.time.min()) < 1.5 * LENGTH + 2 * MARGIN


def test_a_batch_holds_the_scaled_readings_of_its_windows(table):
    source = QueryWindows(table, (scaler := Scaler.fit(table)), INTERVAL, asked(table))
    positions = np.array([3, 0, 5])
    batch = source.batch(positions)
    windows = source.windows[positions]
    rows = np.concatenate([np.arange(row, row + count) for row, count in zip(windows.row, windows.count, strict=True)])
    assert batch.time[batch.step].tolist() == table.time[rows].tolist()
    assert batch.sensor.tolist() == table.sensor[rows].tolist()
    assert batch.value.tolist() == scaler.scale_values(table.value[rows], table.sensor[rows]).tolist()
    assert batch.sample.tolist() == np.repeat(np.arange(3), windows.count).tolist()
    assert len(batch.time) < len(batch.value)  # sensors that are read at the same time share a step


def test_a_long_series_in_windows_has_nearly_the_averages_of_the_whole(table, monkeypatch):
    """What a window does not see is at least a margin away, and counts as little as its weight.

    If the share f of all weight is not seen, the average moves by at most f times the range of the values.
    """
    rng = np.random.default_rng(4)
    number = 300
    queries = (np.full(number, 2), rng.integers(0, 2, number), rng.uniform(500, 2000, number))
    scaler = Scaler.fit(table)

    def moments():
        source = QueryWindows(table, scaler, INTERVAL, queries)
        parts = []
        for batch in batches(source, 4):
            series = Series(batch, torch.ones(2), torch.tensor(SCALES))
            at = series.around(batch.queries.sample, batch.queries.sensor, batch.queries.time)
            parts.append([*at.averages(), *at.values()])
        return len(source), [source.in_asked_order(torch.cat(part).numpy()) for part in zip(*parts, strict=True)]

    windows, (both, before, after, log_before, log_after, *values) = moments()
    monkeypatch.setattr("raindrop.batch.windows.LENGTH", 1e9)
    (one, whole) = moments()
    assert (windows > 8, one) == (True, 1)
    for found, expected in zip(values, whole[5:], strict=True):
        assert np.array_equal(found, expected)  # neighbouring readings are the same ones
    value = scaler.scale_values(table.value, table.sensor)
    rounding = tolerance(roundings=8 * ONE_SUM, magnitude=12.0)
    unseen = []
    sides = [(before, whole[1], log_before, whole[3]), (after, whole[2], log_after, whole[4])]
    for found, expected, log_found, log_expected in sides:
        share = 1 - np.exp(log_found.astype(float) - log_expected)
        assert (share > -rounding).all()
        # With a reading an hour, what is older than D hours has the share exp(-D / width); jitter is less than an hour.
        assert (share <= np.exp(-(MARGIN - 1) / np.array(SCALES)) + rounding).all()
        assert (np.abs(found - expected) <= share * np.ptp(value) + rounding).all()
        unseen.append(share)
    assert max(share.max() for share in unseen) > 0.01  # some windows do not see everything that has weight
    assert (np.abs(both - whole[0]) <= np.maximum(*unseen) * 2 * np.ptp(value) + rounding).all()


# ---------------------------------------------------------------- windows to train on


@pytest.fixture(scope="module")
def training(table: EventTable) -> GapWindows:
    gaps = Gaps.learn(table, typical_intervals(table))
    return GapWindows(table, Scaler.fit(table), Windows.cut(table, INTERVAL), gaps)


def visible(batch: Batch) -> set[tuple[int, int, float]]:
    return set(zip(batch.sample.tolist(), batch.sensor.tolist(), batch.time[batch.step].tolist(), strict=True))


def test_what_is_asked_for_in_training_is_a_reading_of_the_window_that_is_not_visible(table, training):
    positions = np.array([4, 0, 7, 9])
    batch = training.batch(positions, rng=np.random.default_rng(0))
    rows, owner, sensor = training.readings(positions)
    every = dict(zip(zip(owner.tolist(), sensor.tolist(), table.time[rows].tolist(), strict=True), rows, strict=True))
    seen = visible(batch)
    assert seen < set(every)
    queries = batch.queries
    assert len(queries) > 10
    windows = training.windows[positions]
    for at in range(len(queries)):
        window, code, time = int(queries.sample[at]), int(queries.sensor[at]), float(queries.time[at])
        assert (window, code, time) in every
        assert (window, code, time) not in seen
        assert windows.start[window] <= time < windows.stop[window]
        row = every[window, code, time]
        assert float(batch.target[at]) == training.scaler.scale_values(table.value[[row]], np.array([code]))[0]


def with_dates(hours_from_utc: int | None = None) -> EventTable:
    """`plant` with times in minutes since 06:15, 18:00, an unknown date, and midnight."""
    table = plant()
    zero = [datetime(2026, 3, 1, 6, 15), datetime(2026, 5, 2, 18), None, datetime(2026, 1, 1)]
    if hours_from_utc is not None:
        zone = timezone(timedelta(hours=hours_from_utc))
        zero = [None if moment is None else moment.replace(tzinfo=zone) for moment in zero]
    samples = {"sample": table.samples["sample"].to_list(), "time_zero": zero}
    return EventTable.from_frames(table.events(), samples, sensors=table.sensors, time_unit="minutes")


@pytest.mark.parametrize("hours_from_utc", [None, 5])
def test_queries_know_the_time_of_day_local_or_in_utc_if_dates_have_a_zone(hours_from_utc):
    table = with_dates(hours_from_utc)
    queries = np.array([0, 0, 2, 3]), np.array([0, 1, 0, 1]), np.array([0.0, 90.0, 700.0, 720.0])
    source = QueryWindows(table, Scaler.fit(table), INTERVAL, queries)
    found = np.concatenate([source.batch(np.array([at])).queries.time_of_day.numpy() for at in range(len(source))])
    hour = 2 * np.pi / 24 * (np.array([6.25, 7.75, 0.0, 12.0]) - (hours_from_utc or 0))
    expected = np.stack([np.sin(hour), np.cos(hour)], axis=1)
    expected[2] = 0  # the date is unknown
    assert source.in_asked_order(found) == pytest.approx(expected, abs=1e-6)


def test_queries_of_a_table_without_dates_have_no_time_of_day(table):
    source = QueryWindows(table, Scaler.fit(table), INTERVAL, asked(table))
    assert source.batch(np.arange(len(source))).queries.time_of_day is None


def test_some_training_windows_do_not_know_the_time_of_day():
    table = with_dates()
    gaps = Gaps.learn(table, typical_intervals(table))
    source = GapWindows(table, Scaler.fit(table), Windows.cut(table, INTERVAL), gaps)
    known = []
    for seed in range(30):
        queries = source.batch(np.array([0, len(source) - 1]), rng=np.random.default_rng(seed)).queries
        known += [bool(queries.time_of_day[queries.sample == window].any()) for window in (0, 1)]
        assert ((queries.time_of_day**2).sum(1).round(decimals=4).unique().tolist()) in ([0.0], [1.0], [0.0, 1.0])
    assert 40 < sum(known) < 60


def test_hidden_readings_are_drawn_anew_by_the_seed_of_the_step(training):
    first, again, other = (visible(training.batch(np.arange(5), rng=np.random.default_rng(seed))) for seed in (1, 1, 2))
    assert first == again != other


def test_a_batch_asks_for_a_bounded_number_of_readings(training, monkeypatch):
    monkeypatch.setattr("raindrop.batch.gap_windows.MIN_QUERIES", 7)
    monkeypatch.setattr("raindrop.batch.gap_windows.MAX_PAIRS", 8 * 2)
    assert len(training.batch(np.arange(10), rng=np.random.default_rng(1)).queries) == 8  # of two sensors each
    monkeypatch.setattr("raindrop.batch.gap_windows.MAX_PAIRS", 1)
    assert len(training.batch(np.arange(10), rng=np.random.default_rng(1)).queries) == 7


def test_only_windows_with_a_reading_to_ask_for_are_trained_on(table):
    silent = (table.time[table.rows()] < 800) | (table.time[table.rows()] > 1400)
    gappy = table.where(silent)
    windows = Windows.cut(gappy, INTERVAL)
    rows, owner = gappy.rows(), owners(gappy)
    inside = [
        ((owner == sample) & (gappy.time[rows] >= start) & (gappy.time[rows] < stop)).any()
        for sample, start, stop in zip(windows.sample, windows.start, windows.stop, strict=True)
    ]
    found = windows.with_readings(gappy)
    assert 3 < len(found) < len(windows) - 2
    assert found.start.tolist() == windows.start[inside].tolist()
    assert found.sample.tolist() == windows.sample[inside].tolist()


# ---------------------------------------------------------------- windows to validate on


def held_out(table: EventTable, **options) -> HeldOutWindows:
    horizon = options.pop("horizon", None)
    gaps = Gaps.learn(table, typical_intervals(table), horizon=horizon)
    windows = Windows.cut(table, INTERVAL, horizon).with_readings(table)
    return HeldOutWindows(table, Scaler.fit(table), windows, gaps, **options)


def by_key(batch: Batch, windows: np.ndarray) -> dict[tuple[int, int, float], float]:
    """Targets of a batch by window, sensor and time."""
    queries = batch.queries
    keys = zip(windows[queries.sample].tolist(), queries.sensor.tolist(), queries.time.tolist(), strict=True)
    return dict(zip(keys, batch.target.tolist(), strict=True))


def test_the_gaps_of_held_out_windows_are_drawn_once(table):
    source = held_out(table)
    every = np.arange(len(source))
    whole = source.batch(every)
    assert whole.target.tolist() == source.truth[:, 0].astype(np.float32).tolist()
    assert whole.queries.sensor.tolist() == source.truth[:, 1].tolist()
    for positions in (every, every[::-1], every[2:5]):
        batch = source.batch(positions)
        assert by_key(batch, positions) == {
            key: value for key, value in by_key(whole, every).items() if key[0] in positions
        }
        seen = {(positions[window], *rest) for window, *rest in visible(batch)}
        assert seen == {key for key in visible(whole) if key[0] in positions}
        assert seen.isdisjoint(by_key(batch, positions))
    assert visible(held_out(table).batch(every)) == visible(whole) != visible(held_out(table, seed=1).batch(every))


def test_held_out_windows_ask_for_a_bounded_number_of_readings(table):
    source = held_out(table, most=20)
    batch = source.batch(np.arange(len(source)))
    assert len(batch.queries) == len(source.truth) == 20
    assert visible(batch) == visible(held_out(table).batch(np.arange(len(source))))


def test_a_forecaster_is_validated_without_anything_after_the_cutoff_of_a_window(table):
    """The readings behind a window are as hidden as those within it."""
    source = held_out(table, horizon=24.0)
    batch = source.batch(np.arange(len(source)))
    assert len(np.unique(batch.queries.sample)) > 8
    for window in np.unique(batch.queries.sample):
        seen = batch.time[batch.step_sample == int(window)]
        assert float(batch.queries.time[batch.queries.sample == int(window)].min()) > seen.max()


def test_unknown_sensors_are_left_out_of_windows_where_they_are_ignored(table):
    known = table.where((table.events()["sensor"] == "x").to_numpy())
    source = QueryWindows(
        table, Scaler.fit(known), INTERVAL, (np.array([2]), np.array([0]), np.array([900.0])), ignore_unknown=True
    )
    batch = source.batch(np.array([0]))
    assert set(batch.sensor.tolist()) == {0}
    assert visible(batch) == {(0, 0, t) for t in batch.time.tolist()}
