"""Several processes on one machine, started by torchrun, give what one process gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from closeness import NETWORK, assert_close, tolerance
from learnable import easy_table, words

from raindrop import EventTable, load
from raindrop.cli.app import main

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
DYING = [str(Path(__file__).parents[1] / "dying.py"), "raindrop.training.loop", "_step", "5", "before"]  # of 9 steps
SECONDS = 240  # more than enough; without it, processes that wait for one another would wait for ever


def command(data: Path, run: Path, *more: str) -> list[str]:
    # 39 training samples in batches of 13: the two processes never have equal shares
    settings = words(
        model__similarity=0, train__batch_size=13, train__checkpoint_minutes=0.0, train__learning_rate=0.01
    )
    return ["train", str(data), "--out", str(run), "--preset", "paper", "--set", *settings, *more]


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(
        [*TORCHRUN, *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        shown, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun hands it on
        raise
    return process.returncode, shown, errors


@pytest.mark.slow
def test_two_processes_killed_and_resumed_learn_what_one_does(tmp_path: Path) -> None:
    data = easy_table(49).write(tmp_path / "data")
    main(command(data, tmp_path / "one"))

    run = tmp_path / "two"
    code, _, _ = finish(start(*DYING, *command(data, run)))
    assert code != 0
    assert (run / "checkpoint.safetensors").exists()
    assert not (run / "model.json").exists()

    code, shown, errors = finish(start("-m", "raindrop", *command(data, run, "--resume")))
    assert code == 0, errors
    assert shown.count("wrote the model to") == 1
    assert shown.count("test: AUROC (1)") == 1
    names = ["checkpoint.safetensors", "log.jsonl", "model.json", "model.safetensors", "split.parquet"]
    assert sorted(path.name for path in run.iterdir()) == names

    # Adam moves a weight by the learning rate however small its gradient, so where a gradient is nothing but rounding
    # weights may differ. What the model predicts may not: by the roundings of one pass for each of the 9 steps.
    table = EventTable.read(data)
    one, two = (load(folder).predict_proba(table) for folder in (tmp_path / "one", run))
    assert_close(two, one, roundings=9 * NETWORK)
    logs = [
        [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        for folder in (tmp_path / "one", run)
    ]
    for alone, together in zip(*logs, strict=True):
        assert together["loss"] == pytest.approx(alone["loss"], abs=tolerance(roundings=9 * NETWORK))
        for name in ("log_loss", "brier"):  # a ranking could change where two of the 5 samples have nearly equal scores
            expected = pytest.approx(alone["validation"][name], abs=tolerance(roundings=9 * NETWORK))
            assert together["validation"][name] == expected
