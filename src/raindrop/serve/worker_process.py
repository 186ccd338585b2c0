"""A worker as the service sees it: a process that is started, given work, and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import msgspec

from raindrop.serve.messages import LENGTH, Hello, PackedBatch, Replies, Reply, Watched, frame_message
from raindrop.serve.worker import Start

START_SECONDS = 600.0  # for a worker to load its models
END_SECONDS = 5.0  # for a worker to stop


class WorkerDied(Exception):
    """The worker ended, or was killed, before it replied."""


class StartFailed(Exception):
    """A worker could not load its models; the message gives the reason."""


class Worker:
    """One process, and the messages to and from it."""

    def __init__(self, process: asyncio.subprocess.Process, models: list[dict[str, Any]]):
        self.process, self.models = process, models
        self._lost = False
        self.memory = 0
        self.live_samples = 0
        self.gauges: list[Watched] = []

    @classmethod
    async def start(cls, start: Start) -> Worker:
        """Start a process and wait until its models are loaded."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "raindrop.serve.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        worker = cls(process, [])
        try:
            async with asyncio.timeout(START_SECONDS):
                await worker._send(start)
                hello = await worker._receive(Hello)
        except (WorkerDied, TimeoutError, OSError):
            await worker.kill()
            raise StartFailed("A worker ended, or took too long, while it loaded the models.") from None
        except BaseException:
            await worker.kill()
            raise
        if hello.error:
            await worker.kill()
            raise StartFailed(hello.error)
        worker.models = hello.models
        return worker

    async def run(self, jobs: list[msgspec.Raw]) -> list[Reply]:
        """The replies to a batch; raises WorkerDied."""
        await self._send(PackedBatch(jobs))
        answer = await self._receive(Replies)
        self.memory, self.live_samples = answer.memory, answer.live_samples
        self.gauges = answer.gauges or self.gauges  # sent only if there is something new
        return list(answer.replies)

    async def _send(self, content: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(frame_message(content))
            await self.process.stdin.drain()
        except OSError:
            self._lost = True
            raise WorkerDied from None

    async def _receive(self, kind: Any) -> Any:
        assert self.process.stdout is not None
        try:
            (length,) = LENGTH.unpack(await self.process.stdout.readexactly(LENGTH.size))
            return msgspec.msgpack.decode(await self.process.stdout.readexactly(length), type=kind)
        except (asyncio.IncompleteReadError, OSError):
            self._lost = True
            raise WorkerDied from None

    async def close(self) -> None:
        """Stop it once it has replied; it stops when its input ends."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await self.process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Stop it immediately; one that is ending by itself keeps its exit code, which `Process.kill` could lose."""
        if self._lost:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self.process.wait()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
