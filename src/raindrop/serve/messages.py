"""What the service and its workers tell each other: msgpack messages, each after its length in four bytes."""

from __future__ import annotations

import struct
from typing import Any, Literal

import msgspec

from raindrop.serve.failures import RequestError

Kind = Literal["predict", "explain", "readings", "graph", "stream"]
Format = Literal["json", "arrow", "v2"]
Watched = tuple[str, dict[str, str], float]
"""Name, labels and value of a metric."""
Cell = float | int | str | bool | None
LENGTH = struct.Struct("<I")
MAX_MESSAGE = 1 << 30


class Columns(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Readings as columns of equal length; without `sample` they belong to one sample."""

    time: list[float | str | None]
    sensor: list[str]
    value: list[float | str | None]
    sample: list[str] | None = None


class Job(msgspec.Struct, omit_defaults=True):
    """One request for the worker."""

    number: int
    kind: Kind
    format: Format = "json"
    readings: Columns | None = None
    arrow: bytes | None = None
    """An Arrow IPC stream of the readings, instead of `readings`."""
    samples: dict[str, list[Cell]] = {}
    """Static attributes: the column `sample` and one for each."""
    coverage: float | None = None
    model: str = ""
    """Which of the served models; the one that fits the kind where empty."""
    every: float | None = None
    queries: dict[str, list[Any]] | None = None
    edges: int = 50
    sample: str = ""
    """Of a stream."""
    action: str = ""
    """Of a stream: push, get or delete."""
    id: str = ""
    """Of a request of the V2 protocol, returned as it came."""
    outputs: list[str] = []
    """Of a request of the V2 protocol: only these tensors are returned."""


class Reply(msgspec.Struct, omit_defaults=True):
    """The answer to a job: the body as it goes out, or an error."""

    number: int
    media_type: str = "application/json"
    body: bytes = b""
    code: str = ""
    """Of the error; empty where there is none."""
    message: str = ""
    samples: int = 0
    readings: int = 0
    place: str = ""
    """Where an unexpected exception was raised, for the log."""


class Batch(msgspec.Struct):
    """Jobs to be answered together, as the worker reads it."""

    jobs: list[Job]


class PackedBatch(msgspec.Struct):
    """The same as the service writes it: each job was encoded when its request came."""

    jobs: list[msgspec.Raw]


class Hello(msgspec.Struct, omit_defaults=True):
    """What a worker says once its models are loaded; with an `error`, that they cannot be."""

    models: list[dict[str, Any]] = []
    error: str = ""


class Replies(msgspec.Struct):
    """The answers to a batch, and what the worker counted since the last one."""

    replies: list[Reply]
    memory: int = 0
    """Resident bytes of the worker."""
    live_samples: int = 0
    gauges: list[Watched] = []
    """What is watched about the readings, such as drift; none where nothing is new."""


def pack(job: Job) -> msgspec.Raw:
    """A job as it is sent; an error where it has a number that cannot be."""
    try:
        return msgspec.Raw(msgspec.msgpack.encode(job))
    except (OverflowError, UnicodeEncodeError):
        raise RequestError("bad_request", "The body has a number that is too large, or text that is none.") from None


def frame_message(content: Any) -> bytes:
    """A message with its length in front."""
    body = msgspec.msgpack.encode(content)
    return LENGTH.pack(len(body)) + body
