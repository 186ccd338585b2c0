"""Several processes that work on one search."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from raindrop.errors import RaindropError
from raindrop.estimators.auto_parts import stop_signals
from raindrop.processes import end_with_parent
from raindrop.search.journal import POLL_SECONDS
from raindrop.search.result import TrialRecord, records
from raindrop.search.trials import Search, open_journal, work
from raindrop.table.event_table import EventTable


def work_in_processes(
    search: Search,
    training: EventTable,
    validation: EventTable,
    number: int,
    show: Callable[[TrialRecord], None],
) -> None:
    """Run trials in several processes, which share the tables through files in a temporary folder.

    If a process dies, the others take over its trial. Raises if all have ended and trials are left.
    """
    context = multiprocessing.get_context("spawn")  # a fork would copy this process's thread locks
    with tempfile.TemporaryDirectory(prefix="raindrop-search-") as shared, open_journal(search) as journal:
        tables = (training.write(Path(shared) / "train"), validation.write(Path(shared) / "val"))
        known = {record.number for record in records(journal.trials())}
        processes = [
            context.Process(target=_worker, args=(search, tables, os.getpid()), daemon=True) for _ in range(number)
        ]
        try:
            for process in processes:
                process.start()
            while any(process.is_alive() for process in processes):
                time.sleep(POLL_SECONDS)
                for record in records(journal.trials()):
                    if record.number not in known:
                        known.add(record.number)
                        show(record)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(10)
        unfinished = len(records(journal.trials())) < search.trials and not search.is_over()
    codes = sorted({process.exitcode for process in processes if process.exitcode})
    if unfinished and codes:
        raise RaindropError(
            f"{search.folder}: all processes ended unexpectedly (exit codes {', '.join(map(str, codes))}). What is "
            "finished is kept; run the command again to continue."
        )


def _worker(search: Search, tables: tuple[Path, Path], parent: int) -> None:
    end_with_parent(parent)
    training, validation = (EventTable.read(path) for path in tables)
    try:
        with stop_signals():
            work(search, training, validation)
    except KeyboardInterrupt:
        sys.exit(130)
    except RaindropError:  # the parent shows the reason from the journal
        return
