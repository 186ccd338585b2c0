"""Write filled tables and predicted readings block by block while they are predicted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from raindrop.files import refuse_to_overwrite
from raindrop.table.blocks import is_large
from raindrop.table.event_table import EventTable
from raindrop.table.growing_files import growing_file
from raindrop.table.parts import GrowingArrays, files_beside, write_parts
from raindrop.table.readings import Readings
from raindrop.table.store import new_table_folder

Append = Callable[[EventTable], None]
"""Appends a block of samples; the blocks of a table come in order."""


def write_filled(
    table: EventTable,
    parts: Iterable[Readings],
    *,
    folder: str | os.PathLike[str] | None = None,
    readings: str | os.PathLike[str] | None = None,
) -> tuple[int, int]:
    """Write the predictions for a table: the filled table as a folder, the readings alone as a file, or both.

    parts: the predicted readings, in blocks or all at once. Returns their number, and how many of them were added to
    the table: all except those at a time when the sensor was read. If a prediction fails, nothing is written.
    """
    predicted = total = 0
    with ExitStack() as stack:  # the file is renamed before the folder: a killed command can be repeated
        add_block = None if folder is None else stack.enter_context(_growing_table(folder, table))
        add_rows = (
            None
            if readings is None
            else stack.enter_context(growing_file(readings, overwrite=False, for_spreadsheets=True))
        )
        for part in parts:
            predicted += len(part)
            if add_rows is not None:
                add_rows(part.frame())
            if add_block is not None:
                for block in part.fill_blocks():
                    add_block(block)
                    total += block.num_readings
    return predicted, total - table.num_readings if folder is not None else 0


@contextmanager
def _growing_table(folder: str | os.PathLike[str], table: EventTable) -> Iterator[Append]:
    """Write a table from blocks of filled samples; `table` has the samples and roles. A small table is one block.

    The folder gets its name when it is complete.
    """
    if not is_large(table.time):
        refuse_to_overwrite(Path(folder))  # before anything is predicted
        blocks: list[EventTable] = []
        yield blocks.append
        (complete,) = blocks
        complete.write(folder)
        return
    beside = files_beside(table)
    with new_table_folder(Path(folder), False, beside) as partial:
        arrays = GrowingArrays(partial, filled=True)
        counts: list[NDArray[np.int64]] = []
        sensors: list[tuple[str, ...]] = []

        def append(block: EventTable) -> None:
            arrays.append_table(block)
            counts.append(block.count)
            sensors[:] = [block.sensors]

        with arrays:
            yield append
        count = np.concatenate(counts)
        opened = arrays.open() | {"start": np.cumsum(count) - count, "count": count}
        complete = replace(table, **opened, sensors=sensors[0])
        write_parts(partial, complete, complete.info(), beside)
