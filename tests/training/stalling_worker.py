"""A worker of torchrun that stops answering once: `python stalling_worker.py FILE COMMAND ...`.

The last process creates FILE before its fifth step and waits, so that a test can switch its node off in the middle of
training. Where FILE is there already, it is a worker as any other.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from raindrop.cli.app import main
from raindrop.training import loop


def stall(file: Path) -> None:
    """Replace the step of training by one that waits at its fifth call."""
    original, calls = loop._step, iter(range(1, 1_000_000))

    def step(*arguments: Any) -> float:
        if next(calls) == 5:
            file.touch()
            time.sleep(600)
        return original(*arguments)

    loop._step = step


if __name__ == "__main__":
    reached = Path(sys.argv[1])
    if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1 and not reached.exists():
        stall(reached)
    main(sys.argv[2:])
