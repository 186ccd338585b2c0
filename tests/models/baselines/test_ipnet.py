"""IP-Net's interpolation and its reconstruction loss, compared with loops written from its paper."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from closeness import assert_close, tolerance
from torch.nn.functional import softplus

from raindrop.models.base import DataSpec
from raindrop.models.baselines.interpolation import KernelSmoother, SensorMixing
from raindrop.models.baselines.ipnet import IPNet, IPNetConfig
from raindrop.models.layers import Clock

POINTS = 7


@pytest.fixture
def time(batch):
    return batch.time[batch.step]


@pytest.fixture
def smoother():
    smoother = KernelSmoother(4)
    torch.nn.init.uniform_(smoother.raw_alpha, -6.0, -3.0)  # wide enough for float64 loops to see every reading
    return smoother


@pytest.fixture
def model(table, make_spec):
    torch.manual_seed(0)
    return IPNet(IPNetConfig(reference_points=POINTS, hidden=6, dropout=0.0), make_spec(table))


def readings(batch, b, v, kept=None):
    """(time, value) of sensor v in sample b; without readings, one of 0 at time 0."""
    rows = [
        (float(batch.time[step]), float(value))
        for n, (value, sensor, step) in enumerate(zip(batch.value, batch.sensor, batch.step, strict=True))
        if batch.step_sample[step] == b and sensor == v and (kept is None or kept[n])
    ]
    return rows or [(0.0, 0.0)]


def expected(batch, alpha, point, b, v, kept=None):
    """lambda and sigma of the paper."""
    rows = readings(batch, b, v, kept)
    kernel = [exp(-alpha * (point - t) ** 2) for t, _ in rows]
    return sum(kernel), sum(w * x for w, (_, x) in zip(kernel, rows, strict=True)) / sum(kernel)


@pytest.mark.parametrize("hold_out", [False, True])
def test_intensity_smooth_and_transient_are_kernel_sums(batch, time, smoother, hold_out):
    points = torch.linspace(0, 48, POINTS).expand(5, -1)
    kept = torch.arange(len(time)) % 3 > 0 if hold_out else None
    with torch.no_grad():
        smoothed = smoother(batch, time, points, kept=kept, sharpness=3.0)
        alpha = softplus(smoother.raw_alpha)
    off = tolerance(magnitude=float(alpha.max()) * 48**2)  # the size of the largest exponent of the kernel
    for b in range(5):
        for k in range(POINTS):
            for v in range(4):
                point = float(points[b, k])
                intensity, smooth = expected(batch, float(alpha[v]), point, b, v, kept)
                _, sharp = expected(batch, 3 * float(alpha[v]), point, b, v, kept)
                assert float(smoothed.log_intensity[b, k, v]) == pytest.approx(log(intensity), abs=off)
                assert float(smoothed.value[b, k, v]) == pytest.approx(smooth, abs=off)
                assert float(smoothed.sharp[b, k, v]) == pytest.approx(sharp, abs=3 * off)


def test_sensors_are_mixed_by_rho_and_intensity(smoother):
    value, log_intensity = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    mix = SensorMixing(4)
    torch.nn.init.normal_(mix.rho)
    mixed = mix(value, log_intensity)
    intensity = log_intensity.exp()
    for d in range(4):
        weighted = sum(mix.rho[e, d] * intensity[..., e] * value[..., e] for e in range(4))
        torch.testing.assert_close(mixed[..., d], weighted / intensity.sum(-1))


def test_a_point_far_from_every_reading_takes_the_nearest_one(batch, time):
    with torch.no_grad():
        smoothed = KernelSmoother(4)(batch, time, torch.full((5, 1), 1e4), sharpness=10.0)
    for b in range(4):
        for v in range(4):
            nearest = max(readings(batch, b, v))[1]
            assert float(smoothed.value[b, 0, v]) == pytest.approx(nearest, abs=tolerance())
            assert float(smoothed.sharp[b, 0, v]) == pytest.approx(nearest, abs=tolerance())
    assert smoothed.log_intensity.isfinite().all()


def test_the_inputs_of_the_gru_are_trend_intensity_and_what_the_trend_leaves_out(model, batch):
    with torch.no_grad():
        time = model.clock(batch.time, like=batch.value)[batch.step]
        series = model.interpolate(batch, time)
        smoothed = model.smooth(batch, time, model.points.expand(5, -1), sharpness=10.0)
    tau, intensity, rest = series.split(4, dim=-1)
    assert_close(tau, model.mix(smoothed.value, smoothed.log_intensity))
    assert_close(intensity, smoothed.log_intensity.exp())
    assert_close(rest, smoothed.sharp - tau)


def test_the_penalty_is_the_error_at_held_out_readings_predicted_from_the_others(model, batch):
    torch.nn.init.uniform_(model.smooth.raw_alpha, -6.0, -3.0)
    torch.nn.init.normal_(model.mix.rho)
    step_time = model.clock(batch.time, like=batch.value)
    torch.manual_seed(3)
    held_out = torch.rand_like(batch.value) < 0.2
    assert held_out.any()
    torch.manual_seed(3)
    with torch.no_grad():
        penalty = float(model.reconstruction_error(batch, step_time))
        alpha, rho = softplus(model.smooth.raw_alpha), model.mix.rho.detach()
    series = {}
    for n in torch.nonzero(held_out)[:, 0].tolist():
        b, v, point = int(batch.sample[n]), int(batch.sensor[n]), float(step_time[batch.step[n]])
        parts = [expected(batch, float(alpha[e]), point, b, e, ~held_out) for e in range(4)]
        weighted = sum(float(rho[e, v]) * parts[e][0] * parts[e][1] for e in range(4))
        predicted = weighted / sum(part[0] for part in parts)
        series.setdefault((b, v), []).append((predicted - min(5.0, max(-5.0, float(batch.value[n])))) ** 2)
    assert penalty == pytest.approx(sum(sum(e) / len(e) for e in series.values()) / len(series), rel=1e-4)


def test_readings_are_held_out_in_training_only(model, batch):
    with torch.no_grad():
        model.train()
        assert float(model(batch).penalty) > 0
        assert float(model(batch).penalty) != float(model(batch).penalty)
        model.eval()
        assert float(model(batch).penalty) == 0


def test_the_window_does_not_depend_on_the_unit_of_time():
    hours, seconds = (Clock(DataSpec(("a",), 2, window=(0.0, end)), 48.0) for end in (48.0, 48 * 3600.0))
    torch.testing.assert_close(
        hours.rescale(torch.tensor([1.0, 12.0])), seconds.rescale(torch.tensor([3600.0, 43200.0]))
    )
    assert hours.reference(5).tolist() == [0.0, 12.0, 24.0, 36.0, 48.0]


def test_a_window_of_length_0_keeps_the_unit_of_time():
    assert Clock(DataSpec(("a",), 2, window=(3.0, 3.0)), 48.0).rescale(torch.tensor([3.0, 4.0])).tolist() == [0.0, 1.0]
