"""A command that kills itself at an exact place: `python dying.py MODULE FUNCTION CALL before|after COMMAND ...`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

from raindrop.cli.app import main


def die_at(arguments: list[str], module_name: str, function_name: str, call: int, when: str) -> None:
    """Run a command that kills itself before or after the given call of a function."""
    kill_at(module_name, function_name, call, when)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    main(arguments)


def kill_at(module_name: str, function_name: str, call: int, when: str) -> None:
    """Make this process kill itself before or after the given call of a function."""
    module = importlib.import_module(module_name)
    original, calls = getattr(module, function_name), iter(range(1, 1_000_000))

    def deadly(*arguments: Any, **options: Any) -> Any:
        is_the_call = next(calls) == call
        if is_the_call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if is_the_call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(module, function_name, deadly)


if __name__ == "__main__":
    die_at(sys.argv[5:], sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
