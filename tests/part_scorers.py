"""Scorers of parts that need no model, for tests of engines; some end their process with SIGKILL."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from raindrop.errors import DataError
from raindrop.scale.messages import Part


@dataclass(frozen=True)
class Writer:
    """Writes each part's samples to its file; a part in `deadly` kills the process, once or always, others fail."""

    folder: Path
    deadly: tuple[int, ...] = ()
    always: bool = False
    endless: int | None = None
    refused: int | None = None
    broken: int | None = None

    def open(self) -> Callable[[Part], None]:
        """As a worker opens its model; each opening leaves a file with the id of its process."""
        (self.folder / f"opened-{os.getpid()}").touch()
        return self.score

    def score(self, part: Part) -> None:
        """Score a part, or fail in the way that was asked for."""
        if part.number in self.deadly:
            died = self.folder / f"died-{part.number}"
            if self.always or not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if part.number == self.endless:
            (self.folder / f"endless-{os.getpid()}").touch()
            time.sleep(600)
        if part.number == self.refused:
            raise DataError(f"part {part.number} cannot be used")
        if part.number == self.broken:
            raise ZeroDivisionError("a bug")
        with open(self.folder / part.file, "a") as file:
            file.write(f"{part.start} to {part.stop}\n")


def parts_of(number: int) -> list[Part]:
    """So many parts of ten samples."""
    return [Part(at, 10 * at, 10 * at + 10) for at in range(number)]


def written(folder: Path) -> dict[str, str]:
    """The content of the parts' files."""
    return {path.name: path.read_text() for path in sorted(folder.glob("part-*"))}


def expected(number: int) -> dict[str, str]:
    """What so many parts are when each is written once."""
    return {part.file: f"{part.start} to {part.stop}\n" for part in parts_of(number)}
