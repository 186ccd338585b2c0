"""A run killed at any moment and resumed ends as if nothing had happened."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from dying import die_at
from learnable import QUICK, easy_table, words
from safetensors.torch import load_file

from raindrop.cli.app import main
from raindrop.errors import ConfigError, OutputExistsError, TrainingError
from raindrop.estimators.classifier import Classifier

pytestmark = pytest.mark.slow

# With the tuned preset: dropout, dropped readings, a moving average and a schedule that must all go on where they were.
SETTINGS = words(train__batch_size=8, train__epochs=3, train__checkpoint_minutes=0.0, train__ema_decay=0.9)
STEPS = 5  # per epoch
FILES = ("checkpoint.safetensors", "log.jsonl", "model.json", "model.safetensors", "split.parquet")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return easy_table(48, statics=("age", "ward")).write(tmp_path_factory.mktemp("data") / "table")


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody interrupted."""
    run = tmp_path_factory.mktemp("whole") / "run"
    main(command(data, run))
    return run


def command(data: Path, run: Path, *more: str) -> list[str]:
    return ["train", str(data), "--out", str(run), "--set", *SETTINGS, *more]


def log(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def is_the_same(run: Path, whole: Path) -> bool:
    found, expected = (load_file(folder / "model.safetensors") for folder in (run, whole))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert log(run) == log(whole)
    assert (run / "split.parquet").read_bytes() == (whole / "split.parquet").read_bytes()
    assert sorted(path.name for path in run.iterdir()) == sorted(FILES)
    return True


# ---------------------------------------------------------------- killed by itself, at an exact place


@pytest.fixture(scope="module")
def fresh() -> Iterator[Any]:
    """Processes that have everything imported and nothing else done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["raindrop.estimators.classifier", "raindrop.cli.app", "torch._dynamo", "dying"])
    return context


def kill(fresh: Any, arguments: list[str], *place: Any) -> None:
    process = fresh.Process(target=die_at, args=(arguments, *place))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


STEP, CHECKPOINT = ("raindrop.training.loop", "_step"), ("raindrop.training.loop", "save_checkpoint")
PLACES = {
    "before the first checkpoint": (*STEP, 1, "before"),
    "in the middle of the first epoch": (*STEP, 3, "behind"),
    "in the middle of the second epoch": (*STEP, STEPS + 3, "before"),
    "while a checkpoint is written": ("raindrop.training.checkpoint", "save_file", 4, "behind"),
    "right behind the checkpoint of an epoch": (*CHECKPOINT, STEPS, "behind"),
    "right behind the log of an epoch": ("raindrop.training.loop", "_log", 1, "behind"),
    "between the last checkpoint and the log": ("raindrop.training.loop", "_log", 3, "before"),
    "between the weights and their description": ("raindrop.estimators.persistence", "write_json", 1, "before"),
    "between the split and the model": ("raindrop.table.run_split", "file_checksum", 1, "behind"),
    "right behind the model": ("raindrop.estimators.base", "write_model", 1, "behind"),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_a_killed_run_ends_with_the_same_weights_and_log(
    place: tuple[str, str, int, str], fresh: Any, data: Path, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    kill(fresh, command(data, run), *place)
    assert (run / "split.parquet").exists() or not (run / "model.json").exists()
    main(command(data, run, "--resume"))
    assert is_the_same(run, whole)


def test_a_run_killed_twice_ends_with_the_same_weights_and_log(
    fresh: Any, data: Path, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    kill(fresh, command(data, run), *STEP, 4, "behind")
    kill(fresh, command(data, run, "--resume"), *STEP, 3, "behind")
    main(command(data, run, "--resume"))
    assert is_the_same(run, whole)


def test_a_resumed_run_does_not_begin_again(fresh: Any, data: Path, tmp_path: Path, monkeypatch: Any) -> None:
    run = tmp_path / "run"
    kill(fresh, command(data, run), *STEP, STEPS + 3, "behind")
    from raindrop.training import loop as training

    steps, step = [], training._step
    monkeypatch.setattr(training, "_step", lambda *given: steps.append(1) or step(*given))
    main(command(data, run, "--resume"))
    assert len(steps) == 3 * STEPS - (STEPS + 2)  # the step whose checkpoint was not written is made again


# ---------------------------------------------------------------- killed from outside


def test_the_real_command_killed_from_outside_is_resumed(data: Path, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-m", "raindrop", *command(data, run)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (run / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.wait()
    main(command(data, run, "--resume"))
    assert is_the_same(run, whole)


# ---------------------------------------------------------------- what cannot be resumed


def contents(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.iterdir()}


def failed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 1
    return capsys.readouterr().err


def test_resuming_a_finished_run_changes_nothing(data: Path, whole: Path) -> None:
    before = contents(whole)
    main(command(data, whole, "--resume"))
    assert contents(whole) == before


def test_without_resume_an_existing_run_is_refused(data: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(whole)
    assert "this folder exists already" in failed(command(data, whole), capsys)
    assert contents(whole) == before


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "stopped"])
@pytest.mark.parametrize("change", ["settings", "seed", "data", "label"])
def test_other_settings_seed_or_data_cannot_be_resumed(
    change: str, finished: bool, data: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    if not finished:
        (run / "model.json").unlink()
    before = contents(run)
    arguments = command(data, run, "--resume")
    if change == "settings":
        arguments.append("--set=model.sensor_dim=9")
    elif change == "seed":
        arguments += ["--seed", "1"]
    elif change == "data":
        arguments[1] = str(easy_table(48, statics=("age", "ward"), seed=7).write(tmp_path / "other"))
    else:
        arguments += ["--label", "ward", "--statics", "age"]
    errors = failed(arguments, capsys)
    assert f"{run}: " in errors
    assert "other data, settings, seed or version, so it cannot be resumed" in errors
    assert contents(run) == before


def test_a_saved_model_is_not_overwritten_by_resuming_another_run_in_its_folder(tmp_path: Path) -> None:
    table = easy_table(24)
    clf = Classifier(preset="paper", config=QUICK | {"train.epochs": 1}).fit(table)
    clf.save(tmp_path / "saved")
    before = contents(tmp_path / "saved")
    with pytest.raises(ConfigError, match="holds the model of a run with other data, settings, seed or version"):
        clf.set_params(seed=1).fit(table, run=tmp_path / "saved", resume=True)
    with pytest.raises(OutputExistsError):
        clf.fit(table, run=tmp_path / "saved")
    assert contents(tmp_path / "saved") == before


def test_resume_without_a_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match="give it with run='FOLDER'"):
        Classifier(config=QUICK).fit(easy_table(24), resume=True)


@pytest.mark.parametrize("damage", ["cut", "emptied", "a changed byte", "another file"])
def test_a_corrupt_checkpoint_is_a_clear_error(damage: str, tmp_path: Path) -> None:
    table, run = easy_table(24), tmp_path / "run"
    clf = Classifier(preset="paper", config=QUICK | {"train.epochs": 1}).fit(table, run=run)
    path = run / "checkpoint.safetensors"
    held = bytearray(path.read_bytes())
    if damage == "a changed byte":
        held[-100] ^= 1
    path.write_bytes({"cut": held[:-50], "emptied": b"", "another file": b"PK" * 500}.get(damage, held))
    with pytest.raises(TrainingError, match=r"checkpoint.safetensors: the checkpoint cannot be read .*start again"):
        clf.fit(table, run=run, resume=True)


def test_a_run_is_resumed_with_the_number_of_threads_it_was_started_with(
    fresh: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    kill(fresh, command(data, run, "--threads", "2"), *STEP, STEPS + 1, "behind")
    before = (run / "checkpoint.safetensors").read_bytes()
    with pytest.raises(SystemExit):
        main(command(data, run, "--threads", "1", "--resume"))
    errors = capsys.readouterr().err
    assert "was started with 2 threads, and this is 1; the last digits of a run depend on it" in errors
    assert "Resume it with --threads 2." in errors
    assert (run / "checkpoint.safetensors").read_bytes() == before
    main(command(data, run, "--threads", "2", "--resume"))
    main(command(data, run, "--threads", "1", "--resume"))  # it is finished: nothing is computed
    assert (run / "model.json").exists()
