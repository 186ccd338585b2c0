"""Blend: its parts against the models by themselves, the mixing against loops, saving, resuming, graphs."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from itertools import product

import numpy as np
import polars as pl
import pytest
import torch
from class_tasks import classes
from closeness import assert_close, tolerance
from learnable import QUICK, easy_table

from raindrop.errors import ConfigError
from raindrop.estimators import Classifier, load
from raindrop.explain.information import information_graphs
from raindrop.explain.probe import probe_graph
from raindrop.models.blend import PARTS, Scored
from raindrop.models.registry import RANDOM_TREES_TUNED
from raindrop.report.card import card_of
from raindrop.report.tasks import view_of
from raindrop.table.event_table import EventTable
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
RANDOM_TREES = {name: value for name, value in TREES.items() if name != "summaries"} | {"members": 2, "rows": 0.8}
SMALL = NETWORK | {
    f"model.{part}.{name}": value
    for part, settings in (("trees", TREES), ("random_trees", RANDOM_TREES))
    for name, value in settings.items()
}


def noisy(samples: int, seed: int, classes: tuple[int, ...] = (0, 1)):
    """A table whose labels are partly wrong, so that nobody is sure of them."""
    table = easy_table(samples, classes=classes, seed=seed, prefix=f"t{seed}-")
    rng = np.random.default_rng(seed)
    drawn = rng.choice(classes, samples)
    return table.with_labels(np.where(rng.random(samples) < 0.3, drawn, table.labels))


def redundant(samples: int, seed: int):
    """The label is the sign of the mean of sensor a, and sensor b has the same values a little noisier."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, samples)
    ids = [f"s{seed}-{at}" for at in range(samples)]
    value = (2 * label - 1)[:, None] + rng.standard_normal((samples, 4))
    frames = [
        pl.DataFrame(
            {
                "sample": np.repeat(ids, 4),
                "time": np.tile(np.arange(4.0), samples),
                "sensor": name,
                "value": (value + noise * rng.standard_normal(value.shape)).ravel(),
            }
        )
        for name, noise in (("a", 0.0), ("b", 0.7))
    ]
    return EventTable.from_frames(pl.concat(frames), pl.DataFrame({"sample": ids, "label": label}), label="label")


@pytest.fixture(scope="module")
def parts():
    return noisy(90, 1), noisy(60, 2), noisy(40, 3)


@pytest.fixture(scope="module")
def fitted(parts):
    return Classifier("blend", config=SMALL, seed=5).fit(parts[0], validation=parts[1])


@pytest.fixture(scope="module")
def alone(parts):
    """The network and the four kinds of trees of the blend, each fitted by itself."""
    trees = {f"model.{name}": value for name, value in TREES.items()}
    random = trees | {f"model.{name}": value for name, value in RANDOM_TREES.items()} | {"model.engine": "random"}
    hidden = {"model.hide_sensors": 0.7}
    models = [("raindrop", QUICK), *(("trees", each) for each in (trees, random, trees | hidden, random | hidden))]
    return [Classifier(name, config=c, seed=5).fit(parts[0], validation=parts[1]) for name, c in models]


@pytest.mark.parametrize("of_odds", [True, False])
def test_mixed_logits_are_the_average_of_log_odds_or_of_probabilities(of_odds):
    parts = torch.randn(3, 5, 4, dtype=torch.float64) * torch.tensor([1.0, 3.0, 2.0])[:, None, None]
    weights = torch.rand(3, 5, dtype=torch.float64).softmax(0)
    weights[:, 0] = torch.tensor([0.0, 1.0, 0.0])
    found = classes(4).mix(parts, weights, of_odds).softmax(1)
    for b in range(5):
        probabilities = [[math.exp(x) / sum(map(math.exp, row)) for x in row] for row in parts[:, b].tolist()]
        share = weights[:, b].tolist()
        if of_odds:
            wanted = [math.prod(p[c] ** w for p, w in zip(probabilities, share, strict=True)) for c in range(4)]
        else:
            wanted = [sum(w * p[c] for p, w in zip(probabilities, share, strict=True)) for c in range(4)]
        assert_close(found[b], [x / sum(wanted) for x in wanted], dtype=np.float32)


@pytest.mark.slow
def test_its_parts_are_what_each_model_is_by_itself(fitted, alone, parts):
    data = fitted._collator(parts[2])
    blend = fitted.model_
    for part, by_itself in zip((getattr(blend, name) for name in PARTS), alone, strict=True):
        assert_close(fitted.task_.predict(scores_of(part, data)), by_itself.predict_proba(parts[2]))
    assert [r["validation"] for r in fitted.history_] == [r["validation"] for r in alone[0].history_]


def test_a_network_that_is_there_is_taken_and_not_trained_again(fitted, alone, parts, monkeypatch):
    monkeypatch.setattr("raindrop.estimators.base.fit_network", lambda *_, **__: pytest.fail("trained again"))
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


def test_with_all_sensors_the_mixture_has_the_lowest_validation_loss_of_all_that_were_tried(fitted, alone, parts):
    label = (parts[1].labels == 1).astype(np.int64)
    p = [clf.predict_proba(parts[1]).astype(np.float64) for clf in alone]
    losses = {}
    for counts in product(range(11), repeat=4):
        if sum(counts) > 10:
            continue
        w = tuple(count / 10 for count in (*counts, 10 - sum(counts)))
        odds = math.prod(part**share for part, share in zip(p, w, strict=True))
        losses["log-odds", w] = log_loss(label, odds / odds.sum(1, keepdims=True))
        losses["probabilities", w] = log_loss(label, sum(share * part for part, share in zip(p, w, strict=True)))
    kind, chosen = fitted.notes_["average_of"], fitted.notes_["weights"][0]
    found = losses[kind, tuple(chosen[name] for name in PARTS)]
    assert found == pytest.approx(min(loss for (of, _), loss in losses.items() if of == kind), abs=tolerance())
    assert fitted.notes_["share_of_raindrop"] == chosen["raindrop"]


def test_what_is_missing_is_the_share_of_the_usual_sensors(fitted, parts):
    blend, collator = fitted.model_, fitted._collator(parts[2])
    batch = collator.batch(np.arange(len(parts[2])), rng=np.random.default_rng(0), drop_sensors=0.9)
    trained_on = parts[0]
    present = [
        {int(s) for s in trained_on.sensor[rows]} for rows in (trained_on.rows([i]) for i in range(len(trained_on)))
    ]
    usual = [sum(u in sensors for sensors in present) / len(trained_on) for u in range(len(trained_on.sensors))]
    for b, found in enumerate(blend.missing_share(batch).tolist()):
        seen = {int(u) for u, of in zip(batch.sensor, batch.step_sample[batch.step], strict=True) if of == b}
        wanted = 1 - sum(usual[u] for u in seen) / sum(usual)
        assert found == pytest.approx(wanted, abs=1e-6)


def test_weights_change_linearly_with_what_is_missing(fitted):
    blend = deepcopy(fitted.model_)
    blend.missing.copy_(torch.tensor([0.0, 0.2, 0.4, 0.6, 0.8]))
    knots = [[0, 1, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    blend.weights.copy_(torch.tensor(knots, dtype=torch.float32))
    blend.of_scores.fill_(True)
    parts = torch.log(torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.7, 0.3], [0.6, 0.4], [0.2, 0.8]]))
    parts = parts[:, None].expand(5, 6, 2)
    missing = torch.tensor([-0.1, 0.0, 0.1, 0.3, 0.7, 0.95])
    wanted = [
        (0, 1, 0, 0, 0),
        (0, 1, 0, 0, 0),
        (0.25, 0.75, 0, 0, 0),
        (0.75, 0.25, 0, 0, 0),
        (0.5, 0, 0, 0, 0.5),
        (0, 0, 0, 0, 1),
    ]
    for found, w in zip(blend._mix(parts, missing), wanted, strict=True):
        assert_close(found, sum(share * part for share, part in zip(w, parts[:, 0], strict=True)))


def test_a_part_that_knows_more_when_sensors_are_missing_gets_weight_there():
    """Two sensors say the same. Trees that always had both rely on one of them; the weights follow what is missing."""
    training, validation = (redundant(400, seed) for seed in (1, 2))
    clf = Classifier(
        "blend", config=SMALL | {"train.epochs": 1, "model.trees.rounds": 30, "model.random_trees.rounds": 30}
    ).fit(training, validation=validation)
    weights = clf.notes_["weights"]
    assert [knot["missing"] for knot in weights] == sorted(knot["missing"] for knot in weights)
    for knot in weights:
        assert sum(knot[name] for name in PARTS) == pytest.approx(1, abs=2e-3)
    assert weights[-1]["trees"] + weights[-1]["random_trees"] < weights[0]["trees"] + weights[0]["random_trees"]
    half = redundant(400, 3).where(pl.col("sensor") == "b")
    auroc = {
        name: clf.task_.evaluate(clf.task_.encode(half), clf.task_.predict(scores_of(part, clf._collator(half))))[
            "auroc"
        ]
        for name, part in (("trees", clf.model_.trees), ("blend", clf.model_))
    }
    assert auroc["blend"] > 0.9
    assert auroc["blend"] > auroc["trees"]


def test_it_tells_what_each_part_adds(fitted, alone, parts):
    told = fitted.notes_["validation"]
    for name, clf in zip((*PARTS, "blend"), (*alone, fitted), strict=True):
        assert told[name] == pytest.approx(clf.evaluate(parts[1]), abs=tolerance())
    assert told["blend"]["log_loss"] < min(told["raindrop"]["log_loss"], told["trees"]["log_loss"])


def test_without_validation_samples_network_and_trees_count_alike(parts):
    clf = Classifier("blend", config=SMALL | {"train.holdout": 0.0, "train.epochs": 1}).fit(parts[0])
    assert (clf.notes_["share_of_raindrop"], clf.notes_["average_of"]) == (0.5, "log-odds")
    blend, collator = clf.model_, clf._collator(parts[2])
    p, *trees = (clf.task_.predict(scores_of(getattr(blend, name), collator)) for name in PARTS)
    wanted = np.sqrt(p * math.prod(trees) ** 0.25)
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
    last = fitted.notes_["weights"][-1]
    assert (
        f"raindrop counts {last['raindrop']:.0%} where {last['missing']:.0%} of the usual sensors" in rows["Mixed of"]
    )


def test_a_wrong_setting_of_a_part_is_named_with_its_place():
    for key, message in (
        ("model.trees.round", r"Unknown setting 'model\.trees\.round': did you mean 'model\.trees\.rounds'"),
        ("model.rounds", r"Unknown setting 'model\.rounds'"),
        ("model.trees", r"'model\.trees' is a group of settings"),
        ("model.hide_sensors", r"model\.hide_sensors must be"),
        ("model.trees.hide_sensors", r"trees\.hide_sensors"),
    ):
        with pytest.raises(ConfigError, match=message):
            Classifier("blend", config={key: 3}).resolved()


def test_a_setting_of_one_part_leaves_the_presets_others():
    held = Classifier("blend", config={"model.trees.rounds": 7, "model": {"raindrop": {"sensor_dim": 9}}}).resolved()
    tuned = {name: Classifier(name).resolved() for name in ("raindrop", "trees")}
    assert held["train"] == tuned["raindrop"]["train"] | {"soft_targets": 0.0}
    wanted = {f"raindrop.{name}": value for name, value in tuned["raindrop"]["model"].items()} | {
        "raindrop.sensor_dim": 9
    }
    wanted |= {f"trees.{name}": value for name, value in tuned["trees"]["model"].items()} | {
        "trees.rounds": 7,
        "trees.summaries": "more",
    }
    wanted |= {f"random_trees.{name}": value for name, value in RANDOM_TREES_TUNED.items()}
    wanted["hide_sensors"] = 0.7
    assert held["model"] == wanted


def test_weights_of_whole_samples_hold_for_nine_in_ten_of_them_also_where_sensors_are_often_missing(parts):
    """Copies with sensors hidden only count where they lack more sensors than samples usually do."""
    rng = np.random.default_rng(0)
    sparse = [table.where(lambda events: rng.random(len(events)) < 0.3) for table in parts[:2]]
    clf = Classifier("blend", config=SMALL | {"train.epochs": 1}).fit(sparse[0], validation=sparse[1])
    blend, collator = clf.model_, clf._collator(sparse[1])
    missing = blend.missing_share(collator.batch(np.arange(len(sparse[1]))))
    assert missing.std() > 0.05
    assert float((missing <= blend.missing[0] + 1e-6).float().mean()) >= 0.9
    assert (blend.missing.diff() > 0).all()


def test_each_group_has_the_weights_with_the_lowest_loss_and_an_unknown_one_those_before_it(fitted):
    blend, task = fitted.model_, fitted.task_
    parts = torch.randn(5, 40, 2)
    target = torch.from_numpy(np.random.default_rng(0).random((40, 2))).float().softmax(1)
    scored = Scored(parts, torch.linspace(0, 1, 40), target, torch.rand(40))
    unknown = Scored(parts[:, :5], torch.ones(5), torch.full((5, 2), torch.nan), None)
    loss, weights = blend._weights([scored, *scored.by_missing_share(2), unknown], True)
    groups = [scored, scored[torch.arange(20)], scored[torch.arange(20, 40)]]
    lowest = []

    def loss_of(group, weights):
        mixed = task.mix(group.parts, weights[:, None].expand(5, len(group.target)), True)
        return float(task.loss(mixed, group.target, group.weight))

    for group, chosen in zip(groups, weights, strict=False):
        tried = [(*w, 10 - sum(w)) for w in product(range(11), repeat=4) if sum(w) <= 10]
        losses = [loss_of(group, torch.tensor(w) / 10) for w in tried]
        found = loss_of(group, chosen)
        assert found == pytest.approx(min(losses), abs=1e-6)
        lowest.append(found)
    assert torch.equal(weights[3], weights[2])
    assert loss == pytest.approx((lowest[0] + np.mean([lowest[1], lowest[2], lowest[2]])) / 2, abs=1e-6)


def test_a_file_whose_weights_do_not_fit_is_refused(fitted):
    for name, value in (("missing", 0.5), ("weights", 0.7), ("weights", -1.0), ("usual", math.nan)):
        state = {key: tensor.clone() for key, tensor in fitted.model_.state_dict().items()}
        state[name].fill_(value)
        with pytest.raises(ValueError, match="do not fit together"):
            deepcopy(fitted.model_).load_state_dict(state)
