"""The synthetic tables of the tutorials: what they promise is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from raindrop import ConfigError
from raindrop.datasets.scenes import LABORATORY, WARD_SENSORS, machine, stations, ward


def of(table: Any, sensor: str) -> pl.DataFrame:
    return table.events().filter(pl.col("sensor").cast(pl.String) == sensor)


def test_the_ward_without_laboratory_never_reads_it() -> None:
    table = ward(200, seed=1)
    assert table.sensors == tuple(WARD_SENSORS)
    south = table[table.samples["site"].to_numpy() == "south"]
    read = set(south.events()["sensor"].cast(pl.String).unique())
    assert read == set(WARD_SENSORS) - set(LABORATORY)
    assert 0.1 < (table.labels == "worse").mean() < 0.4
    assert table.roles.statics == ("age",)


def test_severity_moves_the_sensors_of_the_ward() -> None:
    table = ward(400, seed=0)
    means = of(table, "Lactate").group_by("sample").agg(pl.col("value").mean())
    joined = means.join(table.samples.select("sample", "outcome"), on="sample")
    worse, stable = (joined.filter(outcome=name)["value"].mean() for name in ("worse", "stable"))
    assert worse > stable + 0.5


def test_each_sensor_of_the_machine_has_a_clock_and_outages_of_its_own() -> None:
    table = machine(20, num_sensors=7, seed=0)
    assert len(table) == 20
    assert table.sensors[:2] == ("power 1", "flow 1")
    times = [set(of(table[:1], sensor)["time"]) for sensor in table.sensors]
    assert not times[0] & times[1]
    longest = [
        float(np.diff(of(table[at : at + 1], sensor)["time"].to_numpy(), prepend=0, append=8).max())
        for at in range(10)
        for sensor in table.sensors
    ]
    outages = np.mean(np.array(longest) > 0.6)
    assert 0.1 < outages < 0.6


def test_the_sensors_of_the_machine_follow_one_load() -> None:
    table = machine(3, num_sensors=6, seed=0)
    hours = np.arange(0.5, 8, 0.25)
    curves = []
    for sensor in ("power 1", "flow 1"):
        events = of(table[:1], sensor)
        curves.append(np.interp(hours, events["time"], events["value"]))
    assert np.corrcoef(curves)[0, 1] > 0.6


def test_a_station_reads_what_the_station_to_its_west_read_before() -> None:
    table = stations(20, num_stations=8, gaps=0.0, seed=0)
    place = table.sensor_columns.sort("x")
    west, east = place["sensor"][0], place["sensor"][-1]
    lag = (place["x"][-1] - place["x"][0]) / 3.0
    hours = np.arange(10, 20 * 24 - 1.0)
    curve = {}
    for sensor in (west, east):
        events = of(table, sensor)
        curve[sensor] = events["time"].to_numpy(), events["value"].to_numpy()
    now = np.interp(hours, *curve[east])
    before = np.corrcoef(np.interp(hours - lag, *curve[west]), now)[0, 1]
    assert before > np.corrcoef(np.interp(hours, *curve[west]), now)[0, 1]
    assert before > 0.4


def test_stations_are_silent_for_the_share_that_is_asked() -> None:
    full, gappy = (stations(20, num_stations=4, gaps=share, seed=2) for share in (0.0, 0.3))
    assert gappy.num_readings / full.num_readings == pytest.approx(0.68, abs=0.06)


@pytest.mark.parametrize("make", [ward, machine, stations])
def test_a_seed_repeats_a_scene_and_another_one_does_not(make: Any) -> None:
    first, again, other = (make(3, seed=seed) for seed in (0, 0, 1))
    assert first.events().equals(again.events())
    assert not first.events().equals(other.events())


@pytest.mark.parametrize(
    ("make", "asked", "message"),
    [
        (ward, {"num_samples": 1}, "at least 2 samples, not 1"),
        (machine, {"num_sensors": 1}, "at least 1 shift and 2 sensors"),
        (stations, {"gaps": 0.95}, "share of gaps below 0.9"),
        *((make, {"seed": -1}, "seed=-1: a seed is a whole number, 0 or above") for make in (ward, machine, stations)),
    ],
)
def test_a_scene_that_cannot_be_made_is_refused(make: Any, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**asked)
