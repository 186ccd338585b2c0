"""Hiding sensors removes or overwrites their readings and changes nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from raindrop.batch.collate import Collator
from raindrop.batch.scaling import Scaler
from raindrop.errors import DataError
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hide_random_sensors, hide_sensors, num_hidden


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    return make_table(samples=20, sensors=6, times=20, observed=0.9, extremes=False)


def sensors_by_sample(table: EventTable) -> list[set[str]]:
    events = table.events()
    return [set(events.filter(pl.col("sample") == name)["sensor"]) for name in table.ids]


def test_hidden_sensors_have_no_reading_and_the_others_all_of_theirs(table: EventTable) -> None:
    hidden = hide_sensors(table, ["sensor 1", "sensor 4"])
    kept = table.events().filter(~pl.col("sensor").cast(pl.String).is_in(["sensor 1", "sensor 4"]))
    assert hidden.events().equals(kept)
    assert hidden.sensors == table.sensors
    assert hidden.samples.equals(table.samples)
    assert hide_sensors(table, []).events().equals(table.events())


def test_an_unknown_sensor_to_hide_is_an_error_with_the_closest_name(table: EventTable) -> None:
    with pytest.raises(DataError, match="There is no sensor 'sensor1' to hide; did you mean 'sensor 1'"):
        hide_sensors(table, ["sensor1"])


def test_each_sample_hides_its_own_random_sensors(table: EventTable) -> None:
    hidden = hide_random_sensors(table, 0.5)
    left = sensors_by_sample(hidden)
    assert all(len(names) == 3 for names in left)
    assert len({frozenset(names) for names in left}) > 5
    assert hidden.sensors == table.sensors
    assert len(hidden) == len(table)


@pytest.mark.parametrize(("share", "left"), [(0.0, 6), (0.1, 5), (0.3, 4), (1.0, 0)])
def test_the_share_is_rounded_to_whole_sensors(share: float, left: int, table: EventTable) -> None:
    assert {len(names) for names in sensors_by_sample(hide_random_sensors(table, share))} == {left}


def test_readings_of_visible_sensors_are_unchanged(table: EventTable) -> None:
    before = set(table.events().rows())
    assert set(hide_random_sensors(table, 0.5).events().rows()) < before


def test_the_hidden_sensors_depend_on_the_seed_alone(table: EventTable) -> None:
    one, two, other = (hide_random_sensors(table, 0.5, seed=seed) for seed in (1, 1, 2))
    assert one.fingerprint == two.fingerprint != other.fingerprint


def test_hiding_works_on_a_selection_of_samples(table: EventTable) -> None:
    part = table[np.array([7, 3])]
    assert all(len(names) == 3 for names in sensors_by_sample(hide_random_sensors(part, 0.5)))
    assert len(hide_sensors(part, ["sensor 0"])) == 2


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_an_impossible_share_is_refused(share: float, table: EventTable) -> None:
    with pytest.raises(DataError, match="must be between 0 and 1"):
        hide_random_sensors(table, share)


def test_the_numbers_of_hidden_sensors_are_those_of_the_paper() -> None:
    shares = (0.1, 0.2, 0.3, 0.4, 0.5)
    assert [num_hidden(share, 17) for share in shares] == [2, 3, 5, 7, 8]
    assert [num_hidden(share, 34) for share in shares] == [3, 7, 10, 14, 17]
    assert [num_hidden(share, 36) for share in shares] == [4, 7, 11, 14, 18]


def test_readings_may_be_overwritten_instead_of_removed(table: EventTable) -> None:
    means = Scaler.fit(table).mean
    written = hide_sensors(table, ["sensor 1", "sensor 4"], values=means)
    hidden = pl.col("sensor").cast(pl.String).is_in(["sensor 1", "sensor 4"])
    assert written.events().filter(~hidden).equals(table.events().filter(~hidden))
    assert written.events().drop("value").equals(table.events().drop("value"))
    batch = Collator(written, Scaler.fit(table)).batch(np.arange(len(table)))
    overwritten = np.isin(batch.sensor.numpy(), [1, 4])
    assert (batch.value.numpy()[overwritten] == 0).all()
    assert (batch.value.numpy()[~overwritten] != 0).all()


def test_overwriting_random_sensors_picks_those_that_would_be_removed(table: EventTable) -> None:
    selected = table[np.arange(3, 17)]  # whose readings do not start where the table's do
    removed, written = (hide_random_sensors(selected, 0.5, seed=1, values=v) for v in (None, np.full(6, 1e6)))
    assert written.num_readings == selected.num_readings
    assert written.where(pl.col("value") < 1e6).events().equals(removed.events())


def test_overwritten_readings_keep_all_digits_of_the_values_given(table: EventTable) -> None:
    means = np.full(6, 120_000_000_003.0)
    assert set(hide_sensors(table, table.sensors, values=means).value.tolist()) == {120_000_000_003.0}


def test_values_to_write_need_one_entry_per_sensor(table: EventTable) -> None:
    with pytest.raises(DataError, match=r"There are 6 sensors, but values of shape \(2,\) to write for them"):
        hide_sensors(table, ["sensor 1"], values=[0.0, 1.0])
