"""EvoNet's segments, states, transitions and recurrence, compared with loops written from its paper."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, pi

import numpy as np
import pytest
import torch
from class_tasks import labelled_collator
from closeness import assert_close
from torch.nn.functional import sigmoid

from raindrop.models.baselines.evonet import EvoNet, EvoNetConfig, StateMixture, TransitionMessages

CONFIG = EvoNetConfig(segments=6, states=4, node_dim=5, graph_dim=3, missing="ignore", indicator=True)


@pytest.fixture
def model(table, make_spec):
    torch.manual_seed(0)
    return EvoNet(CONFIG, make_spec(table)).eval()


@torch.no_grad()
def test_a_segment_has_the_mean_of_each_sensors_readings_in_it(model, batch):
    readings = model.segment(batch)
    start, end = model.clock.start, model.clock.start + model.clock.window / model.clock.rate
    expected: dict[tuple[int, int, int], list[float]] = {}
    for n in range(len(batch.value)):
        share = (float(batch.time[batch.step[n]]) - start) / (end - start)
        t = min(max(int(share * 6), 0), 5)
        expected.setdefault((int(batch.sample[n]), t, int(batch.sensor[n])), []).append(float(batch.value[n]))
    assert int(readings.seen.sum()) == len(expected)
    for cell, values in expected.items():
        assert float(readings.value[cell]) == pytest.approx(np.mean(values), rel=1e-4, abs=1e-5)
        assert readings.seen[cell] == 1
        assert readings.present[cell[:2]]
    assert torch.equal(readings.present, readings.seen.sum(-1) > 0)


@torch.no_grad()
@pytest.mark.parametrize("missing", ["mean", "ignore"])
def test_the_probability_of_a_state_is_bayes_rule(table, batch, make_spec, missing):
    model = EvoNet(replace(CONFIG, missing=missing), make_spec(table)).eval()
    torch.nn.init.uniform_(model.states.variance, 0.5, 2.0)
    torch.nn.init.normal_(model.states.log_weight)
    readings = model.segment(batch)
    P = model.recognise(readings)
    for b, t in np.ndindex(*readings.present.shape):
        if not readings.present[b, t]:
            assert (P[b, t] == 0).all()
            continue
        likelihood = []
        for v in range(4):
            total = float(model.states.log_weight[v])
            for m in range(readings.value.shape[-1]):
                if missing == "mean" or readings.seen[b, t, m]:
                    x, mu = float(readings.value[b, t, m].clamp(-5, 5)), float(model.states.mean[v, m])
                    variance = float(model.states.variance[v, m])
                    total -= 0.5 * ((x - mu) ** 2 / variance + log(2 * pi * variance))
            likelihood.append(exp(total))
        for v in range(4):
            assert float(P[b, t, v]) == pytest.approx(likelihood[v] / sum(likelihood), rel=1e-3, abs=1e-6)


@torch.no_grad()
def test_messages_go_along_the_weighted_edges_both_ways():
    messages, h = TransitionMessages(5), torch.randn(2, 4, 5)
    before, now = (torch.softmax(torch.randn(2, 4), dim=-1) for _ in range(2))
    H = messages(before, now, h)
    for b in range(2):
        E = [[float(before[b, u] * now[b, v]) for v in range(4)] for u in range(4)]
        for u in range(4):
            to_next = torch.stack([E[u][v] * h[b, v] for v in range(4)]).sum(0)
            to_previous = torch.stack([E[v][u] * h[b, v] for v in range(4)]).sum(0)
            one = torch.tanh(messages.inward(to_next))
            other = torch.tanh(messages.outward(to_previous))
            assert_close(H[b, u], torch.maximum(one, other))


@torch.no_grad()
def test_states_and_graph_are_updated_at_every_segment_with_readings_and_only_there(model):
    present = torch.tensor([[True, True, True, True, True, True], [False, True, False, True, True, False]])
    P = torch.softmax(torch.randn(2, 6, 4), dim=-1) * present[..., None]
    states, graphs, scores = model.evolve(P, present)
    for b in range(2):
        h = [model.start(torch.cat([model.states.mean[v], model.states.variance[v].log()])) for v in range(4)]
        cells, U, c_U, before = list(h), torch.zeros(3), torch.zeros(3), None
        for t in range(6):
            if present[b, t]:
                now = P[b, t]
                before = now if before is None else before
                H = model.aggregate(before[None], now[None], torch.stack(h)[None])[0]
                a = model.attend(torch.cat([H.mean(0), U]))
                for v in range(4):
                    gates = model.from_graph(a * U) + model.from_messages(H[v]) + model.from_state(h[v])
                    i, f, g, o = gates.split(5)
                    cells[v] = sigmoid(f) * cells[v] + sigmoid(i) * torch.tanh(g)
                    h[v] = sigmoid(o) * torch.tanh(cells[v])
                x = a * torch.stack(h).mean(0)
                U, c_U = (part[0] for part in model.graph_cell(x[None], (U[None], c_U[None])))
                assert_close(scores[b, t], a[0])
                before = now
            assert_close(states[b, t], torch.stack(h).mean(0))
            assert_close(graphs[b, t], U)


@torch.no_grad()
def test_the_readout_weighs_segments_by_their_attention(model, batch):
    readings = model.segment(batch)
    states, graphs, scores = model.evolve(model.recognise(readings), readings.present)
    embedding = model(batch).embedding
    for b in range(batch.num_samples):
        at = [t for t in range(6) if readings.present[b, t]]
        total = sum(exp(float(scores[b, t])) for t in at)
        expected = torch.zeros(embedding.shape[1])
        for t in at:
            read = torch.cat([graphs[b, t], states[b, t], readings.value[b, t], readings.seen[b, t]])
            expected += exp(float(scores[b, t])) / total * read
        assert_close(embedding[b], expected)


def test_the_mixture_finds_groups_of_segments():
    rng = np.random.default_rng(0)
    group = torch.from_numpy(rng.integers(3, size=600))
    centres = torch.tensor([[2.0, 0.0, 0.0], [0.0, -2.0, 0.0], [0.0, 0.0, 2.0]])
    x = centres[group] + 0.2 * torch.from_numpy(rng.normal(size=(600, 3))).float()
    seen = torch.from_numpy(rng.random((600, 3)) < 0.8).float()
    mixture = StateMixture(6, 3)
    mixture.fit(x * seen, seen, rng)
    state = mixture(x, torch.ones_like(x)).argmax(-1)
    for number in state.unique():
        counts = torch.bincount(group[state == number], minlength=3)
        assert counts.max() >= 0.9 * counts.sum()  # a state is of one group
    assert float(mixture.log_weight.exp().sum()) == pytest.approx(1.0, rel=1e-4)


@torch.no_grad()
def test_a_sensor_that_is_ignored_does_not_change_the_states():
    mixture = StateMixture(4, 3)
    x, seen = torch.randn(5, 3), torch.tensor([1.0, 0.0, 1.0]).expand(5, 3)
    other = x.clone()
    other[:, 1] += 7
    assert torch.equal(mixture(x, seen), mixture(other, seen))
    assert not torch.allclose(mixture(x, torch.ones(5, 3)), mixture(other, torch.ones(5, 3)))


def test_the_states_are_those_of_training_segments_also_with_fewer_segments_than_states(model, table):
    model.prepare(labelled_collator(table), None, seed=0)
    assert model.states.mean.isfinite().all()
    assert (model.states.variance >= 0.0099).all()
    first = {name: buffer.clone() for name, buffer in model.states.named_buffers()}
    model.prepare(labelled_collator(table), None, seed=0)
    assert all(torch.equal(buffer, first[name]) for name, buffer in model.states.named_buffers())
    one = torch.ones(1, len(table.sensors))
    model.states.fit(one, one, np.random.default_rng(0))
    assert model.states.mean.isfinite().all()
