"""DGM2-O's path through clusters and its ELBO, compared with loops written from its paper."""

from __future__ import annotations

from math import log, pi

import pytest
import torch
from closeness import assert_close

from raindrop.models.baselines.dgm2 import DGM2, ClusterRNN, DGM2Config, Path

CONFIG = DGM2Config(clusters=3, hidden=5, ode_width=4, reference_points=6)


@pytest.fixture
def model(table, make_spec):
    torch.manual_seed(0)
    return DGM2(CONFIG, make_spec(table)).eval()


@torch.no_grad()
def test_the_posterior_depends_on_the_readings_so_far_and_the_cluster_before():
    rnn, x = ClusterRNN(7, CONFIG), torch.randn(2, 6, 7)
    path = rnn.infer(x, draw=False)
    h, z = torch.zeros(2, 5), torch.zeros(2, 3)
    for k in range(6):
        if k:
            h = h + rnn.f(h) / 5
        h = rnn.jump(rnn.jump.from_readings(torch.cat([x[:, k], z], dim=-1)), h)
        z = torch.softmax(rnn.emit(h), dim=-1)
        assert_close(path.q[:, k], z)
    assert_close(path.last, h)


@torch.no_grad()
def test_the_transition_predicts_the_next_cluster_from_those_before():
    rnn, z = ClusterRNN(0, CONFIG), torch.softmax(torch.randn(2, 6, 3), dim=-1)
    log_p, states = rnn.predict(z)
    other = z.clone()
    other[:, 3:] = torch.softmax(torch.randn(2, 3, 3), dim=-1)
    changed, _ = rnn.predict(other)
    assert log_p.shape == (2, 5, 3)
    assert states.shape == (2, 6, 5)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, 5))
    assert torch.equal(changed[:, :3], log_p[:, :3])  # p(z_2), p(z_3), p(z_4) depend on z_1, z_2, z_3
    assert not torch.allclose(changed[:, 3:], log_p[:, 3:])


@torch.no_grad()
def test_the_elbo_is_the_expected_likelihood_less_the_divergence(model, batch):
    time = model.clock(batch.time, like=batch.value)[batch.step]
    q = torch.softmax(torch.randn(5, 6, 3), dim=-1)
    torch.nn.init.normal_(model.mixture.basis)
    elbo = float(model.elbo(batch, time, Path(q, q, torch.zeros(5, 5))))

    log_p, h = model.transition.predict(q)
    basis = torch.softmax(model.mixture.basis, dim=-1)
    likelihood = 0.0
    for n in range(len(time)):
        b, v = int(batch.sample[n]), int(batch.sensor[n])
        k = min(range(6), key=lambda point: abs(float(model.points[point] - time[n])))
        gamma = torch.sigmoid(model.mixture.gate(h[b, k]))
        psi = (1 - gamma) * q[b, k] + gamma * basis
        for z in range(3):
            error = float(batch.value[n].clamp(-5, 5) - model.mixture.mu[v, z])
            likelihood += float(psi[z]) * (-0.5 * error**2 - 0.5 * log(2 * pi))
    divergence = 0.0
    for b in range(5):
        for k in range(6):
            prior = basis if k == 0 else log_p[b, k - 1].exp()
            divergence += sum(float(q[b, k, z] * (q[b, k, z] / prior[z]).log()) for z in range(3))
    assert elbo == pytest.approx(likelihood / len(time) - divergence / 30, rel=1e-4)


def test_the_gate_and_the_basis_weights_make_a_distribution(model):
    q = torch.softmax(torch.randn(2, 6, 3), dim=-1)
    psi = model.mixture.weights(Path(q, q, torch.zeros(2, 5)), torch.randn(2, 6, 5))
    assert_close(psi.sum(-1), torch.ones(2, 6))
    assert (psi > 0).all()


@torch.no_grad()
def test_clusters_are_drawn_in_training_only(model, batch):
    assert torch.equal(model(batch).scores, model(batch).scores)
    assert float(model(batch).penalty) == 0
    model.train()
    assert float(model(batch).penalty) != float(model(batch).penalty)
