"""A service in a thread of this process, its workers real processes, and requests to it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raindrop.serve.limits import Limits
from raindrop.serve.server import Address, make_server
from raindrop.serve.service import Service

PATIENT = Limits(seconds=300.0)
"""For services whose workers are replaced, which takes long on a busy machine."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of the error; empty where there is none."""
        content = self.json() if self.body else {}
        error = content.get("error", {})
        return str(content.get("code", "") if isinstance(error, str) else error.get("code", ""))

    @property
    def message(self) -> str:
        error = self.json()["error"]
        return str(error if isinstance(error, str) else error["message"])


class Asking:
    """A running service at a free port of this machine."""

    def __init__(self, service: Service):
        self.service = service
        self.server = make_server(service, Address(port=0))
        self._thread = threading.Thread(target=lambda: asyncio.run(self.server.serve()), daemon=True)

    def __enter__(self) -> Asking:
        self._thread.start()
        while not self.server.started:
            assert self._thread.is_alive(), "the service did not start"
            self._thread.join(0.05)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        return self

    def __exit__(self, *details: Any) -> None:
        self.server.should_exit = True
        self._thread.join(300)
        assert not self._thread.is_alive(), "the service did not stop"

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, content: Any, **headers: str) -> Answer:
        """Content other than bytes is sent as JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.ask("POST", path, body, {"Content-Type": "application/json"} | headers)

    def reload(self) -> Answer:
        """The answer to a reload, however long it takes."""
        while (answer := self.post("/v1/model/reload", {})).code == "too_slow":
            pass
        return answer


@contextlib.contextmanager
def stopped(process: int) -> Iterator[None]:
    """A process that does nothing within the block."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have been replaced
            os.kill(process, signal.SIGCONT)


def wait_until(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def logged(running: Asking, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The last line of the service's log that fits; a line is written once its answer has been sent."""
    lines: list[dict[str, Any]] = []

    def there() -> bool:
        texts = running.service.log.path.read_text().splitlines()
        lines[:] = [line for line in map(json.loads, texts) if found(line)]
        return bool(lines)

    wait_until(there)
    return lines[-1]
