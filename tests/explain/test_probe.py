"""The linear probe against regressions solved again without each sender, and on known dynamics."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from closeness import assert_close

from raindrop import Classifier, ConfigError, DataError, EventTable
from raindrop.batch.scaling import Scaler
from raindrop.datasets.dynamics import driven_sensors
from raindrop.explain.probe import RIDGE, Moments, probe_graph
from raindrop.graphs.recovery import recovery
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop
from raindrop.tasks.classification import Classification

pytestmark = pytest.mark.slow


def untrained(table, make_spec, **config) -> Classifier:
    """A classifier with random weights: the probe does not need a trained model."""
    classifier = Classifier()
    classifier.scaler_ = Scaler.fit(table)
    classifier.task_ = Classification.learn(table)
    classifier.time_unit_ = table.time_unit
    classifier.model_ = Raindrop(RaindropConfig(observation_dim=3, **config), make_spec(table))
    return classifier


def regression(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Ridge regression of y on x and a constant: penalised error, squared error and degrees of freedom."""
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    ridge = RIDGE * len(x)
    hat = x @ np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T)
    solution = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y)
    error = float(((y - x @ solution) ** 2).sum())
    return error + ridge * float((solution**2).sum()), error, float(np.trace(hat))


@pytest.mark.parametrize("predict", ["now", "next"])
@pytest.mark.parametrize("observed", [0.6, 0.05])
def test_a_weight_is_the_increase_of_the_error_without_the_sender(predict, observed, make_table, make_spec):
    table = make_table(samples=60 if observed > 0.1 else 200, times=16, observed=observed)
    classifier = untrained(table, make_spec)
    graph = probe_graph(classifier, table, predict)
    (batch,) = classifier.batches(table)
    with torch.no_grad():
        h = classifier.model_.embed(batch)
    M, block = batch.num_sensors, 4
    rows = np.zeros((batch.num_steps, M, block))
    for n in range(len(h)):
        rows[batch.step[n], batch.sensor[n]] = [1, *h[n].tolist()]
    reading = {(int(s), int(v)): n for n, (s, v) in enumerate(zip(batch.step, batch.sensor, strict=True))}
    for v in (0, 3):
        at, y = [], []
        for (s, sensor), n in reading.items():
            target = n if predict == "now" else int(batch.following[s, v])
            if sensor == v and target >= 0:
                at.append(s)
                y.append(float(batch.value[target].clamp(-5, 5)))
        senders = [u for u in range(M) if predict == "next" or u != v]
        y = np.array(y)
        penalised, error, freedom = regression(rows[at][:, senders].reshape(len(at), -1), y)
        for u in senders:
            rest = [other for other in senders if other != u]
            without, _, fewer = regression(rows[at][:, rest].reshape(len(at), -1), y)
            by_chance = (freedom - fewer) * error / (len(at) - freedom)
            expected = (without - penalised - by_chance) / ((y - y.mean()) ** 2).sum()
            assert graph.weights[u, v] == pytest.approx(expected, abs=2e-3)
    assert predict == "next" or not np.diag(graph.weights).any()


def test_the_batch_size_does_not_change_the_graph(make_table, make_spec, monkeypatch):
    table = make_table(samples=60, times=16)
    classifier = untrained(table, make_spec)
    before = probe_graph(classifier, table).weights
    monkeypatch.setattr("raindrop.batch.collate.MAX_CELLS", 100)
    assert len(list(classifier.batches(table))) > 3
    assert_close(probe_graph(classifier, table).weights, before)


def test_memory_does_not_grow_with_the_number_of_batches(make_table, make_spec, monkeypatch):
    """One set of sums is kept, however many batches there are."""
    table = make_table(samples=60, times=16)
    classifier = untrained(table, make_spec)
    monkeypatch.setattr("raindrop.batch.collate.MAX_CELLS", 500)
    columns = 5 * (1 + 3) + 1
    moments, large_tensors = [], []

    def counted(batches):
        for batch in batches:
            yield batch
            alive = gc.get_objects()
            moments.append(sum(type(each) is Moments for each in alive))
            large_tensors.append(sum(type(each) is torch.Tensor and each.numel() >= columns**2 for each in alive))

    monkeypatch.setattr(classifier, "batches", lambda table, batches=classifier.batches: counted(batches(table)))
    probe_graph(classifier, table)
    assert len(moments) > 10
    assert max(moments) == 1
    assert max(large_tensors[2:]) <= large_tensors[1]


def table_read_apart(share_of_shared_times: float, sensors: int = 6) -> EventTable:
    """Noise from sensors that are read one at a time, except for a share of the times with two."""
    rng = np.random.default_rng(0)
    rows = []
    for sample, time in np.ndindex(100, 40):
        second = [rng.integers(sensors)] if rng.random() < share_of_shared_times else []
        for sensor in {int(rng.integers(sensors)), *map(int, second)}:
            rows.append((str(sample), float(time), f"sensor {sensor}", rng.normal()))
    about = {"sample": [str(sample) for sample in range(100)], "label": np.arange(100) % 2}
    return EventTable.from_columns(*zip(*rows, strict=True), about, label="label")


def test_sensors_never_read_at_the_same_time_give_an_empty_graph_that_says_so(make_spec):
    table = table_read_apart(0.0)
    graph = probe_graph(untrained(table, make_spec), table)
    assert not graph.weights.any()
    assert graph.describe_empty().endswith(": no two sensors are ever read at the same time.")


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_sensors_rarely_read_at_the_same_time_do_not_all_get_the_same_negative_weight(share, make_spec):
    table = table_read_apart(share)
    weights = probe_graph(untrained(table, make_spec), table).weights[~np.eye(6, dtype=bool)]
    assert abs(weights.mean()) < weights.std()


@pytest.mark.parametrize("dynamics", ["var", "nonlinear", "lorenz96"])
def test_known_edges_are_recovered_where_sensors_are_coupled_and_only_there(dynamics, make_spec):
    planted = driven_sensors(dynamics, 240, times=30)
    table = planted.table
    classifier = untrained(table, make_spec, mask_indicator=True)
    coupled, apart = (probe_graph(classifier, table[table.labels == label], "next") for label in ("coupled", "apart"))
    assert recovery(coupled, planted.adjacency()).auroc > 0.95
    between = ~np.eye(8, dtype=bool)
    assert np.abs(apart.weights[between]).max() < 0.2 * coupled.weights[between].max()


def test_too_few_readings_give_an_empty_graph(make_table, make_spec):
    table = make_table()
    assert "too few readings" in probe_graph(untrained(table, make_spec), table[:1]).describe_empty()


def test_impossible_requests_are_refused(make_table, make_spec):
    table = make_table(samples=20)
    classifier = untrained(table, make_spec)
    with pytest.raises(ConfigError, match="'now' or 'next', not 'later'"):
        probe_graph(classifier, table, "later")
    with pytest.raises(DataError, match="no readings"):
        probe_graph(classifier, table.where(lambda events: np.zeros(len(events), dtype=bool)))
    with pytest.raises(ConfigError, match="'trees' has none"):
        probe_graph(Classifier("trees", preset="paper").fit(table), table)
