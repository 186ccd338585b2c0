"""BRITS compared with its equations, timestamp by timestamp."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from closeness import assert_close

from raindrop.batch.batch import Queries
from raindrop.models.base import DataSpec
from raindrop.models.baselines.brits import BRITS, BRITSConfig
from raindrop.models.baselines.query_steps import Past, reversed_in_time
from raindrop.tasks.readings import ReadingsAt

INTERVAL = torch.tensor([1.0, 2.0, 0.5, 4.0])
M, DIM = 4, 5


@pytest.fixture
def model(table):
    spec = DataSpec(table.sensors, ReadingsAt(table.sensors), 4)
    model = BRITS(BRITSConfig(state_dim=DIM), spec).eval()
    model.interval.copy_(INTERVAL)
    return model


def readings_of(batch, b, sign):
    return {
        (sign * float(batch.time[s]), int(u)): float(x)
        for s, u, x in zip(batch.step, batch.sensor, batch.value, strict=True)
        if batch.step_sample[s] == b
    }


def estimates(cell, readings, times):
    """Eq. 1-11 in loops: x^, z^ and c^ at the last of the times."""
    h, memory = torch.zeros(DIM), torch.zeros(DIM)
    since = torch.full((M,), times[0])
    for t in times:
        m = torch.tensor([float((t, u) in readings) for u in range(M)])
        x = torch.tensor([readings.get((t, u), 0.0) for u in range(M)])
        delta = (t - since) / INTERVAL
        h = h * torch.exp(-torch.relu(delta @ cell.state_decay + cell.state_decay_bias))  # Eq. 3-4
        past = cell.history.weight @ h + cell.history.bias  # Eq. 1
        filled = m * x + (1 - m) * past  # Eq. 2
        others, beta = torch.zeros(M), torch.zeros(M)
        gamma_x = torch.exp(-torch.relu(cell.input_decay * delta + cell.input_decay_bias))
        for v in range(M):
            others[v] = cell.b_z[v] + sum(filled[u] * cell.W_z[u, v] for u in range(M) if u != v)  # Eq. 7
            score = gamma_x @ cell.W_gamma[:, v] + sum(m[u] * cell.W_m[u, v] for u in range(M) if u != v)
            beta[v] = torch.sigmoid(score + cell.b_beta[v])  # Eq. 8
        combined = beta * others + (1 - beta) * past  # Eq. 9
        inputs = torch.cat([m * x + (1 - m) * combined, m])  # Eq. 10
        h, memory = (part[0] for part in cell.lstm(inputs[None], (h[None], memory[None])))  # Eq. 11
        since = torch.where(m > 0, t, since)
    return past, others, combined


@torch.no_grad()
@pytest.mark.parametrize("direction", [0, 1])
def test_the_estimates_at_timestamps_are_the_equations(model, batch, direction):
    turned = reversed_in_time(batch) if direction else batch
    cell, past = model.cells[direction], Past(turned, INTERVAL)
    actual = cell.estimates(past.steps, cell.run(past))[1]
    for b in range(4):
        steps = torch.flatten(torch.nonzero(turned.step_sample == b)).tolist()
        readings = readings_of(turned, b, 1)
        for last, s in enumerate(steps):
            expected = estimates(cell, readings, turned.time[steps[: last + 1]].tolist())
            for one, other in zip(actual, expected, strict=True):
                assert_close(one[s], other, roundings=256)


@torch.no_grad()
@pytest.mark.parametrize("t", [None, 12.34, 70.0, -2.0])
def test_the_median_is_the_mean_of_both_directions_that_have_readings(model, batch, t):
    time = float(batch.time[2]) if t is None else t
    for v in range(M):
        parts = []
        for cell, sign in zip(model.cells, (1, -1), strict=True):
            readings = readings_of(batch, 0, sign)
            readings.pop((sign * time, v), None)
            before = sorted({when for when, _ in readings if when < sign * time})
            if before:
                parts.append(estimates(cell, readings, [*before, sign * time])[2][v])
        asked = Queries(torch.tensor([0]), torch.tensor([v]), torch.tensor([time], dtype=torch.float64))
        median = model(replace(batch, queries=asked)).scores[0, 2]
        assert_close(median, torch.stack(parts).mean(), roundings=256)


def test_the_reconstruction_compares_every_estimate_with_the_reading(model, batch):
    asked = Queries(torch.tensor([0]), torch.tensor([0]), torch.tensor([5.0], dtype=torch.float64))
    batch = replace(batch, queries=asked)
    penalty = model.train()(batch).penalty
    total, by_time = 0.0, []
    for cell, turned, sign in zip(model.cells, (batch, reversed_in_time(batch)), (1, -1), strict=True):
        past = Past(turned, INTERVAL)
        parts = cell.estimates(past.steps, cell.run(past))[1]
        for part in parts:
            errors = [abs(part[s, u] - x) for s, u, x in zip(turned.step, turned.sensor, turned.value, strict=True)]
            total += torch.stack(errors).mean()
        keys = zip(turned.step_sample.tolist(), (sign * turned.time).tolist(), strict=True)
        by_time.append(dict(zip(keys, parts[2], strict=True)))
    distances = [(by_time[0][key] - by_time[1][key]).abs() for key in by_time[0]]
    expected = 0.3 * (total + 0.1 * torch.stack(distances).mean())
    assert_close(penalty, expected, roundings=256)
    assert not model.eval()(batch).penalty
