"""Worker processes that share the jobs of a benchmark, and their progress."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

import torch
from threadpoolctl import threadpool_limits

from raindrop.benchmark.jobs import POLL_SECONDS, Job, run_job
from raindrop.benchmark.store import Store
from raindrop.errors import RaindropError
from raindrop.processes import end_with_parent

# ---------------------------------------------------------------- running jobs


class Worker(Protocol):
    """A process that runs jobs, on this machine or another."""

    def is_alive(self) -> bool:
        """Whether it is still running."""

    def join(self, timeout: float) -> None:
        """Wait until it has ended, or for this many seconds."""

    @property
    def exitcode(self) -> int | str | None:
        """0 if it succeeded, None if it has not ended."""


@contextmanager
def local_workers(jobs: Sequence[Job], out: Path, number: int) -> Iterator[list[BaseProcess]]:
    """`number` processes that run the jobs; they end when all are done, with the block, or with this process."""
    context = multiprocessing.get_context("spawn")  # a fork would copy this process's thread locks
    processes = [
        context.Process(target=_worker, args=(list(jobs), out, os.getpid()), daemon=True) for _ in range(number)
    ]
    try:
        for process in processes:
            process.start()
        yield list(processes)
    finally:
        for process in processes:
            if process.pid is not None:
                process.terminate()


def _worker(jobs: list[Job], out: Path, parent: int) -> None:
    end_with_parent(parent)
    try:
        run_worker(jobs, out)
    except KeyboardInterrupt:
        sys.exit(130)


def run_worker(jobs: Sequence[Job], out: Path) -> None:
    """The main function of a worker, on any machine: import the plugins, then take jobs until none is left."""
    for plugin in dict.fromkeys(plugin for job in jobs for plugin in job.experiment.plugins):
        plugin.register()
    work(jobs, Store(out))


def work(jobs: Sequence[Job], store: Store) -> None:
    """Run the jobs that no other process runs; return when all jobs are done or failed.

    Each process uses one thread, so that results do not depend on the number of workers.
    """
    torch.set_num_threads(1)
    with threadpool_limits(1):
        while pending := [job for job in jobs if not done_or_failed(job, store)]:
            finished = [job for job in pending if _run_if_free(job, store)]
            if not finished:
                time.sleep(POLL_SECONDS)


def done_or_failed(job: Job, store: Store) -> bool:
    """Whether there is nothing left to do for a job."""
    return not job.missing_settings(store) or store.failure(job.key) is not None


def _run_if_free(job: Job, store: Store) -> bool:
    if job.network_key is not None and store.claimed_by(job.network_key) is not None:
        return False  # a blend waits for its network instead of training it twice
    with store.claim(job.key, job.name) as claimed:
        if not claimed or done_or_failed(job, store):
            return False
        try:
            run_job(job, store)
        except RaindropError as error:
            store.record_failure(job.key, f"{job.name}: {error}")
        except Exception:  # one broken model must not stop the others; its traceback is printed at the end
            store.record_failure(job.key, f"{job.name}:\n{traceback.format_exc()}")
        return True


# ---------------------------------------------------------------- progress


def progress(jobs: Sequence[Job], store: Store, workers: int) -> str:
    """'12 done, 1 failed, 2 running, 26 to do, end expected Tue 14:05 (in 3 h 20 min)'."""
    done: list[Job] = []
    failed: list[Job] = []
    pending: list[Job] = []
    for job in {(job.key, job.experiment.settings): job for job in jobs}.values():
        state = done if not job.missing_settings(store) else pending if store.failure(job.key) is None else failed
        state.append(job)
    running = [job for job in pending if store.claimed_by(job.key) is not None]
    failures = f", {len(failed)} failed" if failed else ""
    text = f"{len(done)} done{failures}, {len(running)} running, {len(pending) - len(running)} to do"
    seconds = remaining_seconds(pending, done, store)
    if not pending or seconds is None:
        return text
    wait = seconds / max(1, min(max(workers, len(running)), len(pending)))
    end = time.strftime("%a %H:%M", time.localtime(time.time() + wait))
    return f"{text}, end expected {end} (in {format_duration(wait)})"


def remaining_seconds(pending: Sequence[Job], done: Sequence[Job], store: Store) -> float | None:
    """Seconds of work left, estimated from finished jobs of the same row and data, or of any row; None without any.

    A job that is trained already only counts the evaluation of its missing settings.
    """
    training: dict[tuple[str, str], list[float]] = {}
    evaluation: dict[tuple[str, str], list[float]] = {}  # per setting
    for job in done:
        metrics = store.read_metrics(job.key)
        if metrics is not None:
            training.setdefault(_kind(job), []).append(float(metrics["training_seconds"].max() or 0.0))  # type: ignore[arg-type]
            num_settings = metrics.select("hidden", "share", "replace_with").n_unique()
            evaluation.setdefault(_kind(job), []).append(float(metrics["evaluation_seconds"].sum()) / num_settings)
    if not training:
        return None
    total, counted = 0.0, set[str]()
    for job in pending:
        seconds = _mean_seconds(evaluation, _kind(job)) * len(job.missing_settings(store))
        for key in filter(None, (job.key, job.network_key)):
            if key not in counted and not store.is_trained(key):
                seconds += _mean_seconds(training, _kind(job) if key == job.key else None)
            counted.add(key)
        started = (store.claimed_by(job.key) or {}).get("started")
        total += max(0.0, seconds - (time.time() - started if started is not None else 0.0))
    return total


def _kind(job: Job) -> tuple[str, str]:
    return job.experiment.data.folder, job.row.name


def _mean_seconds(durations: dict[tuple[str, str], list[float]], kind: tuple[str, str] | None) -> float:
    """Mean over jobs of this kind, or over all kinds if there is none yet."""
    same_kind = durations.get(kind) if kind is not None else None
    seconds = same_kind or [sum(each) / len(each) for each in durations.values()]
    return sum(seconds) / len(seconds)


def format_duration(seconds: float) -> str:
    """'45 s', '12 min', '3 h 20 min'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
