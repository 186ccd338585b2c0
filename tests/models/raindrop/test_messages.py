"""Time encoding, observation embeddings, messages and edges (Eq. 1-3, pruning), compared with plain loops."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import paper_loops as paper
import pytest
import torch
from paper_checks import SENDERS, assert_close, assert_same_embeddings, propagate
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.config import make
from raindrop.models.base import DataSpec
from raindrop.models.layers import Clock, TimeEncoding
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.messages import State, prune
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.raindrop.temporal import insert_readings

# ------------------------------------------------------------------ time and readings


SINGLE = torch.zeros((), dtype=torch.float32)


def test_time_is_encoded_by_the_value_of_the_time_in_sine_and_cosine_pairs():
    times = [0.0, 0.35, 7.0, 47.9]
    encoded = TimeEncoding(16)(torch.tensor(times), like=SINGLE)
    for t, p in zip(times, encoded, strict=True):
        assert_close(p, paper.encode_time(t, 16), 1e-5)


def test_unix_seconds_one_second_apart_are_encoded_differently():
    times = torch.tensor([0.0, 1.0, 60.0], dtype=torch.float64) + 1.7e9
    encoded = TimeEncoding(16)(times, like=SINGLE)
    same, second, minute = (encoded - encoded[:1]).norm(dim=1).tolist()
    assert same == 0
    assert second > 0.5
    assert minute > 0.5
    clock = Clock(DataSpec(("a",), 2, window=(1.7e9, 1.7e9 + 48)), 48.0)
    assert clock(times[:2], like=SINGLE).tolist() == [0.0, 1.0]
    assert clock(times, like=SINGLE).dtype == torch.float32


def test_time_scale_divides_the_time_and_time_base_sets_the_wavelengths():
    encoded = TimeEncoding(6, base=100.0, scale=60.0)(torch.tensor([90.0]), like=SINGLE)[0]
    assert_close(encoded, paper.encode_time(1.5, 6, 100.0))


@pytest.mark.parametrize("mask_indicator", [False, True])
def test_a_reading_is_embedded_by_its_own_sensors_weights(build, batch, mask_indicator):
    model = build(mask_indicator=mask_indicator)
    h, R = model.embed(batch), paper.numpy(model.embed.R)
    for n, (x, u) in enumerate(zip(batch.value.tolist(), batch.sensor.tolist(), strict=True)):
        weights = np.stack([R[u], paper.numpy(model.embed.indicator)[u]]) if mask_indicator else R[u : u + 1]
        expected = paper.sigma(np.array([x, 1.0])[: len(weights)] @ weights)  # [x || 1] R_u
        assert_close(h[n], expected, 1e-12)


def test_a_sensor_without_a_reading_has_no_embedding(build, batch):
    model = build({"ablation.messages": False})
    h = model.embed(batch)
    state = model.initial_graph(batch, h)
    assert torch.equal(state.present, batch.observed)
    assert state.embeddings is None  # of sensors without a reading
    everywhere = insert_readings(batch, h)
    assert not everywhere[~batch.observed].any()  # 0, not sigma(0) = 0.5
    assert (everywhere[batch.observed] > 0).all()


# ------------------------------------------------------------------ Eq. 1


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("without", [{}, {"ablation.receiver_vectors": False}, {"ablation.time_encoding": False}])
def test_alpha_is_equation_1(build, batch, heads, without):
    model = build({"graph.heads": heads} | without)
    layer, M = model.layers[0], batch.num_sensors
    h, p = model.embed(batch), model.encode_time(batch.time, like=batch.value)[batch.step]
    alpha, score = layer.attention(h, p, M)
    assert alpha.shape == (len(h), heads, M)
    assert torch.equal(alpha, score)
    w = paper.LayerWeights.from_layer(layer, M)
    for n, k, v in product(range(len(h)), range(heads), range(M)):
        assert_close(alpha[n, k, v], w.alpha(paper.numpy(h[n]), v, paper.numpy(p[n]), k), 1e-12)


def test_with_normalise_logit_the_softmax_is_of_the_argument_of_alpha(build, batch):
    layer = build({"graph.normalise": "logit"}).layers[0]
    h, p = torch.rand(7, 4).double(), torch.rand(7, 16).double()
    alpha, score = layer.attention(h, p, batch.num_sensors)
    torch.testing.assert_close(torch.sigmoid(score), alpha)
    assert not torch.allclose(score, alpha)


# ------------------------------------------------------------------ Eq. 2 and 3, one layer with a given graph


def random_state(batch: Batch, senders: str, *, seed: int = 0) -> State:
    """A graph with some edges missing, and for embedded senders embeddings at more sensors than have readings."""
    generator = torch.Generator().manual_seed(seed)
    M = batch.num_sensors
    edges = torch.rand(batch.num_samples, M, M, generator=generator).double()
    edges = edges * (edges > 0.4)
    penalty = torch.zeros((), dtype=torch.float64)
    if senders == "observed":
        return State(batch.observed, penalty, edges)
    present = batch.observed | (torch.rand(batch.num_steps, M, generator=generator) < 0.4)
    embeddings = torch.rand(batch.num_steps, M, 4, generator=generator).double() * present[..., None]
    return State(present, penalty, edges, embeddings)


def senders_of(batch: Batch, b: int, embeddings: Tensor, present: Tensor) -> dict[paper.At, Any]:
    """The embeddings that are sent in sample b, in the form the loops take."""
    steps = (batch.step_sample == b).nonzero().flatten().tolist()
    pairs = product(enumerate(steps), range(batch.num_sensors))
    return {(t, u): paper.numpy(embeddings[s, u]) for (t, s), u in pairs if present[s, u]}


@pytest.mark.parametrize("senders", SENDERS)
@pytest.mark.parametrize("normalise", ["sigmoid", "logit"])
@pytest.mark.parametrize("more", [{}, {"heads": 2}, {"rank": 3}, {"heads": 3, "rank": 2}, {"mixing": "residual"}])
def test_one_layer_is_equations_2_and_3(build, batch, senders, normalise, more):
    layer = build(layers=1, graph={"normalise": normalise, "senders": senders, **more}).layers[0]
    h = torch.rand(len(batch.value), 4).double()
    p = TimeEncoding(16)(batch.time, like=h)
    before = random_state(batch, senders)
    after = layer(batch, h, p, before)
    w = paper.LayerWeights.from_layer(layer, batch.num_sensors)
    own = insert_readings(batch, h)
    for b in range(batch.num_samples):
        readings = senders_of(batch, b, own, batch.observed)
        sending = readings if senders == "observed" else senders_of(batch, b, before.embeddings, before.present)
        e, times = paper.numpy(before.edges[b]), list(paper.numpy(p[batch.step_sample == b]))
        assert_same_embeddings(
            batch, b, paper.receive(w, sending, readings, e, times), after.embeddings, after.present
        )  # Eq. 2 with the e that came in
        assert_close(after.edges[b], paper.update_edges(w, sending, e, times), 1e-12)


@pytest.mark.parametrize("senders", SENDERS)
def test_a_sensors_own_reading_takes_precedence_over_messages(build, batch, senders):
    model = build({"graph.senders": senders})
    h, last = model.embed(batch), propagate(model, batch)[-1]
    assert torch.equal(last.embeddings[batch.step, batch.sensor], h)


@pytest.mark.parametrize("senders", SENDERS)
def test_a_sensor_that_never_sends_has_outgoing_weight_0(build, batch, senders):
    read = torch.zeros(batch.num_samples, batch.num_sensors, dtype=torch.bool)
    read[batch.sample, batch.sensor] = True
    assert not read.all(1)[0]  # sensor 1 has no reading in sample 0
    assert not read[-1].any()  # the last sample has no reading at all
    for state in propagate(build({"graph.senders": senders}, prune=0.0), batch)[1:]:
        assert torch.equal(state.edges.gt(0), read[:, :, None].expand_as(state.edges))


def test_the_last_layer_does_not_prune(build, batch):
    edges = build(layers=1, prune=0.9)(batch).edges
    assert int(edges[1].gt(0).sum()) == 25
    assert int(build(layers=2, prune=0.9)(batch).edges[1].gt(0).sum()) == 3


def test_the_weight_of_edges_is_the_mean_of_alpha_not_of_the_softmax(build, batch):
    """Both values of `normalise` give the same edges."""
    first, second = (propagate(build({"graph.normalise": kind}, layers=1), batch)[1] for kind in ("sigmoid", "logit"))
    assert torch.equal(first.edges, second.edges)
    assert not torch.allclose(first.embeddings, second.embeddings)


# ------------------------------------------------------------------ pruning


def test_half_of_1156_edges_are_pruned_and_they_are_the_lowest():
    e = torch.rand(3, 34, 34)
    pruned = prune(e, 0.5)
    assert pruned.gt(0).sum((1, 2)).tolist() == [578] * 3
    for kept, before in zip(pruned, e, strict=True):
        assert torch.equal(kept[kept > 0], before[kept > 0])
        assert kept[kept > 0].min() >= before[kept == 0].max()
    np.testing.assert_array_equal(pruned[0], paper.prune(e[0].numpy(), 0.5))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.77, 0.96])
def test_equal_edges_let_exactly_the_quota_survive(share):
    assert int(prune(torch.ones(1, 5, 5), share).gt(0).sum()) == 25 - int(share * 25)
    mixed = torch.tensor([0.2] * 10 + [0.7] * 10 + [0.9] * 5).view(1, 5, 5)
    assert int(prune(mixed, share).gt(0).sum()) == 25 - int(share * 25)


def test_never_sending_sensors_never_let_more_than_the_quota_survive():
    e = torch.rand(2, 34, 34)
    e[0, :10] = 0  # fewer than the quota: others go as well
    e[1, :20] = 0  # more than the quota: all others stay
    survivors = prune(e, 0.5).gt(0).sum((1, 2)).tolist()
    assert survivors == [578, 14 * 34]


@pytest.mark.parametrize("senders", SENDERS)
def test_a_sample_of_34_sensors_keeps_578_edges(senders, make_table, make_batch, make_spec):
    table = make_table(samples=2, sensors=34, observed=0.5, extremes=False)
    model = Raindrop(make(RaindropConfig, {"graph.senders": senders}), make_spec(table))
    assert model(make_batch(table)).edges.gt(0).sum((1, 2)).tolist() == [578, 578]


@pytest.mark.parametrize("senders", SENDERS)
def test_a_pruned_edge_stays_out(build, batch, senders):
    states = propagate(build({"graph.senders": senders}, layers=3), batch)[1:]
    first, second, third = (state.edges > 0 for state in states)
    assert first.sum((1, 2)).max() == 13  # 25 - 12
    assert not (second & ~first).any()
    assert not (third & ~second).any()


def test_a_surviving_edge_keeps_its_gradient_and_a_pruned_one_has_none():
    e = torch.rand(1, 4, 4, requires_grad=True)
    pruned = prune(e, 0.5)
    pruned.sum().backward()
    assert torch.equal(e.grad, (pruned > 0).float())
