"""Decaying averages, last, next and interpolated values at any time, compared with loops over the readings."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from closeness import ONE_SUM, assert_close
from nearby_loops import of_query, readings_of
from paper_checks import as_double
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.nearby import MAX_AGE, NO_EVIDENCE, SCALES, Moments, Series

INTERVAL = [0.9, 2.0, 5.0, 1.0, 3.5]
EPOCH = 1.7e9  # Unix seconds of 2023, which single precision knows only to the nearest two minutes


def make_series(batch: Batch, interval: list[float] | None = None, scales: Any = SCALES) -> Series:
    kind = batch.value.dtype
    return Series(batch, torch.tensor(interval or INTERVAL, dtype=kind), torch.tensor(scales, dtype=kind))


def queries_everywhere(batch: Batch, *, beyond: float = 30.0) -> Queries:
    """Every sensor of every sample at its readings' times, between them, before the first and after the last."""
    rng = np.random.default_rng(3)
    rows = []
    span = (float(batch.time.min()), float(batch.time.max()))
    for b in range(batch.num_samples):
        times = batch.time[batch.step_sample == b].tolist()
        drawn = rng.uniform(span[0] - beyond, span[1] + beyond, 6).tolist()
        middles = [(one + other) / 2 for one, other in pairwise(times)]
        for time in [*times, *middles, *drawn]:
            rows += [(b, u, time) for u in range(batch.num_sensors)]
    order = rng.permutation(len(rows))  # queries need not come in any order
    sample, sensor, time = zip(*[rows[at] for at in order], strict=True)
    return Queries(torch.tensor(sample), torch.tensor(sensor), torch.tensor(time, dtype=torch.float64))


def assert_equals_loops(batch: Batch, series: Series, queries: Queries, strict: bool, roundings: int = ONE_SUM) -> None:
    moments = series.around(queries.sample, queries.sensor, queries.time, strict=strict)
    scales = series.scales.tolist()
    expected = [of_query(batch, queries, at, series.interval, scales, strict=strict) for at in range(len(queries))]
    loops = {name: np.array([getattr(e, name) for e in expected]) for name in ("both", "before", "after")}
    logs = {name: np.array([getattr(e, name) for e in expected]) for name in ("log_before", "log_after")}
    kind = np.float64 if batch.value.dtype == torch.float64 else np.float32
    for found, wanted in zip(moments.averages(), [*loops.values(), *logs.values()], strict=True):
        assert_close(found, wanted, magnitude=-NO_EVIDENCE, roundings=roundings, dtype=kind)
    for found, name in zip(moments.values(), ("last", "next", "line"), strict=True):
        assert_close(found, [getattr(e, name) for e in expected], roundings=roundings, dtype=kind)
    assert moments.has_previous.tolist() == [e.last_time is not None for e in expected]
    assert moments.has_following.tolist() == [e.next_time is not None for e in expected]
    times = [(moments.previous_time(), moments.has_previous, "last_time")]
    times += [(moments.following_time(), moments.has_following, "next_time")]
    for found, present, name in times:
        assert found[present].tolist() == [t for e in expected if (t := getattr(e, name)) is not None]
    for found, present, name in (
        (moments.age, moments.has_previous, "age"),
        (moments.wait, moments.has_following, "wait"),
    ):
        there = np.array([getattr(e, name) for e in expected])[present.numpy()]
        assert_close(found[present], there, magnitude=MAX_AGE, roundings=roundings, dtype=kind)


@pytest.fixture
def batch(make_table, make_batch) -> Batch:
    """Sensors share some times; one sample has no reading, one has one, and one lacks a sensor."""
    return as_double(make_batch(make_table(observed=0.5)))


@pytest.mark.parametrize("strict", [False, True])
def test_averages_weights_and_values_equal_loops_over_the_readings(batch, strict):
    series, queries = make_series(batch), queries_everywhere(batch)
    own_times = [{t for t, _ in readings_of(batch, *at)} for at in zip(queries.sample, queries.sensor, strict=True)]
    at_a_reading = [time in times for time, times in zip(queries.time.tolist(), own_times, strict=True)]
    assert sum(at_a_reading) > 20  # where `strict` matters
    assert_equals_loops(batch, series, queries, strict)


@pytest.mark.parametrize("strict", [False, True])
def test_unix_seconds_with_gaps_of_milliseconds_are_distinguished(batch, strict):
    batch = replace(batch, time=EPOCH + batch.time / 64, value=batch.value.float())
    assert batch.time.diff().abs().min() < 0.1
    series = make_series(batch, [width / 64 for width in INTERVAL])
    assert_equals_loops(batch, series, queries_everywhere(batch, beyond=0.5), strict)


def test_the_line_is_straight_over_gaps_longer_than_the_largest_age(batch):
    """An age is bounded as evidence, not as a place between two readings."""
    batch = replace(batch, time=batch.time * 500)
    assert_equals_loops(batch, make_series(batch), queries_everywhere(batch, beyond=9000.0), False)


def test_any_widths_are_possible_and_some_can_be_picked(batch):
    queries = queries_everywhere(batch)
    series = make_series(batch, scales=(0.05, 100.0))
    assert_equals_loops(batch, series, queries, False)
    moments = make_series(batch).around(queries.sample, queries.sensor, queries.time)
    for all_widths, picked in zip(moments.averages(), moments.averages([3, 1]), strict=True):
        assert torch.equal(all_widths[:, [3, 1]], picked)


def test_several_sensors_at_a_time_are_each_of_them_at_that_time(batch):
    queries, series = queries_everywhere(batch)[:40], make_series(batch)
    every = torch.arange(batch.num_sensors).expand(len(queries), -1)
    all_of_them = series.around(queries.sample, every, queries.time, strict=True)
    expected = all_of_them.averages() + all_of_them.values()
    for u in range(batch.num_sensors):
        alone = series.around(queries.sample, every[:, u], queries.time, strict=True)
        for one, other in zip(expected, alone.averages() + alone.values(), strict=True):
            assert torch.equal(one[:, u], other)


def test_a_long_series_equals_the_loop(make_table, make_batch):
    """Longer than any power of two that the scan doubles through, and beside a short one."""
    table = make_table(samples=2, sensors=2, times=333, observed=0.9, extremes=False)
    batch = as_double(make_batch(table))
    assert max(len(readings_of(batch, b, u)) for b in range(2) for u in range(2)) > 256
    chosen = np.random.default_rng(0).permutation(len(queries := queries_everywhere(batch)))[:60]
    # A sum of 300 terms in another order than the loop's.
    assert_equals_loops(batch, make_series(batch, [0.1, 0.2]), queries[torch.from_numpy(chosen)], False, 8 * ONE_SUM)


def test_without_any_reading_there_is_no_evidence(make_table, make_batch):
    batch = make_batch(make_table(), [5])
    assert not len(batch.value)
    series = make_series(batch)
    moments = series.around(torch.tensor([0, 0]), torch.tensor([1, 4]), torch.tensor([0.0, 9.0]).double())
    assert not moments.has_previous.any()
    assert not moments.has_following.any()
    both, before, after, log_before, log_after = moments.averages()
    for average in (both, before, after, *moments.values()):
        assert not average.any()
    assert both.shape == (2, len(SCALES))
    assert (log_before == NO_EVIDENCE).all()
    assert (log_after == NO_EVIDENCE).all()
    assert moments.previous_time().shape == moments.following_time().shape == (2,)
    nobody = series.around(torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0).double())
    assert nobody.averages()[0].shape == (0, len(SCALES))


def test_a_sample_has_nothing_to_do_with_the_samples_beside_it(batch):
    queries, series = queries_everywhere(batch), make_series(batch)
    others = batch.sample != 2
    changed = replace(batch, value=torch.where(others, batch.value + 100, batch.value))
    own = queries[queries.sample == 2]
    found, expected = (s.around(own.sample, own.sensor, own.time).averages() for s in (make_series(changed), series))
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


class ElementCount(TorchDispatchMode):
    """Counts the numbers in the results of all operations, which is what their cost grows with."""

    total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            self.total += tensor.numel() if isinstance(tensor, Tensor) else 0
        return result


def count_elements(num_readings: int, num_queries: int, num_sensors: int) -> tuple[int, int]:
    """What making the series costs, and what asking for all sensors at some times costs."""
    each = num_readings // num_sensors
    batch = Batch(
        value=torch.randn(num_readings),
        sensor=torch.arange(num_sensors).repeat(each),
        step=torch.arange(each).repeat_interleave(num_sensors),
        time=torch.arange(each).double(),
        step_sample=torch.zeros(each, dtype=torch.long),
        statics=torch.zeros(1, 0),
        num_sensors=num_sensors,
    )
    time = torch.rand(num_queries).double() * each
    with ElementCount() as making:
        series = Series(batch, torch.ones(num_sensors), torch.tensor(SCALES))
        series._ranks  # noqa: B018
    with ElementCount() as asking:
        moments: Moments = series.around(
            torch.zeros(num_queries, dtype=torch.long), torch.arange(num_sensors).expand(num_queries, -1), time
        )
        moments.averages()
        moments.values()
    return making.total, asking.total


@pytest.mark.slow
def test_the_cost_grows_with_the_readings_and_with_the_queries_not_with_their_product():
    making, asking = count_elements(4_000, 500, 4)
    more_readings, asking_more_readings = count_elements(32_000, 500, 4)
    assert more_readings < 8 * 1.3 * making  # the scan has log2(8) = 3 rounds more than its 10
    views = 10  # of the averages and weights of two sides; how many there are depends on the version of torch
    assert asking_more_readings < asking + views * len(SCALES) * 32_000
    assert count_elements(4_000, 4_000, 4)[1] < 8.5 * asking
