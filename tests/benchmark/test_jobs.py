"""A benchmark may be killed, shared and started again; the table is that of one which ran in peace."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dying import arm
from tiny import FILE, NETWORK, figures, finish, planned, prepare

from raindrop.benchmark import jobs as cells_module
from raindrop.benchmark import workers
from raindrop.benchmark.store import Store
from raindrop.benchmark.workers import work
from raindrop.cli.app import main
from raindrop.cli.benchmark import expected, progress
from raindrop.errors import ConfigError, TrainingError
from raindrop.estimators.classifier import load
from raindrop.version import source_checksum

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def whole(file: Path) -> dict[str, str]:
    """The tables of a benchmark that nobody interrupted."""
    return finish(file, file.parent / "whole")


@pytest.fixture
def done(file: Path, whole: dict[str, str], tmp_path: Path) -> Path:
    """A copy of the results of that benchmark."""
    return shutil.copytree(file.parent / "whole", tmp_path / "done")


@pytest.fixture(scope="module")
def fresh() -> Any:
    """Processes that have everything imported and nothing else done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["raindrop.estimators.classifier", "raindrop.cli.app", "torch._dynamo", "tiny", "dying"]
    )
    return context


def command(file: Path, out: Path, *more: str) -> list[str]:
    return ["benchmark", str(file), "--data", str(file.parent / "data"), "--out", str(out), *more]


# ---------------------------------------------------------------- killed


def dying_work(file: Path, out: Path, *place: Any) -> None:
    arm(*place)
    work(planned(file)[1], Store(out))


PLACES = [
    ("raindrop.training.loop", "_step", 8, "behind"),  # in the middle of an epoch
    ("raindrop.training.checkpoint", "save_file", 5, "behind"),  # while a checkpoint is written
    ("raindrop.benchmark.jobs", "_about", 1, "before"),  # the model is saved, its figures are not
    ("raindrop.benchmark.jobs", "apply", 5, "behind"),  # half of the settings are evaluated
]


def test_a_stored_figure_says_what_it_is_of(tmp_path):
    file = prepare(tmp_path, FILE.replace("positive = 1", 'positive = 1\nleave_out = ["age"]'))
    _, cells, _ = planned(file, [1])
    store, trees = Store(tmp_path / "out"), next(cell for cell in cells if cell.row.name == "Trees")
    work([trees], store)
    found = {
        tuple(row[name] for name in ("data", "label", "left_out", "model", "split")) for row in figures(store, trees)
    }
    assert found == {("tiny", "label", "age", "trees", 1)}
    assert {row["source"] for row in figures(store, trees)} == {source_checksum()}


@pytest.mark.slow
def test_killed_at_exact_places_it_ends_with_the_same_table(file, whole, fresh, tmp_path):
    for place in PLACES:
        process = fresh.Process(target=dying_work, args=(file, tmp_path, *place))
        process.start()
        process.join(300)
        assert process.exitcode == -signal.SIGKILL, place
    assert finish(file, tmp_path) == whole
    assert not [*tmp_path.glob("*/.*.partial-*"), *tmp_path.glob("runs/*/checkpoint*")]


@pytest.mark.slow
def test_the_command_killed_at_work_ends_with_the_same_table(file, whole, tmp_path):
    words = [sys.executable, "-m", "raindrop", *command(file, tmp_path)]
    process = subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    while not written(tmp_path) and process.poll() is None:
        time.sleep(0.02)
    assert process.poll() is None
    process.kill()  # its worker follows within a second, and may finish something until then
    process.wait()
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "6 done, 0 running, 0 to do" in ended.stdout
    assert {path.suffix: path.read_text() for path in tmp_path.glob("tiny.*")} == whole


def written(out: Path) -> set[str]:
    return {str(path) for pattern in ("runs/*/*.safetensors", "cells/*.parquet") for path in out.glob(pattern)}


@pytest.mark.slow
def test_a_worker_ends_with_the_process_that_started_it():
    worker = (
        "import os; from raindrop.benchmark.workers import _end_with; parent = os.getppid(); "
        "print('ready', flush=True); _end_with(parent)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait()
    reader = threading.Thread(target=process.stdout.read, daemon=True)  # ends when nobody holds the pipe any more
    reader.start()
    reader.join(60)
    assert not reader.is_alive()
    process.stdout.close()


# ---------------------------------------------------------------- nothing twice


def test_what_is_finished_is_not_run_again(file, whole, done, monkeypatch):
    monkeypatch.setattr(workers, "run_cell", lambda cell, store: pytest.fail(f"{cell.name} is run again"))
    assert finish(file, done) == whole


def test_a_new_setting_is_evaluated_without_training(file, done, monkeypatch):
    more = prepare(file.parent / "more", FILE.replace("random = [0.34]", "random = [0.34, 0.67]"))
    monkeypatch.setattr(cells_module.Classifier, "fit", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setattr(cells_module, "rank_sensors", lambda *_, **__: pytest.fail("ranked again"))
    finish(more, done)
    _, (cell, *_), _ = planned(more)
    assert [record["share"] for record in figures(Store(done), cell)] == [0, 0, 0.34, 0.34, 0.34, 0.34, 0.67, 0.67]
    assert len({cell.key for cell in planned(more)[1]} | {cell.key for cell in planned(file)[1]}) == 6


def with_blend(folder: Path, text: str = FILE) -> Path:
    """The file with a blend whose network is that of the row 'Net'."""
    settings = {name.replace("model.", "model.raindrop."): value for name, value in NETWORK.items()}
    settings |= {"model.trees.rounds": 4, "model.trees.min_samples": 2}
    words = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in settings.items())
    return prepare(folder, text + f'\n[[rows]]\nname = "Both"\nmodel = "blend"\nconfig = {{ {words} }}\n')


def test_a_blend_takes_the_network_that_another_row_has_trained(file, done, monkeypatch):
    more = with_blend(file.parent / "blend")
    monkeypatch.setattr("raindrop.estimators.classifier.train", lambda *_, **__: pytest.fail("trained again"))
    finish(more, done)
    cells = {(cell.row.name, cell.number): cell for cell in planned(more)[1]}
    for number in (1, 2, 3):
        both, net = (load(Store(done).run(cells[name, number].key)) for name in ("Both", "Net"))
        assert both.history_ == net.history_
        assert cells["Both", number].network_key == cells["Net", number].key


def test_a_network_that_a_blend_has_trained_is_that_of_the_row(file, whole, tmp_path, monkeypatch):
    cells = {cell.row.name: cell for cell in planned(with_blend(tmp_path / "blend"), [1])[1]}
    store = Store(tmp_path / "out")
    work([cells["Both"]], store)
    monkeypatch.setattr("raindrop.estimators.classifier.train", lambda *_, **__: pytest.fail("trained again"))
    work([cells["Net"]], store)
    assert not store.failure(cells["Net"].key)
    assert figures(store, cells["Net"]) == figures(Store(file.parent / "whole"), cells["Net"])


def test_a_blend_waits_while_another_process_trains_its_network(tmp_path, monkeypatch):
    both = next(cell for cell in planned(with_blend(tmp_path), [1])[1] if cell.row.name == "Both")
    store = Store(tmp_path / "out")
    with Store(tmp_path / "out").claim(str(both.network_key), "theirs"):
        assert not workers._run_if_free(both, store)
        assert not store.run(both.key).exists()
    claim = Store.claim

    @contextmanager
    def late(store: Store, key: str, name: str) -> Iterator[bool]:
        """The first claim of the network comes too late, as if another process had just taken it."""
        if key == both.network_key and not refused:
            refused.append(key)
            yield False
        else:
            with claim(store, key, name) as ours:
                yield ours

    refused: list[str] = []
    monkeypatch.setattr(Store, "claim", late)
    monkeypatch.setattr(cells_module, "PAUSE", 0.0)
    assert workers._run_if_free(both, store)
    assert refused
    assert store.has_model(str(both.network_key)), "it waited and then trained where the row would"
    assert not both.missing(store)


def test_a_blend_trains_anew_where_its_network_had_other_settings(tmp_path):
    both = next(cell for cell in planned(with_blend(tmp_path), [1])[1] if cell.row.name == "Both")
    store = Store(tmp_path / "out")
    table = cells_module.open_table(both.experiment.data, both.folder)
    train, val, _ = cells_module.parts_of(table, both.splits, both.number, both.folder)
    other = both.classifier().network_alone().set_params(seed=99)
    other.fit(train, validation=val, run=store.run(str(both.network_key)))
    work([both], store)
    assert store.failure(both.key) is None
    assert load(store.run(both.key)).history_ != other.history_


def counted_work(file: Path, out: Path, log: Path) -> None:
    original = workers.run_cell

    def counted(cell: Any, store: Any) -> None:
        with open(log, "a") as names:
            names.write(f"{cell.name}\n")
        original(cell, store)

    workers.run_cell = counted
    work(planned(file)[1], Store(out))


@pytest.mark.slow
def test_several_processes_share_the_cells_and_run_none_twice(file, whole, fresh, tmp_path):
    processes = [fresh.Process(target=counted_work, args=(file, tmp_path, tmp_path / "log")) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    assert sorted((tmp_path / "log").read_text().splitlines()) == sorted(cell.name for cell in planned(file)[1])
    assert finish(file, tmp_path) == whole


def test_a_cell_of_another_process_is_left_alone_until_that_ends(file, tmp_path):
    _, (cell, *_), _ = planned(file)
    ours, theirs = Store(tmp_path), Store(tmp_path)
    with ours.claim(cell.key, cell.name) as first:
        assert first
        assert (ours.running(cell.key) or {})["pid"] == os.getpid()
        with theirs.claim(cell.key, cell.name) as second:
            assert not second
    assert ours.running(cell.key) is None
    with theirs.claim(cell.key, cell.name) as third:
        assert third


# ---------------------------------------------------------------- failing, and going on


def test_a_cell_that_fails_does_not_stop_the_others_and_is_tried_again_next_time(file, tmp_path, monkeypatch):
    _, cells, _ = planned(file)
    store, original = Store(tmp_path), workers.run_cell

    def broken(cell: Any, store: Any) -> None:
        if cell.row.name == "Net":
            raise TrainingError("The loss became nan.")
        original(cell, store)

    monkeypatch.setattr(workers, "run_cell", broken)
    work(cells, store)
    assert [store.failure(cell.key) for cell in cells if cell.row.name == "Trees"] == [None] * 3
    assert store.failure(cells[0].key) == "tiny: Net, split 1: The loss became nan."
    monkeypatch.undo()
    for cell in cells:
        store.forget_failure(cell.key)
    work(cells, store)
    assert not any(cell.missing(store) for cell in cells)


@pytest.mark.slow
def test_a_run_begun_with_other_settings_than_the_model_has_now_begins_anew(file, whole, tmp_path, fresh):
    process = fresh.Process(target=dying_work, args=(file, tmp_path, "raindrop.training.loop", "_step", 8, "behind"))
    process.start()
    process.join(300)
    store = Store(tmp_path)
    begun = next(cell for cell in planned(file)[1] if store.run(cell.key).exists())
    assert begun.row.name == "Net"
    other = begun.classifier().set_params(seed=99)
    table = cells_module.open_table(begun.experiment.data, begun.folder)
    train, val, _ = cells_module.parts_of(table, begun.splits, begun.number, begun.folder)
    for path in store.run(begun.key).iterdir():
        path.unlink()
    other.fit(train, validation=val, run=store.run(begun.key), resume=True)
    (store.run(begun.key) / "model.json").unlink()  # as if killed before its end
    assert finish(file, tmp_path) == whole


def test_a_default_that_changed_since_is_not_passed_over(file, done):
    store, (cell, *_) = Store(done), planned(file)[1]
    known = store.read(cell.key)
    assert known is not None
    changed = known.with_columns(config=known["config"].str.replace('"layers": 1', '"layers": 3'))
    changed.write_parquet(done / "cells" / f"{cell.key}.parquet")
    with pytest.raises(ConfigError, match=r"was run when model.layers was 3 by default; now it is 1"):
        cells_module.refuse_other_defaults([cell], Store(done))


# ---------------------------------------------------------------- the command


@pytest.mark.slow
def test_the_command_with_two_workers_and_then_its_status(file, whole, tmp_path, capsys):
    main(command(file, tmp_path, "--workers", "2", "--splits", "1", "2"))
    said = capsys.readouterr().out
    assert "done: tiny: Trees, split 2: validation auroc" in said
    assert "4 done, 0 running, 0 to do" in said
    main(command(file, tmp_path, "--status"))
    said = capsys.readouterr().out
    assert "4 done, 0 running, 2 to do, end expected" in said
    assert "| Net | 2 |" in said
    main(command(file, tmp_path, "--rows", "trees"))
    main(command(file, tmp_path, "--rows", "net"))
    assert {path.suffix: path.read_text() for path in tmp_path.glob("tiny.*")} == whole


def test_progress_counts_and_expects_from_the_cells_of_the_same_row(file, tmp_path, monkeypatch):
    _, cells, _ = planned(file)
    store = Store(tmp_path)
    assert progress(cells, store, 1) == "0 done, 0 running, 6 to do"
    net, trees = ([cell for cell in cells if cell.row.name == name] for name in ("Net", "Trees"))
    work([net[0], trees[0]], store)
    for cell, seconds in ((net[0], 100.0), (trees[0], 10.0)):
        known = store.read(cell.key)
        assert known is not None
        known.with_columns(training_seconds=seconds, evaluation_seconds=0.0).write_parquet(
            tmp_path / "cells" / f"{cell.key}.parquet"
        )
    store = Store(tmp_path)
    assert expected([*net[1:], *trees[1:]], [net[0], trees[0]], store) == pytest.approx(220)
    assert expected([net[1], net[1]], [net[0]], store) == pytest.approx(100), "two tables, one training"
    blend = replace(trees[1], network_key=net[1].key)
    assert expected([blend], [net[0], trees[0]], store) == pytest.approx(10 + 55), "a blend's network, as any row"
    assert expected([net[1], blend], [net[0], trees[0]], store) == pytest.approx(100 + 10), "trained as its own row"
    shutil.copytree(store.run(net[0].key), store.run(net[2].key))
    assert expected(net[2:], [net[0]], store) == pytest.approx(0), "trained already, and evaluated in no time"
    with Store(tmp_path).claim(net[1].key, "ours"):
        assert progress(cells, store, 2).startswith("2 done, 1 running, 3 to do, end expected")
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 60)
        assert expected(net[1:2], [net[0]], store) == pytest.approx(40, abs=5)


@pytest.mark.slow
def test_a_failed_cell_is_named_at_the_end_with_exit_code_1(file, tmp_path, capsys):
    odd = prepare(file.parent / "odd", FILE.replace('"train.learning_rate" = 0.05', '"train.learning_rate" = 1e30'))
    with pytest.raises(SystemExit) as ended:
        main(command(odd, tmp_path, "--splits", "1"))
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert "1 of 2 cells could not be finished" in said.err
    assert "tiny: Net, split 1: The " in said.err
    assert "| Trees | 1 |" in said.out
    assert "1 done, 1 failed, 0 running, 0 to do" in said.out
    main(command(odd, tmp_path, "--splits", "1", "--status"))
    said = capsys.readouterr()
    assert "1 done, 1 failed, 0 running, 0 to do" in said.out
    assert "failed: tiny: Net, split 1: The " in said.out
