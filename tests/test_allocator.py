"""Memory that stays with the process between steps on large batches."""

from __future__ import annotations

import subprocess
import sys

import pytest

from raindrop import allocator


def test_small_batches_leave_the_process_as_it_is(monkeypatch):
    called = []
    monkeypatch.setattr(allocator, "keep_memory", lambda: called.append(True))
    allocator.keep_memory_for(allocator.LARGE - 1)
    assert not called
    allocator.keep_memory_for(allocator.LARGE)
    assert called


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library of Linux")
def test_large_blocks_that_were_freed_stay_with_the_process():
    program = """
import numpy as np
from raindrop.allocator import keep_memory
kept = keep_memory()
rss = lambda: int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1])
blocks = [np.ones(5_000_000) for _ in range(10)]
high = rss()
del blocks
print(int(kept), high - rss())
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    kept, freed = map(int, run.stdout.split())
    if not kept:
        pytest.skip("another C library")
    assert freed < 100_000  # of the 400 MB
