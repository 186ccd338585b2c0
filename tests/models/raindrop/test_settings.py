"""Every setting of Raindrop has an effect, a description and validation, and keeps the contract of every model."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from paper_checks import as_double
from torch import Tensor
from torch.nn.functional import cross_entropy

from raindrop.batch.batch import Batch
from raindrop.config import describe, make, to_dict
from raindrop.errors import ConfigError, DataError
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop


@dataclass(frozen=True)
class Change:
    """Another value of a setting, other settings it needs to have an effect, and the error if it is only a limit."""

    to: Any
    given: dict[str, Any] = field(default_factory=dict)
    error: type[Exception] | None = None


SLOTS = {"slots.dim": 4}
NEARBY = {"graph.senders": "nearby", "layers": 1, "prune": 0.0, "similarity": 0.0}
CHANGES: dict[str, Change] = {
    "observation_dim": Change(6),
    "time_dim": Change(8),
    "receiver_dim": Change(5),
    "layers": Change(3),
    "prune": Change(0.2),
    "temporal": Change("mean"),
    "attention_dim": Change(7),
    "sensor_dim": Change(9),
    "readout": Change("mean"),
    "sample_dim": Change(6),
    "static_dim": Change(3),
    "hidden": Change(32),
    "similarity": Change(0.5),
    "mask_indicator": Change(True),
    "time.base": Change(100.0),
    "time.scale": Change(60.0),
    "graph.senders": Change("embedded"),
    "graph.sides": Change("before", given=NEARBY),
    "graph.scales": Change((2.0,), given=NEARBY),
    "graph.normalise": Change("logit"),
    "graph.mixing": Change("residual"),
    "graph.heads": Change(2),
    "graph.rank": Change(2),
    "graph.initial_edges": Change((("sensor 0", "sensor 1", 1.0), ("sensor 1", "sensor 2", 0.5))),
    "graph.reconstruction": Change(0.5),
    "temporal_attention.heads": Change(2),
    "temporal_attention.s": Change("rank"),
    "temporal_attention.max_rank": Change(3, given={"temporal_attention.s": "rank"}, error=DataError),
    "temporal_attention.scores": Change("mean"),
    "head.activation": Change("relu"),
    "head.dropout": Change(0.5),
    "head.members": Change(3),
    "long_series.mode": Change("cut", given={"long_series.max_times": 3}),
    "long_series.max_times": Change(3, given={"long_series.mode": "thin"}),
    "slots.dim": Change(4),
    "slots.bins": Change(3, given=SLOTS),
    "slots.dropout": Change(0.5, given=SLOTS),
    "slots.rank": Change(2, given=SLOTS),
    "slots.reconstruction": Change(1.0, given=SLOTS | {"slots.rank": 2}),
    "ablation.messages": Change(False),
    "ablation.sensor_embedding": Change(False),
    "ablation.edge_weights": Change(False),
    "ablation.receiver_vectors": Change(False),
    "ablation.time_encoding": Change(False),
    "ablation.inter_sensor_attention": Change(False),
}
OF_TRAINING = {"graph.optional"}  # which networks are trained: tests/training/test_network.py
EMBEDDED = {"graph.senders": "embedded"}
MORE_CHANGES = [
    ("layers", Change(1)),
    ("graph.senders", Change("nearby", given={"layers": 1, "prune": 0.0, "similarity": 0.0})),
    ("graph.rank", Change(2, given=NEARBY)),
    ("graph.reconstruction", Change(0.5, given=NEARBY)),
    ("graph.initial_edges", replace(CHANGES["graph.initial_edges"], given=NEARBY)),
    ("temporal", Change("lstm", given=NEARBY)),
    ("temporal", Change("mean", given=NEARBY)),
    ("temporal_attention.heads", Change(2, given=NEARBY)),
    ("temporal_attention.s", Change("rank", given=NEARBY)),
    ("temporal_attention.scores", Change("mean", given=NEARBY)),
    ("head.activation", Change("relu", given={"head.members": 3})),
    ("temporal", Change("lstm")),
    ("readout", Change("squeeze")),
    ("long_series.mode", Change("thin", given={"long_series.max_times": 3})),
    *((f"graph.{name}", replace(CHANGES[f"graph.{name}"], given=EMBEDDED)) for name in ("normalise", "mixing")),
    *((f"graph.{name}", replace(CHANGES[f"graph.{name}"], given=EMBEDDED)) for name in ("heads", "rank")),
]


def with_weights_by_name(model: Raindrop) -> Raindrop:
    """Weights drawn from the name of each parameter: the same name has the same weights in another model."""
    for name, weight in model.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        torch.nn.init.uniform_(weight, -0.7, 0.7, generator=generator)
    return model


def training_output(build: Callable[..., Raindrop], batch: Batch, settings: dict[str, Any]) -> Tensor:
    """Logits and penalty in training."""
    model = with_weights_by_name(build(settings)).train()
    torch.manual_seed(0)
    output = model(batch)
    return torch.cat([output.scores.flatten(), output.penalty[None]]).detach()


def assert_has_effect(build: Callable[..., Raindrop], batch: Batch, name: str, change: Change) -> None:
    before = training_output(build, batch, change.given)
    assert torch.equal(before, training_output(build, batch, change.given))
    if change.error is not None:
        with pytest.raises(change.error):
            training_output(build, batch, change.given | {name: change.to})
        return
    assert (before - training_output(build, batch, change.given | {name: change.to})).abs().max() > 1e-5


@pytest.mark.parametrize("name", [name for name in to_dict(RaindropConfig()) if name not in OF_TRAINING])
def test_no_setting_is_silently_ignored(build, batch, name):
    assert name in CHANGES, f"'{name}' is new: add another value that changes the output to CHANGES"
    assert CHANGES[name].to != to_dict(make(RaindropConfig, CHANGES[name].given))[name]
    assert_has_effect(build, batch, name, CHANGES[name])


@pytest.mark.parametrize(("name", "change"), MORE_CHANGES, ids=[f"{name}={change.to}" for name, change in MORE_CHANGES])
def test_other_values_of_a_setting_have_an_effect_too(build, batch, name, change):
    assert_has_effect(build, batch, name, change)


# ------------------------------------------------------------------ the contract of every model

VARIANTS = [
    pytest.param(change.given | {name: change.to}, id=name if isinstance(change.to, tuple) else f"{name}={change.to}")
    for name, change in (*CHANGES.items(), *MORE_CHANGES)
    if change.error is None
]


@pytest.mark.parametrize("settings", VARIANTS)
def test_with_any_setting_every_parameter_learns(build, batch, settings):
    model = build(settings).train()
    output = model(batch)
    (cross_entropy(output.scores, batch.target) + output.penalty).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, f"{name} receives no gradient"
        assert weight.grad.isfinite().all(), f"{name} has a gradient that is not finite"
        assert weight.grad.any(), f"{name} has a gradient of 0"


@pytest.mark.parametrize("settings", VARIANTS)
def test_with_any_setting_a_sample_has_the_same_result_alone_as_in_a_batch(build, table, batch, make_batch, settings):
    model = build(settings)
    in_batch = model(batch).scores
    for b in range(len(table)):
        torch.testing.assert_close(model(as_double(make_batch(table, [b]))).scores[0], in_batch[b])


@pytest.mark.parametrize("settings", VARIANTS)
def test_with_any_setting_a_batch_without_readings_can_be_learned_from(build, table, make_batch, settings):
    model, batch = build(settings).train(), as_double(make_batch(table, [5, 5]))
    assert batch.num_steps == 0
    output = model(batch)
    (cross_entropy(output.scores, batch.target) + output.penalty).backward()
    assert output.scores.isfinite().all()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


# ------------------------------------------------------------------ groups, descriptions, validation


def test_the_papers_parameters_come_first_and_groups_last():
    is_group = [is_dataclass(getattr(RaindropConfig(), setting.name)) for setting in fields(RaindropConfig)]
    assert is_group == sorted(is_group)


def test_every_setting_of_every_group_has_a_text_below_it():
    groups = [RaindropConfig, *(type(group) for group in vars(RaindropConfig()).values() if is_dataclass(group))]
    assert len(groups) == 8
    for group in groups:
        assert [setting.name for setting in fields(group) if not describe(group).get(setting.name)] == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 0}, "model.hidden must be at least 1 and at most 65,536, not 0"),
        ({"prune": 1.0}, "model.prune must be at least 0 and below 1, not 1.0"),
        ({"graph.rank": 0}, r"model\.graph\.rank must be at least 1 and at most 65,536, not 0"),
        ({"graph.initial_edges": (("a", "b", 5.0),)}, r"model\.graph\.initial_edges have weights above 0 and up to 1"),
        ({"graph.initial_edges": (("a", "b", 0.0),)}, r"model\.graph\.initial_edges have weights above 0 and up to 1"),
        ({"sample_dim": 8, "readout": "mean"}, 'sample_dim needs readout = "concat", not "mean"'),
        ({"graph.senders": "nearby"}, "needs layers = 1, prune = 0, similarity = 0"),
        (NEARBY | {"graph.heads": 2, "graph.mixing": "residual"}, 'mixing has no effect with senders = "nearby"'),
        ({"graph.scales": (1.0,)}, 'scales has no effect with senders = "observed"'),
        (NEARBY | {"graph.scales": (0.0,)}, "scales must be above 0"),
        (NEARBY | {"ablation.edge_weights": False}, "needs ablation.edge_weights = true"),
        ({"graph.reconstruction": 1.0, "graph.senders": "embedded"}, 'reconstruction needs senders = "observed"'),
        ({"graph.reconstruction": 1.0, "ablation.messages": False}, "graph.reconstruction has no effect"),
        (
            {"graph.initial_edges": (("a", "b", 1.0),), "ablation.edge_weights": False},
            "graph.initial_edges has no effect",
        ),
        ({"ablation.receiver_vectors": False, "ablation.time_encoding": False}, r"model\.ablation: attention needs"),
        ({"slots.rank": 2}, r"model\.slots\.rank has no effect without slots"),
        ({"slots.dropout": 1.0}, r"model\.slots\.dropout must be at least 0 and below 1"),
        ({"head.members": -1}, r"model\.head\.members must be at least 0"),
        ({"long_series.max_times": 0}, r"model\.long_series\.max_times must be at least 1"),
        ({"time.scale": 0.0}, r"model\.time\.scale must be above 0"),
        ({"temporal_attention.heads": 0}, r"model\.temporal_attention\.heads must be at least 1"),
        ({"slots": 16}, r"'model\.slots' is a group of settings; give a table of them, or 'model\.slots\.NAME'"),
        ({"slots.size": 16}, r"Unknown setting 'model\.slots\.size'"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it(settings, message):
    with pytest.raises(ConfigError, match=message):
        make(RaindropConfig, settings, where="model.")
