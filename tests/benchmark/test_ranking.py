"""Sensors ranked by how well each alone predicts the label."""

from __future__ import annotations

import numpy as np
import pytest
from learnable import easy_table

from raindrop.benchmark.ranking import make_folds, rank_sensors
from raindrop.errors import DataError
from raindrop.table.event_table import EventTable

pytestmark = pytest.mark.slow


def table_of_signals(classes: int = 2, samples: int = 240, seed: int = 0) -> EventTable:
    """Sensors with a strong, a weak and no signal, one constant, one silent (never read), one sparse (rarely read)."""
    rng = np.random.default_rng(seed)
    names = ("noise", "constant", "weak", "silent", "strong", "sparse")
    rows = []
    for sample in range(samples):
        label = sample % classes
        for time in range(4):
            rows.append((f"s{sample}", time, "strong", rng.normal(3 * label, 1)))
            rows.append((f"s{sample}", time, "weak", rng.normal(0.5 * label, 1)))
            rows.append((f"s{sample}", time, "noise", rng.normal(0, 1)))
            rows.append((f"s{sample}", time, "constant", 7.0))
        if sample // classes % 10 == 0:
            rows.append((f"s{sample}", 0, "sparse", rng.normal(0, 1)))
    about = {"sample": [f"s{at}" for at in range(samples)], "label": [at % classes for at in range(samples)]}
    return EventTable.from_columns(*zip(*rows, strict=True), about, label="label", sensors=names)


@pytest.mark.parametrize("classes", [2, 4])
def test_sensors_are_ordered_by_how_well_they_predict_the_label(classes):
    ranking = rank_sensors(table_of_signals(classes))
    scores = dict(ranking)
    assert [sensor for sensor, _ in ranking[:2]] == ["strong", "weak"]
    assert scores["strong"] > 0.9
    assert scores["constant"] == scores["silent"] == 0.5
    assert abs(scores["noise"] - 0.5) < 0.12
    assert [score for _, score in ranking] == sorted(scores.values(), reverse=True)


def test_equal_sensors_keep_the_order_of_the_table():
    names = [sensor for sensor, score in rank_sensors(table_of_signals()) if score == 0.5]
    assert names == ["constant", "silent"]


def test_a_sensor_that_is_rarely_observed_is_not_ranked_backwards():
    """Out-of-bag scores are: for a rare class and a sensor in every tenth sample they give about 0.34, not 0.5."""
    scores = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        observed = [f"s{at}" for at in np.flatnonzero(rng.random(400) < 0.1)]
        about = {"sample": [f"s{at}" for at in range(400)], "label": [int(at % 20 == 0) for at in range(400)]}
        columns = observed, np.zeros(len(observed)), ["sparse"] * len(observed), rng.normal(size=len(observed))
        scores.append(rank_sensors(EventTable.from_columns(*columns, about, label="label"))[0][1])
    assert 0.44 < np.mean(scores) < 0.56


def test_a_sensor_that_is_missing_in_one_class_predicts_the_label():
    table = table_of_signals()
    events = table.events()
    label = dict(zip(table.ids, table.labels.tolist(), strict=True))
    positive = np.array([label[name] for name in events["sample"]]) == 1
    observed = table.where(~(positive & (events["sensor"] == "noise").to_numpy()))
    assert dict(rank_sensors(observed))["noise"] > 0.99


def test_the_ranking_depends_on_the_seed_and_on_no_other_samples():
    table = table_of_signals()
    assert rank_sensors(table, seed=1) == rank_sensors(table, seed=1) != rank_sensors(table, seed=2)
    assert rank_sensors(table[np.arange(120)]) == rank_sensors(table_of_signals(samples=240)[np.arange(120)])


def test_labels_may_be_words():
    table = easy_table(48, classes=("apart", "coupled"))
    assert {sensor for sensor, _ in rank_sensors(table)[:2]} == {"heart rate", "pressure"}


# ---------------------------------------------------------------- groups


def grouped_table(*, with_group: bool) -> EventTable:
    """40 subjects with 6 samples each: a random label per subject, and a sensor that identifies the subject."""
    rng = np.random.default_rng(0)
    subject = np.repeat(np.arange(40), 6)
    ids = [f"s{at}" for at in range(240)]
    about = {"sample": ids, "label": rng.integers(0, 2, 40)[subject].tolist(), "subject": [f"p{s}" for s in subject]}
    columns = ids, np.zeros(240), ["identity"] * 240, rng.normal(size=40)[subject]
    return EventTable.from_columns(*columns, about, label="label", **({"group": "subject"} if with_group else {}))


def test_a_sensor_that_only_identifies_the_subject_is_not_informative():
    assert rank_sensors(grouped_table(with_group=False))[0][1] > 0.95, "without groups it gives the label away"
    assert rank_sensors(grouped_table(with_group=True))[0][1] < 0.65


def test_samples_of_one_group_are_never_on_both_sides_of_a_fold():
    rng = np.random.default_rng(1)
    groups, labels = rng.integers(0, 30, 300), rng.integers(0, 3, 300)
    folds = make_folds(labels, groups, seed=0)
    assert len(folds) == 3
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(300))
    for train, test in folds:
        assert not set(groups[train]) & set(groups[test])
        assert sorted([*train, *test]) == list(range(300))


def test_few_groups_give_fewer_folds_and_one_group_is_refused():
    labels = np.array([0, 1, 0, 1, 0, 1])
    folds = make_folds(labels, np.array([5, 5, 5, 7, 7, 7]), seed=0)
    assert sorted(tuple(test) for _, test in folds) == [(0, 1, 2), (3, 4, 5)]
    with pytest.raises(DataError, match="6 samples in 1 groups are too few to rank sensors"):
        make_folds(labels, np.zeros(6, dtype=np.int64), seed=0)


def test_a_sample_without_a_group_is_a_group_of_its_own():
    table = grouped_table(with_group=True)
    subjects = [None if at % 6 == 5 else f"p{at // 6}" for at in range(240)]
    about = table.samples.drop("subject").with_columns(subject=np.array(subjects, dtype=object))
    mixed = EventTable.from_frames(table.events(), about, label="label", group="subject")
    assert 0.5 < rank_sensors(mixed)[0][1] < 0.95, "only samples without a group give labels away"


def test_a_class_with_one_sample_does_not_stop_the_ranking():
    labels = np.array([0] * 20 + [1] * 20 + [2])
    assert len(make_folds(labels, None, seed=0)) == 3
