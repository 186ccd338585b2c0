"""Exported models give what the library gives, at any batch size and number of threads, without torch."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from random_tables import random_table

import raindrop as rd
from raindrop.batch.collate import Collator
from raindrop.cli.app import main
from raindrop.export import export_model, reader
from raindrop.export.reader import ExportedModel
from raindrop.table.queries import QueryTable
from raindrop.table.time_columns import day_shares

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
SHORT: dict[str, Any] = {"train.epochs": 1, "train.min_steps": 1, "train.soft_targets": 0.0, "train.batch_size": 8}


def columns_of(table: rd.EventTable) -> tuple[dict[str, Any], dict[str, Any]]:
    events = table.events()
    return (
        {name: events[name].to_numpy() for name in ("sample", "time", "sensor", "value")},
        {name: table.samples[name].to_list() for name in table.samples.columns},
    )


@pytest.fixture(scope="module")
def table() -> rd.EventTable:
    return random_table(samples=24, times=12)


@pytest.fixture(scope="module")
def classifier(table: rd.EventTable) -> rd.Classifier:
    return rd.Classifier(config=SHORT, calibrate="temperature").fit(table)


@pytest.fixture(scope="module")
def folder(classifier: rd.Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported from a run's folder, as docs/export.md says."""
    place = tmp_path_factory.mktemp("exported")
    classifier.save(place / "runs" / "ward")
    (command,) = re.findall(r"^raindrop (export .*)$", PAGE, re.M)
    with contextlib.chdir(place):
        main(shlex.split(command))
    return place / "exported"


@pytest.mark.parametrize("threads", [1, 2])
def test_an_onnx_classifier_gives_the_librarys_probabilities_at_any_batch_size(
    classifier: rd.Classifier, table: rd.EventTable, folder: Path, threads: int
) -> None:
    expected = classifier.predict_proba(table)
    model = ExportedModel(folder, threads=threads)
    for size in (1, 2, 7, 24):
        ids, predicted = model.predict(*columns_of(table), batch_size=size)
        assert ids == list(table.ids)
        assert np.abs(predicted - expected).max() < 1e-5


def test_the_reader_runs_where_there_is_neither_torch_nor_polars_nor_raindrop(
    classifier: rd.Classifier, table: rd.EventTable, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "exported")
    table.events().write_csv(tmp_path / "events.csv")
    table.samples.write_csv(tmp_path / "samples.csv")
    absent = "import sys; sys.modules.update(dict.fromkeys(('torch', 'polars', 'raindrop', 'sklearn', 'scipy')))"
    (command,) = re.findall(r"^python (exported/reader.py .*)$", PAGE, re.M)
    words = shlex.split(command)
    code = f"{absent}; sys.argv = {words}; import runpy; runpy.run_path({words[0]!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    written = pl.read_csv(tmp_path / "predictions.csv")
    assert written.columns == ["sample", *json.loads((folder / "model.json").read_text())["columns"]]
    assert np.abs(written[:, 1:].to_numpy() - classifier.predict_proba(table)).max() < 1e-5


def test_a_damaged_export_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "onnx")
    content = bytearray((tmp_path / "onnx" / "model.onnx").read_bytes())
    content[-1] ^= 1
    (tmp_path / "onnx" / "model.onnx").write_bytes(bytes(content))
    with pytest.raises(reader.ReaderError, match="Export the model again"):
        ExportedModel(tmp_path / "onnx")


def test_a_series_longer_than_the_export_is_refused(folder: Path) -> None:
    events = {"sample": ["a"] * 257, "time": np.arange(257.0), "sensor": ["sensor 1"] * 257, "value": np.zeros(257)}
    with pytest.raises(reader.ReaderError, match="--max-times 257"):
        ExportedModel(folder).predict(events)


def test_a_classifier_answers_no_queries(folder: Path) -> None:
    with pytest.raises(reader.ReaderError, match=r"call predict\(events, samples\)"):
        ExportedModel(folder).readings_at({}, {})


@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
def test_a_pt2_program_of_the_papers_model_gives_the_librarys_scores(table: rd.EventTable, tmp_path: Path) -> None:
    model = rd.Regressor(label="age", preset="paper", config={"train.epochs": 1}).fit(table)
    export_model(model, tmp_path / "pt2", format="pt2", max_times=16)
    program = torch.export.load(tmp_path / "pt2" / "model.pt2").module()
    expected = model.predict_quantiles(table)
    for rows in (np.arange(1), np.arange(5), np.arange(len(table))):
        batch = Collator(table, model.scaler_).batch(rows)
        grid = batch.grid()
        with torch.no_grad():
            found = program(grid.value, grid.observed, grid.time, batch.statics).numpy()
        assert np.abs(found - expected[rows]).max() < 1e-4  # years


@pytest.mark.parametrize("dated", [False, True])
def test_an_onnx_imputer_answers_as_the_library_does_in_windows_of_a_long_series(tmp_path: Path, dated: bool) -> None:
    rng = np.random.default_rng(0)
    hour, sensor = np.nonzero(rng.random((700, 3)) < 0.7)
    value = rng.normal(size=len(hour)) + 3 * (hour % 24 == 9)
    start = datetime(2026, 1, 1, 5, 30)
    time = pl.Series([start + timedelta(hours=int(h)) for h in hour]) if dated else hour.astype(float)
    series = rd.EventTable.from_columns(np.repeat("plant", len(hour)), time, np.array(["x", "y", "z"])[sensor], value)
    model = rd.Imputer(config={"train.epochs": 1, "train.min_steps": 20}).fit(series)
    export_model(model, tmp_path / "onnx", max_times=512)
    queries = rd.grid(series, every=7.3)
    expected = model.readings_at(series, queries).value
    exported = ExportedModel(tmp_path / "onnx")
    numbers = QueryTable.from_frame(series, queries).time  # hours since the first reading
    asked = {"sample": queries["sample"].to_numpy(), "time": numbers, "sensor": queries["sensor"].to_numpy()}
    events, samples = columns_of(series)
    for size in (1, 3, 50):
        found = exported.readings_at(events, asked, samples, batch_size=size)
        assert np.abs(found[:, found.shape[1] // 2] - expected).max() < 1e-4
    if dated:
        unknown = exported.readings_at(events, asked, {"sample": ["plant"]})
        assert np.abs(unknown - found).max() > 1e-3
        as_text = exported.readings_at(events, asked, {"sample": ["plant"], "time_zero": ["2026-01-01T05:30:00"]})
        assert np.abs(as_text - found).max() < 1e-6
        assert exported.about["kind"] == "queries"
    inputs = {given.name for given in exported._session.get_inputs()}
    assert ("query_time_of_day" in inputs) == dated


FIVE_THIRTY = datetime(2026, 1, 1, 5, 30)


@pytest.mark.parametrize(
    ("cell", "hour"),
    [
        (FIVE_THIRTY, 5.5),
        (FIVE_THIRTY.replace(tzinfo=timezone(timedelta(hours=2))), 3.5),
        ("2026-01-01 05:30", 5.5),
        ("2026-01-01T05:30:00+02:00", 3.5),
        ("2026-01-01T05:30:00Z", 5.5),
        (np.datetime64("2026-01-01T05:30"), 5.5),
        (np.datetime64("1970-01-01"), 0.0),
        ("", None),
        (None, None),
        (float("nan"), None),
        (np.datetime64("NaT"), None),
    ],
)
def test_the_reader_knows_the_time_of_day_as_the_library_does(cell: Any, hour: float | None) -> None:
    found = reader.time_of_day({"sample": ["a"], "time_zero": [cell]}, np.array([0, 0]), np.array([0.0, 0.25]))
    angle = 2 * np.pi / 24 * (np.array([0.0, 6.0]) + (hour or 0.0))
    expected = np.stack([np.sin(angle), np.cos(angle)], axis=1) * (hour is not None)
    assert found == pytest.approx(expected, abs=1e-6)
    if isinstance(cell, datetime | str) and cell:
        rows = {"sample": ["a", "a"], "time": [cell, cell], "sensor": ["x", "y"], "value": [1.0, 2.0]}
        zero = rd.EventTable.from_frames(pl.DataFrame(rows)).time_zero
        assert 24 * day_shares(zero)[0] == pytest.approx(hour)


@pytest.mark.parametrize("cell", ["noon", 1767245400, "31.01.2026 05:30"])
def test_the_reader_refuses_a_time_zero_that_is_no_date(cell: Any) -> None:
    with pytest.raises(reader.ReaderError, match=r"samples: 'time_zero' needs date times such as 2014-05-01T06"):
        reader.time_of_day({"sample": ["a"], "time_zero": [cell]}, np.array([0]), np.array([0.0]))
