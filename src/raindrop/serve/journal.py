"""A write-ahead journal: what arrived since the last saved state, on disk before it is acknowledged.

Each entry is preceded by its length and a checksum. A kill during a write leaves a partial entry at the end, which was
never acknowledged and is cut off when the journal is opened again. Entries are MessagePack: data, no code.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from raindrop.errors import DataError

HEADER = struct.Struct("<II")  # length and CRC-32 of what follows


class Journal:
    """An open journal file that entries are appended to."""

    def __init__(self, path: Path, *, sync: bool = True):
        """Open or create it; a partial entry at its end is cut off. `sync`: wait for the disk at every entry."""
        self.path, self.sync = path, sync
        self.file = open(path, "ab")  # noqa: SIM115
        whole = sum(HEADER.size + len(payload) for payload in _payloads(path))
        self.file.truncate(whole)

    def append(self, entry: dict[str, Any]) -> None:
        """Add an entry; it is on disk when this returns. If that fails, the journal is unchanged."""
        payload = msgspec.msgpack.encode(entry)
        before = self.size
        try:
            self.file.write(HEADER.pack(len(payload), zlib.crc32(payload)) + payload)
            self.file.flush()
            if self.sync:
                os.fsync(self.file.fileno())
        except BaseException:
            os.ftruncate(self.file.fileno(), before)
            raise

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return os.fstat(self.file.fileno()).st_size

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def read_entries(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a journal up to the first incomplete one; none if there is no file."""
    for payload in _payloads(path):
        try:
            yield msgspec.msgpack.decode(payload)
        except msgspec.MsgspecError:
            raise DataError(f"{path}: an entry cannot be read; this is not the journal of a stream.") from None


def _payloads(path: Path) -> Iterator[bytes]:
    if not path.exists():
        return
    with open(path, "rb") as file:
        while len(header := file.read(HEADER.size)) == HEADER.size:
            length, checksum = HEADER.unpack(header)
            payload = file.read(length)
            if len(payload) < length or zlib.crc32(payload) != checksum:
                return
            yield payload
