"""The folder of a stream: its last saved state, and the journal of what arrived since.

The state refers to its journal by a number, its generation. To write a new state, an empty journal of the next
generation is created first; then the new state, which refers to it, atomically replaces the old one; then the old
journal is removed. So at any moment the state and its journal together contain everything exactly once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from raindrop.errors import RaindropError
from raindrop.files import HAS_LOCKS, NoLocksError, try_lock
from raindrop.serve.journal import Journal, read_entries
from raindrop.serve.state import STATE, State

MIN_JOURNAL = 16 << 20  # bytes; a journal longer than this and than the state is replaced by a new state


class StateFolder:
    """A folder with a state and its journal; `lock` opens it for writing."""

    def __init__(self, path: Path, *, sync: bool = True):
        self.path, self.sync = path, sync
        self.generation = 0
        self.journal: Journal | None = None
        self._lock: int | None = None

    @classmethod
    def lock(cls, path: Path, *, sync: bool = True) -> Self:
        """A folder for writing, created if necessary; raises if another process has it open."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RaindropError(f"{path}: the folder cannot be made ({error.strerror}).") from None
        folder = cls(path, sync=sync)
        if not HAS_LOCKS:
            return folder
        folder._lock = os.open(path, os.O_RDONLY)
        try:
            if try_lock(folder._lock):
                return folder
        except NoLocksError:
            folder.close()
            raise RaindropError(f"{path}: the file system has no locks; keep a stream on a local disk.") from None
        folder.close()
        raise RaindropError(f"{path}: another process has this stream open; close it there first.")

    @property
    def exists(self) -> bool:
        """Whether there is a state."""
        return (self.path / STATE).exists()

    def read(self) -> State:
        """The state; `entries` are those that arrived after it."""
        state = State.read(self.path)
        self.generation = state.generation
        return state

    def entries(self) -> Iterator[dict[str, Any]]:
        """What arrived after the state was written."""
        return read_entries(self._journal_path(self.generation))

    def write(self, state: State) -> None:
        """Write a new state, and start its journal."""
        following = self.generation + 1
        self._journal_path(following).unlink(missing_ok=True)  # left by a write that was killed
        journal = Journal(self._journal_path(following), sync=self.sync)
        try:
            replace(state, generation=following).write(self.path)
        except BaseException:
            journal.close()
            raise
        if self.journal is not None:
            self.journal.close()
        self.journal, self.generation = journal, following
        for old in self.path.glob("journal-*"):
            if old != journal.path:
                old.unlink(missing_ok=True)

    def append(self, entry: dict[str, Any]) -> None:
        """Write an entry to disk."""
        assert self.journal is not None
        self.journal.append(entry)

    @property
    def is_full(self) -> bool:
        """Whether it is time to write a new state."""
        assert self.journal is not None
        return self.journal.size > max(MIN_JOURNAL, (self.path / STATE).stat().st_size)

    def close(self) -> None:
        """Release the folder for other processes."""
        if self.journal is not None:
            self.journal.close()
            self.journal = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _journal_path(self, generation: int) -> Path:
        return self.path / f"journal-{generation}"
