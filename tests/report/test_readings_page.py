"""The report on an imputer or a forecaster as one HTML file, in a real browser, and as a plot of one sample."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from awkward import IDS, SENSORS, embedded_json
from matplotlib.dates import date2num
from matplotlib.text import Text
from opened_page import Opened
from waves import QUICK, wave_table

from raindrop import DataError, EventTable, Forecaster, Imputer
from raindrop.report import plots, report_on_readings, write_report
from raindrop.report.readings.page import page
from raindrop.table.hide import hold_out_blocks

pytestmark = pytest.mark.slow


def awkward_series(samples: int = 14, seed: int = 0, sensors: tuple[str, ...] = SENSORS) -> EventTable:
    """Waves of sensors whose names look like markup or formulas; the first is silent for a while."""
    rng = np.random.default_rng(seed)
    sample, sensor = (axis.ravel() for axis in np.indices((samples, len(sensors), 20))[:2])
    time = rng.uniform(0, 24, len(sample))
    value = 10.0 * sensor + np.sin(time / 3 + sample)
    keep = ~((sensor == 0) & (time > 8) & (time < 16))
    names = [IDS.format(at) for at in sample[keep]], [sensors[at] for at in sensor[keep]]
    return EventTable.from_columns(names[0], time[keep], names[1], value[keep], sensors=sensors)


START = datetime(2024, 3, 1, 7, 30)


def dated_copy(table: EventTable, zone: Any = None) -> EventTable:
    """The same table with dates: every sample starts a day after the one before."""
    starts = [START.replace(tzinfo=zone) + timedelta(days=at) for at in range(len(table))]
    return replace(table, samples=table.samples.with_columns(time_zero=pl.Series(starts)))


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    training, validation = awkward_series(seed=1), awkward_series(4, seed=2)
    return {
        "imputer": Imputer(config=QUICK).fit(training, validation=validation),
        "forecaster": Forecaster(horizon=6.0, config=QUICK).fit(training, validation=validation),
        "linear": Imputer("linear").fit(training, validation=validation),
    }


@pytest.fixture(scope="module")
def table() -> EventTable:
    return awkward_series(6)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Any], table: EventTable) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    written = {
        name: write_report(report_on_readings(model, table, cases=6), folder / f"{name}.html")
        for name, model in models.items()
    }
    many = wave_table(12, sensors=60, readings=8)
    linear = Imputer("linear").fit(many)
    written["many"] = write_report(report_on_readings(linear, many, cases=6), folder / "many.html")
    dated = dated_copy(table)
    for name in ("imputer", "forecaster"):
        report = report_on_readings(models[name], dated, cases=6)
        written[f"{name} of dates"] = write_report(report, folder / f"{name} of dates.html")
    written["run"] = write_report(report_on_readings(models["imputer"]), folder / "run.html")
    return written


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize("which", ["imputer", "forecaster", "linear", "run"])
def test_names_cannot_break_out_and_nothing_is_loaded_from_elsewhere(which, pages):
    text = pages[which].read_text()
    assert text.count("</script>") == text.count("<script") == 4  # whatever the names are
    for name in ("<script>alert", "<img src=x", "<b>bold", "<u>sample"):
        assert name not in text
    assert embedded_json(text, "data")["sensors"] == list(SENSORS)
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert "http:" not in markup
    assert "https:" not in markup
    assert "src=" not in markup.replace("&lt;/script&gt;&lt;img src=x", "")
    assert not re.search(r"<[^>]+\son[a-z]+=", markup)
    assert "default-src 'none'" in markup


def test_the_page_has_the_numbers_of_the_report(models, table):
    report = report_on_readings(models["imputer"], table, cases=6)
    text = page(report)
    data = embedded_json(text, "data")
    for score, scenario in zip(report.scores, data["scenarios"], strict=True):
        assert f"{score.metrics['Raindrop']['standardised_mae']:.3f}" in text
        np.testing.assert_allclose(scenario["mae"], score.by_sensor.mae, rtol=6e-3)
    for case, shown in zip(report.cases, data["cases"], strict=True):
        assert shown["sample"] == case.sample
        for each, filled in zip(case.filled, shown["filled"], strict=True):
            np.testing.assert_allclose(filled["value"], each.value, rtol=1e-4)
            np.testing.assert_allclose(filled["time"], each.time, atol=24 / 1e4)
            np.testing.assert_allclose(
                [weight for listed in filled["listed"] for _, weight in listed["senders"]],
                [weight for at in each.listed for _, weight in each.gaps[at].senders],
                rtol=6e-3,
            )


def test_a_thousand_sensors_stay_below_5_mb(tmp_path):
    table = wave_table(1, sensors=1000, readings=300, hours=300.0)
    report = report_on_readings(Imputer("linear").fit(table, validation=table), table)
    path = write_report(report, tmp_path / "large.html")
    assert len(embedded_json(path.read_text(), "data")["cases"]) == len(report.cases) >= 3
    assert path.stat().st_size < 5_000_000


def test_a_model_that_passes_no_messages_has_a_sentence_instead_of_bars(pages):
    text = pages["linear"].read_text()
    assert "The model 'linear' with these settings passes no messages between sensors" in text.replace("&#39;", "'")
    assert 'id="senders"' not in text
    assert "chart-senders" not in embedded_json(text, "charts")


def test_the_graph_section_says_why_it_is_empty_and_whether_other_seeds_were_compared(pages):
    assert "predicts each sensor from itself" in pages["linear"].read_text()
    text = pages["imputer"].read_text()
    assert '<section id="graph"' in text
    assert "Not compared with models of other seeds" in text
    assert '<section id="graph"' not in pages["run"].read_text()


def test_positions_of_the_table_make_the_graph_of_the_report_a_map(models, table):
    info = pl.DataFrame({"sensor": SENSORS, "x": range(len(SENSORS)), "y": [0.0, 1.0] * (len(SENSORS) // 2)})
    assert report_on_readings(models["imputer"], table, cases=1).graph.places is None
    placed = report_on_readings(
        models["imputer"], table.with_sensor_info(info), cases=1, other_seeds=[models["imputer"]]
    )
    assert placed.graph.places[0].tolist() == [-1.0, pytest.approx(-1 / (len(SENSORS) - 1))]
    assert "Compared with 1 model of other seeds" in placed.graph.notes[0]


# ---------------------------------------------------------------- in a browser


def test_times_of_a_table_of_dates_are_sent_as_dates(models, table):
    for zone, title in ((None, "Time"), (UTC, "Time (UTC)")):
        report = report_on_readings(models["imputer"], dated_copy(table, zone), cases=3)
        text = page(report)
        data = embedded_json(text, "data")
        assert (data["dated"], data["perUnit"]) == (True, 3.6e6)
        assert f'class="number">{title}</th>' in text
        assert '"DatetimeAxis"' in text
        assert "time in hours" not in text
        for case, shown in zip(report.cases, data["cases"], strict=True):
            at = table.ids.index(case.sample)
            zero = START.replace(tzinfo=UTC) + timedelta(days=at)
            assert shown["zero"] == zero.timestamp() * 1000
            np.testing.assert_allclose(shown["filled"][0]["time"], case.filled[0].time * 3.6e6, atol=1)
    plain = embedded_json(page(report_on_readings(models["imputer"], table, cases=3)), "data")
    assert (plain["dated"], plain["perUnit"]) == (False, 1.0)


def test_a_report_on_a_sample_without_a_date_shows_numbers(models, table):
    dated = dated_copy(table)
    known = pl.int_range(len(table), eager=True) > 0
    partly = replace(dated, samples=dated.samples.with_columns(pl.when(known).then("time_zero").alias("time_zero")))
    assert report_on_readings(models["linear"], partly, cases=3).dates is None


@pytest.fixture
def tab(browser: Any, pages: dict[str, Path]) -> Iterator[Opened]:
    opened = Opened(browser, pages["imputer"], viewport={"width": 1280, "height": 900})
    yield opened
    assert opened.errors == []
    opened.page.close()


@pytest.mark.parametrize("which", ["imputer", "forecaster", "imputer of dates", "linear", "many", "run"])
@pytest.mark.parametrize("width", [1280, 360])
def test_it_opens_from_disk_without_requests_errors_or_sideways_scrolling(which, width, browser, pages):
    tab = Opened(browser, pages[which], viewport={"width": width, "height": 800})
    tab.wait_until_painted()
    assert tab.requests == [pages[which].as_uri()]
    assert tab.errors == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("Object.keys(charts).filter((id) => byId(id) === null)") == []
    heights = "Object.keys(charts).map(byId).filter((e) => e.offsetParent).map((e) => e.getBoundingClientRect().height)"
    assert min(tab.evaluate(heights)) > 100
    cut_off = "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    assert tab.evaluate(cut_off) == 0
    tab.page.close()


def test_selecting_another_case_changes_the_charts_and_the_senders(tab):
    seen = []
    for _ in range(3):
        texts = [tab.page.locator(f"#{part}").inner_text() for part in ("case-title", "case-facts", "senders")]
        seen.append((" ".join(texts), tab.screenshot("chart-case"), tab.screenshot("chart-senders")))
        tab.page.click("#next")
    assert all(len({row[at] for row in seen}) == 3 for at in range(3))
    tab.page.select_option("#case", "2")
    assert tab.evaluate("model('case-filled').data.time") == tab.evaluate("data.cases[2].filled[0].time")
    shown = tab.page.locator("#senders .name").all_inner_texts()
    expected = tab.evaluate("data.cases[2].filled[0].listed[0].senders.map(([sensor]) => data.sensors[sensor])")
    assert shown == expected
    assert len(shown) == len(SENSORS) - 1


@pytest.mark.parametrize("which", ["imputer of dates", "forecaster of dates"])
def test_a_page_of_dates_shows_them_in_lists_facts_and_tables(which, browser, pages):
    tab = Opened(browser, pages[which], viewport={"width": 1280, "height": 900})
    tab.wait_until_painted()
    date = r"2024-03-\d\d \d\d:\d\d(:\d\d)?"
    assert re.search(f"{date} to {date}", tab.page.locator("#case option").first.inner_text())
    facts = tab.page.locator("#case-facts").inner_text()
    assert re.search(rf"From\s+{date}\s+Length\s+[\d.]+ hours", facts)
    assert re.fullmatch(date, tab.page.locator("#case-table td").first.text_content())
    first = tab.evaluate("model('case-filled').data.time[0]")
    start = START.replace(tzinfo=UTC).timestamp() * 1000
    assert start <= first <= start + 40 * 86_400_000
    about = tab.page.locator("#senders-note").inner_text()
    assert ("these forecasts" in about) == which.startswith("forecaster")
    assert ("values of the gap" in about) != which.startswith("forecaster")
    assert tab.errors == []
    tab.page.close()


def test_a_sensor_and_a_gap_can_be_selected(tab):
    title = tab.page.locator("#case-title").inner_text()
    tab.page.select_option("#sensor", "1")
    assert tab.page.locator("#case-title").inner_text() != title
    rows = tab.page.locator("#case-table tbody tr")
    assert rows.count() == tab.evaluate("data.cases[0].filled[1].time.length")
    at = tab.evaluate("data.cases[0].filled.findIndex((each) => each.listed.length > 1)")
    tab.page.select_option("#sensor", str(at))
    before = tab.page.locator("#case-facts").inner_text()
    tab.page.select_option("#gap", "1")
    assert tab.page.locator("#case-facts").inner_text() != before
    assert max(tab.evaluate("model('case-gaps').data.alpha")) > min(tab.evaluate("model('case-gaps').data.alpha"))


def test_errors_by_sensor_can_be_searched_ordered_and_unfolded(tab, opened):
    tab.page.fill("#sensor-filter", "A/B")
    assert tab.page.locator("#sensor-errors tbody th").all_inner_texts() == ["a/b"]
    tab.page.fill("#sensor-filter", "nothing like it")
    assert tab.page.locator("#sensor-count").inner_text() == "no such sensor"
    many = opened("many", 1280)
    rows = many.page.locator("#sensor-errors tbody tr")
    assert rows.count() == 40
    assert many.page.locator("#sensor-count").inner_text() == "40 of 60 sensors"
    many.page.click("#all-sensors")
    assert rows.count() == 60
    errors = [float(text) for text in many.page.locator("#sensor-errors td:nth-child(3)").all_inner_texts()]
    assert errors == sorted(errors, reverse=True)
    many.page.select_option("#order", "name")
    assert many.page.locator("#sensor-errors tbody th").first.inner_text() == "u0"


def test_names_are_shown_literally(tab):
    tab.page.select_option("#order", "name")
    text = tab.evaluate("document.body.innerText")
    for name in (*SENSORS, IDS.format(0)):
        assert name in text or name in tab.page.locator("#case").inner_text(), name
    for selector in ("main img", "main b", "main i", "main u"):
        assert tab.page.locator(selector).count() == 0, selector


# ---------------------------------------------------------------- one sample as a plot


def painted(figure: Any) -> list[str]:
    figure.savefig(io.BytesIO(), format="svg")
    return [text.get_text() for text in figure.findobj(Text)]


def test_a_plot_of_a_sample_has_the_values_that_fill_gives(models, table):
    imputer, name = models["imputer"], IDS.format(2)
    figure = plots.filled(imputer, table, name, max_sensors=2)
    assert len(figure.axes) == 4
    assert figure.axes[0].get_title(loc="left") == SENSORS[0]  # has the longest gap
    expected = imputer.fill_readings(table[[name]]).frame().filter(pl.col("sensor") == SENSORS[0])
    lines = [line for line in figure.axes[0].lines[1:-1] if len(line.get_xdata())]
    drawn = np.concatenate([line.get_ydata() for line in lines])
    np.testing.assert_allclose(np.sort(drawn), np.sort(expected["value"].to_numpy()), rtol=1e-5)
    assert {SENSORS[0], name} <= set(painted(figure))


def test_a_plot_shows_hidden_readings_of_the_sensors_that_are_named(models, table):
    visible, truth = hold_out_blocks(table, 6.0, share=0.3)
    name = IDS.format(1)
    figure = plots.filled(models["imputer"], visible, name, [SENSORS[2]], truth=truth)
    crosses = figure.axes[0].lines[-1].get_ydata()
    expected = truth.filter((pl.col("sample") == name) & (pl.col("sensor") == SENSORS[2]))["value"]
    inside = expected.len() - np.isfinite(crosses).sum()
    assert 0 <= inside <= 2  # a hidden reading outside the visible ones is not filled
    assert set(crosses[np.isfinite(crosses)]) <= set(expected)


def test_a_plot_of_a_forecast_has_the_later_readings_as_the_truth(models, table):
    forecaster = models["forecaster"].set_params(cutoff=15.0)
    try:
        figure = plots.filled(forecaster, table, IDS.format(0), [SENSORS[3]])
    finally:
        models["forecaster"].set_params(cutoff=None)
    readings, *_, crosses = figure.axes[0].lines
    assert readings.get_xdata().max() <= 15.0
    assert np.isfinite(crosses.get_ydata()).any()
    assert figure.axes[0].get_xlim()[1] == pytest.approx(21.0)


def test_a_plot_without_messages_has_no_bars_and_one_without_gaps_a_sentence(models, table):
    assert len(plots.filled(models["linear"], table, IDS.format(0), max_sensors=2).axes) == 2
    with pytest.raises(DataError, match="not read in training"):
        plots.filled(models["linear"], table, IDS.format(0), ["nobody"])
    time = np.arange(40.0)
    regular = EventTable.from_columns(["a"] * 40, time, ["u"] * 40, np.sin(time))
    linear = Imputer("linear").fit(regular, validation=regular)
    assert "There are no gaps to fill." in painted(plots.filled(linear, regular, "a"))


def test_a_plot_of_dates_has_dates_on_its_axis(models, table):
    for zone, label in ((None, "time"), (UTC, "time (UTC)")):
        dated = dated_copy(table, zone)
        figure = plots.filled(models["imputer"], dated, dated.ids[1])
        axes = figure.axes[0] if len(figure.axes) == 1 else figure.axes[-2]
        assert axes.get_xlabel() == label
        first = date2num(START + timedelta(days=1))
        assert first <= axes.get_xlim()[0] <= first + 1
        figure.savefig(io.BytesIO())
