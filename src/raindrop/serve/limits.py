"""What a request may ask of the service: every bound is checked before memory is taken for it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from raindrop.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one request, and of all of them together."""

    body_bytes: int = 4 << 20
    """largest body of a request, in bytes."""
    readings: int = 100_000
    """most readings in a request."""
    samples: int = 1_000
    """most samples in a request."""
    sensors: int = 1_000
    """most different sensors in a request, and in a graph."""
    queries: int = 100_000
    """most readings that a request may ask for (gaps to fill, or times to forecast)."""
    explained: int = 4
    """most samples in a request that asks what moved the score, or for graphs."""
    seconds: float = 30.0
    """longest time from a request's first byte to the end of its answer."""
    body_seconds: float = 10.0
    """longest time in which a client may send a body."""
    header_seconds: float = 5.0
    """longest time in which a client may send the headers."""
    idle_seconds: float = 15.0
    """how long a connection is kept without a request."""
    header_bytes: int = 16_384
    """largest request line and headers together."""
    connections: int = 512
    """most open connections; a further one is closed at once."""
    waiting: int = 256
    """most requests that wait for a worker; a further one is answered with 429."""
    waiting_bytes: int = 16 << 20
    """most bytes of bodies that are being read or wait for a worker; a further one is answered with 429."""
    batch_samples: int = 64
    """most samples that are scored together."""
    batch_readings: int = 30_000
    """most readings that are scored together; a request with more is scored alone."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ConfigError(f"The limit {field.name}={value} must be a number above 0.")
