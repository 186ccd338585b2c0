"""The probe against least squares solved anew without each sender, and on who drives whom."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closeness import assert_close

from raindrop import Classifier, ConfigError, DataError
from raindrop.batch.scaling import Scaler
from raindrop.datasets.dynamics import driven_sensors
from raindrop.explain.probe import RIDGE, probe_graph
from raindrop.graphs.recovery import recovery
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop


def untrained(table, make_spec, **config) -> Classifier:
    """A classifier whose weights are as they were drawn: the probe needs no training to be right."""
    classifier = Classifier()
    classifier.scaler_ = Scaler.fit(table)
    classifier.classes_ = np.unique(table.labels)
    classifier.time_unit_ = table.time_unit
    classifier.model_ = Raindrop(RaindropConfig(observation_dim=3, **config), make_spec(table))
    return classifier


def error_of(x: np.ndarray, y: np.ndarray) -> float:
    """The smallest squared error of y from columns x, with the ridge."""
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    solution = np.linalg.solve(x.T @ x + RIDGE * len(x) * np.eye(x.shape[1]), x.T @ y)
    return float(((y - x @ solution) ** 2).sum() + RIDGE * len(x) * (solution**2).sum())


@pytest.mark.parametrize("tell", ["now", "next"])
def test_a_weight_is_what_the_error_grows_by_without_the_sender(tell, make_table, make_spec):
    table = make_table(samples=60, times=16, observed=0.6)
    classifier = untrained(table, make_spec)
    found = probe_graph(classifier, table, tell)
    (batch,) = classifier.batches(table)
    with torch.no_grad():
        h = classifier.model_.embed(batch)
    M, width = batch.num_sensors, 4
    rows = np.zeros((batch.num_slots, M, width))
    for n in range(len(h)):
        rows[batch.slot[n], batch.sensor[n]] = [1, *h[n].tolist()]
    reading = {(int(s), int(v)): n for n, (s, v) in enumerate(zip(batch.slot, batch.sensor, strict=True))}
    for v in (0, 3):
        at, y = [], []
        for (s, sensor), n in reading.items():
            told = n if tell == "now" else int(batch.following[s, v])
            if sensor == v and told >= 0:
                at.append(s)
                y.append(float(batch.value[told].clamp(-5, 5)))
        senders = [u for u in range(M) if tell == "next" or u != v]
        target = np.array(y)
        whole = error_of(rows[at][:, senders].reshape(len(at), -1), target)
        chance = width * whole / (len(at) - width * len(senders) - 1)
        for u in senders:
            rest = [other for other in senders if other != u]
            without = error_of(rows[at][:, rest].reshape(len(at), -1), target)
            expected = (without - whole - chance) / ((target - target.mean()) ** 2).sum()
            off = 20 * RIDGE  # the graph leaves the ridge's share out of the error
            assert found.weights[u, v] == pytest.approx(expected, abs=off)
    assert tell == "next" or not np.diag(found.weights).any()


def test_batches_do_not_matter(make_table, make_spec, monkeypatch):
    table = make_table(samples=60, times=16)
    classifier = untrained(table, make_spec)
    before = probe_graph(classifier, table).weights
    monkeypatch.setattr("raindrop.batch.collate.MAX_READINGS", 100)
    assert len(list(classifier.batches(table))) > 3
    assert_close(probe_graph(classifier, table).weights, before)


@pytest.mark.parametrize("dynamics", ["var", "nonlinear", "lorenz96"])
def test_who_drives_whom_is_found_where_sensors_are_coupled_and_only_there(dynamics, make_spec):
    planted = driven_sensors(dynamics, 240, times=30)
    table = planted.table
    classifier = untrained(table, make_spec, mask_indicator=True)
    coupled, apart = (probe_graph(classifier, table[table.labels == label], "next") for label in ("coupled", "apart"))
    assert recovery(coupled, planted.adjacency()).auroc > 0.95
    between = ~np.eye(8, dtype=bool)
    assert np.abs(apart.weights[between]).max() < 0.2 * coupled.weights[between].max()


def test_too_few_readings_tell_nothing(make_table, make_spec):
    table = make_table()
    assert not probe_graph(untrained(table, make_spec), table[:1]).weights.any()


def test_what_cannot_be_probed_is_refused(make_table, make_spec):
    table = make_table(samples=20)
    classifier = untrained(table, make_spec)
    with pytest.raises(ConfigError, match="'now' or 'next', not 'later'"):
        probe_graph(classifier, table, "later")
    with pytest.raises(DataError, match="no readings"):
        probe_graph(classifier, table.where(lambda events: np.zeros(len(events), dtype=bool)))
    with pytest.raises(ConfigError, match="which 'trees' has not"):
        probe_graph(Classifier("trees", preset="paper").fit(table), table)
