"""Temporal attention, readout and long series (Eq. 4-5, Sec. 3.4), compared with plain loops."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import paper_loops as paper
import pytest
import torch
from paper_checks import assert_close

from raindrop.batch.batch import Batch
from raindrop.errors import DataError

# ------------------------------------------------------------------ Eq. 4 and 5


@pytest.mark.parametrize("s", ["time", "rank"])
@pytest.mark.parametrize("scores", ["sum", "mean"])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_time_attention_equals_the_matrix_of_equation_4(build, make_table, make_batch, s, scores, heads, dtype):
    batch = make_batch(make_table(times=40))
    model = build(temporal_attention={"s": s, "scores": scores, "heads": heads}).to(dtype)
    present = torch.rand(batch.num_steps, batch.num_sensors) < 0.6
    h = (torch.rand(batch.num_steps, batch.num_sensors, 4) * present[..., None]).to(dtype)
    p = model.encode_time(batch.time, like=h)
    z, beta = model.pool(batch, h, p, present)
    for b, v in product(range(batch.num_samples), range(batch.num_sensors)):
        steps = (batch.step_sample == b).nonzero().flatten().tolist()
        h_v = {t: paper.numpy(h[step, v]) for t, step in enumerate(steps) if present[step, v]}
        weights, expected = paper.pool_sensor(model, h_v, [paper.numpy(p[step]) for step in steps])
        assert_close(z[b, v], expected, 1e-5)
        for t, step in enumerate(steps):
            assert_close(beta[step, v], weights.get(t, 0.0), 1e-5)


def test_s_by_rank_counts_among_the_sensors_own_times(build, batch):
    """A time at which a sensor has no embedding must not shift the entries of s for later times."""
    pool = build(temporal_attention={"s": "rank", "max_rank": 10}).pool
    steps = (batch.step_sample == 0).nonzero().flatten()
    present = torch.zeros(batch.num_steps, batch.num_sensors, dtype=torch.bool)
    present[steps[[1, 4, 6]], 2] = True
    s = pool.s(batch, batch.time[:, None], present)
    assert torch.equal(s[steps[[1, 4, 6]], 2], pool.s_rank[:3])


def test_a_series_longer_than_s_is_an_error_that_says_what_to_do(build, batch):
    with pytest.raises(DataError, match=r"only 3 entries.\nRaise model.temporal_attention.max_rank"):
        build(temporal_attention={"s": "rank", "max_rank": 3})(batch)


@pytest.mark.parametrize("temporal", ["attention", "mean", "lstm"])
def test_a_sensor_with_no_time_has_embedding_0(build, batch, temporal):
    model = build({"ablation.messages": False}, temporal=temporal)  # only sensors with readings have times
    z = model(batch).embedding.view(batch.num_samples, batch.num_sensors, -1)
    read = torch.zeros(batch.num_samples, batch.num_sensors, dtype=torch.bool)
    read[batch.sample, batch.sensor] = True
    assert torch.equal(z.ne(0).any(-1), read)


def test_the_lstm_steps_through_all_times_with_zeros_where_a_sensor_has_none(build, batch):
    model = build(temporal="lstm")
    cell = torch.nn.LSTMCell(20, 4).double()
    cell.load_state_dict({name.removesuffix("_l0"): weight for name, weight in model.pool.lstm.state_dict().items()})
    present = torch.rand(batch.num_steps, batch.num_sensors) < 0.5
    h = torch.rand(batch.num_steps, batch.num_sensors, 4).double() * present[..., None]
    p = model.encode_time(batch.time, like=h)
    z, weights = model.pool(batch, h, p, present)
    assert weights is None
    for b, v in product(range(batch.num_samples), range(batch.num_sensors)):
        steps = (batch.step_sample == b).nonzero().flatten().tolist()
        state = (torch.zeros(1, 4).double(), torch.zeros(1, 4).double())
        for step in steps:
            state = cell(torch.cat([h[step, v], p[step]])[None] * present[step, v], state)
        expected = state[0][0] if present[steps, v].any() else torch.zeros(4).double()
        torch.testing.assert_close(z[b, v], expected)


# ------------------------------------------------------------------ Sec. 3.4


@pytest.mark.parametrize("settings", [{}, {"sample_dim": 7}, {"readout": "mean"}, {"readout": "squeeze"}], ids=str)
def test_readouts(build, settings):
    model = build(**settings)
    z = torch.randn(3, 5, 20).double()
    for b, sample in enumerate(model.readout(z)):
        assert_close(sample, paper.read_out(model, z[b].numpy()), 1e-12)


# ------------------------------------------------------------------ long series


def times_of(batch: Batch, b: int) -> list[float]:
    return batch.time[batch.step_sample == b].tolist()


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
    kept = {(int(b), float(t)) for b, t in zip(thinned.step_sample, thinned.time, strict=True)}
    every = zip(batch.sample, batch.time[batch.step], batch.sensor, batch.value, strict=True)
    expected = [tuple(map(float, row)) for row in every if (int(row[0]), float(row[1])) in kept]
    rows = zip(thinned.sample, thinned.time[thinned.step], thinned.sensor, thinned.value, strict=True)
    assert [tuple(map(float, row)) for row in rows] == expected


def test_a_thinned_series_is_computed_as_if_the_other_times_were_not_there(build, batch, samples):
    model = build(long_series={"mode": "thin", "max_times": 3})
    logits = model(batch).scores
    for b, sample in enumerate(samples):
        kept = [sample.times.index(pytest.approx(time)) for time in times_of(batch.thinned(3), b)]
        readings = {(kept.index(t), u): x for (t, u), x in sample.readings.items() if t in kept}
        short = replace(sample, times=[sample.times[t] for t in kept], readings=readings)
        assert_close(logits[b], paper.forward(model, short).scores, 1e-5)


@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_cut_series_is_the_average_of_its_pieces(build, batch, samples, most):
    model = build(long_series={"mode": "cut", "max_times": most})
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
        assert_close(output.embedding[b], embedding, 1e-5)
        assert_close(output.edges[b], mean_edges[-1])
        expected = paper.classify(model, embedding, sample.statics)
        assert_close(output.scores[b], expected, 1e-5)
    assert_close(output.penalty, 0.02 * paper.graph_distance(mean_edges), 1e-7)


@pytest.mark.parametrize("mode", ["thin", "cut"])
def test_a_series_that_is_not_long_is_left_as_it_is(build, batch, mode):
    torch.testing.assert_close(build({"long_series.mode": mode})(batch).scores, build()(batch).scores)
