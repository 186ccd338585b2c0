"""Parts of a table: ranges of whole samples, cut in the same way for every engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.batch.collate import MAX_SAMPLES
from raindrop.scale.messages import Part
from raindrop.table.blocks import sample_ranges
from raindrop.table.event_table import EventTable
from raindrop.table.store import arrays_are_usable, read_info

PART_SAMPLES = 2 * MAX_SAMPLES
"""A multiple of a batch, so that a table in parts has the same batches as one that is scored whole."""
PART_READINGS = 1 << 20
SMALL_TABLE = 16
"""A table of fewer parts is scored by one process unless the user chooses otherwise: processes are slow to start."""


def cut_samples(readings: NDArray[np.int64], most_samples: int, most_readings: int) -> list[Part]:
    """Parts of at most this many samples and readings; a sample with more readings is a part by itself.

    readings: (samples,) the number of readings of each.
    """
    ranges = sample_ranges(np.cumsum(readings) - readings, readings, most_readings, most_samples)
    return [Part(number, each.start, each.stop) for number, each in enumerate(ranges)]


def cut_table(table: EventTable) -> list[Part]:
    """The parts of a table; they depend on the table alone, not on the engine."""
    return cut_samples(np.asarray(table.count), PART_SAMPLES, PART_READINGS)


def is_small(table: EventTable) -> bool:
    """Whether one process is enough for a table."""
    return len(cut_table(table)) < SMALL_TABLE


def part_frames(table: EventTable, part: Part) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The readings and the samples of a part."""
    chosen = table[part.start : part.stop]
    return chosen.events(), chosen.samples


def stored_fingerprint(folder: Path) -> str | None:
    """The fingerprint of a table that any process can open from its folder; None if it must be written first.

    Files of other programs, and edited Parquet files, are read and checked once, not by every worker.
    """
    info = read_info(folder) if folder.is_dir() else None
    return info.fingerprint if info is not None and arrays_are_usable(folder, info) else None


def describe_samples(part: Part, ids: pl.Series) -> str:
    """For messages: "the samples 'a' to 'b'"."""
    first, last = ids[part.start], ids[part.stop - 1]
    return f"sample '{first}'" if len(part) == 1 else f"the {len(part):,} samples '{first}' to '{last}'"
