"""Reasons why graphs of readings at the same time have no edges."""

from __future__ import annotations

import numpy as np

from raindrop import EventTable
from raindrop.graphs.empty import no_shared_times_reason


def table(*readings: tuple[str, float, str]) -> EventTable:
    sample, time, sensor = zip(*readings, strict=True)
    return EventTable.from_columns(sample, time, sensor, np.ones(len(readings)))


def test_two_sensors_read_at_the_same_time_of_a_sample_give_no_reason():
    assert no_shared_times_reason(table(("s", 1.0, "a"), ("s", 2.0, "a"), ("s", 2.0, "b"))) == ""


def test_sensors_that_never_share_a_time_are_the_reason():
    apart = table(("s", 1.0, "a"), ("s", 2.0, "b"), ("t", 2.0, "a"), ("t", 3.0, "b"))
    assert no_shared_times_reason(apart) == "no two sensors are ever read at the same time"


def test_a_few_shared_times_are_chance_and_a_reason_too():
    shared = [("s", 1.0, "a"), ("s", 1.0, "b")]
    apart = [("s", 2.0 + at, "ab"[at % 2]) for at in range(398)]
    assert no_shared_times_reason(table(*shared, *apart)) == (
        "only 2 of 400 readings have another sensor's at the same time"
    )
    assert no_shared_times_reason(table(*shared, *apart[:198])) == ""  # 1 %


def test_the_same_time_in_different_samples_is_not_shared():
    apart = table(("s", 2.0, "a"), ("t", 2.0, "b"))
    assert no_shared_times_reason(apart) == "no two sensors are ever read at the same time"


def test_a_single_sensor_and_a_table_without_readings_have_reasons_of_their_own():
    one = table(("s", 1.0, "a"), ("s", 2.0, "a"))
    assert no_shared_times_reason(one) == "the table has only one sensor"
    both = table(("s", 1.0, "a"), ("s", 1.0, "b"))
    nothing = both.where(lambda events: np.zeros(len(events), dtype=bool))
    assert no_shared_times_reason(nothing) == "the samples have no readings"
