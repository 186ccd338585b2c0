"""The folder that collects the predictions of parts until all are complete, and from which stopped scoring resumes.

parts.json           the key of the work: model, table and options; predictions of other work are never taken
part-000000.parquet  the predictions of each part that is done
begun-000000         how often a part was begun on Ray and not finished
lock                 locked by the process that gathers them
table/               a copy of the table, where it is not in a folder that every worker can open
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl

from raindrop.errors import RaindropError, reading
from raindrop.files import NoLocksError, read_json, refuse_to_overwrite, try_lock, write_json
from raindrop.scale.messages import Part
from raindrop.scale.scorer import UNSURE

DESCRIPTION, TABLE, LOCK = "parts.json", "table", "lock"


@dataclass(frozen=True)
class Scored:
    """The predictions of a whole table."""

    frame: pl.DataFrame
    unsure: int | None
    """The number of samples for which no single answer reaches the coverage; None without a coverage."""


class PartsFolder:
    """The predictions of some parts of one job."""

    def __init__(self, path: Path, key: str, parts: Sequence[Part]):
        self.path, self.key, self.parts = path, key, parts

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Lock the folder. If no part is done it is removed at the end, otherwise the job can resume from it."""
        if self._stored_key() is None and self._has_other_files():
            refuse_to_overwrite(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open(self.path / LOCK, "a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise RaindropError(f"{self.path}: the folder cannot be created ({error.strerror}).") from None
        with lock:
            if not _locked(lock):
                raise RaindropError(
                    f"{self.path}: another process is scoring there. Wait until it has finished, or choose another "
                    "output."
                )
            if self._stored_key() != self.key:
                self._clear()
                write_json(self.path / DESCRIPTION, {"key": self.key})
            try:
                yield
            finally:
                if len(self.missing()) == len(self.parts):
                    self.remove()

    def missing(self) -> list[Part]:
        """The parts that are not done."""
        return [part for part in self.parts if not (self.path / part.file).exists()]

    def join(self, ids: pl.Series) -> Scored:
        """All predictions in the order of the table, whose samples are `ids`; raises if any is missing."""
        missing = self.missing()
        if missing:
            raise RaindropError(
                f"{self.path / missing[0].file}: was written by a worker, but it is not there. On several machines the "
                "folder of the predictions must be one that all of them share."
            )
        frames, unsure = [], None
        for part in self.parts:
            path = self.path / part.file
            with reading(path, "the predictions of a part of the table"):
                frames.append(pl.read_parquet(path, glob=False))
                number = pl.read_parquet_metadata(path).get(UNSURE)
            if number is not None:
                unsure = int(number) + (unsure or 0)
        frame = pl.concat(frames)
        if not frame["sample"].equals(ids):
            raise RaindropError(
                f"{self.path}: the predictions of the parts are not those of the table's samples. Remove the folder "
                "and run the command again."
            )
        return Scored(frame, unsure)

    def remove(self) -> None:
        """Remove the folder, unless it contains other files."""
        self._clear()
        (self.path / LOCK).unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    def _clear(self) -> None:
        for pattern in ("part-*.parquet", "begun-*", ".*.partial-*", DESCRIPTION):
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)
        shutil.rmtree(self.path / TABLE, ignore_errors=True)

    def _has_other_files(self) -> bool:
        """Whether the folder has files other than those that a killed process may have left."""
        if not self.path.is_dir():
            return self.path.exists()
        return any(path.name != LOCK and not path.name.startswith(f".{DESCRIPTION}") for path in self.path.iterdir())

    def _stored_key(self) -> str | None:
        try:
            return str(read_json(self.path / DESCRIPTION)["key"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _locked(file: IO[str]) -> bool:
    """Whether this process has locked the file; True on a file system without locks."""
    try:
        return try_lock(file)
    except NoLocksError:
        return True
