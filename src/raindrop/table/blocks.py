"""Large tables in blocks of samples: only a bounded part is read at a time, and its memory is released afterwards.

The arrays of a table on disk are memory-mapped. Pages that were read stay in memory until the system needs the space,
and count as memory of the process. A pass over a table larger than memory therefore works on one block after another
and releases the pages of each. A table of at most LARGE readings is a single block.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]
LARGE = 1 << 24  # readings (about 340 MB); smaller tables are processed in one block
BLOCK = 1 << 22  # readings per block of a larger table
NEARBY = 1 << 13  # readings that the system maps around one that is read (64 KB of times)
QUERY = 4  # readings that take about as much memory as the answer to one query
RANGES = 16  # ranges of samples that are mixed in a pool


def is_many(readings: int) -> bool:
    """Whether a table with this many readings is large."""
    return readings > LARGE


def is_large(array: NDArray[Any]) -> bool:
    """Whether a table with this array of readings is processed in blocks."""
    return is_many(len(array))


def sample_ranges(
    start: Positions,
    count: Positions,
    limit: int,
    samples: int | None = None,
    queries: NDArray[Any] | None = None,
) -> list[slice]:
    """Ranges of consecutive samples with at most `limit` readings each; a longer sample is its own range.

    start, count: where the readings of each sample are. Readings between two samples are read too, up to NEARBY.
    samples: maximum number per range, by default unlimited. queries: approximate number of queries of each sample, each
    of which takes the memory of QUERY readings.
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
    """The blocks of a table whose readings are in `array`; a single one if it is not large."""
    return (is_large(array) and sample_ranges(start, count, BLOCK, queries=queries)) or [slice(0, len(count))]


def pools(array: NDArray[Any], start: Positions, count: Positions, rng: np.random.Generator) -> list[Positions]:
    """The items in pools of about LARGE readings, each read at one time; a single pool if that is enough.

    A pool combines RANGES ranges of items that are contiguous in the file, drawn again for each call, so that the items
    are mixed differently each time.
    """
    if not is_large(array):
        return [np.arange(len(count))]
    order = np.argsort(start, kind="stable")
    ranges = sample_ranges(start[order], count[order], max(1, LARGE // RANGES))
    drawn = np.array_split(rng.permutation(len(ranges)), -(-len(ranges) // RANGES))
    return [np.concatenate([order[ranges[at]] for at in some]) for some in drawn]


def release(*arrays: NDArray[Any] | None) -> None:
    """Release the pages of memory-mapped arrays; they are read again when needed. Other arrays are left alone."""
    for array in arrays:
        mapped = getattr(array, "_mmap", None)
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def evenly_spread(count: Positions, limit: int) -> Positions:
    """Positions of samples, evenly spread over the table, that have about `limit` readings in total."""
    share = min(1.0, limit / max(1, int(count.sum())))
    chosen = np.linspace(0, len(count) - 1, max(1, round(len(count) * share))).astype(np.int64)
    return np.unique(chosen)


class PageBudget:
    """Counts scattered reads of a large table, and tells when its pages should be released."""

    def __init__(self) -> None:
        self.read = 0

    def spend(self, readings: int, items: int) -> bool:
        """Count these readings of `items` places; True if about as much is in memory as a whole LARGE table."""
        self.read += readings + NEARBY * items
        if self.read <= LARGE:
            return False
        self.read = 0
        return True


def blocks_of(table: Any, queries: NDArray[Any] | None = None) -> Iterator[Any]:
    """The table block by block (`EventTable.blocks`); blocks are smaller if there are many queries per sample."""
    ranges = block_ranges(table.time, table.start, table.count, queries)
    for part in ranges:
        yield table if len(ranges) == 1 else table[part]
        if is_large(table.time):
            release(table.time, table.sensor, table.value)


def copied(table: Any) -> dict[str, Any]:
    """The arrays of an EventTable with only its own readings, sample by sample, in memory."""
    names = [name for name in ("time", "sensor", "value", "filled") if getattr(table, name) is not None]
    parts = [{name: np.array(getattr(part, name)[part.rows()]) for name in names} for part in blocks_of(table)]
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in names}
    return arrays | {"start": np.cumsum(table.count) - table.count}
