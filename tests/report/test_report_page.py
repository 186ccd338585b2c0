"""The report in a real browser: it opens from disk, asks nothing of the network, and does what its controls say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from awkward import CLASSES, IDS, SENSORS, awkward_model, awkward_table
from browsers import find_browser, give_up

from raindrop.report import report_on, report_on_run, write_report

pytestmark = pytest.mark.slow
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        give_up("the package playwright is not installed", os.environ)
    with sync_playwright() as engine:
        path = find_browser(engine.chromium.executable_path, os.environ)
        if path is None:
            give_up("no browser: install chromium, or name one in RAINDROP_BROWSER", os.environ)
        opened = engine.chromium.launch(executable_path=path, args=FLAGS.split())
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report on a table with awkward names, one with three classes, and one of the run alone."""
    folder = tmp_path_factory.mktemp("pages")
    table = awkward_table()
    model = awkward_model(table)
    rivals = {"<s>twin</s>": model}
    three = awkward_table(classes=("a", "b", "c"))
    return {
        "full": write_report(report_on(model, table, rivals=rivals, title="<b>A title</b>"), folder / "full.html"),
        "three": write_report(report_on(awkward_model(three, **{"train.epochs": 1}), three), folder / "three.html"),
        "run": write_report(report_on_run(model), folder / "run.html"),
    }


class Opened:
    """A page with everything that went wrong on it."""

    def __init__(self, browser: Any, path: Path, **options: Any):
        self.page = browser.new_page(**options)
        self.requests: list[str] = []
        self.trouble: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.trouble.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on(
            "console",
            lambda told: self.trouble.append(told.text) if told.type in ("error", "warning") else None,
        )
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]", timeout=60_000)

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)

    def picture(self, place: str) -> bytes:
        self.page.wait_for_timeout(300)  # until it is painted
        return bytes(self.page.locator(f"#{place}").screenshot())

    def edges(self, place: str) -> list[tuple[str, str]]:
        columns = self.ask(f"(({{sender, receiver}}) => [sender, receiver])(model('{place}-edges').data)")
        return list(zip(*columns, strict=True))


@pytest.fixture
def full(browser: Any, pages: dict[str, Path]) -> Iterator[Opened]:
    opened = Opened(browser, pages["full"], viewport={"width": 1280, "height": 900})
    yield opened
    assert opened.trouble == []
    assert [url for url in opened.requests if url != pages["full"].as_uri()] == []
    opened.page.close()


@pytest.mark.parametrize("which", ["full", "three", "run"])
def test_it_opens_from_disk_with_no_request_and_no_complaint(which, browser, pages):
    opened = Opened(browser, pages[which])
    assert opened.requests == [pages[which].as_uri()]
    assert opened.trouble == []
    drawn = opened.ask("Object.keys(charts).map((id) => document.getElementById(id).getBoundingClientRect().height)")
    assert drawn
    assert min(drawn) > 100
    opened.page.close()


def test_another_sample_has_another_graph_chart_and_score(full):
    assert full.page.locator("#sample-title").inner_text() == full.ask("data.samples[showing.sample].id")
    seen = []
    for _ in range(3):
        words = [full.page.locator(f"#{place}").inner_text() for place in ("sample-title", "contributions")]
        seen.append(
            (*words, full.picture("graph-sample"), full.picture("chart-readings"), full.picture("chart-sensor"))
        )
        full.page.click("#next")
    assert all(len({row[at] for row in seen}) == 3 for at in range(5))
    full.page.select_option("#sample", "7")
    assert full.page.locator("#sample-title").inner_text() == IDS.format(7)
    drawn = full.ask("model('readings').data.time.length")
    assert drawn == full.ask("data.samples[7].time.length")


def test_the_samples_can_be_searched(full):
    full.page.fill("#sample-filter", "SAMPLE</u> 1")
    shown = full.page.locator("#sample option").all_inner_texts()
    assert len(shown) == 11
    assert all("</u> 1" in text for text in shown)
    assert full.page.locator("#sample-count").inner_text() == "11 samples"
    full.page.fill("#sample-filter", "nobody")
    assert full.page.locator("#sample-count").inner_text() == "no such sample"


def test_the_threshold_hides_edges_weakest_first(full):
    slider, counts, least = full.page.locator("#threshold"), [], []
    for hidden in (0, 50, 90, 100):
        slider.fill(str(hidden))
        weights = full.ask(
            "classMeans().own.filter((w, at) => w && at % (width + 1)).map(Math.abs).map(shown).map(Number)"
        )
        drawn = full.ask("model('graph-class-edges').data.weight.map(Number).map(Math.abs)")
        counts.append((len(drawn), len(full.edges("graph-sample")), len(full.edges("graph-difference"))))
        least.append(min(drawn, default=None))
        assert (
            full.page.locator("#threshold-text")
            .inner_text()
            .startswith(f"{len(drawn)} of {len(weights)} edges" if drawn else "no edge")
        )
        if drawn:
            assert min(drawn) == sorted(weights)[-len(drawn)]
    assert counts[0][0] > counts[1][0] > counts[2][0] > counts[3][0] == 0
    assert all(earlier > later for earlier, later in zip(counts[0], counts[2], strict=True))
    assert least[0] < least[1] < least[2]


def test_the_slider_is_moved_by_keys_and_every_control_can_be_reached_by_them(full):
    full.page.focus("#threshold")
    before = len(full.edges("graph-class"))
    for _ in range(20):
        full.page.keyboard.press("ArrowLeft")
    assert len(full.edges("graph-class")) > before
    reached = set()
    full.page.focus("#reading")
    for _ in range(40):
        reached.add(full.ask("document.activeElement.id"))
        full.page.keyboard.press("Tab")
    assert {"reading", "class", "threshold", "search", "sample", "sample-filter", "previous", "next"} <= reached


def test_the_search_finds_a_sensor(full):
    full.page.locator("#threshold").fill("0")
    plain = full.picture("graph-class")
    for text, name in (("A/B", "a/b"), ("double", SENSORS[4]), ("$$", "$$x^2$$")):
        full.page.fill("#search", text)
        assert full.page.locator("#search-text").inner_text() == f"found {name}"
        rows = full.page.locator("#edge-table tbody tr").all()
        assert rows
        for row in rows:
            assert name in [cell.inner_text() for cell in row.locator(".name").all()]
        assert full.picture("graph-class") != plain
    full.page.fill("#search", "nothing like it")
    assert full.page.locator("#search-text").inner_text() == "no such sensor"


def test_names_are_shown_as_they_are(full):
    text = full.ask("document.body.innerText")
    for name in (*SENSORS, *CLASSES, "<b>A title</b>", "<label>", "<static>", "<s>twin</s>"):
        assert name in text, name
    assert full.page.title() == "<b>A title</b>"
    for unwanted in ("main img", "main b", "main i", "main u", "main em", "main s", "main label script"):
        assert full.page.locator(unwanted).count() == 0, unwanted
    assert full.page.locator("script").count() == 4
    assert full.ask("model('graph-class-nodes').data.sensor") == list(SENSORS)
    assert full.ask("[...document.getElementById('sensor-names').options].map((o) => o.value)") == list(SENSORS)


@pytest.mark.parametrize("at", [0, 1, 5])
def test_a_name_under_the_pointer_is_shown_as_it_is(at, full):
    place = full.page.locator("#graph-class")
    place.scroll_into_view_if_needed()
    full.page.wait_for_timeout(300)
    box = place.bounding_box()
    x, y, reach = full.ask(f"[...data.place[{at}], model('graph-class-x').end]")
    full.page.mouse.move(box["x"] + box["width"] * (1 + x / reach) / 2, box["y"] + box["height"] * (1 - y / reach) / 2)
    shown = full.page.locator(".bk-tooltip-row-value")
    shown.first.wait_for(timeout=5000)
    assert SENSORS[at] in shown.all_text_contents()[0]


def test_the_difference_is_that_of_the_class_means(full):
    for code in (0, 1):
        full.page.select_option("#class", str(code))
        for row in full.page.locator("#edge-table tbody tr").all()[:5]:
            cells = row.locator(".number").all_inner_texts()[:3]
            own, others, difference = (float(cell.replace("−", "-")) for cell in cells)
            assert difference == pytest.approx(own - others, abs=0.02 * max(abs(own), abs(others)) + 1e-9)
    assert full.page.locator(".class-name").first.inner_text() == f"class {CLASSES[1]}"
    full.page.select_option("#reading", "1")
    assert "Eq. 3" in full.page.locator("#reading-about").inner_text()


@pytest.mark.parametrize("which", ["full", "three", "run"])
def test_a_phone_needs_no_sideways_scrolling(which, browser, pages):
    opened = Opened(browser, pages[which], viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    opened.page.wait_for_timeout(500)
    assert opened.ask("document.documentElement.scrollWidth") <= 360
    right = "[...document.querySelectorAll('.chart')].map((chart) => chart.getBoundingClientRect().right)"
    assert max(opened.ask(right), default=0) <= 360
    opened.page.close()


def test_a_screen_reader_finds_names_for_everything(full):
    unnamed = """[...document.querySelectorAll('select, input, button, [role=img], [role=region], form, nav')].filter(
        (held) => !(held.getAttribute('aria-label') || held.closest('label') || held.textContent.trim())).length"""
    assert full.ask(unnamed) == 0
    levels = full.ask("[...document.querySelectorAll('h1, h2, h3')].map((held) => Number(held.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert full.ask("document.documentElement.lang") == "en"


def test_it_prints_without_its_controls_bar_and_whole(full, tmp_path):
    full.page.emulate_media(media="print")
    assert full.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert full.ask("getComputedStyle(document.querySelector('.controls')).position") == "static"
    full.page.pdf(path=str(tmp_path / "page.pdf"))
    assert (tmp_path / "page.pdf").stat().st_size > 50_000
