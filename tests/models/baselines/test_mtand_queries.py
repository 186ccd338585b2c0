"""mTAND's attention at the time of a query compared with Eq. 2-3 in loops."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from closeness import assert_close

from raindrop.batch.batch import Queries
from raindrop.models.base import DataSpec
from raindrop.models.baselines.mtand_queries import MTANDQueries, MTANDQueryConfig
from raindrop.tasks.readings import ReadingsAt


@pytest.fixture
def model(table):
    config = MTANDQueryConfig(time_dim=8, heads=2, state_dim=6, window=10.0, frequency=5.0)
    return MTANDQueries(config, DataSpec(table.sensors, ReadingsAt(table.sensors), 4)).eval()


def phi(model, h, t):
    """Sec. 3.1."""
    omega, alpha = model.embed_time.omega[h].tolist(), model.embed_time.alpha[h].tolist()
    angles = [o * t + a for o, a in zip(omega, alpha, strict=True)]
    return torch.tensor([angles[0], *(math.sin(angle) for angle in angles[1:])])


@torch.no_grad()
@pytest.mark.parametrize("t", [None, -2.0, 12.34, 70.0])
def test_the_interpolated_values_are_equations_2_and_3_without_the_asked_reading(model, batch, t):
    time = float(batch.time[2]) if t is None else t
    start = float(batch.time[0])
    for v in range(4):
        asked = Queries(torch.tensor([0]), torch.tensor([v]), torch.tensor([time], dtype=torch.float64))
        x, present = model.interpolate(replace(batch, queries=asked), asked)
        for d in range(4):
            mine = [
                (float(batch.time[s]), float(value))
                for s, u, value in zip(batch.step, batch.sensor, batch.value, strict=True)
                if batch.step_sample[s] == 0 and u == d and not (d == v and batch.time[s] == time)
            ]
            assert bool(present[0, 0, d]) == bool(mine)
            for h in range(2):
                query = phi(model, h, (time - start) / 10.0) @ model.w[h]
                scores = [float(query @ (phi(model, h, (s - start) / 10.0) @ model.v[h])) / 2.0 for s, _ in mine]
                weights = [math.exp(score) for score in scores]
                total = sum(w * value for w, (_, value) in zip(weights, mine, strict=True))
                assert_close(float(x[0, h, d]), total / sum(weights) if mine else 0.0, dtype="float32")
