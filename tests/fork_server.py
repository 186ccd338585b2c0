"""Python processes that start by a fork of one that has imported torch and the like, which takes seconds.

`use_fork_server` replaces what `subprocess`, `asyncio` and `multiprocessing` call to start a program. Where the program
is this Python with the command line of raindrop, one of its workers or a process of `multiprocessing`, it is forked
from a server. It is a process as any other: a child of the one that asked, with its own id, arguments, environment,
folder, files, signals and exit code, in which nothing of raindrop has been imported. Other programs start as ever.

What they share is the server's seed of hashes and its limits. A process that is started with other options of Python,
or with other variables that are read when it starts, is not forked.

A process can only become the child of an ancestor of the server, so each of them has a server of its own, which was
forked before anything was run.
"""

from __future__ import annotations

import _posixsubprocess
import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PRELOADED = (
    "torch",
    "torch._dynamo",
    "torch.distributed.run",
    "sklearn.ensemble",
    "scipy.stats",
    "scipy.optimize",
    "networkx",
    "safetensors.torch",
    "cyclopts",
    "rich.progress",
    "uvicorn",
    "fastapi",
    "prometheus_client",
    "multiprocessing.spawn",
)
UNSAFE = ("raindrop", "polars")  # the state of the one must be new; the threads of the other do not survive a fork
READ_AT_START = ("PYTHON", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "ATEN_", "LD_", "LC_", "LANG", "MALLOC_")
"""Variables that Python, its locale or the imported packages have read in the server; PYTHONPATH is no matter."""
FORKED = ("raindrop", "raindrop.serve.worker", "torch.distributed.run", "mkdocs")
"""What is forked by its name, `python -m NAME`."""
BY_FORK = "# by fork\n"
"""Code that begins with this line is forked too: `python -c CODE`."""
SCRIPTS = (Path(__file__).parent, Path(__file__).parents[1] / "examples")
"""Folders whose scripts are forked: `python FOLDER/NAME.py`."""
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
ABOVE = 512  # numbers of files that no test has open


def use_fork_server(environment: dict[str, str]) -> None:
    """Start processes by a fork from now on, where this machine can, unless RAINDROP_TEST_FORK=no."""
    if sys.platform == "linux" and environment.get("RAINDROP_TEST_FORK") != "no":
        started = dict(environment)
        _replace_start(_Client(lambda: _start_server(started), started))


def _start_server(environment: dict[str, str]) -> socket.socket:
    """A new Python that imports everything and then waits for requests; it ends with this process."""
    ours, its = socket.socketpair()
    words = [sys.executable, __file__, str(its.fileno())]
    variables = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    server = subprocess.Popen(words, pass_fds=[its.fileno()], env=variables, stdin=subprocess.DEVNULL)
    its.close()

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


class _Client:
    """The server of this process, started when it is first needed, and requests to it."""

    def __init__(self, start: Callable[[], socket.socket], environment: dict[str, str]):
        self._start, self._environment = start, environment
        self._connection: socket.socket | None = None
        self._lock, self._is_ours = threading.Lock(), True
        os.register_at_fork(after_in_child=self._forget)
        self._control = ctypes.CDLL(None).prctl

    def _forget(self) -> None:  # what is forked from this process has no server
        self._is_ours = False

    def fork(self, request: dict[str, Any], files: Sequence[int]) -> int | None:
        """The id of a new child of this process, or None where it must be started as ever."""
        if not self._is_ours or _read_at_start(request["environment"]) != _read_at_start(self._environment):
            return None
        with self._lock:
            self._connection = self._connection or self._start()
            self._control(SUBREAPER, 1, 0, 0, 0)  # whose parent ends becomes a child of this process
            try:
                content = json.dumps(request).encode()
                socket.send_fds(self._connection, [len(content).to_bytes(4, "big")], list(files))
                self._connection.sendall(content)
                return int(_read(self._connection, 10))
            finally:
                self._control(SUBREAPER, 0, 0, 0, 0)


def _read_at_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items()
            if name.startswith(READ_AT_START) and name != "PYTHONPATH" and value}  # fmt: skip


def _read(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        if not (more := connection.recv(size - len(content))):
            raise EOFError("the process at the other end is gone")
        content += more
    return content


# ---------------------------------------------------------------- which starts are forks


def _replace_start(client: _Client) -> None:
    start = _posixsubprocess.fork_exec

    def start_or_fork(*given: Any) -> int:
        if (asked := _understood(given)) and (process := client.fork(*asked)) is not None:
            return process
        return start(*given)

    _posixsubprocess.fork_exec = start_or_fork
    subprocess._fork_exec = start_or_fork  # type: ignore[attr-defined]


def _understood(given: Sequence[Any]) -> tuple[dict[str, Any], list[int]] | None:
    """What `fork_exec` is asked to start, and its files; None where it is not a program that is forked."""
    if len(given) != 23:  # as in Python 3.11 to 3.14
        return None
    arguments, _, close, kept, folder, environment, stdin, _, _, stdout, _, stderr, _, _, _, session, *rest = given
    words = [os.fsdecode(word) for word in arguments]
    if words[0] != sys.executable or not close or rest[:6] != [-1, None, None, None, -1, None] or not _forked(words):
        return None
    place = os.fsdecode(folder) if folder is not None else os.getcwd()
    if not os.path.isdir(place):
        return None
    if environment is None:
        variables = dict(os.environ)
    else:
        variables = dict(os.fsdecode(each).split("=", 1) for each in environment)
    error = given[13]  # the pipe by which exec reports failures; here there are none
    passed = {0: stdin, 1: stdout, 2: stderr, **{each: each for each in kept if each > 2 and each != error}}
    files = {number: number if file == -1 else file for number, file in passed.items()}
    request = {"words": words, "environment": variables, "folder": place, "session": bool(session)}
    return request | {"files": list(files)}, list(files.values())


def _forked(words: list[str]) -> bool:
    options, program = _split(words)
    if not set(options) <= {"-u", "-B"} or not program:
        return False
    if program[0] == "-m":
        return program[1] in FORKED
    if program[0] == "-c":
        return program[-1] == "--multiprocessing-fork" or program[1].startswith(BY_FORK)
    script = Path(program[0]).resolve()
    return script.parent in SCRIPTS and script != Path(__file__)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The options of Python, and the program with its arguments."""
    at = next((at for at, word in enumerate(words) if at and (word in ("-c", "-m") or word[0] != "-")), len(words))
    return words[1:at], words[at:]


# ---------------------------------------------------------------- the server


def _serve(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork a process for each request until the connection ends; in the new process, return its request and files."""
    while True:
        header, files, _, _ = socket.recv_fds(connection, 4, 64)
        if not header:
            os._exit(0)
        header += _read(connection, 4 - len(header))
        request = json.loads(_read(connection, int.from_bytes(header, "big")))
        (ids, id_end), (start, start_end) = os.pipe(), os.pipe()
        if not (between := _fork()):
            if not (process := _fork()):
                os.close(start_end)
                os.read(start, 1)  # until the process between is gone, and the one that asked is the parent
                return request, files
            os.write(id_end, b"%010d" % process)
            os._exit(0)
        os.waitpid(between, 0)
        process_id = os.read(ids, 10)
        for file in (ids, id_end, start, start_end, *files):
            os.close(file)
        connection.sendall(process_id)


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of threads; the only one is jemalloc's, which it restarts
        return os.fork()


def _become(request: dict[str, Any], received: list[int]) -> None:
    """Take the files, the folder and the environment of a request; all other files are closed."""
    targets = request["files"]
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, ABOVE) for file in received]
    for file, target in zip(high, targets, strict=True):
        os.dup2(file, target)
    before = 3
    for target in [*sorted(each for each in targets if each > 2), os.sysconf("SC_OPEN_MAX")]:
        os.closerange(before, target)
        before = target + 1
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()


def _leave_a_server() -> socket.socket | tuple[dict[str, Any], list[int]]:
    """A server for the processes that this one starts, as it is now: the connection to it.

    In a process that this server forks later, its request and files.
    """
    ours, its = socket.socketpair()
    if _fork():
        its.close()
        return ours
    ours.close()
    nothing = os.open(os.devnull, os.O_RDWR)
    kept = its.fileno()
    for file in (0, 1, 2):
        os.dup2(nothing, file)
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    return _serve(its)


def _run(words: list[str]) -> None:
    """Run a program as Python does that is started with these words."""
    options, (kind, *rest) = _split(words)
    if "-u" in options:
        for name, number in (("stdout", 1), ("stderr", 2)):
            text = io.TextIOWrapper(open(number, "wb", 0, closefd=False), "utf-8", write_through=True)  # noqa: SIM115
            setattr(sys, name, text)
    sys.orig_argv = words
    paths = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    first = {"-m": os.getcwd(), "-c": ""}.get(kind, os.path.dirname(kind))
    sys.path[:] = [first, *paths, *sys.path]
    if kind == "-m":
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv[:] = [kind, *rest[1:]]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        main.__annotations__ = {}
        exec(rest[0], main.__dict__)
    else:
        sys.argv[:] = [kind, *rest]
        runpy.run_path(kind, run_name="__main__")


def _main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    del sys.path[0]  # the folder of this file
    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # not every extra is installed
            importlib.import_module(name)
    assert not [name for name in UNSAFE if name in sys.modules]
    gc.collect()
    gc.freeze()
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked: Any = _serve(connection)
    while isinstance(asked, tuple):  # in a new process, and in each that its own server forks
        request, files = asked
        _become(request, files)
        asked = _leave_a_server()
    signal.signal(signal.SIGINT, on_interrupt)
    own: socket.socket = asked
    _replace_start(_Client(lambda: own, request["environment"]))
    _run(request["words"])


if __name__ == "__main__":
    _main()
