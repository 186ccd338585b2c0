"""ODE-RNN compared with Algorithm 1 of its paper, one sample at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from closeness import assert_close, tolerance

from raindrop.models.baselines.odernn import ODERNN, GRUJump, ODERNNConfig, flow


@pytest.fixture
def model(table, make_spec):
    torch.manual_seed(0)
    return ODERNN(ODERNNConfig(hidden=6, width=5, steps=2), make_spec(table)).eval()


@torch.no_grad()
def test_the_state_is_algorithm_1(model, batch):
    embedding = model(batch).embedding
    time = model.clock(batch.time, like=batch.value)
    for b in range(5):
        h = torch.zeros(1, 6)
        steps = torch.nonzero(batch.step_sample == b)[:, 0].tolist()
        for i, step in enumerate(steps):
            if i:
                for _ in range(2):
                    h = h + (time[step] - time[steps[i - 1]]) / 2 * model.f(h)
            x = torch.zeros(1, 8)
            for n in torch.nonzero(batch.step == step)[:, 0].tolist():
                x[0, batch.sensor[n]], x[0, 4 + batch.sensor[n]] = batch.value[n], 1.0
            h = model.jump(model.jump.from_readings(x), h)
        assert_close(embedding[b], h[0])


@torch.no_grad()
def test_the_jump_is_a_gru_cell():
    jump, cell = GRUJump(3, 4), torch.nn.GRUCell(3, 4)
    cell.weight_ih.copy_(jump.from_readings.weight)
    cell.bias_ih.copy_(jump.from_readings.bias)
    cell.weight_hh.copy_(jump.from_state.weight)
    cell.bias_hh.copy_(jump.from_state.bias)
    x, h = torch.randn(5, 3), torch.randn(5, 4)
    torch.testing.assert_close(jump(jump.from_readings(x), h), cell(x, h))


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("rk4", 4)])
def test_the_solver_converges_at_its_order(solver, order):
    """dh/dt = -h: twice the steps, an error smaller by 2^order."""
    h, gap = torch.ones(1, 1, dtype=torch.float64), torch.full((1, 1), 2.0, dtype=torch.float64)
    errors = [float((flow(lambda x: -x, h, gap, steps, solver) - torch.exp(-gap)).abs()) for steps in (8, 16)]
    assert errors[0] / errors[1] == pytest.approx(2**order, rel=0.2)


@torch.no_grad()
def test_the_state_depends_on_the_length_of_the_gaps(model, batch):
    stretched = replace(batch, time=batch.time * 3)
    long = batch.samples.counts > 1
    change = (model(stretched).embedding - model(batch).embedding).abs().amax(1)
    assert (change[long] > 10 * tolerance()).all()
    assert (change[~long] <= tolerance()).all()


@torch.no_grad()
@pytest.mark.parametrize("shift", [5.0, 1e8])  # 1e8: gaps must be computed in float64
def test_the_state_does_not_depend_on_when_a_sample_starts(model, batch, shift):
    later = replace(batch, time=batch.time + shift)
    assert_close(model(later).embedding, model(batch).embedding)
