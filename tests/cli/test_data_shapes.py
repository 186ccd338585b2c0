"""Ten shapes of data: each becomes the same table with one command, and every command opens it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import Ask
from data_shapes import SHAPES, readings

from raindrop import EventTable


@pytest.mark.parametrize("name", SHAPES)
def test_one_command_reads_each_shape(name: str, ask: Ask, tmp_path: Path) -> None:
    shape = SHAPES[name]
    (tmp_path / "given").mkdir()
    code, shown, notes = ask("import", *shape.write(tmp_path / "given"), "--out", tmp_path / "table")
    assert code == 0, notes
    assert f"wrote the table to {tmp_path / 'table'}" in shown
    table = EventTable.read(tmp_path / "table")
    assert (len(table), table.sensors) == (shape.samples, shape.sensors)
    for words in shape.notices:
        assert words in notes
        assert any(words in notice for notice in table.notices)
    assert notes.count("note:") == len(table.notices)
    if shape.labelled:
        assert len(set(table.labels)) == 2
    code, shown, errors = ask("inspect", tmp_path / "table")
    assert (code, errors) == (0, "")
    assert repr(table) in shown


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in ("MEDS", "one long series")])
def test_each_shape_has_the_same_readings(name: str, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    ask("import", *SHAPES[name].write(tmp_path / "given"), "--out", tmp_path / "table")
    table = EventTable.read(tmp_path / "table")
    events = table.where(pl.col("sensor").cast(pl.String).is_in(["temp", "vib"])).events()
    expected = readings().sort("machine", "hours", "name")
    assert np.allclose(events["time"], expected["hours"])
    assert np.allclose(events["value"], expected["x"])
    assert events["sensor"].to_list() == expected["name"].to_list()


def test_a_meds_folder_keeps_its_split_and_nothing_after_the_prediction(ask: Ask, tmp_path: Path) -> None:
    words = SHAPES["MEDS"].write(tmp_path)
    code, shown, _ = ask("import", *words, "--out", tmp_path / "table")
    assert code == 0
    assert f"train with --split {tmp_path / 'table' / 'splits.parquet'}:1" in shown
    table = EventTable.read(tmp_path / "table")
    assert table.time.max() <= 12.0
    assert table.num_readings == len(readings().filter(readings()["hours"] <= 12))
