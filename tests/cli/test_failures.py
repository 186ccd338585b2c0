"""What is nobody's bug: a full disk, a closed pipe, an unreadable file, a signal. One sentence and an exit code."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import Ask
from fork_server import BY_FORK
from learnable import easy_table, words

from raindrop.cli.app import main
from raindrop.errors import describe_failure

FULL_DISK = """
import resource, runpy, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
runpy.run_module("raindrop", run_name="__main__")
"""
"""`python -m raindrop` whose files have at most 700 bytes: the closest to a full disk that needs no rights."""
TRAIN = ("--preset", "paper", "--set", *words(train__epochs=1))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return easy_table(60, classes=("ill", "well")).write(tmp_path_factory.mktemp("failures") / "data")


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    main(["train", str(data), "--out", str(data.parent / "run"), *TRAIN])
    return data.parent / "run"


def command(*asked: object, **options: Any) -> subprocess.CompletedProcess[str]:
    asked = (sys.executable, "-m", "raindrop", *map(str, asked))
    return subprocess.run(asked, capture_output="stdout" not in options, text=True, **options)  # type: ignore[call-overload, no-any-return]


def is_one_sentence(errors: str) -> bool:
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    lines = [line for line in errors.splitlines() if not line.startswith("note: ")]
    return lines[0].startswith("error: ") and len(lines) <= 3


@pytest.mark.slow
def test_output_that_cannot_be_written_is_a_sentence(data: Path) -> None:
    with open("/dev/full", "w") as full:
        done = command("inspect", data, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert is_one_sentence(done.stderr)
    assert "No space left on device" in done.stderr


@pytest.mark.slow
def test_a_closed_pipe_is_no_error_of_ours(data: Path) -> None:
    asked = [sys.executable, "-m", "raindrop", "inspect", str(data)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["predict RUN DATA --out OUT.parquet", "train DATA"])
def test_a_full_disk_is_a_sentence_and_leaves_nothing(asked: str, data: Path, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    places = {"RUN": run, "DATA": data, "OUT.csv": f"{out}.csv", "OUT.parquet": f"{out}.parquet"}
    given = [places.get(word, word) for word in asked.split()]
    more = ["--out", out, *TRAIN] if given[0] == "train" else []
    words = [sys.executable, "-c", BY_FORK + FULL_DISK, *map(str, given), *map(str, more)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert is_one_sentence(done.stderr), done.stderr
    assert list(tmp_path.rglob("*.partial-*")) == []
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "out" / "model.json").exists()


@pytest.mark.slow
def test_an_unreadable_file_is_a_sentence(ask: Ask, data: Path, run: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "events.csv").mkdir()
    for asked in (
        ("inspect", tmp_path / "loop"),
        ("inspect", tmp_path / "data"),
        ("train", data, "--out", tmp_path / "run", "--config", tmp_path),
        ("train", data, "--out", tmp_path / "run", "--split", tmp_path / "loop"),
        ("predict", run, data, "--out", tmp_path / "loop" / "p.csv"),
        ("predict", run, data, "--out", tmp_path / ("x" * 300 + ".csv")),
        ("train", data, "--out", tmp_path / ("x" * 300), *TRAIN),
        ("inspect", "x" * 5000),
    ):
        code, _, errors = ask(*asked)
        assert code == 1, asked
        assert is_one_sentence(errors), errors


def test_json_that_is_nested_without_end_is_a_sentence(ask: Ask, data: Path, run: Path, tmp_path: Path) -> None:
    deep = "[" * 200_000 + "]" * 200_000
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.json").write_text(deep)
    (tmp_path / "data").mkdir()
    for name in ("events.parquet", "samples.parquet"):
        (tmp_path / "data" / name).write_bytes((data / name).read_bytes())
    (tmp_path / "data" / "table.json").write_text(deep)
    (tmp_path / "deep.toml").write_text(f"a = {deep}")
    for asked in (
        ("evaluate", tmp_path / "run", data),
        ("inspect", tmp_path / "data"),
        ("train", data, "--out", tmp_path / "new", "--config", tmp_path / "deep.toml"),
        ("train", data, "--out", tmp_path / "new", "--set", f"train.epochs={deep[:4000]}"),
    ):
        code, _, errors = ask(*asked)
        assert code == 1
        assert is_one_sentence(errors), errors[:300]


@pytest.mark.parametrize("samples", [-1, 0, 1, 5])
def test_a_demo_of_no_samples_is_a_sentence(samples: int, ask: Ask, tmp_path: Path) -> None:
    code, shown, errors = ask("demo", "--samples", samples, "--out", tmp_path / "demo")
    assert code == 1
    assert shown == "", "it is refused before anything else is done"
    assert is_one_sentence(errors), errors
    assert not (tmp_path / "demo").exists()


COMMANDS_WITH_A_SEED = ["inspect DATA", "graph DATA --out OUT", "fit DATA --out OUT", "train DATA --out OUT"]


@pytest.mark.parametrize("command", COMMANDS_WITH_A_SEED)
@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_is_none_is_a_sentence(command: str, seed: int, ask: Ask, data: Path, tmp_path: Path) -> None:
    places = {"DATA": data, "OUT": tmp_path / "out"}
    code, _, errors = ask(*(places.get(word, word) for word in command.split()), "--seed", seed)
    assert code == 1
    assert f"seed={seed}: a seed is a whole number, 0 or above." in errors


@pytest.mark.parametrize("size", ["2", "many", "-1", "1.5"])
def test_several_processes_without_torchrun_are_a_sentence(
    size: str, ask: Ask, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    code, _, errors = ask("train", data, "--out", tmp_path / "run", *TRAIN)
    assert code == 1
    assert f"WORLD_SIZE={size} asks for several processes, but RANK, MASTER_ADDR, MASTER_PORT are not set" in errors
    assert "torchrun --nproc-per-node 2" in errors
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_sigterm_says_what_happened_and_the_run_can_be_resumed(data: Path, tmp_path: Path) -> None:
    settings = words(train__epochs=100_000, train__checkpoint_minutes=0.0)
    asked = ["train", str(data), "--out", str(tmp_path / "run"), "--preset", "paper", "--set", *settings]
    with subprocess.Popen([sys.executable, "-m", "raindrop", *asked], stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while not (tmp_path / "run" / "checkpoint.safetensors").exists() and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        errors = process.stderr.read()
    assert process.returncode == 128 + signal.SIGTERM
    assert "Terminated by the system or another program (SIGTERM). Stopped. What was saved is kept" in errors
    assert "Traceback" not in errors
    assert list((tmp_path / "run").glob(".*.partial-*")) == []


def test_failures_of_the_system_have_a_sentence_and_bugs_have_none() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/out")
    assert describe_failure(full) == ("/data/out: No space left on device. Free some space, or write to another disk.")
    assert "not enough memory" in str(describe_failure(MemoryError()))
    assert "not enough memory" in str(describe_failure(RuntimeError("DefaultCPUAllocator: can't allocate memory: 9")))
    panic = type("PanicException", (BaseException,), {})("index out of bounds")
    assert describe_failure(panic) == (
        "A file cannot be read or written: index out of bounds. Is it damaged, or the disk full?"
    )
    for bug in (RuntimeError("shape"), ValueError("x"), KeyError("x"), json.JSONDecodeError("x", "", 0)):
        assert describe_failure(bug) is None
