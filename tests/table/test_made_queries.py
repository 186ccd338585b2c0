"""Which queries are made: a grid between given times, as a forecast needs it, and gaps of some sensors only."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from raindrop.errors import DataError
from raindrop.table.event_table import EventTable
from raindrop.table.queries import grid, in_gaps


@pytest.fixture
def table() -> EventTable:
    return EventTable.from_columns(["a", "a", "b", "b"], [0.0, 10.0, 3.0, 5.0], ["x", "y", "x", "y"], [1.0] * 4)


def test_a_grid_runs_from_start_to_stop(table: EventTable) -> None:
    queries = grid(table, 2.0, ["x"], start=np.array([11.0, 6.0]), stop=np.array([15.0, 6.5]))
    assert queries.rows() == [("a", 11.0, "x"), ("a", 13.0, "x"), ("a", 15.0, "x"), ("b", 6.0, "x")]
    assert grid(table, 2.0, ["y"], start=4, stop=7)["time"].to_list() == [4.0, 6.0, 4.0, 6.0]


def test_a_sample_whose_stop_is_before_its_start_has_no_query(table: EventTable) -> None:
    assert grid(table, 1.0, ["x"], start=4.0)["sample"].unique(maintain_order=True).to_list() == ["a", "b"]
    assert grid(table, 1.0, ["x"], start=6.0)["sample"].unique().to_list() == ["a"]


def test_impossible_ranges_are_refused(table: EventTable) -> None:
    with pytest.raises(DataError, match="start and stop must be finite times"):
        grid(table, 1.0, stop=np.inf)
    with pytest.raises(DataError, match="queries, more than 50,000,000"):
        grid(table, 1e-30)


def test_a_sensor_with_an_infinite_interval_is_not_filled(table: EventTable) -> None:
    queries = in_gaps(table, np.array([2.0, np.inf])).frame()  # a warning would be an error
    assert set(queries["sensor"]) == {"x"}
    assert queries.filter(pl.col("sample") == "a")["time"].to_list() == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert queries.filter(pl.col("sample") == "b")["time"].to_list() == [5.0]
