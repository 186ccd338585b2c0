"""Limits of requests: each is checked before memory is allocated."""

from __future__ import annotations

from dataclasses import dataclass, fields

from raindrop.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one request, and of all requests together."""

    body_bytes: int = 4 << 20
    """maximum size of a request body, in bytes."""
    readings: int = 100_000
    """maximum number of readings in a request."""
    samples: int = 1_000
    """maximum number of samples in a request."""
    sensors: int = 1_000
    """maximum number of different sensors in a request, and in a graph."""
    queries: int = 100_000
    """maximum number of readings that a request may query (gaps to fill, or times to forecast)."""
    explained: int = 4
    """maximum number of samples in a request for contributions or graphs."""
    seconds: float = 30.0
    """maximum time from a request's first byte to the end of its response."""
    body_seconds: float = 10.0
    """maximum time for receiving a body."""
    header_seconds: float = 5.0
    """maximum time for receiving the headers."""
    idle_seconds: float = 15.0
    """how long a connection is kept without a request."""
    header_bytes: int = 16_384
    """maximum size of request line and headers together."""
    connections: int = 512
    """maximum number of open connections; further ones are closed immediately."""
    waiting: int = 256
    """maximum number of requests waiting for a worker; further ones get a 429 response."""
    waiting_bytes: int = 16 << 20
    """maximum total size of bodies being read or waiting for a worker; further ones get a 429 response."""
    batch_samples: int = 64
    """maximum number of samples that are scored together."""
    batch_readings: int = 30_000
    """maximum number of readings that are scored together; a larger request is scored alone."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ConfigError(f"The limit {field.name}={value} must be a number above 0.")
