"""What a report contains: the numbers of the library, the positive class, graphs with and without edges."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from awkward import CLASSES, SENSORS, awkward_model, awkward_table, embedded_json
from closeness import assert_close, tolerance
from sklearn.metrics import average_precision_score, roc_curve

from raindrop import Classifier, ConfigError, DataError, EventTable
from raindrop.cli.app import main
from raindrop.graphs.evidence import stability
from raindrop.graphs.graph import SensorGraphs
from raindrop.report import report_on
from raindrop.report.cases import choose, thinned
from raindrop.report.graph_views import graph_views, recurring
from raindrop.report.page import page
from raindrop.report.tasks.classification import ClassView
from raindrop.table.hide import hide_random_sensors, hide_sensors
from raindrop.tasks import Classification, classification
from raindrop.tasks.metrics import CLASSIFICATION, METRICS

pytestmark = pytest.mark.slow

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
    rate = np.array([(table.labels == name).mean() for name in CLASSES])
    chance = np.tile(rate, (len(table), 1))
    assert report.constant == pytest.approx({name: METRICS[name](report.truth, chance) for name in report.constant})


def test_a_contribution_is_the_difference_to_the_score_without_the_sensor(report, model, table):
    case = report.cases[3]
    one = table[[case.id]]
    assert_close(case.predicted, model.predict_proba(one)[0])
    before = np.log(case.predicted[1] / case.predicted[0])
    for at, name in enumerate(SENSORS):
        if not (case.sensor == at).any():
            assert case.contribution[0, at] == 0
            continue
        without = model.predict_proba(hide_sensors(one, [name]))[0]
        assert case.without[0, at] == pytest.approx(without[1], abs=tolerance())
        slope = max(1 / (float(p[0]) * float(p[1])) for p in (case.predicted, without))  # of the log-odds
        odds = np.log(without[1] / without[0])
        assert case.contribution[0, at] == pytest.approx(before - odds, abs=tolerance(magnitude=slope))


def test_with_more_classes_contributions_are_to_the_predicted_class():
    table = awkward_table(18, classes=("a", "b", "c"))
    model = awkward_model(table, **{"train.epochs": 1})
    for case in report_on(model, table).cases[:6]:
        predicted, at = case.predicted.argmax(), case.sensor[0]
        without = model.predict_proba(hide_sensors(table[[case.id]], [SENSORS[at]]))[0, predicted]
        assert case.without[0, at] == pytest.approx(without, abs=tolerance())


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


@pytest.mark.slow
def test_seeds_that_left_messages_out_are_counted_and_a_model_without_them_says_why(model, table):
    never = {"model.ablation.messages": False, "model.graph.reconstruction": 0.0}
    silent = awkward_model(table, **{"train.epochs": 1, **never})
    code = np.zeros(len(table), dtype=np.int64)
    view = graph_views(model, table, code, other_seeds=[model, silent])[0]
    assert view.about.endswith("1 of 2 models with other seeds have no such graph.")
    silent.notes_ = {"messages": {"used": False, "reason": "memory"}}
    (probe,) = graph_views(silent, table, code)
    assert "no graph of its own: messages between sensors would have exceeded the memory." in probe.about


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
    for view in tested:
        assert set(view.recurs) == {"own", "others", "difference"}
        assert all(mask.sum() <= 7 for by_class in view.recurs.values() for mask in by_class.values())  # top 7 of 56


def test_with_more_classes_each_has_evidence_of_its_own():
    table = awkward_table(18, classes=("a", "b", "c"))
    views = report_on(awkward_model(table, **{"train.epochs": 1}), table, samples=2).graph_views
    for code, name in enumerate("abc"):
        question = f"Do other samples give the same difference between '{name}' and the other classes?"
        assert question in dict(views[0].evidence[code])
    assert set(views[0].q) == set(views[0].warnings) == {0, 1, 2}
    assert all("Not compared with other seeds" in text for text in views[0].warnings.values())
    assert views[0].recurs == {}


def test_an_edge_recurs_where_it_is_among_the_strongest_with_every_seed():
    weights = np.zeros((2, 4, 4), dtype=np.float32)
    weights[:, 0, 1] = 1  # the strongest of both
    weights[0, 2, 3], weights[1, 3, 2] = 0.5, 2.0
    first, other = (SensorGraphs(tuple("abcd"), ["x"], weights[at : at + 1]) for at in (0, 1))
    result = stability([first.mean(), other.mean()], top=2)
    assert np.argwhere(recurring(result, tuple("abcd"))).tolist() == [[0, 1]]


# ---------------------------------------------------------------- the positive class


def test_a_new_metric_with_intervals_gets_a_row_and_a_title(model, table, monkeypatch):
    accuracy = METRICS["accuracy"]
    new = {"hits": replace(accuracy, title="hit rate"), "slow_hits": replace(accuracy, title="slow", weighted=None)}
    for name, metric in new.items():
        monkeypatch.setitem(METRICS, name, metric)
    monkeypatch.setattr(classification, "CLASSIFICATION", (*CLASSIFICATION, *new))
    report = report_on(model, table, samples=2)
    assert list(report.metric_names) == [name for name in CLASSIFICATION if METRICS[name].weighted] + ["hits"]
    assert report.metric_names["hits"] == "Hit rate (all classes)"
    assert report.scores[0].metrics["hits"] == report.scores[0].metrics["accuracy"]
    assert "Hit rate (all classes)" in page(report)


def test_every_metric_of_two_classes_names_its_class(report, text):
    assert report.view.positive == 1
    assert report.metric_names["auprc"] == f"AUPRC ({CLASSES[1]})"
    assert all("(" in name for name in report.metric_names.values())
    visible = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert "AUPRC (well &amp; &#34;good&#34;)" in visible
    assert not re.search(r"AUROC(?! \(| against)|AUPRC(?! \()", visible)


def test_another_positive_class_changes_every_number_that_is_about_it(model, table):
    flipped = Classifier(config=model.config, positive=CLASSES[0]).fit(table, validation=table)
    report = report_on(flipped, table[:20], samples=4)
    truth, predicted = report.truth, report.scores[0].predicted
    assert report.view.classes == [CLASSES[1], CLASSES[0]]
    assert report.metric_names["auprc"] == f"AUPRC ({CLASSES[0]})"
    assert (truth == (table.labels[:20] == CLASSES[0])).all()
    assert report.scores[0].metrics["auprc"].value == pytest.approx(average_precision_score(truth, predicted[:, 1]))
    assert report.constant["auprc"] == pytest.approx(truth.mean())
    np.testing.assert_allclose(
        report.view.curves(truth, report.scores)[0]["true"], roc_curve(truth, predicted[:, 1])[1]
    )
    calibration = report.section.values["calibration"]
    assert (calibration.count * calibration.observed).sum() == pytest.approx(truth.sum())
    data = embedded_json(page(report), "data")
    assert data["groups"][data["main_group"]] == CLASSES[0]
    assert data["samples"][0]["explained"][0][0] == CLASSES[0]


# ---------------------------------------------------------------- graphs without edges


@pytest.fixture(scope="module")
def read_apart(table):
    """The same samples, but of each time of a sample only one reading."""
    return table.where(lambda events: events.select(first=pl.struct("sample", "time").is_first_distinct())["first"])


def test_sensors_never_read_at_the_same_time_leave_one_sentence_and_no_evidence(model, read_apart):
    report = report_on(model, read_apart, samples=5)
    information, weights, probe = report.graph_views
    sentence = "There are no edges between sensors: no two sensors are ever read at the same time."
    assert probe.empty == sentence
    assert information.empty == weights.empty == ""  # messages cross time
    assert weights.evidence
    assert (probe.evidence, probe.warnings, probe.q) == ({}, {}, {})
    data = embedded_json(page(report), "data")
    assert [view["empty"] for view in data["views"]] == ["", "", sentence]
    assert data["views"][1]["empty_samples"] == [""] * 5


def test_explain_prints_why_a_graph_is_empty(model, read_apart, tmp_path, capsys):
    model.save(tmp_path / "run")
    read_apart.write(tmp_path / "data")
    main(["explain", str(tmp_path / "run"), str(tmp_path / "data"), "--out", str(tmp_path / "r.html"), "--no-trees"])
    printed = capsys.readouterr().out
    assert "Linear probe: There are no edges between sensors: no two sensors are ever read at the same time" in printed
    assert "Edge weights" not in printed


def test_limitations_of_graphs_are_listed_only_where_there_are_graphs(report, table):
    assert any("An edge is not proof" in text for text in report.card.limits)
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
    assert choose(np.zeros(3), np.zeros(3), np.array([0, 1, 0]), 5, 0).tolist() == [0, 1, 2]


def test_the_choice_has_errors_extremes_and_a_mix_of_classes():
    rng = np.random.default_rng(0)
    truth = (rng.random(2000) < 0.05).astype(int)
    score = rng.random(2000)
    probability = np.column_stack([1 - score, score])
    error = -probability[np.arange(2000), truth]
    chosen = choose(error, score, truth, 200, 0)
    assert len(chosen) == len(set(chosen.tolist())) == 200
    worst = np.argsort(probability[np.arange(2000), truth])[:50]
    assert set(worst) | set(np.argsort(score)[:25]) | set(np.argsort(score)[-25:]) <= set(chosen.tolist())
    assert truth[chosen].sum() > 40  # of about a hundred rare ones; at random there would be about ten
    assert set(choose(error, score, truth, 200, 1)) != set(chosen)


def test_with_more_classes_the_extremes_are_the_most_and_least_certain_predictions():
    probability = np.random.default_rng(0).dirichlet([1, 1, 1], 400)
    truth = probability.argmax(1)
    view = ClassView(Classification("label", np.array(["a", "b", "c"])))
    chosen = choose(view.errors(truth, probability), view.scores(probability), truth, 80, 0)
    certain = np.argsort(probability.max(1))
    assert set(certain[:10]) | set(certain[-10:]) <= set(chosen.tolist())


def test_samples_of_unknown_truth_are_no_errors():
    error = np.array([np.nan, 3.0, 1.0, np.nan, 2.0, 0.5, 0.1, 0.2])
    chosen = choose(error, np.zeros(8), np.zeros(8, dtype=int), 4, 0)
    assert {1} <= set(chosen.tolist())
    assert len(chosen) == 4


def test_long_samples_are_thinned_first_and_evenly():
    count = np.array([10, 0, 1000, 50])
    keep = thinned(count, 160)
    kept = [part.sum() for part in np.split(keep, np.cumsum(count)[:-1])]
    assert kept == [10, 0, 100, 50]
    assert np.ptp(np.diff(np.flatnonzero(keep[10:1010]))) <= 1
    assert thinned(count, 10**6).all()
