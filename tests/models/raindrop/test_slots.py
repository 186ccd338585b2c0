"""Slots: encoded summaries of each sensor, with scales and knots learned from training samples only."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import torch
from closeness import assert_close

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator
from raindrop.batch.scaling import Scaler
from raindrop.config import make
from raindrop.models.base import DataSpec
from raindrop.models.raindrop.config import RaindropConfig, SlotsConfig
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.raindrop.slots import PiecewiseLinear, SensorSummaries, SlotMessages, Slots, Summarised
from raindrop.table.event_table import EventTable

CONFIG = SlotsConfig(dim=6, bins=4, dropout=0.3)


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    return make_table(samples=30, sensors=5, times=12, classes=2)


@pytest.fixture
def batch(table: EventTable, make_batch: Callable[..., Batch]) -> Batch:
    return make_batch(table)


def learned_slots(config: SlotsConfig, spec: DataSpec, table: EventTable) -> Slots:
    """Slots with seeded weights, and scales and knots learned from a table."""
    torch.manual_seed(0)
    slots = Slots(config, spec).eval()
    slots.learn(Collator(table, Scaler.fit(table)))
    return slots


@pytest.fixture
def slots(table: EventTable, make_spec: Callable[[EventTable], DataSpec]) -> Slots:
    return learned_slots(CONFIG, make_spec(table), table)


# ------------------------------------------------------------------ encoding


def encode_by_loop(x: float, knots: list[float]) -> list[float]:
    """The position of x in each bin."""
    out = []
    for low, high in pairwise(knots):
        if x <= low:
            out.append(0.0)
        elif x >= high:
            out.append(1.0)
        else:
            out.append((x - low) / (high - low))
    return out


@pytest.mark.parametrize("x", [-9.0, 0.0, 0.25, 1.0, 1.5, 3.0, 7.0])
def test_the_encoding_is_the_position_in_each_bin(x):
    encode = PiecewiseLinear(1, 4)
    knots = [0.0, 1.0, 1.0, 2.0, 4.0]
    encode.knots[0] = torch.tensor(knots)
    torch.testing.assert_close(encode(torch.tensor([[x]]))[0, 0], torch.tensor(encode_by_loop(x, knots)))


def test_rare_values_get_knots_too():
    encode = PiecewiseLinear(2, 8)
    values = np.concatenate([np.zeros(1000), np.arange(1, 41)]).astype(np.float32)  # mostly 0, forty rare values
    encode.learn(np.column_stack([values, np.full(len(values), np.nan, dtype=np.float32)]))
    knots = encode.knots[0].numpy()
    assert (np.diff(knots) >= 0).all()
    assert (knots > 1).sum() >= 3  # quantiles of all values would put at most one there
    assert encode.knots.isfinite().all()  # also for a sensor without training readings


# ------------------------------------------------------------------ summaries


def assert_standardised(summaries: Summarised) -> None:
    """Mean 0 and standard deviation 1 (or 0) for each summary of each sensor, over the samples that have it."""
    x, present = summaries.sensors, summaries.present
    for u in range(x.shape[1]):
        known = x[present[:, u], u]
        deviation = known.std(0, unbiased=False)
        torch.testing.assert_close(known.mean(0), torch.zeros(x.shape[-1]), atol=1e-4, rtol=0)
        assert ((deviation - 1).abs().lt(1e-3) | deviation.lt(1e-3)).all()
        assert (x[~present[:, u], u] == 0).all()


def test_summaries_are_scaled_over_the_training_samples_that_have_them(slots, batch):
    assert_standardised(slots.summaries(batch))


def test_the_time_since_the_last_reading_is_measured_from_the_samples_own_end(table, batch, make_spec):
    spec = make_spec(table)
    summaries = SensorSummaries(spec).raw(batch)
    start, length = spec.window[0], spec.window[1] - spec.window[0]
    for b in range(len(table)):
        rows = table.rows(np.array([b]))
        time, sensor = np.asarray(table.time[rows]), np.asarray(table.sensor[rows])
        if not len(time):
            assert (summaries.context[b] == 0).all()
            continue
        first, last = (time.min() - start) / length, (time.max() - start) / length
        expected = [last, first, np.log1p(len(time)), len(np.unique(sensor)) / 5]
        assert_close(summaries.context[b], expected)
        for u in np.unique(sensor):
            since = (time.max() - time[sensor == u].max()) / length
            assert_close(summaries.sensors[b, u, -1], since)


@pytest.mark.parametrize("mode", ["thin", "cut"])
def test_scales_and_knots_are_learned_from_series_as_the_model_sees_them(mode, table, batch, make_spec):
    settings = {"slots.dim": 6, "long_series.mode": mode, "long_series.max_times": 3}
    model = Raindrop(make(RaindropConfig, settings), make_spec(table))
    model.prepare(Collator(table, Scaler.fit(table)), None, seed=0)
    summaries = model.slots.summaries(batch.thinned(3) if mode == "thin" else batch.cut(3)[0])
    assert_standardised(summaries)
    again = PiecewiseLinear(5 * summaries.sensors.shape[-1], 8)
    x = summaries.sensors.masked_fill(~summaries.present[..., None], torch.nan)
    again.learn(x.flatten(1).numpy())
    assert_close(model.slots.encode.knots, again.knots)


def test_unix_seconds_give_the_same_slots_as_times_from_0(table):
    """A window of ten minutes, in which float32 can represent only every 128th Unix second."""

    def slots_with_start(start: float) -> torch.Tensor:
        events = table.events().with_columns(time=(pl.col("time") * 12).round(1) + start)  # 0 to 600 seconds
        options = {"label": "label", "sensors": table.sensors, "time_unit": "seconds"}
        shifted = EventTable.from_frames(events, table.samples, **options)
        slots = learned_slots(CONFIG, DataSpec(table.sensors, 2, window=(start, start + 600.0)), shifted)
        return slots(Collator(shifted, Scaler.fit(shifted)).batch(np.arange(len(shifted)))).sensors

    torch.testing.assert_close(slots_with_start(1_700_000_000.0), slots_with_start(0.0), rtol=0, atol=1e-4)


# ------------------------------------------------------------------ slots


def test_a_sensor_without_readings_has_its_learned_vector(slots, table, batch):
    present = torch.zeros(len(table), 5, dtype=torch.bool)
    present[batch.sample, batch.sensor] = True
    assert (~present).any()
    expected = slots.absent.expand(len(table), -1, -1)
    torch.testing.assert_close(slots(batch).sensors[~present], expected[~present])


def test_scales_and_knots_depend_on_the_training_samples_only(slots, table, make_spec):
    again, other = learned_slots(CONFIG, make_spec(table), table), Slots(CONFIG, make_spec(table))
    other.learn(Collator(table[np.arange(15)], Scaler.fit(table)))
    for (name, learned), same, different in zip(slots.named_buffers(), again.buffers(), other.buffers(), strict=True):
        assert torch.equal(learned, same), name
        assert not torch.equal(learned, different), name


def test_dropout_is_active_in_training_only(slots, batch):
    assert torch.equal(slots(batch).sensors, slots(batch).sensors)
    slots.train()
    assert not torch.equal(slots(batch).sensors, slots(batch).sensors)


# ------------------------------------------------------------------ messages between slots


@pytest.fixture
def slots_with_messages(table: EventTable, make_spec: Callable[[EventTable], DataSpec]) -> Slots:
    return learned_slots(SlotsConfig(dim=6, bins=4, rank=3), make_spec(table), table)


@torch.no_grad()
def test_slot_messages_are_equations_1_and_2(slots_with_messages, table, batch):
    summaries, messages = slots_with_messages.summaries(batch), slots_with_messages.messages
    M, present, truth = 5, summaries.present, summaries.sensors[..., [1, 6]]
    h, slots = torch.randn(len(table), M, 6), torch.randn(len(table), M, 6)
    actual, error = messages(h, slots, present, truth)
    total_error = 0.0
    for b in range(len(table)):
        for v in range(M):
            senders = [u for u in range(M) if present[b, u] and u != v]
            logit = {u: float(h[b, u] @ messages.D[u] @ messages.r[v] + messages.prior[u, v]) for u in senders}
            total = sum(np.exp(value) for value in logit.values())
            message = torch.zeros(6)
            for u in senders:
                message += np.exp(logit[u]) / total * (h[b, u] @ messages.w_send[u]) @ messages.w_receive[v]
            assert_close(actual[b, v], messages.norm(slots[b, v] + message))
            if present[b, v]:
                predicted = torch.relu(message) @ messages.decode[v] + messages.decode_bias[v]
                total_error += float((predicted - truth[b, v]).square().sum())
    assert float(error) == pytest.approx(total_error / int(present.sum()), rel=1e-4)


@torch.no_grad()
def test_a_sensor_without_readings_receives_from_others_and_sends_nothing(slots_with_messages, batch):
    summaries, messages = slots_with_messages.summaries(batch), slots_with_messages.messages
    num_present = summaries.present.sum(1)
    b = int(torch.nonzero((num_present >= 2) & (num_present < 5))[0])
    present, truth = summaries.present[b : b + 1], summaries.sensors[b : b + 1, :, [1, 6]]
    u, absent = int(torch.nonzero(present[0])[0]), int(torch.nonzero(~present[0])[0])
    h, slots = torch.randn(1, 5, 6), torch.zeros(1, 5, 6)
    before = messages(h, slots, present, truth)[0][0]
    changed = h.clone()
    changed[0, u] += 1.0
    after = messages(changed, slots, present, truth)[0][0]
    assert not torch.allclose(before[absent], after[absent])  # it receives from u
    torch.testing.assert_close(before[u], after[u])  # u does not send to itself
    changed = h.clone()
    changed[0, absent] += 1.0
    torch.testing.assert_close(before, messages(changed, slots, present, truth)[0][0])


@pytest.mark.parametrize("logit", [-300.0, -15.0, 0.0, 15.0, 300.0])
def test_slot_attention_sums_to_1_over_the_senders_and_is_0_without_any(logit):
    messages = SlotMessages(4, dim=6, rank=2)
    with torch.no_grad():
        messages.prior += logit + torch.randn(4, 4)
    h = torch.randn(3, 4, 6, requires_grad=True)
    present = torch.tensor([[True, True, True, False], [True, False, False, False], [False] * 4])
    share = messages.attention(h, present)
    sends = present[:, :, None] & ~torch.eye(4, dtype=torch.bool)
    torch.testing.assert_close(share.sum(1), sends.any(1).float())
    assert not share[~sends].any()
    share.square().sum().backward()
    assert h.grad.isfinite().all()


def test_an_edge_that_is_not_kept_has_no_share():
    messages, h = SlotMessages(4, dim=6, rank=2), torch.randn(1, 4, 6)
    keep = torch.ones(1, 4, 4)
    keep[0, 0, 1] = keep[0, :, 3] = 0
    share = messages.attention(h, torch.ones(1, 4, dtype=torch.bool), keep)
    assert share[0, 0, 1] == 0
    torch.testing.assert_close(share.sum(1)[0], torch.tensor([1.0, 1.0, 1.0, 0.0]))
