"""The paper's distance statistic against loops, and the test that goes beyond it."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import tolerance

from raindrop.errors import DataError
from raindrop.graphs.distances import distances
from raindrop.graphs.graph import SensorGraphs


def two_classes(shift: float = 0.0, spread: float = 1.0, seed: int = 0) -> tuple[SensorGraphs, np.ndarray]:
    """30 graphs of the class 1, 90 of the class 0, whose weights are shifted and spread otherwise."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(120) < 30).astype(int)
    weights = rng.normal(size=(120, 3, 3)) * np.where(labels, spread, 1.0)[:, None, None]
    weights += shift * labels[:, None, None]
    return SensorGraphs(("a", "b", "c"), [str(at) for at in range(120)], weights.astype(np.float32)), labels


def test_the_figures_are_those_of_loops_over_pairs():
    graphs, labels = two_classes(0.5)
    found = distances(graphs, labels, draws=60)

    def mean(one: int, other: int) -> float:
        pairs = [(i, j) for i in np.flatnonzero(labels == one) for j in np.flatnonzero(labels == other) if i != j]
        return float(np.mean([np.linalg.norm(graphs.weights[i] - graphs.weights[j]) for i, j in pairs]))

    assert found.size == 30
    assert found.within[1][0] == pytest.approx(mean(1, 1), rel=0.03)
    assert found.within[0][0] == pytest.approx(mean(0, 0), rel=0.03)
    assert found.across[0] == pytest.approx(mean(0, 1), rel=0.03)
    assert found.within[0][1] > 0
    assert found.frame()["which"].to_list() == ["within 0", "within 1", "across"]


def test_a_class_that_differs_is_told_apart():
    found = distances(*two_classes(1.5))
    assert found.across[0] > found.within[1][0]
    assert found.p < 0.01


def test_classes_with_the_same_graphs_are_not():
    p = [distances(*two_classes(seed=seed), permutations=200).p for seed in range(20)]
    assert np.mean(np.array(p) <= 0.05) <= 0.2
    assert 0.3 < np.mean(p) < 0.7


def test_energy_is_twice_across_minus_within_and_within():
    graphs, labels = two_classes(1.0)
    equal = np.concatenate([np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)[:30]])
    chosen = SensorGraphs(graphs.sensors, [str(at) for at in range(60)], graphs.weights[equal])
    label = labels[equal]
    flat = chosen.weights.reshape(60, -1)
    pairs = np.linalg.norm(flat[:, None] - flat, axis=-1)
    across = pairs[label == 1][:, label == 0].mean()
    within = sum(pairs[label == side][:, label == side].mean() for side in (0, 1))
    assert distances(chosen, label).energy == pytest.approx(2 * across - within, abs=tolerance(magnitude=float(across)))


def test_three_classes_are_possible_and_one_is_not():
    graphs, _ = two_classes()
    assert set(distances(graphs, np.arange(120) % 3, permutations=20).within) == {0, 1, 2}
    with pytest.raises(DataError, match="two classes of at least two samples"):
        distances(graphs, np.zeros(120))
