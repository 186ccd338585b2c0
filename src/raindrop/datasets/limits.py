"""Limits for archives: what a small file could expand to is rejected before it takes memory, disk or time."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from raindrop.errors import DataError

MAX_MEMBERS = 1_000_000
MAX_MEMBER_BYTES = 2 << 30
MAX_TOTAL_BYTES = 32 << 30
MAX_RATIO = 200
"""Unpacked to packed size; published text reaches about 30, a zip bomb about 1,000."""
FREE_BYTES = 64 << 20
"""Smaller archives may have any ratio."""
MAX_DEPTH = 3
"""Maximum nesting of archives."""
CHUNK = 1 << 20


@dataclass
class Budget:
    """What has been read from one source so far."""

    source: str
    packed: int
    """Size of the outermost archive; 0 for a folder, whose files have their own size."""
    members: int = 0
    unpacked: int = 0

    def count(self, path: str) -> None:
        """Count an entry of an archive or a folder."""
        self.members += 1
        if self.members > MAX_MEMBERS:
            raise self._error(path, f"it has more than {MAX_MEMBERS:,} entries")

    def announce(self, path: str, size: int) -> None:
        """Reject an entry by the size in its header, before it is read."""
        if size > MAX_MEMBER_BYTES:
            raise self._error(path, f"an entry of {size:,} bytes is larger than {MAX_MEMBER_BYTES:,}")
        self._check(path, self.unpacked + size)

    def read(self, content: IO[bytes], path: str, into: IO[bytes] | None = None) -> bytes:
        """All bytes of an entry, or b"" if they are copied `into` a file; the header may have given a smaller size."""
        blocks, size = [], 0
        while block := content.read(CHUNK):
            size += len(block)
            self.unpacked += len(block)
            if size > MAX_MEMBER_BYTES:
                raise self._error(path, f"an entry is larger than {MAX_MEMBER_BYTES:,} bytes")
            self._check(path, self.unpacked)
            if into is None:
                blocks.append(block)
            else:
                into.write(block)
        return b"".join(blocks)

    def _check(self, path: str, unpacked: int) -> None:
        if unpacked > MAX_TOTAL_BYTES:
            raise self._error(path, f"it unpacks to more than {MAX_TOTAL_BYTES:,} bytes")
        if self.packed and unpacked > FREE_BYTES and unpacked > MAX_RATIO * self.packed:
            raise self._error(path, f"it unpacks to more than {MAX_RATIO} times its size")

    def _error(self, path: str, reason: str) -> DataError:
        return DataError(
            f"{path}: {reason}, which no published data set does.\n"
            f"If you trust {self.source}, unpack it yourself and give the folder."
        )


def require_regular_file(path: Path) -> None:
    """Raise on a device, pipe or socket, which could be read forever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(f"{path}: not a regular file but a device, pipe or socket. Remove it from the source.")
