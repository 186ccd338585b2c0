"""A search: finds what validates better, goes on where it was killed, shares its trials, refuses what is another's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from fork_server import BY_FORK
from learnable import QUICK, easy_table

import raindrop as rd
from raindrop import config as configs
from raindrop.errors import MissingExtraError, ResumeError
from raindrop.search.journal import JOURNAL, PROCESSES, Journal
from raindrop.search.tuning import tune

pytestmark = pytest.mark.slow

TREES: dict[str, Any] = {"model.rounds": 4, "model.patience": 2}
NETWORK: dict[str, Any] = {"train.epochs": 4, "train.batch_size": 16, "train.soft_targets": 0.0, "model.time_dim": 4,
                           "model.attention_dim": 4, "model.hidden": 8, "model.slots.dim": 8}  # fmt: skip


@pytest.fixture(scope="module")
def parts() -> tuple[rd.EventTable, rd.EventTable]:
    """48 training and 16 validation samples whose classes overlap, so that settings make a difference."""
    table = easy_table(64)
    noisy = np.random.default_rng(0).normal(0, 4, len(table.value))
    table = replace(table, value=table.value + noisy)
    return table[:48], table[48:]


def trees(**config: Any) -> rd.Classifier:
    return rd.Classifier("trees", config=TREES | config)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / JOURNAL).read_text().splitlines()]


def test_the_first_trial_is_the_preset_and_the_best_is_at_least_as_good(parts, tmp_path: Path) -> None:
    seen = []
    result = tune(trees(), parts[0], validation=parts[1], out=tmp_path / "search", trials=8, show=seen.append)
    assert [trial.number for trial in result.trials] == list(range(8)) == [trial.number for trial in seen]
    assert result.trials[0].is_start
    assert result.start is result.trials[0]
    fitted = trees().fit(parts[0], validation=parts[1])
    assert result.start.value == fitted.evaluate(parts[1])["auroc"]
    assert result.best.value == max(trial.value for trial in result.trials)
    assert result.gain == result.best.value - result.start.value >= 0
    best = rd.Classifier("trees", config=result.best_config).fit(parts[0], validation=parts[1])
    assert best.evaluate(parts[1])["auroc"] == result.best.value
    assert result.importance.keys() == result.best.settings.keys()
    assert sum(result.importance.values()) == pytest.approx(1)
    assert result.frame().columns[:3] == ["trial", "state", "AUROC (1)"]


def test_the_best_settings_are_toml_that_training_reads(parts, tmp_path: Path) -> None:
    result = tune(trees(), parts[0], validation=parts[1], out=tmp_path / "search", trials=3)
    read = configs.read_toml(tmp_path / "search" / "best.toml")
    assert (
        rd.Classifier("trees", config=read).resolved() == rd.Classifier("trees", config=result.best_config).resolved()
    )
    assert read["model"]["rounds"] == 4


def test_a_lower_error_is_better_in_a_regression(tmp_path: Path) -> None:
    table = easy_table(40)
    table = replace(table, samples=table.samples.with_columns(days=pl.col("label") * 3.0 + pl.col("age") / 50))
    estimator = rd.Regressor("trees", label="days", config=TREES)
    result = tune(estimator, table, out=tmp_path / "search", trials=4)
    assert result.lower_is_better
    assert result.metric == "MAE"
    assert result.best.value == min(trial.value for trial in result.trials)
    assert result.gain == result.start.value - result.best.value


def test_the_metric_of_the_settings_is_searched_by(parts, tmp_path: Path) -> None:
    estimator = rd.Classifier(config=NETWORK | {"train.metric": "auprc", "train.epochs": 1})
    result = tune(estimator, parts[0], validation=parts[1], out=tmp_path / "search", trials=1)
    assert result.metric == "AUPRC (1)"
    assert result.best_config["model.graph.optional"] is False  # trials vary the settings of messages
    fitted = rd.Classifier(config=NETWORK | {"train.metric": "auprc", "train.epochs": 1, "model.graph.optional": False})
    fitted.fit(parts[0], validation=parts[1])
    assert result.best.value == fitted.evaluate(parts[1])["auprc"]


def test_the_same_call_goes_on_and_an_interrupted_search_finds_the_same(parts, tmp_path: Path) -> None:
    whole = tune(trees(), parts[0], validation=parts[1], out=tmp_path / "whole", trials=13)
    for number in (2, 5, 13):
        again = tune(trees(), parts[0], validation=parts[1], out=tmp_path / "parts", trials=number)
        assert len(again.trials) == number
    assert [trial.settings for trial in again.trials] == [trial.settings for trial in whole.trials]
    assert [trial.value for trial in again.trials] == [trial.value for trial in whole.trials]
    size = len(lines(tmp_path / "parts"))
    more = tune(trees(), parts[0], validation=parts[1], out=tmp_path / "parts", trials=13)
    assert len(lines(tmp_path / "parts")) == size
    assert more.toml() == whole.toml()


def test_another_seed_draws_other_settings(parts, tmp_path: Path) -> None:
    drawn = [
        tune(rd.Classifier("trees", config=TREES, seed=seed), *parts[:1], validation=parts[1], out=tmp_path / str(seed),
             trials=2).trials[1].settings for seed in (0, 1)
    ]  # fmt: skip
    assert drawn[0] != drawn[1]


def test_a_trial_that_is_worse_than_most_is_stopped(parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from raindrop.tasks.classification import Classification

    fits, evaluate = iter(range(1000)), Classification.evaluate
    worse = {"now": 0.0}

    def made_up(self: Classification, truth: Any, predicted: Any, names: Any = None) -> dict[str, float]:
        return evaluate(self, truth, predicted, names) | {"auroc": 0.9 - worse["now"]}

    monkeypatch.setattr(Classification, "evaluate", made_up)
    fit = rd.Classifier.fit

    def counted(self: rd.Classifier, *given: Any, **options: Any) -> rd.Classifier:
        worse["now"] = 0.01 * next(fits)
        return fit(self, *given, **options)

    monkeypatch.setattr(rd.Classifier, "fit", counted)
    estimator = rd.Classifier(config=NETWORK | {"train.epochs": 5})
    result = tune(estimator, parts[0], validation=parts[1], out=tmp_path / "search", trials=7)
    assert [trial.state for trial in result.trials] == 5 * ["complete"] + 2 * ["pruned"]
    assert [trial.epochs for trial in result.trials] == 5 * [5] + 2 * [2]  # not after the first epoch
    assert result.trials[-1].value == pytest.approx(0.84)


def test_a_trial_that_fails_is_kept_with_its_reason_and_the_search_goes_on(
    parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, calls = rd.Classifier.fit, iter(range(100))

    def failing(self: rd.Classifier, *given: Any, **options: Any) -> rd.Classifier:
        if next(calls) == 1:
            raise rd.RaindropError("The loss became nan.")
        return fit(self, *given, **options)

    monkeypatch.setattr(rd.Classifier, "fit", failing)
    result = tune(trees(), parts[0], validation=parts[1], out=tmp_path / "search", trials=3)
    assert [trial.state for trial in result.trials] == ["complete", "failed", "complete"]
    assert result.trials[1].failure == "The loss became nan."


def test_settings_to_start_from_that_fail_end_the_search_with_their_reason(
    parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*given: Any, **options: Any) -> None:
        raise rd.RaindropError("The loss became nan.")

    monkeypatch.setattr(rd.Classifier, "fit", failing)
    with pytest.raises(rd.RaindropError, match="The loss became nan"):
        tune(trees(), parts[0], validation=parts[1], out=tmp_path / "search", trials=3)
    assert not (tmp_path / "search" / "best.toml").exists()


def test_time_that_is_up_leaves_the_trial_to_the_next_call(parts, tmp_path: Path) -> None:
    estimator = rd.Classifier(config=NETWORK | {"train.epochs": 400})
    result = tune(estimator, parts[0], validation=parts[1], out=tmp_path / "search", trials=2, minutes=0.005)
    assert result.trials == []
    with pytest.raises(rd.RaindropError, match="No trial of the search is finished yet"):
        result.best  # noqa: B018
    with Journal(tmp_path / "search") as journal:
        about = next(
            line["user_attr"]["about"] for line in lines(tmp_path / "search") if "about" in line.get("user_attr", {})
        )
        journal.open(about, lower_is_better=False, start={})
        (waiting,) = journal.trials()
    assert waiting.state.name == "WAITING"
    assert waiting.user_attrs["is_start"]
    assert list((tmp_path / "search" / PROCESSES).iterdir()) == []


# ---------------------------------------------------------------- kills


KILLED = """
import sys
from pathlib import Path
from dying import kill_at
import raindrop as rd
kill_at(sys.argv[2], sys.argv[3], int(sys.argv[4]), "before")
folder = Path(sys.argv[1])
train, val = (rd.EventTable.read(folder / name) for name in ("train", "val"))
estimator = rd.Classifier("trees", config={"model.rounds": 4, "model.patience": 2})
rd.tune(estimator, train, validation=val, out=folder / "search", trials=5)
"""


def killed_search(folder: Path, parts: Any, module: str, function: str, call: int) -> None:
    for name, part in zip(("train", "val"), parts, strict=True):
        part.write(folder / name, overwrite=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    words = [sys.executable, "-c", BY_FORK + KILLED, str(folder), module, function, str(call)]
    assert subprocess.run(words, env=environment, timeout=300).returncode == -9


@pytest.mark.parametrize(
    ("module", "function", "call"),
    [
        ("raindrop.search.trials", "run_trial", 3),  # a trial was taken, and is not run
        ("raindrop.search.trials", "run_trial", 1),  # the first one, with the settings to start from
    ],
)
def test_a_killed_search_goes_on_and_finds_what_it_would_have_found(
    module: str, function: str, call: int, parts, tmp_path: Path
) -> None:
    whole = tune(trees(), parts[0], validation=parts[1], out=tmp_path / "whole", trials=5)
    killed_search(tmp_path, parts, module, function, call)
    again = tune(trees(), parts[0], validation=parts[1], out=tmp_path / "search", trials=5)
    assert [trial.settings for trial in again.trials] == [trial.settings for trial in whole.trials]
    assert [trial.value for trial in again.trials] == [trial.value for trial in whole.trials]
    assert again.trials[0].is_start
    assert (tmp_path / "search" / "best.toml").read_text() == whole.toml()


def test_a_line_that_a_kill_cut_in_two_is_dropped(parts, tmp_path: Path) -> None:
    tune(trees(), parts[0], validation=parts[1], out=tmp_path / "search", trials=2)
    whole = (tmp_path / "search" / JOURNAL).read_bytes()
    (tmp_path / "search" / JOURNAL).write_bytes(whole + b'{"op_code":4,"worker')
    result = tune(trees(), parts[0], validation=parts[1], out=tmp_path / "search", trials=3)
    assert len(result.trials) == 3
    assert (tmp_path / "search" / JOURNAL).read_bytes().startswith(whole)
    assert lines(tmp_path / "search")


def test_a_trial_whose_process_always_dies_is_given_up(parts, tmp_path: Path) -> None:
    folder = tmp_path / "search"
    tune(trees(), parts[0], validation=parts[1], out=folder, trials=1)
    about = next(line["user_attr"]["about"] for line in lines(folder) if "about" in line.get("user_attr", {}))
    from raindrop.search.space import distributions, search_space

    space = distributions(search_space(trees()))
    for attempt in (1, 2, 3):
        with Journal(folder) as journal:
            journal.open(about, lower_is_better=False, start={})
            trial = journal.next_trial(space, 2, 0)
            assert trial is not None
            assert trial.user_attrs.get("attempt", 1) == attempt
    result = tune(trees(), parts[0], validation=parts[1], out=folder, trials=3)
    assert [trial.state for trial in result.trials] == ["complete", "failed", "complete"]
    assert "ended 3 times without a result" in result.trials[1].failure


def test_several_processes_share_the_trials(parts, tmp_path: Path) -> None:
    seen, owners = [], set()
    for trials in (6, 40, 200):  # one process may have finished the first ones before the other has started
        result = tune(
            trees(),
            parts[0],
            validation=parts[1],
            out=tmp_path / "search",
            trials=trials,
            processes=2,
            show=seen.append,
        )
        of_trials = [line.get("user_attr", {}) for line in lines(tmp_path / "search")]
        owners = {about["process"] for about in of_trials if "process" in about}
        assert len(result.trials) == trials
        assert sum(trial.is_start for trial in result.trials) == 1
        if len(owners) > 1:
            break
    assert len(owners) > 1
    assert {trial.number for trial in seen} == set(range(len(result.trials)))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"config": TREES | {"model.rounds": 5}}, "setting"),
        ({"model": "raindrop", "config": QUICK}, "model"),
        ({"seed": 1}, "seed"),
        ({"preset": "paper"}, "preset"),
        ({"positive": 0}, "argument"),
    ],
)
def test_a_folder_with_another_search_is_refused(changed: dict[str, Any], word: str, parts, tmp_path: Path) -> None:
    tune(trees(), parts[0], validation=parts[1], out=tmp_path / "search", trials=1)
    before = (tmp_path / "search" / JOURNAL).read_bytes()
    other = trees().set_params(**changed)
    with pytest.raises(ResumeError, match=f"begun with another {word}"):
        tune(other, parts[0], validation=parts[1], out=tmp_path / "search", trials=2)
    assert (tmp_path / "search" / JOURNAL).read_bytes() == before


def test_a_folder_with_a_search_on_another_table_is_refused(parts, tmp_path: Path) -> None:
    tune(trees(), parts[0], validation=parts[1], out=tmp_path / "search", trials=1)
    with pytest.raises(ResumeError, match="begun with another training table"):
        tune(trees(), parts[0][:40], validation=parts[1], out=tmp_path / "search", trials=2)
    with pytest.raises(ResumeError, match="begun with another validation table"):
        tune(trees(), parts[0], validation=parts[1][:10], out=tmp_path / "search", trials=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials=0: a search has at least 1 trial"),
        ({"trials": -3}, "trials=-3"),
        ({"trials": 2.5}, "trials=2.5"),
        ({"minutes": 0}, "minutes=0: the time of a search must be a positive number"),
        ({"minutes": float("nan")}, "minutes=nan"),
        ({"processes": 0}, "processes=0: a search has at least 1 process"),
    ],
)
def test_impossible_numbers_are_refused(options: dict[str, Any], message: str, parts, tmp_path: Path) -> None:
    with pytest.raises(rd.ConfigError, match=message):
        tune(trees(), parts[0], validation=parts[1], out=tmp_path / "search", **options)
    assert not (tmp_path / "search").exists()


def test_no_validation_samples_is_an_error(parts, tmp_path: Path) -> None:
    estimator = rd.Classifier("trees", config=TREES | {"train.holdout": 0.0})
    with pytest.raises(rd.DataError, match="A search needs validation samples"):
        tune(estimator, parts[0], out=tmp_path / "search")
    alike = parts[1][parts[1].labels == 1]
    with pytest.raises(rd.DataError, match="validation samples are alike"):
        tune(trees(), parts[0], validation=alike, out=tmp_path / "search")
    assert not (tmp_path / "search").exists()


def test_groups_are_kept_together_where_validation_samples_are_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = easy_table(60)
    people = pl.Series([f"p{at // 4}" for at in range(len(table))])
    table = replace(table, samples=table.samples.with_columns(person=people)).with_roles(group="person")
    used: list[tuple[set[str], set[str]]] = []
    fit = rd.Classifier.fit

    def noted(self: rd.Classifier, X: rd.EventTable, *, validation: rd.EventTable, **options: Any) -> rd.Classifier:
        used.append((set(X.samples["person"]), set(validation.samples["person"])))
        return fit(self, X, validation=validation, **options)

    monkeypatch.setattr(rd.Classifier, "fit", noted)
    tune(trees(), table, out=tmp_path / "search", trials=2)
    assert len(used) == 2
    assert used[0] == used[1]
    assert used[0][1]
    assert not used[0][0] & used[0][1]


def test_files_of_others_are_left_alone(parts, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(rd.OutputExistsError, match=r"has other files \('notes.txt'\) and no search"):
        tune(trees(), parts[0], validation=parts[1], out=tmp_path, trials=1)
    with pytest.raises(rd.OutputExistsError, match="this is a file"):
        tune(trees(), parts[0], validation=parts[1], out=tmp_path / "notes.txt", trials=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def test_a_journal_that_is_none_is_refused(parts, tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text('not a journal\n{"op_code": 0}\n')
    with pytest.raises(rd.RaindropError, match="is not the journal of a search, or damaged"):
        tune(trees(), parts[0], validation=parts[1], out=tmp_path, trials=1)


def test_without_optuna_a_sentence_names_the_extra(parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'raindrop-ts\[tune\]'"):
        tune(trees(), parts[0], validation=parts[1], out=tmp_path / "search")


def test_only_estimators_of_samples_are_tuned(parts, tmp_path: Path) -> None:
    with pytest.raises(rd.ConfigError, match="tune takes a Classifier"):
        tune(rd.Imputer(), parts[0], out=tmp_path / "search")  # type: ignore[arg-type]


def test_soft_targets_are_grown_once_for_all_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from raindrop.models.trees import Trees

    grown, fit_rows = [], Trees.fit_rows

    def counted(self: Trees, *given: Any, **options: Any) -> Any:
        grown.append(1)
        return fit_rows(self, *given, **options)

    monkeypatch.setattr(Trees, "fit_rows", counted)
    monkeypatch.setattr("raindrop.training.distill.MAX_TREES", 10)
    table = easy_table(64)
    estimator = rd.Classifier(config=NETWORK | {"train.soft_targets": 0.7, "train.epochs": 1})
    tune(estimator, table[:48], validation=table[48:], out=tmp_path / "search", trials=3)
    assert len(grown) == 5  # folds
