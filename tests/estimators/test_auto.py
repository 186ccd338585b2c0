"""A first answer: the task is guessed, few models are tried in time, and the best so far is always saved."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from learnable import easy_table
from waves import wave_table

import raindrop
from raindrop import ConfigError, DataError, EventTable, OutputExistsError
from raindrop.estimators import auto as module
from raindrop.estimators.auto_parts import make_folds
from raindrop.estimators.guess import guess_task
from raindrop.tasks.classification import Classification

ONLY_TREES = 0.02  # minutes, too few for a network


def with_column(table: EventTable, **columns: object) -> EventTable:
    return replace(table, samples=table.samples.with_columns(**{k: pl.Series(k, v) for k, v in columns.items()}))


# ---------------------------------------------------------------- the task


@pytest.mark.parametrize(
    ("values", "labels", "task"),
    [
        ({"y": [0, 1] * 30}, ["y"], "classification"),
        ({"y": ["a", "b", "c"] * 20}, ["y"], "classification"),
        ({"y": [1.0, 2.0] * 30}, ["y"], "classification"),
        ({"y": list(np.linspace(0, 1, 60))}, ["y"], "regression"),
        ({"y": list(range(60))}, ["y"], "regression"),
        ({"y": [0, 1] * 30, "z": ["yes", "no"] * 30}, ["y", "z"], "multilabel"),
        ({"y": [0.5, 1.5] * 30, "z": [3, 4] * 30}, ["y", "z"], "regression"),
    ],
)
def test_the_label_says_what_is_predicted(values: dict[str, list], labels: list[str], task: str) -> None:
    guess = guess_task(with_column(easy_table(60), **values), labels)
    assert (guess.task, list(guess.labels)) == (task, labels)


def test_without_a_label_gaps_are_filled() -> None:
    table = easy_table(60)
    assert guess_task(replace(table, roles=replace(table.roles, label=None))).task == "readings"


def test_a_label_that_looks_like_an_id_or_is_mostly_missing_is_an_error() -> None:
    table = with_column(easy_table(60), y=[f"p{at}" for at in range(60)], z=[None] * 45 + ["a", "b", "a"] * 5)
    with pytest.raises(ConfigError, match="60 different values in 60 samples: that looks like a name or an id"):
        guess_task(table, ["y"])
    with pytest.raises(DataError, match="Only 15 of 60 samples have a label 'z'; at least 20"):
        guess_task(table, ["z"])
    with pytest.raises(ConfigError, match="'ward' is neither"):
        guess_task(with_column(table, x=[1, 2] * 30), ["x", "ward"])


# ---------------------------------------------------------------- the search


@pytest.mark.slow
def test_trees_give_a_first_answer_beside_a_constant(tmp_path: Path) -> None:
    table = easy_table(80, classes=("ill", "well"))
    result = raindrop.auto(table, minutes=ONLY_TREES, run=tmp_path / "run")
    assert [each.name for each in result.ranking] == ["trees", "constant"]
    assert result.skipped == ["raindrop", "blend", "transformer"]
    best = result.best
    assert best is not None
    assert best.metric.low <= best.metric.value <= best.metric.high
    assert best.metric.value > 0.8 > result.ranking[1].metric.value
    loaded = raindrop.load(tmp_path / "run")
    assert loaded.model == "trees"
    np.testing.assert_array_equal(loaded.predict_proba(table), result.model.predict_proba(table))
    assert result.frame().columns == ["model", "AUROC (well)", "low", "high", "seconds"]
    assert "<table" in result._repr_html_()
    ranking = json.loads((tmp_path / "run" / "ranking.json").read_text())
    assert [each["model"] for each in ranking["ranking"]] == ["trees", "constant"]
    parts = dict(pl.read_parquet(tmp_path / "run" / "split.parquet")["part"].value_counts().iter_rows())
    assert parts == {"train": 56, "val": 8, "test": 16}


@pytest.mark.slow
@pytest.mark.parametrize("seconds_per_fit", [30.0, 0.5], ids=["held out", "cross-validated"])
def test_networks_and_their_blend_are_tried_within_the_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds_per_fit: float
) -> None:
    monkeypatch.setattr(module, "NETWORK_SHARE", 0.01)
    monkeypatch.setattr(module, "TRANSFORMER_SHARE", 0.005)
    monkeypatch.setattr(module, "MIN_SECONDS", 0.05)
    monkeypatch.setattr(module, "SECONDS_PER_FIT", seconds_per_fit)
    started = time.monotonic()
    table = easy_table(80)
    result = raindrop.auto(table, minutes=3, run=tmp_path / "run")
    assert time.monotonic() - started < 180
    assert {each.name for each in result.candidates} == {"constant", "trees", "raindrop", "blend", "transformer"}
    assert result.best is not None
    assert raindrop.load(tmp_path / "run").model == result.best.name
    assert ("cross-validated in 2 folds" in result.judged_on) == (seconds_per_fit == 0.5)
    estimator, unseen = result.evaluated
    assert (estimator is result.model) == (seconds_per_fit == 30.0)
    assert len(unseen) in (16, 40)


@pytest.mark.slow
def test_quantities_and_several_labels_are_tried_too() -> None:
    table = easy_table(80)
    rng = np.random.default_rng(0)
    table = with_column(table, days=np.array(table.labels) * 5 + rng.normal(0, 0.5, 80), late=rng.integers(0, 2, 80))
    days = raindrop.auto(table, label="days", minutes=ONLY_TREES)
    assert days.guess.task == "regression"
    assert days.lower_is_better
    assert [each.name for each in days.ranking] == ["trees", "constant"]
    both = raindrop.auto(table, label=["label", "late"], minutes=ONLY_TREES)
    assert both.guess.task == "multilabel"
    assert {each.name for each in both.candidates} == {"trees", "constant"}


def test_gaps_are_filled_by_the_best_of_simple_rules_first(tmp_path: Path) -> None:
    table = wave_table()
    result = raindrop.auto(table, minutes=0.001, run=tmp_path / "run", task="readings")
    assert [each.name for each in result.candidates] == list(module.SIMPLE_IMPUTERS)
    assert result.best is not None
    assert result.best.metric.value == min(each.metric.value for each in result.candidates)
    assert raindrop.load(tmp_path / "run").model == result.best.name
    assert "readings, hidden in blocks of" in result.judged_on


def test_samples_of_one_group_are_never_on_both_sides() -> None:
    table = with_column(easy_table(60), subject=[f"p{at // 6}" for at in range(60)]).with_roles(group="subject")
    task = Classification.learn(table)
    for most in (1, 5):
        folds, sentence = make_folds(table, task, 0, most)
        assert "10 groups of 'subject' kept together" in sentence
        assert sum(len(fold.test) for fold in folds) == (60 if most == 5 else len(folds[0].test))
        for fold in folds:
            seen = {*fold.training.samples["subject"], *(fold.validation.samples["subject"] if fold.validation else ())}
            assert not seen & set(fold.test.samples["subject"])


def test_a_class_that_only_the_unseen_samples_have_is_not_judged() -> None:
    labels = ["a", "b"] * 27 + ["rare"] * 6
    table = with_column(easy_table(60), label=labels, subject=[f"p{at // 6}" for at in range(60)])
    result = raindrop.auto(table.with_roles(label="label", group="subject"), minutes=ONLY_TREES)
    assert "groups of 'subject'" in result.judged_on
    assert result.model is not None


# ---------------------------------------------------------------- ending early


def rising_table() -> EventTable:
    """Two sensors that rise steadily, so that the last value is nearer than the mean."""
    time = np.tile(np.arange(100.0), 2)
    return EventTable.from_columns(["a"] * 200, time, ["u"] * 100 + ["v"] * 100, time)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["keyboard", "SIGTERM"])
def test_a_search_that_is_stopped_has_the_best_so_far(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    def interrupted(self: object) -> None:
        if how == "keyboard":
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(module._SampleSearch, "network", interrupted)
    result = raindrop.auto(easy_table(80), minutes=1, run=tmp_path / "run")
    assert result.stopped
    assert raindrop.load(tmp_path / "run").model == "trees"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_search_that_is_stopped_before_the_first_model_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module._SampleSearch, "trees", interrupted)
    with pytest.raises(KeyboardInterrupt):
        raindrop.auto(easy_table(80), minutes=1, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_while_a_better_model_is_saved_leaves_the_last_complete_one(tmp_path: Path, when: str) -> None:
    data = rising_table().write(tmp_path / "data")
    dying = Path(__file__).parents[1] / "dying.py"
    command = [
        "fit",
        str(data),
        "--out",
        str(tmp_path / "run"),
        "--task",
        "readings",
        "--minutes",
        "0.001",
        "--no-page",
    ]
    # The second model, "last", is better here, and is written to a folder of its own before it replaces the first.
    asked = [sys.executable, str(dying), "raindrop.estimators.persistence", "write_json", "2", when, *command]
    source = str(Path(raindrop.__file__).parents[1])
    done = subprocess.run(asked, env=os.environ | {"PYTHONPATH": source}, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert raindrop.load(tmp_path / "run").model == "mean"


@pytest.mark.parametrize("minutes", [0, -1, float("inf"), float("nan")])
def test_an_impossible_budget_is_an_error(minutes: float) -> None:
    with pytest.raises(ConfigError, match="the time budget must be a positive number of minutes"):
        raindrop.auto(easy_table(60), minutes=minutes)


def test_a_folder_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    with pytest.raises(OutputExistsError):
        raindrop.auto(easy_table(60), minutes=ONLY_TREES, run=tmp_path / "run")
