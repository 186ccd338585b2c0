"""GRIN compared with its equations, sensor by sensor and timestamp by timestamp."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from closeness import assert_close

from raindrop.batch.batch import Queries
from raindrop.models.base import DataSpec
from raindrop.models.baselines.grin import GRIN, GRINConfig
from raindrop.models.baselines.query_steps import Past
from raindrop.tasks.readings import ReadingsAt

M, DIM = 4, 3


@pytest.fixture(params=[1, 2])
def model(table, request):
    spec = DataSpec(table.sensors, ReadingsAt(table.sensors), 4)
    model = GRIN(GRINConfig(state_dim=DIM, hidden=6, sensor_dim=2, adjacency_dim=3, order=request.param), spec).eval()
    model.interval.copy_(torch.tensor([1.0, 2.0, 0.5, 4.0]))
    return model


def adjacency(first, second):
    """softmax(relu(E_1 E_2^T)) over the other sensors."""
    A = torch.zeros(M, M)
    for i in range(M):
        weights = {j: math.exp(max(0.0, float(first[i] @ second[j]))) for j in range(M) if j != i}
        for j, weight in weights.items():
            A[i, j] = weight / sum(weights.values())
    return A


def graph_convolution(layer, supports, columns):
    """x W_0 + sum over supports of A x W for columns (v, c) of one timestamp.

    The weights lie by column, then by [x, A_1 x, A_2 x, ...]: first x2, then [m, u], then the state.
    """
    out = []
    for i in range(M):
        inputs = []
        for x in columns:
            inputs.append(x[i])
            inputs += [sum(A[i, j] * x[j] for j in range(M)) for A in supports]
        out.append(layer.weight @ torch.cat(inputs) + layer.bias)
    return torch.stack(out)


def step(cell, pair, supports, h, readings, t, gap):
    """y1, y2, S and the next state (v, ...) at time t."""
    m = torch.tensor([float((t, v) in readings) for v in range(M)])
    x = torch.tensor([readings.get((t, v), 0.0) for v in range(M)])
    u = math.log1p(gap)
    y1 = torch.stack([cell.first_stage.weight[0] @ h[v] + cell.first_stage.bias[0] for v in range(M)])
    x1 = m * x + (1 - m) * y1
    S = []
    for i in range(M):
        received = [[sum(A[i, j] * column[j] for j in range(M) if j != i) for A in pair] for column in (x1, m, h)]
        (x_1, x_2), (m_1, m_2), (h_1, h_2) = received
        inputs = torch.cat([torch.stack([x_1, x_2]), torch.tensor([m_1, u, m_2, u]), h[i], h_1, h_2])
        linear = cell.decoder.weight @ inputs + cell.decoder.bias
        S.append(torch.where(linear > 0, linear, cell.activation.weight * linear))
    S = torch.stack(S)
    both = torch.cat([S, h], dim=1)
    y2 = torch.stack([cell.second_stage.weight[0] @ both[v] + cell.second_stage.bias[0] for v in range(M)])
    x2 = (m * x + (1 - m) * y2)[:, None]
    about = torch.stack([m, torch.full((M,), u)], dim=1)
    r, z = torch.sigmoid(graph_convolution(cell.gates, supports, [x2, about, h])).chunk(2, dim=1)
    c = torch.tanh(graph_convolution(cell.candidate, supports, [x2, about, r * h]))
    return y1, y2, both, z * h + (1 - z) * c


def at_last(model, cell, readings, times):
    """y1, y2 and [S, h] at the last of the times."""
    pair = [adjacency(model.E_1, model.E_2), adjacency(model.E_2, model.E_1)]
    supports = pair + [A @ A for A in pair] * (model.config.order - 1)
    h, unit, before = cell.start, float(model.interval.median()), times[0]
    for t in times:
        y1, y2, both, h = step(cell, pair, supports, h, readings, t, (t - before) / unit)
        before = t
    return y1, y2, both


def readings_of(batch, b, sign=1):
    return {
        (sign * float(batch.time[s]), int(u)): float(x)
        for s, u, x in zip(batch.step, batch.sensor, batch.value, strict=True)
        if batch.step_sample[s] == b
    }


@pytest.mark.slow
@torch.no_grad()
def test_both_stages_are_the_equations(model, batch):
    powers = [model.adjacency()]
    supports = torch.cat([*powers, powers[0] @ powers[0]][: model.config.order])
    cell, past = model.cells[0], Past(batch, model.interval)
    y1, y2, both = cell.decode(past.steps, cell.run(past, supports), supports)
    for b in range(2):
        steps = torch.flatten(torch.nonzero(batch.step_sample == b)).tolist()
        for last, s in enumerate(steps):
            times = batch.time[steps[: last + 1]].tolist()
            expected = at_last(model, cell, readings_of(batch, b), times)
            for one, other in zip((y1[:, s], y2[:, s], both[:, s]), expected, strict=True):
                assert_close(one, other, roundings=256)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("t", [None, 12.34, 70.0])
def test_the_median_joins_both_directions(model, batch, t):
    time = float(batch.time[2]) if t is None else t
    for v in range(M):
        parts = []
        for cell, sign in zip(model.cells, (1, -1), strict=True):
            readings = readings_of(batch, 0, sign)
            readings.pop((sign * time, v), None)
            before = sorted({when for when, _ in readings if when < sign * time})
            parts.append(at_last(model, cell, readings, [*before, sign * time])[2][v])
        x = torch.cat([*parts, model.sensors[v], batch.statics[0]])
        expected = model.centre(torch.relu(model.join(x)))[0]
        asked = Queries(torch.tensor([0]), torch.tensor([v]), torch.tensor([time], dtype=torch.float64))
        assert_close(model(replace(batch, queries=asked)).scores[0, 2], expected, roundings=256)


@torch.no_grad()
def test_each_sensor_receives_weights_that_sum_to_1_and_nothing_from_itself(model):
    A = model.adjacency()
    assert_close(A[0], adjacency(model.E_1, model.E_2))
    assert_close(A[1], adjacency(model.E_2, model.E_1))
    assert_close(A.sum(-1), torch.ones(2, M))
    assert not A.diagonal(dim1=1, dim2=2).any()


@torch.no_grad()
def test_a_single_sensor_receives_nothing(make_table, make_batch):
    table = make_table(samples=3, sensors=1, times=4, extremes=False)
    model = GRIN(GRINConfig(state_dim=DIM), DataSpec(table.sensors, ReadingsAt(table.sensors), 4)).eval()
    asked = Queries(torch.tensor([0, 1]), torch.tensor([0, 0]), torch.tensor([5.0, 9.0], dtype=torch.float64))
    assert not model.adjacency().any()
    assert model(replace(make_batch(table), queries=asked)).scores.isfinite().all()
