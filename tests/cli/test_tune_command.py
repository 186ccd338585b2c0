"""The command `raindrop tune`: writes settings that `raindrop train` reads, and never looks at test samples."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from command_line import Ask
from learnable import easy_table

from raindrop import EventTable, load
from raindrop.config import read_toml

TREES = ("--model", "trees", "--set", "model.rounds=4", "model.patience=2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return easy_table(80, classes=("ill", "well")).write(tmp_path_factory.mktemp("tune") / "data")


def test_the_best_settings_are_trained_by_the_command_that_it_names(ask: Ask, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "search"
    code, shown, errors = ask("tune", data, "--out", out, "--trials", 5, *TREES)
    assert (code, errors) == (0, "")
    assert "trial 0 (the settings to start from): " in shown
    assert "what mattered (share of the variance): model." in shown
    assert {path.name for path in out.iterdir() if path.name[0] != "."} == {"best.toml", "journal.jsonl", "search.html"}
    (line,) = re.findall(r"next: raindrop (.*)", shown)
    code, _, errors = ask(*line.replace("RUN", str(tmp_path / "run")).split())
    assert (code, errors) == (0, "")
    config = load(tmp_path / "run").resolved()["model"]
    assert {name: config[name] for name in read_toml(out / "best.toml")["model"]} == read_toml(out / "best.toml")[
        "model"
    ]


def test_the_same_command_goes_on_without_new_trials_once_all_are_finished(
    ask: Ask, data: Path, tmp_path: Path
) -> None:
    first = ask("tune", data, "--out", tmp_path / "search", "--trials", 2, *TREES)[1]
    again = ask("tune", data, "--out", tmp_path / "search", "--trials", 2, *TREES)[1]
    assert first.count("\ntrial ") + first.startswith("trial") == 2
    assert "trial 0" not in again.splitlines()[0]
    assert again.splitlines()[-3:] == first.splitlines()[-3:]


def test_test_samples_are_never_looked_at(ask: Ask, data: Path, tmp_path: Path) -> None:
    table = EventTable.read(data)
    ids = table.split(seed=0)[2].ids
    assert ask("tune", data, "--out", tmp_path / "search", "--trials", 1, *TREES)[0] == 0
    is_test = table.samples["sample"].is_in(ids).to_numpy()
    value = table.value[table.rows()].copy()
    value[[at for at, owner in enumerate(table.events()["sample"]) if owner in set(ids)]] = 1e9
    changed = replace(
        table,
        value=value,
        samples=table.samples.with_columns(age=pl.when(pl.Series(is_test)).then(-1.0).otherwise(pl.col("age"))),
    )
    assert changed.fingerprint != table.fingerprint
    other = changed.write(tmp_path / "other")
    code, shown, errors = ask("tune", other, "--out", tmp_path / "search", "--trials", 2, *TREES)
    assert (code, errors) == (0, "")  # the same search: what it is about has not changed
    assert "trial 1: " in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trials", 0], "trials=0: a search has at least 1 trial"),
        (["--model", "tres"], "Unknown model 'tres': did you mean 'trees'?"),
        (["--preset", "best"], "has no preset 'best'"),
        (["--split", "none"], "A search needs validation samples, and --split none has none"),
        (["--minutes", -1], "minutes=-1.0: the time of a search must be a positive number of minutes"),
        (["--processes", 0], "processes=0: a search has at least 1 process"),
        (["--task", "x"], "Unknown task 'x'"),
        (["--set", "train.metric=f2"], "f2"),
        (["--label", "nothing"], "nothing"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    ask: Ask, data: Path, tmp_path: Path, words: list[object], message: str
) -> None:
    code, _, errors = ask("tune", data, "--out", tmp_path / "search", *words)
    assert code == 1
    assert message in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "search").exists()


def test_a_search_of_another_model_in_the_folder_is_refused(ask: Ask, data: Path, tmp_path: Path) -> None:
    assert ask("tune", data, "--out", tmp_path / "search", "--trials", 1, *TREES)[0] == 0
    code, _, errors = ask("tune", data, "--out", tmp_path / "search", "--trials", 1, "--model", "grud")
    assert code == 1
    assert "the search there was begun with another model, so it cannot be continued" in errors
