"""A model of a table with awkward names, and the report on it."""

from __future__ import annotations

import pytest
from awkward import awkward_model, awkward_table

from raindrop import Classifier, EventTable
from raindrop.report import Report, report_on


@pytest.fixture(scope="module")
def table() -> EventTable:
    return awkward_table()


@pytest.fixture(scope="module")
def model(table: EventTable) -> Classifier:
    return awkward_model(table)


@pytest.fixture(scope="module")
def report(model: Classifier, table: EventTable) -> Report:
    other = awkward_model(table, **{"train.epochs": 1})
    return report_on(
        model, table, baselines={"other": other}, other_seeds=[other], notes={"<note>": "& more"}, samples=10
    )


@pytest.fixture(scope="module")
def text(report: Report) -> str:
    """The page of the report."""
    from raindrop.report.page import page

    return page(report)
