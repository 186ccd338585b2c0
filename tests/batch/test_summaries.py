"""The nine summaries against plain loops."""

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
                spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
                ends = values[0], values[-1], values[-1] - values[0], rows["time"][-1]
                out[b, u, 1:] = mean, min(values), max(values), spread, *ends
    return out


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    return make_table(samples=8, sensors=4, times=9)


def test_summaries_are_what_loops_give(table: EventTable) -> None:
    found = summarise(table)
    assert found.shape == (8, 4, len(SUMMARIES))
    assert_close(found, by_loops(table))


def test_summaries_of_chosen_samples_are_theirs_in_that_order(table: EventTable) -> None:
    order = np.array([5, 0, 7, 2])
    assert_close(summarise(table[order]), summarise(table)[order])


def test_a_sensor_without_a_reading_counts_zero_and_knows_nothing_else(table: EventTable) -> None:
    silent = summarise(table)[7]  # the sample without a reading
    assert (silent[:, 0] == 0).all()
    assert np.isnan(silent[:, 1:]).all()
    nothing = summarise(table.where(pl.col("value").is_null()))
    assert (nothing[..., 0] == 0).all()
    assert summarise(table[:0]).shape == (0, 4, 9)
