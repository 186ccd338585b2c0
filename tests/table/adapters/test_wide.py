"""Wide frames: one row per time, a column for each sensor."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from refusal import refused

from raindrop.errors import RaindropWarning
from raindrop.table.event_table import EventTable

NAN = float("nan")
WIDE = {"stay": ["a", "a", "b"], "when": [0.0, 1.0, 0.5], "HR": [80.0, NAN, 90.0], "Temp": [None, 37.0, None]}
READINGS = [("a", 0.0, "HR", 80.0), ("a", 1.0, "Temp", 37.0), ("b", 0.5, "HR", 90.0)]


@pytest.mark.parametrize("kind", [dict, pl.DataFrame, pl.LazyFrame, pd.DataFrame, pa.table])
def test_each_cell_that_is_not_missing_is_a_reading(kind):
    table = EventTable.from_wide(kind(WIDE), sample="stay", time="when")
    assert table.events().rows() == READINGS
    assert table.notices == ()


def test_without_a_sample_column_the_frame_is_one_long_series():
    table = EventTable.from_wide({"time": [0, 1], "x": [1.0, 2.0], "y": [NAN, 3.0]})
    assert table.events().rows() == [("series", 0.0, "x", 1.0), ("series", 1.0, "x", 2.0), ("series", 1.0, "y", 3.0)]


def test_sensors_may_be_chosen_and_ordered():
    table = EventTable.from_wide({**WIDE, "note": ["-"] * 3}, sample="stay", time="when", sensors=["Temp", "HR"])
    assert table.sensors == ("Temp", "HR")


def test_a_sensor_and_a_sample_without_a_reading_are_kept():
    table = EventTable.from_wide({"sample": ["a", "b"], "time": [0, 0], "x": [1.0, NAN], "never": [NAN, NAN]})
    assert (table.ids, table.sensors, table.count.tolist()) == (["a", "b"], ("x", "never"), [1, 0])


def test_named_columns_describe_the_sample_and_are_no_sensors():
    frame = {**WIDE, "died": [1, 1, 0], "age": [70, None, 50], "site": ["x", "x", "y"]}
    with pytest.warns(RaindropWarning, match="'died', 'age', 'site' taken from the readings' rows"):
        table = EventTable.from_wide(frame, sample="stay", time="when", label="died", statics=["age"], group="site")
    assert table.sensors == ("HR", "Temp")
    assert table.labels.tolist() == [1, 0]
    assert table.samples["age"].to_list() == [70, 50]
    assert table.roles.group == "site"


def test_a_column_called_label_is_never_a_sensor():
    message = refused(EventTable.from_wide, {**WIDE, "label": [0, 1, 0]}, sample="stay", time="when")
    assert message.startswith("frame: column 'label' has several values in 1 of 2 samples (first: 'a')")
    samples = {"sample": ["a", "b"], "label": [0, 1]}
    table = EventTable.from_wide({**WIDE, "label": [0, 1, 0]}, samples, sample="stay", time="when")
    assert (table.sensors, table.labels.tolist()) == (("HR", "Temp"), [0, 1])


def test_a_samples_table_may_have_the_frames_own_name_for_ids():
    table = EventTable.from_wide(WIDE, {"stay": ["b", "a"], "label": [0, 1]}, sample="stay", time="when")
    assert (table.ids, table.labels.tolist()) == (["b", "a"], [0, 1])


def test_a_column_of_states_becomes_sensors():
    with pytest.warns(RaindropWarning, match="are text"):
        table = EventTable.from_wide({"time": [0, 1], "x": ["1.5", "NA"], "pump": ["on", "off"], "mode": ["p", None]})
    assert table.sensors == ("mode=p", "pump", "x")
    assert table.num_readings == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample": "sty", "time": "when"}, "there is no column 'sty' (needed as sample); did you mean 'stay'?"),
        ({"sample": "stay"}, "there is no column 'time' (needed as time)"),
        ({"sample": "stay", "time": "when", "sensors": ["HRR"]}, "there is no column 'HRR'"),
        ({"sample": "stay", "time": "when", "value": "HR"}, "value='HR': a wide frame has a column for each sensor"),
        ({"sample": "stay", "time": "when", "sensors": "HR"}, "sensors='HR' is one name; give a list"),
        ({"sample": "stay", "time": "when", "lable": "x"}, "There is no option 'lable': did you mean 'label'?"),
    ],
)
def test_a_mistake_is_named(options, message):
    assert message in refused(EventTable.from_wide, WIDE, **options)


@pytest.mark.parametrize("value", [None, 7.0])
def test_a_column_without_a_name_is_refused_whether_it_has_values_or_not(value):
    message = refused(EventTable.from_wide, {"": [value], "sample": ["a"], "time": [0], "HR": [80.0]})
    assert "frame: column 1 of 4 has no name, so it is no sensor." in message


def test_a_long_table_is_recognised():
    long = {"sample": ["a", "a"], "time": [0, 0], "sensor": ["x", "y"], "value": [1, 2]}
    assert "this is a long table" in refused(EventTable.from_wide, long)
    assert "read it with EventTable.from_wide (--wide)" in refused(
        EventTable.from_frames, WIDE, sample="stay", time="when"
    )
