"""The nine summaries compared with plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from closeness import assert_close

from raindrop.batch.summaries import SUMMARIES, summarise
from raindrop.table.event_table import EventTable


def by_loops(table: EventTable) -> np.ndarray:
    out = np.full((len(table), len(table.sensors), 9), math.nan)
    events = table.events()
    for b, name in enumerate(table.ids):
        for u, sensor in enumerate(table.sensors):
            rows = events.filter((pl.col("sample") == name) & (pl.col("sensor") == sensor)).sort("time")
            values = [float(value) for value in rows["value"]]
            out[b, u, 0] = len(values)
            if values:
                mean = sum(values) / len(values)
                std = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
                ends = values[0], values[-1], values[-1] - values[0], rows["time"][-1]
                out[b, u, 1:] = mean, min(values), max(values), std, *ends
    return out


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    return make_table(samples=8, sensors=4, times=9)


def test_summaries_equal_those_by_loops(table: EventTable) -> None:
    summaries = summarise(table)
    assert summaries.shape == (8, 4, len(SUMMARIES))
    assert_close(summaries, by_loops(table), dtype=np.float32)


def test_summaries_of_selected_samples_are_in_their_order(table: EventTable) -> None:
    order = np.array([5, 0, 7, 2])
    assert_close(summarise(table[order]), summarise(table)[order], dtype=np.float32)


def test_a_sensor_without_readings_has_count_0_and_no_other_summary(table: EventTable) -> None:
    empty_sample = summarise(table)[7]
    assert (empty_sample[:, 0] == 0).all()
    assert np.isnan(empty_sample[:, 1:]).all()
    empty_table = summarise(table.where(pl.col("value").is_null()))
    assert (empty_table[..., 0] == 0).all()
    assert summarise(table[:0]).shape == (0, 4, 9)
