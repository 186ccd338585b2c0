"""Reports on regression and multi-label models in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from awkward import LABELS, QUANTITIES, SENSORS, awkward_estimator, awkward_outcomes
from opened_page import Opened

from raindrop import MultiLabelClassifier, Regressor
from raindrop.report import report_on, report_on_run, write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report on each of the two tasks, and one of a run alone."""
    folder, outcomes = tmp_path_factory.mktemp("pages"), awkward_outcomes()
    written = {}
    for name, kind in (("quantities", Regressor), ("labels", MultiLabelClassifier)):
        estimator = awkward_estimator(kind, outcomes)
        report = report_on(estimator, outcomes, baselines={"<s>twin</s>": estimator}, samples=12)
        written[name] = write_report(report, folder / f"{name}.html")
        written[f"{name} run"] = write_report(report_on_run(estimator), folder / f"{name}-run.html")
    return written


@pytest.mark.parametrize("which", ["quantities", "labels", "quantities run", "labels run"])
def test_it_opens_from_disk_without_requests_or_errors(which, browser, pages):
    tab = Opened(browser, pages[which])
    assert tab.requests == [pages[which].as_uri()]
    assert tab.errors == []
    heights = "Object.keys(charts).map(byId).filter((e) => e.offsetParent).map((e) => e.getBoundingClientRect().height)"
    assert min(tab.evaluate(heights)) > 100
    assert tab.evaluate("Object.keys(charts).filter((id) => byId(id) === null)") == []
    tab.page.close()


@pytest.mark.parametrize("which", ["quantities", "labels"])
def test_a_phone_needs_no_sideways_scrolling(which, browser, pages):
    tab = Opened(browser, pages[which], viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    tab.wait_until_painted()
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    right = "[...document.querySelectorAll('.chart')].map((chart) => chart.getBoundingClientRect().right)"
    assert max(tab.evaluate(right)) <= 360
    tab.page.close()


@pytest.mark.parametrize(("which", "names"), [("quantities", QUANTITIES), ("labels", LABELS)])
def test_names_of_quantities_and_labels_are_shown_literally(which, names, opened):
    tab = opened(which, 1300)
    text = tab.evaluate("document.body.innerText")
    for name in (*names, *SENSORS, "<s>twin</s>"):
        assert name in text, name
    for selector in ("main img", "main b", "main i", "main u", "main s"):
        assert tab.page.locator(selector).count() == 0, selector


@pytest.mark.parametrize(("which", "names"), [("quantities", QUANTITIES), ("labels", LABELS)])
def test_contributions_are_to_the_chosen_quantity_or_label(which, names, opened):
    tab = opened(which, 1300)
    seen = []
    for at, name in enumerate(names):
        tab.page.select_option("#output", str(at))
        assert name in tab.page.locator("#contribution-note").inner_text()
        seen.append(tab.page.locator("#contributions").inner_text())
    assert seen[0] != seen[1]
    sample = tab.evaluate("state.sample")
    tab.page.click("#next")
    assert tab.evaluate("state.sample") != sample
    assert names[1] in tab.page.locator("#contribution-note").inner_text()


@pytest.mark.parametrize("which", ["quantities", "labels"])
def test_one_graph_of_all_samples_with_its_strongest_edges(which, opened):
    tab = opened(which, 1300)
    assert tab.page.locator("#graphs .class-name").first.inner_text() == "all samples"
    assert tab.page.locator("#graph-difference, #class").count() == 0
    tab.page.locator("#threshold").fill("50")
    rows = tab.page.locator("#edge-table tbody tr")
    assert rows.count() == len(tab.edges("graph-class"))
    assert tab.page.locator("#edge-note").inner_text().startswith(f"The {rows.count()} strongest of")
    tab.page.select_option("#view", "2")
    assert "of all samples only" in tab.page.locator("#graph-sample-empty").inner_text()
