"""The store of results: a folder that several processes share and that stays intact if they are killed.

jobs/KEY.parquet     metrics of a finished job, one row per subset (val, test) and setting
runs/KEY/            the job's run: a checkpoint during training, then the model, so that new settings need no training
claims/KEY           locked by the process that runs the job; the system releases the lock when that process ends
failed/KEY.json      why a job failed; cleared when the benchmark is started again
rankings/KEY.json    sensors ranked by how well they predict the label in the training set of a split
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
from raindrop.files import NoLocksError, atomic_file, read_json, try_lock, write_json

FOLDERS = ("jobs", "runs", "claims", "failed", "rankings")


class Store:
    """Metrics, models, locks and failures of jobs, by job key."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        if (self.folder / "cells").is_dir():
            raise RaindropError(
                f"{self.folder}: holds results of raindrop 0.1, which this version cannot read. Choose another folder."
            )
        self._cache: dict[str, tuple[int, pl.DataFrame]] = {}  # key -> (time of the file's last change, content)
        try:
            for name in FOLDERS:
                (self.folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RaindropError(f"{self.folder}: results cannot be stored there ({error.strerror}).") from None

    # ---------------------------------------------------------------- models and metrics

    def run_folder(self, key: str) -> Path:
        """The folder where a job is trained and its model is kept."""
        return self.folder / "runs" / key

    def is_trained(self, key: str) -> bool:
        """Whether a job's model is stored."""
        return (self.run_folder(key) / "model.json").exists()

    def metrics_file(self, key: str) -> Path:
        """The file with a job's metrics."""
        return self.folder / "jobs" / f"{key}.parquet"

    def read_metrics(self, key: str) -> pl.DataFrame | None:
        """The metrics of a job; None if it has none yet."""
        path = self.metrics_file(key)
        try:
            changed = path.stat().st_mtime_ns
            if self._cache.get(key, (None,))[0] != changed:
                self._cache[key] = (changed, pl.read_parquet(path))
        except FileNotFoundError:
            return None
        except (OSError, pl.exceptions.PolarsError) as error:
            raise DataError(
                f"{path}: cannot be read ({str(error).splitlines()[0]}). Remove it, and the job is evaluated again."
            ) from None
        return self._cache[key][1]

    def append_metrics(self, key: str, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows to the metrics of a job."""
        old = self.read_metrics(key)
        new = pl.DataFrame(list(rows), infer_schema_length=None)
        with atomic_file(self.metrics_file(key)) as partial:
            (new if old is None else pl.concat([old, new], how="diagonal_relaxed")).write_parquet(partial)

    # ---------------------------------------------------------------- sharing the work

    @contextmanager
    def claim(self, key: str, name: str) -> Iterator[bool]:
        """Lock a job for the duration of the block; yields False if another process has it."""
        with open(self.folder / "claims" / key, "a+", encoding="utf-8") as file:
            if not _lock(file, shared=False):
                yield False
                return
            owner = {"name": name, "pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
            file.truncate(0)
            file.write(json.dumps(owner))
            file.flush()
            yield True

    def claimed_by(self, key: str) -> dict[str, Any] | None:
        """Name, process, host and start of a running job; None if no process runs it."""
        try:
            with open(self.folder / "claims" / key, encoding="utf-8") as file:
                if _lock(file, shared=True):
                    return None
                return dict(json.loads(file.read()))
        except FileNotFoundError:
            return None
        except ValueError:  # the owner is writing it right now
            return {}

    def record_failure(self, key: str, message: str) -> None:
        """Store why a job failed."""
        write_json(self._failure_file(key), {"message": message})

    def failure(self, key: str) -> str | None:
        """Why a job failed; None if it did not."""
        try:
            return str(read_json(self._failure_file(key))["message"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def clear_failure(self, key: str) -> None:
        """Forget a failure, so that the job is tried again."""
        self._failure_file(key).unlink(missing_ok=True)

    def _failure_file(self, key: str) -> Path:
        return self.folder / "failed" / f"{key}.json"

    # ---------------------------------------------------------------- rankings

    def read_ranking(self, key: str) -> list[tuple[str, float]] | None:
        """Sensors and their AUROC, most informative first; None if they have not been ranked yet."""
        try:
            entries = read_json(self._ranking_file(key))
            return [(str(sensor), float(score)) for sensor, score in entries]
        except (OSError, ValueError, TypeError):
            return None

    def write_ranking(self, key: str, ranking: Sequence[tuple[str, float]]) -> None:
        """Store a ranking for every job with the same training set."""
        write_json(self._ranking_file(key), [list(entry) for entry in ranking])

    def _ranking_file(self, key: str) -> Path:
        return self.folder / "rankings" / f"{key}.json"


def _lock(file: IO[str], *, shared: bool) -> bool:
    """Lock an open file until it is closed; False if another process has locked it."""
    try:
        return try_lock(file, shared=shared)
    except NoLocksError as error:
        raise RaindropError(
            f"{file.name}: the file system has no locks ({error.strerror}), so several processes could run the same "
            "job. Store the results on a local disk."
        ) from None
