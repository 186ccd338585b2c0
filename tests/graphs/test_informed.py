"""Graphs from readings alone: true edges in their direction, none between unrelated sensors, evidence."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from closeness import assert_close

import raindrop as rd
from raindrop.datasets.asynchronous import delayed_sensors
from raindrop.graphs.past import LAGS, Past, Rows
from raindrop.graphs.recovery import recovery
from raindrop.graphs.same_time import shapley


def table_of(series: dict[str, np.ndarray], time: dict[str, np.ndarray], sample: str = "a") -> rd.EventTable:
    frames = [pl.DataFrame({"sample": sample, "time": time[k], "sensor": k, "value": x}) for k, x in series.items()]
    return rd.EventTable.from_frames(pl.concat(frames))


def walks(seed: int, number: int = 4, readings: int = 250) -> rd.EventTable:
    rng = np.random.default_rng(seed)
    names = [f"walk {at}" for at in range(number)]
    return table_of(
        {name: np.cumsum(rng.normal(size=readings)) for name in names},
        {name: np.cumsum(rng.exponential(1.0, readings)) for name in names},
    )


@pytest.fixture(scope="module")
def planted():
    return delayed_sensors(30, num_sensors=4, num_edges=3, seed=50)


@pytest.fixture(scope="module")
def graph(planted):
    return rd.sensor_graph(planted.table)


@pytest.mark.slow
def test_planted_edges_are_found_in_their_direction(planted, graph):
    score = recovery(graph.ranking(), planted.adjacency())
    assert score.auroc > 0.95
    assert score.direction == 1.0
    found = {(sender, receiver) for sender, receiver, _ in graph.edges().iter_rows()}
    assert found
    assert found <= set(planted.edges)


def test_a_lag_is_reported_in_the_tables_unit(planted, graph):
    lagged = graph.edge_evidence().filter(pl.col("kind") == "lagged")
    assert lagged["lag"].is_between(0.3, 6.0).all()  # planted lags lie between 1 and 4 hours


def test_edges_are_exactly_the_tests_with_a_small_q(graph):
    found = set(graph.evidence.filter(pl.col("q") <= 0.05).select("sender", "receiver").iter_rows())
    assert {(sender, receiver) for sender, receiver, _ in graph.edges().iter_rows()} == found
    assert (graph.evidence["low"] <= graph.evidence["gain"]).all()
    assert (graph.evidence["gain"] <= graph.evidence["high"]).all()


def test_weights_are_shares_of_what_is_explained(graph):
    assert (graph.weights >= 0).all()
    assert (graph.scores.sum(0) <= 1 + 1e-6).all()


@pytest.mark.slow
def test_unrelated_random_walks_have_no_edges():
    graphs = [rd.sensor_graph(walks(seed)) for seed in range(4)]
    assert all(graph.is_empty for graph in graphs)
    assert "q-value up to 0.05" in graphs[0].describe_empty()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_graph(planted, graph):
    assert rd.sensor_graph(planted.table).evidence.equals(graph.evidence)


@pytest.mark.slow
def test_the_order_of_samples_and_their_labels_do_not_matter():
    rng = np.random.default_rng(3)
    frames = []
    for number in range(40):
        u = rng.normal(size=31)
        v = np.concatenate([[0.0], 0.8 * u[:-1]]) + 0.3 * rng.normal(size=31)
        for name, x in (("u", u), ("v", v)):
            frames.append(
                pl.DataFrame({"sample": f"{number:02d}", "time": np.arange(31.0), "sensor": name, "value": x})
            )
    table = rd.EventTable.from_frames(pl.concat(frames))
    graph = rd.sensor_graph(table)
    assert graph["u", "v"] > 0.5
    assert graph["v", "u"] == 0
    shuffled = rd.sensor_graph(table[rng.permutation(40)].with_labels(rng.integers(0, 2, 40)))
    assert_close(shuffled.scores, graph.scores)


def test_sensors_that_move_together_have_an_edge_at_the_same_time():
    rng = np.random.default_rng(0)
    common, time = rng.normal(size=400), np.arange(400.0)
    series = {name: common + rng.normal(size=400) for name in ("a", "b")} | {"c": rng.normal(size=400)}
    graph = rd.sensor_graph(table_of(series, dict.fromkeys(series, time)))
    found = graph.edge_evidence()
    assert set(found["kind"]) == {"same time"}
    assert {frozenset(pair) for pair in found.select("sender", "receiver").iter_rows()} == {frozenset("ab")}


def test_a_sensor_with_few_readings_is_named_as_untested():
    table = walks(0)
    few = table.where((pl.col("sensor") != "walk 3") | (pl.col("time") < 5))
    graph = rd.sensor_graph(few)
    assert graph.untested == ("walk 3",)
    assert "walk 3" not in set(graph.evidence["receiver"])
    nothing = rd.sensor_graph(table.where(pl.col("time") < 5))
    assert nothing.is_empty
    assert "60 readings" in nothing.describe_empty()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: (t, {"q": 0}), "between 0 and 1"),
        (lambda t: (t.where(pl.col("time") < -1), {}), "no readings"),
        (lambda t: (t.events(), {}), "needs an EventTable"),
    ],
)
def test_what_cannot_have_a_graph_is_refused(change, message):
    table, options = change(walks(0, readings=70))
    with pytest.raises(rd.RaindropError, match=message):
        rd.sensor_graph(table, **options)


def test_one_sensor_is_not_enough():
    with pytest.raises(rd.DataError, match="at least two"):
        rd.sensor_graph(walks(0, number=1))


# ---------------------------------------------------------------- parts


def test_the_past_never_sees_the_present():
    table = walks(1)
    past = Past.of(table)
    rows, _ = past.readings_of(0)
    later = rows.time[100]
    other = replace(past, value=np.where(past.time >= later, 100.0, past.value))
    at = Rows(rows.sample[:101], rows.time[:101])
    for u in range(4):
        np.testing.assert_array_equal(past.values(u, at), other.values(u, at))


def test_values_at_lags_lie_on_the_line_between_readings():
    time = np.arange(7.0)
    table = table_of({"u": np.array([0.0, 10.0, 0.0, 3.0, 1.0, 4.0, 2.0]), "v": np.ones(7)}, {"u": time, "v": time})
    past = Past.of(table)
    reading = past.readings_of(0)[1]
    values = past.values(0, Rows(np.array([0]), np.array([2.0])), LAGS)[0]
    assert_close(values[2], reading[1])  # lag 1: the reading at 1
    values = past.values(0, Rows(np.array([0]), np.array([2.5])), (1.0,))[0]
    assert_close(values[0], (reading[1] + reading[2]) / 2)


def test_shapley_values_sum_to_what_all_explain():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
    correlation = np.corrcoef(x.T)
    gain = shapley(correlation, [np.arange(4), np.arange(4)[::-1]])
    for v in range(4):
        others = [u for u in range(4) if u != v]
        explained = correlation[v, others] @ np.linalg.solve(
            correlation[np.ix_(others, others)], correlation[others, v]
        )
        assert_close(gain[:, v].sum(), explained)
