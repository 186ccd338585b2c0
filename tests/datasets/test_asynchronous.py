"""The planted series and samples of delayed sensors."""

import numpy as np
import polars as pl
import pytest

import raindrop as rd
from raindrop.datasets.asynchronous import delayed_samples, delayed_sensors


def test_sensors_have_clocks_of_their_own_and_gaps():
    table = delayed_sensors(20, seed=1).table
    events = table.events()
    assert events["time"].n_unique() > 0.99 * len(events)
    gaps = events.sort("sensor", "time")["time"].diff()
    assert (gaps > 5).sum() >= len(table.sensors)


def test_the_graph_has_no_cycle_and_another_seed_another_graph():
    planted = delayed_sensors(10, seed=3)
    reach = np.linalg.matrix_power(planted.adjacency().astype(float), len(planted.table.sensors))
    assert not reach.any()
    assert len(planted.edges) == 7
    assert planted.edges != delayed_sensors(10, seed=4).edges
    assert planted.table.fingerprint == delayed_sensors(10, seed=3).table.fingerprint


def test_a_receiver_follows_its_sender_later():
    planted = delayed_sensors(40, num_sensors=2, num_edges=1, gaps=0.0, seed=5)
    sender, receiver = planted.edges[0]
    frames = {name: planted.table.events().filter(sensor=name).sort("time") for name in (sender, receiver)}
    grid = np.arange(10, 900, 0.5)

    def correlation(lag: float) -> float:
        u = np.interp(grid - lag, frames[sender]["time"], frames[sender]["value"])
        v = np.interp(grid, frames[receiver]["time"], frames[receiver]["value"])
        return abs(np.corrcoef(u, v)[0, 1])

    lags = np.arange(-6, 6.5, 0.5)
    assert 0.5 <= lags[np.argmax([correlation(lag) for lag in lags])] <= 4.5


def test_an_impossible_series_is_refused():
    with pytest.raises(rd.ConfigError, match="edges"):
        delayed_sensors(10, num_sensors=3, num_edges=9)


def test_short_samples_have_clocks_of_their_own_gaps_and_sensors_that_are_never_read():
    planted = delayed_samples(60, seed=1)
    events = planted.table.events()
    assert events.select(pl.struct("sample", "time").n_unique()).item() > 0.99 * len(events)
    per_sample = events.group_by("sample", "sensor").len().group_by("sample").len()["len"]
    assert 7.0 < per_sample.mean() < 7.5  # of eight, one in ten is missing
    assert set(planted.table.labels) == {"apart", "coupled"}
    assert len({name for edge in planted.edges for name in edge}) == 8
    assert planted.graph().edges().height == 4


def test_only_in_coupled_samples_the_receiver_follows_its_sender():
    planted = delayed_samples(200, num_sensors=2, num_edges=1, gaps=0.0, seed=5)
    sender, receiver = planted.edges[0]
    table = planted.table
    best = {}
    for name in ("coupled", "apart"):
        found = []
        for sample in np.flatnonzero(table.labels == name)[:40].tolist():
            frames = [table[[sample]].events().filter(sensor=sensor) for sensor in (sender, receiver)]
            if min(map(len, frames)) > 10:
                (u, u_time), (v, time) = ((frame["value"].to_numpy(), frame["time"].to_numpy()) for frame in frames)
                level, unit = np.mean(u), np.std(u)
                inside = time > 3
                follows = [
                    np.abs((np.interp(time - lag, u_time, u) - level) / unit + 0.3) for lag in (0.5, 1.0, 1.5, 2.0)
                ]
                found.append(max(np.corrcoef(each[inside], v[inside])[0, 1] for each in follows))
        best[name] = np.mean(found)
    assert best["coupled"] > 0.6
    assert best["apart"] < 0.4


@pytest.mark.parametrize("asked", [{"num_edges": 5}, {"interval": 0.0}, {"gaps": 1.0}, {"num_samples": 0}])
def test_impossible_samples_are_refused(asked):
    with pytest.raises(rd.ConfigError, match=r"edges need|interval=|gaps=|0 samples: there must be"):
        delayed_samples(**({"num_samples": 10} | asked))
