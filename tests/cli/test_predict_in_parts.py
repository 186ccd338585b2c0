"""`raindrop predict` in parts, and the engines of commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import Ask
from learnable import easy_table
from tiny import prepare

from raindrop import EventTable, load
from raindrop.estimators import Classifier
from raindrop.scale import scoring

TREES = {"model.rounds": 3, "model.min_samples": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return easy_table(60, classes=("ill", "well"), statics=("age", "ward")).write(
        tmp_path_factory.mktemp("parts") / "data"
    )


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    """A trained run with a split; no test may change it."""
    train, val, test = EventTable.read(data).split(seed=0)
    parts = {"train": train, "val": val, "test": test}
    Classifier("trees", config=TREES).fit(train, validation=val, run=data.parent / "run", parts=parts)
    return data.parent / "run"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 60 samples of the table are cut into twenty parts."""
    monkeypatch.setattr("raindrop.scale.parts.PART_SAMPLES", 3)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Which engine was given which number of processes and parts, and the table it opens; each works here."""
    used: list[tuple[Any, ...]] = []

    def work_here(engine: Any, work: Any, missing: Any, processes: Any, num_parts: int) -> Any:
        used.append((engine, processes, num_parts, work.table))
        scorer = work.open()
        for part in missing:
            scorer(part)
            yield part

    monkeypatch.setattr(scoring, "_by_engine", work_here)
    return used


def test_parts_are_written_and_told_as_the_whole_is(ask: Ask, data: Path, run: Path, tmp_path: Path) -> None:
    asked = ("--coverage", 0.9, "--by-class")
    code, shown, errors = ask("predict", run, data, "--out", tmp_path / "p.parquet", "--processes", 1, *asked)
    assert (code, errors) == (0, "")
    whole = load(run).predict_table(EventTable.read(data), coverage=0.9, by_class=True)
    assert pl.read_parquet(tmp_path / "p.parquet").equals(whole.frame())
    assert f"abstains for {whole.unsure.sum()} of 60 samples" in shown
    assert f"wrote 60 predictions to {tmp_path / 'p.parquet'}" in shown
    assert "predicting" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["p.parquet"]


def test_the_engine_gets_the_number_of_processes_and_the_folder_of_the_table(
    ask: Ask, data: Path, run: Path, tmp_path: Path, engines: list[tuple[Any, ...]]
) -> None:
    assert ask("predict", run, data, "--out", tmp_path / "p.csv", "--processes", 3)[0] == 0
    assert engines == [("local", 3, 20, data)]
    assert ask("predict", run, data, "--out", tmp_path / "q.csv")[0] == 0
    assert engines[1:] == [("local", None, 20, data)]  # twenty parts are no small table
    assert (tmp_path / "p.csv").read_text() == (tmp_path / "q.csv").read_text()


def test_a_part_of_a_split_and_other_files_are_written_for_the_workers(
    ask: Ask, data: Path, run: Path, tmp_path: Path, engines: list[tuple[Any, ...]]
) -> None:
    assert ask("predict", run, data, "--out", tmp_path / "p.csv", "--processes", 2, "--part", "test")[0] == 0
    assert pl.read_csv(tmp_path / "p.csv").height == 6
    table = EventTable.read(data)
    (tmp_path / "bare").mkdir()
    table.events().write_csv(tmp_path / "bare" / "events.csv")
    table.samples.write_csv(tmp_path / "bare" / "samples.csv")
    assert ask("predict", run, tmp_path / "bare", "--out", tmp_path / "q.csv", "--processes", 2)[0] == 0
    assert pl.read_csv(tmp_path / "q.csv")["sample"].to_list() == table.ids
    assert [opened for *_, opened in engines] == [tmp_path / f".{name}.csv.parts" / "table" for name in "pq"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare", "p.csv", "q.csv"]


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        ("--processes 0", 1, "processes=0: at least 1."),
        ("--engine spark", 2, "spark"),
        ("--engine ray", 1, "Install it with: pip install 'raindrop-ts[ray]'"),
    ],
)
def test_a_mistake_is_one_message(
    asked: str,
    code: int,
    message: str,
    ask: Ask,
    data: Path,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    found, _, errors = ask("predict", run, data, "--out", tmp_path / "p.csv", *asked.split())
    assert (found, errors.startswith("error: ")) == (code, True)
    assert message in errors
    assert list(tmp_path.iterdir()) == []


def test_a_benchmark_without_ray_says_what_to_install(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    file = prepare(tmp_path)
    code, _, errors = ask("benchmark", file, "--data", tmp_path / "data", "--out", tmp_path / "out", "--engine", "ray")
    assert code == 1
    assert "The engine 'ray' needs the package 'ray'" in errors
    assert not (tmp_path / "out").exists()
