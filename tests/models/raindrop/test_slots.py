"""Slots: summaries as a network reads them, with scales and knots from training samples alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from closeness import assert_close, tolerance

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator
from raindrop.batch.scaling import Scaler
from raindrop.models.base import DataSpec
from raindrop.models.raindrop.slots import Piecewise, Slots, Summaries
from raindrop.table.event_table import EventTable


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    return make_table(samples=30, sensors=5, times=12, classes=2)


@pytest.fixture
def slots(table: EventTable, make_spec: Callable[[EventTable], DataSpec]) -> Slots:
    torch.manual_seed(0)
    slots = Slots(make_spec(table), dim=6, bins=4, dropout=0.3).eval()
    slots.learn(Collator(table, Scaler.fit(table)))
    return slots


def code_by_hand(x: float, knots: list[float]) -> list[float]:
    """How full each bin is, bin by bin."""
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
def test_a_piecewise_code_says_how_full_each_bin_is(x):
    piecewise = Piecewise(1, 4)
    knots = [0.0, 1.0, 1.0, 2.0, 4.0]
    piecewise.knots[0] = torch.tensor(knots)
    assert_close(piecewise(torch.tensor([[x]]))[0, 0], torch.tensor(code_by_hand(x, knots)))


def test_knots_lie_where_numbers_are_and_also_where_they_are_rare():
    piecewise = Piecewise(2, 8)
    often = np.concatenate([np.zeros(1000), np.arange(1, 41)]).astype(np.float32)  # forty rare numbers beside zero
    piecewise.learn(np.column_stack([often, np.full(len(often), np.nan, dtype=np.float32)]))
    knots = piecewise.knots[0].numpy()
    assert (np.diff(knots) >= 0).all()
    assert (knots > 1).sum() >= 3  # quantiles alone would have put at most one there
    assert piecewise.knots.isfinite().all()  # a sensor that no training sample has


def test_summaries_are_scaled_over_the_training_samples_that_have_them(slots, table, make_batch):
    x, _, has = slots.summaries(make_batch(table))
    for u in range(5):
        known = x[has[:, u], u]
        spread = known.std(0, unbiased=False)
        assert_close(known.mean(0), torch.zeros(x.shape[-1]))
        assert ((spread - 1).abs().lt(tolerance()) | spread.lt(tolerance())).all()
        assert (x[~has[:, u], u] == 0).all()


def test_the_time_since_the_last_reading_counts_from_the_samples_own_end(table, make_batch, make_spec):
    spec = make_spec(table)
    raw, whole = Summaries(spec).raw(make_batch(table))
    start, length = spec.window[0], spec.window[1] - spec.window[0]
    for b in range(len(table)):
        rows = table.rows(np.array([b]))
        time, sensor = np.asarray(table.time[rows]), np.asarray(table.sensor[rows])
        if not len(time):
            assert (whole[b] == 0).all()
            continue
        wanted = [(time.max() - start) / length, (time.min() - start) / length, np.log1p(len(time)),
                  len(np.unique(sensor)) / 5]  # fmt: skip
        assert_close(whole[b], wanted)
        for u in np.unique(sensor):
            since = (time.max() - time[sensor == u].max()) / length
            assert_close(raw[b, u, -1], since, dtype=np.float32)


def test_a_sensor_without_readings_has_its_learned_vector(slots, table, make_batch):
    batch = make_batch(table)
    has = torch.zeros(len(table), 5, dtype=torch.bool)
    has[batch.sample, batch.sensor] = True
    assert (~has).any()
    found, _, _ = slots(batch)
    assert_close(found[~has], slots.absent.expand(len(table), -1, -1)[~has])


def test_other_samples_than_those_of_training_move_nothing(slots, table, make_spec):
    torch.manual_seed(0)
    again = Slots(make_spec(table), dim=6, bins=4, dropout=0.3)
    again.learn(Collator(table, Scaler.fit(table)))
    other = Slots(make_spec(table), dim=6, bins=4, dropout=0.3)
    other.learn(Collator(table[np.arange(15)], Scaler.fit(table)))
    for (name, learned), same, different in zip(slots.named_buffers(), again.buffers(), other.buffers(), strict=True):
        assert torch.equal(learned, same), name
        assert not torch.equal(learned, different), name


def test_dropout_of_codes_acts_in_training_alone(slots, table, make_batch):
    batch: Batch = make_batch(table)
    assert torch.equal(slots(batch)[0], slots(batch)[0])
    slots.train()
    assert not torch.equal(slots(batch)[0], slots(batch)[0])


# ------------------------------------------------------------------ messages between slots


@pytest.fixture
def talking(table: EventTable, make_spec: Callable[[EventTable], DataSpec]) -> Slots:
    torch.manual_seed(0)
    slots = Slots(make_spec(table), dim=6, bins=4, dropout=0.0, rank=3).eval()
    slots.learn(Collator(table, Scaler.fit(table)))
    return slots


@torch.no_grad()
def test_slot_messages_are_equations_1_and_2(talking, table, make_batch):
    x, _, has = talking.summaries(make_batch(table))
    M, messages = 5, talking.messages
    h, own = torch.randn(len(table), M, 6), torch.randn(len(table), M, 6)
    truth = x[..., [1, 6]]
    found, error = messages(h, own, has, truth)
    wrong, told = 0.0, 0
    for b in range(len(table)):
        for v in range(M):
            senders = [u for u in range(M) if has[b, u] and u != v]
            logit = {u: float(h[b, u] @ messages.D[u] @ messages.r[v] + messages.prior[u, v]) for u in senders}
            total = sum(np.exp(value) for value in logit.values())
            message = torch.zeros(6)
            for u in senders:
                message += np.exp(logit[u]) / total * (h[b, u] @ messages.w_send[u]) @ messages.w_receive[v]
            assert_close(found[b, v], messages.norm(own[b, v] + message))
            if has[b, v]:
                guess = torch.relu(message) @ messages.decode[v] + messages.decode_bias[v]
                wrong, told = wrong + float((guess - truth[b, v]).square().sum()), told + 1
    assert float(error) == pytest.approx(wrong / told, abs=tolerance(magnitude=wrong / told))


@torch.no_grad()
def test_a_sensor_that_was_never_read_hears_of_the_others_but_not_of_itself(talking, table, make_batch):
    batch = make_batch(table)
    x, _, has = talking.summaries(batch)
    b = int(torch.nonzero((has.sum(1) >= 2) & (has.sum(1) < 5))[0])
    u, absent = int(torch.nonzero(has[b])[0]), int(torch.nonzero(~has[b])[0])
    h, own = torch.randn(1, 5, 6), torch.zeros(1, 5, 6)
    truth, here = x[b : b + 1, :, [1, 6]], has[b : b + 1]
    before = talking.messages(h, own, here, truth)[0][0]
    moved = h.clone()
    moved[0, u] += 1.0
    after = talking.messages(moved, own, here, truth)[0][0]
    assert not torch.allclose(before[absent], after[absent])  # it hears u
    assert_close(before[u], after[u])  # u does not hear itself
    moved = h.clone()
    moved[0, absent] += 1.0
    assert_close(before, talking.messages(moved, own, here, truth)[0][0])  # who was not read is silent
