"""Raindrop with queries: what an answer may depend on, and its messages compared with loops over the senders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from closeness import NETWORK, assert_close
from nearby_loops import Around, around, of_query, readings_of
from paper_checks import as_double
from torch import Tensor

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.gap_windows import GapWindows
from raindrop.batch.gaps import Gaps, typical_intervals
from raindrop.batch.nearby import SCALES, Series
from raindrop.batch.scaling import Scaler
from raindrop.batch.windows import Windows
from raindrop.models.base import DataSpec, Output
from raindrop.models.raindrop import queries as query_model
from raindrop.models.raindrop.lagged_values import CERTAIN, LAGS
from raindrop.models.raindrop.pair_numbers import PairNumbers
from raindrop.models.raindrop.queries import CHANGE_WIDTHS, Embedding, QueryConfig, RaindropQueries
from raindrop.table.event_table import EventTable
from raindrop.tasks.readings import ReadingsAt
from raindrop.training.loop import task_loss

SMALL: dict[str, Any] = {"hidden": 16, "evidence_hidden": 8, "sensor_dim": 3, "heads": 3}
VARIANTS = {
    "full pairs": {},
    "low rank": {"pair_rank": 2},
    "ensemble": {"members": 3},
    "without lags": {"lags": False},
    "without messages": {"messages": False},
    "dated": {"dated": True},
    "facts": {"sensor_facts": ("x", "y")},
    "facts without messages": {"sensor_facts": ("x",), "messages": False},
}
every_variant = pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    """One sample lacks a sensor, one has one reading and one none."""
    return make_table(samples=7, sensors=4, times=9, observed=0.6)


def everywhere(batch: Batch) -> Queries:
    """All sensors of all samples at the times of readings, between them and outside."""
    rows = []
    for b in range(batch.num_samples):
        times = batch.time[batch.step_sample == b].tolist()[:5]
        for time in [*times, -3.0, 11.123, 70.0]:
            rows += [(b, u, time) for u in range(batch.num_sensors)]
    sample, sensor, time = zip(*rows, strict=True)
    times = torch.tensor(time, dtype=torch.float64)
    clock = torch.stack([(times / 4).sin(), (times / 4).cos()], dim=1)
    return Queries(torch.tensor(sample), torch.tensor(sensor), times, clock)


@pytest.fixture
def batch(table: EventTable, make_batch: Callable[..., Batch]) -> Batch:
    batch = as_double(make_batch(table))
    return replace(batch, queries=everywhere(batch), target=None)


@pytest.fixture
def build(table: EventTable) -> Callable[..., RaindropQueries]:
    """A function from settings to a model in double precision whose weights are all far from 0."""

    def build_model(settings: dict[str, Any] | None = None, *, seed: int = 0) -> RaindropQueries:
        torch.manual_seed(seed)
        settings = dict(settings or {})
        dated = settings.pop("dated", False)
        spec = DataSpec(table.sensors, ReadingsAt(table.sensors), Scaler.fit(table).static_width, dated=dated)
        model = RaindropQueries(QueryConfig(**SMALL | settings), spec).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.interval.copy_(torch.from_numpy(typical_intervals(table)))
        if model.facts is not None:
            model.facts.value.normal_()
            model.facts.known.bernoulli_(0.8)
            model.facts.value.mul_(model.facts.known)
        return model

    return build_model


@torch.no_grad()
def output_of(model: RaindropQueries, batch: Batch) -> Output:
    return model(batch)


def answers(model: RaindropQueries, batch: Batch) -> Tensor:
    return output_of(model, batch).scores


def some(batch: Batch, chosen: Tensor) -> Batch:
    """The batch with only some of its queries."""
    return replace(batch, queries=batch.queries[chosen])


# ---------------------------------------------------------------- what an answer may depend on


@every_variant
def test_answers_are_finite_one_per_query_and_level(build, batch, settings):
    output = output_of(build(settings), batch)
    assert output.scores.shape == (len(batch.queries), 5)
    assert output.scores.isfinite().all()
    assert (output.senders is None) == ("messages" in settings)
    assert (output.members is not None) == ("members" in settings)


def test_a_batch_without_queries_has_no_answers(build, batch):
    for settings in VARIANTS.values():
        assert output_of(build(settings), some(batch, torch.zeros(0, dtype=torch.long))).scores.shape == (0, 5)


@every_variant
def test_an_answer_does_not_depend_on_who_else_is_in_the_batch_or_on_their_order(
    build, table, batch, make_batch, settings
):
    model, queries = build(settings), batch.queries
    expected = answers(model, batch)
    turned = as_double(make_batch(table, [6, 2, 5, 0, 1, 4, 3]))
    place = torch.tensor([3, 4, 1, 6, 5, 2, 0])  # of each sample in that order
    turned = replace(turned, queries=replace(queries, sample=place[queries.sample]))
    assert_close(answers(model, turned), expected)
    for b in range(batch.num_samples):
        own = queries[queries.sample == b]
        alone = replace(as_double(make_batch(table, [b])), queries=replace(own, sample=own.sample * 0))
        assert_close(answers(model, alone), expected[queries.sample == b])


@every_variant
def test_an_answer_does_not_depend_on_what_else_is_asked(build, batch, settings, monkeypatch):
    model = build(settings)
    expected = answers(model, batch)
    order = torch.randperm(len(batch.queries))
    assert_close(answers(model, some(batch, order)), expected[order])
    assert_close(answers(model, some(batch, order[:3])), expected[order[:3]])
    monkeypatch.setattr(query_model, "MAX_CELLS", 3 * batch.num_sensors)  # three queries at once
    output = output_of(model, batch)
    assert_close(output.scores, expected)
    assert output.senders is None or len(output.senders) == len(expected)


@pytest.mark.slow
@every_variant
def test_the_asked_reading_does_not_influence_its_own_answer(build, batch, settings):
    model, queries = build(settings), batch.queries
    before = answers(model, batch)
    checked = 0
    for n in range(len(batch.value)):
        b, u, t = int(batch.sample[n]), int(batch.sensor[n]), float(batch.time[batch.step[n]])
        itself = (queries.sample == b) & (queries.sensor == u) & (queries.time == t)
        if not itself.any():
            continue
        value = batch.value.clone()
        value[n] += 100
        after = answers(model, replace(batch, value=value))
        assert torch.equal(after[itself], before[itself])
        assert not torch.equal(after, before)  # but others, such as those of the same sensor nearby
        checked += 1
    assert checked > 20


def test_a_hidden_value_cannot_change_an_answer(build, table):
    model = build().float()
    scaler, windows = Scaler.fit(table), Windows.cut(table, 1.0)
    gaps = Gaps.learn(table, typical_intervals(table))
    every = np.arange(len(table))

    def draw(values: np.ndarray) -> Batch:
        source = GapWindows(replace(table, value=values), scaler, windows, gaps)
        return source.batch(every, rng=np.random.default_rng(4))

    batch = draw(table.value)
    visible = set(zip(batch.sample.tolist(), batch.sensor.tolist(), batch.time[batch.step].tolist(), strict=True))
    rows, owner = table.rows(), np.repeat(every, table.count)
    keys = zip(owner.tolist(), table.sensor[rows].tolist(), table.time[rows].tolist(), strict=True)
    hidden = np.array([key not in visible for key in keys])
    assert 0 < hidden.sum() < len(hidden)
    changed = draw(np.where(hidden, 1e3, table.value))
    assert not torch.equal(changed.target, batch.target)
    assert torch.equal(answers(model, changed), answers(model, batch))


@every_variant
def test_shifting_all_times_by_a_constant_changes_nothing(build, batch, settings):
    """The shift is a power of two and the times are multiples of 1/1024, so that no difference is rounded."""
    model = build(settings)
    queries = replace(batch.queries, time=(batch.queries.time * 1024).round() / 1024)
    batch = replace(batch, time=(batch.time * 1024).round() / 1024, queries=queries)
    model.interval.copy_((model.interval * 1024).round() / 1024)  # lags are multiples of it
    for shift in (2.0**30, -(2.0**12)):
        moved = replace(batch, time=batch.time + shift, queries=replace(queries, time=queries.time + shift))
        assert torch.equal(answers(model, moved), answers(model, batch))


@pytest.mark.parametrize("settings", [{}, {"pair_rank": 2}, {"messages": False}])
def test_a_sender_near_the_asked_time_acts_only_through_messages(build, batch, settings):
    model, queries = build(settings), batch.queries
    n = int((batch.sample == 1).nonzero()[0])
    sender, time = int(batch.sensor[n]), float(batch.time[batch.step[n]])
    value = batch.value.clone()
    value[n] += 3
    moved = (answers(model, replace(batch, value=value)) - answers(model, batch)).abs().sum(1) > 0
    receivers = (queries.sample == 1) & (queries.sensor != sender) & (queries.time == time)
    assert receivers.sum() == batch.num_sensors - 1
    assert moved[receivers].all() == ("messages" not in settings)
    assert not moved[receivers].any() or "messages" not in settings
    assert not moved[queries.sample != 1].any()


def test_statics_of_the_sample_reach_the_answer(build, batch):
    model, statics = build(), batch.statics.clone()
    statics[2] += 1
    moved = (answers(model, replace(batch, statics=statics)) != answers(model, batch)).any(1)
    assert torch.equal(moved, batch.queries.sample == 2)


def test_only_a_model_of_dated_tables_knows_the_time_of_day(build, batch):
    queries = batch.queries
    later = replace(batch, queries=replace(queries, time_of_day=queries.time_of_day.roll(1, 1)))
    unknown = replace(batch, queries=replace(queries, time_of_day=None))
    assert torch.equal(answers(build(), later), answers(build(), batch))
    model = build({"dated": True})
    assert (answers(model, later) != answers(model, batch)).any(1).all()
    nowhere = replace(batch, queries=replace(queries, time_of_day=torch.zeros_like(queries.time_of_day)))
    assert torch.equal(answers(model, unknown), answers(model, nowhere))


def test_the_time_of_day_is_described_by_waves_of_a_day_and_of_half_a_day():
    day = torch.linspace(0, 1, 25, dtype=torch.float64)[:-1]
    angle = 2 * np.pi * day
    queries = Queries(day.long(), day.long(), day, torch.stack([angle.sin(), angle.cos()], dim=1))
    expected = torch.stack([angle.sin(), angle.cos(), (2 * angle).sin(), (2 * angle).cos()], dim=1)
    assert_close(query_model.time_of_day_waves(queries, day), expected, dtype=np.float64)


# ---------------------------------------------------------------- learning


def with_targets(batch: Batch) -> Batch:
    """Targets that follow from no rule."""
    return replace(batch, target=torch.randn(len(batch.queries), dtype=torch.float64))


@every_variant
def test_every_parameter_gets_a_gradient(build, table, batch, settings):
    model, batch = build(settings), with_targets(batch)
    task_loss(ReadingsAt(table.sensors), model(batch), batch.target).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"pair_rank": 2, "members": 2}, {"messages": False}])
def test_one_batch_can_be_learned_by_heart(build, table, batch, settings):
    batch = with_targets(some(batch, torch.randperm(len(batch.queries))[:24]))
    model, task = build({"hidden": 64} | settings), ReadingsAt(table.sensors)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(100):
        optimiser.zero_grad()
        loss = task_loss(task, model(batch), batch.target)
        loss.backward()
        optimiser.step()
    before = (answers(build({"hidden": 64} | settings), batch)[:, 2] - batch.target).abs().mean()
    after = (answers(model, batch)[:, 2] - batch.target).abs().mean()
    assert after < 0.1 * before


def test_before_training_an_answer_is_close_to_the_line_between_the_neighbouring_readings(table, batch):
    spec = DataSpec(table.sensors, ReadingsAt(table.sensors), Scaler.fit(table).static_width)
    model = RaindropQueries(QueryConfig(), spec).double()
    queries = batch.queries
    line = Series(batch, model.interval, model.scales).around(queries.sample, queries.sensor, queries.time, strict=True)
    assert (answers(model, batch) - line.values()[2][:, None]).abs().max() < 0.3


@pytest.mark.parametrize("wrong", [{"heads": 0}, {"hidden": 0}, {"members": 0}, {"dropout": 1.0}, {"pair_rank": -1}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        QueryConfig(**wrong)


# ---------------------------------------------------------------- Eq. 1 and 2


@pytest.mark.parametrize("settings", [{}, {"pair_rank": 2}])
def test_attention_is_at_least_0_sums_to_at_most_1_and_never_goes_to_the_receiver_itself(build, batch, settings):
    senders = output_of(build(settings), batch).senders
    assert senders.shape == (len(batch.queries), batch.num_sensors)
    assert (senders >= 0).all()
    assert (senders.sum(1) < 1).all()  # the rest is for nobody
    assert (senders.sum(1) > 0).all()
    assert not senders.gather(1, batch.queries.sensor[:, None]).any()


def two_layers(network: torch.nn.Sequential, x: Any) -> np.ndarray:
    first, second = ((layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in (network[0], network[2]))
    hidden = first[0] @ np.asarray(x) + first[1]
    return second[0] @ (hidden / (1 + np.exp(-hidden))) + second[1]


def changing(at: Around) -> np.ndarray:
    """What of a sender is compared between two times: its narrow averages, and the line."""
    return np.array([*(at.both[k] for k in CHANGE_WIDTHS), at.line])


def numbers_of_pair(pairs: PairNumbers, v: int, u: int) -> np.ndarray:
    if pairs.rank:
        return pairs.send[u].detach().numpy() @ pairs.receive[v].detach().numpy()
    return pairs.full[v, u].detach().numpy()


def lagged_value(model: RaindropQueries, readings: Any, v: int, u: int, t: float, level: float) -> float:
    """What sender u measured some time before and after t, by the weights of its pair with v, one lag at a time."""
    layer, interval = model.messages.lagged, model.interval
    unit = np.quantile(interval.numpy(), 0.25)
    total = 0.0
    for at, lag in enumerate(LAGS):
        then = around(readings, t + lag * unit, float(interval[u]), list(SCALES))
        nearest = min(then.age, then.wait)
        weight = numbers_of_pair(layer.weights, v, u)[at]
        total += weight * (then.line - level) * np.exp(-nearest / CERTAIN)
    return total


def loop_over_senders(model: RaindropQueries, batch: Batch, q: int) -> tuple[np.ndarray, np.ndarray]:
    """(h, d) messages and (u, h) attention of one query, one sender at a time."""
    layer, scales, interval = model.messages, list(SCALES), model.interval
    b, v, t = int(batch.queries.sample[q]), int(batch.queries.sensor[q]), float(batch.queries.time[q])
    own = of_query(batch, batch.queries, q, interval, scales, strict=True)
    level = own.both[-1]
    scores, sent = [], []
    senders = [u for u in range(batch.num_sensors) if u != v]
    for u in senders:
        readings = readings_of(batch, b, u)
        now = around(readings, t, float(interval[u]), scales)
        evidence, moved = [*now.evidence], []
        for time in (own.last_time, own.next_time):
            if time is None:
                moved.append(np.zeros(3))
                evidence += [0.0] * 4
                continue
            then = around(readings, time, float(interval[u]), scales)
            moved.append(changing(now) - changing(then))
            evidence += [then.log_before[0], then.log_after[0], *then.ages]
        pair = numbers_of_pair(layer.pairs, v, u)
        scores.append(pair + two_layers(layer.of_sender, evidence) + two_layers(layer.of_receiver, own.evidence))
        from_line = (1 - own.share) * moved[0] + own.share * moved[1]
        lagged = [lagged_value(model, readings, v, u, t, now.both[-1])] if layer.lagged is not None else []
        sent.append(np.concatenate([now.values - level, [1.0], *moved, from_line, lagged]))
    weight = np.exp(np.stack([*scores, layer.nobody[v].detach().numpy()]))  # (u, h)
    alpha = np.zeros((batch.num_sensors, weight.shape[1]))
    alpha[senders] = weight[:-1] / weight.sum(0)  # Eq. 1
    return sum(np.outer(alpha[u], x) for u, x in zip(senders, sent, strict=True)), alpha  # Eq. 2


@pytest.mark.parametrize("settings", [{}, {"pair_rank": 2}, {"lags": False}])
def test_attention_and_messages_are_equations_1_and_2(build, batch, settings):
    model = build(settings)
    with torch.no_grad():
        model.scales.copy_(torch.tensor(SCALES, dtype=torch.float64))
        series, queries = Series(batch, model.interval, model.scales), batch.queries
        own = Embedding.of(series.around(queries.sample, queries.sensor, queries.time, strict=True))
        received, senders = model.messages(series, queries, own)
    for q in range(0, len(queries), 3):
        messages, alpha = loop_over_senders(model, batch, q)
        assert_close(senders[q], alpha.mean(1), dtype=np.float64)
        # Logs of weights near -12 and ages near 400 enter the networks.
        assert_close(received[q], messages.ravel(), magnitude=100, roundings=NETWORK, dtype=np.float64)


def test_a_sender_without_readings_is_known_by_its_missing_evidence(build, batch):
    """Attention goes by evidence: a sensor that was never read in the sample has other weights than one that was."""
    model = build()
    no_pairs = {name: torch.zeros_like(x) for name, x in model.state_dict().items() if name == "messages.pairs.full"}
    model.load_state_dict(model.state_dict() | no_pairs)
    first = batch.queries.sample == 0  # sensor 1 is never read in it
    senders = output_of(model, batch).senders[first & (batch.queries.sensor == 3)]
    assert not torch.allclose(senders[:, 1], senders[:, 0])
