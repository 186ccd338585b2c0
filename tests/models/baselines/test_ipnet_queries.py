"""IP-Net's interpolation at the time of a query compared with its sums in loops."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from closeness import assert_close

from raindrop.batch.batch import Queries
from raindrop.models.base import DataSpec
from raindrop.models.baselines.ipnet_queries import IPNetQueries, IPNetQueryConfig
from raindrop.tasks.readings import ReadingsAt

UNIT = 40.0  # no kernel underflows within 50 hours


@pytest.fixture
def model(table):
    model = IPNetQueries(IPNetQueryConfig(hidden=6), DataSpec(table.sensors, ReadingsAt(table.sensors), 4)).eval()
    model.interval.fill_(UNIT)
    with torch.no_grad():
        model.smooth.raw_alpha.uniform_(-1, 1)
        model.mix.rho.uniform_(-1, 1)
        model.a.uniform_(-1, 1)
    return model


def sums(readings, alpha, t, start):
    """lambda and sigma; a sensor without readings has one of 0 at the sample's first timestamp."""
    readings = readings or [(start, 0.0)]
    weights = [math.exp(-alpha * ((t - time) / UNIT) ** 2) for time, _ in readings]
    return sum(weights), sum(w * x for w, (_, x) in zip(weights, readings, strict=True)) / sum(weights)


@torch.no_grad()
@pytest.mark.parametrize("t", [None, -2.0, 12.34, 55.0])
def test_the_interpolants_are_the_sums_without_the_asked_reading(model, batch, t):
    time, start = float(batch.time[2]) if t is None else t, float(batch.time[0])
    alpha = torch.nn.functional.softplus(model.smooth.raw_alpha).tolist()
    for v in range(4):
        asked = Queries(torch.tensor([0]), torch.tensor([v]), torch.tensor([time], dtype=torch.float64))
        parts = model.interpolate(replace(batch, queries=asked), asked)
        expected = []
        for d in range(4):
            readings = [
                (float(batch.time[s]), float(x))
                for s, u, x in zip(batch.step, batch.sensor, batch.value, strict=True)
                if batch.step_sample[s] == 0 and u == d and not (d == v and batch.time[s] == time)
            ]
            intensity, smooth = sums(readings, alpha[d], time, start)
            expected.append((smooth, math.log(intensity), sums(readings, 10 * alpha[d], time, start)[1]))
        for part, column in zip(parts, zip(*expected, strict=True), strict=True):
            assert_close(part[0], torch.tensor(column), roundings=256)
        # Second layer, and the value.
        sigma, log_intensity, gamma = (torch.tensor(column) for column in zip(*expected, strict=True))
        share = log_intensity.exp() / log_intensity.exp().sum()
        tau = torch.stack([sum(model.mix.rho[d, e] * share[d] * sigma[d] for d in range(4)) for e in range(4)])
        hidden = torch.relu(model.U(torch.cat([tau, log_intensity.exp(), gamma - tau, batch.statics[0]])))
        value = tau[v] + model.a[v] * (gamma[v] - tau[v]) + model.centre.weight[v] @ hidden + model.centre.bias[v]
        assert_close(model(replace(batch, queries=asked)).scores[0, 2], value, roundings=256)


@torch.no_grad()
def test_points_and_queries_in_small_parts_give_the_same(model, batch, monkeypatch):
    time = torch.linspace(0, 50, 17, dtype=torch.float64)
    asked = Queries(torch.arange(17) % batch.num_samples, torch.arange(17) % 4, time)
    batch = replace(batch, queries=asked)
    whole = model(batch).scores
    monkeypatch.setattr("raindrop.models.baselines.ipnet_queries.MAX_CELLS", 3 * len(batch.value))
    assert_close(model(batch).scores, whole)
