"""Request bodies: read within the limits, and decoded into jobs. Sizes are checked before memory is allocated."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
from starlette.requests import ClientDisconnect, Request

from raindrop.serve.failures import RequestError
from raindrop.serve.limits import Limits
from raindrop.serve.messages import Cell, Columns, Format, Job, Kind

ARROW_TYPES = ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow")
JSON_TYPES = ("application/json",)


class PredictBody(msgspec.Struct, forbid_unknown_fields=True):
    """Readings to predict from, with static attributes of their samples."""

    readings: Columns
    samples: dict[str, list[Cell]] = {}
    coverage: float | None = None
    explain: bool = False


class Queries(msgspec.Struct, forbid_unknown_fields=True):
    """The readings to predict."""

    time: list[float | str]
    sensor: list[str]
    sample: list[str] | None = None


class ReadingsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Readings around the queried ones; without `every` and `queries`, gaps are filled."""

    readings: Columns
    samples: dict[str, list[Cell]] = {}
    task: Literal["fill", "forecast"] | None = None
    every: float | None = None
    queries: Queries | None = None
    coverage: float | None = None


class GraphBody(msgspec.Struct, forbid_unknown_fields=True):
    """Readings whose sensor graph is requested."""

    readings: Columns
    samples: dict[str, list[Cell]] = {}
    edges: int = 50


class StreamColumns(msgspec.Struct, forbid_unknown_fields=True):
    """Readings of one sample."""

    time: list[float | str | None]
    sensor: list[str]
    value: list[float | str | None]


class StreamBody(msgspec.Struct, forbid_unknown_fields=True):
    """Readings and attributes of a live sample; with `offset`, sending it again is safe."""

    readings: StreamColumns | None = None
    statics: dict[str, Cell] = {}
    offset: int | None = None
    source: str = ""
    coverage: float | None = None


DECODERS = {kind: msgspec.json.Decoder(kind) for kind in (PredictBody, ReadingsBody, GraphBody, StreamBody)}


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body, read within the limits of size and time."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise RequestError("unsupported_format", "Compressed bodies are not read. Send it without Content-Encoding.")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limits.body_bytes:
        raise _too_large(limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                if len(body) + len(part) > limits.body_bytes:
                    raise _too_large(limits)
                body += part
    except TimeoutError:
        raise RequestError(
            "slow_client", f"The body did not arrive within {limits.body_seconds:g} seconds. Send it faster, or less."
        ) from None
    except ClientDisconnect:
        raise RequestError("bad_request", "The client went away before its body was read.") from None
    return bytes(body)


def _too_large(limits: Limits) -> RequestError:
    return RequestError(
        "too_large", f"The body is larger than {limits.body_bytes:,} bytes. Send fewer readings at a time."
    )


def media_type(request: Request) -> str:
    """The type of the body without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def answer_format(request: Request) -> Format:
    """json or arrow, depending on what the client accepts."""
    accepted = request.headers.get("accept", "")
    return "arrow" if any(kind in accepted for kind in ARROW_TYPES) else "json"


def decode(body: bytes, kind: type[Any]) -> Any:
    """The content of a JSON body; errors say where it is wrong."""
    try:
        return DECODERS[kind].decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RequestError("bad_request", f"The body is not what this address takes: {_reason(error)}.") from None


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:300].rstrip(".") if str(error) else "it is nested too deeply"


def check_columns(columns: Columns, samples: dict[str, list[Cell]], limits: Limits) -> int:
    """The number of samples of the readings; raises if there are too many, or columns differ in length."""
    lengths = {name: len(getattr(columns, name)) for name in ("time", "sensor", "value")}
    if columns.sample is not None:
        lengths["sample"] = len(columns.sample)
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {number:,}" for name, number in lengths.items())
        raise RequestError("bad_request", f"The columns of the readings must be equally long, but have: {listed}.")
    if lengths["time"] > limits.readings:
        raise RequestError(
            "too_large",
            f"The request has {lengths['time']:,} readings; at most {limits.readings:,} are read. Send fewer.",
        )
    if not lengths["time"]:
        raise RequestError("unusable_data", "The request has no readings. Give at least one.")
    if len(set(columns.sensor)) > limits.sensors:
        raise RequestError("too_large", f"The request has more than {limits.sensors:,} different sensors.")
    number = 1 if columns.sample is None else len(set(columns.sample))
    number = max([number, *(len(column) for column in samples.values())])
    if number > limits.samples:
        raise RequestError("too_large", f"The request has {number:,} samples; at most {limits.samples:,} are read.")
    if len(samples) > 200:
        raise RequestError("too_large", "The request has more than 200 attributes of samples.")
    return number


def job_of(kind: Kind, content: Any, request: Request, limits: Limits) -> tuple[Job, int]:
    """The job of a decoded JSON body, and its number of samples."""
    number = check_columns(content.readings, content.samples, limits)
    job = Job(0, kind, answer_format(request), content.readings, samples=content.samples)
    if not isinstance(content, GraphBody):
        job.coverage = content.coverage
    if isinstance(content, ReadingsBody):
        job.every = content.every
        if content.queries is not None:
            job.queries = _queries(content.queries, limits)
    elif isinstance(content, GraphBody):
        if not 1 <= content.edges <= 1_000:
            raise RequestError("bad_request", "'edges' must be a number from 1 to 1,000.")
        job.edges = content.edges
    return job, number


def _queries(queries: Queries, limits: Limits) -> dict[str, list[Any]]:
    if len(queries.time) > limits.queries:
        raise RequestError(
            "too_large", f"The request asks for {len(queries.time):,} readings; at most {limits.queries:,}."
        )
    sample = ["sample"] * len(queries.time) if queries.sample is None else queries.sample
    if not len(queries.time) == len(queries.sensor) == len(sample):
        raise RequestError("bad_request", "The columns of the queries (sample, time, sensor) must be equally long.")
    return {"sample": sample, "time": queries.time, "sensor": queries.sensor}
