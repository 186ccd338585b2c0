"""CSV files as people export them: separators, decimal commas, encodings, dates; what is guessed is said."""

import datetime as dt
from contextlib import nullcontext

import polars as pl
import pytest
from refusal import refused, write_csv

from raindrop.errors import RaindropWarning
from raindrop.table.event_table import EventTable
from raindrop.table.frame_files import read_frame

HEADER = "sample,time,sensor,value\n"


@pytest.mark.parametrize(("separator", "name"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")])
def test_another_separator_is_found_and_said(separator, name, tmp_path):
    text = HEADER + "p1,0,HR,80.5\n"
    write_csv(tmp_path, text.replace(",", separator))
    with pytest.warns(RaindropWarning, match=f"the columns are separated by {name}"):
        table = EventTable.read(tmp_path)
    assert table.events().rows() == [("p1", 0.0, "HR", 80.5)]


def test_a_separator_within_quotes_does_not_count(tmp_path):
    write_csv(tmp_path, 'sample,time,sensor,value,"a;b;c;d;e;f"\np1,0,HR,80,1\n')
    assert EventTable.read(tmp_path).notices == ()


def test_decimal_commas_are_read_as_points(tmp_path):
    write_csv(
        tmp_path, "sample;time;sensor;value\np1;0,5;HR;-80,25\np1;1;HR;1,5e2\np1;2;HR;7\n", "sample;age\np1;70,5\n"
    )
    with pytest.warns(RaindropWarning) as caught:
        table = EventTable.read(tmp_path)
    assert table.events().rows() == [("p1", 0.5, "HR", -80.25), ("p1", 1.0, "HR", 150.0), ("p1", 2.0, "HR", 7.0)]
    assert table.samples["age"].to_list() == [70.5]
    said = [str(each.message) for each in caught]
    assert f"{tmp_path / 'events.csv'}: numbers with a decimal comma, such as 36,5, in 'time', 'value'." in said


@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
def test_commas_beside_decimal_points_are_not_guessed(tmp_path):
    write_csv(tmp_path, "sample;time;sensor;value\np1;0;HR;1,500\np1;1;HR;1.5\n")
    assert "holds text where a value belongs in 1 of 2 rows (first: row 1, '1,500')" in refused(
        EventTable.read, tmp_path
    )


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_other_encodings_are_read(encoding, tmp_path):
    (tmp_path / "events.csv").write_bytes((HEADER + "p1,0,µ °C,80\n").encode(encoding))
    expected = nullcontext() if "sig" in encoding else pytest.warns(RaindropWarning, match=f"read as {encoding}")
    with expected:
        assert EventTable.read(tmp_path).sensors == ("µ °C",)


def test_text_that_is_not_utf8_far_into_a_file_is_read(tmp_path):
    lines = "".join(f"p1,{at},HR,{at}\n" for at in range(20_000))
    (tmp_path / "events.csv").write_bytes((HEADER + lines + "p1,0,Größe,1\n").encode("cp1252"))
    frame = read_frame(tmp_path / "events.csv", all_text=True)
    assert frame.frame["sensor"][-1] == "Größe"
    assert "cp1252" in frame.notices[0]


# ---------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("unit", "factor"), [("seconds", 1), ("milliseconds", 10**3), ("microseconds", 10**6), ("nanoseconds", 10**9)]
)
def test_numbers_since_1970_are_recognised_and_said(unit, factor):
    start = int(dt.datetime(2024, 1, 31, 8, tzinfo=dt.UTC).timestamp())
    times = [start * factor, (start + 5400) * factor]
    with pytest.warns(RaindropWarning, match=f"read as {unit} since 1970 \\(the first is 2024-01-31 08:00:00\\)"):
        table = EventTable.from_columns(["a", "a"], times, ["x", "x"], [1, 2])
    assert table.time.tolist() == [0.0, 1.5]


def test_seconds_since_1970_stay_numbers_where_the_unit_is_seconds():
    table = EventTable.from_columns(["a"], [1.7e9], ["x"], [1], time_unit="seconds")
    assert (table.time.tolist(), table.notices) == ([1.7e9], ())


@pytest.mark.parametrize("times", [[0.0, 1.7e9], [1e10, 2e10], [240.0, 9e5]])
def test_other_numbers_stay_numbers(times):
    assert EventTable.from_columns(["a", "a"], times, ["x", "x"], [1, 2]).time.tolist() == times


def test_a_reference_in_milliseconds_fits_times_in_milliseconds():
    samples = {"sample": ["a"], "reference": [1_700_000_000_000], "cutoff": [1_700_003_600_000]}
    with pytest.warns(RaindropWarning, match="since 1970"):
        table = EventTable.from_columns(["a"] * 2, [1_700_001_800_000, 1_700_007_200_000], ["x"] * 2, [1, 2], samples)
    assert table.time.tolist() == [0.5]
    assert table.dropped == {"after the cutoff": 1}


@pytest.mark.parametrize(
    ("dates", "which"),
    [
        (["31.01.2024 08:15", "01.02.2024 08:15:30"], "day"),
        (["31/01/2024 08:15", "01/02/2024 08:15:30"], "day"),
        (["1/31/2024 8:15", "2/1/2024 8:15:30"], "month"),
        (["1.2.2024 08:15", "2.2.2024 08:15:30"], "day"),
    ],
)
def test_dates_with_the_year_last_are_read_where_the_day_is_certain(dates, which):
    with pytest.warns(RaindropWarning, match=f"read with the {which} first"):
        table = EventTable.from_columns(["a", "a"], dates, ["x", "x"], [1, 2])
    assert table.time.tolist() == [0.0, pytest.approx(24 + 30 / 3600)]


@pytest.mark.parametrize(
    "dates", [["01/02/2024", "03/04/2024"], ["31/01/2024", "01/31/2024"], ["31.02.2024", "1.1.2024"]]
)
@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
def test_dates_that_could_be_either_or_neither_are_refused(dates):
    assert "cannot be read as date times" in refused(EventTable.from_columns, ["a", "a"], dates, ["x", "x"], [1, 2])


# ---------------------------------------------------------------- attributes beside the readings


def test_a_label_beside_the_readings_is_taken_if_it_has_one_value_per_sample(tmp_path):
    write_csv(tmp_path, "sample,time,sensor,value,label,age\na,0,x,1,1,70\na,1,x,2,1,NA\nb,0,x,1,0,50\n")
    with pytest.warns(RaindropWarning, match="'label' taken from the readings' rows"):
        table = EventTable.read(tmp_path)
    assert (table.labels.tolist(), table.samples.columns) == ([1, 0], ["sample", "label"])
    with pytest.warns(RaindropWarning, match="'age', 'label' taken"):
        table = EventTable.read(tmp_path, statics=["age"])
    assert table.samples["age"].to_list() == [70, 50]


def test_a_label_that_changes_within_a_sample_is_ignored_unless_it_is_named():
    events = pl.DataFrame(
        {"sample": ["a", "a"], "time": [0, 1], "sensor": ["x", "x"], "value": [1, 2], "label": [0, 1]}
    )
    assert EventTable.from_frames(events).roles.label is None
    message = refused(EventTable.from_frames, events, label="label")
    assert message.startswith("events: column 'label' has several values in 1 of 1 samples (first: 'a').")
    assert "--samples-file" in message
