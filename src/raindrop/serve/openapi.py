"""The OpenAPI description of the service, with examples for the served models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from raindrop.serve.bodies import ARROW_TYPES, GraphBody, PredictBody, ReadingsBody, StreamBody
from raindrop.serve.failures import STATUS
from raindrop.serve.protocol_v2 import InferRequest
from raindrop.version import VERSION

if TYPE_CHECKING:
    from raindrop.serve.service import Service

BODIES: dict[str, type[Any]] = {
    "predict": PredictBody,
    "readings": ReadingsBody,
    "graph": GraphBody,
    "push": StreamBody,
    "infer": InferRequest,
}
TAKES_ARROW = ("predict", "readings", "graph")
TEXTS = {
    "predict": ("Predict samples", "Readings in, one prediction per sample out; with `explain`, what moved each."),
    "readings": (
        "Fill or forecast readings",
        "An imputer fills gaps, a forecaster forecasts; each value has an interval.",
    ),
    "graph": ("Sensor graphs", "For each sample, which sensor informs which: its strongest edges."),
    "push": ("Push readings of a live sample", "Readings as they come, in any order; the answer is the new score."),
    "live": ("Score of a live sample", "Of all readings that were pushed so far."),
    "let_go": ("Forget a live sample", "Its readings are deleted."),
    "model": ("The models", "What is served: tasks, sensors, units, what they were trained on; and the limits."),
    "reload": ("Serve the models on the disk", "No request is dropped; where they cannot be loaded, the former stay."),
    "alive": ("Liveness", "The process answers."),
    "ready": ("Readiness", "Requests are answered; 503 while starting or stopping."),
    "metrics": ("Metrics", "In the text format of Prometheus."),
    "server_v2": ("Server (V2)", "Open Inference Protocol: name and version."),
    "alive_v2": ("Liveness (V2)", "Open Inference Protocol."),
    "ready_v2": ("Readiness (V2)", "Open Inference Protocol."),
    "model_v2": ("Model metadata (V2)", "Open Inference Protocol: input and output tensors."),
    "model_ready_v2": ("Model readiness (V2)", "Open Inference Protocol."),
    "infer": ("Infer (V2)", "Open Inference Protocol: readings as the flat tensors sample, time, sensor and value."),
}
ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"code": {"type": "string", "enum": sorted(STATUS)}, "message": {"type": "string"}},
            "required": ["code", "message"],
        }
    },
    "required": ["error"],
}


def described(name: str) -> dict[str, Any]:
    """Title and text of an address, as arguments for FastAPI."""
    title, text = TEXTS[name]
    return {"operation_id": name, "summary": title, "description": text, "response_class": Response}


def describe_routes(app: FastAPI, service: Service) -> None:
    """Build the description on demand: the examples are readings of the models' own sensors."""

    def openapi() -> dict[str, Any]:
        content = get_openapi(
            title="raindrop",
            version=VERSION,
            description="Predictions, filled readings and sensor graphs from irregularly sampled time series. "
            "Times are numbers in the model's time unit (GET /v1/model), or date times.",
            routes=app.routes,
        )
        schemas, components = msgspec.json.schema_components(
            BODIES.values(), ref_template="#/components/schemas/{name}"
        )
        content.setdefault("components", {})["schemas"] = components | {"Error": ERROR}
        content["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        if service.tokens is not None:
            content["security"] = [{"token": []}]
        by_name = dict(zip(BODIES, schemas, strict=True))
        examples = _examples(service)
        for path in content["paths"].values():
            for operation in path.values():
                _describe(operation, by_name, examples)
        return content

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(operation: dict[str, Any], schemas: dict[str, Any], examples: dict[str, Any]) -> None:
    name = operation["operationId"]
    failure = {"description": "What is wrong, as a code and a sentence.", "content": _content({"$ref": _error()})}
    operation["responses"] = {"200": {"description": "The answer.", "content": _content({})}, "default": failure}
    if name not in schemas:
        return
    content = _content(schemas[name])
    if name in examples:
        content["application/json"]["examples"] = examples[name]
    if name in TAKES_ARROW:
        content[ARROW_TYPES[0]] = {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "An Arrow IPC stream with the columns sample, time, sensor and value, not compressed.",
            }
        }
    operation["requestBody"] = {"required": True, "content": content}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _error() -> str:
    return "#/components/schemas/Error"


def _examples(service: Service) -> dict[str, Any]:
    """For each address, an example that works with the served models."""
    cards = {card["kind"]: card for card in service.pool.models}
    examples: dict[str, Any] = {}

    def add(name: str, title: str, value: dict[str, Any]) -> None:
        examples.setdefault(name, {})[title] = {"value": value}

    if "samples" in cards:
        readings = cards["samples"]["examples"][0]["readings"]
        add("predict", "one sample", {"readings": readings})
        named = {"sample": ["a"] * len(readings["time"]), **readings}
        add("predict", "what moved it", {"readings": named, "explain": True})
        add("push", "three readings", {"readings": {name: column[:3] for name, column in readings.items()}})
        add("infer", "one sample", _tensors(readings))
    graph = cards.get("samples") or next(iter(cards.values()), None)
    if graph is not None:
        add("graph", "strongest edges", {"readings": graph["examples"][0]["readings"], "edges": 10})
    if "imputer" in cards:
        add("readings", "fill gaps", {"readings": cards["imputer"]["examples"][0]["readings"], "task": "fill"})
    if "forecaster" in cards:
        card = cards["forecaster"]
        readings = card["examples"][0]["readings"]
        add("readings", "forecast", {"readings": readings, "task": "forecast", "every": card["horizon"] / 4})
    return examples


def _tensors(readings: dict[str, list[Any]]) -> dict[str, Any]:
    columns = {"sample": ["a"] * len(readings["time"]), **readings}
    kinds = {"sample": "BYTES", "time": "FP64", "sensor": "BYTES", "value": "FP64"}
    return {
        "inputs": [
            {"name": name, "shape": [len(columns[name])], "datatype": kind, "data": columns[name]}
            for name, kind in kinds.items()
        ]
    }
