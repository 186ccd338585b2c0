"""Cutting edges: what is cut acts no more, and top edges matter more than others where they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from closeness import assert_close, tolerance

from raindrop import Classifier, ConfigError, DataError, EventTable
from raindrop.explain.faithfulness import faithfulness
from raindrop.graphs.graph import SensorGraphs
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop

VARIANTS = [
    {},
    {"senders": "observed", "mixing": "residual", "prune": 0.0},
    {"long_series": "cut", "max_times": 3},
    {"initial_edges": (("sensor 0", "sensor 1", 0.5), ("sensor 1", "sensor 2", 1.0), ("sensor 3", "sensor 0", 1.0))},
]


@pytest.fixture(params=VARIANTS, ids=lambda changes: " ".join(changes) or "paper")
def model(request, make_table, make_spec):
    torch.manual_seed(0)
    return Raindrop(RaindropConfig(**request.param), make_spec(make_table())).eval()


@pytest.fixture
def batch(make_table, make_batch):
    return make_batch(make_table())


def test_keeping_all_edges_changes_nothing(model, batch):
    keep = torch.ones(batch.num_samples, batch.num_sensors, batch.num_sensors)
    assert_close(model(batch, keep).logits, model(batch).logits)


def test_a_cut_edge_weighs_nothing_and_others_stay_possible(model, batch):
    keep = torch.ones(batch.num_samples, batch.num_sensors, batch.num_sensors)
    keep[:, 0, 1] = keep[1, 3, 2] = 0
    edges = model(batch, keep).edges
    assert (edges[keep == 0] == 0).all()
    assert (edges[keep == 1] > 0).any()


def test_without_any_edge_no_sensor_hears_of_another(model, batch):
    keep = torch.zeros(batch.num_samples, batch.num_sensors, batch.num_sensors)
    before = model(batch, keep).embedding
    n = int(torch.nonzero(batch.sensor == 2)[0])
    value = batch.value.clone()
    value[n] += 3.0
    after = model(replace(batch, value=value), keep).embedding
    changed = (before != after)[batch.sample[n]].view(batch.num_sensors, -1).any(1)
    assert changed.tolist() == [sensor == 2 for sensor in range(batch.num_sensors)]


# ------------------------------------------------------------------ the curve


@pytest.fixture(scope="module")
def paired():
    """The label is whether b repeats a or not; c and d are noise. Only the messages between a and b can tell."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 240)
    x = rng.normal(size=(240, 10, 4))
    x[label == 1, :, 1] = x[label == 1, :, 0]
    sample, time, sensor = np.indices(x.shape).reshape(3, -1)
    samples = {"sample": [str(n) for n in range(240)], "label": label}
    table = EventTable.from_columns(sample.astype(str), time, np.array(list("abcd"))[sensor], x.ravel(), samples)
    config = {"train.epochs": 15, "train.batch": 16, "train.learning_rate": 0.01, "train.holdout": 0.0}
    config |= {"train.drop_readings": 0.0, "train.drop_sensors": 0.0}
    classifier = Classifier(preset="graph", config={**config, "model.layers": 2, "model.rank": 1}).fit(table)
    assert classifier.evaluate(table)["auroc"] > 0.9
    return classifier, table


def graphs_with(table: EventTable, *strong: tuple[int, int]) -> SensorGraphs:
    weights = np.full((len(table), 4, 4), 0.01, dtype=np.float32)
    for u, v in strong:
        weights[:, u, v] = 1.0
    return SensorGraphs(table.sensors, table.ids, weights)


def test_edges_that_carry_the_prediction_are_faithful_and_edges_of_noise_are_not(paired):
    classifier, table = paired
    right = faithfulness(classifier, table, graphs_with(table, (0, 1), (1, 0)))
    wrong = faithfulness(classifier, table, graphs_with(table, (2, 3), (3, 2), (2, 0), (3, 0), (2, 1), (3, 1)))
    assert right.faithful
    assert right.area > 0.05
    assert "the weights say which" in right.reason
    assert not wrong.faithful
    assert wrong.area < 0
    assert "do not say" in wrong.reason


def test_the_curves_meet_where_every_edge_is_cut(paired):
    classifier, table = paired
    curve = faithfulness(classifier, table[:40], shares=(0.25, 1.0)).curve
    assert curve["top"][1] == pytest.approx(curve["random"][1], abs=tolerance())
    assert curve["top"][1] > 0.01
    again = faithfulness(classifier, table[:40], shares=(0.25, 1.0)).curve
    assert curve.equals(again)
    assert not curve.equals(faithfulness(classifier, table[:40], shares=(0.25, 1.0), seed=1).curve)


def test_what_cannot_be_cut_is_refused(paired, make_table):
    classifier, table = paired
    with pytest.raises(DataError, match="this table's samples"):
        faithfulness(classifier, table[:3], graphs_with(table))
    with pytest.raises(ConfigError, match="shares must rise"):
        faithfulness(classifier, table, shares=(0.5, 0.2))
    trees = Classifier("trees").fit(make_table(samples=20))
    with pytest.raises(ConfigError, match="edges that can be cut"):
        faithfulness(trees, make_table(samples=20))
