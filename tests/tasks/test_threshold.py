"""Decision thresholds: chosen on validation samples, kept with the model, used by every decision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learnable import QUICK, easy_table

from raindrop import Classifier, ConfigError, CostRatio, Sensitivity, load
from raindrop.tasks.threshold import Threshold

TRUTH = np.array([0, 0, 0, 0, 1, 1, 1, 1])
SCORE = np.array([0.1, 0.2, 0.3, 0.6, 0.25, 0.5, 0.7, 0.9])


def both(score: np.ndarray) -> np.ndarray:
    return np.column_stack([1 - score, score])


def cost(threshold: float, ratio: float, truth: np.ndarray = TRUTH, score: np.ndarray = SCORE) -> float:
    flagged = score >= threshold
    return ratio * int((~flagged & (truth == 1)).sum()) + int((flagged & (truth == 0)).sum())


@pytest.mark.parametrize(
    ("wanted", "found", "alarms"), [(0.25, 1, 0), (0.5, 2, 0), (0.75, 3, 1), (0.9, 4, 2), (1.0, 4, 2)]
)
def test_a_sensitivity_is_reached_with_as_few_alarms_as_possible(wanted: float, found: int, alarms: int) -> None:
    chosen = Threshold.fit(Sensitivity(wanted), TRUTH, both(SCORE))
    assert (chosen.found, chosen.alarms) == (found, alarms)
    assert (chosen.positives, chosen.negatives) == (4, 4)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=2, max_size=40),
    st.sampled_from([0.05, 0.3, 0.5, 0.8, 0.9, 1.0]),
)
def test_any_samples_reach_the_sensitivity_and_the_next_higher_score_does_not(
    samples: list[tuple[bool, int]], wanted: float
) -> None:
    truth = np.array([positive for positive, _ in samples], dtype=np.int64)
    score = np.array([at / 20 for _, at in samples])
    if truth.min() == truth.max():
        return
    chosen = Threshold.fit(Sensitivity(wanted), truth, both(score))
    assert chosen.found >= wanted * chosen.positives - 1e-9
    higher = score[score >= chosen.value].min() + 1e-9  # leaves out the lowest flagged score
    assert ((score >= higher) & (truth == 1)).sum() < wanted * chosen.positives - 1e-9 + 1e-12


@pytest.mark.parametrize("ratio", [0.2, 1.0, 3.0, 50.0])
def test_a_cost_ratio_has_the_lowest_cost_of_all_thresholds(ratio: float) -> None:
    chosen = Threshold.fit(CostRatio(ratio), TRUTH, both(SCORE))
    tried = [cost(threshold, ratio) for threshold in np.linspace(0, 1.001, 500)]
    assert cost(chosen.value, ratio) == min(tried)


def test_a_costlier_miss_lowers_the_threshold() -> None:
    values = [Threshold.fit(CostRatio(ratio), TRUTH, both(SCORE)).value for ratio in (0.1, 1.0, 10.0)]
    assert values[0] > values[1] > values[2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sensitivity(0.0), "A sensitivity is a share above 0 and up to 1, such as 0.9, not 0.0"),
        (lambda: Sensitivity(90), "not 90"),
        (lambda: CostRatio(-1), "A cost ratio is a number above 0"),
        (lambda: Classifier("trees", threshold=1.5).resolved(), "threshold=1.5: a threshold is a probability"),
        (lambda: Classifier("trees", threshold="high").resolved(), "give rd.Sensitivity"),
        (lambda: Threshold.fit(Sensitivity(0.9), TRUTH[:4], both(SCORE[:4])), "samples of both classes"),
    ],
)
def test_an_impossible_rule_is_an_error(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


TREES = {"model.rounds": 20, "model.min_samples": 2}


@pytest.fixture(scope="module")
def noisy():
    """A table whose classes overlap, so that the threshold matters."""
    table = easy_table(160, classes=("event", "quiet"), seed=3)
    labels = np.array(table.labels)
    flip = np.random.default_rng(0).random(len(labels)) < 0.25
    labels[flip] = np.where(labels[flip] == "event", "quiet", "event")
    return table.with_labels(labels).split((0.5, 0.25, 0.25), seed=0)


@pytest.mark.slow
def test_predictions_decisions_and_metrics_follow_the_threshold_also_after_loading(noisy, tmp_path) -> None:
    train, val, test = noisy
    plain = Classifier("trees", config=TREES, positive="event").fit(train, validation=val)
    clf = Classifier("trees", config=TREES, positive="event", threshold=Sensitivity(0.95), calibrate="temperature")
    clf.fit(train, validation=val, run=tmp_path / "run")
    chosen = clf.task_.threshold
    assert chosen is not None
    assert chosen.value < 0.5
    assert clf.evaluate(val)["recall/event"] == pytest.approx(chosen.found / chosen.positives)
    assert clf.evaluate(val)["recall/event"] >= 0.95 > plain.evaluate(val)["recall/event"]
    loaded = load(tmp_path / "run")
    assert loaded.threshold == Sensitivity(0.95)
    assert loaded.task_.threshold == chosen
    for each in (clf, loaded):
        flagged = each.predict_proba(test)[:, 1] >= chosen.value
        assert (np.where(flagged, "event", "quiet") == each.predict(test)).all()
        assert each.predict_table(test).frame()["predicted"].to_list() == each.predict(test).tolist()
        metrics = each.evaluate(test)
        truth = np.array(test.labels)
        assert metrics["accuracy"] == pytest.approx((each.predict(test) == truth).mean()) == each.score(test)
        assert metrics["recall/event"] == pytest.approx((each.predict(test) == "event")[truth == "event"].mean())
        assert metrics["recall"] == pytest.approx((metrics["recall/event"] + metrics["recall/quiet"]) / 2)
    assert not (plain.predict(test) == clf.predict(test)).all()


def test_a_threshold_can_be_chosen_anew_on_other_samples(noisy) -> None:
    train, val, test = noisy
    clf = Classifier("trees", config=TREES, positive="event").fit(train, validation=val)
    chosen = clf.choose_threshold(test, CostRatio(20))
    assert chosen is not None
    assert chosen.positives + chosen.negatives == len(test)
    assert (clf.predict(test) == "event").sum() == chosen.found + chosen.alarms
    assert clf.choose_threshold(test, None) is None
    assert (clf.predict(test) == clf.classes_[clf.predict_proba(test).argmax(1)]).all()


def test_a_fixed_threshold_needs_no_validation(noisy) -> None:
    train, _, test = noisy
    clf = Classifier("trees", config=TREES | {"train.holdout": 0.0}, positive="event", threshold=0.2).fit(train)
    assert (clf.predict(test) == "event").tolist() == (clf.predict_proba(test)[:, 1] >= 0.2).tolist()


def test_a_threshold_needs_two_classes_and_validation_samples(tmp_path) -> None:
    three = easy_table(60, classes=("a", "b", "c"))
    with pytest.raises(ConfigError, match="a threshold decides between two classes, and 'label' has 3"):
        Classifier("trees", threshold=Sensitivity(0.9)).fit(three)
    with pytest.raises(ConfigError, match="chosen on validation samples, and there are none"):
        Classifier("trees", config={"train.holdout": 0.0}, threshold=Sensitivity(0.9)).fit(easy_table(60))


@pytest.mark.slow
def test_a_network_keeps_its_threshold_when_it_is_resumed(tmp_path) -> None:
    table = easy_table(60)
    clf = Classifier(preset="paper", config=QUICK, threshold=Sensitivity(0.9))
    first = clf.fit(table, run=tmp_path / "run").task_.threshold
    assert clf.fit(table, run=tmp_path / "run", resume=True).task_.threshold == first


def test_log_probabilities_are_the_logarithm_of_probabilities(noisy) -> None:
    train, val, test = noisy
    clf = Classifier("trees", config=TREES).fit(train, validation=val)
    assert np.allclose(np.exp(clf.predict_log_proba(test)), clf.predict_proba(test))
