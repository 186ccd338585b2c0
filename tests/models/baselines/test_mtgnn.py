"""MTGNN's graph, propagation and temporal convolution, compared with its paper."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from closeness import assert_close, tolerance
from torch.nn.functional import conv1d

from raindrop.models.baselines.mtgnn import KERNELS, MTGNN, GatedInception, LearnedGraph, MixHop, MTGNNConfig

CONFIG = MTGNNConfig(width=8, layers=2, neighbours=2, node_dim=5, dropout=0.0)


@pytest.fixture
def table(make_table):
    return make_table(samples=5, sensors=4, times=9)


@pytest.fixture
def model(table, make_spec):
    torch.manual_seed(0)
    return MTGNN(CONFIG, make_spec(table)).eval()


@torch.no_grad()
def test_the_graph_is_one_way_and_keeps_the_top_k():
    graph = LearnedGraph(CONFIG, 6)
    A = graph()
    first, second = torch.tanh(3 * graph.E_1 @ graph.T_1), torch.tanh(3 * graph.E_2 @ graph.T_2)
    for i in range(6):
        row = torch.stack([torch.tanh(3 * (first[i] @ second[j] - second[i] @ first[j])).relu() for j in range(6)])
        kept = sorted(range(6), key=lambda j: -float(row[j]))[:2]
        for j in range(6):
            assert float(A[i, j]) == pytest.approx(float(row[j]) if j in kept else 0.0, abs=tolerance())
            assert A[i, j] == 0 or A[j, i] == 0


@torch.no_grad()
def test_mix_hop_keeps_a_share_of_the_start_at_every_hop():
    mix, x, A = MixHop(CONFIG), torch.randn(3, 4, 8), torch.rand(4, 4)
    walk = (A + torch.eye(4)) / (A.sum(1, keepdim=True) + 1)
    weights = mix.W.weight.split(8, dim=1)
    for s in range(3):
        h, out = x[s], x[s] @ weights[0].T + mix.W.bias
        for k in range(2):
            h = 0.05 * x[s] + 0.95 * walk @ h
            out = out + h @ weights[k + 1].T
        assert_close(mix(x, A)[s], out)


@torch.no_grad()
@pytest.mark.parametrize("dilation", [1, 3])
def test_the_inception_is_a_causal_convolution_within_each_sample(batch, dilation):
    inception, x = GatedInception(8, dilation), torch.randn(batch.num_steps, 4, 8)
    out = inception(x, batch.rank)
    for b in range(4):
        own = x[batch.step_sample == b].permute(1, 2, 0)  # (v, c, t)
        content, gate = [], []
        for size, kernel in zip(KERNELS, inception.kernels, strict=True):
            weight = kernel.weight.view(-1, size, 8).permute(0, 2, 1).flip(-1)  # newest last, as conv1d has it
            padded = torch.nn.functional.pad(own, (dilation * (size - 1), 0))
            part = conv1d(padded, weight, kernel.bias, dilation=dilation)
            content.append(part[:, :2])
            gate.append(part[:, 2:])
        expected = torch.tanh(torch.cat(content, 1)) * torch.sigmoid(torch.cat(gate, 1))
        assert_close(out[batch.step_sample == b].permute(1, 2, 0), expected)


def test_the_graph_carries_from_sender_to_receiver(model, batch):
    """With inflow only, a sensor's state depends on another's exactly where there is an edge."""
    A = model.graph().detach()
    x = torch.randn(1, 4, 8, requires_grad=True)
    one_hop = MixHop(MTGNNConfig(width=8, depth=1))
    for v in range(4):
        (gradient,) = torch.autograd.grad(one_hop(x, A)[0, v].sum(), x)
        depends_on = gradient[0].abs().sum(-1) > 0
        assert depends_on.tolist() == [(u == v) or bool(A[v, u] > 0) for u in range(4)]
    assert torch.equal(model(batch).edges[0], A.T)


@torch.no_grad()
def test_the_reading_indicator_is_an_input(table, batch, make_spec):
    model = MTGNN(MTGNNConfig(width=8, layers=1, indicator=True), make_spec(table)).eval()
    value = batch.value * 0  # a reading of exactly the mean
    less = replace(batch, value=value[1:], sensor=batch.sensor[1:], step=batch.step[1:])
    assert batch.step[0] == batch.step[1]  # the timestamp stays
    assert not torch.allclose(model(replace(batch, value=value)).scores[0], model(less).scores[0])
