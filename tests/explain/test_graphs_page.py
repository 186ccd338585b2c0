"""The example in docs/graphs.md runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from learnable import QUICK, easy_table

PAGE = Path(__file__).parents[2] / "docs" / "graphs.md"


@pytest.mark.slow
def test_the_example_of_the_graphs_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[1]
    code = code.replace('preset="graph", ', 'preset="graph", config=QUICK, ')
    train, val, test = (easy_table(30, seed=seed) for seed in range(3))
    exec(code, {"QUICK": QUICK, "train": train, "val": val, "test": test})
    assert (tmp_path / "difference.cyjs").exists()
