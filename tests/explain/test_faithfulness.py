"""Removed edges have no effect, and strong edges matter more than random ones where they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from closeness import tolerance
from learnable import QUICK, easy_table

from raindrop import Classifier, ConfigError, DataError, EventTable
from raindrop.config import make
from raindrop.explain.faithfulness import faithfulness, probabilities_with
from raindrop.explain.occlusion import sensor_contributions
from raindrop.graphs.graph import SensorGraphs
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop

pytestmark = pytest.mark.slow

VARIANTS = [
    {},
    {"graph.senders": "observed", "graph.mixing": "residual", "prune": 0.0},
    {"long_series.mode": "cut", "long_series.max_times": 3},
    {
        "graph.initial_edges": (
            ("sensor 0", "sensor 1", 0.5),
            ("sensor 1", "sensor 2", 1.0),
            ("sensor 3", "sensor 0", 1.0),
        )
    },
]


@pytest.fixture(params=VARIANTS, ids=lambda changes: " ".join(changes) or "paper")
def model(request, make_table, make_spec):
    torch.manual_seed(0)
    return Raindrop(make(RaindropConfig, request.param), make_spec(make_table())).eval()


@pytest.fixture
def batch(make_table, make_batch):
    return make_batch(make_table())


def test_keeping_all_edges_changes_nothing(model, batch):
    keep = torch.ones(batch.num_samples, batch.num_sensors, batch.num_sensors)
    torch.testing.assert_close(model(batch, keep).scores, model(batch).scores)


def test_a_removed_edge_has_weight_0_and_others_keep_theirs(model, batch):
    keep = torch.ones(batch.num_samples, batch.num_sensors, batch.num_sensors)
    keep[:, 0, 1] = keep[1, 3, 2] = 0
    edges = model(batch, keep).edges
    assert (edges[keep == 0] == 0).all()
    assert (edges[keep == 1] > 0).any()


def test_without_edges_a_reading_changes_only_its_own_sensor(model, batch):
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
    """The label is whether b repeats a; c and d are noise. Only messages between a and b can predict it."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 240)
    x = rng.normal(size=(240, 10, 4))
    x[label == 1, :, 1] = x[label == 1, :, 0]
    sample, time, sensor = np.indices(x.shape).reshape(3, -1)
    samples = {"sample": [str(n) for n in range(240)], "label": label}
    table = EventTable.from_columns(sample.astype(str), time, np.array(list("abcd"))[sensor], x.ravel(), samples)
    config = {"train.epochs": 15, "train.batch_size": 16, "train.learning_rate": 0.01, "train.holdout": 0.0}
    config |= {"train.drop_readings": 0.0, "train.drop_sensors": 0.0}
    classifier = Classifier(preset="graph", config={**config, "model.graph.rank": 1}).fit(table)
    assert classifier.evaluate(table)["auroc"] > 0.9
    return classifier, table


def graphs_with(table: EventTable, *strong: tuple[int, int]) -> SensorGraphs:
    weights = np.full((len(table), 4, 4), 0.01, dtype=np.float32)
    for u, v in strong:
        weights[:, u, v] = 1.0
    return SensorGraphs(table.sensors, table.ids, weights)


def test_edges_between_the_informative_sensors_are_faithful_and_edges_of_noise_are_not(paired):
    classifier, table = paired
    right = faithfulness(classifier, table, graphs_with(table, (0, 1), (1, 0)))
    wrong = faithfulness(classifier, table, graphs_with(table, (2, 3), (3, 2), (2, 0), (3, 0), (2, 1), (3, 1)))
    assert right.faithful
    assert right.area > 0.05
    assert "the weights show which" in right.reason
    assert not wrong.faithful
    assert wrong.area < 0
    assert "do not show" in wrong.reason


def test_the_curves_meet_where_every_edge_is_removed(paired):
    classifier, table = paired
    curve = faithfulness(classifier, table[:40], shares=(0.25, 1.0)).curve
    assert curve["top"][1] == pytest.approx(curve["random"][1], abs=tolerance())
    assert curve["top"][1] > 0.01
    again = faithfulness(classifier, table[:40], shares=(0.25, 1.0)).curve
    assert curve.equals(again)
    assert not curve.equals(faithfulness(classifier, table[:40], shares=(0.25, 1.0), seed=1).curve)


def test_impossible_requests_are_refused(paired, make_table):
    classifier, table = paired
    with pytest.raises(DataError, match="this table's samples"):
        faithfulness(classifier, table[:3], graphs_with(table))
    with pytest.raises(ConfigError, match="shares must rise"):
        faithfulness(classifier, table, shares=(0.5, 0.2))
    trees = Classifier("trees").fit(make_table(samples=20))
    with pytest.raises(ConfigError, match="edges that can be removed"):
        faithfulness(trees, make_table(samples=20))


# ------------------------------------------------------------------ one way from logits to probabilities


@pytest.mark.parametrize("model", ["raindrop", "blend"])
def test_occlusion_and_faithfulness_start_from_the_calibrated_probabilities_of_predict_proba(model):
    table = easy_table(60)
    config = {name.replace("model.", "model.raindrop."): value for name, value in QUICK.items()}
    config = QUICK if model == "raindrop" else config
    classifier = Classifier(model, config=config, calibrate="isotonic").fit(table, validation=table)
    expected = classifier.predict_proba(table)
    raw = classifier.task_.predict(torch.cat([output.scores for _, output in classifier.run_model(table)]))
    assert np.abs(raw - expected).max() > 0.01  # calibration does something here

    by_batch = [probabilities_with(classifier, batch, None) for batch in classifier.batches(table)]
    np.testing.assert_array_equal(np.concatenate(by_batch), expected)
    contributions = sensor_contributions(classifier, table).group_by("sample", maintain_order=True).first()
    positions = [table.ids.index(sample) for sample in contributions["sample"]]
    np.testing.assert_array_equal(contributions["probability"].to_numpy(), expected[positions, 1])


def test_removing_no_edge_or_all_edges_of_a_blend_acts_on_its_network_only():
    table = easy_table(24)
    config = {name.replace("model.", "model.raindrop."): value for name, value in QUICK.items()}
    blend = Classifier("blend", config=config).fit(table, validation=table)
    (batch,) = blend.batches(table)
    keep = torch.ones(batch.num_samples, batch.num_sensors, batch.num_sensors)
    with torch.inference_mode():
        whole, kept, cut = (blend.model_(batch, each) for each in (None, keep, 0 * keep))
        network = blend.model_.network(batch, 0 * keep)
    torch.testing.assert_close(kept.scores, whole.scores)
    torch.testing.assert_close(cut.embedding, network.embedding)
    assert not torch.equal(cut.embedding, whole.embedding)


def test_a_prediction_that_no_edge_changes_gets_a_sentence_of_its_own(monkeypatch, paired):
    classifier, table = paired
    monkeypatch.setattr(classifier, "to_predictions", lambda output: np.full((20, 2), 0.5))
    result = faithfulness(classifier, table[:20])
    assert not result.faithful
    assert result.reason.startswith("Removing edges does not change any prediction")
