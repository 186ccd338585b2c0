"""A pool of processes on this machine that score parts.

Each process has one part at a time. One that ends before it has replied, for whatever reason, is replaced, and its part
is scored again; no part can be duplicated, since its file has its number.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from raindrop.processes import end_with_parent
from raindrop.scale.messages import MAX_ATTEMPTS, Done, LostPart, OpenScorer, Outcome, Part


def score_in_pool(open_scorer: OpenScorer, parts: Sequence[Part], processes: int) -> Done:
    """Score the parts, and yield each when it is done; raises LostPart if processes keep ending over one."""
    waiting, attempts = deque(parts), Counter[int]()
    workers = [_Worker(open_scorer) for _ in range(min(processes, len(parts)))]
    try:
        while waiting or any(worker.part is not None for worker in workers):
            for at, worker in enumerate(workers):
                if worker.part is None and waiting and not worker.give(waiting.popleft()):
                    workers[at] = _after_loss(worker, waiting, attempts, open_scorer)
            busy = [worker for worker in workers if worker.part is not None]
            ready = wait([worker.pipe for worker in busy])
            for worker in (worker for worker in busy if worker.pipe in ready):
                outcome = worker.take()
                if outcome is None:
                    workers[workers.index(worker)] = _after_loss(worker, waiting, attempts, open_scorer)
                    continue
                outcome.raise_failure()
                done, worker.part = worker.part, None
                assert done is not None
                yield done
    finally:
        for worker in workers:
            worker.end()


def _after_loss(worker: _Worker, waiting: deque[Part], attempts: Counter[int], open_scorer: OpenScorer) -> _Worker:
    """A new worker in place of one that ended; its part goes to the front of the queue."""
    worker.end()
    part = worker.part
    assert part is not None
    attempts[part.number] += 1
    if attempts[part.number] >= MAX_ATTEMPTS:
        raise LostPart(part, f"exit code {worker.process.exitcode}")
    waiting.appendleft(part)
    return _Worker(open_scorer)


class _Worker:
    """A process, the part it has, and the pipe to it."""

    def __init__(self, open_scorer: OpenScorer):
        context = multiprocessing.get_context("spawn")  # a fork would copy this process's thread locks
        self.pipe, its_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(its_end, open_scorer, os.getpid()), daemon=True)
        self.process.start()
        its_end.close()  # so that the pipe ends with the process
        self.part: Part | None = None

    def give(self, part: Part) -> bool:
        """Give it a part; False if the process has ended."""
        self.part = part
        try:
            self.pipe.send(part)
        except OSError:
            return False
        return True

    def take(self) -> Outcome | None:
        """Its result; None if the process ended without one."""
        try:
            outcome: Outcome = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return outcome

    def end(self) -> None:
        """End the process now, and wait until it is gone."""
        self.pipe.close()
        self.process.kill()  # its writes are atomic
        self.process.join()


def _serve(pipe: Connection, open_scorer: OpenScorer, parent: int) -> None:
    """The main function of a worker: score parts until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent reports Ctrl-C
    end_with_parent(parent)
    scorer = None
    while True:
        try:
            part: Part = pipe.recv()
        except EOFError:
            return
        try:
            scorer = scorer or open_scorer()
            scorer(part)
            outcome = Outcome(part.number)
        except BaseException as error:  # polars panics on some damaged files, and a panic is not an Exception
            outcome = Outcome.of_failure(part.number, error)
        with suppress(OSError):  # the parent is gone
            pipe.send(outcome)
