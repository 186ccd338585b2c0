"""The fingerprint of a table: a hash of its entire content, computed block by block."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from raindrop.table.blocks import is_large

READINGS, ROWS = 4_000_000, 1 << 18  # hashed at a time


def fingerprint_of(table: Any) -> str:
    """A hash of the readings, samples, roles and time unit of an EventTable."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([table.sensors, table.time_unit, asdict(table.roles)]).encode())
    _add_frame(digest, table.samples)
    if table.sensor_info is not None:
        _add_frame(digest, table.sensor_info)
    digest.update(np.ascontiguousarray(table.count).tobytes())
    for chunk in np.array_split(np.arange(len(table)), max(1, table.num_readings // READINGS)):
        rows = table.rows(chunk)
        for column in (table.time, table.sensor, table.value, *(() if table.filled is None else (table.filled,))):
            digest.update(np.ascontiguousarray(column[rows]).tobytes())
        if is_large(table.time):
            table.release()
    return digest.hexdigest()


def _add_frame(digest: Any, frame: pl.DataFrame) -> None:
    """Add the JSON text of a frame, a list of rows, a few rows at a time."""
    if len(frame) <= ROWS:
        digest.update(frame.write_json().encode())
        return
    for start in range(0, len(frame), ROWS):
        digest.update(b"," if start else b"[")
        digest.update(frame[start : start + ROWS].write_json()[1:-1].encode())
    digest.update(b"]")
