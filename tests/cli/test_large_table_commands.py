"""The commands that write a table or readings do it block by block where the table is large, to the same files."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from command_line import Ask
from small_blocks import make_small
from waves import wave_table

from raindrop import EventTable, Forecaster, Imputer


@pytest.mark.slow
def test_the_commands_write_the_same_files_of_a_large_table(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = wave_table(12, readings=12)
    data = table.write(tmp_path / "data")
    Imputer("linear").fit(table).save(tmp_path / "imputer")
    Forecaster("last", horizon=6.0, cutoff=12.0).fit(table).save(tmp_path / "forecaster")
    commands = [
        ("impute", "apply", tmp_path / "imputer", data, "--readings", "gaps.csv", "--out", "filled"),
        ("impute", "apply", tmp_path / "imputer", data, "--readings", "grid.parquet", "--every", 4),
        ("forecast", "apply", tmp_path / "forecaster", data, "--out", "forecasts.csv", "--every", 2),
    ]
    shown = {}
    for name in ("whole", "blocks"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        shown[name] = [ask(*words)[:2] for words in commands]
        make_small(monkeypatch, large=120, block=100)
    assert [code for code, _ in shown["whole"]] == [0, 0, 0]
    last_lines = {name: [text.splitlines()[-1] for _, text in each] for name, each in shown.items()}
    assert last_lines["blocks"] == last_lines["whole"]
    whole, blocks = tmp_path / "whole", tmp_path / "blocks"
    for name in ("gaps.csv", "forecasts.csv"):
        assert (blocks / name).read_bytes() == (whole / name).read_bytes()
    assert pl.read_parquet(blocks / "grid.parquet").equals(pl.read_parquet(whole / "grid.parquet"))
    assert EventTable.read(blocks / "filled").fingerprint == EventTable.read(whole / "filled").fingerprint
