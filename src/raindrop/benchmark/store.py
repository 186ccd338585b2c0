"""The store of finished work: a folder that several processes share and that a kill at any moment leaves sound.

cells/KEY.parquet    figures of a finished cell, one row per part and setting
runs/KEY/            its run: checkpoint while it trains, then the model, so that a later setting needs no training
claims/KEY           locked by the process that works on it; the system lets go of the lock when that process ends
failed/KEY.json      why a cell could not be finished; forgotten when a benchmark is started again
rankings/KEY.json    sensors by information, for the training part of a split
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import polars as pl

from raindrop.errors import DataError, RaindropError
from raindrop.files import atomic_file, write_json

try:
    import fcntl
except ImportError:  # no such locks on Windows, where one process at a time must do
    fcntl = None  # type: ignore[assignment]

CAN_SHARE = fcntl is not None


class Store:
    """Finished cells by key; who works on which."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        self._read: dict[str, tuple[int, pl.DataFrame]] = {}
        try:
            for name in ("cells", "runs", "claims", "failed", "rankings"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RaindropError(f"{self.folder}: results cannot be kept there ({error.strerror}).") from None

    def run(self, key: str) -> Path:
        """The folder in which a cell is trained and its model stays."""
        return self.folder / "runs" / key

    def has_model(self, key: str) -> bool:
        """Whether a cell is trained."""
        return (self.run(key) / "model.json").exists()

    # ---------------------------------------------------------------- figures

    def read(self, key: str) -> pl.DataFrame | None:
        """The figures of a cell, where there are any."""
        path = self.folder / "cells" / f"{key}.parquet"
        try:
            changed = path.stat().st_mtime_ns
            if self._read.get(key, (None,))[0] != changed:
                self._read[key] = (changed, pl.read_parquet(path))
        except FileNotFoundError:
            return None
        except (OSError, pl.exceptions.PolarsError) as error:
            raise DataError(
                f"{path}: cannot be read ({str(error).splitlines()[0]}). Remove it, and the cell is evaluated again."
            ) from None
        return self._read[key][1]

    def write(self, key: str, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows to the figures of a cell."""
        known = self.read(key)
        new = pl.DataFrame(list(rows), infer_schema_length=None)
        with atomic_file(self.folder / "cells" / f"{key}.parquet") as partial:
            (new if known is None else pl.concat([known, new], how="diagonal_relaxed")).write_parquet(partial)

    # ---------------------------------------------------------------- sharing the work

    @contextmanager
    def claim(self, key: str, name: str) -> Iterator[bool]:
        """Whether the cell is ours while the block lasts; not so where another process works on it."""
        with open(self.folder / "claims" / key, "a+", encoding="utf-8") as file:
            if not _lock(file, shared=False):
                yield False
                return
            about = {"name": name, "pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
            file.truncate(0)
            file.write(json.dumps(about))
            file.flush()
            yield True

    def running(self, key: str) -> dict[str, Any] | None:
        """Who works on a cell, and since when."""
        try:
            with open(self.folder / "claims" / key, encoding="utf-8") as file:
                if _lock(file, shared=True):
                    return None
                return dict(json.loads(file.read()))
        except FileNotFoundError:
            return None
        except ValueError:  # just being written
            return {}

    def fail(self, key: str, message: str) -> None:
        """Remember why a cell could not be finished."""
        write_json(self.folder / "failed" / f"{key}.json", {"message": message})

    def failure(self, key: str) -> str | None:
        """Why a cell could not be finished."""
        try:
            return str(json.loads((self.folder / "failed" / f"{key}.json").read_text(encoding="utf-8"))["message"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def forget_failure(self, key: str) -> None:
        """Try the cell again."""
        (self.folder / "failed" / f"{key}.json").unlink(missing_ok=True)

    # ---------------------------------------------------------------- rankings

    def ranking(self, key: str) -> list[tuple[str, float]] | None:
        """Sensors and their AUROC, the most informative first."""
        try:
            found = json.loads((self.folder / "rankings" / f"{key}.json").read_text(encoding="utf-8"))
            return [(str(sensor), float(score)) for sensor, score in found]
        except (OSError, ValueError, TypeError):
            return None

    def keep_ranking(self, key: str, ranking: Sequence[tuple[str, float]]) -> None:
        """Keep it for every cell with the same training part."""
        write_json(self.folder / "rankings" / f"{key}.json", [list(entry) for entry in ranking])


def _lock(file: IO[str], *, shared: bool) -> bool:
    """Lock an open file until it is closed; False where another process has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise RaindropError(
            f"{file.name}: the file system has no locks ({error.strerror}), so several processes could do the same "
            "work. Keep the results on a local disk."
        ) from None
    return True
