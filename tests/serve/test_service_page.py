"""The page of the service in a real browser."""

from __future__ import annotations

import pytest
from browsers import launched_browser
from learnable import easy_table
from served_models import columns_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    with launched_browser() as opened:
        yield opened


class Page:
    """The page, with everything it requests and complains about."""

    def __init__(self, browser, port: int, width: int = 1300):
        self.requests, self.errors = [], []
        self.page = browser.new_page(viewport={"width": width, "height": 900})
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console", lambda told: self.errors.append(told.text) if told.type in ("error", "warning") else None
        )
        self.origin = f"http://127.0.0.1:{port}/"
        self.page.goto(self.origin)
        self.wait()

    def wait(self) -> None:
        """Until all answers are shown; the page says that it waits before the click that asks for them returns."""
        self.page.wait_for_selector("html[data-ready=yes]", timeout=60_000)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def predict(self, csv: str) -> None:
        self.page.fill("#csv", csv)
        self.page.click("#go")
        self.wait()


@pytest.fixture
def page(browser, service):
    opened = Page(browser, service.port)
    yield opened
    assert {url for url in opened.requests if not url.startswith(opened.origin)} == set()
    opened.page.close()


def test_an_example_shows_score_contributions_graph_and_filled_gaps(page):
    assert "ward-risk: classification of label" in page.text("#about")
    page.page.click("#examples button:nth-child(2)")
    page.wait()
    assert page.text("#headline").startswith("ill: ")
    assert "coverage of 90 %" in page.text("#interval")
    assert page.page.locator("#moved-chart rect").count() >= 2
    assert page.page.locator("#graph-chart path.edge").count() >= 2
    assert page.page.locator("#series-charts circle.filled").count() >= 1
    assert page.page.locator("#series-charts line.whisker").count() >= 1
    assert page.page.locator("#series-charts figure").count() == 3
    assert page.errors == []


def test_a_csv_of_several_samples_can_be_pasted_and_one_chosen(page):
    columns = columns_of(easy_table(2))
    rows = zip(columns["sample"], columns["time"], columns["sensor"], columns["value"], strict=True)
    page.predict("sample,time,sensor,value\n" + "\n".join(",".join(map(str, row)) for row in rows))
    first = page.text("#headline")
    assert page.page.locator("#sample option").count() == 2
    page.page.select_option("#sample", "s001")
    page.wait()
    assert page.text("#headline") != first
    assert page.errors == []


def test_the_numbers_of_an_axis_are_not_cut_off(page):
    page.predict(
        "time,sensor,value\n0,pressure,-0.04321\n1,pressure,-0.0001234\n2,heart rate,-12345\n3,heart rate,-99999.5"
    )
    cut = """texts => texts.filter(text => text.getBBox().x < 0).map(text => text.textContent)"""
    assert page.page.locator("#series-charts text").count() >= 6
    assert page.page.locator("#series-charts text").evaluate_all(cut) == []
    assert page.errors == []


def test_a_file_can_be_chosen(page, tmp_path):
    (tmp_path / "readings.csv").write_text('time;sensor;value\n0,5;"heart rate";1,5\n2;pressure;3\n')
    page.page.set_input_files("#file", tmp_path / "readings.csv")
    page.page.wait_for_selector("#headline:not(:empty)")
    page.wait()
    assert page.text("#headline").startswith("ill: ")
    assert page.page.locator("#series-charts figure").count() >= 2
    assert page.errors == []


def test_statics_can_be_given(page):
    page.predict("time,sensor,value\n0,pressure,1\n5,heart rate,2")
    unknown = page.text("#headline"), page.text("#notes")
    page.page.fill("#statics input", "95")
    page.page.select_option("#statics select", "north")
    page.page.click("#go")
    page.wait()
    assert "'age'" in unknown[1]
    assert page.text("#notes") == ""


@pytest.mark.parametrize(
    ("csv", "said"),
    [("", "Give a line"), ("a,b\n1,2", "'time' is missing"), ("time,sensor,value\n0,pressure,x", "not a number"),
     ("time,sensor,value\n0,<img src=x onerror=alert(1)>,1", "not read in training")],
)  # fmt: skip
def test_what_is_wrong_is_told_in_a_sentence(page, csv, said):
    page.predict(csv)
    assert said in page.text("#problem")
    assert page.page.locator("img").count() == 0


@pytest.mark.parametrize("width", [1300, 400])
def test_nothing_is_wider_than_the_window(browser, service, width):
    opened = Page(browser, service.port, width)
    opened.page.click("#examples button:nth-child(1)")
    opened.wait()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.page.close()
