"""The page of a search: what was tried, what mattered, and whether the best is any better than the start."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from raindrop.errors import RaindropError
from raindrop.report.search_page import search_page, write_search_page
from raindrop.search.result import SearchResult, TrialRecord

NAME = "<b>AUROC</b> ($$x$$)"


def trial(number: int, value: float | None, rate: float, kind: str, **more: object) -> TrialRecord:
    known = {"train.learning_rate": rate, "model.kind": kind}
    record = TrialRecord(number, "complete", value, known, number == 0, 3, 2.0)
    return replace(record, **more)  # type: ignore[arg-type]


@pytest.fixture
def result() -> SearchResult:
    trials = [
        trial(0, 0.80, 1e-3, "nine"),
        trial(1, 0.85, 2e-3, "more"),
        trial(2, 0.60, 5e-2, "nine", state="pruned"),
        trial(3, None, 9e-2, "more", state="failed", failure="The loss became <nan>.\nLower it."),
        *(trial(at, 0.7 + at / 100, 1e-4 * at**2, "nine") for at in range(4, 14)),
    ]
    importance = {"train.learning_rate": 0.75, "model.kind": 0.25}
    return SearchResult(
        "raindrop", "tuned", NAME, False, "12 validation samples", {"train.epochs": 5}, trials, importance
    )


class Tags(HTMLParser):
    """The tags that are open at the end, and those that were closed in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """Such as <line ... />."""

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_the_page_shows_every_trial_and_compares_the_best_with_the_start(result: SearchResult) -> None:
    page = search_page(result, title="A <search>")
    assert "Better by 0.0500 than the settings that the search started from (0.8000)" in page
    assert "14 trials (12 complete, 1 pruned, 1 failed)" in page
    assert page.count("<circle") == 13 + 2 * 13  # over time, and against each of two settings; one has no value
    assert page.count("(pruned)</title>") == 3
    assert page.count('class="bar-fill"') == 2
    assert "75%" in page
    assert "The same in every trial: train.epochs = 5." in page
    assert len(re.findall(r"<tr><td class=\"number\">\d+</td><td>", page)) == 14


def test_names_are_text_and_nothing_is_loaded(result: SearchResult) -> None:
    page = search_page(result, title="A <search>")
    assert "<b>" not in page
    assert "&lt;b&gt;AUROC" in page
    assert "The loss became &lt;nan&gt;." in page
    assert "A &lt;search&gt;" in page
    assert "<script" not in page
    assert not re.search(r"(?:href|src)=\"(?!data:)", page)
    tags = Tags()
    tags.feed(page)
    assert (tags.open, tags.wrong) == ([], [])


def test_dots_lie_within_the_picture_and_higher_values_above(result: SearchResult) -> None:
    page = search_page(result)
    pictures = re.findall(r'<svg viewBox="0 0 (\d+) (\d+)".*?</svg>', page, re.S)
    assert len(pictures) == 3
    dots = re.findall(r'<circle cx="([\d.-]+)" cy="([\d.-]+)" r="\d"[^>]*><title>trial (\d+)', page)
    assert all(0 < float(x) < 860 and 0 < float(y) < 260 for x, y, _ in dots)
    height = {int(number): float(y) for x, y, number in dots[:13]}
    assert height[1] < height[0] < height[2]


def test_a_search_that_found_nothing_better_says_so(result: SearchResult) -> None:
    worse = replace(result, trials=result.trials[:1] + result.trials[2:4], importance={})
    page = search_page(worse)
    assert "No trial is better than the settings that the search started from (0.8000)" in page
    assert "too few complete trials to say which settings mattered" in page


def test_one_trial_is_enough_and_none_is_an_error(result: SearchResult, tmp_path: Path) -> None:
    one = replace(result, trials=result.trials[:1], importance={})
    path = write_search_page(one, tmp_path / "search.html")
    assert write_search_page(one, path).read_text() == search_page(one)  # the page of an earlier start is replaced
    with pytest.raises(RaindropError, match="No trial of the search is finished yet"):
        search_page(replace(result, trials=[]))


def test_lower_values_lead_where_lower_is_better(result: SearchResult) -> None:
    errors = replace(result, lower_is_better=True)
    assert errors.best.number == 4
    assert errors.gain == pytest.approx(0.80 - 0.74)
