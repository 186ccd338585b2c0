"""Bad events are refused with one message: what, where, how many, what to do."""

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from refusal import refused, write_csv

from raindrop.errors import MissingExtraError
from raindrop.table.event_table import EventTable

EVENTS = {
    "sample": ["p1", "p1", "p2"],
    "time": [0.0, 1.0, 0.5],
    "sensor": ["HR", "Temp", "HR"],
    "value": [80.0, 37.0, 90.0],
}
SAMPLES = {"sample": ["p1", "p2"], "label": [0, 1]}
NAN, INF = float("nan"), float("inf")


def refused_frames(events=None, samples=None, **options):
    return refused(EventTable.from_frames, EVENTS | (events or {}), samples, **options)


# ---------------------------------------------------------------- columns


def test_a_misnamed_column_is_reported_with_the_closest_name():
    events = {"sample": ["a"], "tiem": [0], "sensor": ["x"], "value": [1]}
    assert refused(EventTable.from_frames, events) == (
        "events: there is no column 'time' (needed as time); did you mean 'tiem'?\n"
        "Rename the column, or say which one it is with time='NAME' (--time NAME)."
    )


def test_a_missing_column_is_reported_with_the_existing_ones():
    message = refused(EventTable.from_frames, {"stay": ["a"], "when": [0]})
    assert message.startswith("events: there is no column 'sample' (needed as sample); there are: 'stay', 'when'.")


@pytest.mark.parametrize("role", ["label", "group", "cutoff", "reference"])
def test_a_role_whose_column_is_missing_is_named(role):
    message = refused_frames(samples={"sample": ["p1", "p2"], "outcome": [0, 1]}, **{role: "outcoem"})
    assert message.startswith(f"samples: there is no column 'outcoem' (needed as {role}); did you mean 'outcome'?")
    assert f"{role}='NAME'" in message


def test_a_missing_static_is_named():
    message = refused_frames(samples=SAMPLES, statics=["lable"])
    assert "there is no column 'lable' (needed as statics[lable]); did you mean 'label'?" in message
    assert "statics=['NAME', ...]" in message


def test_a_samples_table_without_ids_is_refused():
    assert refused_frames(samples={"id": ["p1"]}).startswith("samples: there is no column 'sample' (needed as sample)")


def test_roles_without_a_samples_table_are_an_error():
    message = refused_frames(label="died", statics=["age"])
    assert message.startswith("There is no samples table, but columns of it are named: ")
    assert "died" in message
    assert "age" in message


def test_a_string_instead_of_a_list_of_names_is_an_error():
    assert (
        refused_frames(samples=SAMPLES, statics="label")
        == "statics='label' is one name; give a list: statics=['label']."
    )
    assert refused_frames(sensors="HR") == "sensors='HR' is one name; give a list: sensors=['HR']."


def test_the_label_cannot_be_a_static_nor_the_id_a_label():
    assert "'label' is the label; as a static it would give the answer away" in refused_frames(
        samples=SAMPLES, statics=["label"]
    )
    table = EventTable.from_frames(EVENTS, SAMPLES)
    assert "would give the answer away" in refused(table.with_roles, statics=["label"])
    assert refused_frames(samples=SAMPLES, label="sample") == (
        "samples: 'sample' names the samples; it cannot be their label as well."
    )


def test_two_possible_id_columns_are_an_error():
    events = {"pid": ["p1"], "time": [0], "sensor": ["x"], "value": [1]}
    message = refused(EventTable.from_frames, events, {"pid": ["p1"], "sample": ["x"]}, sample="pid")
    assert message == "samples: the columns 'pid' and 'sample' both exist; drop or rename 'sample'."


@pytest.mark.parametrize(
    ("column", "content", "kind"),
    [
        ("sample", [[1], [2], [3]], "List(Int64)"),
        ("sample", [b"a", b"b", b"c"], "Binary"),
        ("sensor", [{"a": 1}] * 3, "Struct({'a': Int64})"),
        ("sensor", [dt.timedelta(1)] * 3, "Duration(time_unit='us')"),
        ("time", [[1.0]] * 3, "List(Float64)"),
        ("time", [dt.time(1)] * 3, "Time"),
        ("value", [dt.date(2024, 1, 1)] * 3, "Date"),
        ("value", [object()] * 3, "Object"),
    ],
)
def test_a_column_of_an_impossible_type_is_named_with_its_type(column, content, kind):
    message = refused_frames({column: content})
    assert message.startswith(f"events: column '{column}' is of type {kind}")
    assert "Turn it into" in message or "convert the column first" in message


def test_bytes_and_objects_are_not_kept_with_the_samples():
    for content in ([b"\xff", b""], [object(), object()], [[b"\xff"], []], [{"a": b"x"}, {"a": b"y"}]):
        message = refused_frames(samples={**SAMPLES, "photo": content})
        assert message.startswith("samples: column 'photo' is of type ")
        assert "drop it, or turn it into text or numbers" in message


@pytest.mark.parametrize(
    "given", [None, "data/p12", Path("data"), 5, [1, 2], np.zeros((2, 2, 2)), {"a": [1], "b": [1, 2]}]
)
def test_an_object_that_is_not_a_table_is_refused(given):
    assert refused(EventTable.from_frames, given).startswith("events: ")
    assert refused(EventTable.from_frames, EVENTS, given if given is not None else 5).startswith("samples: ")


def test_invalid_unicode_and_huge_integers_are_refused():
    assert refused_frames({"sensor": ["\ud800", "a", "b"]}).startswith("events: cannot be read as a table")
    assert "column 'value' mixes types, or holds numbers that are too large" in refused_frames(
        {"value": [2**200, 1, 2]}
    )


def test_a_lazy_frame_of_a_missing_file_is_refused(tmp_path):
    assert refused(EventTable.from_frames, pl.scan_parquet(tmp_path / "none.parquet")).startswith(
        "events: cannot be read"
    )


def test_a_frame_that_needs_a_missing_package_names_it(monkeypatch):
    monkeypatch.setattr(pl, "DataFrame", type("Frame", (), {"__new__": lambda cls, _: __import__("no_such_package")}))
    with pytest.raises(MissingExtraError, match=r"(?s)needs the package 'no_such_package'.*raindrop-ts\[pandas\]"):
        EventTable.from_frames(pd.DataFrame(EVENTS))


def test_unequal_or_single_columns_are_refused():
    message = refused(EventTable.from_columns, ["a", "a"], [0], ["x"], [1])
    assert message == "The columns must be equally long, but have {'sample': 2, 'time': 1, 'sensor': 1, 'value': 1}."
    assert refused(EventTable.from_columns, "a", [0], ["x"], [1]).startswith("sample must be a list or array")
    assert refused(EventTable.from_columns, ["a"], 0, ["x"], [1]).startswith("time must be a list or array")


# ---------------------------------------------------------------- readings


@pytest.mark.parametrize(
    ("column", "bad", "fault"),
    [
        ("time", None, "have no time"),
        ("time", NAN, "have no time"),
        ("time", INF, "have an infinite time"),
        ("time", -INF, "have an infinite time"),
        ("time", 1e300, "have an infinite time"),
        ("value", None, "have no value"),
        ("value", NAN, "have no value"),
        ("value", INF, "have an infinite value"),
        ("value", 1e39, "have an infinite value"),
    ],
)
def test_a_missing_or_infinite_number_is_counted_and_located(column, bad, fault):
    message = refused_frames({column: [EVENTS[column][0], bad, EVENTS[column][2]]})
    assert message.startswith(f"events: 1 of 3 rows {fault} (first: row 2, sample 'p1', sensor 'Temp').\n")
    advice = (
        "(--missing drop) to leave these rows out." if "no value" in fault else "drop these rows or fix the export."
    )
    assert message.endswith(advice)


@pytest.mark.parametrize("bad", [None, NAN, ""])
def test_a_missing_id_is_counted_and_located(bad):
    good = 1.0 if bad is NAN else "p1"
    assert refused_frames({"sample": [good, bad, bad]}).startswith(
        "events: 2 of 3 rows have no sample (first: row 2, sensor 'Temp').\nEvery reading belongs to a sample"
    )
    assert refused_frames({"sensor": [good, bad, bad]}).startswith(
        "events: 2 of 3 rows have no sensor name (first: row 2, sample 'p1').\n"
    )


@pytest.mark.parametrize("frame", [dict, pl.DataFrame, lambda columns: pd.DataFrame(columns).astype({"value": object})])
def test_text_where_a_number_belongs_is_quoted(frame):
    events = EVENTS | {"value": ["80", "high", "<9"], "sensor": ["HR"] * 3}
    message = refused(EventTable.from_frames, frame(events))
    assert message == (
        "events: column 'value' holds text where a value belongs in 2 of 3 rows (first: row 2, 'high').\n"
        "A value is a number; turn these into numbers, or drop the rows."
    )


def test_text_where_a_number_belongs_is_quoted_from_a_csv(tmp_path):
    folder = write_csv(tmp_path, "sample,time,sensor,value\np1,0,HR,80\np1,1,HR,<50\np1,soon,HR,81\n")
    path = tmp_path / "events.csv"
    assert refused(EventTable.read, folder).startswith(
        f"{path}: column 'time' holds text where a time belongs in 1 of 3 rows (first: row 3, 'soon').\n"
        "A time is a number or a date time like 2024-01-31 08:15:00"
    )
    write_csv(tmp_path, "sample,time,sensor,value\np1,0,HR,80\np1,1,HR,<50\n")
    assert refused(EventTable.read, folder).startswith(
        f"{path}: column 'value' holds text where a value belongs in 1 of 2 rows (first: row 2, '<50')."
    )


@pytest.mark.parametrize("blank", ["", '""', " ", '"  "'])
def test_a_blank_cell_of_a_csv_is_a_missing_number(tmp_path, blank):
    write_csv(tmp_path, f"sample,time,sensor,value\np1,0,HR,80\np1,{blank},HR,81\n")
    assert "1 of 2 rows have no time (first: row 2, sample 'p1', sensor 'HR')" in refused(EventTable.read, tmp_path)
    write_csv(tmp_path, f"sample,time,sensor,value\np1,0,HR,{blank}\np1,1,HR,81\n")
    message = refused(EventTable.read, tmp_path, missing="error")
    assert "1 of 2 rows have no value (first: row 1, sample 'p1', sensor 'HR')" in message
    write_csv(tmp_path, f"sample,time,sensor,value\np1,2024-01-31,HR,1\np1,{blank},HR,81\n")
    assert "1 of 2 rows have no time (first: row 2, sample 'p1', sensor 'HR')" in refused(EventTable.read, tmp_path)


@pytest.mark.parametrize(
    "wrong", ["3.5", "noon", "31.01.2024 08:15", "01/31/2024", "2024-13-01", "2024-01-31T08:15:00Z"]
)
def test_a_date_time_in_another_format_is_quoted(tmp_path, wrong):
    write_csv(tmp_path, f"sample,time,sensor,value\np1,2024-01-31 08:15:00,HR,80\np1,{wrong},HR,81\n")
    message = refused(EventTable.read, tmp_path)
    assert f"1 of 2 rows of column 'time' cannot be read as date times (first: row 2, '{wrong}')" in message
    assert "Write all of them like 2024-01-31 08:15:00" in message


def test_an_ambiguous_date_is_refused(tmp_path):
    write_csv(tmp_path, "sample,time,sensor,value\np1,01/02/2024,HR,80\np1,01/03/2024,HR,81\n")
    assert "2 of 2 rows of column 'time' cannot be read as date times" in refused(EventTable.read, tmp_path)


# ---------------------------------------------------------------- duplicates

TWICE = {"sample": ["p1"] * 4, "time": [1, 0, 1, 1], "sensor": ["HR"] * 4, "value": [1.0, 9.0, 2.0, 6.0]}


def test_duplicates_are_counted_and_the_message_names_the_policies():
    assert refused(EventTable.from_frames, TWICE) == (
        "events: 2 of 4 rows repeat the (sample, time, sensor) of another row "
        "(first: row 3, sample 'p1', sensor 'HR').\n"
        "Pass duplicates='last' to keep the last of each in the order given, or 'mean' to average them "
        "(--duplicates last)."
    )


@pytest.mark.parametrize(("policy", "value"), [("last", 6.0), ("mean", 3.0)])
def test_duplicates_are_resolved_by_the_policy_and_counted(policy, value):
    table = EventTable.from_frames(TWICE, duplicates=policy)
    assert table.events().rows() == [("p1", 0.0, "HR", 9.0), ("p1", 1.0, "HR", value)]
    assert table.dropped == {f"duplicate readings ({policy})": 2}


def test_zero_and_minus_zero_are_the_same_time():
    assert "repeat" in refused_frames({"sample": ["p1"] * 3, "time": [0.0, -0.0, 1.0], "sensor": ["HR"] * 3})


def test_the_same_reading_in_another_sample_is_not_a_duplicate():
    assert EventTable.from_frames(EVENTS | {"time": [0, 0, 0]}).num_readings == 3
