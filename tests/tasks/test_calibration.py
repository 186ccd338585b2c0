"""Calibrated probabilities: both ways against plain searches and loops, and within the classifier."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from closeness import NETWORK, assert_close, tolerance
from learnable import QUICK, easy_table
from sklearn.base import clone

from raindrop.errors import ConfigError
from raindrop.estimators import Classifier, load
from raindrop.estimators.classifier import calibration_halves
from raindrop.explain.occlusion import sensor_contributions
from raindrop.tasks.calibration import Calibrator
from raindrop.tasks.metrics import auroc, calibration_error, log_loss


def bold(classes: int, samples: int, seed: int, boldness: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Right answers, and probabilities that are the true ones to the power of `boldness`."""
    rng = np.random.default_rng(seed)
    true = rng.dirichlet(np.ones(classes), samples)
    truth = (rng.random((samples, 1)) > true.cumsum(1)).sum(1)
    said = true**boldness
    return truth, (said / said.sum(1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("boldness", [0.4, 3.0])
def test_the_temperature_undoes_boldness_and_caution(classes: int, boldness: float) -> None:
    truth, said = bold(classes, 20_000, 0, boldness)
    found = Calibrator.fit("temperature", truth, said)
    assert found.temperature == pytest.approx(boldness, rel=0.05)
    calibrated = found(said)
    assert calibrated.dtype == np.float32
    assert_close(calibrated.sum(1), 1.0)
    assert_close(calibrated[np.arange(len(said)), said.argmax(1)], calibrated.max(1))
    assert calibration_error(truth, calibrated) < 0.02 < calibration_error(truth, said)


def test_the_temperature_is_that_of_the_lowest_log_loss() -> None:
    truth, said = bold(3, 300, 1)

    def loss(temperature: float) -> float:
        total = 0.0
        for p, right in zip(said.astype(np.float64), truth, strict=True):
            power = [x ** (1 / temperature) for x in p]
            total -= np.log(power[right] / sum(power))
        return total / len(truth)

    found = Calibrator.fit("temperature", truth, said)
    assert log_loss(truth, found(said)) == pytest.approx(loss(found.temperature), abs=tolerance())
    assert loss(found.temperature) <= min(loss(t) for t in np.geomspace(0.05, 20, 100)) + 1e-6


def test_a_probability_of_0_or_1_stays_finite() -> None:
    truth, said = np.array([0, 1, 1, 0]), np.array([[1, 0], [0, 1], [1, 0], [0.5, 0.5]], dtype=np.float32)
    for method in ("temperature", "isotonic"):
        calibrated = Calibrator.fit(method, truth, said)(said)
        assert np.isfinite(calibrated).all()
        assert_close(calibrated.sum(1), 1.0)


def pooled(true: list[float]) -> list[float]:
    """Adjacent groups are joined while they fall: the isotonic curve by loops."""
    groups: list[list[float]] = []
    for x in true:
        groups.append([x])
        while len(groups) > 1 and np.mean(groups[-2]) > np.mean(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    return [float(np.mean(group)) for group in groups for _ in group]


def test_isotonic_probabilities_are_pooled_shares_that_never_reach_0_or_1() -> None:
    truth, said = bold(2, 80, 2)
    order = np.argsort(said[:, 1])
    wanted = np.clip(pooled((truth[order] == 1).astype(float).tolist()), 1 / 82, 1 - 1 / 82)
    found = Calibrator.fit("isotonic", truth, said)(said)[order]
    assert_close(found[:, 1], wanted)
    assert_close(found[:, 0], 1 - wanted)
    assert found[:, 1].min() == pytest.approx(1 / 82, abs=tolerance())


def test_isotonic_with_more_classes_is_one_against_the_rest_normalised() -> None:
    truth, said = bold(3, 90, 3)
    columns = []
    for code in range(3):
        order = np.argsort(said[:, code])
        curve = np.empty(90)
        curve[order] = np.clip(pooled((truth[order] == code).astype(float).tolist()), 1 / 92, 1 - 1 / 92)
        columns.append(curve)
    wanted = np.stack(columns, 1)
    found = Calibrator.fit("isotonic", truth, said)(said)
    assert_close(found, wanted / wanted.sum(1, keepdims=True))


@pytest.mark.parametrize("classes", [2, 3])
def test_isotonic_mends_a_bent_curve_on_samples_it_has_not_seen(classes: int) -> None:
    found = Calibrator.fit("isotonic", *bold(classes, 4000, 4))
    truth, said = bold(classes, 4000, 5)
    assert calibration_error(truth, found(said)) < 0.5 * calibration_error(truth, said)
    assert (np.diff(found(said)[np.argsort(said[:, 1]), 1]) >= -tolerance()).all() or classes > 2


def test_the_ranking_of_two_classes_stays() -> None:
    truth, said = bold(2, 500, 6)
    assert auroc(truth, Calibrator.fit("temperature", truth, said)(said)) == pytest.approx(auroc(truth, said), abs=1e-4)


@pytest.mark.parametrize("method", ["none", "temperature", "isotonic"])
def test_a_calibrator_survives_json(method: str) -> None:
    truth, said = bold(3, 200, 7)
    found = Calibrator.fit(method, truth, said)
    again = Calibrator.from_dict(json.loads(json.dumps(found.to_dict())))
    assert np.array_equal(again(said), found(said))
    assert np.array_equal(found(said), said) == (method == "none")


# ------------------------------------------------------------------ in the classifier


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(0)
    tables = [easy_table(samples, seed=samples, prefix=f"t{samples}-") for samples in (64, 60)]
    return [t.with_labels(np.where(rng.random(len(t)) < 0.3, 1 - t.labels, t.labels)) for t in tables]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_every_probability_that_leaves_the_classifier_is_calibrated(parts, method: str, tmp_path: Path) -> None:
    training, validation = parts
    plain = Classifier(config=QUICK).fit(training, validation=validation)
    clf = Classifier(config=QUICK, calibrate=method).fit(training, validation=validation, run=tmp_path / "run")
    codes, said = (validation.labels == 1).astype(np.int64), plain.predict_proba(validation)
    first, _ = calibration_halves(codes, validation, 0)  # the other half is left for prediction sets
    wanted = Calibrator.fit(method, codes[first], said[first])(said)
    assert not np.allclose(wanted, said, atol=1e-3)
    assert np.array_equal(clf.predict_proba(validation), wanted)
    assert np.array_equal(clf.predict_table(validation).probabilities, wanted)
    told = sensor_contributions(clf, validation).group_by("sample").agg(pl.col("probability").first())
    for sample, probability in told.iter_rows():
        assert probability == pytest.approx(
            wanted[validation.ids.index(sample), 1], abs=tolerance(roundings=4 * NETWORK)
        )
    assert clf.evaluate(validation)["log_loss"] == pytest.approx(log_loss(codes, wanted))
    again = load(tmp_path / "run")
    assert again.calibrate == method
    assert np.array_equal(again.predict_proba(validation), wanted)
    assert [r["validation"] for r in clf.history_] == [r["validation"] for r in plain.history_]


def test_calibration_is_a_parameter_like_any_other() -> None:
    for clf in (Classifier("trees", calibrate="isotonic"), Classifier(calibrate="isotonic")):
        assert clone(clf).get_params()["calibrate"] == "isotonic"


def test_an_unknown_calibration_suggests_the_near_one(parts) -> None:
    with pytest.raises(ConfigError, match="Unknown calibration 'isotonc': did you mean 'isotonic'"):
        Classifier(calibrate="isotonc").fit(parts[0])


def test_calibration_without_validation_samples_is_refused_before_training(parts, tmp_path: Path) -> None:
    clf = Classifier(config=QUICK | {"train.holdout": 0.0}, calibrate="temperature")
    with pytest.raises(ConfigError, match=r"calibrate='temperature' is fitted on validation samples.*train\.holdout"):
        clf.fit(parts[0], run=tmp_path / "run")
    assert not (tmp_path / "run").exists()
