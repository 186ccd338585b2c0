"""Class graphs: the edge that one class alone has is found, and none where labels say nothing."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from class_plants import one_class_edge
from closeness import assert_close

import raindrop as rd
from raindrop.graphs.class_differences import Effects, compare_classes
from raindrop.graphs.graph import SensorGraph

SENSORS = ("a", "b", "c", "d")


def some_effects(samples: int = 80, seed: int = 5) -> Effects:
    rng = np.random.default_rng(seed)
    count = rng.integers(0, 6, (samples, 4)).astype(np.float32)
    total = (rng.standard_t(4, (samples, 4, 4)) * np.sqrt(count)[:, None]).astype(np.float32)
    return Effects(SENSORS, total, count)


def with_edge(effects: Effects, mask: np.ndarray, size: float = 2.0) -> Effects:
    effects.total[mask, 0, 1] += size * effects.count[mask, 1]
    return effects


def compared(*effects: Effects, labels: np.ndarray, group: np.ndarray | None = None, **options):
    group = np.arange(len(labels)) if group is None else group
    every = SensorGraph(SENSORS, np.ones((4, 4), dtype=np.float32))
    return compare_classes(effects, dict.fromkeys(np.unique(labels).tolist(), every), labels, group, **options)


def test_the_edge_of_one_class_is_the_strongest_difference_and_no_other_edge_is_found():
    labels = np.arange(80) % 2
    result = compared(with_edge(some_effects(), labels == 1), labels=labels)
    first = result.evidence.row(0, named=True)
    assert (first["class"], first["sender"], first["receiver"]) == ("1", "a", "b")
    assert first["q"] < 0.01
    assert (result.evidence["q"][1:] > 0.05).all()
    assert_close(first["in_class"] - first["in_others"], first["difference"])
    assert set(result.difference.edges().select("sender", "receiver").rows()) == {("a", "b")}
    assert result.difference.name == "1 minus 0"


def test_a_mean_is_over_readings_not_over_samples():
    effects, labels = some_effects(20), np.arange(20) < 8
    evidence = compared(effects, labels=labels, permutations=100).evidence
    row = evidence.row(by_predicate=(pl.col("sender") == "c") & (pl.col("receiver") == "a"), named=True)
    assert_close(row["in_class"], effects.total[labels, 2, 0].sum() / effects.count[labels, 0].sum(), dtype=np.float32)


@pytest.mark.slow
def test_permuted_labels_have_no_difference():
    rng = np.random.default_rng(1)
    found = 0
    for seed in range(40):
        effects = with_edge(some_effects(60, seed), np.arange(60) % 3 == 0)
        found += not compared(effects, labels=rng.permutation(np.arange(60) % 2), permutations=1000).difference.is_empty
    assert found <= 5  # 5 % of 40 are expected at most; six or more have a probability of 1 %


def test_a_class_that_only_varies_more_does_not_differ():
    found = 0
    for seed in range(10):
        effects, labels = some_effects(120, seed), np.arange(120) < 20
        effects.total[labels] *= 4
        found += not compared(effects, labels=labels, permutations=1000).difference.is_empty
    assert found <= 3


@pytest.mark.slow
def test_samples_of_a_person_are_permuted_together():
    """Thirty people, ten samples each, alike: labels of people that say nothing must not look as if they did."""
    alone = together = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        person = np.repeat(np.arange(30), 10)
        total = rng.normal(size=(30, 4, 4)).astype(np.float32)[person]
        effects, labels = Effects(SENSORS, total, np.ones((300, 4), dtype=np.float32)), person % 2
        together += not compared(effects, labels=labels, group=person, permutations=1000).difference.is_empty
        alone += not compared(effects, labels=labels, permutations=1000).difference.is_empty
    assert together <= 2
    assert alone >= 5


def test_an_edge_that_does_not_recur_with_another_seed_is_not_shown():
    labels = np.arange(80) % 2
    planted = with_edge(some_effects(), labels == 1)
    stays = compared(planted, with_edge(some_effects(seed=1), labels == 1), labels=labels)
    assert stays.evidence["recurs"][0] == 1
    assert "1 of 1 differences recur" in stays.describe_stability()
    assert not stays.difference.is_empty
    goes = compared(planted, some_effects(seed=1), labels=labels)
    assert goes.evidence["recurs"][0] == 0
    assert goes.difference.is_empty
    assert "none of the 1 differences" in goes.difference.describe_empty()
    assert "0 of 1 differences recur" in goes.describe_stability()
    assert "Train again with another seed" in compared(planted, labels=labels).describe_stability()


def test_a_pair_that_is_an_edge_in_no_class_is_no_difference():
    labels = np.arange(80) % 2
    weights = np.ones((4, 4), dtype=np.float32)
    weights[0, 1] = 0
    without = dict.fromkeys((0, 1), SensorGraph(SENSORS, weights))
    result = compare_classes([with_edge(some_effects(), labels == 1)], without, labels, np.arange(80))
    assert result.evidence["q"][0] < 0.01
    assert result.difference.is_empty
    assert "is an edge of the graph of a class" in result.difference.describe_empty()


def test_of_three_classes_each_is_compared_with_the_others():
    labels = np.array(["x", "y", "z"])[np.arange(90) % 3]
    result = compared(with_edge(some_effects(90), labels == "y"), labels=labels)
    assert set(result.differences) == {"x", "y", "z"}
    assert result.differences["y"]["a", "b"] > 1
    with pytest.raises(rd.ConfigError, match="3 classes"):
        _ = result.difference


def test_a_receiver_that_one_class_hardly_has_is_not_tested():
    effects, labels = some_effects(), np.arange(80) % 2
    effects.count[labels == 0, 2] = 0
    assert "c" not in set(compared(effects, labels=labels, permutations=100).evidence["receiver"])


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (np.zeros(80), {}, "at least two"),
        (np.arange(80) < 2, {}, "2 labelled samples"),
        (np.arange(80) % 2, {"q": 2}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(labels, options, message):
    with pytest.raises(rd.RaindropError, match=message):
        compared(some_effects(), labels=labels, **options)


# ---------------------------------------------------------------- from readings alone


@pytest.fixture(scope="module")
def table():
    return one_class_edge()


@pytest.mark.slow
def test_from_readings_alone_the_planted_edge_is_the_only_difference(table):
    result = rd.class_graphs(table)
    assert result.difference.edges().select("sender", "receiver").rows() == [("drive", "follows")]
    assert result.evidence["q"][0] < 0.05
    assert result.graphs["on"]["drive", "follows"] > 0.5
    assert result.graphs["off"]["drive", "follows"] == 0
    assert result.graphs["off"]["other", "tracks"] > 0.5


@pytest.mark.slow
def test_from_readings_alone_permuted_labels_have_no_difference(table):
    rng = np.random.default_rng(0)
    people = rng.permutation(30) < 15
    permuted = table.with_labels(np.repeat(people, 2))
    assert rd.class_graphs(permuted, permutations=1000).difference.is_empty


@pytest.mark.slow
def test_samples_without_a_label_are_left_out_and_a_table_without_any_is_refused(table):
    some = table.samples.with_columns(label=pl.when(pl.col("sample") < "s010").then(None).otherwise(pl.col("label")))
    result = rd.class_graphs(rd.EventTable.from_frames(table.events(), some, label="label"), permutations=100)
    assert set(result.graphs) == {"on", "off"}
    none = some.with_columns(label=pl.lit(None, dtype=pl.String))
    with pytest.raises(rd.DataError, match="No sample has a label"):
        rd.class_graphs(rd.EventTable.from_frames(table.events(), none, label="label"))
    with pytest.raises(rd.DataError, match="has no label"):
        rd.class_graphs(rd.EventTable.from_frames(table.events()))
    with pytest.raises(rd.DataError, match="the same"):
        rd.class_graphs(table.with_labels(["one"] * 60))
