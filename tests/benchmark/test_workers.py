"""A benchmark may be killed, shared between processes and started again; its tables are the same in the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dying import kill_at
from tiny import TOML, finish, planned, prepare

from raindrop.benchmark import Store, work, workers
from raindrop.benchmark.workers import progress, remaining_seconds
from raindrop.cli.app import main
from raindrop.errors import TrainingError

pytestmark = pytest.mark.slow

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def command(file: Path, out: Path, *more: str) -> list[str]:
    return ["benchmark", str(file), "--data", str(file.parent / "data"), "--out", str(out), *more]


# ---------------------------------------------------------------- killed

PLACES = [
    ("raindrop.training.loop", "_step", 8, "after"),  # in the middle of an epoch
    ("raindrop.training.checkpoint", "save_file", 5, "after"),  # while a checkpoint is written
    ("raindrop.benchmark.jobs", "_describe_run", 1, "before"),  # the model is saved, its metrics are not
    ("raindrop.benchmark.jobs", "apply_setting", 5, "after"),  # half of the settings are evaluated
]


def work_until_killed(file: Path, out: Path, *place: Any) -> None:
    kill_at(*place)
    work(planned(file)[1], Store(out))


def test_killed_at_exact_places_it_ends_with_the_same_table(file, uninterrupted, fresh, tmp_path):
    for place in PLACES:
        process = fresh.Process(target=work_until_killed, args=(file, tmp_path, *place))
        process.start()
        process.join(300)
        assert process.exitcode == -signal.SIGKILL, place
    assert finish(file, tmp_path) == uninterrupted
    assert not [*tmp_path.glob("*/.*.partial-*"), *tmp_path.glob("runs/*/checkpoint*")]


def test_the_command_killed_during_work_ends_with_the_same_table(file, uninterrupted, tmp_path):
    words = [sys.executable, "-m", "raindrop", *command(file, tmp_path)]
    process = subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    while not written_files(tmp_path) and process.poll() is None:
        time.sleep(0.02)
    assert process.poll() is None
    process.kill()  # its worker ends within a second, and may finish a job until then
    process.wait()
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "6 done, 0 running, 0 to do" in ended.stdout
    assert {path.suffix: path.read_text() for path in tmp_path.glob("tiny.*")} == uninterrupted


def written_files(out: Path) -> set[str]:
    return {str(path) for pattern in ("runs/*/*.safetensors", "jobs/*.parquet") for path in out.glob(pattern)}


def test_a_worker_ends_with_the_process_that_started_it():
    worker = (
        "import os, time; from raindrop.processes import end_with_parent; end_with_parent(os.getppid()); "
        "print('ready', flush=True); time.sleep(600)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait()
    reader = threading.Thread(target=process.stdout.read, daemon=True)  # ends when no process holds the pipe
    reader.start()
    reader.join(60)
    assert not reader.is_alive()
    process.stdout.close()


# ---------------------------------------------------------------- shared


def work_and_log(file: Path, out: Path, log: Path) -> None:
    original = workers.run_job

    def logged(job: Any, store: Any) -> None:
        with open(log, "a") as names:
            names.write(f"{job.name}\n")
        original(job, store)

    workers.run_job = logged
    work(planned(file)[1], Store(out))


def test_several_processes_share_the_jobs_and_run_none_twice(file, uninterrupted, fresh, tmp_path):
    processes = [fresh.Process(target=work_and_log, args=(file, tmp_path, tmp_path / "log")) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    assert sorted((tmp_path / "log").read_text().splitlines()) == sorted(job.name for job in planned(file)[1])
    assert finish(file, tmp_path) == uninterrupted


def test_a_failed_job_does_not_stop_the_others_and_is_tried_again_next_time(file, tmp_path, monkeypatch):
    _, jobs, _ = planned(file)
    store, original = Store(tmp_path), workers.run_job

    def failing(job: Any, store: Any) -> None:
        if job.row.name == "Net":
            raise TrainingError("The loss became nan.")
        original(job, store)

    monkeypatch.setattr(workers, "run_job", failing)
    work(jobs, store)
    assert [store.failure(job.key) for job in jobs if job.row.name == "Trees"] == [None] * 3
    assert store.failure(jobs[0].key) == "tiny: Net, split 1: The loss became nan."
    monkeypatch.undo()
    for job in jobs:
        store.clear_failure(job.key)
    work(jobs, store)
    assert not any(job.missing_settings(store) for job in jobs)


# ---------------------------------------------------------------- the command and its progress


def test_the_command_with_two_workers_and_then_its_status(file, uninterrupted, tmp_path, capsys):
    main(command(file, tmp_path, "--workers", "2", "--splits", "1", "2"))
    output = capsys.readouterr().out
    assert "done: tiny: Trees, split 2: validation auroc" in output
    assert "4 done, 0 running, 0 to do" in output
    main(command(file, tmp_path, "--status"))
    output = capsys.readouterr().out
    assert "4 done, 0 running, 2 to do, end expected" in output
    assert "| Net | 2 |" in output
    main(command(file, tmp_path, "--rows", "trees"))
    main(command(file, tmp_path, "--rows", "net"))
    assert {path.suffix: path.read_text() for path in tmp_path.glob("tiny.*")} == uninterrupted


def test_the_remaining_time_is_estimated_from_jobs_of_the_same_row(file, tmp_path, monkeypatch):
    _, jobs, _ = planned(file)
    store = Store(tmp_path)
    assert progress(jobs, store, 1) == "0 done, 0 running, 6 to do"
    net, trees = ([job for job in jobs if job.row.name == name] for name in ("Net", "Trees"))
    work([net[0], trees[0]], store)
    for job, seconds in ((net[0], 100.0), (trees[0], 10.0)):
        metrics = store.read_metrics(job.key)
        assert metrics is not None
        metrics.with_columns(training_seconds=seconds, evaluation_seconds=0.0).write_parquet(
            store.metrics_file(job.key)
        )
    store = Store(tmp_path)
    done = [net[0], trees[0]]
    assert remaining_seconds([*net[1:], *trees[1:]], done, store) == pytest.approx(220)
    assert remaining_seconds([net[1], net[1]], [net[0]], store) == pytest.approx(100), "two tables, one training"
    blend = replace(trees[1], network_key=net[1].key)
    assert remaining_seconds([blend], done, store) == pytest.approx(10 + 55), "a blend's network, as any row"
    assert remaining_seconds([net[1], blend], done, store) == pytest.approx(100 + 10), "trained as its own row"
    shutil.copytree(store.run_folder(net[0].key), store.run_folder(net[2].key))
    assert remaining_seconds(net[2:], [net[0]], store) == pytest.approx(0), "trained already, evaluated in no time"
    with Store(tmp_path).claim(net[1].key, "ours"):
        assert progress(jobs, store, 2).startswith("2 done, 1 running, 3 to do, end expected")
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 60)
        assert remaining_seconds(net[1:2], [net[0]], store) == pytest.approx(40, abs=5)


def test_a_failed_job_is_named_at_the_end_with_exit_code_1(tmp_path, capsys):
    text = TOML.replace('"train.learning_rate" = 0.05', '"train.learning_rate" = 1e12')
    file, out = prepare(tmp_path / "failing", text), tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        main(command(file, out, "--splits", "1"))
    assert ended.value.code == 1
    captured = capsys.readouterr()
    assert "1 of 2 jobs could not be finished" in captured.err
    assert "tiny: Net, split 1: The " in captured.err
    assert "| Trees | 1 |" in captured.out
    assert "1 done, 1 failed, 0 running, 0 to do" in captured.out
    main(command(file, out, "--splits", "1", "--status"))
    captured = capsys.readouterr()
    assert "1 done, 1 failed, 0 running, 0 to do" in captured.out
    assert "failed: tiny: Net, split 1: The " in captured.out
