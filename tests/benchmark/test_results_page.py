"""The tables of a benchmark get into docs/results.md whole, and nothing else on the page moves."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from test_aggregate import FILE, PUBLISHED, made

from raindrop.benchmark.render import markdown
from raindrop.errors import DataError

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("results_page", ROOT / "benchmarks" / "results_page.py")
results_page = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(results_page)


def place(kind: str, text: str = "what stood there before\n") -> str:
    return f"words\n<!-- {kind} -->\n{text}<!-- end -->\nmore words\n"


def test_each_place_gets_its_part_of_the_table_and_the_words_stay(tmp_path):
    table = markdown(made(tmp_path=tmp_path))
    kinds = ["caption mine", "tables mine", "verdicts mine"]
    page = results_page.filled("".join(map(place, kinds)), {"mine": table}.__getitem__)
    assert "before" not in page
    assert page.count("\nmore words\n") == page.count("words\n<!-- ") == 3
    inside = re.findall(r"-->\n\n(.*?)\n\n<!-- end", page, re.S)
    said = "\n\n".join(inside).replace("\n#### ", "\n### ").splitlines()
    empty = [line for line in table.splitlines() if re.match(r"\| \w+ \| 0 \|", line)]
    assert [line for line in said if line] == [line for line in table.splitlines() if line and line not in empty]
    assert results_page.filled(page, {"mine": table}.__getitem__) == page


def test_blocks_and_verdicts_can_be_chosen_by_how_their_headings_begin(tmp_path):
    table = markdown(made(tmp_path=tmp_path))
    assert "### fixed 34 %" in table
    page = results_page.filled(
        place("tables mine: fixed sensors, random") + place("verdicts mine: all"), lambda _: table
    )
    assert re.findall(r"^#### (\w+ \w+)", page, re.M) == [
        "fixed sensors",
        "fixed sensors",
        "random sensors",
        "random sensors",
    ]
    assert len(re.findall("^- all sensors", page, re.M)) == 2


def test_rows_without_a_figure_are_left_out(tmp_path):
    summary = made(net={}, text=FILE + PUBLISHED, tmp_path=tmp_path)
    assert "| Net | 0 |" in markdown(summary)
    page = results_page.filled(place("tables mine"), lambda _: markdown(summary))
    assert "| Trees | 3 |" in page
    assert "Net" not in page


def test_a_place_for_which_the_table_has_nothing_is_refused(tmp_path):
    table = markdown(made(tmp_path=tmp_path))
    with pytest.raises(DataError, match=r"The table mine has nothing for <!-- tables mine: fxed -->"):
        results_page.filled(place("tables mine: fxed"), lambda _: table)


def test_every_mark_on_the_page_is_one_that_is_filled():
    page = results_page.PAGE.read_text()
    places = results_page.PLACE.findall(page)
    assert len(places) >= 30
    assert page.count("<!--") == 2 * len(places)
