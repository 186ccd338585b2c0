"""The addresses of the service, and the application that has them. openapi.py describes their inputs and outputs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from raindrop.serve import protocol_v2
from raindrop.serve.bodies import GraphBody, PredictBody, ReadingsBody
from raindrop.serve.failures import INTERNAL, RequestError
from raindrop.serve.gate import Gate, error_response
from raindrop.serve.openapi import describe_routes, described
from raindrop.serve.service import Service
from raindrop.version import VERSION

PAGE_FILES = {"page.css": "text/css", "page.js": "text/javascript", "drawing.js": "text/javascript"}


def create_app(service: Service) -> ASGIApp:
    """The application of a service, for any ASGI server."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.open()
        watching = asyncio.create_task(service.watch()) if service.options.watch else None
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()
            await service.close()

    app = FastAPI(
        title="raindrop", version=VERSION, lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.service = service
    _add_routes(app, service)
    describe_routes(app, service)

    async def on_request_error(request: Request, error: Any) -> Response:
        request.state.logged["code"] = error.code
        return error_response(error, request.url.path)

    async def on_http_error(request: Request, error: Any) -> Response:
        codes = {
            404: ("not_found", "There is no such address; GET /openapi.json lists them."),
            405: ("method_not_allowed", "This address takes another method; GET /openapi.json lists them."),
        }
        code, message = codes.get(error.status_code, ("bad_request", "The request cannot be understood."))
        return await on_request_error(request, RequestError(code, message))

    async def on_failure(request: Request, error: Exception) -> Response:
        return await on_request_error(request, RequestError("internal", INTERNAL))

    app.add_exception_handler(RequestError, on_request_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_failure)

    def route_of(scope: Scope) -> str:
        route = scope.get("route")
        return str(getattr(route, "path", "other"))

    return Gate(
        app,
        tokens=service.tokens,
        hosts=service.options.hosts,
        log=service.log,
        metrics=service.metrics,
        route_of=route_of,
        header_bytes=service.limits.header_bytes,
    )


def _add_routes(app: FastAPI, service: Service) -> None:
    """Add all addresses; openapi.py describes their inputs and outputs."""

    @app.post("/v1/predict", **described("predict"))
    async def predict(request: Request) -> Response:
        return await service.answer(request, "predict", PredictBody)

    @app.post("/v1/readings", **described("readings"))
    async def readings(request: Request) -> Response:
        return await service.answer(request, "readings", ReadingsBody)

    @app.post("/v1/graph", **described("graph"))
    async def graph(request: Request) -> Response:
        return await service.answer(request, "graph", GraphBody)

    @app.post("/v1/stream/{sample}", **described("push"))
    async def push(request: Request, sample: str) -> Response:
        return await service.push(request, sample)

    @app.get("/v1/stream/{sample}", **described("live"))
    async def live(request: Request, sample: str) -> Response:
        return await service.live_sample(request, sample, "get")

    @app.delete("/v1/stream/{sample}", **described("let_go"))
    async def let_go(request: Request, sample: str) -> Response:
        return await service.live_sample(request, sample, "delete")

    @app.get("/v1/model", **described("model"))
    async def model() -> Response:
        return _json(service.about())

    @app.post("/v1/model/reload", **described("reload"))
    async def reload() -> Response:
        await service.reload_within(service.limits.seconds)
        return _json(service.about())

    @app.get("/health/live", **described("alive"))
    @app.get("/v2/health/live", **described("alive_v2"))
    async def alive() -> Response:
        return _json({"live": True})

    @app.get("/health/ready", **described("ready"))
    @app.get("/v2/health/ready", **described("ready_v2"))
    async def ready() -> Response:
        return _json({"ready": service.ready}, 200 if service.ready else 503)

    @app.get("/metrics", **described("metrics"))
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/v2", **described("server_v2"))
    async def server() -> Response:
        return _json({"name": "raindrop", "version": VERSION, "extensions": []})

    @app.get("/v2/models/{name}", **described("model_v2"))
    async def metadata(name: str) -> Response:
        return _json(protocol_v2.metadata(service.card(name)))

    @app.get("/v2/models/{name}/ready", **described("model_ready_v2"))
    async def model_ready(name: str) -> Response:
        card = service.card(name)
        return _json({"name": card["name"], "ready": service.ready}, 200 if service.ready else 503)

    @app.post("/v2/models/{name}/infer", **described("infer"))
    async def infer(request: Request, name: str) -> Response:
        return await service.infer(request, name)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(_page_file("index.html"), media_type="text/html; charset=utf-8")

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        if name not in PAGE_FILES:
            raise RequestError("not_found", "There is no such file.")
        return Response(_page_file(name), media_type=f"{PAGE_FILES[name]}; charset=utf-8")

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content, enc_hook=str), status, media_type="application/json")


def _page_file(name: str) -> bytes:
    return (files("raindrop.serve") / "page" / name).read_bytes()
