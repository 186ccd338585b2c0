"""Where a data set is published: addresses, sizes, checksums and licence. Each data set has its own `PUBLICATION`.

Checksums are the SHA-256 of the files as their publishers serve them. Where none is known, the checksum of the first
download is recorded and later downloads are compared with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from raindrop.errors import DataError

PHYSIONET = "https://physionet.org/files"
AUTHORS = "https://raw.githubusercontent.com/mims-harvard/Raindrop/892eb5734e84aa8d18476c6a8975b55b2f30e1d1"


@dataclass(frozen=True)
class Remote:
    """A file to download, and its path in the output folder."""

    address: str
    path: str
    sha256: str | None = None
    hosts: tuple[str, ...] = ()
    """Hosts, beside that of the address, to which the publisher may redirect."""

    def __post_init__(self) -> None:
        if not is_inside(self.path):
            raise DataError(
                f"{self.address}: the path {self.path!r} is outside the output folder; nothing was written."
            )


@dataclass(frozen=True)
class Listing:
    """Many files whose names and checksums are in a published list (lines of: SHA-256, path)."""

    address: str
    root: str
    """The paths of the list are relative to this address."""
    prefix: str
    """Only paths with this prefix are downloaded; the rest of the path is the path in the output folder."""
    sha256: str | None = None
    """The expected `entries_checksum` of its files below the prefix. None accepts any list."""


@dataclass(frozen=True)
class Publication:
    """What to fetch for one data set."""

    title: str
    files: tuple[Remote, ...]
    licence: str
    page: str
    megabytes: int
    citation: str
    splits: tuple[Remote, ...] = ()
    """The paper's splits, by the paper's authors."""
    listing: Listing | None = None
    """Used if `files` are no longer served."""


def is_inside(path: str) -> bool:
    """Whether a relative path in a list stays inside the folder it is joined to, on every system."""
    parts = path.split("/")
    return all(part not in ("", ".", "..") for part in parts) and not any(
        character in "\\:" or ord(character) < 32 for character in path
    )


def entries_checksum(entries: Iterable[tuple[str, str]]) -> str:
    """SHA-256 of (path, SHA-256) pairs, sorted by path."""
    return hashlib.sha256("".join(f"{sha256} {path}\n" for path, sha256 in sorted(entries)).encode()).hexdigest()


def author_splits(pattern: str) -> tuple[Remote, ...]:
    """The five splits of the paper's authors, at a fixed commit."""
    return tuple(
        Remote(f"{AUTHORS}/{pattern.format(number)}", f"splits/{pattern.format(number).rsplit('/', 1)[-1]}")
        for number in range(1, 6)
    )
