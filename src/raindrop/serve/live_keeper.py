"""The service's side of live samples: one worker has the stream, which is on disk before a push is acknowledged.

If that worker is lost, the next one opens the folder and the push is repeated with its offset, so that nothing is lost
or counted twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from raindrop.serve.bodies import StreamBody, check_columns
from raindrop.serve.failures import RequestError
from raindrop.serve.limits import Limits
from raindrop.serve.messages import Columns, Job, Reply, pack
from raindrop.serve.worker import Start
from raindrop.serve.worker_process import StartFailed, Worker, WorkerDied

MAX_SOURCES = 1_000
ATTEMPTS = 3  # for a push whose worker was lost


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """Settings of live samples."""

    state: Path | None = None
    """folder for the live samples, to keep them when the service stops; without it they are lost then."""
    max_samples: int = 10_000
    """maximum number of live samples; beyond it, those without new readings for longest are dropped."""
    max_readings: int = 5_000_000
    """maximum number of readings of all live samples together."""
    lateness: float | None = None
    """how much older than its sample's latest reading a reading may be, in model time units; by default unlimited."""
    window: float | None = None
    """keep the readings of a sample up to this long before its latest one; by default all."""


class LiveKeeper:
    """The worker with the stream; started by the first push or, if there is a folder of live samples, immediately."""

    def __init__(self, start: Start, limits: Limits, options: StreamOptions, note: Callable[..., None]):
        self.limits, self.options, self.note = limits, options, note
        self._temporary = None if options.state is not None else tempfile.TemporaryDirectory(prefix="raindrop-live-")
        self._start = self._with_stream(start)
        self._worker: Worker | None = None
        self._starting: asyncio.Task[Worker] | None = None
        self._lock = asyncio.Lock()  # pushes are processed one after another
        self._waiting = self._offset = self._number = 0
        self._sources: set[str] = set()
        self.samples = self.restarts = 0

    def _with_stream(self, start: Start) -> Start:
        state = self.options.state if self._temporary is None else Path(self._temporary.name) / "stream"
        facts = asdict(self.options) | {"state": str(state), "sync": self._temporary is None}
        return msgspec.structs.replace(start, stream=facts)

    async def open(self) -> None:
        """Start the worker if there is a folder of live samples; raises StartFailed if it cannot be used."""
        if self.options.state is not None:
            async with self._lock:
                await self._ready()

    # ---------------------------------------------------------------- asking

    async def push(self, sample: str, content: StreamBody) -> Reply:
        """Store readings of a sample; the reply has its new score."""
        _check_name(sample)
        columns = None
        if content.readings is not None:
            columns = Columns(content.readings.time, content.readings.sensor, content.readings.value)
            check_columns(columns, {}, self.limits)
        elif not content.statics:
            raise RequestError("bad_request", "The body has neither readings nor statics; give at least one of them.")
        self._check_source(content)
        job = Job(0, "stream", readings=columns, sample=sample, action="push", coverage=content.coverage)
        job.samples = {name: [value] for name, value in content.statics.items()}
        if len(job.samples) > 200:
            raise RequestError("too_large", "The body has more than 200 statics.")
        return await self._ask(job, f"from {content.source}", content.offset)

    def _check_source(self, content: StreamBody) -> None:
        if content.source and content.offset is None:
            raise RequestError("bad_request", "A source counts its pushes: give 'offset' too.")
        _check_name(content.source or "source")
        if content.offset is not None and not 0 < content.offset < 1 << 62:
            raise RequestError("bad_request", "'offset' is a whole number above 0 that rises from push to push.")
        if content.offset is not None and content.source not in self._sources and len(self._sources) >= MAX_SOURCES:
            raise RequestError("too_large", f"There are {MAX_SOURCES:,} sources already; a source has many samples.")

    async def ask(self, sample: str, action: str) -> Reply:
        """Return the score of a live sample ("get"), or drop it ("delete")."""
        _check_name(sample)
        return await self._ask(Job(0, "stream", sample=sample, action=action), "", None)

    async def _ask(self, job: Job, source: str, offset: int | None) -> Reply:
        if self._waiting >= self.limits.waiting:
            message = f"{self._waiting:,} pushes are waiting already. Send this one later."
            raise RequestError("busy", message, retry_after=1)
        deadline = time.monotonic() + self.limits.seconds
        self._waiting += 1
        try:
            async with asyncio.timeout(self.limits.seconds), self._lock:
                return await self._run(job, source, offset, deadline)
        except StartFailed as error:
            raise RequestError("not_ready", f"Live samples are not available: {error}") from None
        except TimeoutError:
            message = f"The request was not answered within {self.limits.seconds:g} seconds."
            raise RequestError("too_slow", message) from None
        finally:
            self._waiting -= 1

    async def _run(self, job: Job, source: str, offset: int | None, deadline: float) -> Reply:
        worker = await self._ready()
        if job.action == "push":
            self._offset += 1
            job.id, job.edges = ("", self._offset) if offset is None else (source, offset)
        self._number += 1
        job.number = self._number
        packed = pack(job)
        for _ in range(ATTEMPTS):
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    (reply,) = await worker.run([packed])
                break
            except WorkerDied:
                worker = await self._restart(worker)
            except TimeoutError:
                await self._lose(worker)
                raise
        else:
            raise RequestError("internal", "The worker was lost three times on this request, so it is not tried again.")
        if not reply.code and offset is not None:
            self._sources.add(source.removeprefix("from "))
        self.samples = worker.live_samples
        return reply

    # ---------------------------------------------------------------- the worker

    async def _ready(self) -> Worker:
        """The worker; it continues to start even if the request that waits for it times out."""
        if self._worker is None:
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._begin())
            self._worker = await asyncio.shield(self._starting)
        return self._worker

    async def _begin(self) -> Worker:
        worker = await Worker.start(self._start)
        known = worker.models[0]["stream"]
        self._offset = max(self._offset, int(known["offset"]))
        self._sources |= set(known["sources"])
        self.samples = int(known["samples"])
        return worker

    async def _lose(self, worker: Worker) -> None:
        self._worker = self._starting = None
        await worker.kill()
        self.restarts += 1
        self.note("stream_worker_restarted", level="warning", exit=worker.process.returncode)

    async def _restart(self, worker: Worker) -> Worker:
        await self._lose(worker)
        return await self._ready()

    async def swap(self, start: Start) -> None:
        """Switch to other models: before the next push, a new worker opens the stream."""
        async with self._lock:
            await self._end()
            self._start = self._with_stream(start)

    async def close(self) -> None:
        """Stop the worker, which saves the stream."""
        async with self._lock:
            await self._end()
        if self._temporary is not None:
            self._temporary.cleanup()

    async def _end(self) -> None:
        if self._worker is None and self._starting is not None:
            self._starting.cancel()
            with contextlib.suppress(StartFailed, asyncio.CancelledError):
                self._worker = await self._starting
        if self._worker is not None:
            await self._worker.close()
        self._worker = self._starting = None


def _check_name(name: str) -> None:
    if not 0 < len(name) <= 256 or not name.isprintable() or name != name.strip():
        raise RequestError("bad_request", "The name of a sample or source must have 1 to 256 printable characters.")
