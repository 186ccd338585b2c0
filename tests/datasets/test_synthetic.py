"""The planted graph: the label shows in pairs of sensors and nowhere else."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from raindrop.batch.summaries import summarise
from raindrop.datasets.synthetic import PlantedGraph, planted_graph
from raindrop.errors import ConfigError


@pytest.fixture(scope="module")
def planted() -> PlantedGraph:
    return planted_graph(600, num_sensors=6, num_edges=2, times=60)


def coupled(planted: PlantedGraph) -> np.ndarray:
    return planted.table.labels == "coupled"


def correlation(planted: PlantedGraph, sender: str, receiver: str, chosen: np.ndarray) -> float:
    """The correlation of |sender + 1| and the receiver, each scaled, at the times when both are read."""
    table = planted.table[chosen]
    wide = (
        table.events()
        .with_columns(pl.col("sensor").cast(pl.String))
        .pivot("sensor", index=["sample", "time"], values="value")
    )
    scaled = [(wide[name] - wide[name].mean()) / wide[name].std() for name in (sender, receiver)]
    pair = pl.DataFrame({"u": (scaled[0] + 1).abs(), "v": scaled[1]}).drop_nulls()
    assert len(pair) > 1000
    return float(np.corrcoef(pair["u"], pair["v"])[0, 1])


def test_the_table_depends_on_the_seed_alone() -> None:
    one, two, other = (planted_graph(30, seed=seed) for seed in (4, 4, 5))
    assert one.table.fingerprint == two.table.fingerprint
    assert one.edges == two.edges
    assert one.table.fingerprint != other.table.fingerprint


def test_edges_are_between_different_sensors_and_in_the_adjacency(planted: PlantedGraph) -> None:
    names = [name for edge in planted.edges for name in edge]
    assert len(planted.edges) == 2
    assert len(set(names)) == 4
    assert set(names) <= set(planted.table.sensors)
    adjacency = planted.adjacency()
    assert adjacency.sum() == 2
    for sender, receiver in planted.edges:
        assert adjacency[planted.table.sensors.index(sender), planted.table.sensors.index(receiver)]


def test_a_receiver_follows_its_sender_in_the_coupled_class_only(planted: PlantedGraph) -> None:
    chosen = coupled(planted)
    for sender, receiver in planted.edges:
        assert correlation(planted, sender, receiver, chosen) > 0.6
        assert abs(correlation(planted, sender, receiver, ~chosen)) < 0.1


def test_without_an_edge_sensors_are_uncorrelated(planted: PlantedGraph) -> None:
    chosen = coupled(planted)
    (sender, receiver), (other_sender, other_receiver) = planted.edges
    idle = next(name for name in planted.table.sensors if all(name not in edge for edge in planted.edges))
    for pair in ((sender, other_receiver), (other_sender, receiver), (sender, other_sender), (idle, receiver)):
        assert abs(correlation(planted, *pair, chosen)) < 0.1


def test_a_single_sensor_has_the_same_distribution_in_both_classes(planted: PlantedGraph) -> None:
    chosen = coupled(planted)
    events = planted.table.events().with_columns(label=np.repeat(chosen, planted.table.count))
    for name in planted.table.sensors:
        values = events.filter(pl.col("sensor") == name)
        one, two = (values.filter(pl.col("label") == side)["value"].to_numpy() for side in (True, False))
        shares = np.linspace(0.05, 0.95, 19)
        distance = np.abs(np.quantile(one, shares) - np.quantile(two, shares)).max()
        assert distance < 0.2 * values["value"].std(), name


def test_no_summary_of_a_single_sensor_separates_the_classes(planted: PlantedGraph) -> None:
    chosen = coupled(planted)
    summaries = summarise(planted.table)
    one, two = summaries[chosen], summaries[~chosen]
    error = np.sqrt(np.nanvar(one, 0) / len(one) + np.nanvar(two, 0) / len(two))
    distance = np.abs(np.nanmean(one, 0) - np.nanmean(two, 0)) / error
    assert distance.max() < 4.5  # 54 comparisons of equal means
    assert np.median(distance) < 1.2


def test_times_are_irregular_and_some_sensors_are_missing(planted: PlantedGraph) -> None:
    table = planted.table
    time = table.time[table.rows()]
    assert time.min() >= 0
    assert time.max() <= 48
    first = np.unique(table[[0]].events()["time"].to_numpy())
    assert len(np.unique(np.diff(first).round(3))) > 0.8 * (len(first) - 1)
    assert len(np.unique(table.count)) > 20
    absent = (summarise(table)[..., 0] == 0).mean()
    assert 0.07 < absent < 0.13
    assert table.roles.statics == ("age", "site")
    assert set(table.samples["site"]) == {"north", "south", "west"}
    assert 0.4 < coupled(planted).mean() < 0.6


def test_the_label_depends_weakly_on_age() -> None:
    many = planted_graph(4000, num_sensors=2, num_edges=1, times=1)
    age = many.table.samples["age"].to_numpy()
    assert 1 < age[coupled(many)].mean() - age[~coupled(many)].mean() < 4


@pytest.mark.parametrize("edges", [0, 5])
def test_edges_need_two_sensors_each(edges: int) -> None:
    with pytest.raises(ConfigError, match=r"edges need at least \d+ sensors, not 8"):
        planted_graph(10, num_edges=edges)
