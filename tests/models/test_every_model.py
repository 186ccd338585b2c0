"""What every network in the registry promises, with every preset, whatever its architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from class_tasks import classes, labelled_collator
from closeness import assert_close
from torch import Tensor
from torch.nn.functional import cross_entropy

from raindrop.batch.batch import Batch
from raindrop.batch.scaling import Scaler
from raindrop.config import make
from raindrop.models.base import DataSpec, DirectModel, Model, Output
from raindrop.models.registry import MODELS
from raindrop.table.event_table import EventTable
from raindrop.training.loop import task_loss

NETWORKS = [
    pytest.param(name, preset, id=f"{name}-{preset}")
    for name, entry in MODELS.items()
    if not issubclass(entry.model, DirectModel)  # test_trees.py has what applies to one without gradients
    for preset in entry.presets
]
LEARNED_OTHERWISE = (
    "trees.",
    "random_trees.",
    "robust_trees.",
    "robust_random_trees.",
    "usual",
    "missing",
    "weights",
    "of_scores",
)  # of a blend: not by gradients
pytestmark = pytest.mark.parametrize(("name", "preset"), NETWORKS)


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    return make_table(samples=12, sensors=6, times=10, classes=3)


@pytest.fixture
def batch(table: EventTable, make_batch: Callable[..., Batch]) -> Batch:
    return make_batch(table)


@pytest.fixture
def build(
    name: str, preset: str, table: EventTable, make_spec: Callable[[EventTable], DataSpec]
) -> Callable[..., Model]:
    """A function from a seed, and maybe another table, to a model that is ready to predict."""

    def build_model(seed: int = 0, of: EventTable = table) -> Model:
        entry = MODELS[name]
        torch.manual_seed(seed)
        return entry.model(make(entry.config, entry.presets[preset].get("model", {})), make_spec(of)).eval()

    return build_model


@pytest.fixture
def model(build: Callable[..., Model]) -> Model:
    return build()


@torch.no_grad()
def output_of(model: Model, batch: Batch) -> Output:
    """The model's output without gradients."""
    return model(batch)


def loss(model: Model, batch: Batch) -> Tensor:
    output = model(batch)
    return task_loss(classes(3), output, batch.target) + output.penalty


def weights_of_sample(output: Output, batch: Batch, b: int) -> Tensor | None:
    """(t, v) the time weights of one sample."""
    return None if output.time_weights is None else output.time_weights[batch.step_sample == b]


def assert_same_sample(first: tuple[Output, Batch, int], second: tuple[Output, Batch, int]) -> None:
    """All that two outputs say about a sample agrees: (output, its batch, position of the sample in it) twice."""
    for part in ("scores", "embedding", "edges"):
        one, other = (getattr(output, part) for output, _, _ in (first, second))
        assert (one is None) == (other is None)
        if one is not None:
            assert_close(one[first[2]], other[second[2]])
    one, other = weights_of_sample(*first), weights_of_sample(*second)
    if one is not None and other is not None:
        assert_close(one, other)


# ------------------------------------------------------------------ shapes


def test_logits_are_finite_with_one_row_per_sample_and_one_column_per_class(model, batch):
    logits = output_of(model, batch).scores
    assert logits.shape == (12, 3)
    assert logits.isfinite().all()


def test_the_other_outputs_have_the_promised_shape(model, batch):
    output = output_of(model, batch)
    assert output.embedding.ndim == 2
    assert len(output.embedding) == 12
    assert output.embedding.isfinite().all()
    assert output.penalty.shape == ()
    assert output.penalty.isfinite()
    if output.edges is not None:
        assert output.edges.shape == (12, 6, 6)
        assert (output.edges >= 0).all()
    if output.time_weights is not None:
        assert output.time_weights.shape == (batch.num_steps, 6)


def test_time_weights_sum_to_1_over_the_times_of_a_sample(model, batch):
    output = output_of(model, batch)
    if output.time_weights is None:
        pytest.skip("this model does not weigh times")
    assert (output.time_weights >= 0).all()
    total = batch.samples.sum(output.time_weights)  # (b, v)
    nothing = total == 0
    assert_close(total[~nothing], torch.ones_like(total[~nothing]))
    read = torch.zeros_like(nothing)
    read[batch.sample, batch.sensor] = True
    assert not (nothing & read).any()  # a sensor with a reading weighs at least that time


# ------------------------------------------------------------------ a sample's result is its own


def test_a_sample_has_the_same_result_alone_as_in_a_batch(model, table, batch, make_batch):
    together = output_of(model, batch)
    for b in range(len(table)):
        alone = make_batch(table, [b])
        assert_same_sample((output_of(model, alone), alone, 0), (together, batch, b))


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_has_the_same_result_in_any_batch_and_order(model, table, batch, make_batch, seed):
    together = output_of(model, batch)
    order = np.random.default_rng(seed).permutation(len(table))[: [12, 7, 3][seed]]
    other = make_batch(table, order)
    shuffled = output_of(model, other)
    for at, b in enumerate(order):
        assert_same_sample((shuffled, other, at), (together, batch, int(b)))


def test_a_long_companion_does_not_matter(model, table, make_table, make_batch):
    """Whoever lays samples out on a grid pads the short ones to the length of the longest."""
    scaler = Scaler.fit(table)
    short = make_batch(table, [1], scaler=scaler)
    long_table = make_table(samples=1, sensors=6, times=150, extremes=False, seed=1)
    companion = make_batch(long_table, scaler=scaler)
    both = replace(
        short,
        value=torch.cat([short.value, companion.value]),
        sensor=torch.cat([short.sensor, companion.sensor]),
        step=torch.cat([short.step, companion.step + short.num_steps]),
        time=torch.cat([short.time, companion.time]),
        step_sample=torch.cat([short.step_sample, companion.step_sample + 1]),
        statics=torch.cat([short.statics, companion.statics]),
    )
    assert both.num_steps - short.num_steps == 150
    assert_same_sample((output_of(model, both), both, 0), (output_of(model, short), short, 0))


def test_what_was_not_observed_cannot_change_the_prediction(model, table, make_batch):
    """Sensor 1 has no reading in sample 0, so neither its scale nor its readings elsewhere matter there."""
    scaler = Scaler.fit(table)
    unread = np.arange(6) == 1
    shifted = replace(
        scaler, mean=np.where(unread, np.float32(50), scaler.mean), scale=np.where(unread, np.float32(9), scaler.scale)
    )
    batch, other = make_batch(table, scaler=scaler), make_batch(table, scaler=shifted)
    before, after = output_of(model, batch), output_of(model, other)
    assert_same_sample((before, batch, 0), (after, other, 0))
    assert not torch.allclose(before.scores[1], after.scores[1], atol=1e-6)  # but where it was read, they do


def test_predicting_twice_gives_the_same(model, batch):
    assert torch.equal(output_of(model, batch).scores, output_of(model, batch).scores)


# ------------------------------------------------------------------ little or nothing observed


def test_one_observation_is_enough(model, batch):
    assert int((batch.sample == 10).sum()) == 1
    value = batch.value.clone().requires_grad_()
    logits = model(replace(batch, value=value)).scores[10]
    assert logits.isfinite().all()
    logits[0].backward()
    assert value.grad[batch.sample == 10].ne(0).all()  # and it matters
    assert value.grad[batch.sample != 10].eq(0).all()


def test_a_sample_without_readings_is_predicted_from_its_statics(model, table, make_batch):
    empty = make_batch(table, [0, 11, 11])
    assert not (empty.sample > 0).any()
    statics = empty.statics.clone()
    statics[2] += 1
    output = output_of(model, replace(empty, statics=statics))
    assert output.scores.isfinite().all()
    assert not torch.allclose(output.scores[1], output.scores[2])


@pytest.mark.parametrize("statics", [("age", "ward"), ()])
def test_a_batch_without_any_reading_can_be_predicted_and_learned_from(build, make_table, make_batch, statics):
    table = make_table(samples=12, sensors=6, classes=3, statics=statics)
    model = build(of=table)
    batch = make_batch(table, [11, 11])
    assert batch.num_steps == 0
    assert output_of(model, batch).scores.isfinite().all()
    loss(model, batch).backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


# ------------------------------------------------------------------ learning


def test_every_parameter_learns(model, batch):
    loss(model.train(), batch).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, f"{name} receives no gradient"
        assert weight.grad.isfinite().all(), f"{name} has a gradient that is not finite"
        assert weight.grad.any(), f"{name} has a gradient of 0"


def test_what_is_saved_are_the_parameters_and_what_was_learned_before_training(model, table):
    fresh = {n: x.clone() for n, x in model.state_dict().items() if not n.startswith(LEARNED_OTHERWISE)}
    model.prepare(labelled_collator(table), None, seed=0)
    learned = {name for name, before in fresh.items() if not torch.equal(model.state_dict()[name], before)}
    parameters = {name for name, _ in model.named_parameters()}
    assert set(fresh) == parameters | learned
    assert not parameters & learned


def test_a_loaded_state_gives_the_same_predictions(build, batch):
    first, second = build(seed=0), build(seed=1)
    assert not torch.allclose(output_of(first, batch).scores, output_of(second, batch).scores)
    second.load_state_dict(first.state_dict())
    assert torch.equal(output_of(first, batch).scores, output_of(second, batch).scores)


def test_the_same_seed_gives_the_same_weights(build):
    first, again, other = (build(seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def loss_after_training(model: Model, batch: Batch, learning_rate: float) -> float:
    """The lowest cross entropy seen within 500 steps, and no lower than needed."""
    optimizer, lowest = torch.optim.Adam(model.parameters(), learning_rate), float("inf")
    for _ in range(500):
        optimizer.zero_grad()
        loss(model.train(), batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lowest = min(lowest, float(cross_entropy(output_of(model.eval(), batch).scores, batch.target)))
        if lowest < 0.02:
            break
    return lowest


@pytest.mark.slow
def test_one_batch_can_be_overfitted(build, make_table, make_batch):
    """From the readings alone: statics would give each sample away.

    Fast where that works; many layers of ReLU do not survive the fast rate from every start, whatever the model is.
    """
    table = make_table(samples=12, sensors=6, times=10, classes=3, statics=())
    assert any(loss_after_training(build(of=table), make_batch(table), rate) < 0.05 for rate in (0.02, 0.005))
