"""Keep memory between steps. glibc gives large freed blocks back to the system, and every step pays for fresh pages."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of mallopt's options
KEPT = 512 * 2**20  # bytes that may stay with the process though they are free
LARGEST = 32 * 2**20  # blocks up to this come from the heap that is kept; glibc's own limit


@cache
def keep_memory() -> bool:
    """Once per process; whether it applies here. A third to a half less time per step on two cores (docs/log.md)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(TRIM_THRESHOLD, KEPT)) and bool(mallopt(MMAP_THRESHOLD, LARGEST))
