"""EventTable: whatever it is built from, the same readings in the same order; choosing copies nothing."""

import datetime as dt
import json
import os
import shutil
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, cross_val_score, train_test_split
from sklearn.utils import _safe_indexing, indexable

from raindrop.errors import DataError, OutputExistsError
from raindrop.files import file_checksum
from raindrop.table.event_table import EventTable

EVENTS = {  # on purpose not in order
    "sample": ["b", "a", "a", "a", "b"],
    "time": [2.0, 1.5, 0.0, 1.5, 0.5],
    "sensor": ["HR", "T", "HR", "HR", "T"],
    "value": [5.0, 3.0, 1.0, 2.0, 4.0],
}
SAMPLES = {"sample": ["a", "b", "c"], "label": ["no", "yes", "no"], "age": [50, 60, 70]}
SORTED = [  # by sample as listed, then time, then sensor
    ("a", 0.0, "HR", 1.0),
    ("a", 1.5, "HR", 2.0),
    ("a", 1.5, "T", 3.0),
    ("b", 0.5, "T", 4.0),
    ("b", 2.0, "HR", 5.0),
]
MIDNIGHT = dt.datetime(2024, 1, 31)


def hours(*numbers):
    return [MIDNIGHT + dt.timedelta(hours=number) for number in numbers]


@pytest.fixture
def table():
    return EventTable.from_frames(EVENTS, SAMPLES, statics=["age"])


@pytest.fixture(scope="module")
def large():
    """200 samples of 0 to 60 readings."""
    rng = np.random.default_rng(0)
    count = rng.integers(0, 60, 200)
    owner = np.repeat(np.arange(200), count)
    return EventTable.from_columns(
        owner,
        np.arange(len(owner)) / 7,
        rng.integers(0, 5, len(owner)).astype(str),
        rng.normal(size=len(owner)),
        {"sample": np.arange(200), "label": rng.random(200) < 0.3, "site": np.arange(200) // 4},
    )


def same(one, other):
    assert one.events().equals(other.events())
    assert one.samples.equals(other.samples)
    assert (one.sensors, one.roles, one.time_unit) == (other.sensors, other.roles, other.time_unit)
    assert one.fingerprint == other.fingerprint
    return True


def write_folder(folder, events, samples=None, kind="parquet"):
    folder.mkdir(exist_ok=True)
    for name, columns in {"events": events, "samples": samples}.items():
        if columns is not None:
            frame = pl.DataFrame(columns)
            getattr(frame, f"write_{kind}")(folder / f"{name}.{kind}")
    return folder


def write_csv(folder, events, samples=None):
    (folder / "events.csv").write_text(events)
    if samples is not None:
        (folder / "samples.csv").write_text(samples)
    return folder


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
    ],
    ids=["mapping", "polars", "lazy", "pandas", "arrow", "pandas categories", "records"],
)
def test_every_kind_of_frame_gives_the_same_sorted_table(kind, table):
    built = EventTable.from_frames(kind(EVENTS), kind(SAMPLES), statics=["age"])
    assert built.events().rows() == SORTED
    assert same(built, table)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_folder_gives_the_same_table(kind, table, tmp_path):
    folder = write_folder(tmp_path / "data", EVENTS, SAMPLES, kind)
    assert same(EventTable.read(folder, statics=["age"]), table)
    assert same(EventTable.read(str(folder), statics=["age"]), table)


def test_plain_columns_give_the_same_table(table):
    columns = [np.array(EVENTS[name]) for name in ("sample", "time", "sensor", "value")]
    assert same(EventTable.from_columns(*columns, SAMPLES, statics=["age"]), table)
    assert EventTable.from_columns(["a"], (0,), pd.Series(["HR"]), pl.Series([1])).events().rows() == [
        ("a", 0, "HR", 1)
    ]


def test_without_a_samples_table_samples_come_in_order_of_appearance():
    table = EventTable.from_frames(EVENTS)
    assert table.ids == ["b", "a"]
    assert table.roles.label is None


def test_the_frames_given_are_not_changed():
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


def test_only_named_columns_become_statics_and_an_empty_name_takes_no_column():
    assert EventTable.from_frames(EVENTS, SAMPLES).roles.statics == ()
    assert EventTable.from_frames(EVENTS, SAMPLES).roles.label == "label"
    assert EventTable.from_frames(EVENTS, SAMPLES, label="").roles.label is None


def test_columns_that_mean_nothing_to_us_stay_with_the_samples():
    odd = {**SAMPLES, "list": [[1], [2], []], "when": hours(1, 2, 3), "paid": [Decimal("1.5")] * 3}
    assert EventTable.from_frames(EVENTS, odd).samples.columns == list(odd)


@pytest.mark.parametrize("ids", [[1, 2], [1.0, 2.0], ["1", "2"], pl.Series(["1", "2"], dtype=pl.Categorical)])
def test_ids_are_text_however_they_were_stored(ids):
    events = {"sample": ids, "time": [0, 0], "sensor": ids, "value": [1, 2]}
    table = EventTable.from_frames(events, {"sample": ["2", "1"]})
    assert table.events().rows() == [("2", 0.0, "2", 2.0), ("1", 0.0, "1", 1.0)]


def test_ids_keep_their_leading_zeros_in_a_csv(tmp_path):
    write_csv(tmp_path, "sample,time,sensor,value\n007,0,01,1\n", "sample,label\n007,1\n")
    assert EventTable.read(tmp_path).events().rows() == [("007", 0.0, "01", 1.0)]


def test_large_whole_and_broken_numbers_are_ids_too():
    table = EventTable.from_columns([1.5, 1e20, 17.0], [0, 0, 0], ["x"] * 3, [1, 2, 3])
    assert table.ids == ["1.5", "1e+20", "17"]


def test_text_that_is_a_number_is_a_number(tmp_path):
    write_csv(tmp_path, "sample,time,sensor,value\na, 1.5 ,HR, 2e0\n")
    assert EventTable.read(tmp_path).events().rows() == [("a", 1.5, "HR", 2.0)]


def test_sensors_may_be_given_with_their_order_and_more_than_were_read():
    table = EventTable.from_frames(EVENTS, sensors=["T", "SpO2", "HR"])
    assert table.sensors == ("T", "SpO2", "HR")
    assert table.events().rows()[2:4] == [("a", 0.0, "HR", 1.0), ("a", 1.5, "T", 3.0)]  # T before HR now


def test_a_folder_with_brackets_in_its_name_is_a_folder(tmp_path):
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


def test_date_times_become_another_unit_where_one_is_asked_for():
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


def test_date_times_of_a_samples_csv_are_read_as_those_of_the_events(tmp_path):
    write_csv(
        tmp_path,
        "sample,time,sensor,value\na,2024-01-31T08:00:00Z,x,1\na,2024-01-31T09:00:00Z,x,2\n",
        "sample,reference,cutoff\na,2024-01-31T08:30:00+01:00,2024-01-31T08:00:00Z\n",
    )
    table = EventTable.read(tmp_path)
    assert table.time.tolist() == [0.5]
    assert table.dropped == {"after the cutoff": 1}


def test_numbers_count_from_the_reference_as_well():
    table = EventTable.from_frames(EVENTS, {"sample": ["a", "b"], "reference": [0, 0.5]})
    assert table.time.tolist() == [0.0, 1.5, 1.5, 0.0, 1.5]


def test_numeric_times_keep_the_unit_they_are_said_to_have(table):
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


def test_a_reading_exactly_at_the_cutoff_stays_and_a_later_one_is_ignored():
    table = EventTable.from_frames(EVENTS, {"sample": ["a", "b"], "stop": [1.5, 0.5]}, cutoff="stop")
    assert table.events().rows() == SORTED[:4]
    assert table.dropped == {"after the cutoff": 1}


def test_a_cutoff_is_a_date_time_where_times_are():
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


def test_roles_can_be_given_later(table):
    other = table.with_roles(label="age", statics=[])
    assert other.labels.tolist() == [50, 60, 70]
    assert other.roles.statics == ()
    assert table.labels.tolist() == ["no", "yes", "no"]
    assert table.with_labels([1, 0, 1]).labels.tolist() == [1, 0, 1]
    assert table.with_roles(label="age", statics=[]).with_labels(list("xyz")).roles.label == "label"


# ---------------------------------------------------------------- looking


def test_offsets_and_rows_say_where_each_sample_lies(table):
    assert table.offsets.tolist() == [0, 3, 5, 5]  # c has no reading
    assert table.rows().tolist() == [0, 1, 2, 3, 4]
    assert table.rows(np.array([1, 2, 0])).tolist() == [3, 4, 0, 1, 2]
    assert table.rows(np.array([], dtype=np.int64)).tolist() == []


def test_rows_equal_a_loop_over_samples(large):
    positions = np.random.default_rng(1).integers(0, len(large), 50)
    expected = [row for at in positions for row in range(large.start[at], large.start[at] + large.count[at])]
    assert large.rows(positions).tolist() == expected


def test_a_sample_without_readings_is_a_sample(table):
    assert len(table) == 3
    assert table.shape == (3,)
    assert table["c"].num_readings == 0
    assert table["c"].events().shape == (0, 4)


def test_a_table_introduces_itself(table):
    assert repr(table) == "EventTable(3 samples, 2 sensors, 5 readings, label 'label')"


# ---------------------------------------------------------------- choosing


@pytest.mark.parametrize(
    ("key", "ids"),
    [
        (0, ["a"]),
        (-1, ["c"]),
        (np.int64(1), ["b"]),
        (slice(1, None), ["b", "c"]),
        (slice(None, None, -1), ["c", "b", "a"]),
        ([2, 0], ["c", "a"]),
        ([1, 1], ["b", "b"]),
        ([], []),
        (np.array([-1, 0]), ["c", "a"]),
        (np.array([2, 0], dtype=np.uint8), ["c", "a"]),
        ([True, False, True], ["a", "c"]),
        (np.array([False, False, False]), []),
        ("b", ["b"]),
        (["c", "a"], ["c", "a"]),
        (np.array(["c", "a"]), ["c", "a"]),
        (pl.Series(["c"]), ["c"]),
        (pd.Index(["c", "b"]), ["c", "b"]),
        (range(2), ["a", "b"]),
        ((np.array([2]), Ellipsis), ["c"]),
        ((slice(0, 2), Ellipsis), ["a", "b"]),
    ],
    ids=str,
)
def test_samples_are_chosen_by_position_slice_mask_or_id(table, key, ids):
    chosen = table[key]
    assert chosen.ids == ids
    assert chosen.events().rows() == [row for name in ids for row in SORTED if row[0] == name]
    assert chosen.labels.tolist() == [dict(zip("abc", ["no", "yes", "no"], strict=True))[name] for name in ids]


def test_choosing_again_counts_within_what_was_chosen(table):
    assert table[1:][0].ids == ["b"]
    assert table[[2, 1]]["b"].events().rows() == SORTED[3:]


def test_choosing_samples_copies_no_reading(table):
    for chosen in (table[1:], table[[2, 0]], table[table.labels == "no"]):
        assert np.shares_memory(chosen.value, table.value)
        assert len(chosen.value) == len(table.value)


def test_a_table_can_be_walked_through_sample_by_sample(table):
    assert [sample.ids[0] for sample in table] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "keep",
    [
        pl.col("sensor") == "HR",
        [True, True, False, False, True],
        np.array([True, True, False, False, True]),
        lambda events: events["sensor"] == "HR",
        lambda events: pl.col("sensor") == "HR",
    ],
    ids=["expression", "list", "array", "function", "function to expression"],
)
def test_where_keeps_readings_and_every_sample_and_sensor(table, keep):
    kept = table.where(keep)
    assert kept.events().rows() == [SORTED[0], SORTED[1], SORTED[4]]
    assert kept.ids == ["a", "b", "c"]
    assert kept.sensors == ("HR", "T")
    assert kept.count.tolist() == [2, 1, 0]


def test_where_sees_the_chosen_samples_only(table):
    seen = []
    table[["b", "a"]].where(lambda events: seen.append(events["sample"].to_list()) or pl.col("value") > 1)
    assert seen == [["b", "b", "a", "a", "a"]]
    assert table[["b", "a"]].where(pl.col("value") > 2).value.tolist() == [4.0, 5.0, 3.0]


def test_where_can_leave_nothing(table):
    nothing = table.where(pl.col("value") > 99)
    assert (len(nothing), nothing.num_readings) == (3, 0)
    assert nothing.events().schema == table.events().schema


# ---------------------------------------------------------------- splitting


def test_a_split_keeps_the_mix_of_labels_and_every_sample_once(large):
    parts = large.split(seed=0)
    assert [len(part) for part in parts] == [160, 20, 20]
    assert sorted(int(name) for part in parts for name in part.ids) == list(range(200))
    for part in parts:
        assert abs(part.labels.mean() - large.labels.mean()) < 0.06


def test_a_split_is_the_same_for_the_same_seed_only(large):
    assert large.split(seed=1)[2].ids == large.split(seed=1)[2].ids
    assert large.split(seed=1)[2].ids != large.split(seed=2)[2].ids


@pytest.mark.parametrize("how", ["by", "role"])
def test_a_split_by_group_never_cuts_one(large, how):
    parts = large.split(by="site") if how == "by" else large.with_roles(group="site").split()
    sites = [set(part.samples["site"]) for part in parts]
    assert sum(map(len, sites)) == len(set.union(*sites)) == 50
    assert all(abs(len(part) - share) <= 8 for part, share in zip(parts, (160, 20, 20), strict=True))


def test_samples_without_a_label_are_split_like_a_class_of_their_own():
    columns = {"sample": range(60), "label": [None, 0, 1] * 20}
    table = EventTable.from_columns([0], [0], ["x"], [1], columns)
    for part in table.split((0.5, 0.5)):
        assert part.labelled.sum() == 20
        assert len(part) == 30


# ---------------------------------------------------------------- writing and reading


def test_what_was_written_is_read_back_identical(large, tmp_path):
    table = large.with_roles(group="site", statics=["site"])
    folder = table.write(tmp_path / "data")
    assert sorted(path.name for path in folder.iterdir()) == [
        "events.parquet",
        "readings",
        "samples.parquet",
        "table.json",
    ]
    back = EventTable.read(folder)
    assert same(back, table)
    for name in ("time", "sensor", "value", "start", "count"):
        array, original = getattr(back, name), getattr(table, name)
        assert np.array_equal(array, original)
        assert array.dtype == original.dtype


def test_a_chosen_part_is_written_as_just_that_part(large, tmp_path):
    part = large[[5, 3, 100]].where(pl.col("value") > 0)
    back = EventTable.read(part.write(tmp_path / "part"))
    assert same(back, part)
    assert len(back.value) == part.num_readings


@pytest.mark.parametrize("key", [[], [2]])
def test_no_samples_or_no_readings_survive_writing(table, tmp_path, key):
    assert same(EventTable.read(table[key].write(tmp_path / "data")), table[key])


def test_a_written_table_opens_memory_mapped_and_slicing_copies_nothing(large, tmp_path):
    back = EventTable.read(large.write(tmp_path / "data"))
    for name in ("time", "sensor", "value"):
        assert isinstance(getattr(back, name), np.memmap)
        assert np.shares_memory(getattr(back[10:20], name), getattr(back, name))
    assert isinstance(back[[3, 5]].value, np.memmap)
    assert isinstance(back.with_labels(np.arange(200)).value, np.memmap)


def test_a_written_table_can_be_overwritten_while_it_is_open(large, tmp_path):
    large.write(tmp_path / "data")
    back = EventTable.read(tmp_path / "data")
    with pytest.raises(OutputExistsError, match="exists already"):
        back.write(tmp_path / "data")
    back[:50].write(tmp_path / "data", overwrite=True)
    assert same(EventTable.read(tmp_path / "data"), large[:50])
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_roles_named_when_reading_replace_the_written_ones(large, tmp_path):
    large.write(tmp_path / "data")
    back = EventTable.read(tmp_path / "data", label="site", group=None)
    assert isinstance(back.value, np.memmap)
    assert back.roles.label == "site"


def test_writing_twice_gives_the_same_bytes(large, tmp_path):
    one, two = large.write(tmp_path / "one"), large.write(tmp_path / "two")
    for path in sorted(one.rglob("*")):
        assert path.is_dir() or path.read_bytes() == (two / path.relative_to(one)).read_bytes(), path


def edit(folder, **columns):
    frame = pl.read_parquet(folder / "events.parquet")
    frame.with_columns(**columns).write_parquet(folder / "events.parquet", compression="zstd")


def test_an_edit_of_the_events_is_noticed(table, tmp_path):
    folder = table.write(tmp_path / "data")
    edit(folder, value=pl.col("value") * 2)
    back = EventTable.read(folder)
    assert back.value.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert back.roles == table.roles
    assert back.samples.equals(table.samples)


def test_an_edit_that_keeps_size_and_extremes_is_noticed(tmp_path):
    rng = np.random.default_rng(0)
    table = EventTable.from_columns(np.arange(20_000) % 50, rng.random(20_000), ["x"] * 20_000, rng.normal(size=20_000))
    folder = table.write(tmp_path / "data")
    size, value = (folder / "events.parquet").stat().st_size, table.value.copy()
    value[[10, 20]] = value[[20, 10]]
    edit(folder, value=pl.Series(value))
    assert (folder / "events.parquet").stat().st_size == size, "the edit should be one that the size does not give away"
    assert np.array_equal(EventTable.read(folder).value, value)


def test_an_edit_of_the_samples_is_noticed(table, tmp_path):
    folder = table.write(tmp_path / "data")
    samples = pl.read_parquet(folder / "samples.parquet").with_columns(label=pl.lit("maybe"))
    samples.write_parquet(folder / "samples.parquet")
    assert EventTable.read(folder).labels.tolist() == ["maybe"] * 3


@pytest.mark.parametrize("start", [hours(4), [2.0]], ids=["date times", "numbers"])
def test_an_edited_table_is_not_shifted_to_its_reference_again_and_keeps_its_cutoff(tmp_path, start):
    zero = start[0]
    time = hours(4, 5, 6) if isinstance(zero, dt.datetime) else [2.0, 3.0, 4.0]
    events = {"sample": ["a"] * 3, "time": time, "sensor": ["x"] * 3, "value": [1, 2, 3]}
    table = EventTable.from_frames(events, {"sample": ["a"], "reference": start, "cutoff": time[1:2]})
    folder = table.write(tmp_path / "data")
    late = pl.read_parquet(folder / "events.parquet").with_columns(time=pl.Series([0.5, 9.0]))
    late.write_parquet(folder / "events.parquet")
    assert EventTable.read(folder).time.tolist() == [0.5]


def test_negative_times_and_an_unread_label_survive_an_edit(tmp_path):
    events = {**EVENTS, "time": [-2.0, 1.5, 0.0, 1.5, 0.5]}
    table = EventTable.from_frames(events, SAMPLES, before_reference="keep", label="")
    folder = table.write(tmp_path / "data")
    edit(folder, value=pl.col("value") + 1)
    back = EventTable.read(folder)
    assert back.time.tolist() == table.time.tolist()
    assert back.roles.label is None


def test_without_its_arrays_a_written_table_is_read_from_parquet(table, tmp_path):
    folder = table.write(tmp_path / "data")
    shutil.rmtree(folder / "readings")
    assert same(EventTable.read(folder), table)


def test_sensors_keep_their_order_without_the_arrays(tmp_path):
    table = EventTable.from_frames(EVENTS, sensors=["T", "SpO2", "HR"])
    folder = table.write(tmp_path / "data")
    shutil.rmtree(folder / "readings")
    assert same(EventTable.read(folder), table)


def as_written_by_0_1(folder):
    """Turn a folder of the current format into format 1: values as float32, in the arrays and in Parquet."""
    events = pl.read_parquet(folder / "events.parquet").with_columns(pl.col("value").cast(pl.Float32))
    events.write_parquet(folder / "events.parquet", compression="zstd")
    np.save(folder / "readings" / "value.npy", events["value"].to_numpy())
    info = json.loads((folder / "table.json").read_text())
    for name in info["written"]:
        path = folder / name
        info["written"][name] = [path.stat().st_size, file_checksum(path)]
    (folder / "table.json").write_text(json.dumps(info | {"format": 1}))
    return folder


def test_a_folder_written_by_0_1_is_read_from_its_parquet_files(tmp_path):
    samples = {**SAMPLES, "cutoff": [1.5, 1.0, 3.0], "reference": [0.0, 0.0, 0.0]}
    table = EventTable.from_frames(EVENTS, samples, statics=["age"], sensors=["T", "SpO2", "HR"], time_unit="days")
    folder = as_written_by_0_1(table.write(tmp_path / "data"))
    back = EventTable.read(folder)
    assert same(back, table)
    assert back.value.dtype == np.float64
    assert back.dropped == table.dropped == {"after the cutoff": 1}
    again = EventTable.read(back.write(tmp_path / "again"))
    assert same(again, table)


def test_values_keep_all_their_digits(tmp_path):
    values = [120_000_000_003.0, 120_000_000_004.0, 0.1, -1e-300]
    table = EventTable.from_columns(["a"] * 4, range(4), ["x"] * 4, values)
    folder = table.write(tmp_path / "data")
    assert EventTable.read(folder).value.tolist() == values
    shutil.rmtree(folder / "readings")
    assert EventTable.read(folder).value.tolist() == values
    assert table.where(pl.col("value") > 0).value.tolist() == values[:3]


def test_a_large_file_is_judged_by_size_and_age_alone(large, tmp_path, monkeypatch):
    monkeypatch.setattr("raindrop.table.store.MAX_CHECKSUM_BYTES", 0)
    folder = large.write(tmp_path / "data")
    parquet, arrays = folder / "events.parquet", folder / "readings" / "offsets.npy"
    os.utime(parquet, ns=(0, arrays.stat().st_mtime_ns - 1))
    os.utime(folder / "samples.parquet", ns=(0, 0))
    with monkeypatch.context() as patch:
        patch.setattr("raindrop.table.store.file_checksum", None)  # not called
        assert isinstance(EventTable.read(folder).value, np.memmap)
    os.utime(parquet, ns=(0, arrays.stat().st_mtime_ns))
    assert not isinstance(EventTable.read(folder).value, np.memmap)


def test_the_table_file_holds_what_a_person_may_want_to_know(table, tmp_path):
    about = json.loads((table.write(tmp_path / "data") / "table.json").read_text())
    assert about["sensors"] == ["HR", "T"]
    assert about["roles"]["label"] == "label"
    assert about["fingerprint"] == table.fingerprint


# ---------------------------------------------------------------- fingerprint


def test_the_same_data_have_the_same_fingerprint_whatever_their_order(table):
    shuffled = pl.DataFrame(EVENTS).sample(fraction=1, shuffle=True, seed=1)
    assert EventTable.from_frames(shuffled, SAMPLES, statics=["age"]).fingerprint == table.fingerprint
    assert table[[2, 1, 0]][[2, 1, 0]].fingerprint == table.fingerprint
    assert table.where(pl.col("value") > 0).fingerprint == table.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t[[1, 0, 2]],
        lambda t: t[:2],
        lambda t: t.where(pl.col("value") < 5),
        lambda t: t.in_unit("minutes"),
        lambda t: t.with_labels(["no", "no", "no"]),
        lambda t: t.with_roles(statics=[]),
        lambda t: EventTable.from_frames({**EVENTS, "value": [5, 3, 1, 2, 4.001]}, SAMPLES, statics=["age"]),
        lambda t: EventTable.from_frames({**EVENTS, "time": [2, 1.5, 0, 1.5, 0.51]}, SAMPLES, statics=["age"]),
        lambda t: EventTable.from_frames({**EVENTS, "sensor": ["HR", "T", "HR", "HR", "HR"]}, SAMPLES, statics=["age"]),
        lambda t: EventTable.from_frames(EVENTS, {**SAMPLES, "age": [50, 60, 71]}, statics=["age"]),
        lambda t: EventTable.from_frames(EVENTS, {**SAMPLES, "sample": ["a", "b", "d"]}, statics=["age"]),
    ],
)
def test_any_change_of_the_data_changes_the_fingerprint(table, change):
    assert change(table).fingerprint != table.fingerprint


# ---------------------------------------------------------------- scikit-learn


class Threshold(ClassifierMixin, BaseEstimator):
    """Says yes where the mean reading is high."""

    def fit(self, X, y):
        assert isinstance(X, EventTable)
        self.classes_ = np.unique(y)
        self.threshold_ = X.value[X.rows()].mean()
        return self

    def predict(self, X):
        means = [sample.value[sample.rows()].mean() if sample.num_readings else 0.0 for sample in X]
        return self.classes_[(np.array(means) > self.threshold_).astype(int)]


def test_scikit_learn_splits_a_table(large):
    assert len(list(KFold(5).split(large))) == 5
    for train, test in StratifiedKFold(5).split(large, large.labels):
        assert len(large[train]) + len(large[test]) == 200
    sites = large.samples["site"].to_numpy()
    for train, test in GroupKFold(5).split(large, large.labels, groups=sites):
        assert not set(large[train].samples["site"]) & set(large[test].samples["site"])


def test_scikit_learn_indexes_a_table(large):
    train, test, y_train, y_test = train_test_split(large, large.labels, test_size=0.25, random_state=0)
    assert isinstance(train, EventTable)
    assert (len(train), len(test)) == (150, 50)
    assert train.labels.tolist() == y_train.tolist()
    assert test.labels.tolist() == y_test.tolist()
    assert _safe_indexing(large, np.array([3, 1])).ids == ["3", "1"]
    assert _safe_indexing(large, slice(0, 2)).ids == ["0", "1"]
    assert indexable(large, large.labels)[0] is large


def test_cross_validation_runs_over_a_table(large):
    scores = cross_val_score(Threshold(), large, large.labels, cv=4, error_score="raise")
    assert scores.shape == (4,)
    loop = []
    for train, test in StratifiedKFold(4).split(large, large.labels):
        model = Threshold().fit(large[train], large.labels[train])
        loop.append(np.mean(model.predict(large[test]) == large.labels[test]))
    assert scores.tolist() == loop


def test_a_position_outside_the_table_is_an_index_error_that_names_it(table):
    for key in (3, -4, [0, 3], [-4, 2]):
        with pytest.raises(IndexError, match=r"Sample position (3|-4) is outside a table of 3 samples"):
            table[key]


@pytest.mark.parametrize(
    "key", [1.5, [0.5], None, [[0, 1]], [[0], [1, 2]], {"a"}, [None], dt.date(2024, 1, 1)], ids=str
)
def test_what_cannot_choose_a_sample_is_an_error(table, key):
    with pytest.raises(DataError, match="Samples are chosen by position, slice, mask or id"):
        table[key]
