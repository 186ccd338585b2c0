"""The simple rules that fill readings: mean, last value, linear interpolation and the nearest sensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_close
from nearby_loops import of_query, readings_of

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.collate import Collator
from raindrop.batch.gaps import typical_intervals
from raindrop.batch.scaling import Scaler
from raindrop.models.base import DataSpec
from raindrop.models.baselines.simple_imputation import HALF_WIDTH, NEAREST, NoConfig, correlations
from raindrop.models.registry import QUERY_MODELS
from raindrop.table.event_table import EventTable
from raindrop.tasks.readings import ReadingsAt

SENSORS = [f"x{u}" for u in range(5)]


@pytest.fixture
def table() -> EventTable:
    """x1 and x2 follow x0 on the hour, x3 does the opposite and x4 what it likes at its own times; some are missing."""
    rng = np.random.default_rng(0)
    rows = []
    for b in range(4):
        base = np.cumsum(rng.normal(size=30))
        for hour in range(30):
            columns = (base[hour], base[hour] + rng.normal(0, 0.3), base[hour] + rng.normal(0, 0.6), -base[hour])
            rows += [(f"s{b}", float(hour), SENSORS[u], x) for u, x in enumerate(columns) if rng.random() < 0.8]
            rows.append((f"s{b}", hour + rng.uniform(0.01, 0.9), "x4", rng.normal()))
    rows = [row for row in rows if row[0] != "s3" or row[2] in ("x1", "x4")]
    return EventTable.from_columns(*zip(*rows, strict=True), sensors=SENSORS)


@pytest.fixture
def batch(table: EventTable) -> Batch:
    batch = Collator(table, Scaler.fit(table)).batch(np.arange(4))
    rng = np.random.default_rng(1)
    asked = [(b, u, t) for b in range(4) for u in range(5) for t in [*rng.uniform(-5, 35, 6), 3.0, 8.0, 20.0]]
    sample, sensor, time = zip(*asked, strict=True)
    queries = Queries(torch.tensor(sample), torch.tensor(sensor), torch.tensor(time, dtype=torch.float64))
    return replace(batch, queries=queries)


@pytest.fixture
def fitted(table: EventTable) -> Callable[[str], Any]:
    def fit(name: str) -> Any:
        model = QUERY_MODELS[name].model(NoConfig(), DataSpec(table.sensors, ReadingsAt(table.sensors)))
        assert model.fit(Collator(table, Scaler.fit(table)), None, 0) == []
        return model

    return fit


def around_queries(batch: Batch, table: EventTable) -> list[Any]:
    interval = torch.from_numpy(typical_intervals(table))
    return [of_query(batch, batch.queries, q, interval, [1.0], strict=True) for q in range(len(batch.queries))]


def test_all_quantiles_are_the_same_number(fitted, batch):
    for name in ("mean", "last", "linear", "nearest"):
        scores = fitted(name)(batch).scores
        assert scores.shape == (len(batch.queries), 5)
        assert (scores == scores[:, :1]).all()
        assert scores.isfinite().all()


def test_the_mean_is_0_in_units_of_the_deviation(fitted, batch):
    assert not fitted("mean")(batch).scores.any()


def test_the_last_value_is_the_latest_before_the_time_or_the_next_where_there_is_none(fitted, batch, table):
    expected = [at.last if at.last_time is not None else at.next for at in around_queries(batch, table)]
    assert fitted("last")(batch).scores[:, 0].tolist() == expected


def test_linear_interpolation_is_the_line_between_the_neighbours(fitted, batch, table):
    expected = [at.line for at in around_queries(batch, table)]
    assert_close(fitted("linear")(batch).scores[:, 0], np.array(expected, dtype=np.float32))


def test_correlations_are_of_readings_at_the_same_time(fitted, batch):
    found = fitted("nearest").correlation
    series = {(b, u): dict(readings_of(batch, b, u)) for b in range(4) for u in range(5)}
    for u in range(5):
        for v in range(5):
            shared = [(series[b, u][t], series[b, v][t]) for b in range(4) for t in series[b, u] if t in series[b, v]]
            expected = -1.0 if u == v or len(shared) < 20 else np.corrcoef(np.array(shared).T)[0, 1]
            assert_close(found[u, v], np.float32(expected))
    assert found[0, 1] > found[0, 2] > 0.5 > -0.9 > found[0, 3]
    assert found[0, 4] == -1  # never read at the same time


def test_samples_without_readings_have_no_correlations(table):
    empty = table.where(np.zeros(table.num_readings, dtype=bool))
    assert (correlations(Collator(empty, Scaler.fit(table)), len(SENSORS)) == -1).all()


@pytest.mark.slow
def test_the_nearest_sensors_are_averaged_by_their_correlation(fitted, batch, table):
    model, interval = fitted("nearest"), torch.from_numpy(typical_intervals(table))
    found = model(batch).scores[:, 0]
    own = around_queries(batch, table)
    by_neighbours = 0
    for q in range(len(batch.queries)):
        v = int(batch.queries.sensor[q])
        near = []
        for u in range(5):
            at = of_query(batch, replace_sensor(batch.queries, u), q, interval, [1.0])
            if u != v and min(at.age, at.wait) < HALF_WIDTH and model.correlation[v, u] > 0:
                near.append((float(model.correlation[v, u]), at.line))
        near = sorted(near, reverse=True)[:NEAREST]
        expected = sum(w * x for w, x in near) / sum(w for w, _ in near) if near else own[q].line
        assert_close(found[q], np.float32(expected))
        by_neighbours += bool(near)
    assert 20 < by_neighbours < len(batch.queries) - 20


def replace_sensor(queries: Queries, sensor: int) -> Queries:
    return replace(queries, sensor=torch.full_like(queries.sensor, sensor))
