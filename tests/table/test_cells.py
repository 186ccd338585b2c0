"""Text cells: missing markers, types, control characters, the order of names."""

import polars as pl
import pytest
from refusal import refused, write_csv

from raindrop.errors import RaindropWarning, printable
from raindrop.table.cells import MISSING_MARKERS, clean_text, infer_type, natural_key
from raindrop.table.event_table import EventTable

EVENTS = "sample,time,sensor,value\np1,0,HR,80\np2,0,HR,81\np3,0,HR,82\n"


@pytest.mark.parametrize("marker", MISSING_MARKERS)
def test_a_missing_marker_is_a_missing_label_static_and_value(marker, tmp_path):
    events = f"sample,time,sensor,value\np1,0,HR,80\np2,0,HR,81\np2,1,HR,{marker}\n"
    write_csv(tmp_path, events, f"sample,label,age\np1,1,{marker}\np2, {marker} ,70\n")
    with pytest.warns(RaindropWarning) as caught:
        table = EventTable.read(tmp_path, statics=["age"])
    assert table.labelled.tolist() == [True, False]
    assert table.samples["age"].to_list() == [None, 70]
    assert table.samples["age"].dtype == pl.Int64
    assert table.dropped == {"without a value": 1}
    assert [str(each.message) for each in caught] == list(table.notices) == [
        f"{tmp_path / 'samples.csv'}: cells such as NA, null or - are taken as missing: 1 in 'label', 1 in 'age'.",
        f"{tmp_path / 'events.csv'}: 1 of 3 rows have no value; left out.",
    ]  # fmt: skip


def test_white_space_does_not_make_another_class_id_or_name(tmp_path):
    events = "sample, time, sensor, value\np1,0,HR,80\n p2 ,0, HR,81\np3,0,HR ,82\n"
    write_csv(tmp_path, events, "sample,label\np1,1\np2, 1\n p3,0 \n")
    table = EventTable.read(tmp_path)
    assert table.ids == ["p1", "p2", "p3"]
    assert table.sensors == ("HR",)
    assert table.labels.tolist() == [1, 1, 0]


def test_missing_markers_can_be_names(tmp_path):
    write_csv(tmp_path, "sample,time,sensor,value\nNA,0,NA,80\nNA,0,nan,2\n", "sample,label\nNA,1\n")
    table = EventTable.read(tmp_path)
    assert (table.ids, table.sensors) == (["NA"], ("NA", "nan"))


def test_text_columns_of_frames_have_the_same_markers():
    with pytest.warns(RaindropWarning, match="samples: cells .* 2 in 'label'"):
        table = EventTable.from_columns(["a"], [0], ["x"], [1], {"sample": list("abc"), "label": ["NA", "ill", "None"]})
    assert table.samples["label"].to_list() == [None, "ill", None]


def test_a_class_called_none_is_a_class():
    assert clean_text(pl.Series(["none", "mild", "Na"]))[0].to_list() == ["none", "mild", "Na"]


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (["1", None, "-2"], pl.Int64),
        (["1", "2.5"], pl.Float64),
        (["true", "False"], pl.Boolean),
        (["1", "x"], pl.String),
        ([None, None], pl.String),
        (["99999999999999999999", "1"], pl.String),
    ],
)
def test_types_are_inferred_where_every_cell_fits(cells, dtype):
    assert infer_type(pl.Series(cells, dtype=pl.String)).dtype == dtype


def test_names_that_are_numbers_sort_as_numbers():
    names = ["b", "10", "9", "a10", "a9", "1.5", "-2", "1e1x", "a"]
    assert sorted(names, key=natural_key) == ["-2", "1.5", "9", "10", "1e1x", "a", "a9", "a10", "b"]
    table = EventTable.from_columns(["s"] * 3, [0] * 3, [10, 9, 100], [1, 2, 3])
    assert table.sensors == ("9", "10", "100")


@pytest.mark.parametrize(
    ("events", "samples", "what"),
    [
        ({"sensor": ["a\x1b[2J"]}, None, "sensor names"),
        ({"sample": ["s\n1"]}, None, "sample ids"),
        ({}, {"sample": ["s1", "s\t2"]}, "sample ids"),
        ({}, {"sample": ["s1"], "label": ["il\x07l"]}, "values of column 'label'"),
        ({}, {"sample": ["s1"], "la\x00bel": [1]}, "names of columns"),
    ],
)
def test_control_characters_in_names_are_refused_and_shown_escaped(events, samples, what):
    columns = {"sample": ["s1"], "time": [0], "sensor": ["x"], "value": [1]} | events
    message = refused(EventTable.from_frames, columns, samples)
    assert f"1 {what} with control characters (first: '" in message
    assert printable(message) == message


def test_a_message_with_control_characters_is_escaped_for_the_terminal(tmp_path):
    write_csv(tmp_path, "sample,time,sensor,value\np1,0,HR,80\np1,1,HR,\x1b[31m9\n")
    message = refused(EventTable.read, tmp_path)
    assert "\x1b" in message
    assert "\\x1b[31m9" in printable(message)


# ---------------------------------------------------------------- ids


def test_ids_with_a_decimal_zero_are_the_same_in_csv_and_frames(tmp_path):
    write_csv(tmp_path, "sample,time,sensor,value\n17.0,0,3.0,80\n017,0,3,1\n", "sample,label\n17,1\n017,0\n")
    table = EventTable.read(tmp_path)
    assert (table.ids, table.sensors) == (["17", "017"], ("3",))
    assert EventTable.from_columns([17.0], [0], ["x"], [1], {"sample": ["17"]}).ids == ["17"]
    assert EventTable.from_columns(["17.0"], [0], ["x"], [1], {"sample": [17]}).ids == ["17"]


@pytest.mark.parametrize(("dtype", "number"), [(pl.Float64, 2**53), (pl.Float64, 2**53 + 2), (pl.Float32, 2**24)])
def test_ids_that_floats_merge_are_refused(dtype, number):
    ids = pl.Series("sample", [number, number + 2, 1.0], dtype=dtype)
    message = refused(EventTable.from_frames, {"sample": ids, "time": [0, 0, 0], "sensor": ["x"] * 3, "value": [1] * 3})
    assert message.startswith("events: column 'sample' holds sample ids above ")
    assert "2 of 3 rows" in message
    assert "Read the column as text or whole numbers" in message


def test_large_whole_ids_stay_apart(tmp_path):
    large = [2**53, 2**53 + 1, 2**63 - 1]
    assert EventTable.from_columns(large, [0] * 3, ["x"] * 3, [1] * 3).ids == [str(number) for number in large]
    write_csv(tmp_path, "sample,time,sensor,value\n" + "".join(f"{number},0,x,1\n" for number in large))
    assert EventTable.read(tmp_path).ids == [str(number) for number in large]


# ---------------------------------------------------------------- labels that are ids


@pytest.mark.parametrize(
    ("name", "labels"),
    [("outcome", [f"stay {at}" for at in range(20)]), ("stay_id", list(range(500, 700, 10))), ("row", list(range(20)))],
)
def test_a_label_that_looks_like_an_id_is_said(name, labels):
    samples = {"sample": [str(at) for at in range(20)], name: labels}
    with pytest.warns(RaindropWarning, match=rf"Label '{name}' has another value for each of 20 samples.*--label NAME"):
        EventTable.from_columns(["1"], [0], ["x"], [1], samples, label=name)


@pytest.mark.parametrize("labels", [[at * at for at in range(20)], [at / 7 for at in range(20)], [0, 1] * 10])
def test_quantities_and_classes_do_not_look_like_ids(labels):
    samples = {"sample": [str(at) for at in range(20)], "cost": labels}
    assert EventTable.from_columns(["1"], [0], ["x"], [1], samples, label="cost").notices == ()
