"""Holding out readings: what is hidden is gone from the table and comes back as the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from raindrop.errors import DataError
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hold_out_blocks, hold_out_future, hold_out_readings, hold_out_sensors
from raindrop.table.queries import spans

HoldOut = Callable[..., tuple[EventTable, pl.DataFrame]]
WAYS: dict[str, HoldOut] = {
    "readings": lambda table, seed=0: hold_out_readings(table, 0.3, seed=seed),
    "blocks": lambda table, seed=0: hold_out_blocks(table, 5.0, share=0.3, seed=seed),
    "sensors": lambda table, seed=0: hold_out_sensors(table, 0.3, seed=seed),
}


@pytest.fixture
def table() -> EventTable:
    """Four samples of 200 hours, five sensors read every half hour."""
    sample, time, sensor = (
        axis.ravel() for axis in np.meshgrid(np.arange(4), np.arange(400) / 2, np.arange(5), indexing="ij")
    )
    value = np.random.default_rng(0).normal(size=sample.shape)
    return EventTable.from_columns([f"s{at}" for at in sample], time, [f"u{at}" for at in sensor], value)


def plain(table: EventTable) -> pl.DataFrame:
    return table.events().with_columns(pl.col("sensor").cast(pl.String))


@pytest.mark.parametrize("way", WAYS)
def test_visible_and_hidden_readings_together_are_the_table(way: str, table: EventTable) -> None:
    visible, truth = WAYS[way](table)
    assert 0 < len(truth) < table.num_readings
    order = ["sample", "time", "sensor"]
    assert pl.concat([plain(visible), truth]).sort(order).equals(plain(table).sort(order))
    assert visible.sensors == table.sensors
    assert visible.samples.equals(table.samples)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_held_out_depends_on_the_seed_alone(way: str, table: EventTable) -> None:
    one, same, other = (WAYS[way](table, seed)[1] for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)


@pytest.mark.parametrize("way", WAYS)
def test_a_predicted_reading_is_neither_truth_nor_visible(way: str, table: EventTable) -> None:
    filled = replace(table, filled=np.asarray(table.time % 1 == 0.5))
    visible, truth = WAYS[way](filled)
    times = np.concatenate([visible.time[visible.rows()], truth["time"].to_numpy()])
    assert (times % 1 == 0).all()
    assert len(times) == table.num_readings // 2


def test_a_block_is_as_long_as_asked_and_every_sensor_has_its_own(table: EventTable) -> None:
    _, truth = hold_out_blocks(table, 5.0, share=0.1)
    starts = set()
    for _, series in truth.group_by("sample", "sensor"):
        time = series["time"].to_numpy()
        blocks = np.split(time, np.flatnonzero(np.diff(time) > 0.5) + 1)
        assert len(blocks) in (4, 5)  # 200 hours, one block every 50
        inner = [block for block in blocks if block[0] > 0 and block[-1] < 199.5]
        assert {len(block) for block in inner} == {10}  # 5 hours, two readings an hour
        starts.add(blocks[0][0])
    assert len(starts) > 10


def test_hidden_sensors_are_gone_from_their_sample(table: EventTable) -> None:
    _, truth = hold_out_sensors(table, 0.4)
    counts = truth.group_by("sample", "sensor").len()
    assert set(counts["len"]) == {400}
    assert counts.group_by("sample").len()["len"].to_list() == [2] * 4
    assert len({tuple(sorted(g["sensor"])) for _, g in counts.group_by("sample")}) > 1


def test_at_least_one_sensor_is_hidden_and_one_stays(table: EventTable) -> None:
    few = table.where(pl.col("sensor").cast(pl.String).is_in(["u0", "u3"]))
    for share in (0.01, 0.99):
        _, truth = hold_out_sensors(few, share)
        assert truth.group_by("sample").agg(pl.col("sensor").n_unique())["sensor"].to_list() == [1] * 4


def test_only_sensors_with_readings_are_drawn(make_table: Callable[..., EventTable]) -> None:
    sparse = make_table(samples=30, sensors=12, times=2, observed=0.1, extremes=False)
    _, truth = hold_out_sensors(sparse, 0.01)
    several = sparse.events().group_by("sample").agg(pl.col("sensor").n_unique()).filter(pl.col("sensor") > 1)
    assert set(truth["sample"]) == set(several["sample"])


def test_the_future_is_hidden_and_the_truth_ends_at_the_horizon(table: EventTable) -> None:
    cutoff = np.array([10.0, 20.0, 30.0, 40.0])
    visible, truth = hold_out_future(table, cutoff, 6.0)
    assert spans(visible)[1].tolist() == cutoff.tolist()
    bounds = truth.group_by("sample", maintain_order=True).agg(first=pl.col("time").min(), last=pl.col("time").max())
    assert bounds["first"].to_list() == (cutoff + 0.5).tolist()
    assert bounds["last"].to_list() == (cutoff + 6).tolist()


@pytest.mark.parametrize(
    ("hold_out", "message"),
    [
        (lambda table: hold_out_readings(table, 0.0), "above 0 and below 1, not 0.0"),
        (lambda table: hold_out_sensors(table, 1.0), "above 0 and below 1, not 1.0"),
        (lambda table: hold_out_readings(table, float("nan")), "above 0 and below 1, not nan"),
        (lambda table: hold_out_blocks(table, 0.0), "length=0.0: how long a block is hidden"),
        (lambda table: hold_out_blocks(table, float("inf")), "length=inf: how long a block is hidden"),
        (lambda table: hold_out_future(table, 500.0), "None of the 8,000 readings would be hidden"),
    ],
)
def test_an_impossible_request_is_one_sentence(hold_out: HoldOut, message: str, table: EventTable) -> None:
    with pytest.raises(DataError, match=message):
        hold_out(table)
