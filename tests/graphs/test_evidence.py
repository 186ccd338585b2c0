"""Evidence for edges: p-values that are right when nothing is there, and graphs that agree or do not."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from closeness import tolerance
from scipy import stats

from raindrop.errors import ConfigError, DataError
from raindrop.graphs.evidence import benjamini_hochberg, bootstrap, difference_test, stability
from raindrop.graphs.graph import SensorGraph, SensorGraphs

SENSORS = ("a", "b", "c", "d")


def some_graphs(samples: int = 60, seed: int = 0) -> SensorGraphs:
    rng = np.random.default_rng(seed)
    weights = rng.random((samples, 4, 4)).astype(np.float32)
    return SensorGraphs(SENSORS, [f"sample {at}" for at in range(samples)], weights)


def row(frame: pl.DataFrame, sender: str, receiver: str) -> dict:
    return frame.row(by_predicate=(pl.col("sender") == sender) & (pl.col("receiver") == receiver), named=True)


def test_p_is_that_of_scipys_permutation_test():
    graphs, chosen = some_graphs(14), np.arange(14) < 5
    graphs.weights[chosen, 0, 1] += 0.4
    found = difference_test(graphs, chosen, permutations=20_000)
    for sender, receiver in (("a", "b"), ("c", "a"), ("d", "c")):
        u, v = SENSORS.index(sender), SENSORS.index(receiver)
        one, other = graphs.weights[chosen, u, v], graphs.weights[~chosen, u, v]
        exact = stats.permutation_test((one, other), lambda x, y: abs(x.mean() - y.mean()), alternative="greater")
        assert row(found, sender, receiver)["p"] == pytest.approx(exact.pvalue, abs=0.02)
        assert row(found, sender, receiver)["weight"] == pytest.approx(one.mean() - other.mean(), abs=tolerance())


def test_where_nothing_is_there_one_p_in_twenty_is_below_a_twentieth_and_hardly_any_q():
    small, found = [], 0
    for seed in range(40):
        frame = difference_test(some_graphs(40, seed), np.arange(40) < 15, permutations=400, seed=seed)
        small.append((frame["p"] <= 0.05).mean())
        found += bool((frame["q"] <= 0.05).any())
    assert 0.02 < np.mean(small) < 0.09
    assert found <= 6


def test_an_edge_that_differs_is_found_and_comes_first():
    graphs, chosen = some_graphs(), np.arange(60) % 2 == 0
    graphs.weights[chosen, 2, 1] -= 0.6
    found = difference_test(graphs, chosen)
    assert found.row(0)[:2] == ("c", "b")
    assert found["weight"][0] < -0.3
    assert found["q"][0] < 0.01
    assert found["chosen"][0] - found["others"][0] == pytest.approx(found["weight"][0], abs=tolerance())
    assert (found["q"][1:] > 0.05).all()


def test_an_edge_that_is_the_same_everywhere_has_p_1():
    graphs = some_graphs()
    graphs.weights[:, 0, 2] = 0.1
    found = difference_test(graphs, np.arange(60) < 20, permutations=99)
    assert row(found, "a", "c")["p"] == 1
    assert found["p"].min() >= 1 / 100


def test_deals_that_only_rounding_tells_apart_count_as_equal():
    weights = np.zeros((6, 2, 2), dtype=np.float32)
    weights[:, 0, 1] = [0.1, 0.1, 0.1, 0.7, 0.7, 0.7]
    graphs = SensorGraphs(("a", "b"), list("uvwxyz"), weights)
    found = difference_test(graphs, np.arange(6) < 3, permutations=20_000)
    assert row(found, "a", "b")["p"] == pytest.approx(2 / 20, abs=0.01)


def test_q_is_scipys():
    p = np.random.default_rng(0).random(50) ** 3
    np.testing.assert_allclose(benjamini_hochberg(p), stats.false_discovery_control(p))


def test_no_permutation_is_refused():
    with pytest.raises(ConfigError, match="at least 1 permutation, not 0"):
        difference_test(some_graphs(), np.arange(60) < 20, permutations=0)


# ------------------------------------------------------------------ stability


def noisy(noise: float, number: int = 4) -> list[SensorGraph]:
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(8, 8))
    names = tuple("abcdefgh")
    return [
        SensorGraph(names, (truth + noise * rng.normal(size=(8, 8))).astype(np.float32), str(at))
        for at in range(number)
    ]


def test_graphs_that_agree_are_stable_and_unrelated_ones_are_not():
    alike, unlike = stability(noisy(0.1), top=10), stability(noisy(30.0), top=10)
    assert alike.stable
    assert alike.rank_correlation > 0.9
    assert alike.recurring > 0.7
    assert alike.reason.endswith("stable.")
    assert not unlike.stable
    assert abs(unlike.rank_correlation) < 0.3
    assert unlike.recurring == pytest.approx(unlike.by_chance, abs=0.15)
    assert "not stable" in unlike.reason


def test_the_figures_of_stability_are_those_of_loops():
    graphs = noisy(0.8, 3)
    found = stability(graphs, top=10)
    between = ~np.eye(8, dtype=bool)
    pairs = [(0, 1), (0, 2), (1, 2)]
    rank = [stats.spearmanr(graphs[a].weights[between], graphs[b].weights[between]).statistic for a, b in pairs]
    top = [set(graph.top(10).select("sender", "receiver").rows()) for graph in graphs]
    assert found.rank_correlation == pytest.approx(np.mean(rank))
    assert found.recurring == pytest.approx(np.mean([len(top[a] & top[b]) / 10 for a, b in pairs]))
    for sender, receiver, share, weight, _, same_sign in found.edges.iter_rows():
        assert share == pytest.approx(np.mean([(sender, receiver) in edges for edges in top]))
        values = [graph[sender, receiver] for graph in graphs]
        assert weight == pytest.approx(np.mean(values), abs=tolerance())
        assert same_sign == (min(values) > 0 or max(values) < 0)
    assert found.edges["share"].is_sorted(descending=True)


def test_empty_graphs_agree_on_nothing():
    empty = SensorGraph(SENSORS, np.zeros((4, 4), dtype=np.float32))
    assert not stability([empty, empty], top=3).stable
    assert stability([empty, empty], top=3).recurring == 0


def test_one_graph_and_graphs_of_other_sensors_cannot_be_compared():
    graphs = noisy(1.0)
    with pytest.raises(DataError, match="there is 1"):
        stability(graphs[:1])
    with pytest.raises(DataError, match="same sensors"):
        stability([graphs[0], SensorGraph(SENSORS, np.zeros((4, 4), dtype=np.float32))])


def test_drawing_samples_anew_scatters_as_the_standard_error_says():
    graphs = some_graphs(200)
    drawn = np.stack([graph.weights for graph in bootstrap(graphs, draws=400)])
    np.testing.assert_allclose(drawn.mean(0), graphs.weights.mean(0), atol=0.01)
    np.testing.assert_allclose(drawn.std(0), graphs.weights.std(0) / 200**0.5, rtol=0.2)
    chosen = np.arange(200) < 50
    drawn = np.stack([graph.weights for graph in bootstrap(graphs, chosen, draws=400)])
    error = np.sqrt(graphs.weights[chosen].var(0) / 50 + graphs.weights[~chosen].var(0) / 150)
    np.testing.assert_allclose(drawn.mean(0), graphs.difference(chosen).weights, atol=0.02)
    np.testing.assert_allclose(drawn.std(0), error, rtol=0.2)
