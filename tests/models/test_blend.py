"""Blend: its parts against the models by themselves, the mixing against loops, saving, resuming, graphs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from class_tasks import classes
from closeness import assert_close, tolerance
from learnable import QUICK, easy_table

from raindrop.errors import ConfigError
from raindrop.estimators import Classifier, load
from raindrop.explain.information import information_graphs
from raindrop.explain.probe import probe_graph
from raindrop.report.card import card_of
from raindrop.report.tasks import view_of
from raindrop.tasks.metrics import log_loss
from raindrop.training.scoring import scores_of

NETWORK = {name.replace("model.", "model.raindrop."): value for name, value in QUICK.items()}
TREES = {
    "summaries": "nine",
    "rounds": 8,
    "learning_rate": 0.2,
    "min_samples": 3,
    "leaves": 4,
    "patience": 4,
    "l2": 0.0,
    "columns": 0.5,
}
SMALL = NETWORK | {f"model.trees.{name}": value for name, value in TREES.items()}


def noisy(samples: int, seed: int, classes: tuple[int, ...] = (0, 1)):
    """A table whose labels are partly wrong, so that nobody is sure of them."""
    table = easy_table(samples, classes=classes, seed=seed, prefix=f"t{seed}-")
    rng = np.random.default_rng(seed)
    drawn = rng.choice(classes, samples)
    return table.with_labels(np.where(rng.random(samples) < 0.3, drawn, table.labels))


@pytest.fixture(scope="module")
def parts():
    return noisy(90, 1), noisy(60, 2), noisy(40, 3)


@pytest.fixture(scope="module")
def fitted(parts):
    return Classifier("blend", config=SMALL, seed=5).fit(parts[0], validation=parts[1])


@pytest.fixture(scope="module")
def alone(parts):
    """The network and the trees of the blend, each fitted by itself."""
    network = Classifier("raindrop", config=QUICK, seed=5).fit(parts[0], validation=parts[1])
    trees = Classifier("trees", config={f"model.{name}": value for name, value in TREES.items()}, seed=5)
    return network, trees.fit(parts[0], validation=parts[1])


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("of_odds", [True, False])
def test_mixed_logits_are_the_average_of_log_odds_or_of_probabilities(share, of_odds):
    raindrop, trees = torch.randn(5, 3, dtype=torch.float64), 3 * torch.randn(5, 3, dtype=torch.float64)
    found = classes(3).mix(raindrop, trees, share, of_odds).softmax(1)
    for b in range(5):
        p, q = (
            [math.exp(x) / sum(map(math.exp, row)) for x in row] for row in (raindrop[b].tolist(), trees[b].tolist())
        )
        if of_odds:
            wanted = [x**share * y ** (1 - share) for x, y in zip(p, q, strict=True)]
        else:
            wanted = [share * x + (1 - share) * y for x, y in zip(p, q, strict=True)]
        assert_close(found[b], [x / sum(wanted) for x in wanted], dtype=np.float32)


@pytest.mark.slow
def test_its_parts_are_what_either_model_is_by_itself(fitted, alone, parts):
    data = fitted._collator(parts[2])
    for part, by_itself in zip((fitted.model_.raindrop, fitted.model_.trees), alone, strict=True):
        assert_close(fitted.task_.predict(scores_of(part, data)), by_itself.predict_proba(parts[2]))
    assert [r["validation"] for r in fitted.history_] == [r["validation"] for r in alone[0].history_]


def test_a_network_that_is_there_is_taken_and_not_trained_again(fitted, alone, parts, monkeypatch):
    monkeypatch.setattr("raindrop.estimators.base.train", lambda *_, **__: pytest.fail("trained again"))
    again = Classifier("blend", config=SMALL, seed=5).fit(parts[0], validation=parts[1], network=alone[0])
    np.testing.assert_array_equal(again.predict_proba(parts[2]), fitted.predict_proba(parts[2]))
    assert again.notes_ == fitted.notes_
    assert again.history_ == alone[0].history_


def test_a_network_of_other_data_settings_or_seed_is_refused(alone, parts):
    with pytest.raises(ConfigError, match=r"^network: was trained on other data"):
        Classifier("blend", config=SMALL, seed=6).fit(parts[0], validation=parts[1], network=alone[0])
    with pytest.raises(ConfigError, match=r"^network: was trained on other data"):
        Classifier("blend", config=SMALL, seed=5).fit(parts[2], validation=parts[1], network=alone[0])
    with pytest.raises(ConfigError, match=r"^Only a blend has a network"):
        Classifier("raindrop", config=QUICK, seed=5).fit(parts[0], validation=parts[1], network=alone[0])


def test_the_mixing_has_the_lowest_validation_loss_of_all_that_were_tried(fitted, alone, parts):
    validation = parts[1]
    label = (validation.labels == 1).astype(np.int64)
    p, q = (clf.predict_proba(validation).astype(np.float64) for clf in alone)
    losses = {}
    for step in range(41):
        share = step / 40
        odds = p**share * q ** (1 - share)
        losses["log-odds", share] = log_loss(label, odds / odds.sum(1, keepdims=True))
        losses["probabilities", share] = log_loss(label, share * p + (1 - share) * q)
    chosen = fitted.notes_["average_of"], fitted.notes_["share_of_raindrop"]
    assert losses[chosen] == pytest.approx(min(losses.values()), abs=tolerance())
    assert fitted.evaluate(validation)["log_loss"] == pytest.approx(losses[chosen], abs=tolerance())
    assert 0 < chosen[1] < 1  # both have something to say here


def test_it_tells_what_each_part_adds(fitted, alone, parts):
    told = fitted.notes_["validation"]
    for name, clf in zip(("raindrop", "trees", "blend"), (*alone, fitted), strict=True):
        assert told[name] == pytest.approx(clf.evaluate(parts[1]), abs=tolerance())
    assert told["blend"]["log_loss"] < min(told["raindrop"]["log_loss"], told["trees"]["log_loss"])


def test_without_validation_samples_both_count_alike(parts):
    clf = Classifier("blend", config=SMALL | {"train.holdout": 0.0, "train.epochs": 1}).fit(parts[0])
    assert clf.notes_ == {"share_of_raindrop": 0.5, "average_of": "log-odds"}
    p, q = (
        clf.task_.predict(scores_of(part, clf._collator(parts[2]))) for part in (clf.model_.raindrop, clf.model_.trees)
    )
    wanted = np.sqrt(p * q)
    assert_close(clf.predict_proba(parts[2]), wanted / wanted.sum(1, keepdims=True))


def test_a_saved_blend_gives_identical_probabilities_and_notes(fitted, parts, tmp_path):
    again = load(fitted.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.predict_proba(parts[2]), fitted.predict_proba(parts[2]))
    assert again.notes_ == fitted.notes_ == json.loads((tmp_path / "run" / "model.json").read_text())["notes"]
    assert again.resolved() == fitted.resolved()
    assert {file.name for file in (tmp_path / "run").iterdir()} == {"model.safetensors", "model.json", "split.parquet"}


@pytest.mark.slow
def test_three_classes_and_one_readings_sample_are_mixed_too(tmp_path):
    training, validation = noisy(90, 1, (0, 1, 2)), noisy(60, 2, (0, 1, 2))
    clf = Classifier("blend", config=SMALL | {"train.epochs": 1}).fit(training, validation=validation)
    together = clf.predict_proba(validation)
    assert together.shape == (60, 3)
    assert_close(clf.predict_proba(validation[7:8]), together[7:8])
    np.testing.assert_array_equal(load(clf.save(tmp_path / "run")).predict_proba(validation), together)


@pytest.mark.slow
def test_a_run_stopped_after_an_epoch_and_resumed_ends_the_same(parts, tmp_path, monkeypatch):
    class Stopped(Exception):
        pass

    def stop(*_):
        raise Stopped

    config = SMALL | {"train.ema_decay": 0.9, "train.soft_targets": 0.5}
    whole = Classifier("blend", config=config).fit(parts[0], validation=parts[1], run=tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("raindrop.training.loop._log", stop)  # right after the first epoch's checkpoint
        with pytest.raises(Stopped):
            Classifier("blend", config=config).fit(parts[0], validation=parts[1], run=tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()
    again = Classifier("blend", config=config).fit(parts[0], validation=parts[1], run=tmp_path / "run", resume=True)
    assert [r["epoch"] for r in again.history_] == [1, 2, 3]
    for name, tensor in whole.model_.state_dict().items():
        assert torch.equal(again.model_.state_dict()[name], tensor), name
    assert again.notes_ == whole.notes_


def test_graphs_embeddings_and_what_messages_tell_are_the_networks(fitted, alone, parts):
    looks = (
        lambda clf: clf.graphs(parts[2]).weights,
        lambda clf: clf.embed(parts[2]),
        lambda clf: information_graphs(clf, parts[2]).weights,
        lambda clf: probe_graph(clf, parts[2]).weights,
    )
    for look in looks:
        assert_close(look(fitted), look(alone[0]), dtype=np.float32)


def test_the_report_says_how_it_is_mixed(fitted):
    share = fitted.notes_["share_of_raindrop"]
    rows = dict(card_of(fitted, view_of(fitted)).model)
    assert rows["Mixed of"].startswith(f"{share:.1%} raindrop and {1 - share:.1%} trees")


def test_a_wrong_setting_of_a_part_is_named_with_its_place():
    for key, message in (
        ("model.trees.round", r"Unknown setting 'model\.trees\.round': did you mean 'model\.trees\.rounds'"),
        ("model.rounds", r"Unknown setting 'model\.rounds'"),
        ("model.trees", r"'model\.trees' is a group of settings"),
    ):
        with pytest.raises(ConfigError, match=message):
            Classifier("blend", config={key: 3}).resolved()


def test_a_setting_of_one_part_leaves_the_presets_others():
    held = Classifier("blend", config={"model.trees.rounds": 7, "model": {"raindrop": {"sensor_dim": 9}}}).resolved()
    tuned = {name: Classifier(name).resolved() for name in ("raindrop", "trees")}
    assert held["train"] == tuned["raindrop"]["train"]
    wanted = {f"raindrop.{name}": value for name, value in tuned["raindrop"]["model"].items()} | {
        "raindrop.sensor_dim": 9
    }
    wanted |= {f"trees.{name}": value for name, value in tuned["trees"]["model"].items()} | {
        "trees.rounds": 7,
        "trees.summaries": "more",
    }
    assert held["model"] == wanted
