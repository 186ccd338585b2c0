"""Devices, threads and memory: where a model computes, with how many threads, and whether it fits into memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from raindrop.errors import ConfigError, NotEnoughMemoryError, suggest

Device = Literal["cpu", "cuda", "mps", "auto"]


def resolve_device(name: str) -> str:
    """The device of this name, checked to exist; "auto" chooses the best available."""
    if name.partition(":")[0] not in get_args(Device):
        raise ConfigError(f"Unknown device '{name}': {suggest(name, get_args(Device))}")
    import torch

    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    kind, _, number = name.partition(":")
    if not available[kind] or (number and (not number.isdecimal() or int(number) >= torch.cuda.device_count())):
        there = ", ".join(f"'{kind}'" for kind, found in available.items() if found)
        raise ConfigError(f"device='{name}': there is no such device on this machine; there are {there}.")
    return name


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Use this many threads within the block; None lets `preferred_threads` choose. Restored afterwards."""
    import torch

    wanted = preferred_threads() if threads is None else threads
    before, pools = torch.get_num_threads(), _thread_pools(len(sys.modules))
    if before == wanted and all(library.num_threads == wanted for library in pools.lib_controllers):
        yield
        return
    with pools.limit(limits=wanted):
        torch.set_num_threads(wanted)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _thread_pools(num_modules: int) -> Any:
    """The libraries with their own threads; cached until further modules are imported, because the search is slow."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def preferred_threads() -> int:
    """One, unless the user chose another number by OMP_NUM_THREADS or torch.set_num_threads.

    The arrays of a batch are small. A second thread gains little on an idle core, and on a busy one the threads wait
    for each other; measured by benchmarks/threads.py.
    """
    import torch

    chosen = os.environ.get("OMP_NUM_THREADS", "")
    if chosen.isdecimal() and int(chosen) > 0:
        return int(chosen)
    current = torch.get_num_threads()
    return 1 if current in _usual_threads() else current


def usable_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _usual_threads() -> set[int]:
    """torch's possible default numbers of threads here: all cores, the usable ones, or half of them (hyper-threads)."""
    cores = {os.cpu_count() or 1, usable_cores()}
    return cores | {max(1, number // 2) for number in cores}


def check_threads(threads: int | None) -> None:
    """Raise unless it is a valid number of threads, or None."""
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ConfigError(
            f"threads={threads!r}: must be a whole number of at least 1, or None to let the library choose."
        )


def available_memory() -> int | None:
    """Bytes that this process can still allocate: limits of machine, container and process; None if unknown."""
    found = [_of_machine(), _of_container(), _of_limit()]
    return min((number for number in found if number is not None), default=None)


def require_memory(needed: float, what: str, advice: str) -> None:
    """Raise before allocating if `what` needs more bytes than are available."""
    available = available_memory()
    if available is not None and needed > available:
        raise NotEnoughMemoryError(
            f"{what} would take about {needed / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB are available.\n"
            f"{advice}"
        )


def _of_machine() -> int | None:
    with suppress(OSError, ValueError, IndexError), open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    return None


def _of_container() -> int | None:
    folder = "/sys/fs/cgroup"
    with suppress(OSError, ValueError):
        limit, used = (Path(folder, f"memory.{name}").read_text().strip() for name in ("max", "current"))
        cached = next(
            (int(line.split()[1]) for line in Path(folder, "memory.stat").read_text().splitlines()
             if line.startswith("inactive_file ")), 0)  # fmt: skip
        return max(0, int(limit) - int(used) + cached)
    return None


def _of_limit() -> int | None:
    """What the limit of the address space leaves (`ulimit -v`)."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            return max(0, limit - pages * resource.getpagesize())
    return None
