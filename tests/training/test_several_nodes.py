"""Two nodes with two processes each give what one process gives, also where a node dies and comes back."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from closeness import NETWORK, assert_close
from learnable import easy_table, words

from raindrop import EventTable, load
from raindrop.cli.app import main

SECONDS = 500  # more than enough; the processes import torch fifteen times
STALLING = str(Path(__file__).with_name("stalling_worker.py"))


def command(data: Path, run: Path) -> list[str]:
    # 39 training samples in batches of 13: the last of four processes has fewer than the others
    settings = words(
        model__similarity=0, train__batch_size=13, train__checkpoint_minutes=0.0, train__learning_rate=0.01
    )
    return ["train", str(data), "--out", str(run), "--preset", "paper", "--resume", "--set", *settings]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start_node(port: int, *arguments: str) -> subprocess.Popen[str]:
    """One node of two, with two processes."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
    torchrun += ["--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    torchrun += ["--rdzv-id", "two-nodes", "--rdzv-conf", "keep_alive_interval=1,keep_alive_max_attempt=2"]
    torchrun += ["--local-addr", "127.0.0.1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # or a restart meets at the addresses of those that ended
    return subprocess.Popen(
        [*torchrun, *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.1)


def listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def kill(node: subprocess.Popen[str]) -> None:
    """A node is switched off: its agent and the processes that this has started, which are sessions of their own."""
    if node.poll() is None:
        listed = Path(f"/proc/{node.pid}/task").glob("*/children")
        workers = [int(number) for children in listed for number in children.read_text().split()]
        for process in (node.pid, *workers):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    node.communicate()


@pytest.mark.slow
@pytest.mark.cluster
def test_a_node_that_dies_and_comes_back_changes_nothing(tmp_path: Path) -> None:
    data = easy_table(49).write(tmp_path / "data")
    main(command(data, tmp_path / "one"))
    run, port = tmp_path / "nodes", free_port()
    asked = [STALLING, str(tmp_path / "stalled"), *command(data, run)]

    first = start_node(port, *asked)
    try:
        wait_for(lambda: listens(port), "the meeting of the nodes")
        second = start_node(port, *asked)
        try:
            wait_for((tmp_path / "stalled").exists, "the fifth step")
            assert (run / "checkpoint.safetensors").exists()
        finally:
            kill(second)
        second = start_node(port, *asked)
        try:
            shown, errors = first.communicate(timeout=SECONDS)
            also_shown, more_errors = second.communicate(timeout=SECONDS)
        finally:
            kill(second)
    finally:
        kill(first)
    assert (first.returncode, second.returncode) == (0, 0), errors + more_errors
    assert (shown + also_shown).count("wrote the model to") == 1

    # Weights whose gradient is nothing but rounding may differ (Adam); what the model predicts may not.
    table = EventTable.read(data)
    one, nodes = (load(folder).predict_proba(table) for folder in (tmp_path / "one", run))
    assert_close(nodes, one, roundings=9 * NETWORK)

    whole = tmp_path / "whole"  # the same four processes, without failures: the same sums in the same order
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*torchrun, "-m", "raindrop", *command(data, whole)], env=environment, capture_output=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
