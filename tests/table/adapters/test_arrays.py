"""Arrays of numpy, PyPOTS and aeon, and frames of sktime: the same readings whatever holds them."""

import numpy as np
import pandas as pd
import pytest
import torch
from refusal import refused

from raindrop.table.event_table import EventTable

NAN = np.nan
GRID = np.array([[[1.0, NAN], [NAN, 2.0]], [[NAN, 3.0], [NAN, NAN]]])  # (sample, time, sensor)
READINGS = [("0", 0.0, "sensor 0", 1.0), ("0", 1.0, "sensor 1", 2.0), ("1", 0.0, "sensor 1", 3.0)]


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, list, lambda grid: dict(zip("01", grid, strict=True))])
def test_every_entry_that_is_not_nan_is_a_reading(kind):
    table = EventTable.from_arrays(kind(GRID))
    assert table.events().rows() == READINGS
    assert table.ids == ["0", "1"]


def test_a_two_dimensional_array_is_one_long_series():
    table = EventTable.from_arrays(GRID[0], sensors=["a", "b"])
    assert table.events().rows() == [("0", 0.0, "a", 1.0), ("0", 1.0, "b", 2.0)]


def test_arrays_of_unequal_length_have_their_own_times():
    values = {"p": [[1.0, 2.0]], "q": [[3.0, NAN], [4.0, 5.0], [NAN, 6.0]]}
    times = {"q": [0.0, 0.5, 9.0], "p": [7.0]}
    table = EventTable.from_arrays(values, times, sensors=["a", "b"], labels=["no", "yes"])
    assert table.where(table.events()["sample"].to_numpy() == "q").events().rows() == [
        ("q", 0.0, "a", 3.0), ("q", 0.5, "a", 4.0), ("q", 0.5, "b", 5.0), ("q", 9.0, "b", 6.0),
    ]  # fmt: skip
    assert table.labels.tolist() == ["no", "yes"]
    same = EventTable.from_arrays(list(values.values()), [times["p"], times["q"]], list("pq"), sensors=["a", "b"])
    assert same.events().equals(table.events())


def test_times_may_be_shared_given_for_each_sample_or_dates():
    assert EventTable.from_arrays(GRID, [0.0, 5.0]).time.tolist() == [0.0, 5.0, 0.0]
    assert EventTable.from_arrays(GRID, [[0.0, 5.0], [8.0, 9.0]]).time.tolist() == [0.0, 5.0, 8.0]
    days = np.array(["2024-01-31", "2024-02-01"], dtype="datetime64[D]")
    assert EventTable.from_arrays(GRID, days).time.tolist() == [0.0, 24.0, 0.0]


def test_padding_needs_no_times():
    table = EventTable.from_arrays(GRID, [[0.0, 5.0], [8.0, NAN]])
    assert table.time.tolist() == [0.0, 5.0, 8.0]


def test_samples_may_be_a_frame_with_attributes():
    samples = {"sample": ["x", "y"], "age": [70, 50]}
    table = EventTable.from_arrays(GRID, samples=samples, labels=[True, False], statics=["age"])
    assert (table.ids, table.roles.statics, table.labels.tolist()) == (["x", "y"], ("age",), [True, False])
    by_name = EventTable.from_arrays({"y": GRID[1], "x": GRID[0]}, samples=samples)
    assert by_name.samples.rows() == [("y", 50), ("x", 70)]


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (np.zeros(3), {}, "values: an array (sample, time, sensor)"),
        (np.zeros((1, 2, 3, 4)), {}, "this one has 4 axes"),
        ([[1.0, 2.0], [3.0, 4.0]], {}, "this is a list of rows"),
        ([], {}, "there is no sample"),
        (np.zeros((2, 3, 0)), {}, "there is no sensor"),
        (
            [np.zeros((2, 2)), np.zeros((2, 3))],
            {},
            "values of sample 1 have the shape (2, 3), those",
        ),
        ([[["on"]]], {}, "not an array of numbers"),
        (GRID, {"sensors": ["a"]}, "1 names are given, but the arrays have 2 columns"),
        (GRID, {"times": [[0.0, 1.0]]}, "there are 1 lists of times, but 2 samples"),
        (GRID, {"times": [[0.0], [1.0, 2.0]]}, "first: sample 0 with 1 times and 2 rows"),
        (GRID, {"times": {"0": [0, 1]}}, "times is a dict, but values is not"),
        ({"a": GRID[0]}, {"times": {"b": [0, 1]}}, "1 of 1 samples have none (first: 'a')"),
        (GRID, {"samples": ["only one"]}, "there are 1 of them, but 2 arrays"),
        (GRID, {"labels": [1]}, "one for each of 2 samples is needed"),
        (GRID, {"times": [NAN, 1.0]}, "have no time"),
        (GRID, {"samples": ["same", "same"]}, "share their sample id"),
        (GRID + np.inf, {}, "have an infinite value"),
    ],
)
def test_a_mistake_is_named(values, options, message):
    assert message in refused(EventTable.from_arrays, values, **options)


def test_a_dictionary_of_pypots():
    table = EventTable.from_pypots({"X": GRID, "y": np.array([1, 0])})
    assert table.events().rows() == READINGS
    assert table.labels.tolist() == [1, 0]
    assert EventTable.from_pypots({"X": GRID}).roles.label is None
    assert "has 'X' (sample, time, sensor)" in refused(EventTable.from_pypots, {"x": GRID})
    assert "not 2-D" in refused(EventTable.from_pypots, {"X": GRID[0]})


def test_arrays_of_aeon_have_channels_before_times():
    expected = EventTable.from_arrays(GRID, labels=[1, 0]).events()
    assert EventTable.from_aeon(GRID.transpose(0, 2, 1), [1, 0]).events().equals(expected)
    unequal = [GRID[0].T, GRID[1].T[:, :1]]
    assert EventTable.from_aeon(unequal, [1, 0]).events().equals(expected)
    assert EventTable.from_aeon(unequal, sensors=["a", "b"]).sensors == ("a", "b")
    assert "(sample, channel, time)" in refused(EventTable.from_aeon, GRID[0])


# ---------------------------------------------------------------- sktime


def test_a_frame_with_the_index_instance_and_time():
    index = pd.MultiIndex.from_tuples([("a", 0.0), ("a", 1.5), ("b", 0.0), ("c", 0.0)], names=["instance", "time"])
    frame = pd.DataFrame({"x": [1.0, NAN, 3.0, NAN], "y": [NAN, 2.0, NAN, NAN]}, index=index)
    table = EventTable.from_sktime(frame, ["p", "q", "p"])
    assert table.events().rows() == [("a", 0.0, "x", 1.0), ("a", 1.5, "y", 2.0), ("b", 0.0, "x", 3.0)]
    assert (table.ids, table.labels.tolist()) == (["a", "b", "c"], ["p", "q", "p"])


def test_dates_and_more_levels_of_an_index():
    days = pd.to_datetime(["2024-01-01", "2024-01-02"])
    index = pd.MultiIndex.from_tuples([("north", 1, days[0]), ("north", 1, days[1]), ("south", 1, days[0])])
    table = EventTable.from_sktime(pd.DataFrame({"x": [1, 2, 3]}, index=index))
    assert table.events().rows()[:2] == [("north / 1", 0.0, "x", 1.0), ("north / 1", 24.0, "x", 2.0)]


def test_a_nested_frame_of_sktime():
    cells = [pd.Series([1.0, 2.0], index=[0.0, 4.0]), pd.Series([3.0])]
    frame = pd.DataFrame({"x": cells, "y": [pd.Series([NAN, 5.0]), pd.Series([], dtype=float)]}, index=["a", "b"])
    table = EventTable.from_sktime(frame, [0, 1])
    assert table.events().rows() == [
        ("a", 0.0, "x", 1.0), ("a", 1.0, "y", 5.0), ("a", 4.0, "x", 2.0), ("b", 0.0, "x", 3.0),
    ]  # fmt: skip


def test_other_things_than_frames_of_sktime_are_refused():
    assert "use EventTable.from_aeon" in refused(EventTable.from_sktime, GRID)
    assert "read by EventTable.from_wide" in refused(EventTable.from_sktime, pd.DataFrame({"x": [1.0]}))
    index = pd.MultiIndex.from_tuples([("a", 0.0)])
    assert "labels of shape (2,)" in refused(EventTable.from_sktime, pd.DataFrame({"x": [1.0]}, index=index), [0, 1])
