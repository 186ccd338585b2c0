"""Middleware for every address: access control, logging, response headers, and error responses."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raindrop.serve.failures import INTERNAL, RequestError, place_of
from raindrop.serve.logs import Log
from raindrop.serve.metrics import Metrics
from raindrop.serve.tokens import Tokens

OPEN = (
    "/",
    "/favicon.ico",
    "/openapi.json",
    "/health/live",
    "/health/ready",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2",
)
OPEN_FOLDER = "/page/"
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


def needed_scope(method: str, path: str) -> str:
    """The scope that a request needs; empty if it needs none."""
    if path in OPEN or path.startswith(OPEN_FOLDER):
        return ""
    if path == "/metrics":
        return "metrics"
    if path.startswith("/v1/stream"):
        return "stream"
    if path == "/v1/model/reload":
        return "admin"
    if path == "/v1/model" or (path.startswith("/v2/") and method == "GET"):
        return "model"
    return "predict"


def error_response(error: RequestError, path: str) -> Response:
    """An error as JSON: {"error": {"code", "message"}}, or in the V2 protocol {"error": message}."""
    content: Any = {"error": {"code": error.code, "message": error.message}}
    if path.startswith("/v2"):
        content = {"error": error.message, "code": error.code}
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    if error.code == "unauthorised":
        headers["WWW-Authenticate"] = 'Bearer realm="raindrop"'
    return Response(msgspec.json.encode(content), error.status, headers, "application/json")


class Gate:
    """Wraps the application; every request and response passes through it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens | None,
        hosts: Sequence[str] | None,
        log: Log,
        metrics: Metrics,
        route_of: Callable[[Scope], str],
        header_bytes: int,
    ):
        """hosts: host names that are accepted, against DNS rebinding; None: any."""
        self.app, self.tokens, self.log, self.metrics = app, tokens, log, metrics
        self.hosts = None if hosts is None else frozenset(name.lower() for name in hosts)
        self.route_of, self.header_bytes = route_of, header_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        logged: dict[str, Any] = {}
        scope.setdefault("state", {})["logged"] = logged
        path, status, sent = str(scope["path"]), 0, 0
        request_id = secrets.token_hex(8)
        policy = PAGE_POLICY if path == "/" else API_POLICY
        extra = [*HEADERS, (b"content-security-policy", policy.encode()), (b"x-request-id", request_id.encode())]

        async def send_on(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = int(message["status"])
                given = {name for name, _ in message.get("headers", [])}
                more = [header for header in extra if header[0] not in given]
                message = {**message, "headers": [*message.get("headers", []), *more]}
            elif message["type"] == "http.response.body":
                sent += len(message.get("body", b""))
            await send(message)

        self.metrics.in_flight.inc()
        try:
            refused = self._refusal(scope)
            if refused is not None:
                logged["code"] = refused.code
                await error_response(refused, path)(scope, receive, send_on)
            else:
                await self.app(scope, receive, send_on)
        except Exception as error:
            logged |= {"code": "internal", "at": place_of(error)}
            if not status:
                await error_response(RequestError("internal", INTERNAL), path)(scope, receive, send_on)
        finally:
            self.metrics.in_flight.dec()
            self._count(scope, logged, status, sent, time.perf_counter() - started, request_id)

    def _refusal(self, scope: Scope) -> RequestError | None:
        """Why a request is rejected; None if it is not."""
        request = Request(scope)
        size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size + len(scope.get("raw_path") or b"") + len(scope["query_string"]) > self.header_bytes:
            return RequestError("headers_too_large", f"The headers are larger than {self.header_bytes:,} bytes.")
        if self.hosts is not None:
            host = request.headers.get("host", "").lower()
            name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
            if name not in self.hosts:
                return RequestError("forbidden", "The request names another host than this service has (--allow-host).")
        if self.tokens is None:
            return None
        needed = needed_scope(str(scope["method"]), str(scope["path"]))
        if not needed:
            return None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        bearer = given.strip().encode("utf-8", "replace") if kind.lower() == "bearer" else None
        scopes = self.tokens.scopes(bearer)
        if scopes is None:
            return RequestError(
                "unauthorised", "A valid token is needed: send the header 'Authorization: Bearer TOKEN'."
            )
        if needed not in scopes:
            return RequestError("forbidden", f"This token may not do that; it needs the scope '{needed}'.")
        return None

    def _count(
        self, scope: Scope, logged: dict[str, Any], status: int, sent: int, seconds: float, request_id: str
    ) -> None:
        route = self.route_of(scope)
        counts = {name: int(logged.get(name, 0)) for name in ("samples", "readings")}
        code = str(logged.get("code", ""))
        self.metrics.answered(route, status, seconds, code, counts["samples"], counts["readings"])
        facts = {name: logged[name] for name in ("code", "at", "samples", "readings", "bytes_in") if logged.get(name)}
        client = scope.get("client")
        self.log(
            "request",
            level="error" if status >= 500 else "info",
            id=request_id,
            method=scope["method"] if scope["method"] in ("GET", "POST", "DELETE", "HEAD", "PUT") else "other",
            route=route,
            status=status,
            ms=round(1000 * seconds, 2),
            bytes_out=sent,
            **facts,
            details={"path": scope["path"], "client": None if client is None else client[0]},
        )
