"""A forked process cannot be told from a new one, except that torch is there already."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fork_server import BY_FORK

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or os.environ.get("RAINDROP_TEST_FORK") == "no", reason="no process is forked here"
    ),
]

ABOUT = """
import json, os, resource, signal, sys
fixed = {name: str(signal.getsignal(number)) for name, number in signal.Signals.__members__.items()}
print(json.dumps({
    "arguments": sys.argv, "path": sys.path, "folder": os.getcwd(), "environment": dict(os.environ),
    "parent": os.getppid(), "input": sys.stdin.read(),
    "signals": {key: text.split(" at ")[0] for key, text in fixed.items()},
    "group": os.getpgid(0), "session": os.getsid(0), "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
    "encodings": [sys.stdin.encoding, sys.stdout.encoding, sys.stderr.encoding], "main": sorted(globals()),
    "ours": sorted(name for name in sys.modules if name.split(".")[0] in ("raindrop", "polars", "fork_server")),
    "passed": os.read(int(sys.argv[1]), 100).decode(), "umask": os.umask(0o22), "flags": str(sys.flags),
}))
print("an error", file=sys.stderr)
"""
HAS_TORCH = "import sys; sys.exit('torch' in sys.modules)"


def python(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, **options)


def about(code: str, folder: Path) -> dict[str, Any]:
    (ours, its) = os.pipe()
    os.write(its, b"by a pipe")
    os.close(its)
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}/elsewhere", "A_NAME": "ä=b"}
    done = python("-c", code, str(ours), "two words", cwd=folder, input="typed", env=environment, pass_fds=[ours])
    os.close(ours)
    assert done.stderr == "an error\n"
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_a_forked_process_is_as_a_new_one(tmp_path: Path) -> None:
    forked, new = about(BY_FORK + ABOUT, tmp_path), about(ABOUT, tmp_path)
    assert forked == new
    assert forked["parent"] == os.getpid()
    assert forked["input"] == "typed"
    assert forked["passed"] == "by a pipe"
    assert forked["ours"] == []


def test_it_is_forked() -> None:
    assert python("-c", BY_FORK + HAS_TORCH).returncode == 1
    assert python("-c", HAS_TORCH).returncode == 0


ENDS = {
    "pass": 0,
    "raise SystemExit(7)": 7,
    "import sys; sys.exit('a sentence')": 1,
    "1 / 0": 1,
    "import os; os._exit(3)": 3,
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)": -signal.SIGTERM,
    "raise KeyboardInterrupt": -signal.SIGINT,
    "import atexit; atexit.register(print, 'last words'); print('first')": 0,
    "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()": 0,
}


@pytest.mark.parametrize("code", ENDS)
def test_it_ends_as_a_new_one(code: str) -> None:
    forked, new = python("-c", BY_FORK + code), python("-c", code)
    assert forked.returncode == new.returncode == ENDS[code]
    assert forked.stdout == new.stdout
    assert forked.stderr.splitlines()[-1:] == new.stderr.splitlines()[-1:]


def test_what_it_starts_is_its_child_and_is_forked_too() -> None:
    inner = f"{BY_FORK}import os, sys; print(os.getppid(), 'torch' in sys.modules)"
    outer = f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}]); print(os.getpid())"
    (parent, has_torch), (process,) = map(str.split, python("-c", BY_FORK + outer).stdout.splitlines())
    assert parent == process
    assert has_torch == "True"


def test_when_it_is_killed_nobody_holds_its_files() -> None:
    code = f"{BY_FORK}import time; print('ready', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.communicate(timeout=60) == ("", None)
    assert process.returncode == -signal.SIGKILL


def test_processes_of_multiprocessing_are_forked() -> None:
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=tell_and_die, args=(its,))
    process.start()
    assert ours.recv() == (os.getpid(), True)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def tell_and_die(its: Any) -> None:
    # `conftest` has torch imported in the process of the tests; the new one has imported this file alone
    its.send((os.getppid(), "torch._dynamo" in sys.modules))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["-I", "-c"], {}),
        (["-c"], {"env": {**os.environ, "OMP_NUM_THREADS": "3"}}),
        (["-c"], {"preexec_fn": lambda: None}),
        (["-c"], {"close_fds": False}),
        (["-c"], {"umask": 0o77}),
    ],
    ids=["another option", "another number of threads", "a function before it", "all files", "another mask"],
)
def test_what_cannot_be_forked_is_started_anew(words: list[str], options: dict[str, Any]) -> None:
    assert python(*words, BY_FORK + HAS_TORCH, **options).returncode == 0


def test_forks_can_be_turned_off() -> None:
    code = f"""
import os, subprocess, sys
from fork_server import use_fork_server
use_fork_server({{**os.environ, "RAINDROP_TEST_FORK": "no"}})
sys.exit(subprocess.run([sys.executable, "-c", {BY_FORK + HAS_TORCH!r}]).returncode)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    assert python("-c", code, env=environment).returncode == 0
