"""Large tables in blocks of samples: what is read at a time is bounded, and the memory of what was read is let go.

The arrays of a table on disk are memory-mapped. Pages that are read stay in memory until the system needs the room, and
count as memory of the process, so a pass over a table that is larger than memory works on one block after another and
gives the pages of each back. A table of at most LARGE readings is one block: nothing is different for it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]
LARGE = 1 << 24  # readings (about 340 MB) up to which a table is worked on whole
BLOCK = 1 << 22  # readings of a block of a larger one
NEARBY = 1 << 13  # readings that the system maps around one that is read (64 KB of times)
QUERY = 4  # readings that take about as much memory as the answer to one query
RANGES = 16  # of samples that are mixed in a pool


def is_many(readings: int) -> bool:
    """Whether a table of so many readings is large."""
    return readings > LARGE


def is_large(array: NDArray[Any]) -> bool:
    """Whether a table with this array of readings is worked on in blocks."""
    return is_many(len(array))


def sample_ranges(
    start: Positions,
    count: Positions,
    limit: int,
    samples: int | None = None,
    queries: NDArray[Any] | None = None,
) -> list[slice]:
    """Ranges of successive samples that read at most `limit` readings each; a longer sample is a range of its own.

    start, count: where the readings of each sample are. Readings between two samples are read too, up to NEARBY.
    samples: how many a range has at most; any number where not given. queries: about how many of each sample are
    answered, each of which takes the memory of QUERY readings.
    """
    read = count.astype(np.int64)
    read[1:] += np.minimum(np.abs(start[1:] - (start[:-1] + count[:-1])), NEARBY)
    if queries is not None:
        read = np.maximum(read, np.minimum(QUERY * np.ceil(queries), limit).astype(np.int64))
    total = np.concatenate([[0], np.cumsum(read)])
    ranges, first = [], 0
    while first < len(count):
        last = max(first + 1, int(np.searchsorted(total, total[first] + limit, side="right")) - 1)
        last = last if samples is None else min(last, first + samples)
        ranges.append(slice(first, last))
        first = last
    return ranges


def block_ranges(
    array: NDArray[Any], start: Positions, count: Positions, queries: NDArray[Any] | None = None
) -> list[slice]:
    """The blocks of a table whose readings are in `array`; one where it is not large."""
    return (is_large(array) and sample_ranges(start, count, BLOCK, queries=queries)) or [slice(0, len(count))]


def pools(array: NDArray[Any], start: Positions, count: Positions, rng: np.random.Generator) -> list[Positions]:
    """The items in pools of about LARGE readings, of which each is read at one time; all in one where that is enough.

    A pool is made of RANGES ranges of items that lie together in the file, drawn anew each time, so that other items
    meet in it.
    """
    if not is_large(array):
        return [np.arange(len(count))]
    order = np.argsort(start, kind="stable")
    ranges = sample_ranges(start[order], count[order], max(1, LARGE // RANGES))
    drawn = np.array_split(rng.permutation(len(ranges)), -(-len(ranges) // RANGES))
    return [np.concatenate([order[ranges[at]] for at in some]) for some in drawn]


def release(*arrays: NDArray[Any] | None) -> None:
    """Let the pages of memory-mapped arrays go; they are read again when they are needed. Other arrays stay."""
    for array in arrays:
        mapped = getattr(array, "_mmap", None)
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def evenly_spread(count: Positions, limit: int) -> Positions:
    """Positions of samples, evenly spread over all, that have about `limit` readings together."""
    share = min(1.0, limit / max(1, int(count.sum())))
    chosen = np.linspace(0, len(count) - 1, max(1, round(len(count) * share))).astype(np.int64)
    return np.unique(chosen)


class PageBudget:
    """Counts what is read of a large table here and there, and says when its pages should be let go."""

    def __init__(self) -> None:
        self.read = 0

    def spend(self, readings: int, items: int) -> bool:
        """Whether, with these readings of so many places, about as much is in memory as a table worked on whole."""
        self.read += readings + NEARBY * items
        if self.read <= LARGE:
            return False
        self.read = 0
        return True


def blocks_of(table: Any, queries: NDArray[Any] | None = None) -> Iterator[Any]:
    """The table block by block (`EventTable.blocks`); smaller blocks where many queries of a sample are answered."""
    ranges = block_ranges(table.time, table.start, table.count, queries)
    for part in ranges:
        yield table if len(ranges) == 1 else table[part]
        if is_large(table.time):
            release(table.time, table.sensor, table.value)


def copied(table: Any) -> dict[str, Any]:
    """The arrays of an EventTable with its own readings alone, sample by sample, in memory."""
    names = [name for name in ("time", "sensor", "value", "filled") if getattr(table, name) is not None]
    parts = [{name: np.array(getattr(part, name)[part.rows()]) for name in names} for part in blocks_of(table)]
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in names}
    return arrays | {"start": np.cumsum(table.count) - table.count}
