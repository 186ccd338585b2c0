"""The trees that teach a network: each sample is judged unseen, and a judge who knows nothing is not asked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closeness import assert_close
from learnable import QUICK, easy_table

from raindrop.batch.collate import Collator
from raindrop.batch.scaling import Scaler
from raindrop.errors import ConfigError
from raindrop.estimators.classifier import Classifier
from raindrop.models.base import DataSpec, Output
from raindrop.models.registry import MODELS
from raindrop.models.trees import Trees
from raindrop.tasks.metrics import METRICS
from raindrop.training.distill import FOLDS, folds_of, goals_of
from raindrop.training.loop import classification_loss


def taught(table, weight=1.0):
    """The labels of a table and the goals that take their place."""
    scaler, classes = Scaler.fit(table), np.unique(table.labels)
    data = Collator(table, scaler, classes)
    spec = DataSpec(scaler.sensors, len(classes), scaler.static_width, (0.0, 10.0))
    return data.labels, goals_of(data, spec, weight, 0)


@pytest.mark.parametrize("classes", [(0, 1), ("a", "b", "c")])
def test_unseen_samples_are_judged_well_where_readings_tell_the_label(classes):
    labels, goals = taught(easy_table(150, classes=classes))
    assert goals.shape == (150, len(classes))
    assert_close(goals.sum(1), 1.0)
    assert METRICS["auroc"](labels, goals) > 0.9


def test_nobody_is_judged_by_trees_that_saw_them():
    table = easy_table(150)
    labels, honest = taught(table)
    wrong = np.flatnonzero(labels == 1)[:8]  # their labels are changed: trees that saw them would follow a little
    changed = table.labels.copy()
    changed[wrong] = 0
    fold = folds_of(labels, np.random.default_rng(0))
    assert sorted(np.bincount(fold)) == [30] * FOLDS
    assert all(np.bincount(fold[labels == label]).min() >= 14 for label in (0, 1))
    assert (honest[wrong, 1] > 0.5).mean() >= 0.75
    _, misled = taught(table.with_labels(changed))
    assert (misled[wrong, 1] > 0.5).mean() >= 0.75


@pytest.mark.parametrize(("classes", "rounds"), [(2, 400), (3, 133), (19, 40)])
def test_many_classes_share_the_trees_of_a_fold(monkeypatch, classes, rounds):
    """A round grows a tree for each of several classes, so that with as many rounds 19 of them would take 19 times."""
    asked = []

    def fit(self, seen, held, seed):
        asked.append(self.config.rounds)

    monkeypatch.setattr(Trees, "fit", fit)
    taught(easy_table(classes * 2 * FOLDS, classes=tuple(range(classes))))
    assert asked == [rounds] * FOLDS


def test_the_weight_is_of_the_trees_and_the_rest_of_the_label():
    table = easy_table(150)
    labels, alone = taught(table)
    _, mixed = taught(table, weight=0.25)
    assert_close(mixed, 0.25 * alone + 0.75 * np.eye(2)[labels])


def test_trees_that_know_nothing_and_too_few_samples_teach_nothing():
    noise = np.random.default_rng(99).integers(0, 2, 150)
    assert taught(easy_table(150).with_labels(noise))[1] is None
    rare = np.r_[np.ones(2 * FOLDS - 1, dtype=int), np.zeros(300 - 2 * FOLDS + 1, dtype=int)]
    assert taught(easy_table(300).with_labels(rare))[1] is None


def test_the_loss_of_probabilities_is_the_mean_of_the_losses_of_the_labels():
    logits, members = torch.randn(5, 3), torch.randn(5, 4, 3)
    goal = torch.rand(5, 3).softmax(-1)
    for output in (Output(logits, logits, logits.sum()), Output(logits, logits, logits.sum(), members=members)):
        each = [classification_loss(output_of(output, at), torch.tensor([c])) for at in range(5) for c in range(3)]
        wanted = (torch.stack(each).view(5, 3) * goal).sum(1).mean()
        assert_close(classification_loss(output, goal), wanted)


def output_of(output, at):
    members = None if output.members is None else output.members[at : at + 1]
    return Output(output.logits[at : at + 1], output.embedding, output.penalty, members=members)


def test_a_network_learns_from_the_goals(monkeypatch):
    table = easy_table(60)
    upside_down = np.eye(2, dtype=np.float32)[1 - np.unique(table.labels, return_inverse=True)[1]]
    monkeypatch.setattr("raindrop.estimators.classifier.goals_of", lambda *_: upside_down)
    config = QUICK | {"train.teacher": 1.0, "train.epochs": 10, "train.holdout": 0.0}
    clf = Classifier(preset="paper", config=config).fit(table)
    assert METRICS["auroc"](np.argmax(1 - upside_down, 1), clf.predict_proba(table)) < 0.1


def test_a_weight_beyond_one_is_refused():
    with pytest.raises(ConfigError, match=r"train.teacher is from 0 to 1"):
        Classifier(config={"train.teacher": 1.5}).fit(easy_table(20))


def test_small_tables_are_gone_through_more_often_unless_epochs_are_asked_for(monkeypatch):
    long = {"train": {"epochs": 2, "least_steps": 31}}
    monkeypatch.setitem(MODELS["raindrop"].presets, "long", long)
    config = {name: value for name, value in QUICK.items() if name != "train.epochs"} | {"train.holdout": 0.0}
    table = easy_table(48)  # three steps an epoch
    assert len(Classifier(preset="long", config=config).fit(table).history_) == 11
    assert len(Classifier(preset="long", config=config | {"train.epochs": 2}).fit(table).history_) == 2
    both = {"train.epochs": 2, "train.least_steps": 7}
    assert len(Classifier(preset="long", config=config | both).fit(table).history_) == 3


def test_weights_in_half_precision_make_a_smaller_file_with_the_same_probabilities(tmp_path):
    table = easy_table(48)
    sizes = {}
    for half in (False, True):
        clf = Classifier(preset="paper", config=QUICK | {"train.half": half, "model.hidden": 2000}).fit(table)
        clf.save(tmp_path / str(half))
        sizes[half] = (tmp_path / str(half) / "model.safetensors").stat().st_size
        np.testing.assert_array_equal(
            Classifier.load(tmp_path / str(half)).predict_proba(table), clf.predict_proba(table)
        )
    assert sizes[True] < 0.6 * sizes[False]


def test_bars_show_the_trees_and_the_training(capsys):
    Classifier(preset="paper", config=QUICK | {"train.teacher": 0.5}, progress=True).fit(easy_table(48))
    shown = capsys.readouterr().out
    assert "growing trees that teach" in shown
    assert "epoch 3 loss" in shown
