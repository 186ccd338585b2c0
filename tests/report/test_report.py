"""The report has the numbers of the library, in one file that is safe to open."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from awkward import CLASSES, SENSORS, awkward_model, awkward_table
from sklearn.metrics import average_precision_score, roc_curve

from raindrop import Classifier, ConfigError, DataError, EventTable, OutputExistsError
from raindrop.cli.app import main
from raindrop.errors import MissingExtraError
from raindrop.graphs.graph import SensorGraphs
from raindrop.report import report_on, report_on_run, write_report
from raindrop.report.cases import MAX_READINGS, Case, choose, thinned
from raindrop.report.content import positive_second
from raindrop.report.page import circle, digits, page, script_json, shortened, static_text
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
    return report_on(
        model, table, baselines={"other": other}, other_seeds=[other], notes={"<note>": "& more"}, samples=10
    )


@pytest.fixture(scope="module")
def text(report):
    return page(report)


def embedded_json(text: str, element: str):
    return json.loads(re.search(rf'<script id="{element}" type="application/json">(.*?)</script>', text, re.S)[1])


# ---------------------------------------------------------------- its numbers


def test_its_metrics_are_those_of_evaluate(report, model, table):
    expected = model.evaluate(table)
    assert {name: each.value for name, each in report.scores[0].metrics.items()} == pytest.approx(
        {name: expected[name] for name in report.scores[0].metrics}
    )
    assert [score.name for score in report.scores] == ["Raindrop", "other"]
    for share, metric in zip((0.0, 0.1, 0.2, 0.3, 0.4, 0.5), report.scores[0].robustness, strict=True):
        assert metric.value == pytest.approx(model.evaluate(hide_random_sensors(table, share, seed=0))["auroc"])


def test_chance_is_a_model_that_predicts_the_base_rate(report, table):
    from raindrop.tasks.metrics import CLASSIFICATION, evaluate

    rate = np.array([(table.labels == name).mean() for name in CLASSES])
    expected = evaluate(CLASSIFICATION, report.truth, np.tile(rate, (len(table), 1)))
    assert report.chance == pytest.approx({name: expected[name] for name in report.chance})


def test_a_contribution_is_the_difference_to_the_score_without_the_sensor(report, model, table):
    case = report.cases[3]
    one = table[[case.id]]
    np.testing.assert_allclose(case.probability, model.predict_proba(one)[0], rtol=1e-5)
    before = np.log(case.probability[1] / case.probability[0])
    for at, name in enumerate(SENSORS):
        if not (case.sensor == at).any():
            assert case.contribution[at] == 0
            continue
        without = model.predict_proba(hide_sensors(one, [name]))[0]
        assert case.without[at] == pytest.approx(without[1], abs=1e-5)
        assert case.contribution[at] == pytest.approx(before - np.log(without[1] / without[0]), abs=1e-3)


def test_with_more_classes_contributions_are_to_the_predicted_class():
    table = awkward_table(18, classes=("a", "b", "c"))
    model = awkward_model(table, **{"train.epochs": 1})
    for case in report_on(model, table).cases[:6]:
        predicted, at = case.probability.argmax(), case.sensor[0]
        without = model.predict_proba(hide_sensors(table[[case.id]], [SENSORS[at]]))[0, predicted]
        assert case.without[at] == pytest.approx(without, abs=1e-5)


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
    frame = attention_over_time(model, one).filter("observed")
    known = {(sensor, time): weight for _, time, sensor, weight, _ in frame.iter_rows()}
    for sensor, time, attention in zip(case.sensor, case.time, case.attention, strict=True):
        assert attention == pytest.approx(known.get((SENSORS[sensor], time), 0) * times, abs=1e-4)


def test_graphs_come_with_evidence(report):
    names = [view.name for view in report.graph_views]
    assert names == ["Information in messages", "Edge weights (Eq. 3)", "Linear probe"]
    tested = report.graph_views[:2]
    for view in tested:
        assert view.evidence[0] == view.evidence[1]  # of two classes there is one difference
        answers = dict(view.evidence[1])
        assert len(answers) == 4
        assert "2 graphs" in answers["Do other training seeds give the same difference between the classes?"]
        assert view.q[0].shape == (8, 8)
        assert (view.q[1] == view.q[0]).all()
        assert view.empty == ""
    unstable = [view for view in tested if any("not stable" in answer for _, answer in view.evidence[1])]
    assert unstable  # after one epoch, two models do not have the same graph
    assert all("not stable" in view.warnings[1] for view in unstable)


def test_with_more_classes_each_has_evidence_of_its_own():
    table = awkward_table(18, classes=("a", "b", "c"))
    views = report_on(awkward_model(table, **{"train.epochs": 1}), table, samples=2).graph_views
    for code, name in enumerate("abc"):
        question = f"Do other samples give the same difference between '{name}' and the other classes?"
        assert question in dict(views[0].evidence[code])
    assert set(views[0].q) == set(views[0].warnings) == {0, 1, 2}


# ---------------------------------------------------------------- the positive class


def test_every_metric_of_two_classes_names_its_class(report, text):
    assert report.positive == 1
    assert report.metric_names["auprc"] == f"AUPRC ({CLASSES[1]})"
    assert all("(" in name for name in report.metric_names.values())
    visible = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert "AUPRC (well &amp; &#34;good&#34;)" in visible
    assert not re.search(r"AUROC(?! \(| against)|AUPRC(?! \()", visible)


def test_another_positive_class_changes_every_number_that_is_about_it(model, table, monkeypatch):
    def of(code):
        monkeypatch.setattr(type(model), "positive_code_", code)
        return report_on(model, table[:20], samples=4)

    second, first = of(1), of(0)
    truth, probability = second.truth, second.probability
    assert first.metric_names["auprc"] == f"AUPRC ({CLASSES[0]})"
    assert first.scores[0].metrics["auprc"].value == pytest.approx(
        average_precision_score(truth == 0, probability[:, 0])
    )
    assert second.scores[0].metrics["auprc"].value == pytest.approx(
        average_precision_score(truth == 1, probability[:, 1])
    )
    assert first.chance["auprc"] == pytest.approx(1 - second.chance["auprc"])
    np.testing.assert_allclose(first.curves()[0]["true"], roc_curve(truth == 0, probability[:, 0])[1])
    np.testing.assert_allclose(
        np.sort(first.calibration.predicted), np.sort(1 - second.calibration.predicted), rtol=1e-5
    )
    for one, other in zip(first.cases, second.cases, strict=True):
        np.testing.assert_allclose(one.contribution, -other.contribution, atol=1e-3)
    assert embedded_json(page(first), "data")["positive"] == 0


def test_the_metrics_get_the_positive_class_second():
    truth, probability = np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]], dtype=np.float32)
    flipped = positive_second(truth, probability, 0)
    assert flipped[0].tolist() == [1, 0, 0]
    np.testing.assert_array_equal(flipped[1], probability[:, [1, 0]])
    for positive in (1, None):
        assert positive_second(truth, probability, positive)[1] is probability


# ---------------------------------------------------------------- graphs without edges


@pytest.fixture(scope="module")
def read_apart(table):
    """The same samples, but of each time of a sample only one reading."""
    return table.where(lambda events: events.select(first=pl.struct("sample", "time").is_first_distinct())["first"])


def test_sensors_never_read_at_the_same_time_leave_one_sentence_and_no_evidence(model, read_apart):
    report = report_on(model, read_apart, samples=5)
    information, weights, probe = report.graph_views
    sentence = "There are no edges between sensors: no two sensors are ever read at the same time."
    assert information.empty == probe.empty == sentence
    assert weights.empty == ""  # edge weights do not need readings at the same time
    assert weights.evidence
    for view in (information, probe):
        assert (view.evidence, view.warnings, view.q) == ({}, {}, {})
    data = embedded_json(page(report), "data")
    assert [view["empty"] for view in data["views"]] == [sentence, "", sentence]
    assert data["views"][0]["empty_samples"] == [sentence] * 5
    assert data["views"][1]["empty_samples"] == [""] * 5


def test_explain_prints_why_a_graph_is_empty(model, read_apart, tmp_path, capsys):
    model.save(tmp_path / "run")
    read_apart.write(tmp_path / "data")
    main(["explain", str(tmp_path / "run"), str(tmp_path / "data"), "--out", str(tmp_path / "r.html"), "--no-trees"])
    printed = capsys.readouterr().out
    assert "Information in messages: There are no edges between sensors: no two sensors are ever read" in printed
    assert "Edge weights" not in printed


def test_limitations_of_graphs_are_listed_only_where_there_are_graphs(report, table):
    assert any("An edge is no proof" in text for text in report.card.limits)
    trees = report_on(Classifier("trees").fit(table), table, samples=3)
    assert not any("edge" in text for text in trees.card.limits)


def test_a_model_without_a_graph_has_a_report_without_graphs(table):
    trees = Classifier("trees").fit(table)
    report = report_on(trees, table, samples=3)
    assert report.graph_views == []
    text = page(report)
    assert 'id="graphs"' not in text
    assert 'id="samples"' in text


def test_readings_of_unknown_sensors_are_left_out_where_they_are_ignored(table):
    events = table.events().with_columns(pl.col("sensor").cast(pl.String).replace("a/b", "new"))
    other = EventTable.from_frames(events, table.samples, label="<label>", statics=["<static>"], duplicates="last")
    lenient = awkward_model(table, **{"train.epochs": 1}).set_params(unknown_sensors="ignore")
    report = report_on(lenient, other, samples=4)
    assert all((case.sensor != SENSORS.index("a/b")).all() for case in report.cases)


def test_a_baseline_with_other_classes_is_refused(model, table):
    other = Classifier("trees", preset="paper").fit(awkward_table(18, classes=("a", "b", "c")))
    with pytest.raises(DataError, match="'Trees' has the classes a, b, c"):
        report_on(model, table, baselines={"Trees": other})


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
    assert choose(np.array([0, 1, 0]), np.full((3, 2), 0.5), 5, 0, 1).tolist() == [0, 1, 2]


def test_the_choice_has_errors_extremes_and_a_mix_of_classes():
    rng = np.random.default_rng(0)
    truth = (rng.random(2000) < 0.05).astype(int)
    score = rng.random(2000)
    probability = np.column_stack([1 - score, score])
    chosen = choose(truth, probability, 200, 0, 1)
    assert len(chosen) == len(set(chosen.tolist())) == 200
    worst = np.argsort(probability[np.arange(2000), truth])[:50]
    assert set(worst) | set(np.argsort(score)[:25]) | set(np.argsort(score)[-25:]) <= set(chosen.tolist())
    assert truth[chosen].sum() > 40  # of about a hundred rare ones; at random there would be about ten
    assert set(choose(truth, probability, 200, 1, 1)) != set(chosen)


def test_with_more_classes_the_extremes_are_the_most_and_least_certain_predictions():
    probability = np.random.default_rng(0).dirichlet([1, 1, 1], 400)
    truth = probability.argmax(1)
    chosen = choose(truth, probability, 80, 0, None)
    certain = np.argsort(probability.max(1))
    assert set(certain[:10]) | set(certain[-10:]) <= set(chosen.tolist())


def test_long_samples_are_thinned_first_and_evenly():
    count = np.array([10, 0, 1000, 50])
    keep = thinned(count, 160)
    kept = [part.sum() for part in np.split(keep, np.cumsum(count)[:-1])]
    assert kept == [10, 0, 100, 50]
    assert np.ptp(np.diff(np.flatnonzero(keep[10:1010]))) <= 1
    assert thinned(count, 10**6).all()


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
    graphs = SensorGraphs(sensors, [case.id for case in samples], weights)
    truth = np.arange(n) % 2
    large = replace(
        report,
        sensors=sensors,
        cases=samples,
        case_positions=np.arange(n),
        truth=truth,
        scores=[],
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
    short = shortened(names)
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
