"""The graph acts: information passes between sensors along the surviving edges and along nothing else."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
import torch
from closeness import assert_close
from torch import Tensor
from torch.nn.functional import cross_entropy

from raindrop.batch.batch import Batch
from raindrop.errors import DataError
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.messages import State
from raindrop.models.raindrop.model import Raindrop
from raindrop.table.event_table import EventTable

SENDERS = ("embedded", "observed")
NUDGE = 1e-4  # far below the gaps between edge weights, so that the same edges survive


def as_double(batch: Batch) -> Batch:
    return replace(batch, value=batch.value.double(), time=batch.time.double(), statics=batch.statics.double())


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    return make_table(sensors=6)


@pytest.fixture
def batch(table: EventTable, make_batch: Callable[..., Batch]) -> Batch:
    return as_double(make_batch(table))


@pytest.fixture
def build(table: EventTable, make_spec: Any) -> Callable[..., Raindrop]:
    def build_model(**settings: Any) -> Raindrop:
        torch.manual_seed(1)
        return Raindrop(RaindropConfig(**settings), make_spec(table)).double().eval()

    return build_model


def propagate(model: Raindrop, batch: Batch) -> list[State]:
    """The state before the first layer and after each."""
    p, h = model.encode_time(batch.time), model.embed(batch)
    states = [model.graph(batch, h)]
    for layer in model.layers:
        states.append(layer(batch, h, p, states[-1]))
    return states


def sensor_embeddings(model: Raindrop, batch: Batch) -> Tensor:
    """z of Eq. 5, (b, v, z)."""
    return model(batch).embedding.view(batch.num_samples, batch.num_sensors, -1)


def moved(before: Tensor, after: Tensor) -> Tensor:
    """(..., d) twice -> (...) whether anything at all is different."""
    return (before != after).any(-1)


# ------------------------------------------------------------------ along edges, and along nothing else


def test_a_reading_moves_the_receiver_at_its_time_iff_the_edge_survived(build, batch):
    model = build(senders="observed")
    p, h, layer = model.encode_time(batch.time), model.embed(batch).detach(), model.layers[-1]
    first = propagate(model, batch)[-2]
    before = layer(batch, h, p, first).received
    tried = set()
    for n, (b, slot, u) in enumerate(zip(batch.sample, batch.slot, batch.sensor, strict=True)):
        nudged = h.clone()
        nudged[n] += NUDGE
        expected = torch.zeros_like(batch.observed)
        expected[slot] = (first.edges[b, u] > 0) & ~batch.observed[slot]  # receivers with a reading keep it
        expected[slot, u] = True
        assert torch.equal(moved(before, layer(batch, nudged, p, first).received), expected)
        tried |= set((first.edges[b, u] > 0)[~batch.observed[slot]].tolist())
    assert tried == {True, False}


def test_an_embedding_moves_the_receiver_at_its_time_iff_the_edge_survived(build, batch):
    model = build(senders="embedded")
    p, h, layer = model.encode_time(batch.time), model.embed(batch).detach(), model.layers[-1]
    first = propagate(model, batch)[-2]
    before = layer(batch, h, p, first).received
    tried = set()
    for slot, u in first.reached.nonzero():
        b = batch.slot_sample[slot]
        nudged = first.received.detach().clone()
        nudged[slot, u] += NUDGE
        expected = torch.zeros_like(batch.observed)
        expected[slot] = (first.edges[b, u] > 0) & ~batch.observed[slot]
        assert torch.equal(moved(before, layer(batch, h, p, replace(first, received=nudged)).received), expected)
        tried |= set((first.edges[b, u] > 0)[~batch.observed[slot]].tolist())
    assert tried == {True, False}


def test_a_reading_reaches_another_sensors_embedding_iff_the_edge_survived(build, batch):
    """From the value to z, pruning included: the nudge moves edge weights, but not which edges survive."""
    model = build(senders="observed")
    edges, before = propagate(model, batch)[-2].edges, sensor_embeddings(model, batch)
    for n, (b, u) in enumerate(zip(batch.sample, batch.sensor, strict=True)):
        value = batch.value.clone()
        value[n] += NUDGE
        nudged = replace(batch, value=value)
        assert torch.equal(propagate(model, nudged)[-2].edges > 0, edges > 0)
        sent = batch.slot[(batch.sample == b) & (batch.sensor == u)]
        expected = torch.zeros(batch.num_samples, batch.num_sensors, dtype=torch.bool)
        expected[b] = (edges[b, u] > 0) & (~batch.observed[sent]).any(0)
        expected[b, u] = True
        assert torch.equal(moved(before, sensor_embeddings(model, nudged)), expected)


def test_with_embedded_senders_a_reading_reaches_whom_two_hops_reach_and_nobody_else(build, batch):
    """In the first layer every sensor w without a reading at that time hears u; in the second, v hears w iff w -> v."""
    model = build(senders="embedded", prune=0.8)
    edges, before = propagate(model, batch)[-2].edges, sensor_embeddings(model, batch)
    by_two_hops_only = 0
    for n, (b, slot, u) in enumerate(zip(batch.sample, batch.slot, batch.sensor, strict=True)):
        value = batch.value.clone()
        value[n] += NUDGE
        nudged, alive = replace(batch, value=value), edges[b] > 0
        assert torch.equal(propagate(model, nudged)[-2].edges > 0, edges > 0)
        knows = ~batch.observed[slot]
        knows[u] = True
        told = (alive & knows[:, None]).any(0) & ~batch.observed[slot]
        weighed = alive[u] & (~batch.observed[batch.slot_sample == b]).any(0)  # e(u, v) has changed for all times
        expected = torch.zeros(batch.num_samples, batch.num_sensors, dtype=torch.bool)
        expected[b] = told | weighed
        expected[b, u] = True
        assert torch.equal(moved(before, sensor_embeddings(model, nudged)), expected)
        by_two_hops_only += int((told & ~alive[u]).sum())
    assert by_two_hops_only


@pytest.mark.parametrize("senders", SENDERS)
def test_samples_have_graphs_of_their_own(build, batch, senders):
    edges = build(senders=senders)(batch).edges
    read = [b for b in range(batch.num_samples) if (batch.sample == b).any()]
    for at, i in enumerate(read):
        for j in read[at + 1 :]:
            assert not torch.allclose(edges[i], edges[j], atol=1e-4)
    assert len({tuple((edges[b] > 0).flatten().tolist()) for b in read}) > 1  # other edges survive, too


# ------------------------------------------------------------------ isolated sensors


def sensitivity(model: Raindrop, batch: Batch, *, of: int) -> Tensor:
    """(u,) the size of the gradient that readings of each sensor have on the embedding of sensor `of`."""
    value = batch.value.clone().requires_grad_()
    sensor_embeddings(model, replace(batch, value=value))[:, of].sum().backward()
    return torch.zeros(batch.num_sensors).double().index_add(0, batch.sensor, value.grad.abs())


@pytest.mark.parametrize("temporal", ["attention", "mean", "lstm"])
def test_without_messages_sensors_are_isolated(build, batch, temporal):
    for v in range(batch.num_sensors):
        alone = sensitivity(build(messages=False, temporal=temporal), batch, of=v) > 0
        assert alone.nonzero().flatten().tolist() == [v]


@pytest.mark.parametrize("senders", SENDERS)
def test_with_messages_and_no_pruning_each_sensor_hears_all_others(build, batch, senders):
    for v in range(batch.num_sensors):
        assert (sensitivity(build(senders=senders, prune=0.0), batch, of=v) > 0).all()


# ------------------------------------------------------------------ every setting does something


@dataclass(frozen=True)
class Flip:
    """Another value of a setting, the settings it needs to matter, and the error where it only sets a limit."""

    to: Any
    given: dict[str, Any] = field(default_factory=dict)
    error: type[Exception] | None = None


FLIPS: dict[str, Flip] = {
    "observation_dim": Flip(6),
    "time_dim": Flip(8),
    "time_base": Flip(100.0),
    "time_scale": Flip(60.0),
    "receiver_dim": Flip(5),
    "layers": Flip(3),
    "prune": Flip(0.2),
    "senders": Flip("embedded"),
    "normalise": Flip("logit"),
    "mixing": Flip("residual"),
    "heads": Flip(2),
    "rank": Flip(2),
    "temporal": Flip("mean"),
    "attention_dim": Flip(7),
    "sensor_dim": Flip(9),
    "time_heads": Flip(2),
    "s": Flip("rank"),
    "max_rank": Flip(3, given={"s": "rank"}, error=DataError),
    "scores": Flip("mean"),
    "readout": Flip("mean"),
    "static_dim": Flip(3),
    "hidden": Flip(32),
    "activation": Flip("relu"),
    "dropout": Flip(0.5),
    "similarity": Flip(0.5),
    "reconstruction": Flip(0.5),
    "mask_indicator": Flip(True),
    "initial_edges": Flip((("sensor 0", "sensor 1", 1.0), ("sensor 1", "sensor 2", 0.5))),
    "long_series": Flip("cut", given={"max_times": 3}),
    "max_times": Flip(3, given={"long_series": "thin"}),
    "slots": Flip(4),
    "slot_bins": Flip(3, given={"slots": 4}),
    "slot_dropout": Flip(0.5, given={"slots": 4}),
    "slot_rank": Flip(2, given={"slots": 4}),
    "slot_reconstruction": Flip(1.0, given={"slots": 4, "slot_rank": 2}),
    "members": Flip(3),
    "messages": Flip(False),
    "sensor_embedding": Flip(False),
    "edge_weights": Flip(False),
    "receiver_vectors": Flip(False),
    "time_encoding": Flip(False),
    "inter_sensor_attention": Flip(False),
}
MORE_FLIPS = [
    ("layers", Flip(1)),
    ("activation", Flip("relu", given={"members": 3})),
    ("temporal", Flip("lstm")),
    ("readout", Flip("squeeze")),
    ("long_series", Flip("thin", given={"max_times": 3})),
    *((name, replace(FLIPS[name], given={"senders": "embedded"})) for name in ("normalise", "mixing", "heads", "rank")),
]


def with_weights_by_name(model: Raindrop) -> Raindrop:
    """Weights drawn from the name of each parameter: the same name has the same weights in another model."""
    for name, weight in model.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        torch.nn.init.uniform_(weight, -0.7, 0.7, generator=generator)
    return model


def outcome(build: Callable[..., Raindrop], batch: Batch, **settings: Any) -> Tensor:
    """Logits and penalty in training."""
    model = with_weights_by_name(build(**settings)).train()
    torch.manual_seed(0)
    output = model(batch)
    return torch.cat([output.logits.flatten(), output.penalty[None]]).detach()


def assert_flip_acts(build: Callable[..., Raindrop], batch: Batch, name: str, flip: Flip) -> None:
    before = outcome(build, batch, **flip.given)
    assert torch.equal(before, outcome(build, batch, **flip.given))
    if flip.error is not None:
        with pytest.raises(flip.error):
            outcome(build, batch, **flip.given | {name: flip.to})
        return
    assert (before - outcome(build, batch, **flip.given | {name: flip.to})).abs().max() > 1e-5


@pytest.mark.parametrize("name", [setting.name for setting in fields(RaindropConfig)])
def test_no_setting_is_silently_ignored(build, batch, name):
    assert name in FLIPS, f"a new setting '{name}': say in FLIPS which other value changes the output"
    assert FLIPS[name].to != getattr(RaindropConfig(**FLIPS[name].given), name)
    assert_flip_acts(build, batch, name, FLIPS[name])


@pytest.mark.parametrize(("name", "flip"), MORE_FLIPS, ids=[f"{name}={flip.to}" for name, flip in MORE_FLIPS])
def test_other_values_of_a_setting_act_too(build, batch, name, flip):
    assert_flip_acts(build, batch, name, flip)


# ------------------------------------------------------------------ every setting keeps the contract of every model

VARIANTS = [
    pytest.param(flip.given | {name: flip.to}, id=name if isinstance(flip.to, tuple) else f"{name}={flip.to}")
    for name, flip in (*FLIPS.items(), *MORE_FLIPS)
    if flip.error is None
]


@pytest.mark.parametrize("settings", VARIANTS)
def test_with_any_setting_every_parameter_learns(build, batch, settings):
    model = build(**settings).train()
    output = model(batch)
    (cross_entropy(output.logits, batch.label) + output.penalty).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, f"{name} receives no gradient"
        assert weight.grad.isfinite().all(), f"{name} has a gradient that is not finite"
        assert weight.grad.any(), f"{name} has a gradient of 0"


@pytest.mark.parametrize("settings", VARIANTS)
def test_with_any_setting_a_sample_has_the_same_result_alone_as_in_a_batch(build, table, batch, make_batch, settings):
    model = build(**settings)
    together = model(batch).logits
    for b in range(len(table)):
        assert_close(model(as_double(make_batch(table, [b]))).logits[0], together[b])


@pytest.mark.parametrize("settings", VARIANTS)
def test_with_any_setting_a_batch_without_readings_can_be_learned_from(build, table, make_batch, settings):
    model, batch = build(**settings).train(), as_double(make_batch(table, [5, 5]))
    assert batch.num_slots == 0
    output = model(batch)
    (cross_entropy(output.logits, batch.label) + output.penalty).backward()
    assert output.logits.isfinite().all()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())
