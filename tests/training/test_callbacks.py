"""Callbacks see every epoch and may end training; loggers; a time limit; longer and continued training."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from learnable import QUICK, easy_table

from raindrop import Classifier, ConfigError, DataError, load
from raindrop.errors import MissingExtraError, ResumeError
from raindrop.training import Callback, MLflow
from raindrop.training.config import TrainConfig
from raindrop.training.loop import _lr_factor


class Watch(Callback):
    def __init__(self, stop_at: int = 0):
        self.seen: list[tuple[int, dict[str, float]]] = []
        self.stop_at, self.settings, self.ended = stop_at, {}, False

    def on_start(self, settings: Any) -> None:
        self.settings = dict(settings)

    def on_epoch(self, epoch: int, metrics: Any) -> bool:
        self.seen.append((epoch, dict(metrics)))
        return epoch == self.stop_at

    def on_end(self) -> None:
        self.ended = True


def classifier(**changes: Any) -> Classifier:
    return Classifier(preset="paper", config=QUICK | {name.replace("__", "."): v for name, v in changes.items()})


@pytest.mark.slow
def test_a_callback_sees_the_metrics_of_every_epoch() -> None:
    watch = Watch()
    clf = classifier().fit(easy_table(60), callbacks=[watch])
    assert [epoch for epoch, _ in watch.seen] == [1, 2, 3]
    for (_, metrics), record in zip(watch.seen, clf.history_, strict=True):
        assert metrics["loss"] == record["loss"]
        assert metrics["auroc"] == record["validation"]["auroc"]
    assert watch.settings["train.epochs"] == 3
    assert watch.ended


def test_a_callback_may_end_training_and_the_best_epoch_is_kept() -> None:
    watch, other = Watch(stop_at=2), Watch()
    clf = classifier().fit(easy_table(60), callbacks=[watch, other])
    assert len(clf.history_) == len(other.seen) == 2
    assert clf.predict(easy_table(60)).shape == (60,)


def test_callbacks_end_also_where_training_fails() -> None:
    class Failing(Watch):
        def on_epoch(self, epoch: int, metrics: Any) -> bool:
            raise RuntimeError("mine")

    watch = Failing()
    with pytest.raises(RuntimeError, match="mine"):
        classifier().fit(easy_table(60), callbacks=[watch])
    assert watch.ended


def test_something_else_than_a_callback_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"has no on_epoch\(epoch, metrics\)"):
        classifier().fit(easy_table(60), callbacks=[print])
    with pytest.raises(ConfigError, match="a callback cannot have an effect"):
        Classifier("trees").fit(easy_table(60), callbacks=[Watch()])


def test_mlflow_gets_settings_and_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    fake = ModuleType("mlflow")
    for name in ("start_run", "log_params", "log_metrics", "end_run"):
        setattr(fake, name, lambda *given, _name=name, **options: calls.append((_name, given, options)))
    fake.active_run = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    classifier().fit(easy_table(60, classes=("<2", "b")), callbacks=[MLflow("mine")])
    names = [name for name, _, _ in calls]
    assert names == ["start_run", "log_params", "log_metrics", "log_metrics", "log_metrics", "end_run"]
    assert calls[0][2] == {"run_name": "mine"}
    assert calls[1][1][0]["train.learning_rate"] == 0.05
    assert calls[3][2] == {"step": 2}
    assert {"loss", "auroc", "recall/_2"} <= set(calls[3][1][0])


def test_without_mlflow_an_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"raindrop-ts\[mlflow\]"):
        MLflow()


# ---------------------------------------------------------------- a time limit


@pytest.mark.slow
def test_a_time_limit_ends_training_and_its_schedule() -> None:
    started = time.monotonic()
    clf = classifier(train__epochs=100_000, train__minutes=1 / 60, train__schedule="cosine").fit(easy_table(60))
    assert time.monotonic() - started < 20
    assert 1 <= len(clf.history_) < 100_000
    assert _lr_factor(TrainConfig(schedule="cosine"), 1.0) == 0.0  # where the limit puts the schedule at the end


# ---------------------------------------------------------------- longer and continued training


@pytest.mark.slow
def test_a_finished_run_is_extended_by_more_epochs(tmp_path: Path) -> None:
    table = easy_table(60)
    first = classifier().fit(table, run=tmp_path / "run")
    longer = classifier(train__epochs=5).fit(table, run=tmp_path / "run", resume=True)
    assert [record["epoch"] for record in longer.history_] == [1, 2, 3, 4, 5]
    assert longer.history_[:3] == first.history_
    whole = classifier(train__epochs=5).fit(table)
    np.testing.assert_array_equal(whole.predict_proba(table), longer.predict_proba(table))  # a constant schedule
    assert len(load(tmp_path / "run").history_) == 5
    again = classifier(train__epochs=5).fit(table, run=tmp_path / "run", resume=True)
    assert again.history_ == longer.history_


@pytest.mark.slow
def test_a_run_is_not_extended_with_other_settings(tmp_path: Path) -> None:
    table = easy_table(60)
    classifier().fit(table, run=tmp_path / "run")
    with pytest.raises(ResumeError):
        classifier(train__epochs=5, train__learning_rate=0.01).fit(table, run=tmp_path / "run", resume=True)


@pytest.mark.slow
def test_training_goes_on_from_another_model_on_another_table() -> None:
    here, there = easy_table(96, seed=0), easy_table(96, seed=1, prefix="t")
    first = classifier(train__epochs=12).fit(here)
    tuned = classifier(train__epochs=1, train__learning_rate=1e-6).fit(there, start_from=first)
    fresh = classifier(train__epochs=1, train__learning_rate=1e-6).fit(there)
    assert first.evaluate(there)["auroc"] > 0.9
    assert tuned.evaluate(there)["auroc"] > 0.9 > fresh.evaluate(there)["auroc"]
    assert tuned.scaler_ is first.scaler_
    assert tuned.identity_ != fresh.identity_


@pytest.mark.slow
def test_a_start_that_does_not_fit_is_an_error() -> None:
    table = easy_table(60)
    first = classifier().fit(table)
    with pytest.raises(ConfigError, match=r"with other settings \(model.hidden\)"):
        classifier(model__hidden=9).fit(table, start_from=first)
    with pytest.raises(ConfigError, match="is a Classifier of the model 'raindrop'; this is a Classifier of 'grud'"):
        Classifier("grud", preset="paper").fit(table, start_from=first)
    with pytest.raises(DataError, match="label that was not there in training"):
        classifier().fit(easy_table(60, classes=("x", "y")), start_from=first)
    other = replace(table, sensors=(*table.sensors[:2], "new"))
    with pytest.raises(DataError, match=r"1 sensor was not read in training(.|\n)*whose sensors are the union"):
        classifier().fit(other, start_from=first)
    trees = Classifier("trees", config={"model.rounds": 2}).fit(table)
    with pytest.raises(ConfigError, match="not trained by gradients, so it cannot be trained further"):
        Classifier("trees", config={"model.rounds": 2}).fit(table, start_from=trees)
