"""What a report says is what the library says, in one file that harms nobody."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from awkward import CLASSES, SENSORS, awkward_model, awkward_table
from closeness import assert_close, tolerance

from raindrop import Classifier, ConfigError, DataError, EventTable, OutputExistsError
from raindrop.cli.app import main
from raindrop.errors import MissingExtraError
from raindrop.graphs.graph import SensorGraphs
from raindrop.report import report_on, report_on_run, write_report
from raindrop.report.cases import MOST_READINGS, Case, choose, thinned
from raindrop.report.page import circle, digits, inert, page, shortened
from raindrop.table.hide import hide_random_sensors, hide_sensors


@pytest.fixture(scope="module")
def table():
    return awkward_table()


@pytest.fixture(scope="module")
def model(table):
    return awkward_model(table)


@pytest.fixture(scope="module")
def report(model, table):
    other = awkward_model(table, **{"train.epochs": 1})
    return report_on(model, table, rivals={"other": other}, others=[other], notes={"<note>": "& more"}, samples=10)


@pytest.fixture(scope="module")
def text(report):
    return page(report)


def held_in(text: str, place: str):
    return json.loads(re.search(rf'<script id="{place}" type="application/json">(.*?)</script>', text, re.S)[1])


# ---------------------------------------------------------------- what it says


def test_its_figures_are_those_of_evaluate(report, model, table):
    expected = model.evaluate(table)
    assert {name: held.value for name, held in report.scores[0].figures.items()} == pytest.approx(
        {name: expected[name] for name in report.scores[0].figures}, abs=tolerance()
    )
    assert [score.name for score in report.scores] == ["Raindrop", "other"]
    for share, held in zip((0.0, 0.1, 0.2, 0.3, 0.4, 0.5), report.scores[0].robustness, strict=True):
        assert held.value == pytest.approx(model.evaluate(hide_random_sensors(table, share, seed=0))["auroc"])


def test_chance_is_the_score_of_knowing_the_base_rate_alone(report, table):
    from raindrop.tasks.metrics import evaluate

    rate = np.array([(table.labels == name).mean() for name in CLASSES])
    expected = evaluate(report.truth, np.tile(rate, (len(table), 1)))
    assert report.chance == pytest.approx({name: expected[name] for name in report.chance})


def test_what_moved_a_score_is_the_score_without_the_sensor(report, model, table):
    case = report.cases[3]
    one = table[[case.id]]
    assert_close(case.probability, model.predict_proba(one)[0])
    before = np.log(case.probability[1] / case.probability[0])
    for at, name in enumerate(SENSORS):
        if not (case.sensor == at).any():
            assert case.contribution[at] == 0
            continue
        without = model.predict_proba(hide_sensors(one, [name]))[0]
        assert case.without[at] == pytest.approx(without[1], abs=tolerance())
        slope = max(1 / (float(p[0]) * float(p[1])) for p in (case.probability, without))  # of the log-odds
        odds = np.log(without[1] / without[0])
        assert case.contribution[at] == pytest.approx(before - odds, abs=tolerance(magnitude=slope))


def test_with_more_classes_what_moved_the_score_is_about_the_predicted_class():
    table = awkward_table(18, classes=("a", "b", "c"))
    model = awkward_model(table, **{"train.epochs": 1})
    for case in report_on(model, table).cases[:6]:
        asked, at = case.probability.argmax(), case.sensor[0]
        without = model.predict_proba(hide_sensors(table[[case.id]], [SENSORS[at]]))[0, asked]
        assert case.without[at] == pytest.approx(without, abs=tolerance())


def test_readings_of_a_case_are_those_of_the_sample(report, table):
    case = report.cases[0]
    events = table[[case.id]].events().with_columns(pl.col("sensor").to_physical()).sort("sensor", "time")
    np.testing.assert_array_equal(case.sensor, events["sensor"])
    np.testing.assert_array_equal(case.time, events["time"])
    np.testing.assert_array_equal(case.value, events["value"].cast(pl.Float64))


def test_attention_of_a_case_is_the_models_over_time(report, model, table):
    from raindrop.explain.information import attention_over_time

    case = report.cases[2]
    one = table[[case.id]]
    times = len(np.unique(one.time[one.rows()]))
    frame = attention_over_time(model, one).filter("read")
    known = {(sensor, time): weight for _, time, sensor, weight, _ in frame.iter_rows()}
    for sensor, time, shown in zip(case.sensor, case.time, case.attention, strict=True):
        assert shown == pytest.approx(known.get((SENSORS[sensor], time), 0) * times, abs=tolerance(magnitude=times))


def test_graphs_come_with_what_speaks_for_them(report):
    assert [held.name for held in report.readings] == [
        "what messages tell",
        "edge weights",
        "what embeddings could tell",
    ]
    judged = report.readings[:2]
    for held in judged:
        asked = [question for question, _ in held.evidence]
        assert len(asked) == 4
        assert "Would another training give the same difference?" in asked
        assert "2 graphs" in dict(held.evidence)["Would another training give the same difference?"]
        assert held.q[0].shape == (8, 8)
        assert (held.q[1] == held.q[0]).all()
    doubtful = [held for held in judged if any("not stable" in answer for _, answer in held.evidence)]
    assert doubtful  # a model after one epoch does not have the graph of another
    assert all("not stable" in held.warning for held in doubtful)


def test_a_model_without_a_graph_has_a_report_without_graphs(table):
    trees = Classifier("trees").fit(table)
    report = report_on(trees, table, samples=3)
    assert report.readings == []
    text = page(report)
    assert 'id="graphs"' not in text
    assert 'id="samples"' in text


def test_readings_of_unknown_sensors_are_left_out_where_they_are_ignored(table):
    events = table.events().with_columns(pl.col("sensor").cast(pl.String).replace("a/b", "new"))
    other = EventTable.from_frames(events, table.samples, label="<label>", statics=["<static>"], duplicates="last")
    lenient = awkward_model(table, **{"train.epochs": 1}).set_params(unknown_sensors="ignore")
    report = report_on(lenient, other, samples=4)
    assert all((case.sensor != SENSORS.index("a/b")).all() for case in report.cases)


def test_a_report_needs_samples_and_labels(model, table):
    with pytest.raises(DataError, match="nothing to report on"):
        report_on(model, table[:0])
    with pytest.raises(ConfigError, match="at least one sample"):
        report_on(model, table, samples=0)
    bare = EventTable.from_frames(table.events(), table.samples.drop("<label>"), statics=["<static>"])
    with pytest.raises(DataError, match="no label"):
        report_on(model, bare)


# ---------------------------------------------------------------- which samples


def test_all_samples_are_chosen_where_there_is_room():
    assert choose(np.array([0, 1, 0]), np.full((3, 2), 0.5), 5, 0).tolist() == [0, 1, 2]


def test_chosen_are_errors_extremes_and_a_mix_of_classes():
    rng = np.random.default_rng(0)
    truth = (rng.random(2000) < 0.05).astype(int)
    score = rng.random(2000)
    probability = np.column_stack([1 - score, score])
    chosen = choose(truth, probability, 200, 0)
    assert len(chosen) == len(set(chosen.tolist())) == 200
    worst = np.argsort(probability[np.arange(2000), truth])[:50]
    assert set(worst) | set(np.argsort(score)[:25]) | set(np.argsort(score)[-25:]) <= set(chosen.tolist())
    assert truth[chosen].sum() > 40  # of a hundred rare ones, not the five that chance would take
    assert set(choose(truth, probability, 200, 1)) != set(chosen)


def test_long_samples_are_thinned_first_and_evenly():
    count = np.array([10, 0, 1000, 50])
    keep = thinned(count, 160)
    kept = [part.sum() for part in np.split(keep, np.cumsum(count)[:-1])]
    assert kept == [10, 0, 100, 50]
    assert np.ptp(np.diff(np.flatnonzero(keep[10:1010]))) <= 1
    assert thinned(count, 10**6).all()


# ---------------------------------------------------------------- the file


def test_names_cannot_leave_the_script_or_the_markup(text):
    assert text.count("</script>") == text.count("<script") == 4  # whatever the names are
    for name in ("<script>alert", "<img src=x", "<b>bold", "<i>ill", "<u>sample", "<em>north", "<static>", "<note>"):
        assert name not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert held_in(text, "data")["sensors"] == list(SENSORS)
    assert held_in(text, "data")["samples"][0]["id"].startswith("<u>sample</u>")


def test_nothing_in_the_page_points_elsewhere(text):
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert "http:" not in markup
    assert "https:" not in markup
    assert "src=" not in markup.replace("&lt;/script&gt;&lt;img src=x", "")
    assert "default-src 'none'" in markup


def test_the_page_holds_what_the_report_says(text, report):
    data = held_in(text, "data")
    for case, shown in zip(report.cases, data["samples"], strict=True):
        assert shown["id"] == case.id
        np.testing.assert_allclose(shown["value"], case.value, rtol=1e-4)
        np.testing.assert_allclose(shown["contribution"], case.contribution, rtol=6e-3)
    graphs = report.readings[0].graphs
    np.testing.assert_allclose(
        data["readings"][0]["means"]["1"], graphs.mean(report.truth == 1).weights.ravel(), rtol=6e-3, atol=1e-9
    )
    flat = np.array(data["readings"][0]["samples"][4]).reshape(-1, 3)
    weights = graphs.weights[report.chosen[4]]
    np.testing.assert_allclose(flat[:, 2], weights[flat[:, 0].astype(int), flat[:, 1].astype(int)], rtol=6e-3)
    assert (flat[:, 0] != flat[:, 1]).all()


def test_200_long_samples_of_36_sensors_stay_below_5_mb(report, tmp_path):
    rng = np.random.default_rng(0)
    sensors, n = tuple(f"sensor number {at}" for at in range(36)), 200
    each = MOST_READINGS // n
    held = [
        Case(
            id=f"sample {at:06d}",
            label=at % 2,
            probability=rng.dirichlet([1, 1]).astype(np.float32),
            sensor=np.sort(rng.integers(0, 36, each)),
            time=rng.uniform(0, 48, each),
            value=rng.normal(80, 12.3456, each),
            attention=rng.exponential(1, each),
            contribution=rng.normal(0, 1, 36),
            without=rng.random(36),
            statics={"age": 61.25, "site": "north"},
        )
        for at in range(n)
    ]
    weights = rng.normal(0, 1, (n, 36, 36)).astype(np.float32)
    graphs = SensorGraphs(sensors, [case.id for case in held], weights)
    truth = np.arange(n) % 2
    large = replace(
        report,
        sensors=sensors,
        cases=held,
        chosen=np.arange(n),
        truth=truth,
        scores=[],
        scale=(np.zeros(36), np.ones(36)),
        readings=[
            replace(reading, graphs=graphs, means=graphs.by_class(truth), q={1: rng.random((36, 36))})
            for reading in report.readings
        ],
    )
    path = write_report(large, tmp_path / "large.html")
    assert len(held_in(path.read_text(), "data")["samples"]) == 200
    assert path.stat().st_size < 5_000_000


def test_a_report_is_written_whole_or_not_at_all(report, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    monkeypatch.setattr("raindrop.report.page.page", lambda report: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(report, path)
    assert list(tmp_path.iterdir()) == []
    path.write_text("mine")
    with pytest.raises(OutputExistsError, match="exists already"):
        write_report(report, path)
    with pytest.raises(ConfigError, match=r"written as \.html"):
        write_report(report, tmp_path / "report.pdf")
    assert path.read_text() == "mine"


def test_without_bokeh_it_says_what_to_install(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'raindrop-ts\[report\]'"):
        write_report(report, tmp_path / "report.html")


@pytest.mark.parametrize(
    ("value", "number", "expected"),
    [(0.123456, 3, 0.123), (123456.0, 3, 123000.0), (-0.00098765, 2, -0.00099), (0.0, 3, 0.0), (99.96, 3, 100.0)],
)
def test_numbers_are_rounded_to_their_digits(value, number, expected):
    assert digits(np.array([value]), number) == [expected]


def test_what_is_no_number_is_null_in_the_page():
    assert inert(digits(np.array([np.nan, np.inf, 1.0]), 3)) == "[null,null,1.0]"


def test_no_sign_of_a_name_survives_that_a_browser_could_read():
    told = inert(["</script>", "<!--", "a & b", "\u2028"])
    assert not set("<>&\u2028") & set(told)
    assert json.loads(told) == ["</script>", "<!--", "a & b", "\u2028"]


def test_long_names_are_cut_and_stay_different():
    names = ("a name that is much too long 1", "a name that is much too long 2", "short")
    short = shortened(names)
    assert len(set(short)) == 3
    assert short[2] == "short"
    assert max(map(len, short)) <= 20


def test_the_circle_has_every_sensor_at_its_own_place():
    place = circle(tuple("abcdef"))
    assert_close(np.linalg.norm(place, axis=1), 1.0, dtype=np.float32)
    assert len({tuple(row) for row in place.round(3).tolist()}) == 6
    assert_close(place[0], [0, 1], dtype=np.float32)


# ---------------------------------------------------------------- a run alone, and the commands


def test_a_run_by_itself_has_a_card_and_its_training(model):
    text = page(report_on_run(model))
    assert "&lt;label&gt;" in text
    assert 'id="training"' in text
    assert "model.reconstruction" in text
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
        asked = ["train", str(folder / "data"), "--out", str(folder / f"run{seed}"), "--seed", seed]
        main([*asked, "--preset", "paper", "--set", *words(train__epochs=1)])
    return folder


def test_explain_writes_a_page_on_the_test_samples_with_trees_beside(folders, tmp_path, capsys):
    asked = ["explain", str(folders / "run0"), str(folders / "data"), "--out", str(tmp_path / "r.html")]
    main([*asked, "--seeds", str(folders / "run1")])
    assert f"wrote the report to {tmp_path / 'r.html'}" in capsys.readouterr().out
    text = (tmp_path / "r.html").read_text()
    assert "Trees" in text
    assert "1,234 rows: &lt;odd&gt;" in text
    test = pl.read_parquet(folders / "run0/split.parquet").filter(pl.col("part") == "test")["sample"]
    assert {held["id"] for held in held_in(text, "data")["samples"]} == set(test)


def test_explain_without_trees_on_all_samples(folders, tmp_path):
    asked = ["explain", str(folders / "run0"), str(folders / "data"), "--out", str(tmp_path / "r.html")]
    main([*asked, "--no-trees", "--part", "all", "--samples", "7"])
    text = (tmp_path / "r.html").read_text()
    assert "No other model was given" in text
    assert len(held_in(text, "data")["samples"]) == 7


def test_report_writes_into_the_run_and_not_twice(folders, capsys):
    main(["report", str(folders / "run1")])
    assert (folders / "run1/report.html").stat().st_size > 10_000
    assert "raindrop explain" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["report", str(folders / "run1")])
    assert "exists already" in capsys.readouterr().err
