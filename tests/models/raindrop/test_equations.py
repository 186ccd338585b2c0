"""Each equation of the paper against plain loops (paper_loops.py), in double precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import paper_loops as paper
import pytest
import torch
from closeness import ONE_SUM, assert_close
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.errors import DataError
from raindrop.models.base import DataSpec
from raindrop.models.layers import Clock, TimeEncoding
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.messages import State, place_readings, prune
from raindrop.models.raindrop.model import Raindrop, disparity
from raindrop.table.event_table import EventTable

SENDERS = ("embedded", "observed")
SINGLE = {"dtype": np.float32, "roundings": ONE_SUM}  # the batch holds readings in float32, the loops in float64


def double(batch: Batch) -> Batch:
    """The batch in double precision."""
    return replace(batch, value=batch.value.double(), time=batch.time.double(), statics=batch.statics.double())


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    return make_table()


@pytest.fixture
def batch(table: EventTable, make_batch: Callable[..., Batch]) -> Batch:
    return double(make_batch(table))


@pytest.fixture
def samples(table: EventTable, batch: Batch) -> list[paper.Sample]:
    return paper.samples_of(table, batch.statics.numpy())


@pytest.fixture
def build(table: EventTable, make_spec: Any) -> Callable[..., Raindrop]:
    """A function from settings to a model in double precision."""

    def build_model(seed: int = 0, **settings: Any) -> Raindrop:
        torch.manual_seed(seed)
        return Raindrop(RaindropConfig(**settings), make_spec(table)).double().eval()

    return build_model


def slot_of(batch: Batch, b: int, t: int) -> int:
    """Where time number t of sample b lies among the batch's timestamps."""
    return int((batch.slot_sample == b).nonzero()[t])


def propagate(model: Raindrop, batch: Batch) -> list[State]:
    """The state after each layer."""
    p, h = model.encode_time(batch.time), model.embed(batch)
    p = p if model.config.time_encoding else p[:, :0]
    states = [model.graph(batch, h)]
    for layer in model.layers:
        states.append(layer(batch, h, p, states[-1]))
    return states[1:]


def assert_same_embeddings(batch: Batch, b: int, told: dict[paper.At, Any], h: Tensor, has: Tensor) -> None:
    """The same sensors have an embedding at the same times, and it is the same; 0 elsewhere, not sigma(0) = 0.5."""
    assert not h[~has].any()
    slots = (batch.slot_sample == b).nonzero().flatten().tolist()
    assert {(t, v) for t, s in enumerate(slots) for v in range(batch.num_sensors) if has[s, v]} == set(told)
    for (t, v), expected in told.items():
        assert_close(h[slots[t], v], expected, **SINGLE)


# ------------------------------------------------------------------ time and readings


def test_time_is_encoded_by_the_value_of_the_time_in_sine_and_cosine_pairs():
    times = [0.0, 0.35, 7.0, 47.9]
    encoded = TimeEncoding(16)(torch.tensor(times))
    for t, p in zip(times, encoded, strict=True):
        assert_close(p, paper.encode_time(t, 16), magnitude=t)


def test_seconds_since_1970_are_told_apart():
    times = torch.tensor([0.0, 1.0, 60.0], dtype=torch.float64) + 1.7e9
    base, first, minute = (TimeEncoding(16)(times) - TimeEncoding(16)(times[:1])).norm(dim=1).tolist()
    assert base == 0
    assert first > 0.5
    assert minute > 0.5
    clock = Clock(DataSpec(("a",), 2, window=(1.7e9, 1.7e9 + 48)), 48.0)
    assert clock(times[:2]).tolist() == [0.0, 1.0]
    assert clock(times).dtype == torch.float32


def test_time_scale_divides_the_time_and_time_base_sets_the_wave_lengths():
    encoded = TimeEncoding(6, base=100.0, scale=60.0)(torch.tensor([90.0]))[0]
    assert_close(encoded, paper.encode_time(1.5, 6, 100.0))


@pytest.mark.parametrize("mask_indicator", [False, True])
def test_a_reading_is_embedded_by_its_own_sensors_weights(build, batch, mask_indicator):
    model = build(mask_indicator=mask_indicator)
    h, R = model.embed(batch), paper.numpy(model.embed.R)
    for n, (x, u) in enumerate(zip(batch.value.tolist(), batch.sensor.tolist(), strict=True)):
        weights = np.stack([R[u], paper.numpy(model.embed.indicator)[u]]) if mask_indicator else R[u : u + 1]
        expected = paper.sigma(np.array([x, 1.0])[: len(weights)] @ weights)  # [x || 1] R_u
        assert_close(h[n], expected)


def test_what_was_not_observed_has_no_embedding(build, batch):
    model = build(messages=False)
    h = model.embed(batch)
    state = model.graph(batch, h)
    everywhere = state.embedding(batch, h)
    assert torch.equal(state.has(batch), batch.observed)
    assert not everywhere[~batch.observed].any()  # 0, not sigma(0) = 0.5
    assert (everywhere[batch.observed] > 0).all()


# ------------------------------------------------------------------ Eq. 1


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("without", [{}, {"receiver_vectors": False}, {"time_encoding": False}])
def test_alpha_is_equation_1(build, batch, heads, without):
    model = build(heads=heads, **without)
    layer, M = model.layers[0], batch.num_sensors
    p = model.encode_time(batch.time) if model.config.time_encoding else batch.time.new_zeros(batch.num_slots, 0)
    h, p = model.embed(batch), p[batch.slot]
    alpha, score = layer.attention(h, p, M)
    assert alpha.shape == (len(h), heads, M)
    assert torch.equal(alpha, score)
    w = paper.LayerWeights.of(layer, M)
    for n, k, v in product(range(len(h)), range(heads), range(M)):
        assert_close(alpha[n, k, v], w.alpha(paper.numpy(h[n]), v, paper.numpy(p[n]), k))


def test_the_logit_choice_hands_the_argument_of_alpha_to_the_softmax(build, batch):
    layer = build(normalise="logit").layers[0]
    h, p = torch.rand(7, 4).double(), torch.rand(7, 16).double()
    alpha, score = layer.attention(h, p, batch.num_sensors)
    assert_close(torch.sigmoid(score), alpha)
    assert not torch.allclose(score, alpha)


# ------------------------------------------------------------------ Eq. 2 and 3, one layer with a given graph


def random_state(batch: Batch, senders: str, *, seed: int = 0) -> State:
    """A graph with some edges missing, and for embedded senders embeddings at more sensors than have readings."""
    generator = torch.Generator().manual_seed(seed)
    M = batch.num_sensors
    edges = torch.rand(batch.num_samples, M, M, generator=generator).double()
    edges = edges * (edges > 0.4)
    loss = torch.zeros((), dtype=torch.float64)
    if senders == "observed":
        return State(loss, edges)
    reached = batch.observed | (torch.rand(batch.num_slots, M, generator=generator) < 0.4)
    received = torch.rand(batch.num_slots, M, 4, generator=generator).double() * reached[..., None]
    return State(loss, edges, received, reached)


def sending_of(batch: Batch, b: int, embeddings: Tensor, has: Tensor) -> dict[paper.At, Any]:
    """Who sends in sample b, as the loops want it."""
    slots = (batch.slot_sample == b).nonzero().flatten().tolist()
    pairs = product(enumerate(slots), range(batch.num_sensors))
    return {(t, u): paper.numpy(embeddings[s, u]) for (t, s), u in pairs if has[s, u]}


@pytest.mark.parametrize("senders", SENDERS)
@pytest.mark.parametrize("normalise", ["sigmoid", "logit"])
@pytest.mark.parametrize("more", [{}, {"heads": 2}, {"rank": 3}, {"heads": 3, "rank": 2}, {"mixing": "residual"}])
def test_one_layer_is_equations_2_and_3(build, batch, senders, normalise, more):
    layer = build(layers=1, normalise=normalise, senders=senders, **more).layers[0]
    h = torch.rand(len(batch.value), 4).double()
    p = TimeEncoding(16).double()(batch.time)
    before = random_state(batch, senders)
    after = layer(batch, h, p, before)
    w = paper.LayerWeights.of(layer, batch.num_sensors)
    own = place_readings(batch, torch.zeros(batch.num_slots, batch.num_sensors, 4).double(), h)
    for b in range(batch.num_samples):
        readings = sending_of(batch, b, own, batch.observed)
        sending = readings if senders == "observed" else sending_of(batch, b, before.received, before.reached)
        e, times = paper.numpy(before.edges[b]), list(paper.numpy(p[batch.slot_sample == b]))
        assert_same_embeddings(
            batch, b, paper.receive(w, sending, readings, e, times), after.received, after.reached
        )  # Eq. 2 with the e that came in
        assert_close(after.edges[b], paper.update_edges(w, sending, e, times))


@pytest.mark.parametrize("senders", SENDERS)
def test_a_sensors_own_reading_wins_over_what_others_tell_it(build, batch, senders):
    model = build(senders=senders)
    h, last = model.embed(batch), propagate(model, batch)[-1]
    assert torch.equal(last.received[batch.slot, batch.sensor], h)


@pytest.mark.parametrize("senders", SENDERS)
def test_a_sensor_that_never_sends_has_outgoing_weight_0(build, batch, senders):
    read = torch.zeros(batch.num_samples, batch.num_sensors, dtype=torch.bool)
    read[batch.sample, batch.sensor] = True
    assert not read.all(1)[0]  # sensor 1 is silent in sample 0
    assert not read[-1].any()  # the last sample has no reading at all
    for state in propagate(build(senders=senders, prune=0.0), batch):
        assert torch.equal(state.edges.gt(0), read[:, :, None].expand_as(state.edges))


def test_the_last_layer_does_not_prune(build, batch):
    edges = build(layers=1, prune=0.9)(batch).edges
    assert int(edges[1].gt(0).sum()) == 25
    assert int(build(layers=2, prune=0.9)(batch).edges[1].gt(0).sum()) == 3


def test_the_weight_of_edges_is_the_mean_of_alpha_not_of_the_softmax(build, batch):
    """The two choices of what is normalised share Eq. 3."""
    first, second = (propagate(build(layers=1, normalise=kind), batch)[0] for kind in ("sigmoid", "logit"))
    assert_close(first.edges, second.edges)
    assert not torch.allclose(first.received, second.received)


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
    model = Raindrop(RaindropConfig(senders=senders), make_spec(table))
    assert model(make_batch(table)).edges.gt(0).sum((1, 2)).tolist() == [578, 578]


@pytest.mark.parametrize("senders", SENDERS)
def test_a_pruned_edge_stays_out(build, batch, senders):
    first, second, third = (state.edges > 0 for state in propagate(build(layers=3, senders=senders), batch))
    assert first.sum((1, 2)).max() == 13  # 25 - 12
    assert not (second & ~first).any()
    assert not (third & ~second).any()


def test_a_surviving_edge_keeps_its_gradient_and_a_pruned_one_has_none():
    e = torch.rand(1, 4, 4, requires_grad=True)
    pruned = prune(e, 0.5)
    pruned.sum().backward()
    assert torch.equal(e.grad, (pruned > 0).float())


# ------------------------------------------------------------------ Eq. 4 and 5


@pytest.mark.parametrize("s", ["time", "rank"])
@pytest.mark.parametrize("scores", ["sum", "mean"])
@pytest.mark.parametrize("time_heads", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_time_attention_equals_the_matrix_of_equation_4(
    build, make_table, make_batch, s, scores, time_heads, dtype
):
    batch = make_batch(make_table(times=40))
    model = build(s=s, scores=scores, time_heads=time_heads).to(dtype)
    has = torch.rand(batch.num_slots, batch.num_sensors) < 0.6
    h = (torch.rand(batch.num_slots, batch.num_sensors, 4) * has[..., None]).to(dtype)
    p = model.encode_time(batch.time.to(dtype))
    z, beta = model.pool(batch, h, p, has)
    for b, v in product(range(batch.num_samples), range(batch.num_sensors)):
        slots = (batch.slot_sample == b).nonzero().flatten().tolist()
        of_v = {t: paper.numpy(h[slot, v]) for t, slot in enumerate(slots) if has[slot, v]}
        weights, expected = paper.pool_sensor(model, of_v, [paper.numpy(p[slot]) for slot in slots])
        assert_close(z[b, v], expected)
        for t, slot in enumerate(slots):
            assert_close(beta[slot, v], weights.get(t, 0.0))


def test_s_by_rank_counts_among_the_sensors_own_times(build, batch):
    """A time at which a sensor has nothing must not shift the entries of s for the later ones."""
    pool = build(s="rank", max_rank=10).pool
    slots = (batch.slot_sample == 0).nonzero().flatten()
    has = torch.zeros(batch.num_slots, batch.num_sensors, dtype=torch.bool)
    has[slots[[1, 4, 6]], 2] = True
    s = pool.s(batch, batch.time[:, None], has)
    assert torch.equal(s[slots[[1, 4, 6]], 2], pool.s_rank[:3])


def test_a_series_longer_than_s_is_an_error_that_names_the_way_out(build, batch):
    with pytest.raises(DataError, match="only 3 entries"):
        build(s="rank", max_rank=3)(batch)


@pytest.mark.parametrize("temporal", ["attention", "mean", "lstm"])
def test_a_sensor_with_no_time_has_embedding_0(build, batch, temporal):
    model = build(temporal=temporal, messages=False)  # isolated: only sensors with readings have times
    z = model(batch).embedding.view(batch.num_samples, batch.num_sensors, -1)
    read = torch.zeros(batch.num_samples, batch.num_sensors, dtype=torch.bool)
    read[batch.sample, batch.sensor] = True
    assert torch.equal(z.ne(0).any(-1), read)


def test_the_lstm_steps_through_all_times_with_zeros_where_a_sensor_has_none(build, batch):
    model = build(temporal="lstm")
    cell = torch.nn.LSTMCell(20, 4).double()
    cell.load_state_dict({name.removesuffix("_l0"): weight for name, weight in model.pool.lstm.state_dict().items()})
    has = torch.rand(batch.num_slots, batch.num_sensors) < 0.5
    h = torch.rand(batch.num_slots, batch.num_sensors, 4).double() * has[..., None]
    p = model.encode_time(batch.time)
    z, weights = model.pool(batch, h, p, has)
    assert weights is None
    for b, v in product(range(batch.num_samples), range(batch.num_sensors)):
        slots = (batch.slot_sample == b).nonzero().flatten().tolist()
        state = (torch.zeros(1, 4).double(), torch.zeros(1, 4).double())
        for slot in slots:
            state = cell(torch.cat([h[slot, v], p[slot]])[None] * has[slot, v], state)
        expected = state[0][0] if has[slots, v].any() else torch.zeros(4).double()
        assert_close(z[b, v], expected)


# ------------------------------------------------------------------ Sec. 3.4 and 3.5


@pytest.mark.parametrize("readout", ["concat", "mean", "squeeze"])
def test_readouts(build, readout):
    model = build(readout=readout)
    z = torch.randn(3, 5, 20).double()
    for b, sample in enumerate(model.readout(z)):
        assert_close(sample, paper.read_out(model, z[b].numpy()))


def test_statics_pass_one_linear_layer_of_as_many_neurons_as_sensors(build, batch):
    model = build()
    assert model.head.statics.out_features == batch.num_sensors
    embedding = torch.randn(batch.num_samples, 100).double()
    for b, logits in enumerate(model.head(embedding, batch.statics)):
        expected = paper.classify(model, embedding[b].numpy(), batch.statics[b].numpy())
        assert_close(logits, expected)


def test_without_statics_the_classifier_sees_the_sample_embedding_alone(make_table, make_batch, make_spec):
    table = make_table(statics=())
    batch = make_batch(table)
    model = Raindrop(RaindropConfig(), make_spec(table))
    assert model.head.statics is None
    output = model(batch)
    assert_close(output.logits, model.head.classifier(output.embedding))


# ------------------------------------------------------------------ L_r


@pytest.mark.parametrize("size", [2, 3, 8])
def test_l_r_is_the_sum_over_pairs_of_samples(size):
    e = torch.rand(size, 4, 4).double()
    e[0, 0] = e[1, 0]
    assert_close(disparity(e), paper.disparity(list(e.numpy())))


def test_l_r_of_one_sample_is_0():
    assert float(disparity(torch.rand(1, 4, 4))) == 0


def test_l_r_has_a_finite_gradient_where_graphs_coincide():
    e = torch.rand(1, 3, 3).double().expand(5, -1, -1).clone().requires_grad_()
    disparity(e).backward()
    assert e.grad.isfinite().all()


def test_the_gradient_of_l_r_is_that_of_the_sum_over_pairs():
    e = torch.rand(4, 3, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(disparity, e)


# ------------------------------------------------------------------ the whole model

VARIANTS = {
    "as in the paper": {},
    "one layer": {"layers": 1},
    "three layers": {"layers": 3},
    "softmax of logits": {"normalise": "logit"},
    "residual": {"mixing": "residual"},
    "heads and rank": {"heads": 2, "rank": 2, "time_heads": 2},
    "s by rank": {"s": "rank"},
    "mean scores": {"scores": "mean"},
    "strong pruning": {"prune": 0.9},
    "no pruning": {"prune": 0.0},
    "indicator": {"mask_indicator": True},
    "lstm": {"temporal": "lstm"},
    "mean over sensors": {"readout": "mean"},
    "squeeze": {"readout": "squeeze"},
    "relu": {"activation": "relu"},
    "minutes": {"time_scale": 60.0, "time_base": 100.0},
    "isolated": {"messages": False},
    "w/o R_u": {"sensor_embedding": False},
    "w/o e": {"edge_weights": False},
    "w/o r_v": {"receiver_vectors": False},
    "w/o p": {"time_encoding": False},
    "w/o p, s by rank": {"time_encoding": False, "s": "rank"},
    "w/o alpha": {"inter_sensor_attention": False},
    "w/o temporal attention": {"temporal": "mean"},
    "w/o L_r": {"similarity": 0.0},
}


@pytest.mark.parametrize("senders", SENDERS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_whole_model_equals_the_loops(build, batch, samples, senders, variant):
    model = build(senders=senders, **VARIANTS[variant])
    output, states = model(batch), propagate(model, batch)
    told = [paper.forward(model, sample) for sample in samples]
    for b, expected in enumerate(told):
        for layer, state in enumerate(states):
            if model.config.edge_weights:
                assert_close(state.edges[b], expected.edges[layer], **SINGLE)
            if state.received is not None:
                assert_same_embeddings(batch, b, expected.embeddings[layer], state.received, state.reached)
        for (t, v), weight in expected.beta.items():
            assert_close(output.time_weights[slot_of(batch, b, t), v], weight, **SINGLE)
        assert_close(output.embedding[b], expected.sample, **SINGLE)
        assert_close(output.logits[b], expected.logits, **SINGLE)
    penalty = 0.0
    if model.config.messages and model.config.edge_weights:
        penalty = model.config.similarity * paper.disparity([sample.edges[-1] for sample in told])
    assert_close(output.penalty, penalty, magnitude=0.02, **SINGLE)


@pytest.mark.parametrize("senders", SENDERS)
def test_single_precision_is_precise_enough(build, batch, samples, senders):
    model = build(senders=senders).float()
    single = replace(batch, value=batch.value.float(), time=batch.time.float(), statics=batch.statics.float())
    for logits, sample in zip(model(single).logits, samples, strict=True):
        assert_close(logits, paper.forward(model, sample).logits)


def test_the_published_sizes_are_the_defaults(build):
    """Appendix: R_u of 4, p and r_v of 16, D of 4 x 32, W of 20 x 20, L = 2, K = 50 %, 128 neurons, lambda 0.02."""
    model = build()
    layer, config = model.layers[-1], model.config
    assert model.embed.R.shape == (5, 4)
    assert layer.D_r.shape[1:] == layer.D_p.shape[1:] == (4, 16)
    assert layer.r.shape == (1, 5, 16)
    assert layer.w_send.shape == layer.w_receive.shape == (5, 1, 4)
    assert model.pool.W.shape == (20, 20)
    assert model.pool.W_Q.shape == (1, 20, 20)
    assert model.head.classifier[1].out_features == 128
    assert (config.layers, config.prune, config.similarity) == (2, 0.5, 0.02)


@pytest.mark.parametrize("senders", SENDERS)
def test_a_known_graph_is_where_the_edges_start(build, batch, samples, table, senders):
    known = np.zeros((5, 5))
    known[0, 1], known[0, 2], known[3, 1], known[2, 2], known[4, 0] = 1.0, 0.5, 0.25, 1.0, 0.75
    named = tuple((table.sensors[u], table.sensors[v], known[u, v]) for u, v in np.argwhere(known))
    model = build(senders=senders, initial_edges=named)
    output = model(batch)
    assert not output.edges[:, torch.from_numpy(known == 0)].any()
    for b, sample in enumerate(samples):
        expected = paper.forward(model, sample, known)
        assert_close(output.edges[b], expected.edges[-1], **SINGLE)
        assert_close(output.logits[b], expected.logits, **SINGLE)


def test_a_known_edge_of_an_unknown_sensor_is_an_error(build):
    with pytest.raises(DataError, match="sensor 9"):
        build(initial_edges=(("sensor 0", "sensor 9", 1.0),))


# ------------------------------------------------------------------ long series


def times_of(batch: Batch, b: int) -> list[float]:
    return batch.time[batch.slot_sample == b].tolist()


@pytest.mark.parametrize("most", [1, 3, 5, 7])
def test_thinning_keeps_evenly_spread_times_with_all_their_readings(batch, most):
    thinned = batch.thinned(most)
    assert thinned.num_samples == batch.num_samples
    for b in range(batch.num_samples):
        before, after = times_of(batch, b), times_of(thinned, b)
        assert len(after) == min(most, len(before))
        assert after[:1] == before[:1]
        gaps = np.diff([before.index(time) for time in after])
        assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1
    kept = {(int(b), float(t)) for b, t in zip(thinned.slot_sample, thinned.time, strict=True)}
    every = zip(batch.sample, batch.time[batch.slot], batch.sensor, batch.value, strict=True)
    expected = [tuple(map(float, row)) for row in every if (int(row[0]), float(row[1])) in kept]
    rows = zip(thinned.sample, thinned.time[thinned.slot], thinned.sensor, thinned.value, strict=True)
    assert [tuple(map(float, row)) for row in rows] == expected


def test_a_thinned_series_is_computed_as_if_the_other_times_were_not_there(build, batch, samples):
    model = build(long_series="thin", max_times=3)
    logits = model(batch).logits
    for b, sample in enumerate(samples):
        kept = [sample.times.index(pytest.approx(time)) for time in times_of(batch.thinned(3), b)]
        readings = {(kept.index(t), u): x for (t, u), x in sample.readings.items() if t in kept}
        short = replace(sample, times=[sample.times[t] for t in kept], readings=readings)
        assert_close(logits[b], paper.forward(model, short).logits, **SINGLE)


@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_cut_series_is_the_average_of_its_pieces(build, batch, samples, most):
    model = build(long_series="cut", max_times=most)
    output = model(batch)
    mean_edges = []
    for b, sample in enumerate(samples):
        pieces = []
        for start in range(0, max(1, len(sample.times)), most):
            readings = {(t - start, u): x for (t, u), x in sample.readings.items() if start <= t < start + most}
            piece = replace(sample, times=sample.times[start : start + most], readings=readings)
            pieces.append(paper.forward(model, piece))
        embedding = np.mean([piece.sample for piece in pieces], axis=0)
        mean_edges.append(np.mean([piece.edges[-1] for piece in pieces], axis=0))
        assert_close(output.embedding[b], embedding, **SINGLE)
        assert_close(output.edges[b], mean_edges[-1], **SINGLE)
        expected = paper.classify(model, embedding, sample.statics)
        assert_close(output.logits[b], expected, **SINGLE)
    assert_close(output.penalty, 0.02 * paper.disparity(mean_edges), magnitude=0.02, **SINGLE)


@pytest.mark.parametrize("long_series", ["thin", "cut"])
def test_a_series_that_is_not_long_is_left_as_it_is(build, batch, long_series):
    assert_close(build(long_series=long_series)(batch).logits, build()(batch).logits)


def test_a_known_graph_whose_weights_cannot_be_is_refused():
    for weight in (-0.5, 0.0, 5.0):
        with pytest.raises(ValueError, match="above 0 and up to 1"):
            RaindropConfig(initial_edges=(("a", "b", weight),))
    with pytest.raises(ValueError, match="no effect"):
        RaindropConfig(initial_edges=(("a", "b", 1.0),), edge_weights=False)
