"""The tables of a benchmark are copied into docs/results.md completely, and nothing else on the page changes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from results import make_summary

from raindrop.benchmark.render import markdown
from raindrop.errors import DataError

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("results_page", ROOT / "benchmarks" / "results_page.py")
results_page = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(results_page)


def marker(kind: str, text: str = "old content\n") -> str:
    return f"words\n<!-- {kind} -->\n{text}<!-- end -->\nmore words\n"


def test_each_marker_gets_its_part_of_the_table_and_the_text_stays(tmp_path):
    table = markdown(make_summary(tmp_path))
    kinds = ["caption mine", "tables mine", "verdicts mine"]
    page = results_page.fill_page("".join(map(marker, kinds)), {"mine": table}.__getitem__)
    assert "old content" not in page
    assert page.count("\nmore words\n") == page.count("words\n<!-- ") == 3
    inside = re.findall(r"-->\n\n(.*?)\n\n<!-- end", page, re.S)
    copied = "\n\n".join(inside).replace("\n#### ", "\n### ").splitlines()
    empty = [line for line in table.splitlines() if re.match(r"\| \w+ \| 0 \|", line)]
    assert [line for line in copied if line] == [line for line in table.splitlines() if line and line not in empty]
    assert results_page.fill_page(page, {"mine": table}.__getitem__) == page


def test_blocks_and_verdicts_can_be_selected_by_the_start_of_their_heading(tmp_path):
    table = markdown(make_summary(tmp_path))
    assert "### fixed 34 %" in table
    page = results_page.fill_page(
        marker("tables mine: fixed sensors, random") + marker("verdicts mine: all"), lambda _: table
    )
    assert re.findall(r"^#### (\w+ \w+)", page, re.M) == [
        "fixed sensors",
        "fixed sensors",
        "random sensors",
        "random sensors",
    ]
    assert len(re.findall("^- all sensors", page, re.M)) == 2


def test_rows_without_any_result_are_left_out(tmp_path):
    summary = make_summary(tmp_path, net={})
    assert "| Net | 0 |" in markdown(summary)
    page = results_page.fill_page(marker("tables mine"), lambda _: markdown(summary))
    assert "| Trees | 3 |" in page
    assert "| Net |" not in page


def test_a_marker_for_which_the_table_has_nothing_is_refused(tmp_path):
    table = markdown(make_summary(tmp_path))
    with pytest.raises(DataError, match=r"The table mine has nothing for <!-- tables mine: fxed -->"):
        results_page.fill_page(marker("tables mine: fxed"), lambda _: table)


def test_every_marker_on_the_page_is_filled():
    page = results_page.PAGE.read_text()
    markers = results_page.MARKER.findall(page)
    assert len(markers) >= 30
    assert page.count("<!--") == 2 * len(markers)
