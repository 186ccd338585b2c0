"""A table is cut into parts of whole samples, and a part is scored as its samples are in the whole table."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from closeness import assert_close
from hypothesis import given
from hypothesis import strategies as st
from learnable import QUICK, easy_table

import raindrop as rd
from raindrop.errors import DataError
from raindrop.estimators import Classifier, MultiLabelClassifier, Regressor
from raindrop.scale.parts import cut_samples, cut_table, part_frames, stored_fingerprint

TREES = {"model.rounds": 3, "model.min_samples": 2}


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 20), st.integers(1, 120))
def test_parts_hold_every_sample_once_in_order_and_keep_their_bounds(readings, most_samples, most_readings):
    parts = cut_samples(np.array(readings, dtype=np.int64), most_samples, most_readings)
    assert [at for part in parts for at in range(part.start, part.stop)] == list(range(len(readings)))
    assert [part.number for part in parts] == list(range(len(parts)))
    for part in parts:
        assert 1 <= len(part) <= most_samples
        assert len(part) == 1 or sum(readings[part.start : part.stop]) <= most_readings


def test_no_part_cuts_through_a_sample(monkeypatch, make_table):
    monkeypatch.setattr("raindrop.scale.parts.PART_SAMPLES", 4)
    table = make_table(samples=11)
    frames = [part_frames(table, part) for part in cut_table(table)]
    assert [len(samples) for _, samples in frames] == [4, 4, 3]
    assert pl.concat([samples for _, samples in frames]).equals(table.samples)
    assert pl.concat([events for events, _ in frames]).equals(table.events())
    for events, samples in frames:
        assert set(events["sample"]) <= set(samples["sample"])


def several_labels() -> rd.EventTable:
    table = easy_table(48, classes=("ill", "well"), statics=("age",))
    truth = table.samples.with_columns(north=pl.col("ward") == "north", ill=pl.col("label") == "ill")
    return rd.EventTable.from_frames(table.events(), truth, label="", statics=["age"])


ESTIMATORS = {
    "classes": lambda: (Classifier("trees", config=TREES), easy_table(48, statics=("age", "ward"))),
    "network": lambda: (Classifier(config=QUICK), easy_table(48, classes=("ill", "well"), statics=("ward",))),
    "quantities": lambda: (Regressor("trees", label="age", config=TREES), easy_table(48, statics=("ward",))),
    "labels": lambda: (MultiLabelClassifier("trees", labels=["north", "ill"], config=TREES), several_labels()),
}


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_part_has_the_predictions_and_columns_of_the_whole_table(kind):
    estimator, table = ESTIMATORS[kind]()
    whole = estimator.fit(table).predict_table(table).frame()
    for part in cut_samples(table.count, 10, 10**6):
        events, samples = part_frames(table, part)
        scored = rd.scale.score_part(estimator, events.to_arrow(), samples.to_arrow(), sensors=table.sensors).frame()
        assert scored.schema == whole.schema
        for name, column in whole[part.start : part.stop].to_dict().items():
            if column.dtype.is_float():
                assert_close(scored[name], column, dtype=np.float32)
            else:
                assert scored[name].equals(column)


@pytest.fixture(scope="module")
def fitted():
    table = easy_table(48, statics=("age", "ward"))
    return Classifier("trees", config=TREES).fit(table), table


def test_rows_in_any_order_with_attributes_beside_the_readings_are_scored_alike(fitted):
    estimator, table = fitted
    beside = table.events().join(table.samples.select("sample", "age", "ward"), on="sample")
    mixed = beside.with_columns(pl.col("sensor").cast(pl.String)).sample(fraction=1.0, shuffle=True, seed=0)
    scored = rd.scale.score_part(estimator, mixed.to_arrow()).frame()
    assert scored.sort("sample").equals(estimator.predict_table(table).frame().sort("sample"))


def test_coverage_and_time_unit_are_those_that_are_given():
    table = easy_table(24)
    estimator = Classifier(config=QUICK).fit(table)
    minutes = table.in_unit("minutes")
    scored = rd.scale.score_part(
        estimator, minutes.events(), minutes.samples, time_unit="minutes", coverage=0.8
    ).frame()
    assert scored.equals(estimator.predict_table(minutes, coverage=0.8).frame())
    as_hours = rd.scale.score_part(estimator, minutes.events(), minutes.samples, coverage=0.8).frame()
    assert not as_hours.equals(scored)


def test_unknown_sensors_are_an_error_or_ignored(fitted):
    estimator, table = fitted
    extra = pl.DataFrame({"sample": ["s000"], "time": [1.0], "sensor": ["lactate"], "value": [2.0]})
    events = pl.concat([table.events().with_columns(pl.col("sensor").cast(pl.String)), extra])
    with pytest.raises(DataError, match="1 sensor was not read in training"):
        rd.scale.score_part(estimator, events, table.samples)
    estimator.set_params(unknown_sensors="ignore")
    scored = rd.scale.score_part(estimator, events, table.samples).frame()
    assert scored.equals(estimator.predict_table(table).frame())
    estimator.set_params(unknown_sensors="error")


def test_only_a_folder_that_was_written_as_a_table_is_opened_by_workers(tmp_path):
    table = easy_table(12)
    folder = table.write(tmp_path / "data")
    assert stored_fingerprint(folder) == table.fingerprint
    table.events().head(5).write_parquet(folder / "events.parquet")
    assert stored_fingerprint(folder) is None
    assert stored_fingerprint(tmp_path) is None
    assert stored_fingerprint(tmp_path / "nothing") is None
