"""A command that kills itself before its n-th file operation: opening for writing, synchronising, renaming, ..."""

from __future__ import annotations

import builtins
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPERATIONS = ("replace", "rename", "fsync", "mkdir", "unlink", "remove", "rmdir")


def die_before(arguments: list[str], number: int, counted: Path) -> None:
    """Run a command that kills itself before its file operation `number`; 0 never does. Writes how many there were."""
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if done == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def counting(original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*given: Any, **options: Any) -> Any:
            count()
            return original(*given, **options)

        return operation

    for name in OPERATIONS:
        setattr(os, name, counting(getattr(os, name)))
    open_file = builtins.open

    def opening(file: Any, mode: str = "r", *given: Any, **options: Any) -> Any:
        if set(mode) & set("wax+"):
            count()
        return open_file(file, mode, *given, **options)

    builtins.open = opening  # type: ignore[assignment]
    library = ctypes.CDLL

    class Swapping:
        """The C library, in which exchanging two folders counts too."""

        def __init__(self, name: Any):
            self.renameat2 = counting(library(name).renameat2)

    import raindrop.files

    raindrop.files.ctypes = type("counting ctypes", (), {"CDLL": Swapping})  # type: ignore[assignment]
    sys.stdout = sys.stderr = open_file(os.devnull, "w")
    from raindrop.cli.app import main

    try:
        write_table(*arguments[1:]) if arguments[0] == "write" else main(arguments)
    except SystemExit as end:
        if end.code:
            raise
    with open_file(counted, "w") as file:
        file.write(str(done))


def write_table(source: str, target: str) -> None:
    """Write a table over another one; not a command, but what people do in Python."""
    from raindrop.table.event_table import EventTable

    EventTable.read(source).write(target, overwrite=True)
