"""The paper's distance statistic against loops, and the energy test."""

from __future__ import annotations

import numpy as np
import pytest

from raindrop.errors import DataError
from raindrop.graphs.distances import distances
from raindrop.graphs.graph import SensorGraphs


def two_classes(shift: float = 0.0, spread: float = 1.0, seed: int = 0) -> tuple[SensorGraphs, np.ndarray]:
    """30 graphs of class 1 and 90 of class 0; the weights of class 1 are shifted and scaled."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(120) < 30).astype(int)
    weights = rng.normal(size=(120, 3, 3)) * np.where(labels, spread, 1.0)[:, None, None]
    weights += shift * labels[:, None, None]
    return SensorGraphs(("a", "b", "c"), [str(at) for at in range(120)], weights.astype(np.float32)), labels


def test_distances_equal_loops_over_pairs():
    graphs, labels = two_classes(0.5)
    result = distances(graphs, labels, draws=60)

    def mean(one: int, other: int) -> float:
        pairs = [(i, j) for i in np.flatnonzero(labels == one) for j in np.flatnonzero(labels == other) if i != j]
        return float(np.mean([np.linalg.norm(graphs.weights[i] - graphs.weights[j]) for i, j in pairs]))

    assert result.samples_per_class == 30
    assert result.within[1][0] == pytest.approx(mean(1, 1), rel=0.03)
    assert result.within[0][0] == pytest.approx(mean(0, 0), rel=0.03)
    assert result.across[0] == pytest.approx(mean(0, 1), rel=0.03)
    assert result.within[0][1] > 0
    assert result.frame()["comparison"].to_list() == ["within 0", "within 1", "across"]


def test_classes_with_different_graphs_have_a_small_p():
    result = distances(*two_classes(1.5))
    assert result.across[0] > result.within[1][0]
    assert result.p < 0.01


def test_classes_with_the_same_graphs_have_uniform_p():
    p = [distances(*two_classes(seed=seed), permutations=200).p for seed in range(20)]
    assert np.mean(np.array(p) <= 0.05) <= 0.2
    assert 0.3 < np.mean(p) < 0.7


def test_energy_is_twice_across_minus_within_and_within():
    graphs, labels = two_classes(1.0)
    equal = np.concatenate([np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)[:30]])
    balanced = SensorGraphs(graphs.sensors, [str(at) for at in range(60)], graphs.weights[equal])
    label = labels[equal]
    flat = balanced.weights.reshape(60, -1)
    pairs = np.linalg.norm(flat[:, None] - flat, axis=-1)
    across = pairs[label == 1][:, label == 0].mean()
    within = sum(pairs[label == side][:, label == side].mean() for side in (0, 1))
    assert distances(balanced, label).energy == pytest.approx(2 * across - within, rel=1e-4)


def test_three_classes_work_and_one_is_refused():
    graphs, _ = two_classes()
    assert set(distances(graphs, np.arange(120) % 3, permutations=20).within) == {0, 1, 2}
    with pytest.raises(DataError, match="two classes of at least two samples"):
        distances(graphs, np.zeros(120))
