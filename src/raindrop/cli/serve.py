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
    """The limits of requests."""

    max_body_mb: float = 4.0
    """largest body of a request."""
    max_readings: int = 100_000
    """most readings in a request, and of a live sample."""
    max_samples: int = 1_000
    """most samples in a request."""
    max_sensors: int = 1_000
    """most different sensors in a request."""
    max_queries: int = 100_000
    """most readings that a request may ask for."""
    max_seconds: float = 30.0
    """longest time from a request to its answer."""
    max_waiting: int = 256
    """most requests that wait; a further one is answered with 429."""
    max_connections: int = 512
    """most open connections."""
    batch_samples: int = 64
    """most samples that are scored together."""


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

    Stop it with Ctrl-C or SIGTERM: requests that wait are answered first. SIGHUP serves the models on the disk anew.

    Args:
        runs: folders that 'raindrop train', 'impute train' or 'forecast train' wrote; at most one of each kind.
        port: to listen at; 0 takes a free one.
        host: address to listen at; without tokens only this machine can be allowed to ask.
        tokens: file of 'raindrop token'; without it everybody on this machine may ask.
        without_tokens: let other machines ask without a token, too.
        allow_host: further names by which browsers reach the service.
        tls_certificate: file with a certificate (PEM), for HTTPS.
        tls_key: file with its private key (PEM).
        workers: processes that hold the models and compute.
        threads: with which each of them computes.
        watch: serve a run as soon as it is written anew.
        stream_state: folder to keep live samples in when the service ends.
        stream_samples: most live samples.
        stream_lateness: how long before its sample's latest reading a reading may lie, in the model's time unit.
        stream_window: a live sample is its readings of so long before its latest one.
        unknown_sensors: readings of sensors that were never read in training are an error, or ignored.
        require_signature: file with a key; a run that was not signed with it ('raindrop sign') is refused.
        log: file for the log, a JSON object per line; standard error where not given.
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
        raise ConfigError("--workers and --threads are whole numbers from 1 on.")
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
    """The names by which this machine knows itself, against websites that lead a browser here by a name of theirs."""
    return ("127.0.0.1", "localhost", "[::1]", host, *more)


def _limits(bounds: Bounds) -> Any:
    from raindrop.serve.limits import Limits

    given = {field.name: getattr(bounds, field.name) for field in fields(bounds)}
    body = int(given.pop("max_body_mb") * (1 << 20))
    renamed = {name.removeprefix("max_"): value for name, value in given.items()}
    return Limits(body_bytes=body, waiting_bytes=4 * body, **renamed)


def token(file: Path, *, name: str, scopes: Words = ("predict", "stream", "model"), remove: bool = False) -> None:
    """Make a token for 'raindrop serve --tokens FILE' and print it; the file keeps only its hash.

    Args:
        file: of tokens; made where there is none.
        name: who or what has the token.
        scopes: what its bearer may do: predict, stream, model, metrics, admin.
        remove: remove the token of this name instead.
    """
    from raindrop.serve.tokens import add_token, remove_token

    if remove:
        remove_token(file, name)
        console.print(f"removed the token '{escape(name)}' from {escape(str(file))}; restart the service")
        return
    secret = add_token(file, name, scopes)
    console.print(f"{secret}\n[dim]It is shown once. Send it as: Authorization: Bearer {secret[:6]}...[/]")
