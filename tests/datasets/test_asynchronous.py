"""The planted series of delayed sensors."""

import numpy as np
import pytest

import raindrop as rd
from raindrop.datasets.asynchronous import delayed_sensors


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
