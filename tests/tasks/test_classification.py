"""Classification: codes, the positive class, class weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from class_tasks import classes
from learnable import QUICK, easy_table

from raindrop.errors import ConfigError, DataError
from raindrop.estimators import Classifier, load
from raindrop.tasks.classification import Classification, encode_labels


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        (["yes", "no"], ["no", "yes"], [1, 0]),
        ([7, 3], [3, 7], [1, 0]),
        ([True, False], [False, True], [1, 0]),
        ([1, 0], [False, True], [1, 0]),
        (["10", "2"], [2, 10], [1, 0]),
        ([10, 2], ["10", "2"], [0, 1]),
        ([], ["no", "yes"], []),
    ],
)
def test_labels_become_positions_among_the_classes(labels, classes, codes):
    assert encode_labels(np.array(labels), np.array(classes)).tolist() == codes


@pytest.mark.parametrize(
    ("labels", "classes"),
    [(["maybe", "no"], ["no", "yes"]), ([9, 3], [3, 7]), (["x", "3"], [3, 7]), ([2, 0], [False, True])],
)
def test_a_label_never_seen_in_training_is_an_error_that_names_it(labels, classes):
    with pytest.raises(DataError) as caught:
        encode_labels(np.array(labels), np.array(classes))
    assert str(caught.value) == (
        f"1 of 2 samples have a label that was not there in training (first: '{labels[0]}').\n"
        f"The model knows the classes '{classes[0]}', '{classes[1]}'."
    )


# ---------------------------------------------------------------- the positive class


def test_the_positive_class_is_the_last_in_order_unless_chosen():
    table = easy_table(20, classes=("event", "none"))
    assert Classification.learn(table).positive == "none"
    task = Classification.learn(table, positive="event")
    assert task.positive == "event"
    assert task.classes.tolist() == ["none", "event"]
    assert task.encode(table).tolist() == (table.labels == "event").astype(int).tolist()
    assert task.title("auprc") == "AUPRC (event)"
    assert task.title("f1") == "macro F1"
    assert classes(3).positive is None
    assert classes(3).title("auprc") == "AUPRC"


@pytest.mark.slow
def test_metrics_are_about_the_chosen_class_and_a_saved_model_remembers_it(tmp_path):
    table = easy_table(60, classes=("event", "none"))
    rare = table[np.r_[0:20:2, 1:60:2]]  # 10 events, 30 others
    scores = {}
    for positive in ("event", "none"):
        clf = Classifier(config=QUICK, positive=positive, preset="paper").fit(rare, validation=rare)
        assert clf.positive_ == positive
        again = load(clf.save(tmp_path / positive))
        assert again.positive_ == positive
        np.testing.assert_array_equal(again.predict_proba(rare), clf.predict_proba(rare))
        constant = clf.task_.constant_prediction(clf.truth(rare))
        scores[positive] = clf.task_.evaluate(clf.truth(rare), constant)["auprc"]
    assert scores == pytest.approx({"event": 0.25, "none": 0.75})  # of chance: the base rate


@pytest.mark.parametrize(
    ("positive", "names", "message"),
    [
        ("evnt", ("event", "none"), "positive='evnt' is not a class: did you mean 'event'"),
        ("a", ("a", "b", "c"), "positive='a' chooses one of two classes, but there are 3: a, b, c"),
    ],
)
def test_an_impossible_positive_class_is_named(positive, names, message):
    with pytest.raises(ConfigError, match=message):
        Classifier(positive=positive).fit(easy_table(30, classes=names))


# ---------------------------------------------------------------- class weights


def test_class_weights_weigh_the_loss_of_each_class():
    task = Classification("label", np.arange(2), (1.0, 3.0))
    truth = np.array([0, 1, 1])
    weight = torch.from_numpy(task.sample_weights(truth))
    scores = torch.randn(3, 2)
    each = torch.stack([task.loss(scores[at : at + 1], torch.tensor([truth[at]])) for at in range(3)])
    expected = (each * torch.tensor([1.0, 3.0, 3.0])).sum() / 7
    torch.testing.assert_close(task.loss(scores, torch.from_numpy(truth), weight), expected)


def test_balanced_weights_make_rare_and_common_classes_count_the_same():
    table = easy_table(40)
    rare = table[np.r_[0:40:2, 1:11:2]]  # 20 of class 0, 5 of class 1
    task = Classification.learn(rare, class_weight="balanced")
    assert task.weights == pytest.approx((25 / 40, 25 / 10))
    assert Classification.learn(rare, class_weight={1: 4}).weights == (1.0, 4.0)
    assert Classification.learn(rare).weights is None


@pytest.mark.parametrize("model", ["raindrop", "trees"])
def test_a_heavier_class_is_predicted_more_often(model):
    rng = np.random.default_rng(0)
    table = easy_table(80).with_labels((rng.random(80) < 0.25).astype(int))  # nothing to learn but the base rate
    config = QUICK if model == "raindrop" else {"model.rounds": 3, "model.min_samples": 5}
    mean = {
        str(weight): Classifier(model, preset="paper", config={**config, "train.holdout": 0.0}, class_weight=weight)
        .fit(table)
        .predict_proba(table)[:, 1]
        .mean()
        for weight in (None, {1: 20.0})
    }
    assert mean["{1: 20.0}"] > mean["None"] + 0.1


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("even", "class_weight is 'balanced' or a weight for each class, not 'even'"),
        ({"2": 1.0}, "class_weight: '2' is not a class"),
        ({1: -1.0}, "the weight of '1' must be a number of at least 0"),
        ({1: 0}, "at least two classes need a weight above 0"),
    ],
)
def test_impossible_class_weights_are_named(weight, message):
    with pytest.raises(ConfigError, match=message):
        Classifier(class_weight=weight).fit(easy_table(20))


@pytest.mark.slow
def test_a_sample_weight_of_zero_is_a_sample_that_is_not_there():
    table = easy_table(60)
    wrong = table.labels.copy()
    wrong[::3] = 1 - wrong[::3]
    spoiled = table.with_labels(wrong)
    weight = np.ones(60)
    weight[::3] = 0
    config = QUICK | {"train.holdout": 0.0, "train.epochs": 8}
    plain, weighted = (
        Classifier(preset="paper", config=config).fit(spoiled, sample_weight=held).score(table)
        for held in (None, weight)
    )
    assert weighted > plain
    with pytest.raises(
        DataError, match="sample_weight: must be one finite number of at least 0 for each of 60 samples"
    ):
        Classifier(config=config).fit(spoiled, sample_weight=[1.0])
