"""Live samples as the service sees them: one worker has the stream, and what it would lose is kept here to be repeated.

Every accepted push stays in memory until the stream was saved with it. Where the worker is lost, the next one restores
the saved stream and gets these pushes again, each with its offset, so that none is lost or counted twice.
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

SAVE_PUSHES, SAVE_SECONDS = 1_000, 30.0  # the stream is saved after so many pushes, or so long after one
MAX_NOT_SAVED = 20_000  # pushes that are kept; with more, as on a full disk, no further ones are taken
MAX_SOURCES = 1_000
ATTEMPTS = 3


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """How live samples are kept."""

    state: Path | None = None
    """folder for the live samples, so that they outlive the service; without it they last as long as it runs."""
    max_samples: int = 10_000
    """most live samples; beyond it those that received nothing for longest are let go."""
    max_readings: int = 5_000_000
    """most readings of all live samples together."""
    lateness: float | None = None
    """how long before its sample's latest reading a reading may lie, in the model's time unit; any time by default."""
    window: float | None = None
    """a sample is its readings of so long before its latest one; all of them by default."""


class LiveKeeper:
    """The worker with the stream, started with the first push."""

    def __init__(self, start: Start, limits: Limits, options: StreamOptions, note: Callable[..., None]):
        self.limits, self.options, self.note = limits, options, note
        self._temporary = None if options.state is not None else tempfile.TemporaryDirectory(prefix="raindrop-live-")
        self._start = self._with_stream(start)
        self._worker: Worker | None = None
        self._starting: asyncio.Task[Worker] | None = None
        self._lock = asyncio.Lock()  # pushes are taken one after the other
        self._journal: list[msgspec.Raw] = []
        self._saving: asyncio.Task[None] | None = None
        self._last_save = 0.0
        self._waiting = 0
        self._offset = 0
        self._number = 0
        self._sources: set[str] = set()
        self.samples = self.restarts = 0

    def _with_stream(self, start: Start) -> Start:
        state = self.options.state or Path(self._temporary.name) / "state"  # type: ignore[union-attr]
        facts = asdict(self.options) | {"state": str(state)}
        return msgspec.structs.replace(start, stream=facts)

    @property
    def not_saved(self) -> int:
        """Pushes that would have to be repeated if the service were lost now."""
        return len(self._journal)

    # ---------------------------------------------------------------- asking

    async def push(self, sample: str, content: StreamBody) -> Reply:
        """Take in readings of a sample; the reply has its new score."""
        _check_name(sample)
        columns = None
        if content.readings is not None:
            columns = Columns(content.readings.time, content.readings.sensor, content.readings.value)
            check_columns(columns, {}, self.limits)
        elif not content.statics:
            raise RequestError("bad_request", "The body has neither readings nor statics; give at least one of them.")
        if content.source and content.offset is None:
            raise RequestError("bad_request", "A source counts its pushes: give 'offset' too.")
        _check_name(content.source or "source")
        if content.offset is not None and not 0 < content.offset < 1 << 62:
            raise RequestError("bad_request", "'offset' is a whole number above 0 that rises from push to push.")
        if content.offset is not None and content.source not in self._sources and len(self._sources) >= MAX_SOURCES:
            raise RequestError("too_large", f"There are {MAX_SOURCES:,} sources already; a source has many samples.")
        job = Job(0, "stream", readings=columns, sample=sample, action="push", coverage=content.coverage)
        job.samples = {name: [value] for name, value in content.statics.items()}
        if len(job.samples) > 200:
            raise RequestError("too_large", "The body has more than 200 statics.")
        return await self._ask(job, content.source if content.offset is not None else "", content.offset)

    async def ask(self, sample: str, action: str) -> Reply:
        """The score of a live sample ("get"), or its end ("delete")."""
        _check_name(sample)
        return await self._ask(Job(0, "stream", sample=sample, action=action), "", None)

    async def _ask(self, job: Job, source: str, offset: int | None) -> Reply:
        if self._waiting >= self.limits.waiting:
            raise RequestError(
                "busy", f"{self._waiting:,} pushes are waiting already. Send this one later.", retry_after=1
            )
        if job.action == "push" and len(self._journal) >= MAX_NOT_SAVED:
            raise RequestError(
                "no_space", "Live samples cannot be saved, so no further readings are taken. Is the disk full?"
            )
        deadline = time.monotonic() + self.limits.seconds
        self._waiting += 1
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + self.limits.seconds), self._lock:
                return await self._run(job, source, offset, deadline)
        except TimeoutError:
            raise RequestError(
                "too_slow", f"The request was not answered within {self.limits.seconds:g} seconds."
            ) from None
        finally:
            self._waiting -= 1

    async def _run(self, job: Job, source: str, offset: int | None, deadline: float) -> Reply:
        worker = await self._ready()
        if job.action != "get":
            self._offset += 1
            job.id, job.edges = (f"from {source}", offset) if offset is not None else ("", self._offset)
        self._number += 1
        job.number = self._number
        packed = pack(job)
        for _ in range(ATTEMPTS):
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    (reply,) = await worker.run([packed])
                break
            except WorkerDied:
                worker = await self._restart()
            except TimeoutError:
                await self._restart()
                raise
        else:
            raise RequestError("internal", "The worker was lost three times on this request, so it is not tried again.")
        if not reply.code and job.action != "get":
            self._journal.append(packed)
            if offset is not None:
                self._sources.add(source)
            self._save_soon()
        self.samples = worker.live_samples
        return reply

    # ---------------------------------------------------------------- the worker

    async def _ready(self) -> Worker:
        """The worker; it goes on starting when the request that waits for it has waited too long."""
        if self._worker is None:
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._begin())
            self._worker = await asyncio.shield(self._starting)
        return self._worker

    async def _begin(self) -> Worker:
        """A worker with the saved stream and all pushes after it."""
        try:
            worker = await Worker.start(self._start)
        except StartFailed as error:
            self.note("stream_not_started", level="error")
            raise RequestError("not_ready", f"Live samples are not available: {error}") from None
        stream = worker.models[0].get("stream", {}) if worker.models else {}
        self._offset = max(self._offset, int(stream.get("offset", 0)))
        self._sources |= set(stream.get("sources", ()))
        self.samples = int(stream.get("samples", 0))
        for packed in self._journal:
            await worker.run([packed])
        return worker

    async def _restart(self) -> Worker:
        assert self._worker is not None
        await self._worker.kill()
        self.restarts += 1
        self.note("stream_worker_restarted", level="warning", exit=self._worker.process.returncode)
        self._worker = self._starting = None
        return await self._ready()

    async def swap(self, start: Start) -> None:
        """Continue with other models: the stream is saved, and the next push finds it restored by a new worker."""
        async with self._lock:
            await self._save()
            if self._worker is not None:
                await self._worker.close()
            self._worker = self._starting = None
            self._start = self._with_stream(start)

    # ---------------------------------------------------------------- saving

    def _save_soon(self) -> None:
        late = time.monotonic() - self._last_save > SAVE_SECONDS
        if (len(self._journal) >= SAVE_PUSHES or late) and (self._saving is None or self._saving.done()):
            self._last_save = time.monotonic()
            self._saving = asyncio.create_task(self._save_between())

    async def _save_between(self) -> None:
        async with self._lock:
            await self._save()

    async def _save(self) -> None:
        """Save the stream; what it holds then needs no repeating."""
        if self._worker is None or not self._journal:
            return
        self._number += 1
        try:
            (reply,) = await self._worker.run([pack(Job(self._number, "stream", action="save"))])
        except WorkerDied:
            await self._restart()
            return
        if reply.code:
            self.note("stream_not_saved", level="error", code=reply.code)
        else:
            self._journal.clear()

    async def close(self) -> None:
        """Save, and end the worker."""
        async with self._lock:
            if self._worker is None and self._starting is not None:
                with contextlib.suppress(RequestError, WorkerDied):
                    self._worker = await self._starting
            if self._worker is not None:
                with contextlib.suppress(RequestError):
                    await self._save()
            if self._worker is not None:
                await self._worker.close()
        if self._temporary is not None:
            self._temporary.cleanup()


def _check_name(name: str) -> None:
    if not 0 < len(name) <= 256 or not name.isprintable() or name != name.strip():
        raise RequestError("bad_request", "The name of a sample or source has 1 to 256 characters that can be printed.")
