"""How much worse a fitted imputer or forecaster predicts a sensor without another one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from class_plants import one_class_edge
from closeness import assert_close
from followers import LEARNING, SMALL, followers

from raindrop import EventTable, Forecaster, Imputer
from raindrop.errors import DataError
from raindrop.estimators.sender_graphs import SenderEffects, _with_shifted_values, sender_effects
from raindrop.graphs.evidence import difference_test
from raindrop.table.hide import hold_out_blocks


@pytest.fixture(scope="module")
def table() -> EventTable:
    """Followers of a walk, and a sensor that follows nobody."""
    rng = np.random.default_rng(9)
    base = followers(30, seed=4)
    apart = base.events().filter(pl.col("sensor") == "lead").with_columns(
        pl.lit("apart").alias("sensor"), pl.Series("value", rng.normal(size=900)), pl.col("time") + 0.01
    )  # fmt: skip
    events = pl.concat([base.events().with_columns(pl.col("sensor").cast(pl.String)), apart])
    return EventTable.from_frames(events)


@pytest.fixture(scope="module")
def imputer() -> Imputer:
    return Imputer(config=SMALL).fit(followers(20, seed=0))


def by_hand(receiver: list[int], error: list[float], without: list[list[float]], owner: list[int]) -> SenderEffects:
    number = max(owner) + 1
    return SenderEffects(
        ("a", "b"),
        tuple(f"s{at}" for at in range(number)),
        np.array(owner),
        np.array(receiver),
        np.array(error),
        np.array(without),
        np.array(without),
        np.abs(np.array(without) - np.array(error)[:, None]),
        np.arange(number),
        np.zeros(number),
        np.arange(number),
    )


def test_a_weight_is_the_growth_of_the_error_as_a_share_of_the_receivers_error():
    effects = by_hand([1, 1, 0], [1.0, 3.0, 1.0], [[2.0, 1.0], [3.0, 3.0], [1.0, 4.0]], [0, 1, 1])
    graphs = effects.graphs()
    assert_close(graphs["s0"]["a", "b"], (2.0 - 1.0) / 2.0, dtype=np.float32)
    assert graphs["s1"]["a", "b"] == 0.0
    assert_close(graphs["s1"]["b", "a"], 3.0, dtype=np.float32)
    assert graphs["s0"]["b", "a"] == 0.0  # no reading of a was hidden there


def test_evidence_separates_a_sender_that_helps_from_one_that_does_not():
    rng = np.random.default_rng(0)
    error = rng.uniform(0.5, 1.5, 400)
    receiver = np.arange(400) % 2
    grows = np.stack([np.where(receiver == 1, 0.5, 0.0), rng.normal(0, 0.2, 400)], axis=1)
    effects = by_hand(
        receiver.tolist(), error.tolist(), (error[:, None] + grows).tolist(), (np.arange(400) // 20).tolist()
    )
    evidence = effects.evidence()
    first = evidence.row(0, named=True)
    assert (first["sender"], first["receiver"]) == ("a", "b")
    assert first["q"] < 1e-3
    assert first["low"] < first["worse"] < first["high"]
    assert effects.graph()["b", "a"] == 0
    assert effects.graph()["a", "b"] > 0


def test_a_sender_that_is_missed_but_whose_values_do_not_matter_is_no_edge():
    rng = np.random.default_rng(0)
    error, receiver = rng.uniform(0.5, 1.5, 400), np.arange(400) % 2
    owner = (np.arange(400) // 20).tolist()
    worse = error[:, None] + 0.5 + rng.normal(0, 0.1, (400, 2))
    matters = by_hand(receiver.tolist(), error.tolist(), worse.tolist(), owner)
    assert len(matters.graph().edges()) == 2
    used_to = replace(matters, error_shifted=error[:, None] + rng.normal(0, 0.1, (400, 2)))
    assert len(used_to.graph().edges()) == 0
    assert_close(used_to.evidence()["worse"].to_numpy().sum(), matters.evidence()["worse"].to_numpy().sum())
    noisy = replace(matters, error_without=error[:, None] - 0.1 + np.zeros((400, 2)))  # better without it
    assert len(noisy.graph().edges()) == 0


@pytest.mark.parametrize("number", [1, 2, 3, 900])
def test_shifted_values_stay_with_their_sensor_and_leave_the_others(table, number):
    chosen = np.flatnonzero(np.array(table.sensors)[np.asarray(table.sensor)] == "apart")[:number]
    mask = np.isin(np.arange(table.num_readings), chosen)
    value = np.asarray(table.value)
    shifted = np.asarray(_with_shifted_values(table, mask, np.random.default_rng(0)).value)
    assert (shifted[~mask] == value[~mask]).all()
    assert (np.sort(shifted[mask]) == np.sort(value[mask])).all()
    assert (shifted[mask] != value[mask]).all() or number == 1
    assert (np.asarray(table.value) == value).all()


def test_an_edge_that_another_seed_does_not_have_is_left_out():
    rng = np.random.default_rng(0)
    error, receiver = rng.uniform(0.5, 1.5, 400), np.arange(400) % 2

    def effects(u: float, v: float) -> SenderEffects:
        grows = np.stack([u * (receiver == 1), v * (receiver == 0)], axis=1) + rng.normal(0, 0.1, (400, 2))
        owner = (np.arange(400) // 20).tolist()
        return by_hand(receiver.tolist(), error.tolist(), (error[:, None] + grows).tolist(), owner)

    both = effects(0.5, 0.5)
    assert len(both.graph().edges()) == 2
    assert "Train again with another seed" in both.graph().describe_stability()
    stable = both.graph(other_seeds=[effects(0.5, 0.0), effects(0.5, 0.5)])
    assert stable.edges().select("sender", "receiver").rows() == [("a", "b")]
    assert "2 models of other seeds: 1 of 2 edges recur" in stable.describe_stability()
    assert stable.edge_evidence()["recurs"].to_list() == [1.0]
    none = both.graph(other_seeds=[effects(0.0, 0.0)])
    assert "none of the 2 edges" in none.describe_empty()


def test_samples_of_a_group_count_as_one_in_the_interval():
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(6), 10)
    grows = np.repeat(rng.normal(0.3, 0.4, 6), 10)
    alone = by_hand([1] * 60, [1.0] * 60, np.stack([1 + grows, np.ones(60)], axis=1).tolist(), list(range(60)))
    together = replace(alone, group=person)
    width = [each.evidence()["high"][0] - each.evidence()["low"][0] for each in (alone, together)]
    assert width[1] > 2 * width[0]


def test_a_long_series_has_stretches_in_order_of_time(imputer):
    effects = imputer.sender_effects(followers(1, hours=600, seed=2))
    stretches = effects.stretches()
    assert len(stretches) == len(effects.ids) > 1
    assert effects.start.tolist() == sorted(effects.start)
    assert len(effects.stretches(most=2)) == 2
    assert sum(mask.sum() for _, mask in effects.stretches(most=2)) == len(effects.ids)
    assert imputer.sender_effects(followers(3, seed=2)).stretches() == []


def test_in_a_small_table_other_readings_are_hidden_in_turn(imputer):
    table, seen = followers(3, seed=2), []
    every = imputer.sender_effects(table, progress=lambda done, number: seen.append((done, number)))
    once = imputer.sender_effects(table, max_hidden=1 + len(every.error) // 5)
    assert len(every.error) > 4 * len(once.error)
    assert every.ids == once.ids
    assert [done for done, _ in seen] == list(range(1, 5 * len(table.sensors) + 1))
    assert {number for _, number in seen} == {5 * len(table.sensors)}


@pytest.mark.slow
def test_an_edge_of_one_class_is_found_by_a_model_that_never_saw_labels():
    """What one sensor says about the other holds both ways, so an imputer has the pair in both directions."""
    table = one_class_edge(60, 30, lag=0, noise=0.1, walk=True)
    classes = Imputer(config=LEARNING).fit(table).class_graphs(table, share=0.2)
    found = {frozenset(pair) for pair in classes.difference.edges().select("sender", "receiver").rows()}
    assert found == {frozenset(("drive", "follows"))}
    assert classes.evidence["found"][0]
    assert classes.graphs["on"]["drive", "follows"] > 0.1


def test_class_graphs_need_labels(imputer):
    with pytest.raises(DataError, match="has no label"):
        imputer.class_graphs(followers(5, seed=1))


def test_every_sample_has_a_graph_and_a_long_series_one_for_each_window(imputer):
    assert set(imputer.graphs(followers(5, seed=1))) == {f"s{b:03d}" for b in range(5)}
    long = followers(1, hours=600, seed=2)
    windows = imputer.graphs(long)
    assert len(windows) > 1
    assert all(name.startswith("s000, from ") for name in windows)


def test_the_company_of_a_sample_does_not_matter(imputer):
    visible, truth = hold_out_blocks(followers(4, seed=3), 8.0, share=0.3)
    together = sender_effects(imputer, visible, truth, 0)
    alone = sender_effects(imputer, visible[["s002"]], truth.filter(pl.col("sample") == "s002"), 0)
    assert len(alone.error) > 5
    for name in ("error", "error_without", "change"):
        assert_close(getattr(alone, name), getattr(together, name)[together.owner == 2], dtype=np.float32)


def test_labels_are_compared_by_permuting_them_over_samples(imputer):
    table = followers(12, seed=5)
    frame = difference_test(imputer.graphs(table), np.arange(12) % 2 == 0, permutations=200)
    assert frame["p"].is_between(0, 1).all()
    assert len(frame) == 6


def test_a_forecaster_is_judged_by_the_last_horizon():
    forecaster = Forecaster(horizon=6.0, config=SMALL).fit(followers(20, seed=0))
    effects = forecaster.sender_effects(followers(5, seed=1))
    assert len(effects.error) > 30
    assert forecaster.graphs(followers(5, seed=1)).weights.shape == (5, 3, 3)


def test_a_sensor_cannot_send_to_itself(imputer):
    weights = imputer.graphs(followers(3, seed=1)).weights
    assert not np.einsum("buu->bu", weights).any()


def test_an_empty_table_is_refused(imputer):
    with pytest.raises(DataError):
        imputer.graphs(followers(3, seed=1).where(pl.col("time") < -1))


@pytest.mark.slow
def test_strong_edges_move_the_filled_value_more_than_random_ones(table):
    fitted = Imputer(config=LEARNING).fit(table)
    effects = fitted.sender_effects(table, share=0.2)
    assert effects.faithfulness()["ratio"] > 1.2
    evidence = effects.evidence()
    assert set(evidence.head(3)["sender"]) <= {"lead", "mirror", "same"}
    from_apart = evidence.filter(pl.col("sender") == "apart")
    assert (from_apart["q"] > 0.05).all()
    assert from_apart["worse"].max() < 0.5 * evidence.head(3)["worse"].min()
