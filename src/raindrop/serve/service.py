"""The service: an application that reads requests within limits and passes them to workers. See docs/service.md."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from raindrop.errors import RaindropError, describe_failure
from raindrop.serve import protocol_v2
from raindrop.serve.arrow_bodies import check_arrow
from raindrop.serve.bodies import (
    ARROW_TYPES,
    JSON_TYPES,
    StreamBody,
    answer_format,
    check_columns,
    decode,
    job_of,
    media_type,
    read_body,
)
from raindrop.serve.failures import RequestError
from raindrop.serve.limits import Limits
from raindrop.serve.live_keeper import LiveKeeper, StreamOptions
from raindrop.serve.logs import Log
from raindrop.serve.messages import Job, Kind, Reply, Watched
from raindrop.serve.metrics import Metrics
from raindrop.serve.pool import Pool, start_message
from raindrop.serve.snapshots import Snapshot, check_kinds, fingerprint
from raindrop.serve.tokens import Tokens
from raindrop.serve.worker_process import StartFailed
from raindrop.version import VERSION

WATCH_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of the service."""

    workers: int = 1
    """number of processes that hold the models."""
    threads: int = 1
    """CPU threads of each process."""
    unknown_sensors: str = "error"
    """whether readings of sensors not seen in training raise an error or are ignored."""
    key: Path | None = None
    """file with the key that the runs must be signed with."""
    watch: bool = False
    """whether to reload a run when it is overwritten."""
    hosts: tuple[str, ...] | None = None
    """host names that are accepted; None: any."""


class Service:
    """The served models, the workers that hold them, and the responses to requests."""

    def __init__(
        self,
        runs: Sequence[Path],
        *,
        limits: Limits | None = None,
        tokens: Tokens | None = None,
        log: Log | None = None,
        options: Options | None = None,
        stream: StreamOptions | None = None,
    ):
        self.runs, self.limits, self.tokens = [Path(run) for run in runs], limits or Limits(), tokens
        self.log, self.options = log or Log(), options or Options()
        self.stopping = False
        self.changed_on_disk = ""
        """Why overwritten models are not served; empty if they are."""
        self.bytes_held = 0
        check_kinds(self.runs)
        self._seen = fingerprint(self.runs)
        self.snapshot = Snapshot(self.runs)
        self.pool = Pool(self._start_message(self.snapshot), self.limits, self.options.workers, self.log)
        self.live = LiveKeeper(self._start_message(self.snapshot), self.limits, stream or StreamOptions(), self.log)
        self.metrics = Metrics(self._state, lambda: self.pool.models, self._watched)
        self.pool.counts.on_batch = self.metrics.batch.observe
        self._reloading = asyncio.Lock()
        self._reload: asyncio.Task[bool] | None = None

    def _start_message(self, snapshot: Snapshot) -> Any:
        options = self.options
        return start_message(
            snapshot.models,
            self.limits,
            key="" if options.key is None else str(options.key),
            unknown_sensors=options.unknown_sensors,
            threads=options.threads,
        )

    # ---------------------------------------------------------------- starting, swapping, stopping

    async def open(self) -> None:
        """Start the workers, unless they are running; raises StartFailed if the models cannot be loaded."""
        if self.pool.models:
            return
        await asyncio.gather(self.pool.open(), self.live.open())
        self.log("ready", models=[card["name"] for card in self.pool.models], workers=self.options.workers)

    async def close(self) -> None:
        """Answer waiting requests, save the streams, stop the workers."""
        self.stopping = True
        if self._reload is not None:
            await self._reload
        await self.live.close()
        await self.pool.close()
        self.snapshot.remove()
        self.log("stopped")

    async def reload(self) -> None:
        """Reload the models from disk; no request is dropped. Raises if they cannot be loaded."""
        async with self._reloading:
            seen = fingerprint(self.runs)
            try:
                snapshot = Snapshot(self.runs)
            except (RaindropError, OSError) as error:
                self._seen = seen
                self.pool.counts.failed_swaps += 1
                raise StartFailed(str(error) if isinstance(error, RaindropError) else describe_failure(error)) from None
            try:
                await self.pool.swap(self._start_message(snapshot))
            except StartFailed:
                snapshot.remove()
                raise
            finally:
                self._seen = seen
            await self.live.swap(self._start_message(snapshot))
            old, self.snapshot = self.snapshot, snapshot
            old.remove()
            self.changed_on_disk = ""
            self.log("models_swapped", models=[card["run"] for card in self.pool.models])

    async def reload_within(self, seconds: float) -> None:
        """Reload for a client; raises if the models cannot be loaded, or are not ready in time."""
        if self._reload is None or self._reload.done():
            self._reload = asyncio.create_task(self.try_reload())
        try:
            async with asyncio.timeout(seconds):
                swapped = await asyncio.shield(self._reload)
        except TimeoutError:
            raise RequestError(
                "too_slow", "The models are still being loaded, and will be served once they are (GET /v1/model)."
            ) from None
        if not swapped:
            raise RequestError(
                "not_ready", "The models on the disk cannot be loaded; the former ones are served. The log has more."
            )

    async def try_reload(self) -> bool:
        """As `reload`, but an error is logged and kept for `/v1/model`; the old models stay."""
        try:
            await self.reload()
        except StartFailed as error:
            self.changed_on_disk = str(error)
            self.log("models_not_swapped", level="error")
            return False
        return True

    async def watch(self) -> None:
        """Reload overwritten runs, once they can be loaded."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if fingerprint(self.runs) != self._seen:
                await self.try_reload()

    # ---------------------------------------------------------------- answering

    async def answer(self, request: Request, kind: Kind, body_type: type[Any]) -> Response:
        """The response to a request with readings, as JSON or Arrow."""
        deadline = time.monotonic() + self.limits.seconds
        with self._held_bytes(request):
            body = await self._body(request)
            if media_type(request) in ARROW_TYPES:
                job, samples, readings = self._arrow_job(kind, body, request)
            else:
                content = decode(body, body_type)
                if getattr(content, "explain", False):
                    kind = "explain"
                job, samples = job_of(kind, content, request, self.limits)
                readings = len(content.readings.time)
                if kind == "readings":
                    job.model = self._readings_model(content.task)
            reply = await self.pool.ask(job, samples, readings, deadline)
        return self._response(request, reply)

    def _arrow_job(self, kind: Kind, body: bytes, request: Request) -> tuple[Job, int, int]:
        """Readings as an Arrow stream; options are in the query string."""
        rows = check_arrow(body, self.limits)
        query = request.query_params
        job = Job(0, kind, answer_format(request), arrow=body)
        job.coverage, job.every = (_number(query.get(name), name) for name in ("coverage", "every"))
        if kind == "readings":
            job.model = self._readings_model(query.get("task"))
        if query.get("explain") in ("1", "true") and kind == "predict":
            job.kind = "explain"
        return job, min(rows, self.limits.batch_samples), rows

    def _readings_model(self, task: str | None) -> str:
        """The name of the imputer or forecaster; empty for whichever is served."""
        if task is None:
            return ""
        kind = {"fill": "imputer", "forecast": "forecaster"}.get(task)
        if kind is None:
            raise RequestError("bad_request", f"The task '{task[:40]}' is not known; 'fill' or 'forecast'.")
        for card in self.pool.models:
            if card["kind"] == kind:
                return str(card["name"])
        what, how = ("imputer", "impute") if kind == "imputer" else ("forecaster", "forecast")
        raise RequestError(
            "not_served",
            f"No {what} is served. Train one ('raindrop {how} train') and name its run in 'raindrop serve'.",
        )

    async def infer(self, request: Request, name: str) -> Response:
        """The response to a request of the V2 protocol."""
        deadline = time.monotonic() + self.limits.seconds
        self.card(name)
        if request.headers.get("inference-header-content-length"):
            raise RequestError(
                "unsupported_format", "Tensors are read from JSON; the binary extension is not supported."
            )
        with self._held_bytes(request):
            try:
                job = protocol_v2.job_of(await self._body(request, arrow=False), name, self.limits)
            except (msgspec.DecodeError, RecursionError) as error:
                raise RequestError("bad_request", f"The body is not a request of the V2 protocol: {error}.") from None
            assert job.readings is not None
            samples = check_columns(job.readings, job.samples, self.limits)
            reply = await self.pool.ask(job, samples, len(job.readings.time), deadline)
        return self._response(request, reply)

    async def push(self, request: Request, sample: str) -> Response:
        """Store readings of a live sample; the response is its score."""
        with self._held_bytes(request):
            content = decode(await self._body(request, arrow=False), StreamBody)
            return self._response(request, await self.live.push(sample, content))

    async def live_sample(self, request: Request, sample: str, action: str) -> Response:
        """Return the score of a live sample ("get"), or drop it ("delete")."""
        return self._response(request, await self.live.ask(sample, action))

    def card(self, name: str) -> dict[str, Any]:
        """The card of a model by its name."""
        for card in self.pool.models:
            if card["name"] == name:
                return card
        raise RequestError("not_found", "There is no model of this name here; GET /v1/model lists them.")

    async def _body(self, request: Request, *, arrow: bool = True) -> bytes:
        kind = media_type(request)
        if kind not in JSON_TYPES and not (arrow and kind in ARROW_TYPES):
            allowed = " or ".join((*JSON_TYPES, *(ARROW_TYPES[:1] if arrow else ())))
            raise RequestError("unsupported_format", f"The body's Content-Type must be {allowed}.")
        body = await read_body(request, self.limits)
        request.state.logged["bytes_in"] = len(body)
        return body

    @contextlib.contextmanager
    def _held_bytes(self, request: Request) -> Iterator[None]:
        """Count the bytes of a body from before it is read until it is answered; raises if there are too many."""
        announced = request.headers.get("content-length", "")
        size = int(announced[:20]) if announced.isdecimal() else self.limits.body_bytes
        if len(self.pool.queue) >= self.limits.waiting or (
            size <= self.limits.body_bytes and self.bytes_held + size > self.limits.waiting_bytes
        ):
            raise self.pool.busy()
        self.bytes_held += size
        try:
            yield
        finally:
            self.bytes_held -= size

    @staticmethod
    def _response(request: Request, reply: Reply) -> Response:
        logged = request.state.logged
        logged |= {"samples": reply.samples, "readings": reply.readings}
        if reply.code:
            logged |= {"at": reply.place} if reply.place else {}
            raise RequestError(reply.code, reply.message)
        return Response(reply.body, media_type=reply.media_type)

    # ---------------------------------------------------------------- telling

    @property
    def ready(self) -> bool:
        """Whether requests are answered."""
        return not self.stopping and self.pool.ready > 0

    def about(self) -> dict[str, Any]:
        """The cards of the models, and the limits."""
        limits = {
            name: getattr(self.limits, name) for name in ("body_bytes", "readings", "samples", "sensors", "queries")
        }
        content: dict[str, Any] = {"version": VERSION, "models": self.pool.models, "limits": limits}
        if self.changed_on_disk:
            content["changed_on_disk"] = (
                "The models on the disk have changed and cannot be loaded; the former are served."
            )
        return content

    def _state(self) -> dict[str, float]:
        counts = self.pool.counts
        return {
            "ready": float(self.ready),
            "workers": float(self.pool.ready),
            "requests_waiting": float(len(self.pool.queue)),
            "body_bytes_held": float(self.bytes_held),
            "worker_memory_bytes": float(sum(worker.memory for worker in self.pool.workers)),
            "worker_restarts_total": float(counts.restarts + self.live.restarts),
            "model_swaps_total": float(counts.swaps),
            "model_swap_failures_total": float(counts.failed_swaps),
            "log_lines_lost_total": float(self.log.lost),
            "live_samples": float(self.live.samples),
        }

    def _watched(self) -> list[Watched]:
        """The gauges of all workers; each covers the readings that it processed."""
        return [
            (name, {**labels, "worker": str(at)}, value)
            for at, worker in enumerate(self.pool.workers)
            for name, labels, value in worker.gauges
        ]


def _number(text: str | None, name: str) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise RequestError("bad_request", f"'{name}' in the address must be a number.") from None
