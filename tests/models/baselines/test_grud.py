"""GRU-D compared with its equations, step by step and sensor by sensor."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from closeness import assert_close, tolerance

from raindrop.models.baselines.grud import GRUD, GRUDConfig, last_readings
from raindrop.models.layers import dense_values


@pytest.fixture
def table(make_table):
    return make_table(samples=7, sensors=4, times=9)


@pytest.fixture
def model(table, make_spec):
    return GRUD(GRUDConfig(state_dim=5, time_scale=4.0), make_spec(table)).eval()


def gaps(observed, times):
    """Eq. 2, the recursion of the paper: (t, u)."""
    delta = torch.zeros(observed.shape)
    for t in range(1, len(times)):
        for d in range(observed.shape[1]):
            step = float(times[t] - times[t - 1])
            delta[t, d] = step if observed[t - 1, d] else step + delta[t - 1, d]
    return delta


def last_state(model, values, observed, times):
    """Eq. 10-16 for one sample."""
    dim, delta = model.config.state_dim, gaps(observed, times) / model.config.time_scale
    h, last = torch.zeros(dim), torch.zeros(observed.shape[1])
    W, V, b = ([part[..., at * dim : (at + 1) * dim] for at in range(3)] for part in (model.W, model.V, model.b))
    U = [model.U_gates[:, :dim], model.U_gates[:, dim:], model.U]
    for t in range(len(times)):
        x = torch.zeros(observed.shape[1])
        for d in range(observed.shape[1]):
            gamma = math.exp(-max(0.0, float(model.input_decay[d] * delta[t, d] + model.input_decay_bias[d])))
            x[d] = values[t, d] if observed[t, d] else gamma * last[d] + (1 - gamma) * 0.0
            last[d] = values[t, d] if observed[t, d] else last[d]
        m = observed[t].float()
        h = torch.exp(-torch.relu(delta[t] @ model.state_decay + model.state_decay_bias)) * h
        z = torch.sigmoid(x @ W[0] + h @ U[0] + m @ V[0] + b[0])
        r = torch.sigmoid(x @ W[1] + h @ U[1] + m @ V[1] + b[1])
        candidate = torch.tanh(x @ W[2] + (r * h) @ U[2] + m @ V[2] + b[2])
        h = (1 - z) * h + z * candidate
    return h


@torch.no_grad()
def test_the_gap_is_the_recursion_of_equation_2(batch):
    delta = last_readings(batch, dense_values(batch))[1]
    grid = batch.grid()
    for b in range(6):
        present = grid.present[b]
        torch.testing.assert_close(
            delta[batch.step_sample == b], gaps(grid.observed[b, present], grid.time[b, present])
        )


@torch.no_grad()
def test_the_last_state_is_equations_10_to_16(model, batch):
    embedding, grid = model(batch).embedding, batch.grid()
    for b in range(6):
        present = grid.present[b]
        expected = last_state(model, grid.value[b, present], grid.observed[b, present], grid.time[b, present])
        assert_close(embedding[b], expected)
    assert not embedding[6].any()  # a sample without readings


@torch.no_grad()
def test_a_negative_decay_rate_does_not_amplify(model, batch):
    """max(0, .): neither a reading nor the state may grow."""
    model.input_decay -= 10
    model.state_decay -= 10
    embedding, grid = model(batch).embedding, batch.grid()
    present = grid.present[0]
    torch.testing.assert_close(
        embedding[0], last_state(model, grid.value[0, present], grid.observed[0, present], grid.time[0, present])
    )


@torch.no_grad()
def test_a_reading_decays_with_real_time(model, table, make_batch):
    """The same ranks with longer gaps give another state."""
    batch = make_batch(table)
    slower = replace(batch, time=batch.time * 5)
    difference = (model(slower).embedding - model(batch).embedding).abs().amax(1)
    assert (difference[:5] > 10 * tolerance()).all()
    assert (difference[5:] <= tolerance()).all()  # one timestamp, or none: no gap


def test_a_sample_that_has_ended_takes_no_more_steps(model, batch, monkeypatch):
    rows = []
    tanh = torch.tanh
    monkeypatch.setattr(torch, "tanh", lambda x: rows.append(len(x)) or tanh(x))
    model(batch)
    counts = batch.samples.counts
    assert rows == [int((counts > t).sum()) for t in range(int(counts.max()))]
