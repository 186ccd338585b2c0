"""Sets of classes: the quantile against its definition, the promised coverage by repetition, and in the classifier."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from learnable import QUICK, easy_table

from raindrop.batch.collate import Collator
from raindrop.batch.scaling import Scaler
from raindrop.errors import ConfigError
from raindrop.estimators import Classifier, load
from raindrop.estimators.classifier import calibration_halves
from raindrop.tasks.conformal import FLOOR, ConformalIntervals, ConformalSets, GroupedIntervals, _threshold


def drawn(rng: np.random.Generator, samples: int, rare: float = 0.15) -> tuple[np.ndarray, np.ndarray]:
    """Labels, the second class rare, and probabilities that know something of them."""
    truth = (rng.random(samples) < rare).astype(np.int64)
    second = 1 / (1 + np.exp(-(rng.normal(0, 1, samples) + 2 * truth - 2)))
    return truth, np.stack([1 - second, second], axis=1).astype(np.float32)


@pytest.mark.parametrize("coverage", [0.07, 0.5, 0.8, 0.9, 0.99])
@pytest.mark.parametrize("n", [1, 9, 10, 19, 99, 100])
def test_the_threshold_lets_in_the_least_number_that_covers(n: int, coverage: float) -> None:
    """Of n + 1 samples that could be in any order, the new one is among the k highest with probability k / (n + 1)."""
    right = np.sort(np.random.default_rng(n).random(n)).astype(np.float32)
    k = next(k for k in range(n + 2) if k / (n + 1) >= coverage - 1e-12)
    found = _threshold(right, coverage)
    if k == n + 1:
        assert found == 0
    else:
        assert int((right >= np.float32(found)).sum()) == k


def test_a_class_is_in_the_set_iff_it_is_as_probable_as_the_threshold() -> None:
    truth, probability = drawn(np.random.default_rng(0), 40)
    held = ConformalSets.fit(truth, probability)
    new = drawn(np.random.default_rng(1), 30)[1]
    found, each = held.sets(new, 0.8), held.sets(new, 0.8, by_class=True)
    for code in range(2):
        for by_class, sets in ((False, found), (True, each)):
            right = [p[c] for p, c in zip(probability, truth, strict=True) if not by_class or c == code]
            k = math.ceil((len(right) + 1) * 0.8)
            least = sorted(right, reverse=True)[k - 1] if k <= len(right) else 0
            assert sets[:, code].tolist() == [bool(p[code] >= least) for p in new]
    assert not np.array_equal(found, each)


@pytest.mark.slow
def test_over_many_draws_the_right_class_is_covered_as_often_as_promised() -> None:
    """With 24 validation samples and coverage 0.8 exactly 20 / 25 of new samples, in expectation."""
    rng = np.random.default_rng(3)
    held, rare, size = [], [], []
    for _ in range(3000):
        conformal = ConformalSets.fit(*drawn(rng, 24))
        truth, probability = drawn(rng, 20)
        sets = conformal.sets(probability, 0.8)
        held.append(sets[np.arange(20), truth].mean())
        size.append(sets.sum(1).mean())
        rare += sets[truth == 1, 1].tolist()
    assert np.mean(held) == pytest.approx(0.8, abs=0.01)
    assert np.mean(rare) < 0.6  # the common class pays for all: hence by_class
    assert np.mean(size) < 1.2


def test_by_class_the_rare_one_is_covered_too() -> None:
    rng = np.random.default_rng(4)
    held: dict[int, list[bool]] = {0: [], 1: []}
    for _ in range(1500):
        conformal = ConformalSets.fit(*drawn(rng, 100))
        truth, probability = drawn(rng, 20)
        sets = conformal.sets(probability, 0.8, by_class=True)
        for code, of_class in held.items():
            of_class += sets[truth == code, code].tolist()
    assert np.mean(held[0]) == pytest.approx(0.8, abs=0.02)
    assert 0.79 < np.mean(held[1]) < 0.86  # about 15 samples: k / (n + 1) is a little above


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1.0, 90.0, float("nan")])
def test_a_coverage_that_cannot_be_is_refused(coverage: float) -> None:
    with pytest.raises(ConfigError, match="above 0 and below 1"):
        ConformalSets.fit(*drawn(np.random.default_rng(0), 9)).sets(np.zeros((1, 2)), coverage)


# ------------------------------------------------------------------ in the classifier


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(0)
    tables = [easy_table(n, seed=n, prefix=f"t{n}-", classes=("no", "yes")) for n in (64, 60, 50)]
    other = {"no": "yes", "yes": "no"}
    return [t.with_labels([other[x] if rng.random() < 0.25 else x for x in t.labels.tolist()]) for t in tables]


@pytest.fixture(scope="module")
def fitted(parts):
    return Classifier(config=QUICK, calibrate="temperature").fit(parts[0], validation=parts[1])


@pytest.mark.slow
def test_sets_come_from_the_calibrated_validation_probabilities_and_are_saved(parts, fitted, tmp_path: Path) -> None:
    codes = (parts[1].labels == "yes").astype(np.int64)
    _, half = calibration_halves(codes, parts[1], 0)  # the other half fitted the temperature
    probability = fitted.predict_proba(parts[1])
    wanted = ConformalSets.fit(codes[half], probability[half]).sets(fitted.predict_proba(parts[2]), 0.7)
    assert np.array_equal(fitted.predict_sets(parts[2], 0.7), wanted)
    assert fitted.predict_sets(parts[1][half], 0.9)[np.arange(len(half)), codes[half]].mean() >= 0.9  # its own samples
    again = load(fitted.save(tmp_path / "run"))
    assert np.array_equal(again.predict_sets(parts[2], 0.7), wanted)
    assert again.predict_sets(parts[2][:0], 0.7).shape == (0, 2)
    by_class = again.predict_sets(parts[2], 0.7, by_class=True)
    assert np.array_equal(by_class, fitted.predict_sets(parts[2], 0.7, by_class=True))


def test_the_table_says_which_classes_are_possible_and_where_to_abstain(parts, fitted, tmp_path: Path) -> None:
    sets = fitted.predict_sets(parts[2], 0.9)
    predicted = fitted.predict_table(parts[2], coverage=0.9)
    back = pl.read_csv(predicted.write(tmp_path / "p.csv"))
    assert back.columns == ["sample", "predicted", "probability_no", "probability_yes", "possible_no", "possible_yes",
                            "abstain"]  # fmt: skip
    assert back["possible_yes"].to_list() == sets[:, 1].tolist()
    assert back["abstain"].to_list() == [sum(row) != 1 for row in sets.tolist()]
    assert 0 < back["abstain"].sum() < 50
    assert fitted.predict_table(parts[2]).frame().columns == back.columns[:4]


@pytest.mark.slow
def test_without_validation_samples_there_are_no_sets(parts, tmp_path: Path) -> None:
    clf = Classifier(config=QUICK | {"train.holdout": 0.0, "train.epochs": 1}).fit(parts[0])
    for fitted in (clf, load(clf.save(tmp_path / "run"))):
        with pytest.raises(ConfigError, match="need validation samples, and this model was fitted without any"):
            fitted.predict_sets(parts[2])
    with pytest.raises(ConfigError, match=r"by_class needs a coverage"):
        clf.predict_table(parts[2], by_class=True)


@pytest.mark.slow
def test_asked_for_ninety_percent_sets_after_isotonic_calibration_cover_ninety_percent() -> None:
    """Fitted on the samples that calibrated the probabilities, they covered 0.77 with 50 validation samples."""
    rng = np.random.default_rng(0)
    covered = []
    source = Collator(table := easy_table(50), Scaler.fit(table))
    for _ in range(400):
        truth, probability = drawn(rng, 50, rare=0.4)
        source.table = table.with_labels(truth)
        clf = Classifier(calibrate="isotonic")
        clf._calibrate(truth, probability, source)
        new_truth, new = drawn(rng, 50, rare=0.4)
        sets = clf._sets(clf.calibrator_(new), 0.9, by_class=False)
        covered.append(sets[np.arange(50), new_truth].mean())
    assert np.mean(covered) > 0.89


@pytest.mark.parametrize("levels", [(0.5,), (0.05, 0.25, 0.5, 0.75, 0.95)])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.95])
def test_intervals_cover_quantities_as_often_as_promised_however_bad_the_quantiles(levels, coverage) -> None:
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(300):
        x, y = rng.normal(0, 1, (2, 60, 2))
        truth = x + y * np.exp(x)  # skewed, the spread depends on x
        truth[rng.random((60, 2)) < 0.1] = np.nan
        predicted = np.sort(x[..., None] + np.array(levels) - 0.2, axis=-1)  # far too narrow, and off
        conformal = ConformalIntervals.fit(truth[:40], predicted[:40])
        intervals = conformal.intervals(predicted[40:], coverage, levels)
        known = ~np.isnan(truth[40:])
        inside = (intervals[..., 0] <= truth[40:]) & (truth[40:] <= intervals[..., 1])
        covered.append(inside[known].mean())
    assert coverage - 0.015 < np.mean(covered) < coverage + 0.05


def test_too_few_validation_samples_give_an_infinite_interval_not_a_wrong_one() -> None:
    truth, predicted = np.arange(5.0)[:, None], np.zeros((5, 1, 1))
    conformal = ConformalIntervals.fit(truth, predicted)
    assert np.isfinite(conformal.intervals(predicted, 0.8, (0.5,))).all()
    assert np.isinf(conformal.intervals(predicted, 0.9, (0.5,))).all()


@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_every_group_is_covered_as_often_as_asked(coverage) -> None:
    """Errors grow with the number: intervals of one width cover the small numbers always and the large ones rarely."""
    rng = np.random.default_rng(0)
    covered, at_once = [], []
    for _ in range(30):
        number = np.exp(rng.uniform(0, np.log(100), 4000))
        truth, predicted = rng.normal(size=4000) * number, np.zeros((4000, 1))
        fitted = GroupedIntervals.fit(truth[:2000], predicted[:2000], number[:2000], (2.0, 10.0, 50.0), 200)
        assert fitted.edges.tolist() == [2.0, 10.0, 50.0]
        one = ConformalIntervals.fit(truth[:2000, None], predicted[:2000, None])
        low, high = fitted.intervals(predicted[2000:], number[2000:], coverage, (0.5,)).T
        wide = one.intervals(predicted[2000:, None], coverage, (0.5,))[:, 0]
        group = np.searchsorted(fitted.edges, number[2000:])
        new = truth[2000:]
        covered.append([((low <= new) & (new <= high))[group == g].mean() for g in range(4)])
        at_once.append([((wide[:, 0] <= new) & (new <= wide[:, 1]))[group == g].mean() for g in range(4)])
    assert np.abs(np.mean(covered, axis=0) - coverage).max() < 0.015
    assert np.abs(np.mean(at_once, axis=0) - coverage).max() > 0.04


def test_cases_of_very_different_widths_are_all_covered_although_the_quantiles_are_too_wide() -> None:
    """Half of the cases are a hundred times as certain; shrinking all intervals by one amount would leave them none."""
    rng = np.random.default_rng(1)
    spread = np.where(np.arange(4000) % 2, 1.0, 0.01)
    truth, number = rng.normal(size=4000) * spread, np.zeros(4000)
    predicted = np.array([-3.0, -2.0, 0.0, 2.0, 3.0]) * spread[:, None]  # of levels 5, 25, 50, 75 and 95 %
    fitted = GroupedIntervals.fit(truth[:1000], predicted[:1000], number[:1000], (), 100)
    for coverage in (0.5, 0.9):
        low, high = fitted.intervals(predicted[1000:], number[1000:], coverage, (0.05, 0.25, 0.5, 0.75, 0.95)).T
        inside = (low <= truth[1000:]) & (truth[1000:] <= high)
        for each in (0.01, 1.0):
            assert abs(inside[spread[1000:] == each].mean() - coverage) < 0.05
        assert (low < high).all()


def test_intervals_of_a_pair_are_its_middle_and_the_asked_rank_of_what_was_needed() -> None:
    truth = np.array([1.0, -2.0, 0.5, 8.0])
    predicted = np.array([[-1.0, 0.0, 3.0], [-1.0, 0.0, 3.0], [0.5, 0.5, 0.5], [0.0, 0.0, 4.0]])
    fitted = GroupedIntervals.fit(truth, predicted, np.zeros(4), (), 1)
    half = [2.0, 2.0, FLOOR * 2.0, 2.0]  # the median half width is 2
    ratio = sorted(abs(t - m) / h for t, m, h in zip(truth, (1.0, 1.0, 0.5, 2.0), half, strict=True))
    found = fitted.intervals(np.array([[4.0, 5.0, 10.0]]), np.zeros(1), 0.6, (0.2, 0.5, 0.8))
    np.testing.assert_allclose(found, [[7.0 - 3.0 * ratio[2], 7.0 + 3.0 * ratio[2]]], rtol=1e-6)


def test_groups_with_too_few_cases_are_joined_with_their_neighbours() -> None:
    number = np.array([1.0] * 50 + [3.0] * 5 + [8.0] * 50 + [np.inf] * 5)
    truth, predicted = np.arange(110.0), np.zeros((110, 1))
    fitted = GroupedIntervals.fit(truth, predicted, number, (2.0, 5.0, 10.0), 20)
    assert fitted.edges.tolist() == [2.0]
    assert fitted.count.tolist() == [50, 60]
    assert len(GroupedIntervals.fit(truth, predicted, number, (2.0,), 100).edges) == 0
    assert np.isfinite(fitted.intervals(np.zeros((2, 1)), np.array([0.0, np.inf]), 0.8, (0.5,))).all()
