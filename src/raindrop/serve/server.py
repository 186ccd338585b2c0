"""The HTTP server around the application: connections are limited in number, time and bytes; it stops gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h11
import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from raindrop.errors import ConfigError, ModelFileError
from raindrop.serve.limits import Limits
from raindrop.serve.logs import ServerLines
from raindrop.serve.routes import create_app
from raindrop.serve.service import Service
from raindrop.serve.worker_process import StartFailed

GRACE_SECONDS = 5.0  # for sending the last bytes of a response


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where the service listens."""

    host: str = "127.0.0.1"
    port: int = 8000
    certificate: Path | None = None
    """TLS certificate (PEM)."""
    private_key: Path | None = None
    """Its private key (PEM)."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port {self.port}: a port is a number from 0 to 65535.")
        if (self.certificate is None) != (self.private_key is None):
            raise ConfigError("TLS needs both files: --tls-certificate and --tls-key.")
        for file in (self.certificate, self.private_key):
            if file is not None and not file.is_file():
                raise ConfigError(f"{file}: there is no such file.")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}/"


def check_exposure(address: Address, has_tokens: bool, without_tokens: bool) -> None:
    """Raise if other machines could send requests without a token, unless that is explicitly allowed."""
    if address.is_loopback or has_tokens or without_tokens:
        return
    raise ConfigError(
        f"--host {address.host}: other machines could send and read anything without a token. Make one with "
        "'raindrop token FILE --name NAME' and pass --tokens FILE; or allow it with --without-tokens."
    )


def bounded_protocol(limits: Limits) -> type[H11Protocol]:
    """HTTP/1.1 connections that always have a deadline: for the headers, for the whole request, and when idle."""

    class BoundedProtocol(H11Protocol):
        """One connection."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
                return
            self._end_in(limits.header_seconds)

        def handle_events(self) -> None:
            before = self.cycle
            super().handle_events()
            if self.cycle is not before and not self.cycle.response_complete:
                self._end_in(limits.seconds + limits.body_seconds + GRACE_SECONDS)

        def on_response_complete(self) -> None:
            self._end_in(limits.idle_seconds + GRACE_SECONDS)  # also for a client that does not read its response
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            """Respond to something that is not HTTP, or has too large headers."""
            if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                self.transport.close()
                return
            error = {
                "code": "bad_request",
                "message": "This is not a request of HTTP/1.1, or its headers are too large.",
            }
            body = msgspec.json.encode({"error": error})
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        def _end_in(self, seconds: float) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = self.loop.call_later(seconds, self.transport.abort)

    return BoundedProtocol


class Server(uvicorn.Server):
    """Stops on SIGTERM or SIGINT after answering requests, and reloads the models from disk on SIGHUP."""

    def __init__(self, config: uvicorn.Config, service: Service):
        super().__init__(config)
        self.service = service
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn, but the signal is not raised again: a requested stop is not a failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, self._reload)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ())):
                loop.remove_signal_handler(number)

    def _stop(self, number: int) -> None:
        self.service.stopping = True
        self.handle_exit(number, None)

    def _reload(self) -> None:
        task = asyncio.get_running_loop().create_task(self.service.try_reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def make_server(service: Service, address: Address, app: ASGIApp | None = None) -> Server:
    """The server of a service at an address."""
    limits = service.limits
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [ServerLines(service.log)] if name in ("uvicorn", "asyncio") else [], True
        logger.setLevel(logging.WARNING)
    logging.getLogger("uvicorn").propagate = False
    config = uvicorn.Config(
        app or create_app(service),
        host=address.host.strip("[]"),
        port=address.port,
        http=bounded_protocol(limits),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=int(limits.seconds) + 5,
        h11_max_incomplete_event_size=limits.header_bytes,
        backlog=1024,
        ssl_certfile=None if address.certificate is None else str(address.certificate),
        ssl_keyfile=None if address.private_key is None else str(address.private_key),
    )
    return Server(config, service)


def run(service: Service, address: Address, started: Callable[[str], None]) -> None:
    """Serve until a signal stops it; `started` is called with the address once requests are answered."""

    async def serve() -> None:
        try:
            await service.open()
        except StartFailed as error:
            await service.close()
            raise ModelFileError(str(error)) from None
        server = make_server(service, address)
        serving = asyncio.create_task(server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.02)
        if server.started:
            port = server.servers[0].sockets[0].getsockname()[1]
            started(replace(address, port=port).url)
        await serving

    asyncio.run(serve())
