"""The pool of workers: requests wait in one queue, and a free worker takes as many as can be scored together.

Nothing waits for a batch to fill: a request that finds a free worker runs immediately, and batches form while workers
are busy. A worker that dies, or takes too long, is replaced, and its requests are repeated one by one, so that a
request that kills workers does not affect the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from raindrop.serve.failures import RequestError, place_of
from raindrop.serve.limits import Limits
from raindrop.serve.messages import Job, Reply, pack
from raindrop.serve.worker import Start
from raindrop.serve.worker_process import StartFailed, Worker, WorkerDied

MAX_ATTEMPTS = 3  # for a request whose worker died
BATCHED = ("predict",)  # kinds of jobs that are processed together


@dataclass(eq=False)
class Pending:
    """A request waiting for its reply."""

    number: int
    kind: str
    packed: msgspec.Raw
    samples: int
    readings: int
    reply: asyncio.Future[Reply]
    deadline: float
    attempts: int = 0

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.reply.done() or time.monotonic() > self.deadline


@dataclass
class Counts:
    """Counters for metrics."""

    restarts: int = 0
    swaps: int = 0
    failed_swaps: int = 0
    batches: int = 0
    batch_samples: int = 0
    working: int = 0
    on_batch: Callable[[int], None] = field(default=lambda samples: None)


class Pool:
    """Workers that serve the same models, and the queue in front of them."""

    def __init__(self, start: Start, limits: Limits, size: int, note: Callable[..., None]):
        """`note` writes a line to the log: an event, and facts about it."""
        self.limits, self.size, self.note = limits, size, note
        self.counts = Counts()
        self.models: list[dict[str, Any]] = []
        self.queue: deque[Pending] = deque()
        self._start = start
        self._filled = asyncio.Event()
        self._loops: dict[asyncio.Task[None], Worker | None] = {}
        self._retired: set[asyncio.Task[None]] = set()
        self._rate = 0.0  # recent requests per second
        self._number = 0
        self._swapping = asyncio.Lock()

    # ---------------------------------------------------------------- starting and stopping

    async def open(self) -> None:
        """Start the workers; raises StartFailed if the models cannot be loaded."""
        await self._open_workers(self._start)

    async def _open_workers(self, start: Start) -> None:
        started = await asyncio.gather(*(Worker.start(start) for _ in range(self.size)), return_exceptions=True)
        workers = [one for one in started if isinstance(one, Worker)]
        failures = [one for one in started if isinstance(one, BaseException)]
        if failures:
            for worker in workers:
                await worker.kill()
            raise failures[0]
        self._start, self.models = start, workers[0].models
        self._retired |= set(self._loops)
        for worker in workers:
            task = asyncio.create_task(self._serve(worker))
            self._loops[task] = worker
            task.add_done_callback(self._loop_ended)
        self._filled.set()  # wake up the old ones, which are retired now

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        self._loops.pop(task, None)
        self._retired.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.note("worker_loop_failed", level="error", error=type(task.exception()).__name__)

    async def swap(self, start: Start) -> None:
        """Serve other models: new workers take over once they are ready, the old ones finish their current work."""
        async with self._swapping:
            try:
                await self._open_workers(start)
            except StartFailed:
                self.counts.failed_swaps += 1
                raise
            self.counts.swaps += 1

    async def close(self) -> None:
        """Answer waiting requests, then stop the workers."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.seconds):
                while self.queue or self.counts.working:
                    await asyncio.sleep(0.01)
        workers = [worker for worker in self._loops.values() if worker is not None]
        for task in list(self._loops):
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await asyncio.gather(*(worker.close() for worker in workers))

    @property
    def ready(self) -> int:
        """The number of workers that can take work."""
        return sum(worker is not None for task, worker in self._loops.items() if task not in self._retired)

    @property
    def workers(self) -> list[Worker]:
        """The workers that are running."""
        return [worker for worker in self._loops.values() if worker is not None]

    # ---------------------------------------------------------------- asking

    async def ask(self, job: Job, samples: int, readings: int, deadline: float) -> Reply:
        """The reply to a job; raises a RequestError if there are too many requests, or it takes too long."""
        if len(self.queue) >= self.limits.waiting:
            raise self.busy()
        self._number += 1
        job.number = self._number
        reply = asyncio.get_running_loop().create_future()
        pending = Pending(job.number, job.kind, pack(job), samples, readings, reply, deadline)
        self.queue.append(pending)
        self._filled.set()
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await pending.reply
        except TimeoutError:
            with contextlib.suppress(ValueError):
                self.queue.remove(pending)
            raise RequestError(
                "too_slow", f"The request was not answered within {self.limits.seconds:g} seconds. Send fewer readings."
            ) from None

    def busy(self) -> RequestError:
        """The error if the queue is full, with the time after which to try again."""
        seconds = len(self.queue) / self._rate if self._rate > 0 else 1.0
        return RequestError(
            "busy",
            f"{len(self.queue):,} requests are waiting already. Send this one again later.",
            retry_after=int(min(30, max(1, round(seconds)))),
        )

    # ---------------------------------------------------------------- answering

    async def _serve(self, worker: Worker) -> None:
        """Take batches from the queue for one worker, and replace it if it dies, until it is retired."""
        own = asyncio.current_task()
        assert own is not None
        while True:
            while not self.queue:
                if own in self._retired:
                    await worker.close()
                    return
                self._filled.clear()
                await self._filled.wait()
            if own in self._retired:  # the queue is for the new ones
                await worker.close()
                return
            batch = self._take()
            if not batch:
                continue
            if not await self._answer(worker, batch):
                self._loops[own] = None
                worker = await self._replace(worker)
                self._loops[own] = worker

    def _take(self) -> list[Pending]:
        """The first request, and those behind it that can be scored together with it."""
        batch: list[Pending] = []
        samples = readings = 0
        kept: list[Pending] = []
        while self.queue:
            pending = self.queue.popleft()
            if pending.given_up:
                continue
            alone = pending.kind not in BATCHED or pending.attempts > 0
            fits = (
                samples + pending.samples <= self.limits.batch_samples
                and readings + pending.readings <= self.limits.batch_readings
            )
            if not batch:
                batch.append(pending)
                if alone:
                    break
            elif alone or not fits:
                kept.append(pending)
                if len(kept) > 8:
                    break
                continue
            else:
                batch.append(pending)
            samples, readings = samples + pending.samples, readings + pending.readings
        self.queue.extendleft(reversed(kept))
        return batch

    async def _answer(self, worker: Worker, batch: list[Pending]) -> bool:
        """Send a batch to a worker, and pass on the replies; False if the worker is lost."""
        self.counts.batches += 1
        samples = sum(pending.samples for pending in batch)
        self.counts.batch_samples += samples
        self.counts.on_batch(samples)
        self.counts.working += len(batch)
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.limits.seconds):
                replies = await worker.run([pending.packed for pending in batch])
        except (WorkerDied, TimeoutError):
            self._ask_again(batch)
            return False
        except Exception as error:  # a bug must not end the loop that serves the queue
            self.note("batch_failed", level="error", at=place_of(error))
            self._ask_again(batch)
            return False
        finally:
            self.counts.working -= len(batch)
        taken = max(time.monotonic() - started, 1e-6)
        self._rate += 0.2 * (len(batch) / taken * max(self.ready, 1) - self._rate)
        for pending, reply in zip(batch, replies, strict=True):
            if not pending.reply.done():
                pending.reply.set_result(reply)
        return True

    def _ask_again(self, batch: list[Pending]) -> None:
        for pending in reversed(batch):
            pending.attempts += 1
            if pending.reply.done():
                continue
            if pending.attempts >= MAX_ATTEMPTS:
                message = "The worker was lost three times on this request, so it is not tried again."
                pending.reply.set_result(Reply(pending.number, code="internal", message=message))
            else:
                self.queue.appendleft(pending)

    async def _replace(self, worker: Worker) -> Worker:
        """A new worker for a lost one; retries until it works."""
        await worker.kill()
        pause = 0.1
        while True:
            self.counts.restarts += 1
            self.note("worker_restarted", level="warning", exit=worker.process.returncode)
            try:
                return await Worker.start(self._start)
            except StartFailed as error:
                self.note("worker_start_failed", level="error", error=type(error).__name__)
                await asyncio.sleep(pause)
                pause = min(10.0, 2 * pause)


def start_message(models: dict[str, str], limits: Limits, **options: Any) -> Start:
    """The first message to workers of these models."""
    return Start(models, asdict(limits), **options)
