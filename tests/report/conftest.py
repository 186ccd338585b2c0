"""A model of a table with awkward names, the report on it, and a browser to open reports in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from awkward import awkward_model, awkward_table
from browsers import launched_browser
from opened_page import Opened

from raindrop import Classifier, EventTable
from raindrop.report import Report, report_on


@pytest.fixture(scope="session")
def table() -> EventTable:
    return awkward_table()


@pytest.fixture(scope="session")
def model(table: EventTable) -> Classifier:
    return awkward_model(table)


@pytest.fixture(scope="session")
def report(model: Classifier, table: EventTable) -> Report:
    other = awkward_model(table, **{"train.epochs": 1})
    return report_on(
        model, table, baselines={"other": other}, other_seeds=[other], notes={"<note>": "& more"}, samples=10
    )


@pytest.fixture(scope="session")
def text(report: Report) -> str:
    """The page of the report."""
    from raindrop.report.page import page

    return page(report)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def tabs(browser: Any, pages: dict[str, Path]) -> Iterator[dict[tuple[str, int], Opened]]:
    """Reports that are open, by name and width; opening one takes seconds."""
    tabs: dict[tuple[str, int], Opened] = {}
    yield tabs
    for tab in tabs.values():
        tab.page.close()


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path], tabs: dict[tuple[str, int], Opened]) -> Iterator[Any]:
    """A function that opens a report by name and width, or finds it open, as the test before left it."""
    used: list[Opened] = []

    def open_page(which: str, width: int) -> Opened:
        key = which, width
        if key not in tabs:
            tabs[key] = Opened(browser, pages[which], viewport={"width": width, "height": 900})
        used.append(tabs[key])
        return tabs[key]

    yield open_page
    assert [error for tab in used for error in tab.errors] == []
