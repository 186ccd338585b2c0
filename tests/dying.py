"""A command that kills itself at an exact place: `python dying.py MODULE FUNCTION CALL before|behind COMMAND ...`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

from raindrop.cli.app import main


def die_at(arguments: list[str], module: str, function: str, call: int, when: str) -> None:
    """Run a command that kills itself before or behind the given call of a function."""
    arm(module, function, call, when)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    main(arguments)


def arm(module: str, function: str, call: int, when: str) -> None:
    """Make a function deadly at the given call."""
    held = importlib.import_module(module)
    original, calls = getattr(held, function), iter(range(1, 1_000_000))

    def deadly(*given: Any, **options: Any) -> Any:
        now = next(calls) == call
        if now and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*given, **options)
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(held, function, deadly)


if __name__ == "__main__":
    die_at(sys.argv[5:], sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
