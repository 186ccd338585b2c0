"""A local HTTP server that interrupts, delays, corrupts and redirects."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from raindrop.datasets.publishers import Remote

Response = Callable[[BaseHTTPRequestHandler, bytes], None]


@dataclass
class FileServer:
    """What the server serves. Each request takes the next response of its path's `plans`, then the normal one."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    plans: dict[str, list[Response]] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    ranges: bool = True
    tag: str | None = '"v1"'

    def remote(self, path: str, sha256: str | None = None) -> Remote:
        return Remote(f"{self.address}/{path}", path, sha256)


def respond(handler: BaseHTTPRequestHandler, content: bytes, stop_at: int | None = None) -> None:
    server: FileServer = handler.server.file_server  # type: ignore[attr-defined]
    bytes_range = handler.headers.get("Range")
    same_version = handler.headers.get("If-Range") in (None, server.tag)
    start = int(bytes_range.removeprefix("bytes=").rstrip("-")) if bytes_range and server.ranges and same_version else 0
    if start and start >= len(content):
        handler.send_response(416)
        handler.send_header("Content-Range", f"bytes */{len(content)}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    handler.send_response(206 if start else 200)
    handler.send_header("Content-Length", str(len(content) - start))
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    if server.tag:
        handler.send_header("ETag", server.tag)
    handler.end_headers()
    handler.wfile.write(content[start:stop_at])
    if stop_at is not None:
        handler.close_connection = True


def cut_at(position: int) -> Response:
    return lambda handler, content: respond(handler, content, stop_at=position)


def corrupted(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    respond(handler, content[:1000] + b"X" + content[1001:])


def delayed(seconds: float) -> Response:
    def respond_with(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return respond_with


def status(code: int, **headers: str) -> Response:
    def respond_with(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return respond_with


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: FileServer = self.server.file_server  # type: ignore[attr-defined]
        path = self.path.lstrip("/")
        server.requests.append((path, self.headers.get("Range")))
        plan = server.plans.get(path, [])
        if plan:
            plan.pop(0)(self, server.files.get(path, b""))
        elif path in server.files:
            respond(self, server.files[path])
        else:
            status(404)(self, b"")

    def log_message(self, format: str, *args: object) -> None:
        pass
