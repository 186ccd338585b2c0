"""Write a large table: arrays grow block by block, then whole samples are written as Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from raindrop.files import write_json
from raindrop.table.blocks import BLOCK, sample_ranges
from raindrop.table.store import ARRAYS, FORMAT_OF_PARTS, TableInfo, Writer

GROWING = ("time", "sensor", "value")
FILLED = "filled"  # an array needed only while writing; the Parquet files have it as a column


class GrowingArrays:
    """The arrays of readings of a table that is being written, as append-only `.npy` files."""

    def __init__(self, folder: Path, *, filled: bool = False):
        """`folder` is the temporary folder of the table. filled: whether readings are marked as filled."""
        self.dtypes = {name: np.dtype(ARRAYS[name]) for name in GROWING}
        self.dtypes |= {FILLED: np.dtype(np.bool_)} if filled else {}
        self.folder = folder / "readings"
        self.folder.mkdir()
        self.length = 0

    def __enter__(self) -> Self:
        self._files = {name: open(self.folder / f"{name}.npy", "wb") for name in self.dtypes}  # noqa: SIM115
        self._write_headers()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._write_headers()
        for file in self._files.values():
            file.close()

    def _write_headers(self) -> None:
        """Write headers with the current length; numpy reserves space in them for growing arrays."""
        for name, file in self._files.items():
            file.seek(0)
            descr = npy.dtype_to_descr(self.dtypes[name])
            npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": (self.length,)})

    def append(self, **arrays: NDArray[Any]) -> None:
        """Add readings: time, sensor, value, and whether they are filled, if that is stored."""
        for name, file in self._files.items():
            file.write(np.ascontiguousarray(arrays[name], dtype=self.dtypes[name]).data)
        self.length += len(arrays["time"])

    def append_table(self, table: Any) -> None:
        """Add the readings of an EventTable, sample by sample."""
        rows = table.rows()
        self.append(**{name: getattr(table, name)[rows] for name in self.dtypes})

    def recode(self, codes: NDArray[np.int32]) -> None:
        """Give every sensor a new code, once all readings are written."""
        sensor = np.load(self.folder / "sensor.npy", mmap_mode="r+")
        for start in range(0, len(sensor), BLOCK):
            sensor[start : start + BLOCK] = codes[sensor[start : start + BLOCK]]
        sensor.flush()

    def open(self) -> dict[str, Any]:
        """The arrays, memory-mapped unless they are empty."""
        mode = "r" if self.length else None
        return {name: np.load(self.folder / f"{name}.npy", mmap_mode=mode) for name in self.dtypes}  # type: ignore[arg-type]


def write_arrays(folder: Path, blocks: Iterable[Any], *, filled: bool) -> dict[str, Any]:
    """Write the readings of these tables, one after another, and open the arrays."""
    arrays = GrowingArrays(folder, filled=filled)
    with arrays:
        for block in blocks:
            arrays.append_table(block)
    return arrays.open()


def files_beside(table: Any) -> dict[str, Writer]:
    """Writers of the additional files in an EventTable's folder, by name."""
    return {} if table.sensor_info is None else {"sensors.parquet": table.sensor_info.write_parquet}


def write_parts(folder: Path, table: Any, info: TableInfo, beside: Mapping[str, Writer]) -> None:
    """Write everything in a table's folder except its arrays, which exist already: `table` is the table on them.

    The readings of whole samples are in `events/part-00000.parquet` and so on, sorted; `table.json` comes last.
    """
    (folder / "events").mkdir()
    parts: dict[str, tuple[int, int]] = {}
    for number, chosen in enumerate(sample_ranges(table.start, table.count, BLOCK) or [slice(0, 0)]):
        name, part = f"events/part-{number:05d}.parquet", table[chosen]
        part.events().write_parquet(folder / name, compression="zstd")
        parts[name] = (len(part), part.num_readings)
        table.release()
    with suppress(PermissionError):  # Windows does not remove a file that is mapped
        (folder / "readings" / f"{FILLED}.npy").unlink(missing_ok=True)
    table.samples.write_parquet(folder / "samples.parquet", compression="zstd")
    for name, write in beside.items():
        write(folder / name)
    np.save(folder / "readings" / "offsets.npy", table.offsets)
    info = replace(info, format=FORMAT_OF_PARTS, parts=parts)
    write_json(folder / "table.json", info.complete(folder).content())
