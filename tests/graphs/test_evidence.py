"""Evidence for edges: calibrated p-values, and graphs that agree or not."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from closeness import tolerance
from scipy import stats

from raindrop.errors import ConfigError, DataError
from raindrop.graphs.evidence import bootstrap, difference_test, stability
from raindrop.graphs.graph import SensorGraph, SensorGraphs
from raindrop.graphs.permutation import permuted_masks

SENSORS = ("a", "b", "c", "d")


def some_graphs(samples: int = 60, seed: int = 0) -> SensorGraphs:
    rng = np.random.default_rng(seed)
    weights = rng.random((samples, 4, 4)).astype(np.float32)
    return SensorGraphs(SENSORS, [f"sample {at}" for at in range(samples)], weights)


def row(frame: pl.DataFrame, sender: str, receiver: str) -> dict:
    return frame.row(by_predicate=(pl.col("sender") == sender) & (pl.col("receiver") == receiver), named=True)


@pytest.mark.slow
def test_p_is_that_of_scipys_permutation_test():
    graphs, mask = some_graphs(14), np.arange(14) < 5
    graphs.weights[mask, 0, 1] += 0.4
    result = difference_test(graphs, mask, permutations=20_000)
    for sender, receiver in (("a", "b"), ("c", "a"), ("d", "c")):
        u, v = SENSORS.index(sender), SENSORS.index(receiver)
        one, other = graphs.weights[mask, u, v], graphs.weights[~mask, u, v]
        exact = stats.permutation_test((one, other), lambda x, y: abs(x.mean() - y.mean()), alternative="greater")
        assert row(result, sender, receiver)["p"] == pytest.approx(exact.pvalue, abs=0.02)
        assert row(result, sender, receiver)["weight"] == pytest.approx(one.mean() - other.mean(), abs=1e-6)


def test_without_any_difference_p_is_uniform_and_q_is_rarely_small():
    small, discoveries = [], 0
    for seed in range(40):
        frame = difference_test(some_graphs(40, seed), np.arange(40) < 15, permutations=400, seed=seed)
        small.append((frame["p"] <= 0.05).mean())
        discoveries += bool((frame["q"] <= 0.05).any())
    assert 0.02 < np.mean(small) < 0.09
    assert discoveries <= 6


def test_an_edge_that_differs_comes_first():
    graphs, mask = some_graphs(), np.arange(60) % 2 == 0
    graphs.weights[mask, 2, 1] -= 0.6
    result = difference_test(graphs, mask)
    assert result.row(0)[:2] == ("c", "b")
    assert result["weight"][0] < -0.3
    assert result["q"][0] < 0.01
    assert result["selected"][0] - result["others"][0] == pytest.approx(result["weight"][0], abs=1e-6)
    assert (result["q"][1:] > 0.05).all()


def test_an_edge_with_the_same_weight_in_all_samples_has_p_1():
    graphs = some_graphs()
    graphs.weights[:, 0, 2] = 0.1
    result = difference_test(graphs, np.arange(60) < 20, permutations=99)
    assert row(result, "a", "c")["p"] == 1
    assert result["p"].min() >= 1 / 100


def test_permutations_that_differ_only_by_rounding_count_as_equal():
    weights = np.zeros((6, 2, 2), dtype=np.float32)
    weights[:, 0, 1] = [0.1, 0.1, 0.1, 0.7, 0.7, 0.7]
    graphs = SensorGraphs(("a", "b"), list("uvwxyz"), weights)
    result = difference_test(graphs, np.arange(6) < 3, permutations=20_000)
    assert row(result, "a", "b")["p"] == pytest.approx(2 / 20, abs=0.01)


def test_q_is_the_smallest_false_discovery_rate_at_which_an_edge_is_accepted():
    """Against the definition: the expected share of false edges among those with p at most p_i, then a minimum."""
    graphs, mask = some_graphs(), np.arange(60) % 2 == 0
    graphs.weights[mask, 2, :2] -= 0.3
    result = difference_test(graphs, mask, permutations=999)
    p = result["p"].to_numpy()
    rate = [p[at] * len(p) / (p <= p[at]).sum() for at in range(len(p))]
    expected = [min(1.0, *(rate[other] for other in range(len(p)) if p[other] >= p[at])) for at in range(len(p))]
    np.testing.assert_allclose(result["q"], expected)


def test_one_sensor_has_no_edge_to_test():
    alone = SensorGraphs(("a",), list("uvw"), np.ones((3, 1, 1), dtype=np.float32))
    assert difference_test(alone, np.array([True, False, False])).is_empty()


def test_samples_of_a_group_are_permuted_together():
    """Ten people with ten samples each that are alike: as if there were ten samples."""
    people = np.repeat(np.arange(10), 10)
    level = np.random.default_rng(3).normal(size=(10, 4, 4)).astype(np.float32)
    graphs = SensorGraphs(SENSORS, [str(at) for at in range(100)], level[people])
    mask = people < 4
    together = difference_test(graphs, mask, groups=[f"person {at}" for at in people], permutations=4000)
    once = difference_test(SensorGraphs(SENSORS, list("abcdefghij"), level), np.arange(10) < 4, permutations=4000)
    for name, other in (("a", "b"), ("c", "a"), ("d", "c")):
        assert row(together, name, other)["p"] == pytest.approx(row(once, name, other)["p"], abs=0.04)
    assert together["p"].min() > 10 * difference_test(graphs, mask, permutations=4000)["p"].min()


def test_where_a_group_has_both_labels_they_are_permuted_within_it():
    people, mask = np.array([0, 0, 0, 1, 1, 1, 2, 3]), np.array([1, 0, 0, 1, 1, 0, 1, 0], dtype=bool)
    masks = permuted_masks(mask, people, 300, np.random.default_rng(0))
    assert (masks[:, :3].sum(1) == 1).all()
    assert (masks[:, 3:6].sum(1) == 2).all()
    assert (masks[:, 6:].sum(1) == 1).all()
    assert (masks.mean(0) > 0.2).all()
    assert (masks.mean(0) < 0.8).all()


def test_groups_need_one_entry_per_sample():
    with pytest.raises(DataError, match="groups of shape"):
        difference_test(some_graphs(), np.arange(60) < 20, groups=[1, 2])


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
    assert alike.overlap > 0.7
    assert alike.reason.endswith("stable.")
    assert not unlike.stable
    assert abs(unlike.rank_correlation) < 0.3
    assert unlike.overlap == pytest.approx(unlike.expected_overlap, abs=0.15)
    assert "not stable" in unlike.reason


def test_correlation_and_overlap_equal_loops_over_pairs():
    graphs = noisy(0.8, 3)
    result = stability(graphs, top=10)
    between = ~np.eye(8, dtype=bool)
    pairs = [(0, 1), (0, 2), (1, 2)]
    rank = [stats.spearmanr(graphs[a].weights[between], graphs[b].weights[between]).statistic for a, b in pairs]
    top = [set(graph.top(10).select("sender", "receiver").rows()) for graph in graphs]
    assert result.rank_correlation == pytest.approx(np.mean(rank))
    assert result.overlap == pytest.approx(np.mean([len(top[a] & top[b]) / 10 for a, b in pairs]))
    for sender, receiver, share, weight, _, same_sign in result.edges.iter_rows():
        assert share == pytest.approx(np.mean([(sender, receiver) in edges for edges in top]))
        values = [graph[sender, receiver] for graph in graphs]
        assert weight == pytest.approx(np.mean(values), abs=tolerance())
        assert same_sign == (min(values) > 0 or max(values) < 0)
    assert result.edges["share"].is_sorted(descending=True)


def test_empty_graphs_are_not_stable_and_the_reason_says_nothing_about_edges():
    empty = SensorGraph(SENSORS, np.zeros((4, 4), dtype=np.float32))
    result = stability([empty, empty, empty], top=3)
    assert not result.stable
    assert (result.overlap, result.rank_correlation) == (0, 0)
    assert result.reason == "None of the 3 graphs has an edge, so there is nothing to compare."


def test_a_constant_graph_has_rank_correlation_0_with_any_other():
    constant = SensorGraph(tuple("abcdefgh"), np.ones((8, 8), dtype=np.float32))
    one, two = noisy(0.1, 2)
    expected = stability([one, two]).rank_correlation / 3
    assert stability([one, constant, two]).rank_correlation == pytest.approx(expected)
    assert stability([constant, constant]).rank_correlation == 0


def test_one_graph_and_graphs_of_other_sensors_cannot_be_compared():
    graphs = noisy(1.0)
    with pytest.raises(DataError, match="there is 1"):
        stability(graphs[:1])
    with pytest.raises(DataError, match="same sensors"):
        stability([graphs[0], SensorGraph(SENSORS, np.zeros((4, 4), dtype=np.float32))])


def test_bootstrap_graphs_vary_by_the_standard_error():
    graphs = some_graphs(200)
    drawn = np.stack([graph.weights for graph in bootstrap(graphs, draws=400)])
    np.testing.assert_allclose(drawn.mean(0), graphs.weights.mean(0), atol=0.01)
    np.testing.assert_allclose(drawn.std(0), graphs.weights.std(0) / 200**0.5, rtol=0.2)
    mask = np.arange(200) < 50
    drawn = np.stack([graph.weights for graph in bootstrap(graphs, mask, draws=400)])
    error = np.sqrt(graphs.weights[mask].var(0) / 50 + graphs.weights[~mask].var(0) / 150)
    np.testing.assert_allclose(drawn.mean(0), graphs.difference(mask).weights, atol=0.02)
    np.testing.assert_allclose(drawn.std(0), error, rtol=0.2)
