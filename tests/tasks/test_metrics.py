"""Every metric against scikit-learn and against cases worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
from class_tasks import classes
from sklearn import metrics as sk

from raindrop.errors import ConfigError
from raindrop.tasks.metrics import (
    CLASSIFICATION,
    LEVELS,
    METRICS,
    REGRESSION,
    auprc,
    auroc,
    brier,
    calibration_error,
    log_loss,
    require_metric,
)


def drawn(classes: int, samples: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, samples)
    scores = rng.random((samples, classes)) + 0.3 * np.eye(classes)[truth]
    return truth, scores / scores.sum(1, keepdims=True)


def two(*probabilities: float) -> np.ndarray:
    """Two columns, given the probability of the second class."""
    return np.array([[1 - p, p] for p in probabilities])


def evaluate(names: Iterable[str], truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    return {name: METRICS[name](truth, predicted) for name in names}


def error_in_bins(true: np.ndarray, said: np.ndarray) -> float:
    """The calibration error by loops: bin number = tenth of the samples that have a smaller probability."""
    bins: dict[int, list[int]] = {}
    for at, p in enumerate(said):
        bins.setdefault(sum(other < p for other in said) * 10 // len(said), []).append(at)
    off = 0.0
    for members in bins.values():
        mean = sum(said[at] for at in members) / len(members)
        share = sum(bool(true[at]) for at in members) / len(members)
        off += len(members) / len(said) * abs(mean - share)
    return off


def test_two_classes_are_as_scikit_learn_has_them() -> None:
    truth, probability = drawn(2)
    second, predicted = probability[:, 1], probability.argmax(1)
    assert evaluate(CLASSIFICATION, truth, probability) == pytest.approx(
        {
            "auroc": sk.roc_auc_score(truth, second),
            "auprc": sk.average_precision_score(truth, second),
            "accuracy": sk.accuracy_score(truth, predicted),
            "precision": sk.precision_score(truth, predicted, average="macro"),
            "recall": sk.recall_score(truth, predicted, average="macro"),
            "f1": sk.f1_score(truth, predicted, average="macro"),
            "log_loss": sk.log_loss(truth, probability),
            "brier": sk.brier_score_loss(truth, second),
            "calibration_error": error_in_bins(truth == 1, second),
        }
    )


def test_more_classes_are_means_of_one_against_the_rest() -> None:
    truth, probability = drawn(4)
    values = evaluate(CLASSIFICATION, truth, probability)
    assert values["auroc"] == pytest.approx(sk.roc_auc_score(truth, probability, multi_class="ovr", average="macro"))
    each = [sk.average_precision_score(truth == code, probability[:, code]) for code in range(4)]
    assert values["auprc"] == pytest.approx(np.mean(each))
    assert values["f1"] == pytest.approx(sk.f1_score(truth, probability.argmax(1), average="macro"))
    assert values["log_loss"] == pytest.approx(sk.log_loss(truth, probability))
    assert values["brier"] == pytest.approx(((probability - np.eye(4)[truth]) ** 2).sum(1).mean())
    right = probability.argmax(1) == truth
    assert values["calibration_error"] == pytest.approx(error_in_bins(right, probability.max(1)))


def test_bins_of_the_calibration_error_hold_a_tenth_of_the_samples_each() -> None:
    said = np.linspace(0.005, 0.995, 100)
    true = said > 0.5
    wanted = sum(abs(said[at : at + 10].mean() - true[at : at + 10].mean()) for at in range(0, 100, 10)) / 10
    assert calibration_error(true.astype(int), two(*said)) == pytest.approx(wanted)


def test_equal_probabilities_share_a_bin_whatever_their_order() -> None:
    truth = np.repeat([0, 0, 0, 1], 10)
    assert calibration_error(truth, two(*np.full(40, 0.25))) == pytest.approx(0)
    assert calibration_error(truth, two(*np.full(40, 0.45))) == pytest.approx(0.2)
    truth, probability = drawn(3)
    probability = np.round(probability, 1)
    order = np.random.default_rng(1).permutation(len(truth))
    assert calibration_error(truth[order], probability[order]) == pytest.approx(calibration_error(truth, probability))


def test_a_calibrated_forecast_has_a_smaller_error_than_a_bold_one() -> None:
    said = np.random.default_rng(0).random(20_000)
    truth = (np.random.default_rng(1).random(20_000) < said).astype(int)
    assert calibration_error(truth, two(*said)) < 0.01
    assert calibration_error(truth, two(*np.where(said > 0.5, said**0.3, said**3))) > 0.05


def test_cases_worked_out_by_hand() -> None:
    truth = np.array([0, 0, 1, 1])
    assert auroc(truth, two(0.1, 0.4, 0.35, 0.8)) == 0.75  # one of four pairs is the wrong way round
    assert auroc(truth, two(0.5, 0.5, 0.5, 0.5)) == 0.5
    assert auprc(truth, two(0.1, 0.4, 0.35, 0.8)) == pytest.approx((1 + 2 / 3) / 2)
    assert log_loss(truth, two(0.5, 0.5, 0.5, 0.25)) == pytest.approx((3 * math.log(2) + math.log(4)) / 4)
    assert brier(truth, two(0, 0, 1, 0.5)) == pytest.approx(0.25 / 4)
    assert evaluate(["accuracy"], truth, two(0.1, 0.2, 0.3, 0.9))["accuracy"] == 0.75


def test_a_confident_mistake_has_a_large_but_finite_loss() -> None:
    assert 20 < log_loss(np.array([0]), two(1.0)) < 50


def test_ranking_needs_two_classes_and_the_other_values_do_not() -> None:
    values = evaluate(CLASSIFICATION, np.array([1, 1]), two(0.7, 0.2))
    assert math.isnan(values["auroc"])
    assert math.isnan(values["auprc"])
    assert values["accuracy"] == 0.5
    assert all(math.isfinite(values[name]) for name in set(CLASSIFICATION) - {"auroc", "auprc"})


def test_a_class_without_a_sample_is_left_out_of_the_ranking() -> None:
    truth, probability = drawn(3)
    present = truth != 1
    truth, probability = truth[present], probability[present]
    each = [sk.roc_auc_score(truth == code, probability[:, code]) for code in (0, 2)]
    assert auroc(truth, probability) == pytest.approx(np.mean(each))


def test_lower_is_better_for_losses_alone() -> None:
    assert METRICS["auroc"].better(0.8, 0.7)
    assert not METRICS["auroc"].better(0.7, 0.7)
    assert METRICS["log_loss"].better(0.6, 0.7)
    assert not METRICS["log_loss"].better(0.8, 0.7)
    assert METRICS["brier"].better(0.1, None)
    lower = {name for name, metric in METRICS.items() if metric.lower_is_better}
    assert lower == {"log_loss", "brier", "calibration_error", "mae", "rmse", "pinball"}
    perfect, wrong = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    truth = np.array([0, 1])
    for name in CLASSIFICATION:
        assert METRICS[name].better(METRICS[name](truth, perfect), METRICS[name](truth, wrong)), name


def test_what_is_not_a_number_never_beats_a_number() -> None:
    assert not METRICS["auroc"].better(math.nan, 0.1)
    assert METRICS["auroc"].better(0.1, math.nan)
    assert not METRICS["auroc"].better(math.nan, math.nan)


def test_an_unknown_metric_suggests_the_near_one() -> None:
    require_metric("auroc")
    with pytest.raises(ConfigError, match="Unknown metric 'acuracy': did you mean 'accuracy'"):
        require_metric("acuracy")


def test_metrics_of_quantities_are_as_scikit_learn_has_them() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.normal(5, 2, 50), rng.normal(5, 2, 50)
    values = evaluate(REGRESSION, truth, predicted)
    assert values["mae"] == pytest.approx(sk.mean_absolute_error(truth, predicted))
    assert values["rmse"] == pytest.approx(sk.root_mean_squared_error(truth, predicted))
    assert values["r2"] == pytest.approx(sk.r2_score(truth, predicted))
    assert math.isnan(METRICS["r2"](np.ones(3), np.arange(3.0)))
    quantiles = np.sort(rng.normal(5, 2, (50, len(LEVELS))), axis=1)
    each = [sk.mean_pinball_loss(truth, quantiles[:, at], alpha=level) for at, level in enumerate(LEVELS)]
    assert METRICS["pinball"](truth, quantiles) == pytest.approx(np.mean(each))


def test_precision_recall_and_f1_of_each_class_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    task = classes(4)
    truth, probability = rng.integers(0, 4, 300), rng.dirichlet(np.ones(4), 300)
    probability[:, 3] = 0.0  # a class that is never predicted
    values = task.evaluate(truth, probability)
    scores = sk.precision_recall_fscore_support(truth, probability.argmax(1), labels=range(4), zero_division=0)
    for code, name in enumerate(task.classes):
        for metric, of_class in zip(("precision", "recall", "f1"), scores, strict=False):
            assert values[f"{metric}/{name}"] == pytest.approx(of_class[code])
    assert values["recall/3"] == 0.0
    assert task.title("recall/3") == "recall (3)"
    assert task.title("recall") == "macro recall"


def test_the_recall_of_a_class_without_samples_is_undefined():
    probability = np.eye(3)[[0, 1, 0]]
    values = classes(3).evaluate(np.array([0, 1, 1]), probability)
    assert np.isnan(values["recall/2"])
    assert values["precision/1"] == 1.0
    assert values["recall/1"] == 0.5


def test_the_interval_of_a_class_contains_its_value_and_narrows_with_samples():
    rng = np.random.default_rng(1)
    task, widths = classes(3), []
    for count in (60, 6000):
        truth = rng.integers(0, 3, count)
        probability = rng.dirichlet(np.ones(3), count) + 0.3 * np.eye(3)[truth]
        drawn = task.bootstrap(truth, probability, ["recall/1", "precision/2", "f1"], draws=200)
        assert drawn["recall/1"].low < drawn["recall/1"].value < drawn["recall/1"].high
        assert drawn["recall/1"].value == pytest.approx(sk.recall_score(truth == 1, probability.argmax(1) == 1))
        widths.append(drawn["recall/1"].high - drawn["recall/1"].low)
    assert widths[1] < widths[0] / 5


def test_the_confusion_matrix_counts_true_and_predicted_classes():
    rng = np.random.default_rng(2)
    truth, probability = rng.integers(0, 3, 200), rng.dirichlet(np.ones(3), 200)
    confusion = classes(3).confusion(truth, probability)
    assert (confusion.counts == sk.confusion_matrix(truth, probability.argmax(1))).all()
    assert np.allclose(confusion.shares.sum(1), 1)
    assert confusion.frame()["true class"].to_list() == ["0", "1", "2"]
    assert "<table" in confusion._repr_html_()
