"""The report in a real browser: it opens from disk, makes no network requests, and its controls work."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from awkward import CLASSES, IDS, SENSORS, awkward_model, awkward_table, many_sensors_table
from opened_page import Opened, foreign_markup_works

from raindrop.report import report_on, report_on_run, write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports: on a table with awkward names, with three classes, with graphs without edges, of a run alone, ..."""
    folder = tmp_path_factory.mktemp("pages")
    table = awkward_table()
    model = awkward_model(table)
    baselines = {"<s>twin</s>": model}
    three = awkward_table(classes=("a", "b", "c"))
    apart = table.where(lambda events: events.select(first=pl.struct("sample", "time").is_first_distinct())["first"])
    wide = many_sensors_table()
    return {
        "full": write_report(
            report_on(model, table, baselines=baselines, title="<b>A title</b>"), folder / "full.html"
        ),
        "three": write_report(report_on(awkward_model(three, **{"train.epochs": 1}), three), folder / "three.html"),
        "apart": write_report(report_on(model, apart), folder / "apart.html"),
        "wide": write_report(report_on(awkward_model(wide, **{"train.epochs": 1}), wide), folder / "wide.html"),
        "run": write_report(report_on_run(model), folder / "run.html"),
    }


@pytest.fixture
def full(browser: Any, pages: dict[str, Path]) -> Iterator[Opened]:
    opened = Opened(browser, pages["full"], viewport={"width": 1280, "height": 900})
    yield opened
    assert opened.errors == []
    assert [url for url in opened.requests if url != pages["full"].as_uri()] == []
    opened.page.close()


@pytest.mark.parametrize("which", ["full", "three", "apart", "wide", "run"])
def test_it_opens_from_disk_without_requests_or_errors(which, browser, pages):
    opened = Opened(browser, pages[which])
    assert opened.requests == [pages[which].as_uri()]
    assert opened.errors == []
    heights = "Object.keys(charts).map(byId).filter((e) => e.offsetParent).map((e) => e.getBoundingClientRect().height)"
    drawn = opened.evaluate(heights)
    assert drawn
    assert min(drawn) > 100
    opened.page.close()


def test_the_policy_lets_the_page_s_own_styles_work_and_no_other(browser, pages):
    opened = Opened(browser, pages["full"])
    sheets = "[...document.querySelectorAll('.bk-Figure')].map((e) => e.shadowRoot.querySelector('style').sheet)"
    assert min(opened.evaluate(f"{sheets}.map((sheet) => sheet.cssRules.length)")) > 0
    assert opened.evaluate("new Set([...document.querySelectorAll('.swatch')].map((e) => "
                           "getComputedStyle(e).backgroundColor)).size") > 1  # fmt: skip
    assert opened.errors == []
    assert foreign_markup_works(opened.page) == []
    assert opened.errors  # the browser says what it refused
    opened.page.close()


def test_selecting_another_sample_changes_its_graph_charts_and_contributions(full):
    assert full.page.locator("#sample-title").inner_text() == full.evaluate("data.samples[state.sample].id")
    seen = []
    for _ in range(3):
        texts = [full.page.locator(f"#{element}").inner_text() for element in ("sample-title", "contributions")]
        seen.append(
            (
                *texts,
                full.screenshot("graph-sample"),
                full.screenshot("chart-readings"),
                full.screenshot("chart-sensor"),
            )
        )
        full.page.click("#next")
    assert all(len({row[at] for row in seen}) == 3 for at in range(5))
    full.page.select_option("#sample", "7")
    assert full.page.locator("#sample-title").inner_text() == IDS.format(7)
    drawn = full.evaluate("model('readings').data.time.length")
    assert drawn == full.evaluate("data.samples[7].time.length")


def test_samples_can_be_filtered(full):
    full.page.fill("#sample-filter", "SAMPLE</u> 1")
    options = full.page.locator("#sample option").all_inner_texts()
    assert len(options) == 11
    assert all("</u> 1" in text for text in options)
    assert full.page.locator("#sample-count").inner_text() == "11 samples"
    full.page.fill("#sample-filter", "nobody")
    assert full.page.locator("#sample-count").inner_text() == "no such sample"


def test_the_threshold_hides_edges_weakest_first(full):
    slider, counts, least = full.page.locator("#threshold"), [], []
    for hidden in (0, 50, 90, 100):
        slider.fill(str(hidden))
        weights = full.evaluate(
            "classMeans().own.filter((w, at) => w && at % (width + 1)).map(Math.abs).map(formatted).map(Number)"
        )
        drawn = full.evaluate("model('graph-class-edges').data.weight.map(Number).map(Math.abs)")
        counts.append((len(drawn), len(full.edges("graph-sample")), len(full.edges("graph-difference"))))
        least.append(min(drawn, default=None))
        assert (
            full.page.locator("#threshold-text")
            .inner_text()
            .startswith(f"{len(drawn)} of {len(weights)} edges" if drawn else "no edges")
        )
        if drawn:
            assert min(drawn) == sorted(weights)[-len(drawn)]
    assert counts[0][0] > counts[1][0] > counts[2][0] > counts[3][0] == 0
    assert all(earlier > later for earlier, later in zip(counts[0], counts[2], strict=True))
    assert least[0] < least[1] < least[2]


def test_every_control_works_by_keyboard(full):
    full.page.focus("#threshold")
    before = len(full.edges("graph-class"))
    for _ in range(20):
        full.page.keyboard.press("ArrowLeft")
    assert len(full.edges("graph-class")) > before
    reached = set()
    full.page.focus("#view")
    for _ in range(40):
        reached.add(full.evaluate("document.activeElement.id"))
        full.page.keyboard.press("Tab")
    assert {"view", "class", "threshold", "search", "sample", "sample-filter", "previous", "next"} <= reached


def test_the_search_finds_a_sensor(full):
    full.page.locator("#threshold").fill("0")
    plain = full.screenshot("graph-class")
    for text, name in (("A/B", "a/b"), ("double", SENSORS[4]), ("$$", "$$x^2$$")):
        full.page.fill("#search", text)
        assert full.page.locator("#search-text").inner_text() == f"found {name}"
        rows = full.page.locator("#edge-table tbody tr").all()
        assert rows
        for row in rows:
            assert name in [cell.inner_text() for cell in row.locator(".name").all()]
        assert full.screenshot("graph-class") != plain
    full.page.fill("#search", "nothing like it")
    assert full.page.locator("#search-text").inner_text() == "no such sensor"


def test_names_are_shown_literally(opened):
    full = opened("full", 1300)
    text = full.evaluate("document.body.innerText")
    for name in (*SENSORS, *CLASSES, "<b>A title</b>", "<label>", "<static>", "<s>twin</s>"):
        assert name in text, name
    assert full.page.title() == "<b>A title</b>"
    for selector in ("main img", "main b", "main i", "main u", "main em", "main s", "main label script"):
        assert full.page.locator(selector).count() == 0, selector
    assert full.page.locator("script").count() == 4
    assert full.evaluate("model('graph-class-nodes').data.sensor") == list(SENSORS)
    assert full.evaluate("[...document.getElementById('sensor-names').options].map((o) => o.value)") == list(SENSORS)


@pytest.mark.parametrize("at", [0, 1, 5])
def test_a_tooltip_shows_the_name_literally(at, full):
    chart = full.page.locator("#graph-class")
    chart.scroll_into_view_if_needed()
    full.wait_until_painted()
    box = chart.bounding_box()
    x, y, reach = full.evaluate(f"[...data.place[{at}], model('graph-class-x').end]")
    full.page.mouse.move(box["x"] + box["width"] * (1 + x / reach) / 2, box["y"] + box["height"] * (1 - y / reach) / 2)
    tooltip = full.page.locator(".bk-tooltip-row-value")
    tooltip.first.wait_for(timeout=5000)
    assert SENSORS[at] in tooltip.all_text_contents()[0]


def test_the_difference_is_that_of_the_class_means(full):
    for code in (0, 1):
        full.page.select_option("#class", str(code))
        for row in full.page.locator("#edge-table tbody tr").all()[:5]:
            cells = row.locator(".number").all_inner_texts()[:3]
            own, others, difference = (float(cell.replace("−", "-")) for cell in cells)
            assert difference == pytest.approx(own - others, abs=0.02 * max(abs(own), abs(others)) + 1e-9)
    assert full.page.locator(".class-name").first.inner_text() == f"class {CLASSES[1]}"
    full.page.select_option("#view", "1")
    assert "Eq. 3" in full.page.locator("#view-about").inner_text()


def test_with_more_classes_the_evidence_is_about_the_selected_class(browser, pages):
    opened = Opened(browser, pages["three"], viewport={"width": 1280, "height": 900})
    for code, name in ((0, "a"), (2, "c")):
        opened.page.select_option("#class", str(code))
        assert f"'{name}' and the other classes" in opened.page.locator("#evidence").inner_text()
    opened.page.close()


@pytest.mark.parametrize("which", ["full", "three", "apart", "wide", "run"])
def test_a_phone_needs_no_sideways_scrolling(which, browser, pages):
    opened = Opened(browser, pages[which], viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    opened.wait_until_painted()
    assert opened.evaluate("document.documentElement.scrollWidth") <= 360
    right = "[...document.querySelectorAll('.chart')].map((chart) => chart.getBoundingClientRect().right)"
    assert max(opened.evaluate(right), default=0) <= 360
    opened.page.close()


def test_every_control_and_chart_has_an_accessible_name(opened):
    full = opened("full", 1300)
    unnamed = """[...document.querySelectorAll('select, input, button, [role=img], [role=region], form, nav')].filter(
        (e) => !(e.getAttribute('aria-label') || e.closest('label') || e.textContent.trim())).length"""
    assert full.evaluate(unnamed) == 0
    levels = full.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert full.evaluate("document.documentElement.lang") == "en"


def test_it_prints_completely_and_without_sticky_controls(full, tmp_path):
    full.page.emulate_media(media="print")
    assert full.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert full.evaluate("getComputedStyle(document.querySelector('.controls')).position") == "static"
    full.page.pdf(path=str(tmp_path / "page.pdf"))
    assert (tmp_path / "page.pdf").stat().st_size > 50_000


# ---------------------------------------------------------------- layout


@pytest.mark.parametrize("section", ["graphs", "samples"])
def test_the_sticky_controls_are_opaque_and_do_not_cover_a_heading_that_is_scrolled_to(section, opened):
    tab = opened("full", 1300)
    tab.page.emulate_media(reduced_motion="reduce")
    tab.page.click(f"nav a[href='#{section}']")
    tab.wait_until_painted()
    bar, heading = (tab.page.locator(each).bounding_box() for each in ("#graph-controls", f"#{section}-title"))
    assert bar["y"] < heading["y"] < 400
    assert heading["y"] >= bar["y"] + bar["height"]
    background = tab.evaluate("getComputedStyle(byId('graph-controls')).backgroundColor")
    assert background == "rgb(255, 255, 255)"  # not rgba: nothing shines through


@pytest.mark.parametrize("width", [1300, 400])
def test_with_40_sensors_no_column_of_a_table_is_cut_off_and_no_name_breaks_inside_a_word(width, opened):
    tab = opened("wide", width)
    cut_off = """[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1)
        .map((e) => e.getAttribute('aria-label'))"""
    assert tab.evaluate(cut_off) == []
    # A word that does not fit is wider than its cell or takes two lines; each word alone must take one line.
    broken = """[...document.querySelectorAll('#edge-table .name, #contributions .name')].filter((e) => {
        const text = e.firstChild, range = document.createRange();
        return [...text.data.matchAll(/[^ ]+/g)].some((word) => {
            range.setStart(text, word.index); range.setEnd(text, word.index + word[0].length);
            return range.getClientRects().length > 1;
        });
    }).map((e) => e.textContent)"""
    assert tab.page.locator("#edge-table .name").count() > 10
    assert tab.evaluate(broken) == []


def test_where_names_do_not_fit_around_the_circle_those_of_the_strongest_edges_are_shown(opened):
    tab = opened("wide", 1300)
    assert len(tab.evaluate("model('graph-class-labels').data.text")) == 40
    edges = "[{u: 0, v: 1, w: 1}, {u: 5, v: 6, w: -3}, {u: 20, v: 21, w: 2}]"
    assert tab.evaluate(f"[...named({edges}, 1000, 10)].length") == 40
    assert tab.evaluate(f"[...named({edges}, 10, 10)]") == [5, 20]  # names must be one radian apart
    tab.page.fill("#search", "FiO2 1")
    assert tab.evaluate(f"[...named({edges}, 10, 10)]")[0] == tab.evaluate("data.sensors.indexOf('FiO2 1')")


def test_at_first_two_edges_for_each_sensor_are_shown_but_not_many_more_than_100(opened):
    tab = opened("wide", 1300)
    for sensors, least, most in ((2, 2, 2), (5, 10, 10), (40, 80, 82), (200, 100, 140)):
        shown = sensors * (sensors - 1) * (1 - tab.evaluate(f"firstHidden({sensors})") / 100)
        assert least <= round(shown) <= most


def test_static_attributes_have_few_digits(opened):
    tab = opened("wide", 1300)
    facts = dict(
        zip(*(tab.page.locator(f"#sample-facts {tag}").all_inner_texts() for tag in ("dt", "dd")), strict=True)
    )
    assert len(facts["age"]) <= 6
    assert float(facts["age"]) > 0


# ---------------------------------------------------------------- graphs without edges


def test_a_graph_without_edges_is_one_sentence_instead_of_empty_circles(opened):
    tab = opened("apart", 1300)
    sentence = "There are no edges between sensors: no two sensors are ever read at the same time."
    tab.page.select_option("#view", "2")  # the linear probe
    assert tab.page.locator("#view-empty").inner_text() == sentence
    visible = tab.page.locator("#graphs").inner_text()
    for word in ("arrow", "larger in", "stable", "q below", "Evidence", "Warning"):
        assert word.lower() not in visible.lower(), word
    assert not tab.page.locator("#graph-class").is_visible()
    assert tab.page.locator("#threshold").is_disabled()
    tab.page.select_option("#view", "1")  # edge weights exist all the same
    assert tab.page.locator("#graph-class").is_visible()
    assert not tab.page.locator("#view-empty").is_visible()
    assert tab.page.locator("#threshold").is_enabled()
    tab.wait_until_painted()
    assert tab.page.locator("#graph-class").bounding_box()["height"] > 200
    tab.page.select_option("#view", "2")
    assert tab.page.locator("#view-empty").inner_text() == sentence


def test_a_graph_that_exists_per_class_only_says_so_at_the_sample(full):
    full.page.select_option("#view", "2")
    assert full.page.locator("#graph-sample-empty").inner_text() == "This graph exists per class only, not per sample."
    assert not full.page.locator("#sample-edge-list").is_visible()


def test_the_positive_class_is_the_one_that_scores_and_bars_are_about(opened):
    full = opened("full", 1300)
    positive = full.evaluate("data.main_group")
    assert positive == 1
    assert full.page.locator("#class").input_value() == str(positive)
    name, share, text, strong = full.evaluate(f"data.samples[state.sample].bars[{positive}]")
    assert (name, text, strong) == (CLASSES[positive], f"{100 * share:.1f} %", True)
    assert text in full.page.locator("#sample option:checked").inner_text()
    assert CLASSES[positive] in full.page.locator("#contribution-note").inner_text()
