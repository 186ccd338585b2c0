"""Values before a time, looked up for many rows at once, are those that a loop over readings finds."""

from __future__ import annotations

import numpy as np
from closeness import assert_close

from raindrop import EventTable
from raindrop.graphs.past import LAGS, Past, Rows


def drawn(seed: int = 0) -> EventTable:
    """Samples of very different length, on a grid so coarse that sensors share times; some sensors are never read."""
    rng = np.random.default_rng(seed)
    number = rng.integers(1, 40, 7)
    sample = np.repeat(np.arange(7), number)
    sensor = rng.integers(0, 3, len(sample))
    time = rng.permutation(np.arange(len(sample))) // 2 / 4.0 + 1000.0 * (sample == 3)
    return EventTable.from_columns(
        [f"s{at}" for at in sample], time, [f"u{at}" for at in sensor], rng.normal(size=len(sample)), duplicates="last"
    )


def by_hand(past: Past, sensor: int, sample: int, time: float, lag: float) -> float:
    rows, value = past.readings_of(sensor)
    before = (rows.sample == sample) & (rows.time < time)
    times, values, at = rows.time[before], value[before], time - lag * past.interval
    if not len(times) or at < times[0]:
        return 0.0
    if at >= times[-1]:
        return float(values[-1] * np.exp(-(at - times[-1]) / past.memory[sensor]))
    return float(np.interp(at, times, values))


def test_values_at_every_lag_are_those_of_a_loop():
    past = Past.of(drawn())
    for v in range(3):
        rows, _ = past.readings_of(v)
        for u in range(3):
            expected = [
                [by_hand(past, u, sample, time, lag) for lag in LAGS]
                for sample, time in zip(rows.sample.tolist(), rows.time.tolist(), strict=True)
            ]
            assert_close(past.values(u, rows), np.array(expected), magnitude=1e3)


def test_readings_closer_than_the_rounding_of_keys_are_told_apart():
    time = np.array([0.0, 1.0, np.nextafter(1.0, 2.0), 1e9])
    table = EventTable.from_columns(
        np.repeat(["a", "b", "c"], 4), np.tile(time, 3), ["u"] * 12, np.tile([1.0, 2.0, 5.0, 9.0], 3)
    )
    past = Past.of(table)
    _, value = past.readings_of(0)
    rows = Rows(np.array([2, 2, 2]), time[1:])
    assert past.values(0, rows, (0.0,))[0, 0] != 0
    for at in range(3):  # the latest earlier reading, decayed by next to nothing
        age = time[at + 1] - time[at]
        assert past.age(0, rows)[at] == age
        assert_close(past.values(0, rows, (0.0,))[at, 0], value[at] * np.exp(-age / past.memory[0]))


def test_a_random_order_is_the_same_for_all_sensors_at_a_moment_and_another_with_another_seed():
    past = Past.of(drawn())
    rows = Rows(np.repeat(np.arange(7), 200), np.tile(np.arange(200.0), 7))
    order = past.random_order(rows, 0)
    np.testing.assert_array_equal(past.random_order(Rows(rows.sample[::3], rows.time[::3]), 0), order[::3])
    assert len(np.unique(order)) == len(order)
    assert (past.random_order(rows, 1) != order).all()
    chosen = np.argsort(order)[:700]
    counts = np.bincount(rows.sample[chosen], minlength=7)
    assert (np.abs(counts - 100) < 40).all()  # five standard deviations: no sample is preferred


def test_a_draw_keeps_the_moments_at_which_rare_sensors_are_read():
    time = np.arange(400.0)
    rare = time[::20]
    table = EventTable.from_columns(
        ["a"] * 840,
        np.concatenate([time, time, rare, rare]),
        ["often"] * 400 + ["as often"] * 400 + ["rare"] * 20 + ["as rare"] * 20,
        np.arange(840.0),
    )
    past, moments = Past.of(table), []
    for name in ("often", "as often"):
        rows, _ = past.readings_of(table.sensors.index(name))
        drawn_rows = past.drawn(table.sensors.index(name), np.arange(1, 400), 60, 0)
        assert len(np.unique(drawn_rows)) == 60
        moments.append(set(rows.time[drawn_rows].tolist()))
    assert moments[0] == moments[1]
    assert set(rare[1:].tolist()) <= moments[0]  # all but the first reading, which was not usable
    by_seed = [tuple(past.drawn(0, np.arange(1, 400), 60, seed)) for seed in range(3)]
    assert len(set(by_seed)) == 3
