"""The step of a query compared with loops over the readings of its sample."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from closeness import assert_close

from raindrop.batch.batch import Queries
from raindrop.models.baselines.query_steps import Past, QueryTimes, reversed_in_time

INTERVAL = torch.tensor([1.0, 2.0, 0.5, 4.0])


@pytest.fixture
def asked(batch):
    """Between timestamps, at some of them, and outside; duplicates; sample 4 has no readings, sample 3 one."""
    at = batch.time[[1, 4, 7]]
    time = torch.cat([torch.tensor([-3.0, 0.0, 12.34, 12.34, 30.0, 60.0, 2.0, 3.25], dtype=torch.float64), at])
    sample = torch.cat([torch.tensor([0, 1, 0, 0, 2, 2, 4, 3]), batch.step_sample[[1, 4, 7]]])
    return Queries(sample, torch.arange(len(time)) % 4, time)


def readings_of(batch, b):
    return [
        (float(batch.time[s]), int(u), float(x))
        for s, u, x in zip(batch.step, batch.sensor, batch.value, strict=True)
        if batch.step_sample[s] == b
    ]


def test_a_query_sees_each_sensors_last_reading_strictly_before_and_the_others_readings_at_its_time(batch, asked):
    steps = Past(batch, INTERVAL).at(asked.sample, asked.time, asked.sensor)
    for q in range(len(asked)):
        t, v, readings = float(asked.time[q]), int(asked.sensor[q]), readings_of(batch, int(asked.sample[q]))
        before = [time for time, _, _ in readings if time < t]
        assert (steps.previous[q] < 0) == (not before)
        if before:
            assert batch.time[steps.previous[q]] == max(before)
            assert batch.step_sample[steps.previous[q]] == asked.sample[q]
        assert_close(
            float(steps.gap[q]), (t - max(before)) / float(INTERVAL.median()) if before else 0.0, dtype="float32"
        )
        for u in range(4):
            own = [(time, x) for time, sensor, x in readings if sensor == u and time < t]
            here = [x for time, sensor, x in readings if sensor == u and time == t and u != v]
            assert bool(steps.known[q, u]) == bool(own)
            assert bool(steps.observed[q, u]) == bool(here)
            assert_close(float(steps.value[q, u]), here[0] if here else 0.0)
            assert_close(float(steps.last[q, u]), own[-1][1] if own else 0.0)
            since = own[-1][0] if own else min([time for time, _, _ in readings], default=t)
            assert_close(float(steps.elapsed[q, u]), max(0.0, t - since) / float(INTERVAL[u]), dtype="float32")


def test_a_query_at_a_timestamp_has_the_inputs_of_that_timestamp(batch):
    past = Past(batch, INTERVAL)
    here = past.at(batch.step_sample, batch.time)
    for name in ("previous", "gap", "value", "observed", "known", "last"):
        assert torch.equal(getattr(here, name), getattr(past.steps, name)), name
    assert_close(here.elapsed, past.steps.elapsed)


def test_reversing_twice_gives_the_batch_back(batch, asked):
    batch = replace(batch, queries=asked)
    again = reversed_in_time(reversed_in_time(batch))
    for name in ("value", "sensor", "step", "time", "step_sample"):
        assert torch.equal(getattr(again, name), getattr(batch, name)), name
    assert torch.equal(again.queries.time, asked.time)


def test_a_reversed_batch_holds_the_same_readings_in_reverse_order(batch):
    back = reversed_in_time(batch)
    for b in range(batch.num_samples):
        forward = readings_of(batch, b)
        assert sorted((-t, u, x) for t, u, x in readings_of(back, b)) == sorted(forward)
        times = back.time[back.step_sample == b]
        assert (times.diff() > 0).all()


def test_states_follow_each_sample_step_by_step(batch):
    """A counter: its state after the t-th timestamp of a sample is the sum of the t first inputs."""
    x = torch.rand(batch.num_steps, 2)
    states = Past(batch, INTERVAL).run(lambda state, inputs: state + inputs, torch.zeros(batch.num_samples, 2), [x])
    for s in range(batch.num_steps):
        same = (batch.step_sample == batch.step_sample[s]) & (torch.arange(batch.num_steps) <= s)
        assert_close(states[s], x[same].sum(0))


def test_the_times_of_queries_are_distinct_and_belong_to_their_samples(batch, asked):
    times = QueryTimes.from_batch(replace(batch, queries=asked))
    assert torch.equal(times.sample[times.index], asked.sample)
    assert torch.equal(times.time[times.index], asked.time)
    pairs = list(zip(times.sample.tolist(), times.time.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs) == len(asked) - 1
    x = torch.rand(len(pairs), 3)
    assert torch.equal(times.layout.unpad(times.layout.pad(x)), x)
