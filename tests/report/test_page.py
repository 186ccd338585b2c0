"""The report as one HTML file that is safe to open, and the commands that write it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from awkward import SENSORS, embedded_json

from raindrop import ConfigError, OutputExistsError
from raindrop.cli.app import main
from raindrop.errors import MissingExtraError
from raindrop.graphs.graph import SensorGraphs
from raindrop.report import report_on_run, write_report
from raindrop.report.cases import MAX_READINGS, Case
from raindrop.report.graph_picture import short_names
from raindrop.report.numbers import digits, static_text
from raindrop.report.page import circle, page, script_json
from raindrop.report.policy import content_nonce

pytestmark = pytest.mark.slow

# ---------------------------------------------------------------- the file


def test_names_cannot_break_out_of_scripts_or_markup(text):
    assert text.count("</script>") == text.count("<script") == 4  # whatever the names are
    for name in ("<script>alert", "<img src=x", "<b>bold", "<i>ill", "<u>sample", "<em>north", "<static>", "<note>"):
        assert name not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert embedded_json(text, "data")["sensors"] == list(SENSORS)
    assert embedded_json(text, "data")["samples"][0]["id"].startswith("<u>sample</u>")


def test_the_page_has_no_external_links(text):
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert "http:" not in markup
    assert "https:" not in markup
    assert "src=" not in markup.replace("&lt;/script&gt;&lt;img src=x", "")
    assert "default-src 'none'" in markup


def test_only_the_page_s_own_scripts_may_run(text):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert len(hashes) == 2
    allowed = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert allowed == "script-src " + " ".join(f"'sha256-{each}'" for each in hashes)


def test_only_the_page_s_own_styles_apply(text):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "unsafe-inline" not in policy
    nonce = re.search(r"style-src 'nonce-([^']*)'", policy)[1]
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert re.findall(r"<style[^>]*>", markup) == [f'<style nonce="{nonce}">']
    assert ' style="' not in markup
    assert content_nonce("other data") != nonce


def test_the_page_has_the_values_of_the_report(text, report):
    data = embedded_json(text, "data")
    for case, sample in zip(report.cases, data["samples"], strict=True):
        assert sample["id"] == case.id
        np.testing.assert_allclose(sample["value"], case.value, rtol=1e-4)
        np.testing.assert_allclose(sample["contribution"], case.contribution, rtol=6e-3)
    graphs = report.graph_views[0].graphs
    np.testing.assert_allclose(
        data["views"][0]["means"]["1"], graphs.mean(report.truth == 1).weights.ravel(), rtol=6e-3, atol=1e-9
    )
    flat = np.array(data["views"][0]["samples"][4]).reshape(-1, 3)
    weights = graphs.weights[report.case_positions[4]]
    np.testing.assert_allclose(flat[:, 2], weights[flat[:, 0].astype(int), flat[:, 1].astype(int)], rtol=6e-3)
    assert (flat[:, 0] != flat[:, 1]).all()


def test_200_long_samples_of_36_sensors_stay_below_5_mb(report, tmp_path):
    rng = np.random.default_rng(0)
    sensors, n = tuple(f"sensor number {at}" for at in range(36)), 200
    each = MAX_READINGS // n
    samples = [
        Case(
            id=f"sample {at:06d}",
            truth=at % 2,
            predicted=rng.dirichlet([1, 1]).astype(np.float32),
            region=None,
            sensor=np.sort(rng.integers(0, 36, each)),
            time=rng.uniform(0, 48, each),
            value=rng.normal(80, 12.3456, each),
            attention=rng.exponential(1, each),
            contribution=rng.normal(0, 1, (1, 36)),
            without=rng.random((1, 36)),
            statics={"age": 61.25, "site": "north"},
        )
        for at in range(n)
    ]
    weights = rng.normal(0, 1, (n, 36, 36)).astype(np.float32)
    graphs = SensorGraphs(sensors, [case.id for case in samples], weights)
    truth = np.arange(n) % 2
    large = replace(
        report,
        sensors=sensors,
        cases=samples,
        case_positions=np.arange(n),
        truth=truth,
        scores=[],
        section=None,
        scale=(np.zeros(36), np.ones(36)),
        graph_views=[
            replace(view, graphs=graphs, means=graphs.by_class(truth), q={1: rng.random((36, 36))})
            for view in report.graph_views
        ],
    )
    path = write_report(large, tmp_path / "large.html")
    assert len(embedded_json(path.read_text(), "data")["samples"]) == 200
    assert path.stat().st_size < 5_000_000


def test_a_report_is_written_atomically(report, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    monkeypatch.setattr("raindrop.report.page.page", lambda report: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(report, path)
    assert list(tmp_path.iterdir()) == []
    path.write_text("mine")
    with pytest.raises(OutputExistsError, match="exists already"):
        write_report(report, path)
    with pytest.raises(ConfigError, match=r"must end in \.html"):
        write_report(report, tmp_path / "report.pdf")
    assert path.read_text() == "mine"


def test_without_bokeh_the_error_says_what_to_install(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'raindrop-ts\[report\]'"):
        write_report(report, tmp_path / "report.html")


@pytest.mark.parametrize(
    ("value", "number", "expected"),
    [(0.123456, 3, 0.123), (123456.0, 3, 123000.0), (-0.00098765, 2, -0.00099), (0.0, 3, 0.0), (99.96, 3, 100.0)],
)
def test_numbers_are_rounded_to_significant_digits(value, number, expected):
    assert digits(np.array([value]), number) == [expected]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(48.26792832424376, "48.268"), (1234567.0, "1234567"), (63.0, "63"), (7, "7"), ("north", "north"), (True, "True")],
)
def test_static_attributes_are_readable(value, expected):
    assert static_text(value) == expected


def test_nan_and_infinity_are_null_in_the_page():
    assert script_json(digits(np.array([np.nan, np.inf, 1.0]), 3)) == "[null,null,1.0]"


def test_embedded_json_has_no_characters_that_html_interprets():
    embedded = script_json(["</script>", "<!--", "a & b", "\u2028"])
    assert not set("<>&\u2028") & set(embedded)
    assert json.loads(embedded) == ["</script>", "<!--", "a & b", "\u2028"]


def test_long_names_lose_their_middle_and_stay_different():
    names = ("a name that is much too long 1", "a name that is much too long 2", "short", "x" * 30, "x" * 40)
    short = short_names(names, 16)
    assert short[:3] == ["a name t… long 1", "a name t… long 2", "short"]
    assert len(set(short)) == 5
    assert max(map(len, short)) <= 20


def test_every_sensor_has_its_own_position_on_the_circle():
    positions = circle(tuple("abcdef"))
    np.testing.assert_allclose(np.linalg.norm(positions, axis=1), 1, atol=1e-6)
    assert len({tuple(row) for row in positions.round(3).tolist()}) == 6
    np.testing.assert_allclose(positions[0], [0, 1], atol=1e-6)


# ---------------------------------------------------------------- a run alone, and the commands


def test_a_run_without_data_has_a_card_and_its_training_history(model):
    text = page(report_on_run(model))
    assert "&lt;label&gt;" in text
    assert 'id="training"' in text
    assert "model.graph.reconstruction" in text
    assert 'id="scores"' not in text


@pytest.fixture(scope="module")
def folders(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("explain")
    table.write(folder / "data")
    (folder / "data" / "conversion.json").write_text(
        json.dumps({"changes": [{"unit": "rows", "reason": "<odd>", "count": 1234}]})
    )
    from learnable import words

    for seed in ("0", "1"):
        command = ["train", str(folder / "data"), "--out", str(folder / f"run{seed}"), "--seed", seed]
        main([*command, "--preset", "paper", "--set", *words(train__epochs=1)])
    return folder


def test_explain_writes_a_page_on_the_test_samples_with_trees_as_a_baseline(folders, tmp_path, capsys):
    command = ["explain", str(folders / "run0"), str(folders / "data"), "--out", str(tmp_path / "r.html")]
    main([*command, "--seeds", str(folders / "run1")])
    assert f"wrote the report to {tmp_path / 'r.html'}" in capsys.readouterr().out
    text = (tmp_path / "r.html").read_text()
    assert "Trees" in text
    assert "1,234 rows: &lt;odd&gt;" in text
    test = pl.read_parquet(folders / "run0/split.parquet").filter(pl.col("part") == "test")["sample"]
    assert {sample["id"] for sample in embedded_json(text, "data")["samples"]} == set(test)


def test_explain_without_trees_on_all_samples(folders, tmp_path):
    command = ["explain", str(folders / "run0"), str(folders / "data"), "--out", str(tmp_path / "r.html")]
    main([*command, "--no-trees", "--part", "all", "--samples", "7"])
    text = (tmp_path / "r.html").read_text()
    assert "No other model was given" in text
    assert len(embedded_json(text, "data")["samples"]) == 7


def test_report_writes_into_the_run_and_not_twice(folders, capsys):
    main(["report", str(folders / "run1")])
    assert (folders / "run1/report.html").stat().st_size > 10_000
    assert "raindrop explain" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["report", str(folders / "run1")])
    assert "exists already" in capsys.readouterr().err


def test_report_on_data_of_a_classifier_names_the_command_for_it(folders, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["report", str(folders / "run1"), str(folders / "data"), "--out", str(tmp_path / "r.html")])
    assert f"'raindrop explain {folders / 'run1'} {folders / 'data'} --out report.html'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_importance_of_each_sensor_is_on_the_page(report, text, table):
    read = {table.sensors[code] for code in set(table.sensor[table.rows()].tolist())}
    assert {row["name"] for row in report.importances.rows if row["kind"] == "sensor"} == read
    assert report.importances.samples == len(table)
    section = text[text.index('id="importances"') : text.index('id="explorer"')]
    assert section.count("<tr>") == 1 + len(report.importances.rows)
    assert "worse by" in section
    assert "hide each other" in section
