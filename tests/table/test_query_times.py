"""Times and durations as people write them: dates, timedeltas, "1h", arrays of any kind; and what they are not."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from raindrop import ConfigError, DataError, EventTable, Imputer, grid
from raindrop.table.queries import QueryTable

START = datetime(2024, 3, 1, 11, 20)


def dated(*, zone: Any = None, unit: Any = "hours", hours: int = 24) -> EventTable:
    """Two samples with readings every 30 minutes, from 20 minutes past eleven; one begins a week later."""
    starts = [START.replace(tzinfo=zone), START.replace(tzinfo=zone) + timedelta(days=7)]
    rows = [
        (name, start + timedelta(minutes=30 * at), sensor, float(at))
        for name, start in zip("ab", starts, strict=True)
        for at in range(2 * hours)
        for sensor in ("x", "y")
    ]
    sample, time, sensor, value = zip(*rows, strict=True)
    return EventTable.from_columns(list(sample), pl.Series(time), list(sensor), list(value), time_unit=unit)


def numbers() -> EventTable:
    times = [-3.2, 10.0, 3.0, 9.0]
    return EventTable.from_columns(["a", "a", "b", "b"], times, ["x"] * 4, [1.0] * 4, before_reference="keep")


def dates_of(queries: pl.DataFrame, table: EventTable, sample: str = "a") -> list[datetime]:
    zero = table.time_zero[list(table.ids).index(sample)]
    times = queries.filter((pl.col("sample") == sample) & (pl.col("sensor") == "x"))["time"]
    return [zero + timedelta(seconds=round(hours * 3600)) for hours in times]


# ---------------------------------------------------------------- regular times


@pytest.mark.parametrize("every", [1.0, "1h", "60m", "60min", "3600s", timedelta(hours=1), np.timedelta64(1, "h")])
@pytest.mark.parametrize("zone", [None, UTC])
def test_a_grid_of_dates_is_on_the_hour(every, zone):
    table = dated(zone=zone)
    times = dates_of(grid(table, every), table)
    assert times[0] == datetime(2024, 3, 1, 12, tzinfo=zone)
    assert times == [times[0] + timedelta(hours=at) for at in range(23)]


def test_whole_steps_count_from_midnight_of_the_first_reading():
    table = dated(hours=60)
    assert dates_of(grid(table, "5h"), table)[:3] == [datetime(2024, 3, 1, 15 + 5 * at % 24) for at in (0, 1)] + [
        datetime(2024, 3, 2, 1)
    ]
    assert dates_of(grid(table, "1d"), table, "b") == [datetime(2024, 3, day) for day in (9, 10)]
    assert dates_of(grid(dated(unit="hours"), "1h30m"), table)[0] == datetime(2024, 3, 1, 12)
    assert grid(dated(unit="minutes"), "2h")["time"][0] == pytest.approx(40.0)


def test_a_grid_of_numbers_is_at_multiples_of_the_step():
    times = grid(numbers(), 2.0).group_by("sample", maintain_order=True).agg("time")["time"].to_list()
    assert times == [[-2.0, 0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [4.0, 6.0, 8.0]]
    tenths = EventTable.from_columns(["a", "a"], [0.3, 0.7], ["x", "x"], [1.0, 2.0])
    assert grid(tenths, 0.1)["time"].to_list() == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.7])


def test_times_beyond_all_dates_still_have_a_grid():
    samples = {"sample": ["a"], "time_zero": [START]}
    table = EventTable.from_columns(["a", "a"], [4e30, 4e30 * (1 + 1e-9)], ["x", "x"], [1.0, 2.0], samples)
    assert len(grid(table, 1e21))  # a warning would be an error


def test_every_time_of_a_grid_can_be_answered():
    rng = np.random.default_rng(0)
    time = np.round(rng.uniform(0, 50, 400), 2)
    table = EventTable.from_columns(np.repeat([f"s{b}" for b in range(20)], 20), time, ["x", "y"] * 200, time)
    imputer = Imputer("linear", config={"train.holdout": 0.0}).fit(table)
    for every in (0.01, 0.1, 1 / 3, 0.7):
        assert len(imputer.readings_at(table, imputer.grid(table, every)))


def test_an_explicit_start_is_kept_as_a_number_or_as_a_date():
    table = dated()
    assert grid(table, 2.0, ["x"], start=0.25)["time"].to_list()[:2] == [0.25, 2.25]
    start = START + timedelta(minutes=7)
    for given in (start, np.datetime64(start), pd.Timestamp(start), str(start), [start, start + timedelta(days=7)]):
        queries = grid(table, "1h", ["x"], start=given, stop=[START + timedelta(hours=3), START + timedelta(days=8)])
        assert queries["time"].to_list()[:3] == [start + timedelta(hours=at) for at in range(3)]
    assert grid(table, "12h", ["x"], start=date(2024, 3, 1))["time"][0] == datetime(2024, 3, 1)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: grid(numbers(), "1h"), "every='1h': the times of the table are numbers, not dates. Give a number of"),
        (lambda: grid(numbers(), timedelta(hours=1)), "every='1:00:00': the times of the table are numbers"),
        (lambda: grid(dated(), "hourly"), "every='hourly': the time between two queries must be a positive .* '1h'"),
        (lambda: grid(dated(), timedelta(0)), "must be a positive number of hours, a timedelta, or text"),
        (lambda: grid(dated(), None), "every=None: the time between two queries"),
        (lambda: grid(dated(), np.timedelta64("NaT")), "the time between two queries"),
        (lambda: grid(numbers(), 1.0, start=START), "start holds date times, but the times of the table are numbers"),
        (lambda: grid(dated(), 1.0, stop="soon"), "stop is of type String, not a number, .* like 2024-01-31"),
        (lambda: grid(dated(), 1.0, start=START.replace(tzinfo=UTC)), "start holds date times with a time zone, but"),
        (lambda: grid(dated(), 1.0, start=[START, 5.0]), "start: not a list of times"),
        (lambda: grid(dated(), 1.0, start=[1.0, 2.0, 3.0]), "start: 3 times for 2 samples"),
    ],
)
def test_what_is_no_time_or_duration_of_the_table_is_one_sentence(ask, message):
    with pytest.raises(DataError, match=message):
        ask()


# ---------------------------------------------------------------- fill(at=...)


NOON = START + timedelta(minutes=40)


@pytest.mark.parametrize(
    "at",
    [
        NOON,
        str(NOON),
        np.datetime64(NOON, "s"),
        np.array([NOON], dtype="datetime64[s]"),
        pd.DatetimeIndex([NOON]),
        pd.Series([NOON]),
        pl.Series([NOON]),
        (NOON,),
        5.0 / 7.5,
        np.float32(2 / 3),
        np.array(2 / 3),
    ],
    ids=lambda at: type(at).__name__,
)
def test_gaps_are_filled_at_times_of_any_kind(at):
    table = dated()
    imputer = Imputer("linear", config={"train.holdout": 0.0}).fit(table)
    filled = imputer.fill(table, at=at)
    assert imputer.fill_readings(table, at).queries.time == pytest.approx(2 / 3, abs=1e-6)
    assert filled.num_readings == table.num_readings + (2 if "2024" in str(at) else 4)


def test_times_with_a_zone_are_read_in_utc():
    table = dated(zone=UTC)
    imputer = Imputer("linear", config={"train.holdout": 0.0}).fit(table)
    at = pd.DatetimeIndex([NOON + timedelta(hours=1)], tz="Europe/Berlin")  # one hour ahead of UTC in March
    assert imputer.fill_readings(table, at).queries.time == pytest.approx(2 / 3)


@pytest.mark.parametrize("at", [[NOON, 5.0], [object()], [[1.0], [2.0, 3.0]]])
def test_a_list_that_is_not_of_times_is_one_sentence(at):
    table = dated()
    with pytest.raises(DataError, match=r"^at: .*list of times"):
        Imputer("linear", config={"train.holdout": 0.0}).fit(table).fill(table, at=at)


# ---------------------------------------------------------------- messages


def test_a_missing_time_is_no_text_and_a_missing_sensor_is_missing():
    table = dated()
    asked = pl.DataFrame({"sample": ["a", "a"], "time": ["NaN", "2.5"], "sensor": ["x", "y"]})
    with pytest.raises(DataError, match=r"1 of 2 rows have no finite time \(first: row 1\)"):
        QueryTable.from_frame(table, asked)
    assert QueryTable.from_frame(table, asked[1:]).time.tolist() == [2.5]
    with pytest.raises(DataError, match=r"in 1 of 2 rows \(first: row 2, 'noon'\)"):
        QueryTable.from_frame(table, asked.with_columns(time=pl.Series(["1", "noon"])))
    with pytest.raises(DataError, match=r"queries: the sensor of 1 of 2 rows is missing \(first: row 2\)"):
        QueryTable.from_frame(table, asked.with_columns(sensor=pl.Series(["x", None])))


def test_a_query_by_date_is_named_by_its_date():
    table = dated()
    imputer = Imputer("linear", config={"train.holdout": 0.0}).fit(table)
    for time, message in (
        (START - timedelta(days=1), "before the first reading of their sample .* time 2024-02-29 11:20:00"),
        (START + timedelta(days=9), "after the last reading of their sample .* time 2024-03-10 11:20:00.* Forecaster"),
    ):
        with pytest.raises(DataError, match=message) as raised:
            imputer.readings_at(table, {"sample": ["a"], "time": [time], "sensor": ["x"]})
        assert ("Forecaster" in str(raised.value)) == (time > START)


@pytest.mark.parametrize("coverage", [1.5, 0.0, 1.0, float("nan"), "much", None])
def test_a_coverage_is_a_share_even_without_intervals(coverage):
    table = dated()
    imputer = Imputer("linear", config={"train.holdout": 0.0}).fit(table)
    queries = {"sample": ["a"], "time": [5.2], "sensor": ["x"]}
    for ask in (
        lambda: imputer.readings_at(table, queries, coverage=coverage),
        lambda: imputer.fill_readings(table, coverage=coverage),
        lambda: list(imputer.grid_blocks(table, 1.0, coverage=coverage)),
    ):
        with pytest.raises(ConfigError, match=r"coverage=.*above 0 and below 1, such as 0\.9"):
            ask()
