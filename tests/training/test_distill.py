"""Soft targets: each sample is predicted by trees that have not seen it, and useless trees are not used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from class_tasks import classes, labelled_collator
from closeness import assert_close
from learnable import QUICK, easy_table

from raindrop.errors import ConfigError
from raindrop.estimators import Classifier, load
from raindrop.models.base import DataSpec, Output
from raindrop.models.registry import MODELS
from raindrop.models.trees import Trees
from raindrop.table.event_table import EventTable
from raindrop.tasks.classification import Classification
from raindrop.tasks.metrics import METRICS
from raindrop.training import distill
from raindrop.training.distill import FOLDS, folds, soft_targets
from raindrop.training.loop import task_loss

pytestmark = pytest.mark.slow


def distilled(table, weight=1.0):
    """The codes of a table's labels, and the soft targets that take their place."""
    data = labelled_collator(table)
    task = Classification("label", np.unique(table.labels))
    spec = DataSpec(table.sensors, task, data.scaler.static_width, (0.0, 10.0))
    return data.truth, soft_targets(data, spec, weight, 0)


@pytest.mark.parametrize("names", [(0, 1), ("a", "b", "c")])
def test_unseen_samples_are_predicted_well_where_readings_determine_the_label(names):
    labels, targets = distilled(easy_table(150, classes=names))
    assert targets.shape == (150, len(names))
    assert_close(targets.sum(1), 1.0)
    assert METRICS["auroc"](labels, targets) > 0.9


def test_no_sample_is_predicted_by_trees_that_saw_it():
    table = easy_table(150)
    labels, honest = distilled(table)
    wrong = np.flatnonzero(labels == 1)[:8]  # their labels are changed: trees that saw them would follow a little
    changed = table.labels.copy()
    changed[wrong] = 0
    parts = folds(labels, None, 0)
    assert [len(fold) for _, fold in parts] == [30] * FOLDS
    assert all(len(np.intersect1d(rest, fold)) == 0 and min(np.bincount(labels[fold])) >= 14 for rest, fold in parts)
    assert (honest[wrong, 1] > 0.5).mean() >= 0.75
    _, misled = distilled(table.with_labels(changed))
    assert (misled[wrong, 1] > 0.5).mean() >= 0.75


@pytest.mark.parametrize(("number", "rounds"), [(2, 400), (3, 133), (19, 40)])
def test_many_classes_share_the_trees_of_a_fold(monkeypatch, number, rounds):
    """A round grows a tree for each of several classes, so that with as many rounds 19 of them would take 19 times."""
    asked = []

    def fit(self, seen, held, seed):
        asked.append(self.config.rounds)

    monkeypatch.setattr(Trees, "fit_rows", fit)
    distilled(easy_table(number * 2 * FOLDS, classes=tuple(range(number))))
    assert asked == [rounds] * FOLDS


def test_the_weight_is_of_the_trees_and_the_rest_of_the_label():
    table = easy_table(150)
    labels, alone = distilled(table)
    _, mixed = distilled(table, weight=0.25)
    assert_close(mixed, 0.25 * alone + 0.75 * np.eye(2)[labels])


def test_trees_no_better_than_a_constant_and_too_few_samples_give_no_soft_targets():
    noise = np.random.default_rng(99).integers(0, 2, 150)
    assert distilled(easy_table(150).with_labels(noise))[1] is None
    rare = np.r_[np.ones(2 * FOLDS - 1, dtype=int), np.zeros(300 - 2 * FOLDS + 1, dtype=int)]
    assert distilled(easy_table(300).with_labels(rare))[1] is None


def test_the_loss_of_probabilities_is_the_mean_of_the_losses_of_the_labels():
    logits, members, task = torch.randn(5, 3), torch.randn(5, 4, 3), classes(3)
    soft = torch.rand(5, 3).softmax(-1)
    for output in (Output(logits, logits, logits.sum()), Output(logits, logits, logits.sum(), members=members)):
        each = [task_loss(task, output_of(output, at), torch.tensor([c])) for at in range(5) for c in range(3)]
        wanted = (torch.stack(each).view(5, 3) * soft).sum(1).mean()
        torch.testing.assert_close(task_loss(task, output, soft), wanted)


def output_of(output, at):
    members = None if output.members is None else output.members[at : at + 1]
    return Output(output.scores[at : at + 1], output.embedding, output.penalty, members=members)


def test_a_network_learns_from_soft_targets(monkeypatch):
    table = easy_table(60)
    upside_down = np.eye(2, dtype=np.float32)[1 - np.unique(table.labels, return_inverse=True)[1]]
    monkeypatch.setattr("raindrop.training.network.soft_targets", lambda *_: upside_down)
    config = QUICK | {"train.soft_targets": 1.0, "train.epochs": 10, "train.holdout": 0.0}
    clf = Classifier(preset="paper", config=config).fit(table)
    assert METRICS["auroc"](np.argmax(1 - upside_down, 1), clf.predict_proba(table)) < 0.1


def test_a_weight_beyond_one_is_refused():
    with pytest.raises(ConfigError, match=r"train.soft_targets must be at least 0 and at most 1"):
        Classifier(config={"train.soft_targets": 1.5}).fit(easy_table(20))


def test_small_tables_get_more_epochs_unless_epochs_are_set(monkeypatch):
    long = {"train": {"epochs": 2, "min_steps": 31}}
    monkeypatch.setitem(MODELS["raindrop"].presets, "long", long)
    config = {name: value for name, value in QUICK.items() if name != "train.epochs"} | {"train.holdout": 0.0}
    table = easy_table(48)  # three steps an epoch
    assert len(Classifier(preset="long", config=config).fit(table).history_) == 11
    assert len(Classifier(preset="long", config=config | {"train.epochs": 2}).fit(table).history_) == 2
    both = {"train.epochs": 2, "train.min_steps": 7}
    assert len(Classifier(preset="long", config=config | both).fit(table).history_) == 3


def test_weights_in_half_precision_make_a_smaller_file_with_the_same_probabilities(tmp_path):
    table = easy_table(48)
    sizes = {}
    for half in (False, True):
        clf = Classifier(preset="paper", config=QUICK | {"train.half_precision": half, "model.hidden": 2000}).fit(table)
        clf.save(tmp_path / str(half))
        sizes[half] = (tmp_path / str(half) / "model.safetensors").stat().st_size
        np.testing.assert_array_equal(load(tmp_path / str(half)).predict_proba(table), clf.predict_proba(table))
    assert sizes[True] < 0.6 * sizes[False]


def test_bars_show_the_trees_and_the_training(capsys):
    Classifier(preset="paper", config=QUICK | {"train.soft_targets": 0.5}, progress=True).fit(easy_table(48))
    shown = capsys.readouterr().out
    assert "growing trees for soft targets" in shown
    assert "epoch 3 loss" in shown


def test_a_group_is_never_split_between_growing_choosing_and_predicting():
    """With labels that only depend on the subject, trees that saw a subject would know its other samples."""
    rng = np.random.default_rng(0)
    subjects = np.repeat(np.arange(30), 8)
    labels = rng.integers(0, 2, 30)[subjects]
    level = rng.normal(0, 1, 30)[subjects]  # marks the subject, says nothing of the label
    table = EventTable.from_columns(
        sample=np.repeat(np.arange(240), 3),
        time=np.tile(np.arange(3.0), 240),
        sensor=["a"] * 720,
        value=np.repeat(level, 3) + rng.normal(0, 0.001, 720),
        samples={"sample": np.arange(240), "label": labels, "subject": subjects},
        label="label",
        group="subject",
    )
    strata = np.unique(labels, return_inverse=True)[1]
    for rest, fold in folds(strata, subjects, 0):
        assert not set(subjects[rest]) & set(subjects[fold])
    truth, targets = distilled(table)
    assert targets is None or METRICS["auroc"](truth, targets) < 0.8
    ungrouped = distilled(replace(table, roles=replace(table.roles, group=None)))
    assert METRICS["auroc"](*ungrouped) > 0.9  # what ignoring the groups would give


def test_a_kill_between_folds_loses_none_that_was_finished(monkeypatch, tmp_path):
    """Stopped in the third fold, the first two are not grown again, and the targets are those of an undisturbed run."""
    table, grown, fit = easy_table(150), [], Trees.fit_rows

    def dies_in_the_third(self, *given):
        grown.append(self)
        if len(grown) == 3:
            raise KeyboardInterrupt
        return fit(self, *given)

    monkeypatch.setattr(Trees, "fit_rows", dies_in_the_third)
    clf = Classifier(preset="paper", config=QUICK | {"train.soft_targets": 0.7})
    with pytest.raises(KeyboardInterrupt):
        clf.fit(table, run=tmp_path / "run")
    clf.fit(table, run=tmp_path / "run", resume=True)
    assert len(grown) == 3 + (FOLDS - 2)
    whole = Classifier(preset="paper", config=clf.config).fit(table)
    np.testing.assert_array_equal(clf.predict_proba(table), whole.predict_proba(table))


def test_kept_predictions_of_another_run_or_a_damaged_file_are_not_used(tmp_path):
    path, scores = tmp_path / "kept.safetensors", torch.ones(4, 2)
    distill._save(path, "mine", scores, 3)
    kept, finished = distill._load(path, "mine", (4, 2))
    assert finished == 3
    assert torch.equal(kept, scores)
    assert distill._load(path, "another", (4, 2))[1] == 0
    assert distill._load(path, "mine", (5, 2))[1] == 0
    path.write_bytes(path.read_bytes()[:20])
    assert distill._load(path, "mine", (4, 2))[1] == 0


def test_the_trees_of_a_fold_learn_from_a_bounded_number_of_samples(monkeypatch):
    seen = []
    fit = Trees.fit_rows

    def counted(self, rows, held, seed):
        seen.append((len(rows.x), len(held.x)))
        return fit(self, rows, held, seed)

    monkeypatch.setattr(Trees, "fit_rows", counted)
    monkeypatch.setattr(distill, "MAX_SAMPLES", 60)
    labels, targets = distilled(easy_table(150))
    assert seen == [(60, 15)] * FOLDS
    assert METRICS["auroc"](labels, targets) > 0.9
