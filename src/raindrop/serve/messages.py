"""Messages between the service and its workers: msgpack, each preceded by its length in four bytes."""

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
    """The served model to use; if empty, the one that fits the kind."""
    every: float | None = None
    queries: dict[str, list[Any]] | None = None
    edges: int = 50
    sample: str = ""
    """For a stream."""
    action: str = ""
    """For a stream: push, get or delete."""
    id: str = ""
    """For a request of the V2 protocol; returned unchanged."""
    outputs: list[str] = []
    """For a request of the V2 protocol: return only these tensors."""


class Reply(msgspec.Struct, omit_defaults=True):
    """The reply to a job: the response body, or an error."""

    number: int
    media_type: str = "application/json"
    body: bytes = b""
    code: str = ""
    """Of the error; empty if there is none."""
    message: str = ""
    samples: int = 0
    readings: int = 0
    place: str = ""
    """Where an unexpected exception was raised, for the log."""


class Batch(msgspec.Struct):
    """Jobs to process together, as the worker reads them."""

    jobs: list[Job]


class PackedBatch(msgspec.Struct):
    """The same as the service writes it: each job was encoded when its request arrived."""

    jobs: list[msgspec.Raw]


class Hello(msgspec.Struct, omit_defaults=True):
    """The first message of a worker after loading its models; with an `error` if that failed."""

    models: list[dict[str, Any]] = []
    error: str = ""


class Replies(msgspec.Struct):
    """The replies to a batch, and what the worker counted since the last one."""

    replies: list[Reply]
    memory: int = 0
    """Resident bytes of the worker."""
    live_samples: int = 0
    gauges: list[Watched] = []
    """Gauges of the readings, such as drift; empty if there is nothing new."""


def pack(job: Job) -> msgspec.Raw:
    """An encoded job; raises if it has an invalid number."""
    try:
        return msgspec.Raw(msgspec.msgpack.encode(job))
    except (OverflowError, UnicodeEncodeError):
        raise RequestError("bad_request", "The body has a number that is too large, or text that is none.") from None


def frame_message(content: Any) -> bytes:
    """A message with its length in front."""
    body = msgspec.msgpack.encode(content)
    return LENGTH.pack(len(body)) + body
