"""Intervals: the fast weighted metrics are those of samples that are really repeated."""

from __future__ import annotations

import numpy as np
import pytest

from raindrop import ConfigError, DataError
from raindrop.tasks.bootstrap import Interval
from raindrop.tasks.classification import Classification
from raindrop.tasks.metrics import CLASSIFICATION, LEVELS, METRICS, reliability_curve

WEIGHTED = [name for name in CLASSIFICATION if METRICS[name].weighted is not None]


def bootstrap(truth: np.ndarray, probability: np.ndarray, *names: str, **options: int) -> dict[str, Interval]:
    task = Classification("outcome", np.arange(probability.shape[1]).astype(str))
    return task.bootstrap(truth, probability, list(names) or None, **options)


def scored(samples: int, classes: int, seed: int = 0, *, ties: bool = False):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, samples)
    logits = rng.normal(0, 1, (samples, classes)) + 1.2 * np.eye(classes)[truth]
    probability = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    if ties:  # many equal scores
        probability = np.round(probability * 4) + 0.5
        probability /= probability.sum(1, keepdims=True)
    return truth, probability


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("ties", [False, True])
def test_a_sample_that_counts_three_times_is_as_if_it_were_there_three_times(classes, ties):
    truth, probability = scored(60, classes, seed=classes, ties=ties)
    times = np.random.default_rng(1).integers(0, 4, (7, 60)).astype(float)
    for name in WEIGHTED:
        weighted = METRICS[name].weighted(truth, probability, times)
        for draw, often in enumerate(times):
            again = np.repeat(np.arange(60), often.astype(int))
            assert weighted[draw] == pytest.approx(METRICS[name](truth[again], probability[again]), abs=1e-9), name


@pytest.mark.parametrize("name", ["mae", "rmse", "r2", "pinball"])
def test_metrics_of_quantities_count_repeated_samples_too(name):
    rng = np.random.default_rng(0)
    truth = rng.normal(3, 2, 40)
    predicted = np.sort(rng.normal(3, 2, (40, len(LEVELS))), axis=1) if name == "pinball" else rng.normal(3, 2, 40)
    times = rng.integers(0, 4, (7, 40)).astype(float)
    weighted = METRICS[name].weighted(truth, predicted, times)
    for draw, often in enumerate(times):
        again = np.repeat(np.arange(40), often.astype(int))
        assert weighted[draw] == pytest.approx(METRICS[name](truth[again], predicted[again]), abs=1e-9)


@pytest.mark.slow
def test_the_interval_is_as_wide_as_the_metric_scatters_over_new_samples():
    truth, probability = scored(400, 2)
    held = bootstrap(truth, probability, "auroc", "accuracy", draws=2000)
    for name in held:
        elsewhere = [METRICS[name](*scored(400, 2, seed)) for seed in range(100, 400)]
        width = (held[name].high - held[name].low) / (2 * 1.96)
        assert width == pytest.approx(np.std(elsewhere), rel=0.3), name
        assert held[name].low < held[name].value < held[name].high
        assert held[name].value == METRICS[name](truth, probability)


def test_a_rare_class_is_in_every_draw():
    truth = np.array([1] + [0] * 200)
    probability = np.column_stack([np.linspace(0, 1, 201), np.linspace(1, 0, 201)])
    held = bootstrap(truth, probability)
    assert all(np.isfinite([part.low, part.high]).all() for part in held.values())


def test_the_draws_depend_on_the_seed():
    truth, probability = scored(50, 3)
    first = bootstrap(truth, probability, seed=1)
    assert bootstrap(truth, probability, seed=1) == first
    assert bootstrap(truth, probability, seed=2) != first


def test_of_one_class_alone_there_is_no_auroc():
    held = bootstrap(np.zeros(5, dtype=int), np.full((5, 2), 0.5), draws=10)
    assert np.isnan([held["auroc"].value, held["auroc"].low]).all()
    assert held["brier"].value == pytest.approx(0.25)


def test_what_cannot_be_asked_is_said():
    truth, probability = scored(20, 2)
    with pytest.raises(ConfigError, match="did you mean 'auroc'"):
        bootstrap(truth, probability, "aurc")
    with pytest.raises(ConfigError, match="at least 1 draw"):
        bootstrap(truth, probability, draws=0)
    with pytest.raises(DataError, match="no sample"):
        bootstrap(truth[:0], probability[:0])


def test_calibration_is_what_loops_over_bins_give():
    truth, probability = scored(300, 2)
    held = reliability_curve(truth, probability, bins=5)
    order = np.argsort(probability[:, 1])
    for at, members in enumerate(np.array_split(order, 5)):
        assert held.count[at] == len(members)
        assert held.predicted[at] == pytest.approx(probability[members, 1].mean())
        assert held.observed[at] == pytest.approx(truth[members].mean())
        assert held.low[at] < held.observed[at] < held.high[at]
    assert held.error == pytest.approx(np.abs(held.predicted - held.observed).mean())


def test_calibration_of_more_classes_is_about_being_right():
    truth, probability = scored(200, 4)
    held = reliability_curve(truth, probability)
    right = (held.observed * held.count).sum() / 200
    assert right == pytest.approx(METRICS["accuracy"](truth, probability))


def test_equal_scores_are_one_bin():
    held = reliability_curve(np.array([0, 1, 1, 0]), np.full((4, 2), 0.5))
    assert held.count.tolist() == [4]
    assert held.error == 0
