"""The graph has an effect: information passes between sensors along the remaining edges and along nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from paper_checks import SENDERS, propagate
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.config import make
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop
from raindrop.table.event_table import EventTable

NUDGE = 1e-4  # far below the differences of edge weights, so that the same edges are pruned


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    return make_table(sensors=6)


@pytest.fixture
def build(table: EventTable, make_spec: Any) -> Callable[..., Raindrop]:
    """A function from settings, such as {"graph.heads": 2} or layers=1, to a model in double precision."""

    def build_model(settings: dict[str, Any] | None = None, **more: Any) -> Raindrop:
        torch.manual_seed(1)
        return Raindrop(make(RaindropConfig, settings or {}, more), make_spec(table)).double().eval()

    return build_model


def sensor_embeddings(model: Raindrop, batch: Batch) -> Tensor:
    """z of Eq. 5, (b, v, z)."""
    return model(batch).embedding.view(batch.num_samples, batch.num_sensors, -1)


def differs(before: Tensor, after: Tensor) -> Tensor:
    """(..., d) twice -> (...) whether any number is different."""
    return (before != after).any(-1)


# ------------------------------------------------------------------ along edges, and along nothing else


def time_encoding(model: Raindrop, batch: Batch) -> Tensor:
    return model.encode_time(batch.time, like=batch.value)


def test_a_reading_changes_the_receiver_at_its_time_iff_the_edge_remains(build, batch):
    model = build({"graph.senders": "observed"})
    p, h, layer = time_encoding(model, batch), model.embed(batch).detach(), model.layers[-1]
    first = propagate(model, batch)[-2]
    before = layer(batch, h, p, first).embeddings
    cases = set()
    for n, (b, step, u) in enumerate(zip(batch.sample, batch.step, batch.sensor, strict=True)):
        nudged = h.clone()
        nudged[n] += NUDGE
        expected = torch.zeros_like(batch.observed)
        expected[step] = (first.edges[b, u] > 0) & ~batch.observed[step]  # receivers with a reading keep it
        expected[step, u] = True
        assert torch.equal(differs(before, layer(batch, nudged, p, first).embeddings), expected)
        cases |= set((first.edges[b, u] > 0)[~batch.observed[step]].tolist())
    assert cases == {True, False}


@pytest.mark.slow
def test_an_embedding_changes_the_receiver_at_its_time_iff_the_edge_remains(build, batch):
    model = build({"graph.senders": "embedded"})
    p, h, layer = time_encoding(model, batch), model.embed(batch).detach(), model.layers[-1]
    first = propagate(model, batch)[-2]
    before = layer(batch, h, p, first).embeddings
    cases = set()
    for step, u in first.present.nonzero():
        b = batch.step_sample[step]
        nudged = first.embeddings.detach().clone()
        nudged[step, u] += NUDGE
        expected = torch.zeros_like(batch.observed)
        expected[step] = (first.edges[b, u] > 0) & ~batch.observed[step]
        after = layer(batch, h, p, replace(first, embeddings=nudged)).embeddings
        assert torch.equal(differs(before, after), expected)
        cases |= set((first.edges[b, u] > 0)[~batch.observed[step]].tolist())
    assert cases == {True, False}


@pytest.mark.slow
def test_a_reading_changes_another_sensors_embedding_iff_the_edge_remains(build, batch):
    """From the value to z, including pruning: the nudge changes edge weights, but not which edges are pruned."""
    model = build({"graph.senders": "observed"})
    edges, before = propagate(model, batch)[-2].edges, sensor_embeddings(model, batch)
    for n, (b, u) in enumerate(zip(batch.sample, batch.sensor, strict=True)):
        value = batch.value.clone()
        value[n] += NUDGE
        nudged = replace(batch, value=value)
        assert torch.equal(propagate(model, nudged)[-2].edges > 0, edges > 0)
        sent = batch.step[(batch.sample == b) & (batch.sensor == u)]
        expected = torch.zeros(batch.num_samples, batch.num_sensors, dtype=torch.bool)
        expected[b] = (edges[b, u] > 0) & (~batch.observed[sent]).any(0)
        expected[b, u] = True
        assert torch.equal(differs(before, sensor_embeddings(model, nudged)), expected)


@pytest.mark.slow
def test_with_embedded_senders_a_reading_reaches_the_sensors_within_two_hops_and_no_others(build, batch):
    """In layer 1 every sensor w without a reading at that time receives from u; in layer 2, v from w iff w -> v."""
    model = build({"graph.senders": "embedded"}, prune=0.8)
    edges, before = propagate(model, batch)[-2].edges, sensor_embeddings(model, batch)
    by_two_hops_only = 0
    for n, (b, step, u) in enumerate(zip(batch.sample, batch.step, batch.sensor, strict=True)):
        value = batch.value.clone()
        value[n] += NUDGE
        nudged, remains = replace(batch, value=value), edges[b] > 0
        assert torch.equal(propagate(model, nudged)[-2].edges > 0, edges > 0)
        received = ~batch.observed[step]
        received[u] = True
        by_message = (remains & received[:, None]).any(0) & ~batch.observed[step]
        by_weight = remains[u] & (~batch.observed[batch.step_sample == b]).any(0)  # e(u, v) changes for all times
        expected = torch.zeros(batch.num_samples, batch.num_sensors, dtype=torch.bool)
        expected[b] = by_message | by_weight
        expected[b, u] = True
        assert torch.equal(differs(before, sensor_embeddings(model, nudged)), expected)
        by_two_hops_only += int((by_message & ~remains[u]).sum())
    assert by_two_hops_only


@pytest.mark.parametrize("senders", SENDERS)
def test_each_sample_has_its_own_graph(build, batch, senders):
    edges = build({"graph.senders": senders})(batch).edges
    read = [b for b in range(batch.num_samples) if (batch.sample == b).any()]
    for at, i in enumerate(read):
        for j in read[at + 1 :]:
            assert not torch.allclose(edges[i], edges[j], atol=1e-4)
    assert len({tuple((edges[b] > 0).flatten().tolist()) for b in read}) > 1  # other edges are pruned, too


# ------------------------------------------------------------------ isolated sensors


def sensitivity(model: Raindrop, batch: Batch, *, of: int) -> Tensor:
    """(u,) the size of the gradient that readings of each sensor have on the embedding of sensor `of`."""
    value = batch.value.clone().requires_grad_()
    sensor_embeddings(model, replace(batch, value=value))[:, of].sum().backward()
    return torch.zeros(batch.num_sensors).double().index_add(0, batch.sensor, value.grad.abs())


@pytest.mark.parametrize("temporal", ["attention", "mean", "lstm"])
def test_without_messages_sensors_are_isolated(build, batch, temporal):
    for v in range(batch.num_sensors):
        depends_on = sensitivity(build({"ablation.messages": False}, temporal=temporal), batch, of=v) > 0
        assert depends_on.nonzero().flatten().tolist() == [v]


@pytest.mark.parametrize("senders", SENDERS)
def test_with_messages_and_no_pruning_each_sensor_receives_from_all_others(build, batch, senders):
    model = build({"graph.senders": senders}, prune=0.0)
    for v in range(batch.num_sensors):
        assert (sensitivity(model, batch, of=v) > 0).all()
