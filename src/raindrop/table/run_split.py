"""The split of a run: which samples a model was trained on, identified by their readings and not only by their ids."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, reading
from raindrop.files import atomic_file, file_checksum
from raindrop.table.blocks import is_large
from raindrop.table.event_table import EventTable

MIN_READINGS = 3  # minimum to identify a sample under another id by its readings


@dataclass(frozen=True)
class FoundParts:
    """The samples of a table, matched with a run's split."""

    part: list[str | None]
    """The part of each sample; None for a sample that is not in the run."""
    changed: int
    """Samples with the id of a sample of the run but other readings, treated as that sample."""
    renamed: int
    """Samples with the readings of a sample of the run under another id, treated as that sample."""
    same_ids: int
    """Samples that only share an id with a sample of the run, since the table shares no readings with the run."""

    def is_in(self, *parts: str | None) -> NDArray[np.bool_]:
        """(samples,) which belong to one of these parts."""
        return np.array([part in parts for part in self.part], dtype=bool)


@dataclass(frozen=True)
class RunSplit:
    """Part, id and hash of the readings of each sample of a run."""

    frame: pl.DataFrame

    @classmethod
    def of(cls, parts: Mapping[str, EventTable]) -> RunSplit:
        """The split into these tables, by the names of the parts."""
        columns = [
            pl.DataFrame(
                {
                    "part": name,
                    "sample": table.samples["sample"],
                    "readings": readings_hash(table),
                    "count": table.count,
                }
            )
            for name, table in parts.items()
            if len(table)
        ]
        return cls(pl.concat(columns).insert_column(0, pl.lit(1, dtype=pl.Int8).alias("split")))

    def write(self, path: Path) -> str:
        """Write the split as Parquet (it is also a split file) and return the file's checksum."""
        with atomic_file(path) as partial:
            self.frame.write_parquet(partial)
        return file_checksum(path)

    @classmethod
    def read(cls, path: Path, checksum: str) -> RunSplit:
        """The split in a file; raises unless it is the one that was written with the model."""
        with reading(path, "the samples that the run was trained on"):
            if file_checksum(path) != checksum:
                raise DataError(
                    f"{path}: not the split that the model was saved with; damaged or exchanged, so that training "
                    "samples cannot be told from others.\nCopy the run again, or use --part all to take every sample."
                )
            return cls(pl.read_parquet(path))

    def find(self, table: EventTable) -> FoundParts:
        """The part of each sample of a table.

        A sample is matched by id and readings, or by its readings alone if there are at least MIN_READINGS. If a table
        has any such sample, others are matched by their id alone, since some readings may have been edited; otherwise
        equal ids are taken to be different samples.
        """
        known = self.frame.select("sample", "part", "readings", "count")
        found = pl.DataFrame({"sample": table.samples["sample"], "hash": readings_hash(table)})
        by_name = known.unique("sample", keep="first", maintain_order=True)  # a sample may be in two parts
        by_id = found.join(by_name, on="sample", how="left", maintain_order="left")
        several = known.filter(pl.col("count") >= MIN_READINGS).unique("readings", keep="first", maintain_order=True)
        by_readings = found.join(several, left_on="hash", right_on="readings", how="left", maintain_order="left")
        same = (by_id["hash"] == by_id["readings"]).fill_null(False)
        renamed = ~same & by_readings["part"].is_not_null()
        changed = ~same & ~renamed & by_id["part"].is_not_null()
        is_other_table = not (same | renamed).any()
        parts = [
            one if is_same or (is_changed and not is_other_table) else other if is_renamed else None
            for one, other, is_same, is_changed, is_renamed in zip(
                by_id["part"], by_readings["part"], same, changed, renamed, strict=True
            )
        ]
        count = int(changed.sum())
        return FoundParts(parts, 0 if is_other_table else count, int(renamed.sum()), count if is_other_table else 0)


def readings_hash(table: EventTable) -> NDArray[np.uint64]:
    """(samples,) a 64-bit hash of the readings of each sample, independent of the order of the table's sensors.

    It is the sum of a hash of each reading (time, sensor name, value), so it takes one pass over the arrays.
    """
    names = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in (*table.sensors, table.time_unit)]
    *codes, unit = np.frombuffer(b"".join(names), dtype="<u8").astype(np.uint64)
    of_sensor = np.array(codes, dtype=np.uint64)
    hashes = np.zeros(len(table), dtype=np.uint64)
    for chunk in np.array_split(np.arange(len(table)), max(1, table.num_readings // 4_000_000)):
        rows = table.rows(chunk)
        time = (np.asarray(table.time[rows]) + 0.0).view(np.uint64)  # -0.0 is 0.0
        value = (np.asarray(table.value[rows]) + 0.0).view(np.uint64)
        mixed = _mix(_mix(_mix(time ^ unit) + of_sensor[table.sensor[rows]]) + value)
        totals = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        ends = np.cumsum(table.count[chunk])
        hashes[chunk] = totals[ends] - totals[ends - table.count[chunk]]
        if is_large(table.time):
            table.release()
    return hashes


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit over all others (the finaliser of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
