"""Processes that share the cells of a benchmark: each takes the first that is free, until none is left."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from raindrop.benchmark.jobs import PAUSE, Cell, run_cell
from raindrop.benchmark.store import Store
from raindrop.errors import RaindropError


def start(cells: Sequence[Cell], out: Path, number: int) -> list[BaseProcess]:
    """Start `number` processes that work on the cells; they end when all is done, or with this process."""
    fresh = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks of this process
    processes = [
        fresh.Process(target=_worker, args=(list(cells), out, os.getpid()), daemon=True) for _ in range(number)
    ]
    for process in processes:
        process.start()
    return list(processes)


def _worker(cells: list[Cell], out: Path, parent: int) -> None:
    for model in dict.fromkeys(model for cell in cells for model in cell.experiment.models):
        model.register()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        work(cells, Store(out))
    except KeyboardInterrupt:
        sys.exit(130)


def _end_with(parent: int) -> None:
    """A killed parent cannot stop its workers, so they look for it."""
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os._exit(1)


def work(cells: Sequence[Cell], store: Store) -> None:
    """Run the cells that are neither done nor failed nor another's; wait for those of others.

    One thread each: what a cell gives does not depend on how many work beside it.
    """
    torch.set_num_threads(1)
    with threadpool_limits(1):
        while left := [cell for cell in cells if not settled(cell, store)]:
            ran = [cell for cell in left if _run_if_free(cell, store)]
            if not ran:
                time.sleep(PAUSE)


def settled(cell: Cell, store: Store) -> bool:
    """Whether there is nothing more to do for a cell."""
    return not cell.missing(store) or store.failure(cell.key) is not None


def _run_if_free(cell: Cell, store: Store) -> bool:
    if cell.network_key is not None and store.running(cell.network_key) is not None:
        return False  # a blend waits for its network rather than train it a second time
    with store.claim(cell.key, cell.name) as ours:
        if not ours or settled(cell, store):
            return False
        try:
            run_cell(cell, store)
        except RaindropError as error:
            store.fail(cell.key, f"{cell.name}: {error}")
        except Exception:  # one broken model must not stop a night's work; the message is shown at the end
            store.fail(cell.key, f"{cell.name}:\n{traceback.format_exc()}")
        return True
