"""Bad samples, times and options are refused with one message: what, where, how many, what to do."""

import datetime as dt
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from refusal import refused, write_csv

from raindrop.errors import DataError
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


# ---------------------------------------------------------------- samples


def test_a_repeated_sample_id_is_counted():
    message = refused_frames(samples={"sample": ["p1", "p2", "p1"]})
    assert message.startswith("samples: 2 of 3 rows share their sample id with another row (first: 'p1').\n")
    assert "one row per sample" in message
    assert "share their sample id" in refused_frames({"sample": [1, 1, 2]}, {"sample": [1.0, 1.0, 2.0]})


@pytest.mark.parametrize("bad", [None, ""])
def test_a_sample_without_id_is_counted(bad):
    assert refused_frames(samples={"sample": ["p1", "p2", bad]}) == "samples: 1 of 3 rows have no sample id; drop them."


def test_readings_of_unlisted_samples_are_an_error_or_dropped():
    samples = {"sample": ["p1"]}
    assert refused_frames(samples=samples) == (
        "events: 1 of 3 rows belong to a sample that samples does not list (first: row 3, sample 'p2', sensor 'HR').\n"
        "Add these samples, or pass unlisted='drop' (--unlisted drop) to leave their readings out."
    )
    table = EventTable.from_frames(EVENTS, samples, unlisted="drop")
    assert table.num_readings == 2
    assert table.dropped == {"of a sample that is not listed": 1}


def test_row_numbers_count_the_rows_given_even_after_some_were_dropped():
    events = EVENTS | {"sample": ["other", "p1", "p1"], "time": [0, 1, -1]}
    assert "(first: row 3, " in refused(EventTable.from_frames, events, {"sample": ["p1"]}, unlisted="drop")


@pytest.mark.parametrize("labels", [[0, None], [0.0, NAN], ["no", None], ["no", ""]])
def test_a_missing_label_is_counted_when_labels_are_used(labels):
    table = EventTable.from_frames(EVENTS, {"sample": ["p1", "p2"], "label": labels})
    with pytest.raises(DataError) as caught:
        _ = table.labels
    assert str(caught.value) == (
        "1 of 2 samples have no label 'label' (first: 'p2').\n"
        "Leave them out with table[table.labelled], or fill the label in."
    )


@pytest.mark.parametrize("labels", [[0.0, 0.5], [0.0, INF], [1e300, 0.0]])
def test_a_quantity_is_not_a_class_label(labels):
    table = EventTable.from_frames(EVENTS, {"sample": ["p1", "p2"], "label": labels})
    with pytest.raises(DataError, match="that is a quantity, not a class"):
        _ = table.labels


def test_a_label_of_an_unusable_type_is_refused():
    table = EventTable.from_frames(EVENTS, {"sample": ["p1", "p2"], "label": [[1], [2]]})
    with pytest.raises(DataError, match="which is neither text, a number nor true/false"):
        _ = table.labels


def test_a_table_without_label_says_how_to_name_one():
    with pytest.raises(DataError, match="Name the label column with label='NAME'; did you mean 'Label'"):
        _ = EventTable.from_frames(EVENTS, {"sample": ["p1", "p2"], "Label": [0, 1]}).labels


def test_labels_of_the_wrong_length_or_type_are_refused():
    table = EventTable.from_frames(EVENTS, SAMPLES)
    assert refused(table.with_labels, [1]) == "There are 2 samples, but labels of shape (1,)."
    assert refused(table.with_labels, np.array([1, "a"], dtype=object)).startswith("The labels cannot be one column")


def test_a_split_by_group_needs_a_group_for_every_sample():
    table = EventTable.from_frames(EVENTS, {"sample": ["p1", "p2"], "ward": ["A", None]})
    assert refused(table.split, (0.5, 0.5), by="ward").startswith("1 of 2 samples have no 'ward' (first: 'p2')")
    assert "there is no column 'wadr' (needed as by); did you mean 'ward'?" in refused(table.split, by="wadr")


def test_a_table_too_small_to_split_says_so():
    assert "2 samples are too few for a split into (0.8, 0.1, 0.1)" in refused(EventTable.from_frames(EVENTS).split)


# ---------------------------------------------------------------- empty


def test_an_empty_table_is_refused():
    nothing = {name: [] for name in EVENTS}
    assert (
        refused(EventTable.from_frames, nothing) == "events: the table is empty, and there is no samples table either."
    )
    assert refused(EventTable.from_frames, nothing, SAMPLES).startswith(
        "events: the table is empty. There must be at least"
    )
    assert refused(EventTable.from_frames, EVENTS, {"sample": []}) == (
        "samples: the table is empty. There must be at least one sample."
    )


def test_a_table_without_readings_is_allowed_if_the_sensors_are_listed():
    table = EventTable.from_frames({name: [] for name in EVENTS}, SAMPLES, sensors=["HR"])
    assert (len(table), table.num_readings, table.sensors) == (2, 0, ("HR",))
    begun = {"sample": ["p1"], "reference": [dt.datetime(2024, 1, 31)], "cutoff": [dt.datetime(2024, 2, 1)]}
    assert EventTable.from_frames({name: [] for name in EVENTS}, begun, sensors=["HR"]).samples["cutoff"].to_list() == [
        24.0
    ]


def test_if_no_reading_is_left_the_message_says_why():
    message = refused_frames(samples={**SAMPLES, "cutoff": [-1, -1]})
    assert message.startswith("events: no reading is left (3 after the cutoff).")


def test_an_empty_csv_is_refused(tmp_path):
    write_csv(tmp_path, "")
    assert refused(EventTable.read, tmp_path).startswith(
        f"{tmp_path / 'events.csv'}: not a readable CSV file; it is empty"
    )
    write_csv(tmp_path, "sample,time,sensor,value\n")
    assert refused(EventTable.read, tmp_path).startswith(f"{tmp_path / 'events.csv'}: the table is empty")
    write_csv(tmp_path, samples="sample,label\n")
    assert refused(EventTable.read, tmp_path).startswith(f"{tmp_path / 'samples.csv'}: the table is empty")
    write_csv(tmp_path, samples="")
    assert refused(EventTable.read, tmp_path).startswith(f"{tmp_path / 'samples.csv'}: not a readable CSV file")


# ---------------------------------------------------------------- time


def test_times_before_the_reference_are_an_error_kept_or_dropped():
    samples = {"sample": ["p1", "p2"], "reference": [0.5, 0.0]}
    assert refused_frames(samples=samples) == (
        "events: 1 of 3 rows are before their sample's reference time (first: row 1, sample 'p1', sensor 'HR').\n"
        "Readings count from the reference time on; pass before_reference='keep' to allow negative times "
        "or 'drop' to leave these rows out (--before-reference keep)."
    )
    kept = EventTable.from_frames(EVENTS, samples, before_reference="keep")
    assert kept.time.tolist() == [-0.5, 0.5, 0.5]
    dropped = EventTable.from_frames(EVENTS, samples, before_reference="drop")
    assert dropped.time.tolist() == [0.5, 0.5]
    assert dropped.dropped == {"before the reference time": 1}


def test_date_times_before_the_reference_are_found_too():
    start = dt.datetime(2024, 1, 31)
    message = refused_frames(
        {"time": [start] * 3}, {"sample": ["p1", "p2"], "reference": [start, start + dt.timedelta(1)]}
    )
    assert message.startswith("events: 1 of 3 rows are before their sample's reference time (first: row 3")


@pytest.mark.parametrize("missing", [None, NAN])
def test_a_sample_with_readings_needs_its_reference(missing):
    message = refused_frames(samples={"sample": ["p1", "p2"], "begun": [0.0, missing]}, reference="begun")
    assert message == (
        "events: 1 of 3 rows belong to a sample without 'begun' (first: row 3, sample 'p2', sensor 'HR').\n"
        "Fill in 'begun' of samples for every sample with readings."
    )


@pytest.mark.parametrize(
    ("time", "mark", "words"),
    [
        (0.0, dt.datetime(2024, 1, 31), "holds date times without a time zone, but the times of events are numbers"),
        (dt.datetime(2024, 1, 31), 0.0, "holds numbers, but the times of events are date times without a time zone"),
        (dt.datetime(2024, 1, 31, tzinfo=dt.UTC), dt.date(2024, 1, 31), "are date times with a time zone"),
    ],
)
@pytest.mark.parametrize("role", ["reference", "cutoff"])
def test_times_of_different_types_are_not_mixed(role, time, mark, words):
    message = refused_frames({"time": [time] * 3}, {"sample": ["p1", "p2"], role: [mark] * 2})
    assert message.startswith(f"samples: column '{role}' holds ")
    assert words in message


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("option", "word", "hint"),
    [
        ("duplicates", "lst", "did you mean 'last'?"),
        ("before_reference", "ignore", "there are: 'error', 'keep', 'drop'."),
        ("unlisted", "Drop", "did you mean 'drop'?"),
        ("time_unit", "hour", "did you mean 'hours'?"),
        ("time_unit", None, "there are: 'seconds', 'minutes', 'hours', 'days'."),
    ],
)
def test_an_unknown_value_of_an_option_is_an_error_with_the_closest_one(option, word, hint):
    assert refused_frames(**{option: word}) == f"{option}='{word}' is not known: {hint}"


def test_an_unknown_option_is_an_error_with_the_closest_one(tmp_path):
    write_csv(tmp_path)
    assert refused(EventTable.read, tmp_path, lable="died") == "There is no option 'lable': did you mean 'label'?"
    assert "There is no option 'unit'" in refused(EventTable.from_columns, ["a"], [0], ["x"], [1], unit="days")


def test_an_unknown_unit_to_convert_to_is_an_error():
    assert "time_unit='weeks' is not known" in refused(EventTable.from_frames(EVENTS).in_unit, "weeks")


def test_the_list_of_sensors_must_name_every_sensor_once():
    assert refused_frames(sensors=["HR", "temp"]) == (
        "events: 1 of 2 sensors are not among the 2 given in sensors=[...] (first: 'Temp'; did you mean 'temp'?)\n"
        "Add them to the list, or drop their rows."
    )
    assert refused_frames(sensors=["HR", "Temp", "HR"]) == "sensors=[...] names 'HR' twice; remove one of them."
    assert refused_frames(sensors=["HR", "Temp", ""]) == (
        "sensors=[...] has an empty name at position 3; every sensor needs a name."
    )


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        (pl.col("sensr") == "HR", "sensr"),
        (pl.col("value"), "needs one true or false per reading (3), not float64 of shape (3,)"),
        ([True], "needs one true or false per reading (3), not bool of shape (1,)"),
        (lambda events: None, "needs one true or false per reading (3)"),
        ("sensor == 'HR'", "needs one true or false per reading (3)"),
    ],
)
def test_where_needs_one_boolean_per_reading(keep, words):
    message = refused(EventTable.from_frames(EVENTS).where, keep)
    assert message.startswith("where(...)")
    assert words in message


def test_a_mask_of_the_wrong_length_and_unknown_ids_are_errors():
    table = EventTable.from_frames(EVENTS)
    assert refused(table.__getitem__, [True]) == "The mask has 1 entries, the table 2 samples."
    assert refused(table.__getitem__, ["p1", "p3"]).startswith(
        "1 of 2 sample ids are not in the table (first: 'p3'; there are: 'p1', 'p2'.)"
    )


def test_a_decimal_is_a_number():
    table = EventTable.from_frames(EVENTS | {"value": [Decimal("1.5"), Decimal("2"), Decimal("3.25")]})
    assert sorted(table.value.tolist()) == [1.5, 2.0, 3.25]
