"""Requests of plain numbers are read by a shorter way than others, to the same table."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import polars as pl

from raindrop import EventTable
from raindrop.batch.scaling import Scaler
from raindrop.serve.limits import Limits
from raindrop.serve.messages import Columns, Job
from raindrop.serve.tables import quick_table, table_of

SCALER = Scaler.fit(EventTable.from_columns(["a"] * 4, [0.0, 1, 2, 3], ["x", "y"] * 2, [1.0, 2.0, 3.0, 5.0]))


def test_a_request_with_dates_is_not_read_by_the_way_that_knows_numbers_only():
    readings = Columns(sample=["a", "a"], time=[0.0, 1.5], sensor=["x", "y"], value=[1.0, 2.0])
    assert quick_table(readings, {"sample": ["a"]}, SCALER, "hours") is not None
    samples = {"sample": ["a"], "time_zero": ["2026-01-01T05:30:00"]}
    assert quick_table(readings, samples, SCALER, "hours") is None
    table = table_of(Job(1, "readings", readings=readings, samples=samples), SCALER, "hours", Limits())
    assert table.time_zero.to_list() == [datetime(2026, 1, 1, 5, 30)]
    assert np.asarray(table.time).tolist() == [0.0, 1.5]
    assert isinstance(table.samples, pl.DataFrame)
