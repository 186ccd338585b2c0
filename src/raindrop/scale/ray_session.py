"""Ray: imported on first use, started on this machine only, or joined if RAY_ADDRESS is set to a cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from raindrop.errors import MissingExtraError, RaindropError, first_line
from raindrop.hardware import usable_cores

OBJECT_STORE_BYTES = 100 << 20  # results are files; only small messages pass through Ray
LOOPBACK = "127.0.0.1"


def import_ray() -> Any:
    """The package, without usage statistics and server logs."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    if not os.environ.get("RAY_ADDRESS"):  # otherwise Ray uses an address that other machines can reach
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", "ray", "The engine 'ray'") from None
    return ray


@contextmanager
def ray_session(processes: int | None) -> Iterator[Any]:
    """Ray for the duration of the block, shut down afterwards; if it already runs in this process, that one is used.

    With RAY_ADDRESS, that cluster is joined. Otherwise one with `processes` (by default all cores) is started that
    listens only on this machine's loopback, without a dashboard.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        options |= {
            "num_cpus": processes or usable_cores(),
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
            "_node_ip_address": LOOPBACK,
        }
    try:
        ray.init(address=address or "local", **options)
    except Exception as error:  # Ray raises many kinds of errors
        where = f"the cluster at RAY_ADDRESS={address} cannot be joined" if address else "Ray cannot be started here"
        raise RaindropError(f"{where[0].upper()}{where[1:]} ({first_line(error)}).") from None
    try:
        yield ray
    finally:
        ray.shutdown()
