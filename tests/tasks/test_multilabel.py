"""Multi-label classification: unknown labels are masked everywhere, each label is judged by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from learnable import QUICK, easy_table
from torch.nn.functional import binary_cross_entropy_with_logits

from raindrop import MultiLabelClassifier, load
from raindrop.errors import ConfigError, DataError
from raindrop.tasks import base
from raindrop.tasks.metrics import METRICS
from raindrop.tasks.multilabel import MultiLabel, yes_or_no

LABELS = ["died", "long stay"]


def outcomes(samples: int = 80, seed: int = 0, *, unknown: float = 0.0):
    """'died' depends on the readings' level, 'long stay' on the sample's age."""
    table = easy_table(samples, statics=("age",), seed=seed)
    rng = np.random.default_rng(seed)
    stay = (table.samples["age"] > 60).to_numpy().astype(float)
    died = table.labels.astype(float)
    died[rng.random(samples) < unknown] = np.nan
    columns = [pl.Series("died", died), pl.Series("long stay", ["yes" if x else "no" for x in stay])]
    return replace(table, samples=table.samples.with_columns(columns))


def test_the_loss_is_the_mean_over_known_labels():
    table = outcomes(30, unknown=0.5)
    task = MultiLabel.learn(table, LABELS)
    truth = task.encode(table)
    scores = torch.randn(30, 2)
    known = ~np.isnan(truth)
    each = binary_cross_entropy_with_logits(scores[known], torch.from_numpy(truth[known]).float())
    torch.testing.assert_close(task.loss(scores, torch.from_numpy(task.targets(truth))), each)
    changed = torch.where(torch.from_numpy(known), scores, 99.0)
    assert task.evaluate(truth, task.predict(scores)) == task.evaluate(truth, task.predict(changed))
    assert float(task.loss(scores, torch.full((30, 2), torch.nan))) == 0


def test_metrics_are_those_of_each_label_and_their_mean():
    table = outcomes(40)
    task = MultiLabel.learn(table, LABELS)
    truth, predicted = task.encode(table), task.predict(torch.randn(40, 2))
    values = task.evaluate(truth, predicted)
    both = [np.column_stack([1 - predicted[:, at], predicted[:, at]]) for at in range(2)]
    each = [METRICS["auroc"](truth[:, at].astype(int), both[at]) for at in range(2)]
    assert values["auroc/died"] == pytest.approx(each[0])
    assert values["auroc"] == pytest.approx(np.mean(each))
    assert task.title("auroc/died") == "AUROC (died)"
    assert task.title("auroc") == "AUROC, mean of 2 labels"
    drawn = task.bootstrap(truth, predicted, ["auroc"], draws=100)["auroc"]
    assert drawn.low < drawn.value < drawn.high


def test_only_the_metrics_that_are_asked_for_are_computed(monkeypatch):
    table = outcomes(40)
    task = MultiLabel.learn(table, LABELS)
    truth, predicted = task.encode(table), task.predict(torch.randn(40, 2))
    values = task.evaluate(truth, predicted)
    names = ["auprc", "auroc/long stay"]
    computed, compute = [], base._compute
    monkeypatch.setattr(base, "_compute", lambda metric, of: computed.append(of.name) or compute(metric, of))
    assert task.evaluate(truth, predicted, names) == {name: values[name] for name in names}
    assert computed == ["died", "long stay", "long stay"]


def test_members_and_mixtures_average_probabilities():
    task = MultiLabel(("a", "b"))
    members = torch.randn(5, 3, 2)
    torch.testing.assert_close(torch.sigmoid(task.combine(members)), torch.sigmoid(members).mean(1))
    one, other = parts = torch.randn(2, 5, 2)
    weights = torch.tensor([[0.3], [0.7]]).expand(2, 5)
    mixed = torch.sigmoid(task.mix(parts, weights, False))
    torch.testing.assert_close(mixed, 0.3 * torch.sigmoid(one) + 0.7 * torch.sigmoid(other))


def test_an_unknown_label_takes_the_teacher_s_prediction():
    truth = np.array([[1.0, np.nan], [0.0, 1.0]])
    soft = MultiLabel(("a", "b")).soft_targets(torch.zeros(2, 2), truth, 0.5)
    np.testing.assert_allclose(soft, [[0.75, 0.5], [0.25, 0.75]])


@pytest.mark.slow
@pytest.mark.parametrize("model", ["raindrop", "trees"])
@pytest.mark.parametrize("calibrate", ["none", "isotonic"])
def test_it_learns_saves_and_loads(model, calibrate, tmp_path):
    training, test = outcomes(160, unknown=0.3), outcomes(80, seed=1)
    config = {"model.rounds": 30} if model == "trees" else QUICK | {"train.epochs": 10}
    fitted = MultiLabelClassifier(model, labels=LABELS, preset="paper", config=config, calibrate=calibrate)
    fitted.fit(training, validation=outcomes(60, seed=2))
    assert fitted.evaluate(test)["auroc/died"] > 0.85
    assert fitted.predict_proba(test).shape == (80, 2)
    sets = fitted.predict_sets(test, 0.9)
    truth = fitted.truth(test).astype(int)
    covered = np.take_along_axis(sets, truth[..., None], axis=2).mean()
    assert covered > 0.8
    again = load(fitted.save(tmp_path / "run"))
    assert isinstance(again, MultiLabelClassifier)
    np.testing.assert_array_equal(again.predict_proba(test), fitted.predict_proba(test))
    np.testing.assert_array_equal(again.predict_sets(test, 0.9), sets)
    assert "probability_long stay" in fitted.predict_table(test, coverage=0.9).frame().columns


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([True, False, None], [1, 0, np.nan]),
        ([1, 0, None], [1, 0, np.nan]),
        ([1.0, 0.0, float("nan")], [1, 0, np.nan]),
        (["Yes", " no ", ""], [1, 0, np.nan]),
        (["true", "FALSE", None], [1, 0, np.nan]),
    ],
)
def test_answers_may_be_written_in_several_ways(column, expected):
    np.testing.assert_array_equal(yes_or_no(pl.Series("x", column)), expected)


def test_unusable_labels_are_one_sentence():
    table = outcomes(20)
    with pytest.raises(DataError, match=r"label 'age' holds '.*', which is neither yes nor no"):
        MultiLabelClassifier(labels=["died", "age"]).fit(table)
    with pytest.raises(ConfigError, match=r"Name the yes/no columns to predict"):
        MultiLabelClassifier().fit(table)
    same = replace(table, samples=table.samples.with_columns(died=pl.lit(1)))
    with pytest.raises(DataError, match=r"Label 'died' is 'yes' in all of them \(20 training samples\)"):
        MultiLabelClassifier(labels=LABELS).fit(same)
