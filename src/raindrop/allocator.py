"""Keep memory between steps. glibc gives large freed blocks back to the system, and every step pays for fresh pages."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of mallopt's options
KEPT = 2**31 - 1  # bytes that may stay with the process though they are free
LARGEST = 2**30  # blocks up to this come from the heap that is kept
LARGEST_OF_OLD = 2**25  # what older releases allow
LARGE = 2**19  # cells of a batch (timestamps x sensors) from which on it pays; below it does not (docs/log.md)


def keep_memory_for(cells: int) -> None:
    """Before work on a batch with so many cells."""
    if cells >= LARGE:
        keep_memory()


@cache
def keep_memory() -> bool:
    """Once per process; whether it applies here."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    kept = bool(mallopt(TRIM_THRESHOLD, KEPT))
    return kept and (bool(mallopt(MMAP_THRESHOLD, LARGEST)) or bool(mallopt(MMAP_THRESHOLD, LARGEST_OF_OLD)))
