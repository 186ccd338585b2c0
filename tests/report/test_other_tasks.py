"""Reports on regression and multi-label models: the numbers of the library, awkward names, and the commands."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from awkward import LABELS, QUANTITIES, SENSORS, awkward_estimator, awkward_outcomes, embedded_json
from learnable import words
from sklearn.metrics import mean_absolute_error, roc_auc_score, roc_curve

from raindrop import Classifier, ConfigError, DataError, MultiLabelClassifier, Regressor
from raindrop.cli.app import main
from raindrop.estimators import ESTIMATORS
from raindrop.report import Report, plots, report_on, report_on_run
from raindrop.report.numbers import quantity_text
from raindrop.report.page import page
from raindrop.report.tasks import VIEWS, TaskView, view_type
from raindrop.table.hide import hide_random_sensors, hide_sensors
from raindrop.tasks import Regression, Task

pytestmark = pytest.mark.slow

KINDS = (Regressor, MultiLabelClassifier)
COLUMNS = {Regressor: QUANTITIES, MultiLabelClassifier: LABELS}


@pytest.fixture(scope="module")
def outcomes():
    return awkward_outcomes()


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def fitted(request, outcomes):
    return awkward_estimator(request.param, outcomes)


@pytest.fixture(scope="module")
def made(fitted, outcomes) -> Report:
    trees = awkward_estimator(type(fitted), outcomes, "trees")
    return report_on(fitted, outcomes, baselines={"Trees": trees}, samples=12)


@pytest.fixture(scope="module")
def regressor(outcomes):
    return awkward_estimator(Regressor, outcomes)


@pytest.fixture(scope="module")
def labeller(outcomes):
    return awkward_estimator(MultiLabelClassifier, outcomes)


def test_every_task_has_a_view_that_is_tested():
    for kind in ESTIMATORS.values():
        assert issubclass(view_type(kind.task_type), TaskView)
        assert issubclass(kind, (Classifier, *KINDS)), "add it to KINDS"  # test_report.py has the classifier


def test_a_task_has_the_view_of_the_task_it_derives_from_or_one_message():
    class Derived(Regression):
        name = "derived"

    class Other(Task):
        name = "other"

    assert view_type(Derived) is VIEWS[Regression]
    with pytest.raises(ConfigError, match="There is no report on the task 'other'"):
        view_type(Other)


# ---------------------------------------------------------------- both tasks


def test_metrics_are_those_of_evaluate_for_the_model_the_baseline_and_a_constant(made, fitted, outcomes):
    expected = fitted.evaluate(outcomes)
    assert {name: each.value for name, each in made.scores[0].metrics.items()} == pytest.approx(
        {name: expected[name] for name in made.view.metrics}
    )
    for name in COLUMNS[type(fitted)]:
        for metric, interval in made.scores[0].by_column[name].items():
            assert interval.value == pytest.approx(expected[f"{metric}/{name}"])
            assert interval.low <= interval.value <= interval.high
    truth, task = fitted.truth(outcomes), fitted.task_
    assert made.constant == pytest.approx(task.evaluate(truth, task.constant_prediction(truth)), nan_ok=True)
    assert [score.name for score in made.scores] == ["Raindrop", "Trees"]
    first = next(iter(task.metrics))
    for share, interval in zip((0.0, 0.1, 0.2, 0.3, 0.4, 0.5), made.scores[0].robustness, strict=True):
        assert interval.value == pytest.approx(fitted.evaluate(hide_random_sensors(outcomes, share))[first])


def test_every_metric_has_the_title_of_the_task(made, fitted):
    text = page(made)
    for name in made.view.metrics:
        title = fitted.task_.title(name)
        assert made.metric_names[name].lower().startswith(title.lower())
        assert title[1:] in text


def test_awkward_names_cannot_break_out_of_scripts_or_markup(made, fitted):
    text = page(made)
    assert text.count("</script>") == text.count("<script") == 4
    for name in ("<i>days", "<img src=x", "<b>died", "<u>sample", "<script>alert"):
        assert name not in text
    data = embedded_json(text, "data")
    assert data["sensors"] == list(SENSORS)
    assert [name for name, _ in data["samples"][0]["explained"]] == list(COLUMNS[type(fitted)])
    axis_labels = set(found_under("axis_label", embedded_json(text, "charts")))
    assert "recall" in axis_labels or "true value" in axis_labels
    assert not [label for label in axis_labels if any(name in str(label) for name in COLUMNS[type(fitted)])]


def found_under(key, content):
    """Every value of this key in nested JSON."""
    if isinstance(content, dict):
        return [content.get(key)] + [x for each in content.values() for x in found_under(key, each)]
    return [x for each in content for x in found_under(key, each)] if isinstance(content, list) else []


def test_one_mean_graph_of_all_samples_is_shown_and_no_classes(made, fitted, outcomes):
    names = [view.name for view in made.graph_views]
    assert names == ["Information in messages", "Edge weights (Eq. 3)", "Linear probe"]
    data = embedded_json(page(made), "data")
    assert data["groups"] == ["all samples"]
    np.testing.assert_allclose(
        data["views"][1]["means"]["0"], fitted.graphs(outcomes).mean().weights.ravel(), rtol=6e-3, atol=1e-9
    )
    assert 'id="class"' not in page(made)


def test_a_contribution_is_the_difference_to_the_prediction_without_the_sensor(made, fitted, outcomes):
    case = made.cases[3]
    one = outcomes[[case.id]]
    at = int(case.sensor[0])
    with_all, without = (fitted.predictions(each)[0] for each in (one, hide_sensors(one, [SENSORS[at]])))
    if isinstance(fitted, Regressor):
        with_all, without = fitted.task_.point(with_all), fitted.task_.point(without)
        expected = with_all - without
    else:
        expected = np.log(with_all / (1 - with_all)) - np.log(without / (1 - without))
    np.testing.assert_allclose(case.without[:, at], without, rtol=1e-4)
    np.testing.assert_allclose(case.contribution[:, at], expected, rtol=1e-3, atol=1e-3 * np.abs(without).max())
    unread = np.setdiff1d(np.arange(len(SENSORS)), case.sensor)
    assert (case.contribution[:, unread] == 0).all()


def test_a_run_without_data_has_a_card_and_its_training_history(fitted):
    text = page(report_on_run(fitted))
    assert f"<dd>{fitted.task_.name}</dd>" in text
    assert 'id="chart-history"' in text
    assert report_on_run(fitted).epoch_metric == fitted.task_.default_metric
    assert 'id="scores"' not in text


def test_the_card_describes_the_truth(made, fitted):
    assert fitted.task_.describe(made.truth) in dict(made.card.data).values()


def test_without_validation_samples_there_is_no_coverage_but_a_sentence(fitted, outcomes):
    bare = type(fitted)(**(fitted.get_params() | {"config": fitted.config | {"train.holdout": 0.0}})).fit(outcomes)
    report = report_on(bare, outcomes, samples=2)
    assert report.coverage == []
    assert "fitted without validation samples" in page(report)
    assert report.cases[0].region is None


def test_a_baseline_of_another_task_is_refused(fitted, outcomes):
    other = Classifier("trees").fit(outcomes)
    with pytest.raises(DataError, match="'Trees' is a model of classification"):
        report_on(fitted, outcomes, baselines={"Trees": other})
    with pytest.raises(DataError, match="'Raindrop' is a model of"):
        report_on(other, outcomes, baselines={"Raindrop": fitted})


def test_explain_and_report_write_a_page_with_trees_of_the_same_task(fitted, outcomes, tmp_path):
    outcomes.write(tmp_path / "data")
    run, out = tmp_path / "run", tmp_path / "r.html"
    changes = [word for word in words(train__epochs=1) if not word.startswith("train.metric")]
    command = ["train", str(tmp_path / "data"), "--out", str(run), "--task", fitted.task_.name]
    main([*command, "--label", *COLUMNS[type(fitted)], "--set", *changes])
    main(["explain", str(run), str(tmp_path / "data"), "--out", str(out)])
    text = out.read_text()
    assert "Trees" in text
    test = pl.read_parquet(run / "split.parquet").filter(pl.col("part") == "test")["sample"]
    assert {sample["id"] for sample in embedded_json(text, "data")["samples"]} == set(test)
    main(["report", str(run)])
    assert f"<dd>{fitted.task_.name}</dd>" in (run / "report.html").read_text()


def test_plots_of_robustness_and_of_a_sample_work_for_every_task(fitted, outcomes):
    figure = plots.robustness({"ours": fitted}, outcomes, (0.0, 0.5))
    first = next(iter(fitted.task_.metrics))
    expected = [fitted.evaluate(hide_random_sensors(outcomes, share))[first] for share in (0.0, 0.5)]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), expected)
    assert COLUMNS[type(fitted)][0] in plots.sample(fitted, outcomes, outcomes.ids[0]).get_suptitle()


# ---------------------------------------------------------------- regression


def test_the_charts_of_a_quantity_are_its_predictions_residuals_and_quantiles(regressor, outcomes):
    section = report_on(regressor, outcomes, samples=2).section
    truth, quantiles = regressor.truth(outcomes), regressor.predict_quantiles(outcomes)
    for at in range(2):
        known = ~np.isnan(truth[:, at])
        point = quantiles[known, at, 2]
        dots, few = section.charts[f"chart-truth-{at}"].series
        np.testing.assert_allclose(dots.x, truth[known, at])
        np.testing.assert_allclose(dots.y, point, rtol=1e-6)
        residuals = section.charts[f"chart-residuals-{at}"].series[0]
        np.testing.assert_allclose(residuals.y, truth[known, at] - point, rtol=1e-5)
        position = [int(np.flatnonzero(truth[:, at] == each)[0]) for each in few.x]
        interval = regressor.predict_interval(outcomes, 0.9)[position, at]
        np.testing.assert_allclose(np.column_stack([few.low, few.high]), interval)
        below = [(truth[known, at] <= quantiles[known, at, level]).mean() for level in range(5)]
        np.testing.assert_allclose(section.charts["chart-quantiles"].series[at].y, below)


def test_a_point_prediction_has_no_chart_of_quantiles(outcomes):
    squared = awkward_estimator(Regressor, outcomes, "trees", label=QUANTITIES[0], loss="squared")
    report = report_on(squared, outcomes, samples=2)
    assert "chart-quantiles" not in report.section.charts
    assert report.scores[0].by_column == {}
    assert report.scores[0].metrics["mae"].value == pytest.approx(
        mean_absolute_error(squared.truth(outcomes), squared.predict(outcomes))
    )
    assert "Calibration of quantiles" not in page(report)


def test_coverage_of_intervals_is_what_they_reach(regressor, outcomes):
    report = report_on(regressor, outcomes, samples=2)
    assert [(row.name, row.requested) for row in report.coverage] == [
        (name, share) for share in (0.8, 0.9) for name in QUANTITIES
    ]
    truth = regressor.truth(outcomes)[:, 1]
    known = ~np.isnan(truth)
    low, high = regressor.predict_interval(outcomes, 0.9)[known, 1].T
    assert report.coverage[3].reached == pytest.approx(((low <= truth[known]) & (truth[known] <= high)).mean())
    assert report.coverage[3].size == pytest.approx((high - low).mean())
    assert report.coverage[3].count == known.sum()


def test_a_sample_shows_its_prediction_interval_and_truth(regressor, outcomes):
    report = report_on(regressor, outcomes)
    data = embedded_json(page(report), "data")["samples"][7]
    facts, (low, high) = dict(map(tuple, data["facts"])), regressor.predict_interval(outcomes, 0.9)[7, 0]
    point, truth = regressor.predict(outcomes)[7], regressor.truth(outcomes)[7]
    assert facts[f"Prediction of {QUANTITIES[0]}"] == quantity_text(point[0])
    assert facts[f"True value of {QUANTITIES[0]}"] == quantity_text(truth[0])
    assert facts[f"True value of {QUANTITIES[1]}"] == "unknown"
    assert facts[f"90 % interval of {QUANTITIES[0]}"] == f"{quantity_text(low)} to {quantity_text(high)}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.82264, "0.823"), (-3.14159, "−3.14"), (2700.4, "2,700"), (0.0, "0"), (np.nan, "–"), (np.inf, "∞")],
)
def test_quantities_have_three_digits_or_all_before_the_point(value, expected):
    assert quantity_text(value) == expected


# ---------------------------------------------------------------- multi-label


def test_each_label_has_its_curves_on_the_samples_where_it_is_known(labeller, outcomes):
    report = report_on(labeller, outcomes, samples=2)
    truth, probability = labeller.truth(outcomes), labeller.predict_proba(outcomes)
    for at, name in enumerate(LABELS):
        known = ~np.isnan(truth[:, at])
        false, true, _ = roc_curve(truth[known, at], probability[known, at])
        np.testing.assert_allclose(report.section.charts["chart-roc"].series[at].x, false)
        np.testing.assert_allclose(report.section.charts["chart-roc"].series[at].y, true)
        area = roc_auc_score(truth[known, at], probability[known, at])
        assert report.scores[0].by_column[name]["auroc"].value == pytest.approx(area)
        curve = dict(report.section.values["calibrations"])[name]
        assert curve.count.sum() == known.sum()
        assert (curve.count * curve.observed).sum() == pytest.approx(truth[known, at].sum())


def test_coverage_of_sets_is_what_they_reach(labeller, outcomes):
    row = report_on(labeller, outcomes, samples=2).coverage[1]
    truth, sets = labeller.truth(outcomes)[:, 1], labeller.predict_sets(outcomes, 0.8)[:, 1]
    known = np.flatnonzero(~np.isnan(truth))
    assert (row.name, row.requested, row.count) == (LABELS[1], 0.8, len(known))
    assert row.reached == pytest.approx(np.mean([sets[at, int(truth[at])] for at in known]))
    assert row.size == pytest.approx(sets[known].sum(1).mean())


def test_a_label_that_is_unknown_for_all_samples_has_a_dash_and_no_curve(labeller, outcomes):
    unknown = outcomes[np.isnan(labeller.truth(outcomes)[:, 1])]
    report = report_on(labeller, unknown, samples=2)
    assert np.isnan(report.scores[0].by_column[LABELS[1]]["auroc"].value)
    assert len(report.section.charts["chart-roc"].series[1].x) == 0
    assert "unknown for all samples" in page(report)
