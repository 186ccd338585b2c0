"""ReadingsAt: the pinball loss and the metrics by sensor compared with loops, rising quantiles, and its description."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from closeness import assert_close

from raindrop.errors import ConfigError
from raindrop.tasks.readings import LEVELS, ReadingsAt

SENSORS = ("a", "b", "c", "d")


@pytest.fixture
def task() -> ReadingsAt:
    return ReadingsAt(SENSORS)


@pytest.fixture
def judged() -> tuple[np.ndarray, np.ndarray]:
    """Truth (value, sensor) of 40 readings, none of sensor c and one of d, and their predicted quantiles."""
    rng = np.random.default_rng(0)
    code = rng.permutation([0] * 25 + [1] * 14 + [3])
    truth = np.stack([rng.normal(size=40), code], axis=1)
    return truth, np.sort(rng.normal(size=(40, len(LEVELS))), axis=1).astype(np.float32)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_the_mean_pinball_loss_over_readings_and_levels(task, weighted):
    scores, target, weight = torch.randn(30, len(LEVELS)), torch.randn(30), torch.rand(30)
    total = count = 0.0
    for n in range(30):
        for at, level in enumerate(LEVELS):
            error = float(target[n]) - float(scores[n, at])
            own = float(weight[n]) if weighted else 1.0
            total += own * (level * error if error > 0 else (level - 1) * error)
            count += own
    assert_close(task.loss(scores, target, weight if weighted else None), np.float32(total / count))


def test_the_loss_is_smallest_at_the_quantiles(task):
    """For a constant prediction, at the quantiles of the targets."""
    target = torch.from_numpy(np.random.default_rng(0).normal(size=4000))
    quantiles = torch.quantile(target, torch.tensor(LEVELS, dtype=torch.float64))
    best = task.loss(quantiles.expand(4000, -1), target)
    for at in range(len(LEVELS)):
        for step in (-0.1, 0.1):
            moved = quantiles.clone()
            moved[at] += step
            assert task.loss(moved.expand(4000, -1), target) > best


def test_members_of_an_ensemble_are_judged_each_by_itself(task):
    members, target = torch.randn(6, 3, len(LEVELS)), torch.randn(6)
    expected = sum(task.loss(members[:, m], target) for m in range(3)) / 3
    assert_close(task.member_loss(members, target), expected)
    assert_close(task.combine(members), members.mean(1))


def test_metrics_are_means_over_the_sensors_that_were_asked_for(task, judged):
    truth, predicted = judged
    by_sensor = {}
    for code in (0, 1, 3):
        errors = [truth[n, 0] - float(predicted[n, 2]) for n in range(40) if truth[n, 1] == code]
        mae = sum(abs(error) for error in errors) / len(errors)
        by_sensor[SENSORS[code]] = {"mae": mae, "rmse": (sum(error**2 for error in errors) / len(errors)) ** 0.5}
    found = task.by_sensor(truth, predicted)
    assert list(found) == ["a", "b", "d"]
    for name, metrics in by_sensor.items():
        assert found[name] == pytest.approx(metrics, rel=1e-6)
    evaluated = task.evaluate(truth, predicted)
    assert set(evaluated) == {"mae", "rmse"}
    for name, value in evaluated.items():
        assert value == pytest.approx(np.mean([metrics[name] for metrics in by_sensor.values()]), rel=1e-6)


def test_a_constant_prediction_is_the_mean_of_each_sensor(task, judged):
    truth = judged[0]
    constant = task.constant_prediction(truth)
    assert constant.shape == (40, len(LEVELS))
    assert task.evaluate(truth, constant)["mae"] == pytest.approx(
        np.mean([np.abs(truth[truth[:, 1] == code, 0]).mean() for code in (0, 1, 3)])
    )


def test_metrics_of_one_sensor_alone_are_its_own(task, judged):
    truth, predicted = (column[judged[0][:, 1] == 1] for column in judged)
    assert task.evaluate(truth, predicted)["mae"] == pytest.approx(np.abs(truth[:, 0] - predicted[:, 2]).mean())


def test_quantiles_rise(task):
    predicted = task.predict(torch.randn(50, len(LEVELS)))
    assert (np.diff(predicted, axis=1) >= 0).all()
    assert predicted.dtype == np.float32


def test_there_are_as_many_outputs_as_levels_around_the_median(task):
    assert task.num_outputs == len(LEVELS) == len(task.boosting_problems())
    assert LEVELS[len(LEVELS) // 2] == 0.5
    assert_close(np.array(LEVELS) + np.array(LEVELS)[::-1], 1.0)  # pairs of levels are symmetric


def test_the_task_comes_back_from_its_description(task):
    again = ReadingsAt.from_dict(json.loads(json.dumps(task.to_dict())))
    assert (again.sensors, again.labels, again.to_dict()) == (SENSORS, SENSORS, task.to_dict())


def test_metrics_it_does_not_have_are_refused(task):
    assert task.require_metric("auto") == "mae"
    with pytest.raises(ConfigError, match="auroc"):
        task.require_metric("auroc")


def test_labels_cannot_be_its_truth(task, make_table):
    with pytest.raises(TypeError, match="queries"):
        task.encode(make_table())


def test_the_description_counts_readings_and_sensors(task, judged):
    assert task.describe(judged[0]) == "40 readings of 3 sensors"
