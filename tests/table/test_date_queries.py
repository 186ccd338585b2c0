"""Queries by date time: of tables that were built from date times, and answered in date times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from raindrop import DataError, EventTable
from raindrop.estimators import Imputer
from raindrop.table.queries import QueryTable, at_times

NOON = datetime(2024, 3, 1, 12, 0)


def dated(*, zone: Any = None, unit: str = "hours", **options: Any) -> EventTable:
    """Two samples with readings every 30 minutes for a day; one starts at noon, the other a week later."""
    starts = [NOON.replace(tzinfo=zone), NOON.replace(tzinfo=zone) + timedelta(days=7)]
    rows = [
        (name, start + timedelta(minutes=30 * at), sensor, float(at))
        for name, start in zip("ab", starts, strict=True)
        for at in range(48)
        for sensor in ("x", "y")
    ]
    sample, time, sensor, value = zip(*rows, strict=True)
    return EventTable.from_columns(list(sample), pl.Series(time), list(sensor), list(value), time_unit=unit, **options)


def frame(*rows: tuple[str, Any, str]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["sample", "time", "sensor"], orient="row")


@pytest.mark.parametrize("unit", ["minutes", "hours", "days"])
@pytest.mark.parametrize("zone", [None, UTC])
def test_date_times_are_counted_from_the_first_reading_of_their_sample_and_come_back(unit, zone):
    table = dated(zone=zone, unit=unit)
    asked = frame(
        ("b", NOON.replace(tzinfo=zone) + timedelta(days=7, hours=3, microseconds=7), "x"),
        ("a", NOON.replace(tzinfo=zone), "y"),
    )
    queries = QueryTable.from_frame(table, asked)
    hours = {"minutes": 60.0, "hours": 1.0, "days": 1 / 24}[unit]
    assert queries.time == pytest.approx([3 * hours, 0.0], abs=1e-6)
    assert queries.frame()["time"].to_list() == asked["time"].to_list()
    assert QueryTable.from_frame(table, queries.frame()).time.tolist() == queries.time.tolist()


def test_every_reading_is_found_by_its_date_time():
    """A query at the date time of a reading has exactly the number that the reading has."""
    table = dated(unit="days")
    times = [NOON + timedelta(minutes=30 * at) for at in range(48)]
    queries = QueryTable.from_frame(table, frame(*(("a", time, "x") for time in times)))
    assert queries.time.tolist() == table[["a"]].where(pl.col("sensor") == "x").time.tolist()


def test_dates_may_be_text_and_numbers_stay_numbers():
    table = dated()
    assert QueryTable.from_frame(table, frame(("a", "2024-03-01 13:30:00", "x"))).time.tolist() == [1.5]
    numbers = QueryTable.from_frame(table, frame(("a", 1.5, "x")))
    assert numbers.frame()["time"].to_list() == [1.5]
    assert numbers.with_dates().frame()["time"].to_list() == [NOON + timedelta(minutes=90)]


def test_times_count_from_the_reference_if_there_is_one():
    table = dated(
        samples=pl.DataFrame({"sample": ["a", "b"], "admitted": [NOON - timedelta(hours=2)] * 2}), reference="admitted"
    )
    assert QueryTable.from_frame(table, frame(("b", NOON, "x"))).time.tolist() == [2.0]
    assert table.time_zero.to_list() == [NOON - timedelta(hours=2)] * 2


def test_the_date_is_kept_when_a_table_is_written_selected_and_rebuilt(tmp_path):
    table = dated()
    table.write(tmp_path / "table")
    for opened in (EventTable.read(tmp_path / "table"), EventTable.read(tmp_path / "table", duplicates="last")):
        assert QueryTable.from_frame(opened[["b"]], frame(("b", NOON + timedelta(days=7), "x"))).time.tolist() == [0.0]
    numbers = table.in_unit("minutes")
    assert QueryTable.from_frame(numbers, frame(("a", NOON + timedelta(hours=1), "x"))).time.tolist() == [60.0]


def test_numbers_with_a_column_of_dates_they_count_from_can_be_asked_by_date():
    samples = {"sample": ["a"], "time_zero": ["2024-03-01 12:00"]}
    table = EventTable.from_columns(["a", "a"], [0.0, 2.0], ["x", "x"], [1.0, 2.0], samples)
    assert QueryTable.from_frame(table, frame(("a", NOON + timedelta(hours=1), "x"))).time.tolist() == [1.0]
    samples["time_zero"] = ["noon"]
    with pytest.raises(DataError, match="samples: column 'time_zero' holds text where a time belongs"):
        EventTable.from_columns(["a", "a"], [0.0, 2.0], ["x", "x"], [1.0, 2.0], samples)
    samples["time_zero"] = [7.0]
    with pytest.raises(DataError, match=r"column 'time_zero' holds numbers\. It is the date time that the times of a"):
        EventTable.from_columns(["a", "a"], [0.0, 2.0], ["x", "x"], [1.0, 2.0], samples)


def test_dates_that_cannot_be_understood_get_one_sentence():
    plain = EventTable.from_columns(["a", "a"], [0.0, 2.0], ["x", "x"], [1.0, 2.0])
    assert plain.time_zero is None
    with pytest.raises(DataError, match=r"'time' holds date times, but the times of the table are numbers\. Times are"):
        QueryTable.from_frame(plain, frame(("a", NOON, "x")))
    with pytest.raises(DataError, match="holds date times with a time zone, but the table was built from date times w"):
        QueryTable.from_frame(dated(), frame(("a", NOON.replace(tzinfo=UTC), "x")))
    with pytest.raises(DataError, match="1 of 2 rows have no finite time"):
        QueryTable.from_frame(dated(), frame(("a", NOON, "x"), ("a", None, "x")))


@pytest.mark.parametrize("kind", [list, np.array, pl.Series])
def test_one_date_for_all_samples_is_asked_of_those_that_cover_it(kind):
    table = dated()
    queries = at_times(table, kind([NOON + timedelta(hours=1), NOON + timedelta(days=7, hours=2)]), ["x"])
    assert queries.sample.tolist() == [0, 1]
    assert queries.time.tolist() == [1.0, 2.0]
    assert queries.frame()["time"].to_list() == [NOON + timedelta(hours=1), NOON + timedelta(days=7, hours=2)]


def test_an_imputer_answers_dates_with_dates_and_the_same_values_as_numbers(tmp_path):
    table = dated()
    imputer = Imputer("linear", config={"train.holdout": 0.0}).fit(table)
    by_date = imputer.readings_at(table, frame(("b", NOON + timedelta(days=7, minutes=45), "x")))
    by_number = imputer.readings_at(table, frame(("b", 0.75, "x")))
    assert by_date.value.tolist() == by_number.value.tolist() == pytest.approx([1.5])
    assert by_date.frame()["time"].to_list() == [NOON + timedelta(days=7, minutes=45)]
    back = pl.read_parquet(by_number.with_dates().write(tmp_path / "readings.parquet"))
    assert back["time"].to_list() == by_date.frame()["time"].to_list()
    assert imputer.fill(table, at=[NOON + timedelta(minutes=45)]).num_readings == table.num_readings + 2
