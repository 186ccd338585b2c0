"""Building a table: the same readings in the same order, whatever they are built from."""

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hand_made import EVENTS, MIDNIGHT, SAMPLES, SORTED, hours, is_same, write_folder
from refusal import write_csv

from raindrop.table.event_table import EventTable

# ---------------------------------------------------------------- building


@pytest.mark.parametrize(
    "kind",
    [
        dict,
        pl.DataFrame,
        pl.LazyFrame,
        pd.DataFrame,
        pa.table,
        lambda columns: pd.DataFrame(columns).astype({"sample": "category"}),
        lambda columns: pl.DataFrame(columns).to_dicts(),
        lambda columns: pa.table(columns).to_reader(),
    ],
    ids=["mapping", "polars", "lazy", "pandas", "arrow", "pandas categories", "records", "arrow reader"],
)
def test_every_kind_of_frame_gives_the_same_sorted_table(kind, table):
    built = EventTable.from_frames(kind(EVENTS), kind(SAMPLES), statics=["age"])
    assert built.events().rows() == SORTED
    assert is_same(built, table)


@pytest.mark.slow
def test_a_relation_of_duckdb_gives_the_same_table(table):
    script = f"""
import duckdb, pyarrow
from raindrop import EventTable
events, samples = pyarrow.table({EVENTS!r}), pyarrow.table({SAMPLES!r})
relation = duckdb.sql("select * from events where value is not null")
print(EventTable.from_frames(relation, duckdb.sql("select * from samples"), statics=["age"]).fingerprint)
"""  # in a process of its own: duckdb 2.0 writes about leaks when a process ends
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == table.fingerprint, done.stderr


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_folder_gives_the_same_table(kind, table, tmp_path):
    folder = write_folder(tmp_path / "data", EVENTS, SAMPLES, kind)
    assert is_same(EventTable.read(folder, statics=["age"]), table)
    assert is_same(EventTable.read(str(folder), statics=["age"]), table)


def test_plain_columns_give_the_same_table(table):
    columns = [np.array(EVENTS[name]) for name in ("sample", "time", "sensor", "value")]
    assert is_same(EventTable.from_columns(*columns, SAMPLES, statics=["age"]), table)
    assert EventTable.from_columns(["a"], (0,), pd.Series(["HR"]), pl.Series([1])).events().rows() == [
        ("a", 0, "HR", 1)
    ]


def test_without_a_samples_table_samples_come_in_order_of_appearance():
    table = EventTable.from_frames(EVENTS)
    assert table.ids == ["b", "a"]
    assert table.roles.label is None


def test_the_given_frames_are_not_modified():
    events, samples = pl.DataFrame(EVENTS), pl.DataFrame(SAMPLES)
    EventTable.from_frames(events, samples)
    assert events.equals(pl.DataFrame(EVENTS))
    assert samples.equals(pl.DataFrame(SAMPLES))


def test_columns_may_have_any_name(table):
    events = pl.DataFrame(EVENTS).rename({"sample": "pid", "time": "t", "sensor": "item", "value": "x"})
    samples = pl.DataFrame(SAMPLES).rename({"sample": "pid", "label": "died"})
    built = EventTable.from_frames(
        events, samples, sample="pid", time="t", sensor="item", value="x", label="died", statics=["age"]
    )
    assert built.events().equals(table.events())
    assert built.samples.columns == ["sample", "died", "age"]
    assert built.labels.tolist() == ["no", "yes", "no"]


def test_statics_must_be_named_and_an_empty_label_name_means_no_label():
    assert EventTable.from_frames(EVENTS, SAMPLES).roles.statics == ()
    assert EventTable.from_frames(EVENTS, SAMPLES).roles.label == "label"
    assert EventTable.from_frames(EVENTS, SAMPLES, label="").roles.label is None


def test_other_columns_of_the_samples_are_kept():
    odd = {**SAMPLES, "list": [[1], [2], []], "when": hours(1, 2, 3), "paid": [Decimal("1.5")] * 3}
    assert EventTable.from_frames(EVENTS, odd).samples.columns == list(odd)


@pytest.mark.parametrize("ids", [[1, 2], [1.0, 2.0], ["1", "2"], pl.Series(["1", "2"], dtype=pl.Categorical)])
def test_ids_become_text_whatever_their_type(ids):
    events = {"sample": ids, "time": [0, 0], "sensor": ids, "value": [1, 2]}
    table = EventTable.from_frames(events, {"sample": ["2", "1"]})
    assert table.events().rows() == [("2", 0.0, "2", 2.0), ("1", 0.0, "1", 1.0)]


def test_ids_keep_their_leading_zeros_in_a_csv(tmp_path):
    write_csv(tmp_path, "sample,time,sensor,value\n007,0,01,1\n", "sample,label\n007,1\n")
    assert EventTable.read(tmp_path).events().rows() == [("007", 0.0, "01", 1.0)]


def test_fractions_and_large_numbers_can_be_ids():
    assert EventTable.from_columns([1.5, 17.0], [0, 0], ["x"] * 2, [1, 2]).ids == ["1.5", "17"]
    large = [2**53 + 1, 2**53 + 2]
    assert EventTable.from_columns(large, [0, 0], ["x"] * 2, [1, 2]).ids == [str(number) for number in large]


def test_numbers_written_as_text_are_parsed(tmp_path):
    write_csv(tmp_path, "sample,time,sensor,value\na, 1.5 ,HR, 2e0\n")
    assert EventTable.read(tmp_path).events().rows() == [("a", 1.5, "HR", 2.0)]


def test_sensors_may_be_listed_in_any_order_with_some_that_have_no_reading():
    table = EventTable.from_frames(EVENTS, sensors=["T", "SpO2", "HR"])
    assert table.sensors == ("T", "SpO2", "HR")
    assert table.events().rows()[2:4] == [("a", 0.0, "HR", 1.0), ("a", 1.5, "T", 3.0)]  # T before HR now


def test_a_folder_may_have_brackets_in_its_name(tmp_path):
    assert len(EventTable.read(write_folder(tmp_path / "data[1]*", EVENTS))) == 2


# ---------------------------------------------------------------- times


def dated(numbers, **options):
    events = {"sample": ["a"] * len(numbers), "time": hours(*numbers), "sensor": ["HR"] * len(numbers)}
    return EventTable.from_frames({**events, "value": range(len(numbers))}, **options)


def test_date_times_become_hours_since_the_first_reading():
    assert dated([7, 5, 6.5]).time.tolist() == [0.0, 1.5, 2.0]
    assert dated([7, 5, 6.5]).time_unit == "hours"


def test_date_times_become_hours_since_the_reference():
    samples = {"sample": ["a"], "admitted": hours(4)}
    assert dated([7, 5, 6.5], samples=samples, reference="admitted").time.tolist() == [1.0, 2.5, 3.0]
    samples = {"sample": ["a"], "reference": [MIDNIGHT.date()]}
    assert dated([7, 5, 6.5], samples=samples).time.tolist() == [5.0, 6.5, 7.0]


def test_date_times_are_converted_to_the_requested_time_unit():
    table = dated([7, 5, 6.5], time_unit="minutes")
    assert table.time.tolist() == [0.0, 90.0, 120.0]
    assert table.time_unit == "minutes"


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_date_times_of_every_precision_are_read(unit):
    events = {"sample": ["a", "a"], "sensor": ["x", "x"], "value": [1, 2]}
    time = pl.Series(hours(1, 2.5), dtype=pl.Datetime(unit))
    assert EventTable.from_frames({**events, "time": time}).time.tolist() == [0.0, 1.5]
    assert EventTable.from_frames({**events, "time": time - MIDNIGHT}).time.tolist() == [1.0, 2.5]


def test_time_zones_are_taken_into_account():
    local = pd.to_datetime(["2024-03-31 00:00", "2024-03-31 04:00"]).tz_localize("Europe/Paris")  # the clocks change
    frame = pd.DataFrame({"sample": ["a"] * 2, "time": local, "sensor": ["x"] * 2, "value": [1, 2]})
    assert EventTable.from_frames(frame).time.tolist() == [0.0, 3.0]
    start = pd.DataFrame({"sample": ["a"], "reference": pd.to_datetime(["2024-03-30 22:00"]).tz_localize("UTC")})
    assert EventTable.from_frames(frame, start).time.tolist() == [1.0, 4.0]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("0.5", "2", 1.5),
        ("2024-01-31 08:15", "2024-01-31 09:45", 1.5),
        ("2024-01-31 08:15:00", "2024-01-31 08:15:00.900", 0.00025),
        ("2024-01-31T08:15:00", "2024-02-01T08:15:00", 24.0),
        ("2024-01-31", "2024-02-02", 48.0),
        ("2024-01-31T08:15:00Z", "2024-01-31T10:15:00Z", 2.0),
        ("2024-01-31T08:15:00+01:00", "2024-01-31T08:15:00-01:00", 2.0),
        (" 2024-01-31 08:15:00", "2024-01-31 08:45:00 ", 0.5),
    ],
)
def test_times_in_a_csv_are_numbers_or_date_times(tmp_path, first, second, expected):
    write_csv(tmp_path, f"sample,time,sensor,value\na,{second},x,2\na,{first},x,1\n")
    time = EventTable.read(tmp_path).time
    assert time[1] - time[0] == pytest.approx(expected)


def test_date_times_in_samples_csv_are_parsed_like_those_in_events_csv(tmp_path):
    write_csv(
        tmp_path,
        "sample,time,sensor,value\na,2024-01-31T08:00:00Z,x,1\na,2024-01-31T09:00:00Z,x,2\n",
        "sample,reference,cutoff\na,2024-01-31T08:30:00+01:00,2024-01-31T08:00:00Z\n",
    )
    table = EventTable.read(tmp_path)
    assert table.time.tolist() == [0.5]
    assert table.dropped == {"after the cutoff": 1}


def test_numeric_times_count_from_the_reference_too():
    table = EventTable.from_frames(EVENTS, {"sample": ["a", "b"], "reference": [0, 0.5]})
    assert table.time.tolist() == [0.0, 1.5, 1.5, 0.0, 1.5]


def test_numeric_times_are_in_the_given_time_unit(table):
    assert table.time_unit == "hours"
    assert EventTable.from_frames(EVENTS, time_unit="days").time_unit == "days"
    assert EventTable.from_frames(EVENTS, time_unit="days").time.max() == 2.0


def test_in_unit_converts_times_and_cutoffs_and_nothing_else():
    table = EventTable.from_frames(EVENTS, {**SAMPLES, "cutoff": [1.0, None, 3.0]})
    minutes = table.in_unit("minutes")
    assert minutes.time.tolist() == [0.0, 30.0, 120.0]
    assert minutes.samples["cutoff"].to_list() == [60.0, None, 180.0]
    assert minutes.in_unit("hours").time.tolist() == table.time.tolist()
    assert minutes.time_unit == "minutes"
    assert table.in_unit("hours") is table
    assert table.time_unit == "hours"


def test_a_reading_exactly_at_the_cutoff_is_kept_and_a_later_one_is_dropped():
    table = EventTable.from_frames(EVENTS, {"sample": ["a", "b"], "stop": [1.5, 0.5]}, cutoff="stop")
    assert table.events().rows() == SORTED[:4]
    assert table.dropped == {"after the cutoff": 1}


def test_a_cutoff_may_be_a_date_time_if_the_times_are():
    samples = {"sample": ["a"], "cutoff": hours(6.5)}
    table = dated([7, 5, 6.5], samples=samples)
    assert table.time.tolist() == [0.0, 1.5]
    assert table.samples["cutoff"].to_list() == [1.5]


def test_a_cutoff_counts_from_the_reference():
    samples = {"sample": ["a"], "reference": hours(4), "cutoff": hours(6.5)}
    assert dated([7, 5, 6.5], samples=samples).time.tolist() == [1.0, 2.5]
    numbers = EventTable.from_frames(EVENTS, {"sample": ["a", "b"], "reference": [0, 0.5], "cutoff": [1.5, 1.9]})
    assert numbers.events().rows() == [*SORTED[:3], ("b", 0.0, "T", 4.0)]


def test_a_cutoff_may_be_a_duration_and_may_be_missing():
    half = {"sample": ["a", "b"], "cutoff": [dt.timedelta(minutes=30), None]}
    assert EventTable.from_frames(EVENTS, half).count.tolist() == [1, 2]
    assert EventTable.from_frames(EVENTS, half, time_unit="minutes").count.tolist() == [3, 2]
    assert EventTable.from_frames(EVENTS, {"sample": ["a", "b"], "cutoff": [None, None]}).num_readings == 5
    assert dated([1, 2], samples={"sample": ["a"], "cutoff": [None]}).num_readings == 2
    assert EventTable.from_frames(EVENTS, {"sample": ["a", "b"], "cutoff": [np.nan, 1.0]}).count.tolist() == [3, 1]


# ---------------------------------------------------------------- labels and other columns


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([0, 1, 1], [0, 1, 1]),
        ([True, False, True], [True, False, True]),
        (["no", "yes", "no"], ["no", "yes", "no"]),
        ([0.0, 1.0, 0.0], [0, 1, 0]),
        (pl.Series(["no", "yes", "no"], dtype=pl.Categorical), ["no", "yes", "no"]),
        (pl.Series(["no", "yes", "no"], dtype=pl.Enum(["yes", "no"])), ["no", "yes", "no"]),
        (pl.Series([0, 200, 1], dtype=pl.UInt8), [0, 200, 1]),
        ([2**63, 2, 2], [str(2**63), "2", "2"]),
        ([dt.date(2024, 1, 1)] * 3, ["2024-01-01"] * 3),
    ],
)
def test_labels_of_any_type_keep_their_names(given, expected):
    labels = EventTable.from_frames(EVENTS, {"sample": ["a", "b", "c"], "label": given}).labels
    assert labels.tolist() == expected
    assert labels.dtype.kind == {int: "i", bool: "b", str: "U"}[type(expected[0])]
    assert labels.flags.writeable


@pytest.mark.parametrize("given", [[None, "yes", "no"], [np.nan, 1.0, 0.0], ["", "yes", "no"]])
def test_samples_without_a_label_are_found_and_can_be_left_out(given):
    table = EventTable.from_frames(EVENTS, {"sample": ["a", "b", "c"], "label": given})
    assert table.labelled.tolist() == [False, True, True]
    assert len(table[table.labelled].labels) == 2


def test_roles_can_be_changed_later(table):
    other = table.with_roles(label="age", statics=[])
    assert other.labels.tolist() == [50, 60, 70]
    assert other.roles.statics == ()
    assert table.labels.tolist() == ["no", "yes", "no"]
    assert table.with_labels([1, 0, 1]).labels.tolist() == [1, 0, 1]
    assert table.with_roles(label="age", statics=[]).with_labels(list("xyz")).roles.label == "label"
