"""mTAND compared with its equations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from closeness import assert_close

from raindrop.models.baselines.mtand import MTAND, MTANDConfig


@pytest.fixture
def table(make_table):
    return make_table(samples=6, sensors=4, times=9)


@pytest.fixture
def build(table, make_spec):
    def build_model(window=(0.0, 48.0), **settings):
        torch.manual_seed(0)
        config = MTANDConfig(references=5, time_dim=8, state_dim=6, frequency=20.0, **settings)
        return MTAND(config, replace(make_spec(table), window=window)).eval()

    return build_model


def embed(model, head, time):
    """phi_h of Sec. 3.1."""
    omega, alpha = model.embed_time.omega[head], model.embed_time.alpha[head]
    angle = [float(w) * time + float(a) for w, a in zip(omega, alpha, strict=True)]
    return torch.tensor([angle[0], *(math.sin(a) for a in angle[1:])])


def interpolate(model, values, observed, times, window):
    """Eq. 2 and 3 for one sample: (K, h 2u)."""
    config, rows = model.config, []
    scaled = [(float(t) - window[0]) / (window[1] - window[0]) for t in times]
    for reference in torch.linspace(0, 1, config.references).tolist():
        row = []
        for head in range(config.heads):
            query = embed(model, head, reference) @ model.w[head]
            score = [float(query @ (embed(model, head, t) @ model.v[head])) / math.sqrt(len(query)) for t in scaled]
            x, present = [], []
            for d in range(observed.shape[1]):
                rows_of_d = [i for i in range(len(times)) if observed[i, d]]
                total = sum(math.exp(score[i]) for i in rows_of_d)
                x.append(sum(math.exp(score[i]) / total * float(values[i, d]) for i in rows_of_d))
                present.append(float(bool(rows_of_d)))
            row += x + present
        rows.append(row)
    return torch.tensor(rows)


@torch.no_grad()
@pytest.mark.parametrize("window", [(0.0, 48.0), (-5.0, 20.0)])
@pytest.mark.parametrize("heads", [1, 2])
def test_interpolation_is_equations_2_and_3(build, batch, heads, window):
    model, grid = build(window, heads=heads), batch.grid()
    interpolated = model.interpolate(batch)
    for b in range(6):
        present = grid.present[b]
        expected = interpolate(model, grid.value[b, present], grid.observed[b, present], grid.time[b, present], window)
        assert_close(interpolated[b], expected, magnitude=20.0)  # angles of that size, from the frequency


@torch.no_grad()
def test_the_embedding_is_the_last_state_of_a_gru_over_the_references(build, batch):
    model = build()
    x, h = model.U(model.interpolate(batch)), torch.zeros(6, 6)
    gru = model.gru
    for k in range(5):
        from_x = x[:, k] @ gru.weight_ih_l0.T + gru.bias_ih_l0
        from_h = h @ gru.weight_hh_l0.T + gru.bias_hh_l0
        r, z = torch.sigmoid(from_x[:, :6] + from_h[:, :6]), torch.sigmoid(from_x[:, 6:12] + from_h[:, 6:12])
        h = (1 - z) * torch.tanh(from_x[:, 12:] + r * from_h[:, 12:]) + z * h
    assert_close(model(batch).embedding, h)


@torch.no_grad()
def test_a_single_reading_is_interpolated_as_a_constant(build, batch):
    model = build()
    row = model.interpolate(batch)[4]  # one reading, of the last sensor
    reading = batch.value[batch.sample == 4]
    assert_close(row[:, 3], reading.expand(5))
    assert not row[:, :3].any()
    assert row[:, 4:].tolist() == [[0, 0, 0, 1]] * 5


def test_very_sharp_attention_stays_finite_and_has_gradients(build, batch):
    model = build()
    with torch.no_grad():
        model.w *= 1e4
    output = model(batch)
    output.scores.sum().backward()
    interpolated = model.interpolate(batch)
    assert interpolated.isfinite().all()
    assert interpolated[..., :4].abs().max() <= batch.value.abs().max() + 1e-5  # a mean of readings
    present = torch.zeros(6, 4).index_put((batch.sample, batch.sensor), torch.ones(()))
    assert torch.equal(interpolated[..., 4:], present[:, None].expand(-1, 5, -1))  # no weight underflows to 0
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


@torch.no_grad()
def test_references_span_the_window_of_the_data(build, batch):
    """The same data in another unit, with its window, gives the same."""
    hours = build((0.0, 48.0))(batch).scores
    minutes = build((0.0, 2880.0))(replace(batch, time=batch.time * 60)).scores
    assert_close(hours, minutes)
