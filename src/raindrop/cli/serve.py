"""The commands `raindrop serve` and `raindrop token`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.markup import escape

from raindrop.cli.samples import console
from raindrop.cli.table_options import Words
from raindrop.errors import ConfigError, MissingExtraError


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits of requests."""

    max_body_mb: float = 4.0
    """maximum size of a request body."""
    max_readings: int = 100_000
    """maximum number of readings in a request, and of a live sample."""
    max_samples: int = 1_000
    """maximum number of samples in a request."""
    max_sensors: int = 1_000
    """maximum number of different sensors in a request."""
    max_queries: int = 100_000
    """maximum number of readings that a request may query."""
    max_seconds: float = 30.0
    """maximum time from a request to its response."""
    max_waiting: int = 256
    """maximum number of waiting requests; further ones get a 429 response."""
    max_connections: int = 512
    """maximum number of open connections."""
    batch_samples: int = 64
    """maximum number of samples that are scored together."""


BOUNDS = Bounds()


def serve(
    runs: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    port: int = 8000,
    host: str = "127.0.0.1",
    tokens: Path | None = None,
    without_tokens: bool = False,
    allow_host: Words = (),
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
    workers: int = 1,
    threads: int = 1,
    watch: bool = False,
    stream_state: Path | None = None,
    stream_samples: int = 10_000,
    stream_lateness: float | None = None,
    stream_window: float | None = None,
    unknown_sensors: Literal["error", "ignore"] = "error",
    require_signature: Path | None = None,
    log: Path | None = None,
    log_details: bool = False,
    bounds: Bounds = BOUNDS,
) -> None:
    """Serve trained models over HTTP, with a page to try them.

    Stop it with Ctrl-C or SIGTERM: waiting requests are answered first. SIGHUP reloads the models from disk.

    Args:
        runs: folders that 'raindrop train', 'impute train' or 'forecast train' wrote; at most one of each kind.
        port: port to listen on; 0 chooses a free one.
        host: address to listen on; without tokens only this machine is allowed.
        tokens: file written by 'raindrop token'; without it, all requests from this machine are accepted.
        without_tokens: also accept requests from other machines without a token.
        allow_host: additional host names of the service.
        tls_certificate: file with a certificate (PEM), for HTTPS.
        tls_key: file with its private key (PEM).
        workers: number of processes that hold the models and compute.
        threads: number of CPU threads of each worker.
        watch: reload a run as soon as it is overwritten.
        stream_state: folder to save live samples in when the service stops.
        stream_samples: maximum number of live samples.
        stream_lateness: how much older than its sample's latest reading a reading may be, in the model's time unit.
        stream_window: keep the readings of a live sample up to this long before its latest one.
        unknown_sensors: what to do with readings of sensors not seen in training: error or ignore.
        require_signature: file with a key; the runs must have been signed with it ('raindrop sign').
        log: file for the log, a JSON object per line; by default standard error.
        log_details: also log paths and addresses of clients, which can identify samples and people.
    """
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "fastapi", "serve", "The service") from None
    from raindrop.serve.live_keeper import StreamOptions
    from raindrop.serve.logs import Log
    from raindrop.serve.server import Address, check_exposure, run
    from raindrop.serve.service import Options, Service
    from raindrop.serve.tokens import Tokens

    if not runs:
        raise ConfigError("Which run? Name at least one folder that 'raindrop train' wrote.")
    if workers < 1 or threads < 1:
        raise ConfigError("--workers and --threads must be whole numbers of at least 1.")
    address = Address(host=host, port=port, certificate=tls_certificate, private_key=tls_key)
    check_exposure(address, tokens is not None, without_tokens)
    if not address.is_loopback and tls_certificate is None:
        console.print("note: without --tls-certificate, readings and tokens cross the network in the clear")
    service = Service(
        runs,
        limits=_limits(bounds),
        tokens=None if tokens is None else Tokens.read(tokens),
        log=Log(log, details=log_details),
        options=Options(
            workers=workers,
            threads=threads,
            unknown_sensors=unknown_sensors,
            key=require_signature,
            watch=watch,
            hosts=None if tokens is not None or without_tokens else local_names(host, allow_host),
        ),
        stream=StreamOptions(
            state=stream_state, max_samples=stream_samples, lateness=stream_lateness, window=stream_window
        ),
    )

    def started(url: str) -> None:
        names = ", ".join(card["name"] for card in service.pool.models)
        console.print(f"serving {escape(names)} at {escape(url)} (Ctrl-C stops it)")

    run(service, address, started)
    console.print("stopped")


def local_names(host: str, more: Sequence[str] = ()) -> tuple[str, ...]:
    """The host names of this machine; requests for other names are rejected, against DNS rebinding."""
    return ("127.0.0.1", "localhost", "[::1]", host, *more)


def _limits(bounds: Bounds) -> Any:
    from raindrop.serve.limits import Limits

    given = {field.name: getattr(bounds, field.name) for field in fields(bounds)}
    body = int(given.pop("max_body_mb") * (1 << 20))
    renamed = {name.removeprefix("max_"): value for name, value in given.items()}
    return Limits(body_bytes=body, waiting_bytes=4 * body, **renamed)


def token(file: Path, *, name: str, scopes: Words = ("predict", "stream", "model"), remove: bool = False) -> None:
    """Create a token for 'raindrop serve --tokens FILE' and print it; the file stores only its hash.

    Args:
        file: file of tokens; created if it does not exist.
        name: who or what has the token.
        scopes: permissions of its bearer: predict, stream, model, metrics, admin.
        remove: remove the token of this name instead.
    """
    from raindrop.serve.tokens import add_token, remove_token

    if remove:
        remove_token(file, name)
        console.print(f"removed the token '{escape(name)}' from {escape(str(file))}; restart the service")
        return
    secret = add_token(file, name, scopes)
    console.print(f"{secret}\n[dim]It is shown once. Send it as: Authorization: Bearer {secret[:6]}...[/]")
