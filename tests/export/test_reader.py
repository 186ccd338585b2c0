"""The reader of exported models: NumPy alone, and the same grid, statics, windows and calibration as the library."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from closeness import assert_close
from random_tables import random_table

from raindrop import EventTable
from raindrop.batch.collate import Collator
from raindrop.batch.gap_windows import GapWindows
from raindrop.batch.gaps import Gaps
from raindrop.batch.scaling import Scaler
from raindrop.batch.windows import Windows
from raindrop.export import reader
from raindrop.tasks.calibration import Calibrator


@pytest.fixture(scope="module")
def table() -> EventTable:
    return random_table(samples=9, times=12)


def about_of(table: EventTable) -> dict[str, Any]:
    return {"scaler": Scaler.fit(table).to_dict()}


def columns_of(table: EventTable) -> tuple[dict[str, Any], dict[str, Any]]:
    events = table.events()
    shuffled = events.sample(fraction=1.0, shuffle=True, seed=3)
    return (
        {name: shuffled[name].to_list() for name in ("sample", "time", "sensor", "value")},
        {name: table.samples[name].to_list() for name in table.samples.columns},
    )


def test_the_reader_imports_numpy_and_the_standard_library_alone() -> None:
    tree = ast.parse(Path(reader.__file__).read_text())
    top = {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names}
    assert top == {"argparse", "csv", "hashlib", "json", "os", "sys", "numpy"}
    inner = {n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names} - top
    assert inner == {"onnxruntime"}
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names == {"__future__", "collections.abc", "datetime", "typing", "numpy.typing"}


def test_shuffled_rows_become_the_grid_of_the_library(table: EventTable) -> None:
    batch = Collator(table, Scaler.fit(table)).batch(np.arange(len(table)))
    grid = batch.grid()
    readings = reader.Readings(about_of(table), *columns_of(table))
    value, observed, time = readings.grid(np.arange(len(table)), 100)
    assert readings.ids == list(table.ids)
    assert np.array_equal(observed, grid.observed.numpy())
    assert_close(value, grid.value.numpy())
    assert np.array_equal(time, grid.time.numpy())
    assert_close(reader.encode_statics(about_of(table), columns_of(table)[1], len(table)), batch.statics.numpy())


def test_batches_hold_every_sample_once(table: EventTable, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = reader.Readings(about_of(table), *columns_of(table))
    monkeypatch.setattr(reader, "MAX_CELLS", 2 * readings.width * int(readings.steps.max()))
    parts = list(readings.batches(4))
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(table)))
    assert np.all(np.diff(readings.steps[np.concatenate(parts)]) >= 0)
    assert max(map(len, parts)) <= 4
    assert len(parts) > 3


def test_windows_are_those_of_the_library() -> None:
    rng = np.random.default_rng(0)
    hours = np.sort(rng.choice(4000, 900, replace=False)).astype(float)
    long = EventTable.from_columns(
        np.where(np.arange(900) < 700, "a", "b"), np.where(np.arange(900) < 700, hours, hours - hours[700]),
        np.array(["x", "y"])[rng.integers(0, 2, 900)], rng.normal(size=900),
    )  # fmt: skip
    expected = Windows.cut(long, 2.0)
    found = reader.Windows(reader.Readings(about_of(long), columns_of(long)[0]), 2.0, [])
    assert np.array_equal(found.sample, expected.sample)
    assert [low for low, _ in found.ranges] == expected.row.tolist()
    assert [high - low for low, high in found.ranges] == expected.count.tolist()
    sample, time = rng.integers(0, 2, 200), rng.uniform(-10, 4100, 200)
    assert np.array_equal(found.of(sample, time), expected.of(sample, time))


def test_windows_show_the_same_readings_of_slow_sensors_as_in_the_library() -> None:
    hours = np.arange(0, 2000, 1.0)
    seldom = np.arange(0, 2000, 37.0)
    time = np.concatenate([hours, seldom, hours[:900], seldom[:20]])
    sensor = np.repeat(["x", "slow", "x", "slow"], [2000, len(seldom), 900, 20])
    sample = np.repeat(["a", "b"], [2000 + len(seldom), 920])
    long = EventTable.from_columns(sample, time, sensor, np.zeros(len(time)))
    windows, slow = Windows.cut(long, 1.0), long.sensors.index("slow")
    gaps = Gaps.learn(long, np.array([1.0, 1.0]))
    source = GapWindows(long, Scaler.fit(long), windows, gaps, slow=np.arange(2) == slow)
    found = reader.Windows(reader.Readings(about_of(long), *columns_of(long)), 1.0, [slow])
    rows, owner, _ = source.readings(np.arange(len(windows)))
    assert len(rows) > windows.count.sum() > 0
    for at in range(len(windows)):
        assert found.rows(at).tolist() == rows[owner == at].tolist()


@pytest.mark.parametrize("method", ["none", "temperature", "isotonic"])
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_calibrated_as_in_the_library(method: Any, classes: int) -> None:
    rng = np.random.default_rng(0)
    probability = rng.dirichlet(np.ones(classes), 200).astype(np.float32)
    truth = np.array([rng.choice(classes, p=p / p.sum()) for p in probability.astype(float)])
    calibrator = Calibrator.fit(method, truth, probability)
    assert_close(reader.calibrate(calibrator.to_dict(), probability), calibrator(probability))


def test_probabilities_of_labels_are_calibrated_each_by_itself() -> None:
    rng = np.random.default_rng(0)
    yes = rng.random((200, 2)).astype(np.float32)
    calibrators = [
        Calibrator.fit("isotonic", (rng.random(200) < p**power).astype(np.int64), np.stack([1 - p, p], axis=1))
        for p, power in zip(yes.T, (1.0, 3.0), strict=True)
    ]
    about = {"method": "labels", "labels": [calibrator.to_dict() for calibrator in calibrators]}
    expected = [c(np.stack([1 - p, p], axis=1))[:, 1] for c, p in zip(calibrators, yes.T, strict=True)]
    assert_close(reader.calibrate(about, yes), np.stack(expected, axis=1))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sensor": ["other", "sensor 1"]}, "never seen the sensor 'other'"),
        ({"value": [1.0, np.nan]}, "row 2 has no finite time and value"),
        ({"sample": ["nobody", "sample 0"]}, "'nobody' is not among the samples"),
        ({"time": [1.0, 1.0], "sensor": ["sensor 1", "sensor 1"]}, "repeat another one"),
    ],
)
def test_bad_rows_are_refused_with_their_place(table: EventTable, change: dict[str, Any], reason: str) -> None:
    events = {"sample": ["sample 0", "sample 0"], "time": [1.0, 2.0], "sensor": ["sensor 1", "sensor 2"]}
    events |= {"value": [0.0, 0.0]} | change
    with pytest.raises(reader.ReaderError, match=reason):
        reader.Readings(about_of(table), events, {"sample": list(table.ids)})


def test_a_series_that_is_too_long_names_the_option(table: EventTable) -> None:
    readings = reader.Readings(about_of(table), *columns_of(table))
    with pytest.raises(reader.ReaderError, match="--max-times 12"):
        readings.grid(np.arange(len(table)), 8)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(reader.ReaderError, match="no column 'value'"):
        reader.Readings({}, {"sample": [], "time": [], "sensor": []})


def test_csv_columns_are_read_by_name(tmp_path: Path) -> None:
    pl.DataFrame({"sample": ["a,b"], "time": [1.5]}).write_csv(tmp_path / "x.csv")
    assert reader.read_csv(tmp_path / "x.csv") == {"sample": ["a,b"], "time": ["1.5"]}
