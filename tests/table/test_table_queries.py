"""Queries: bad ones get one clear sentence; regular, listed and missing times equal loops over the samples."""

from __future__ import annotations

import datetime
import math
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from refusal import refused

from raindrop.table import queries
from raindrop.table.event_table import EventTable
from raindrop.table.queries import OUTAGE, QueryTable, at_times, grid, in_gaps, spans

SENSORS = ("heart rate", "pressure", "oxygen")


@pytest.fixture
def table() -> EventTable:
    """Hourly heart rates with gaps, one pressure, no oxygen in p1; p2 has one reading, p3 none."""
    rows = [("p1", float(hour), "heart rate", 80.0 + hour) for hour in (0, 1, 2, 6, 7, 9)]
    rows += [("p1", 4.0, "pressure", 120.0), ("p2", 5.5, "oxygen", 97.0)]
    rows += [("p4", 1e5 + hour / 2, name, 1.0) for hour in range(8) for name in SENSORS[1:]]
    samples = {"sample": ["p1", "p2", "p3", "p4"]}
    return EventTable.from_columns(*zip(*rows, strict=True), samples, sensors=SENSORS)


def ask(table: EventTable, **columns: list) -> QueryTable:
    default = {"sample": ["p1", "p1", "p4"], "time": [0.5, 3.0, 1e5], "sensor": ["oxygen", "heart rate", "pressure"]}
    return QueryTable.from_frame(table, default | columns)


# ---------------------------------------------------------------- a frame of queries


def test_a_frame_of_queries_becomes_positions_and_comes_back(table):
    asked = ask(table)
    assert (asked.sample.tolist(), asked.sensor.tolist()) == ([0, 0, 3], [2, 0, 1])
    assert asked.time.tolist() == [0.5, 3.0, 1e5]
    assert asked.frame().rows() == [("p1", 0.5, "oxygen"), ("p1", 3.0, "heart rate"), ("p4", 1e5, "pressure")]
    for kind in (pl.DataFrame, lambda columns: pl.DataFrame(columns).to_pandas(), lambda c: pl.DataFrame(c).to_arrow()):
        again = QueryTable.from_frame(table, kind(asked.frame().to_dict(as_series=False)))
        assert again.frame().equals(asked.frame())
    assert len(ask(table, time=[1, 2, 3])) == 3  # whole numbers are times too


BAD = {
    "unknown sensor": (
        {"sensor": ["oxygen", "haert rate", "pressure"]},
        "queries: the sensor of 1 of 3 rows is not a sensor of the table (first: row 2, 'haert rate'): "
        "did you mean 'heart rate'?",
    ),
    "unknown sample": (
        {"sample": ["p1", "q7", "q8"]},
        "queries: the sample of 2 of 3 rows is not in the table (first: row 2, 'q7'): "
        "there are: 'p1', 'p2', 'p3', 'p4'.",
    ),
    "no sensor": (
        {"sensor": ["oxygen", None, "pressure"]},
        "queries: the sensor of 1 of 3 rows is missing (first: row 2). Fill it in, or leave these rows out.",
    ),
    "NaN time": ({"time": [1.0, float("nan"), 2.0]}, "queries: 1 of 3 rows have no finite time (first: row 2)."),
    "no time": ({"time": [1.0, 2.0, None]}, "queries: 1 of 3 rows have no finite time (first: row 3)."),
    "infinite time": ({"time": [float("inf"), -float("inf"), 2.0]}, "2 of 3 rows have no finite time (first: row 1)."),
    "text time": (
        {"time": ["0.5", "noon", "2"]},
        "queries: 'time' is of type String, not a number, in 1 of 3 rows (first: row 2, 'noon'). "
        "Times are hours on the clock of the table's own readings.",
    ),
    "date time": (
        {"time": [datetime.datetime(2024, 1, d) for d in (1, 2, 3)]},
        "queries: 'time' holds date times, but the",
    ),
    "duplicates": (
        {"sample": ["p1"] * 3, "sensor": ["pressure"] * 3, "time": [2.0, 1.0, 2.0]},
        "queries: 1 of 3 rows repeat another one (first: row 3, sample 'p1', sensor 'pressure', time 2). "
        "Ask for each reading once.",
    ),
    "none": (
        {"sample": [], "sensor": [], "time": []},
        "There are no queries. Give at least one row of (sample, time, sensor).",
    ),
}


@pytest.mark.parametrize(("columns", "message"), BAD.values(), ids=BAD)
def test_each_bad_query_gets_its_sentence(table, columns, message):
    assert message in refused(ask, table, **columns)


def test_a_missing_column_is_named(table):
    assert "sensor" in refused(QueryTable.from_frame, table, {"sample": ["p1"], "time": [1.0]})


def test_a_query_that_cannot_be_answered_is_described(table):
    message = refused(ask(table).require, np.array([True, False, False]), "lie in the past", "Ask for others.")
    assert message == (
        "queries: 2 of 3 rows lie in the past (first: row 2, sample 'p1', sensor 'heart rate', time 3). Ask for others."
    )
    ask(table).require(np.ones(3, dtype=bool), "lie in the past", "Ask for others.")


# ---------------------------------------------------------------- regular and listed times


@pytest.mark.parametrize("every", [0.5, 1.0, 4.0, 100.0, 0.3])
@pytest.mark.parametrize("sensors", [None, ["oxygen", "heart rate"]])
def test_a_grid_asks_at_multiples_of_the_step_from_the_first_reading_to_the_last(table, every, sensors):
    expected = []
    for name, (start, last) in {"p1": (0.0, 9.0), "p2": (5.5, 5.5), "p4": (1e5, 1e5 + 3.5)}.items():
        at, first = 0, max(start, math.ceil(start / every - 1e-9) * every)
        while first + at * every <= last + 1e-9 * every:
            expected += [(name, first + at * every, sensor) for sensor in sensors or SENSORS]
            at += 1
    found = grid(table, every, sensors)
    assert found.rows() == expected
    assert len(QueryTable.from_frame(table, found)) == len(expected)


@pytest.mark.parametrize("every", [0.0, -1.0, float("nan"), float("inf")])
def test_a_grid_needs_a_positive_time_between_queries(table, every):
    assert refused(grid, table, every).endswith("the time between two queries must be a positive number of hours.")


def test_a_grid_of_an_unknown_sensor_is_an_error(table):
    assert "did you mean 'oxygen'" in refused(grid, table, 1.0, ["oxigen"])


def test_listed_times_are_asked_of_the_named_sensors_of_the_samples_they_lie_within(table):
    asked = at_times(table, [7.0, 2, 7.0, 5.5], SENSORS[:2])
    times = {"p1": (2.0, 5.5, 7.0), "p2": (5.5,)}  # p4 starts much later, p3 has no reading
    assert asked.frame().rows() == [
        (name, time, sensor) for name in times for time in times[name] for sensor in SENSORS[:2]
    ]
    assert at_times(table, np.array([[2.0], [7.0], [5.5]]), SENSORS[:2]).frame().equals(asked.frame())


def test_listed_times_must_be_finite_numbers_and_at_least_one_within_a_sample(table):
    assert "no queries" in refused(at_times, table, [], SENSORS)
    assert "no queries" in refused(at_times, table[:0], [1.0], SENSORS)
    assert "none of the times lies within a sample" in refused(at_times, table, [50.0], SENSORS)
    assert "not a number" in refused(at_times, table, ["noon"], SENSORS)
    assert "no finite time (first: row 2)" in refused(at_times, table, [1.0, float("nan")], SENSORS)


def test_too_many_queries_are_refused_before_they_are_made(table, monkeypatch):
    monkeypatch.setattr(queries, "MAX_QUERIES", 10)
    sentence = "queries, more than 10. Ask for fewer times, sensors or samples."
    assert refused(at_times, table, [1.0, 2.0, 3.0, 4.0], SENSORS) == f"That would be 12 {sentence}"
    assert refused(grid, table, 1.0) == f"That would be {3 * (10 + 0 + 4)} {sentence}"  # 5.5 is no hour
    assert sentence in refused(in_gaps, table, np.full(3, 0.01))
    monkeypatch.undo()
    assert "more than 50,000,000" in refused(grid, table, 1e-9)  # without filling the memory first


# ---------------------------------------------------------------- gaps


def loop_over_gaps(table: EventTable, interval: list[float]) -> list[tuple[str, float, str]]:
    """In each pause longer than OUTAGE intervals, readings at equal distances of about an interval.

    The sample's ends count as pauses too: as if there were a reading an interval before and an interval after.
    """
    found, events = [], table.events()
    for sample in table.ids:
        own = events.filter(pl.col("sample") == sample)
        if not len(own):
            continue
        first, last = own["time"].min(), own["time"].max()
        for sensor, width in zip(table.sensors, interval, strict=True):
            times = own.filter(pl.col("sensor") == sensor)["time"].to_list()
            times = [first - width, *times, last + width]
            for one, other in pairwise(times):
                steps = (other - one) / width
                pieces = round(steps) if steps > OUTAGE else 1
                found += [(sample, one + (other - one) * at / pieces, sensor) for at in range(1, pieces)]
    return [row for row in found if spans_of(table, row[0])[0] - 1e-6 <= row[1] <= spans_of(table, row[0])[1] + 1e-6]


def spans_of(table: EventTable, sample: str) -> tuple[float, float]:
    times = table.events().filter(pl.col("sample") == sample)["time"]
    return times.min(), times.max()


def same_queries(found: QueryTable, expected: list[tuple[str, float, str]]) -> bool:
    rows = sorted(found.frame().rows(), key=lambda row: (row[0], row[2], row[1]))
    expected = sorted(expected, key=lambda row: (row[0], row[2], row[1]))
    assert [(sample, sensor) for sample, _, sensor in rows] == [(sample, sensor) for sample, _, sensor in expected]
    np.testing.assert_allclose([row[1] for row in rows], [row[1] for row in expected], rtol=1e-12)
    return True


@pytest.mark.parametrize("interval", [[1.0, 1.0, 1.0], [1.0, 4.0, 0.5], [2.5, 0.7, 30.0]])
def test_gaps_are_asked_for_at_the_typical_interval_of_each_sensor(table, interval):
    assert same_queries(in_gaps(table, np.array(interval)), loop_over_gaps(table, interval))


@pytest.mark.slow
def test_gaps_of_a_random_table_equal_the_loop(make_table):
    table = make_table(samples=9, sensors=4, times=20, observed=0.6)
    interval = [1.0, 2.5, 6.0, 0.4]
    assert same_queries(in_gaps(table, np.array(interval)), loop_over_gaps(table, interval))


def test_the_gaps_of_a_small_series_are_these(table):
    asked = in_gaps(table[["p1"]], np.array([1.0, 3.0, 3.0])).frame()
    times = {name: asked.filter(pl.col("sensor") == name)["time"].to_list() for name in SENSORS}
    assert times["heart rate"] == [3.0, 4.0, 5.0, 8.0]
    assert times["pressure"] == pytest.approx([0.5, 20 / 3])  # -3 to 4 and 4 to 12, in steps of about 3
    assert times["oxygen"] == pytest.approx([0.0, 3.0, 6.0, 9.0])  # never read in this sample
    alone = in_gaps(table[["p2"]], np.array([1.0, 3.0, 3.0])).frame()
    assert alone.rows() == [("p2", 5.5, "heart rate"), ("p2", 5.5, "pressure")]
    assert len(in_gaps(table[["p3"]], np.ones(3))) == 0


def test_gaps_at_both_ends_lie_within_the_sample_even_in_unix_seconds():
    rows = [("a", 1.7e9 + second / 7, "x", 1.0) for second in range(50)] + [("a", 1.7e9 + 3.1, "y", 1.0)]
    table = EventTable.from_columns(*zip(*rows, strict=True), time_unit="seconds")
    asked = in_gaps(table, np.array([1 / 7, 1 / 7]))
    assert same_queries(asked, loop_over_gaps(table, [1 / 7, 1 / 7]))
    assert len(asked) > 40
    first, last = spans(table)
    assert ((asked.time >= first - 1e-6) & (asked.time <= last + 1e-6)).all()


def test_a_sensor_without_a_typical_interval_is_never_asked_for(table):
    asked = in_gaps(table, np.array([1.0, np.inf, 1.0]))
    assert set(asked.frame()["sensor"]) == {"heart rate", "oxygen"}


def test_spans_are_the_first_and_last_times_of_samples_in_any_order(table):
    first, last = spans(table[["p4", "p3", "p1"]])
    assert first.tolist() == [1e5, 0.0, 0.0]
    assert last.tolist() == [1e5 + 3.5, 0.0, 9.0]
