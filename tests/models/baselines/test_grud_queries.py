"""GRU-D's answer to a query compared with its equations in loops, forwards and backwards in time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from closeness import assert_close

from raindrop.batch.batch import Queries
from raindrop.models.base import DataSpec
from raindrop.models.baselines.grud_queries import GRUDQueries, GRUDQueryConfig
from raindrop.models.baselines.query_steps import Past
from raindrop.tasks.readings import ReadingsAt

INTERVAL = torch.tensor([1.0, 2.0, 0.5, 4.0])


@pytest.fixture
def model(table):
    spec = DataSpec(table.sensors, ReadingsAt(table.sensors), 4)
    model = GRUDQueries(GRUDQueryConfig(state_dim=5), spec).eval()
    model.interval.copy_(INTERVAL)
    return model


def one_direction(cell, readings, times, v, t):
    """Eq. 10-16 over the times before t and at t itself, without a reading of v there: state, gamma_x, last of v."""
    dim, M = 5, 4
    W, V, b = ([part[..., at * dim : (at + 1) * dim] for at in range(3)] for part in (cell.W, cell.V, cell.b))
    U = [cell.U_gates[:, :dim], cell.U_gates[:, dim:], cell.U]
    h, last, since = torch.zeros(dim), torch.zeros(M), torch.full((M,), min([*times, t]))
    known = torch.zeros(M)
    for time in [*[time for time in times if time < t], t]:
        m = torch.tensor([float((time, u) in readings and (time, u) != (t, v)) for u in range(M)])
        delta = (time - since) / INTERVAL
        gamma = torch.exp(-torch.relu(cell.input_decay * delta + cell.input_decay_bias))
        answer = gamma[v] * known[v], last[v].clone()
        x = torch.tensor([readings[time, u] if m[u] else float(gamma[u] * last[u]) for u in range(M)])
        h = torch.exp(-torch.relu(delta @ cell.state_decay + cell.state_decay_bias)) * h
        z = torch.sigmoid(x @ W[0] + h @ U[0] + m @ V[0] + b[0])
        r = torch.sigmoid(x @ W[1] + h @ U[1] + m @ V[1] + b[1])
        h = (1 - z) * h + z * torch.tanh(x @ W[2] + (r * h) @ U[2] + m @ V[2] + b[2])
        for u in range(M):
            if m[u]:
                last[u], since[u], known[u] = readings[time, u], time, 1.0
    return h, *answer


@torch.no_grad()
@pytest.mark.parametrize("t", [None, -2.0, 12.34, 70.0])
def test_the_median_is_the_carried_reading_corrected_by_both_states(model, batch, t):
    for v in range(4):
        time = float(batch.time[2]) if t is None else t
        steps = torch.flatten(torch.nonzero(batch.step_sample == 0))
        times = batch.time[steps].tolist()
        readings = {
            (float(batch.time[s]), int(u)): float(x)
            for s, u, x in zip(batch.step, batch.sensor, batch.value, strict=True)
            if batch.step_sample[s] == 0
        }
        forward = one_direction(model.cells[0], readings, times, v, time)
        mirrored = {(-key, u): x for (key, u), x in readings.items()}
        backward = one_direction(model.cells[1], mirrored, [-x for x in reversed(times)], v, -time)
        (h_f, gamma_f, last_f), (h_b, gamma_b, last_b) = forward, backward
        carried = (gamma_f * last_f + gamma_b * last_b) / max(1.0, float(gamma_f + gamma_b))
        x = torch.cat([h_f, h_b, batch.statics[0]])
        expected = carried + model.centre.weight[v] @ x + model.centre.bias[v]
        asked = Queries(torch.tensor([0]), torch.tensor([v]), torch.tensor([time], dtype=torch.float64))
        assert_close(model(replace(batch, queries=asked)).scores[0, 2], expected, roundings=256)


@torch.no_grad()
@pytest.mark.parametrize(("t", "directions"), [(70.0, 1), (12.34, 2)])
def test_a_forecast_runs_no_recurrence_backwards_in_time(model, batch, monkeypatch, t, directions):
    runs = []
    run = Past.run
    monkeypatch.setattr(Past, "run", lambda self, *rest: runs.append(self) or run(self, *rest))
    asked = Queries(torch.tensor([0]), torch.tensor([1]), torch.tensor([t], dtype=torch.float64))
    model(replace(batch, queries=asked))
    assert len(runs) == directions
