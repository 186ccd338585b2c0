"""Optional messages: with and without them, what validates better is kept, and is the network one would get alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from learnable import QUICK, easy_table

import raindrop as rd
from raindrop.errors import ConfigError, NotEnoughMemoryError, RaindropWarning
from raindrop.report.card import card_of
from raindrop.report.tasks import view_of
from raindrop.training import Callback, network
from raindrop.training.loop import Goal, train

pytestmark = pytest.mark.slow

EPOCHS = 3
SETTINGS = QUICK | {"train.epochs": EPOCHS, "train.metric": "auroc", "model.graph.optional": True}
ALWAYS = {"model.graph.optional": False}
NEVER = ALWAYS | {"model.ablation.messages": False, "model.graph.reconstruction": 0.0}


def fit(model: str = "raindrop", more: dict[str, Any] | None = None, **options: Any) -> rd.Classifier:
    table = easy_table(48)
    clf = rd.Classifier(model, seed=3, config=SETTINGS_OF[model] | (more or {}))
    return clf.fit(table, validation=easy_table(30, seed=1), **options)


SETTINGS_OF = {
    "raindrop": SETTINGS,
    "blend": {name.replace("model.", "model.raindrop."): value for name, value in SETTINGS.items()}
    | {"model.trees.rounds": 8},
}


def losses(monkeypatch: pytest.MonkeyPatch, without: float, with_: float) -> None:
    """What validation says of the two networks."""
    values = {EPOCHS: iter((without, with_, without))}
    monkeypatch.setattr(network, "value_of_kept", lambda history, *_: next(values[len(history)]))


@pytest.mark.parametrize(("without", "with_", "alone"), [(0.7, 0.6, ALWAYS), (0.6, 0.7, NEVER), (0.6, 0.6, NEVER)])
def test_the_network_that_validates_better_is_the_one_trained_alone(monkeypatch, without, with_, alone):
    expected = fit(more=alone)
    losses(monkeypatch, without, with_)
    chosen, test = fit(), easy_table(20, seed=2)
    assert np.array_equal(chosen.predict_proba(test), expected.predict_proba(test))
    assert chosen.resolved()["model"]["ablation.messages"] is (alone is ALWAYS)
    assert chosen.notes_["messages"] == {
        "used": alone is ALWAYS,
        "reason": "compared",
        "metric": "log_loss",
        "epochs": EPOCHS,
        "with": with_,
        "without": without,
    }


@pytest.mark.parametrize("model", ["raindrop", "blend"])
def test_the_choice_survives_saving_and_further_training(monkeypatch, tmp_path, model):
    losses(monkeypatch, 0.6, 0.7)
    fitted, test = fit(model), easy_table(20, seed=2)
    loaded = rd.load(fitted.save(tmp_path / "model"))
    assert loaded.model_.network.nearby is None
    assert np.array_equal(loaded.predict_proba(test), fitted.predict_proba(test))
    assert loaded.notes_["messages"] == fitted.notes_["messages"]
    further = fit(model, start_from=loaded)
    assert further.model_.network.nearby is None
    assert further.resolved() == loaded.resolved()


def test_a_blend_takes_a_network_without_messages(monkeypatch):
    losses(monkeypatch, 0.6, 0.7)
    alone = rd.Classifier("blend", seed=3, config=SETTINGS_OF["blend"]).network_alone()
    alone.fit(easy_table(48), validation=easy_table(30, seed=1))
    blend = fit("blend", network=alone)
    assert blend.model_.network.nearby is None
    assert blend.resolved()["model"]["raindrop.ablation.messages"] is False
    assert blend.notes_["messages"] == alone.notes_["messages"]
    for mine, its in zip(blend.model_.network.parameters(), alone.model_.parameters(), strict=True):
        assert torch.equal(mine, its)


def test_a_network_without_messages_says_why_it_has_no_graph(monkeypatch):
    losses(monkeypatch, 0.6, 0.7)
    with pytest.raises(ConfigError, match=r"did not help on the validation samples.*0\.600, with them 0\.700.*graph"):
        fit().graphs(easy_table(5))


def test_the_model_card_says_whether_messages_are_used(monkeypatch):
    losses(monkeypatch, 0.7, 0.6)
    clf = fit()
    rows = dict(card_of(clf, view_of(clf)).model)
    assert rows["Messages between sensors"] == "used: validation log loss 0.6000 with them, 0.7000 without"


def test_without_validation_samples_messages_are_used():
    clf = rd.Classifier(config=SETTINGS | {"train.holdout": 0.0}).fit(easy_table(48))
    assert clf.model_.nearby is not None
    assert "messages" not in clf.notes_


@pytest.fixture
def little_memory(monkeypatch):
    """Too little memory for training with messages."""

    def require_room(model: Any, data: Any, *, gradients: bool) -> None:
        if model.nearby is not None:
            raise NotEnoughMemoryError("Training on the largest sample would take about 99 GB of memory.\nCut it.")

    monkeypatch.setattr("raindrop.training.memory.require_room", require_room)


def test_messages_that_exceed_the_memory_are_left_out_with_a_warning(little_memory, tmp_path):
    with pytest.warns(RaindropWarning, match="trained without messages between sensors.*99 GB"):
        clf = fit(run=tmp_path / "run")
    assert clf.model_.nearby is None
    assert clf.resolved()["model"]["ablation.messages"] is False
    with pytest.raises(ConfigError, match="would have exceeded the memory, so it was trained without them"):
        rd.load(tmp_path / "run").graphs(easy_table(5))
    with pytest.raises(NotEnoughMemoryError):
        fit(more=ALWAYS)


@pytest.mark.filterwarnings("ignore:The network is trained without messages")
def test_a_blend_needs_no_memory_for_a_network_that_is_given(little_memory):
    alone = rd.Classifier("blend", seed=3, config=SETTINGS_OF["blend"]).network_alone()
    alone.fit(easy_table(48), validation=easy_table(30, seed=1))
    assert fit("blend", network=alone).model_.network.nearby is None


@pytest.mark.filterwarnings("ignore:The network is trained without messages")
def test_a_run_resumed_with_more_memory_goes_on_with_messages(monkeypatch, tmp_path):
    expected = fit()
    with monkeypatch.context() as context:
        context.setattr("raindrop.estimators.base.only_without_messages_fits", lambda *_: True)
        with pytest.raises(KeyboardInterrupt):
            fit(run=tmp_path / "run", callbacks=[Epochs(2)])
    resumed, test = fit(run=tmp_path / "run", resume=True), easy_table(20, seed=2)
    assert np.array_equal(resumed.predict_proba(test), expected.predict_proba(test))


def test_a_graph_that_was_given_is_not_optional():
    table = easy_table(48)
    edges = [[table.sensors[0], table.sensors[1], 1.0]]
    clf = fit(more={"model.graph.initial_edges": edges})
    assert clf.model_.nearby is not None
    assert "messages" not in clf.notes_


def test_another_model_or_fit_forgets_the_choice(monkeypatch):
    losses(monkeypatch, 0.6, 0.7)
    clf = fit()
    assert clf.set_params(progress=False).resolved()["model"]["ablation.messages"] is False
    clf.set_params(model="trees", config={"model.rounds": 3}).fit(easy_table(48), validation=easy_table(30, seed=1))
    assert "ablation.messages" not in clf.resolved()["model"]


def test_settings_that_contradict_the_model_to_start_from_are_refused(monkeypatch):
    losses(monkeypatch, 0.6, 0.7)
    start = fit()
    for config in ({"model.graph.reconstruction": 7.0}, {"model": {"graph": {"reconstruction": 7.0}}}):
        with pytest.raises(ConfigError, match=r"other settings \(model\.graph\.reconstruction\)"):
            fit(more=config, start_from=start)
    with pytest.raises(ConfigError, match="start_from is a Classifier of the model 'raindrop'; this is"):
        rd.Classifier("transformer").fit(easy_table(48), start_from=start)


class Epochs(Callback):
    """What a callback is told; stops the training, as a kill would, after some of its epochs."""

    def __init__(self, last: int | None = None):
        self.told: list[Any] = []
        self.last = last

    def on_start(self, settings: Any) -> None:
        self.told.append("start")

    def on_epoch(self, epoch: int, metrics: Any) -> None:
        self.told.append(epoch)
        if epoch == self.last:
            raise KeyboardInterrupt

    def on_end(self) -> None:
        self.told.append("end")


def test_callbacks_see_one_training():
    seen = Epochs()
    fit(callbacks=[seen])
    assert seen.told == ["start", *range(1, 2 * EPOCHS + 1), "end"]


@pytest.mark.parametrize("last", [1, EPOCHS + 1])
def test_callbacks_are_closed_whichever_training_fails(last):
    seen = Epochs(last)
    with pytest.raises(KeyboardInterrupt):
        fit(callbacks=[seen])
    assert seen.told == ["start", *range(1, last + 1), "end"]


def test_a_callback_that_stops_the_first_training_stops_both():
    class Stop(Callback):
        def on_epoch(self, epoch: int, metrics: Any) -> bool:
            return epoch == 2

    clf = fit(callbacks=[Stop()])
    assert clf.model_.nearby is None
    assert len(clf.history_) == 2
    with pytest.raises(ConfigError, match="a callback stopped training before messages between sensors were tried"):
        clf.graphs(easy_table(5))


@pytest.mark.parametrize("epoch", [2, EPOCHS, EPOCHS + 2])
def test_a_run_that_was_interrupted_in_either_training_ends_the_same(tmp_path, epoch):
    test = easy_table(20, seed=2)
    whole = fit(run=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(run=tmp_path / "run", callbacks=[Epochs(epoch)])
    resumed = fit(run=tmp_path / "run", resume=True)
    assert np.array_equal(resumed.predict_proba(test), whole.predict_proba(test))
    assert resumed.notes_ == whole.notes_


@pytest.mark.parametrize(("value", "epochs"), [(1.5, 2), (0.0, 4)])
def test_training_that_misses_its_goal_ends_early_also_when_resumed(tmp_path, value, epochs):
    clf = fit(more=ALWAYS | {"train.epochs": 1})
    training, validation = clf._training_source(easy_table(48)), clf._validation_source(easy_table(30, seed=1))
    _, _, config = rd.Classifier(config=SETTINGS | {"train.epochs": 4})._configs()
    for _ in range(2):
        history = train(
            clf.model_,
            training,
            validation,
            config,
            task=clf.task_,
            run=tmp_path,
            resume=True,
            goal=Goal(2, "auroc", value),
        )
        assert len(history) == epochs
