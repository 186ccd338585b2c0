"""What a command leaves behind if it is killed before any of its file operations, found by running it once.

A kill changes no file: what it leaves is what the file system holds at that moment. So a copy of the folder, taken
before each operation, is what a kill there would have left; test_kill_points.py compares the two.
"""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import io
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHANGING = ("replace", "rename", "link", "symlink", "mkdir", "unlink", "remove", "rmdir", "fsync", "truncate")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
ENDED = 2**22 + 1
"""The number of a process that cannot be running: above the highest that Linux gives."""


@contextmanager
def before_operations(call: Callable[[], None]) -> Iterator[None]:
    """Call a function before every operation of this process that changes files: open to write, rename, fsync, ..."""

    def calling(original: Callable[..., Any], counts: Callable[..., bool] = lambda *_, **__: True) -> Any:
        def operation(*given: Any, **options: Any) -> Any:
            if counts(*given, **options):
                call()
            return original(*given, **options)

        return operation

    def is_written(file: Any, mode: str = "r", *_: Any, **__: Any) -> bool:
        return bool(set(mode) & set("wax+"))

    library = ctypes.CDLL

    class Exchanging:
        """The C library, in which exchanging two folders counts too."""

        def __init__(self, name: Any):
            self.renameat2 = calling(library(name).renameat2)

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGING:
            patch.setattr(os, name, calling(getattr(os, name)))
        patch.setattr(os, "open", calling(os.open, lambda path, flags, *_, **__: bool(flags & WRITING)))
        patch.setattr(builtins, "open", calling(builtins.open, is_written))
        patch.setattr(io, "open", calling(io.open, is_written))
        patch.setattr("raindrop.files.ctypes", type("counting ctypes", (), {"CDLL": Exchanging}))
        yield


@dataclass(frozen=True)
class State:
    """What a kill leaves: a copy of the folder, and the files in it that a person sees, with their hashes."""

    folder: Path
    visible: dict[str, str]


@dataclass
class Recording:
    """The different states of a folder before the operations of a command, in this order, and the last one."""

    operations: int = 0
    states: list[State] = field(default_factory=list)

    def by_visible(self) -> list[State]:
        """Of the states that look the same to a person the last, which has the most hidden files."""
        return list({tuple(sorted(state.visible.items())): state for state in self.states}.values())


@contextmanager
def recorded(folder: Path, copies: Path) -> Iterator[Recording]:
    """Copy a folder before every operation of the block, as a process that has ended since."""
    recording, busy, last = Recording(), False, None

    def copy() -> None:
        nonlocal last
        found = sorted((str(path), path.lstat()) for path in folder.rglob("*"))
        listing = [(name, about.st_size, about.st_mtime_ns, about.st_ino) for name, about in found]
        if listing == last:
            return
        last = listing
        target = copies / str(len(recording.states))
        shutil.copytree(folder, target, symlinks=True)
        recording.states.append(State(target, visible(target)))

    def copy_once() -> None:
        nonlocal busy
        if not busy:  # copying is not an operation of the command
            recording.operations += 1
            busy = True
            try:
                copy()
            finally:
                busy = False

    with before_operations(copy_once), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: ENDED)
        yield recording
    copy()


def visible(folder: Path) -> dict[str, str]:
    """The files that a person sees, with a hash of their content."""
    found = {path: path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {
        str(name): hashlib.sha256(path.read_bytes()).hexdigest()
        for path, name in found.items()
        if not any(part.startswith(".") for part in name.parts)
    }


def kill_before(numbers: Sequence[int], command: Callable[[Path], Any], folder: Path) -> None:
    """Run a command in FOLDER/NUMBER, for each number, that is killed before its file operation of this number.

    The command gets that folder, which must exist. Call it in a process that has started no thread yet: it forks.
    """
    for number in numbers:
        process = os.fork()
        if not process:
            operations = iter(range(1, number + 1))
            with before_operations(lambda of=operations, last=number: next(of) == last and _kill_itself()):  # type: ignore[misc]
                command(folder / str(number))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL, f"not killed before {number}"


def _kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def overwrite_out(folder: Path) -> None:
    """Write the table FOLDER/../data over FOLDER/out."""
    from raindrop.table.event_table import EventTable

    EventTable.read(folder.parent / "data").write(folder / "out", overwrite=True)
