"""Benchmark jobs on Ray: its tasks run the same worker on the same store, which all machines share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from raindrop.benchmark.jobs import Job
from raindrop.benchmark.workers import run_worker
from raindrop.errors import first_line
from raindrop.scale.ray_session import ray_session

MAX_RETRIES = 3  # of a worker whose process or machine is lost; finished jobs are not run again


@contextmanager
def ray_workers(jobs: Sequence[Job], out: Path, number: int) -> Iterator[list[RayWorker]]:
    """`number` workers on the cluster for the duration of the block; they end when all jobs are done."""
    jobs = [replace(job, folder=job.folder.resolve()) for job in jobs]
    with ray_session(number) as ray:
        task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(run_worker)
        shared = ray.put(jobs)
        workers = [RayWorker(ray, task.remote(shared, out.resolve())) for _ in range(number)]
        try:
            yield workers
        finally:
            for worker in workers:
                worker.terminate()


class RayWorker:
    """A worker as a task of Ray, with the methods of a process that a benchmark uses."""

    def __init__(self, ray: Any, task: Any):
        self.ray, self.task = ray, task

    def is_alive(self) -> bool:
        """Whether it is still running, or waiting to be run."""
        return not self._ended(0.0)

    def join(self, timeout: float) -> None:
        """Wait until it has ended, or for this many seconds."""
        self._ended(timeout)

    def terminate(self) -> None:
        """End it."""
        if self.is_alive():
            self.ray.cancel(self.task, force=True)

    @property
    def exitcode(self) -> int | str | None:
        """None while it runs, 0 if it succeeded, otherwise Ray's message."""
        if self.is_alive():
            return None
        try:
            self.ray.get(self.task)
        except Exception as error:  # of Ray, or of a plugin
            return first_line(error)
        return 0

    def _ended(self, seconds: float) -> bool:
        ready, _ = self.ray.wait([self.task], timeout=seconds)
        return bool(ready)
