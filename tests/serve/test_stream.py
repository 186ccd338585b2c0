"""Stream: the score of live samples is that of a table of the same readings, whatever the order of arrival."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from arrival_orders import as_dates, in_random_order, play, readings_of, table_of
from learnable import QUICK, SENSORS, easy_table

import raindrop as rd
from raindrop.serve.arrivals import Arrivals

ORDERS = int(os.environ.get("STREAM_ORDERS", "30"))
"""How many orders of arrival to try; docs/stream.md has the result of 1,000."""
MODES = ("numbers", "date times", "window", "cutoff")


@pytest.fixture(scope="module")
def classifier():
    table = easy_table(40, statics=("age", "ward"))
    return rd.Classifier(config=QUICK | {"train.epochs": 1}).fit(table)


def some_statics(rng: np.random.Generator, samples: int = 5) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "sample": [f"s{at}" for at in range(samples)],
            "age": [None if rng.random() < 0.2 else float(rng.normal(60, 10)) for _ in range(samples)],
            "ward": rng.choice(["north", "south", "west"], samples),
        }
    )


def assert_same_scores(stream: rd.Stream, table: rd.EventTable) -> None:
    expected = stream.model.predict_table(table)
    found = stream.scores(expected.ids)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=0, atol=1e-6)
    alone = stream.scores(expected.ids[:1])  # a single sample is scored in another way
    np.testing.assert_allclose(alone.probabilities, expected.probabilities[:1], rtol=0, atol=1e-6)


def windows(readings: pl.DataFrame, window: float) -> pl.DataFrame:
    """The readings of the last `window` before each sample's latest, counted from its start."""
    start = pl.col("time").max().over("sample") - window
    return readings.filter(pl.col("time") >= start).with_columns(pl.col("time") - start)


@pytest.mark.slow
def test_any_order_of_arrival_with_corrections_and_restarts_gives_the_scores_of_a_table(classifier, tmp_path):
    for seed in range(ORDERS):
        rng = np.random.default_rng(seed)
        mode = MODES[seed % len(MODES)]
        readings, statics = readings_of(rng, SENSORS), some_statics(rng)
        arrivals = in_random_order(rng, readings)
        settings = {"window": {"window": 4.0}, "cutoff": {"cutoff": 6.0}}.get(mode, {})
        folder = tmp_path / str(seed)

        def abandon(stream, folder=folder):  # as a kill does: nothing is saved, the system frees the lock
            stream._folder.close()
            return rd.Stream.open(stream.model, folder, sync=False)

        def save_and_restore(stream, folder=folder):
            stream.save(folder)
            return rd.Stream.restore(stream.model, folder)

        if seed % 3 == 0:
            stream, restart = rd.Stream.open(classifier, folder, sync=False, **settings), abandon
        else:
            stream, restart = rd.Stream(classifier, **settings), save_and_restore
        dated = mode == "date times"
        stream = play(stream, as_dates(arrivals) if dated else arrivals, statics, rng, restart)
        expected = {
            "numbers": lambda table: table,
            "date times": as_dates,
            "window": lambda table: windows(table, 4.0),
            "cutoff": lambda table: table.filter(pl.col("time") <= 6.0),
        }[mode](readings)
        assert_same_scores(stream, table_of(expected, statics, classifier.scaler_.sensors))
        stream.close()


def test_only_samples_that_changed_are_scored(classifier):
    stream = rd.Stream(classifier)
    stream.push({"sample": ["a", "b"], "time": [1, 1], "sensor": ["pressure"] * 2, "value": [1, 2]})
    assert list(stream.scores().ids) == ["a", "b"]
    assert len(stream.scores()) == 0
    pushed = stream.push({"sample": ["a", "b"], "time": [1, 1], "sensor": ["pressure"] * 2, "value": [1, 3]})
    assert (pushed.new, pushed.corrected, pushed.repeated) == (0, 1, 1)
    assert stream.changed == ["b"]
    stream.set_samples({"sample": ["a"], "age": [50]})
    assert list(stream.scores().ids) == ["b", "a"]


def test_a_push_whose_offset_is_stored_is_skipped(classifier):
    stream = rd.Stream(classifier)
    one = {"sample": ["a"], "time": [1], "sensor": ["pressure"], "value": [1]}
    assert stream.push(one, offset=10).offset == stream.offset == 10
    later = dict(one, value=[5])
    assert stream.push(later, offset=10).skipped
    assert stream.push(later, offset=9).skipped
    assert stream.table().value.tolist() == [1]
    assert stream.push(later, offset=3, source="another").corrected == 1
    assert stream.offsets == {"": 10, "another": 3}


def test_samples_are_let_go_by_number_and_by_age(classifier):
    stream = rd.Stream(classifier, max_samples=2, max_age=1.0)
    for at, name in enumerate(["a", "b", "a", "c"]):
        stream.push({"sample": [name], "time": [at], "sensor": ["pressure"], "value": [1]}, now=100.0 + at)
    assert stream.samples == ["a", "c"]  # b received nothing for longest
    assert "b" not in stream.changed
    stream.push({"sample": ["c"], "time": [9], "sensor": ["pressure"], "value": [1]}, now=102.0 + 3601)
    assert stream.samples == ["c"]
    stream.let_go("c")
    assert len(stream) == 0
    with pytest.raises(rd.DataError, match="'c' was let go"):
        stream.table(["c"])


def test_a_reading_of_a_sample_that_was_let_go_is_refused_but_later_ones_begin_it_anew(classifier):
    stream = rd.Stream(classifier)
    old = {"sample": ["a"], "time": [5], "sensor": ["pressure"], "value": [1]}
    stream.push(old)
    stream.let_go("a")
    with pytest.raises(rd.DataError, match="of a sample that was let go"):
        stream.push(old)
    stream.push(dict(old, time=[6]))
    assert stream.table().num_readings == 1


def test_readings_within_the_lateness_count_and_later_ones_do_not(classifier):
    columns = {"sample": ["a"] * 4, "time": [1, 5, 3, 2], "sensor": ["pressure"] * 4, "value": [1, 2, 3, 4]}
    strict = rd.Stream(classifier, lateness=2.0)
    with pytest.raises(rd.DataError, match=r"1 of 4 rows come too late \(first: row 4, sample 'a', sensor 'pressure'"):
        strict.push(columns)
    assert len(strict) == 0  # nothing of a refused push is stored
    whole, single = (rd.Stream(classifier, lateness=2.0, late="drop") for _ in range(2))
    assert whole.push(columns).late == 1
    for at in range(4):
        single.push({name: column[at : at + 1] for name, column in columns.items()})
    assert whole.table().time.tolist() == single.table().time.tolist() == [1, 3, 5]


def test_date_times_count_from_the_reference(classifier):
    readings = pl.DataFrame({"sample": ["a"] * 2, "time": [1.0, 3.0], "sensor": ["pressure"] * 2, "value": [1.0, 2.0]})
    stream = rd.Stream(classifier, before_reference="keep")
    stream.push(as_dates(readings))
    assert stream.table().time.tolist() == [0.0, 2.0]
    stream.set_samples({"sample": ["a"], "reference": ["2024-01-31 08:00:00"]})
    assert stream.table().time.tolist() == [1.0, 3.0]


def test_a_cutoff_of_a_sample_may_come_after_its_readings(classifier):
    stream = rd.Stream(classifier)
    stream.push({"sample": ["a"] * 3, "time": [1, 2, 3], "sensor": ["pressure"] * 3, "value": [1, 2, 3]})
    stream.set_samples({"sample": ["a"], "cutoff": [2.0]})
    assert stream.table().time.tolist() == [1.0, 2.0]


def test_unknown_sensors_follow_the_rule_of_the_model(classifier):
    columns = {"sample": ["a", "a"], "time": [1, 2], "sensor": ["pressure", "smell"], "value": [1, 2]}
    with pytest.raises(rd.DataError, match=r"1 sensor was not read in training \(first: 'smell'; 1 of 2 readings\)"):
        rd.Stream(classifier).push(columns)
    classifier.unknown_sensors = "ignore"
    try:
        stream = rd.Stream(classifier)
        stream.push(columns)
        unknown = {"sample": ["a"], "age": [None], "ward": [None]}
        table = rd.EventTable.from_columns(**columns, samples=unknown, statics=["age", "ward"])
        assert_same_scores(stream, table)
    finally:
        classifier.unknown_sensors = "error"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sample": ["a"], "time": [1], "sensor": ["pressure"]}, "no column 'value'"),
        ({"sample": ["a"], "time": [1], "sensor": ["pressure"], "value": [None]}, "1 of 1 rows have no finite value"),
        ({"sample": ["a"], "time": [None], "sensor": ["pressure"], "value": [1]}, "have no finite time"),
        ({"sample": [None], "time": [1], "sensor": ["pressure"], "value": [1]}, "have no sample"),
        ({"sample": ["a"], "time": [1], "sensor": ["pressure"], "value": ["high"]}, "holds text where a value belongs"),
        ({"sample": ["a"], "time": [-1], "sensor": ["pressure"], "value": [1]}, "before their sample's reference time"),
        ("nothing", "cannot be read as a table"),
    ],
)
def test_readings_that_cannot_be_stored_are_refused_in_a_sentence(classifier, columns, message):
    stream = rd.Stream(classifier)
    with pytest.raises(rd.DataError, match=message):
        stream.push(columns)
    assert (len(stream), stream.offset) == (0, 0)


def test_times_of_two_kinds_are_refused(classifier):
    stream = rd.Stream(classifier)
    one = {"sample": ["a"], "time": [1], "sensor": ["pressure"], "value": [1]}
    stream.push(one)
    with pytest.raises(rd.DataError, match="Times are date times without a time zone here, and were numbers before"):
        stream.push(dict(one, time=["2024-01-31 08:00:00"]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lateness": -1}, "lateness=-1"),
        ({"window": 0}, "window=0"),
        ({"window": 1.0, "cutoff": 2.0}, "window and cutoff"),
        ({"max_samples": 0}, "max_samples=0"),
        ({"late": "never"}, "late='never'"),
        ({"time_unit": "weeks"}, "time_unit='weeks'"),
    ],
)
def test_impossible_settings_are_refused(classifier, settings, message):
    with pytest.raises(rd.RaindropError, match=message):
        rd.Stream(classifier, **settings)


def test_a_stream_needs_a_fitted_model():
    with pytest.raises(rd.ConfigError, match="needs a fitted model"):
        rd.Stream("model")


def test_the_examples_of_the_page_on_streams_run(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "stream.md").read_text()
    example, about_samples, after_a_crash = re.findall(r"```python\n(.*?)```", page, re.S)
    names: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    exec(example.replace('Classifier("trees")', 'Classifier("trees", config={"model.rounds": 5})'), names)
    assert "probability" in capsys.readouterr().out
    exec(about_samples, names)
    assert "bed 7" in names["stream"]
    names["log"] = [names["ward"].events()[:5], names["ward"].events()[5:9]]
    for _ in range(2):
        exec(after_a_crash, names)
    assert names["stream"].table().num_readings == 9


@pytest.mark.parametrize("names", [["a", "b 2", "a"], ["7", "07", "7.0"], [" a", "a ", "a"], ["x.0", "-1", "µ"]])
@pytest.mark.parametrize("times", [[1, 2.5, 0], [1.7e9, 1.7e9, 1.7e9 + 60]])
def test_short_lists_are_read_as_a_frame_is(names, times):
    columns = {"sample": names, "time": times, "sensor": ["pressure", "p=on", "pressure"], "value": [1, 2.5, -3e38]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quick, general = (
            Arrivals.from_frame(given, "hours") for given in (columns, pl.DataFrame(columns, strict=False))
        )
    assert (quick.ids, quick.sensors, quick.clock) == (general.ids, general.sensors, general.clock)
    for name in ("owner", "time", "sensor", "value"):
        np.testing.assert_array_equal(getattr(quick, name), getattr(general, name))
