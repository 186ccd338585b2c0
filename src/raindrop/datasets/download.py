"""Fetching published files: checked, and continued where a connection was cut.

A file has its name only when it is whole and its checksum is right; until then it is `.NAME.part`.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raindrop.datasets.publishers import PUBLICATIONS, Listing, Publication, Remote
from raindrop.errors import DataError, format_count, suggest
from raindrop.files import file_checksum, write_json
from raindrop.table.split_files import read_positions

CHUNK = 1 << 18
AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Answers after which it is worth asking again."""
CUT = (OSError, http.client.HTTPException)
"""What a connection that fails raises; urllib's errors are OSErrors."""
RECORD = "checksums.json"

Progress = Callable[[str, int, int | None], None]
"""Called with a path, how much of it is there, and how much there will be."""


MOST_FAULTS = 20
"""After so many files of a list that cannot be fetched the rest is not tried."""


class Gone(DataError):
    """The publisher does not serve this address, or cannot be reached at it."""


@dataclass
class Fetcher:
    """How patiently to fetch into which folder."""

    folder: Path
    attempts: int = 6
    """How often to ask again without getting any further."""
    wait: float = 1.0
    """Seconds before asking again; doubles each time, up to 30."""
    timeout: float = 60.0
    """Seconds without a byte after which a connection counts as cut."""
    connections: int = 8
    """At once, for lists of small files."""
    progress: Progress = field(default=lambda path, done, total: None)
    checksums: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        record = self.folder / RECORD
        if record.exists():
            try:
                self.checksums = dict(json.loads(record.read_text(encoding="utf-8")))
            except ValueError:
                raise DataError(f"{record}: damaged. Delete it to have the files checked and recorded anew.") from None

    # ---------------------------------------------------------------- one file

    def fetch(self, remote: Remote, *, listed: bool = False) -> Path:
        """The file of `remote`, from the folder if it is there and right, from the network otherwise.

        A `listed` file is one of many: its checksum is in a list already, and its own progress is of no interest.
        """
        target = self.folder / remote.path
        expected = remote.sha256 or self.checksums.get(remote.path, {}).get("sha256")
        if target.exists() and expected and file_checksum(target) == expected:
            return target
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{target.parent}: cannot be made ({error.strerror}).") from None
        partial = target.with_name(f".{target.name}.part")
        found = ""
        for _ in range(2):
            self._fill(remote, partial, _silent if listed else self.progress)
            found = file_checksum(partial)
            if expected in (None, found):
                break
            partial.unlink()
        else:
            raise DataError(
                f"{remote.address}: what arrived, twice, is not what is expected (SHA-256 {found[:16]}..., expected "
                f"{str(expected)[:16]}...).\nThe publisher has changed the file, or something on the way alters it; "
                "nothing was kept."
            )
        size = partial.stat().st_size
        os.replace(partial, target)
        _tag(partial).unlink(missing_ok=True)
        if not listed:
            self.checksums[remote.path] = {"sha256": found, "size": size, "address": remote.address}
            write_json(self.folder / RECORD, dict(sorted(self.checksums.items())))
        return target

    def forget(self, remote: Remote) -> None:
        """Take a file out of the record."""
        self.checksums.pop(remote.path, None)
        write_json(self.folder / RECORD, dict(sorted(self.checksums.items())))

    def _fill(self, remote: Remote, partial: Path, progress: Progress) -> None:
        """Ask until `partial` is as long as the publisher says, starting where it ends."""
        idle = 0
        while True:
            before = _size(partial)
            try:
                if self._append(remote, partial, progress):
                    return
                reason = "the connection was cut"
            except urllib.error.HTTPError as error:
                with error:
                    reason = f"the server answered {error.code} {error.reason}"
                    if error.code == 416:  # nothing after what is there: it is of another version
                        partial.unlink(missing_ok=True)
                    elif error.code not in AGAIN:
                        refusal = Gone if error.code in (404, 410) else DataError
                        raise refusal(f"{remote.address}: {reason}.") from None
            except CUT as error:
                reason = str(getattr(error, "reason", "") or error) or type(error).__name__
            idle = 0 if _size(partial) > before else idle + 1
            if idle >= self.attempts:
                kind = DataError if _size(partial) else Gone
                raise kind(
                    f"{remote.address}: {reason}, {self.attempts} times in a row.\n"
                    f"{_size(partial):,} bytes are kept in {partial}; run the same command again to continue."
                )
            time.sleep(min(30.0, self.wait * 2**idle))

    def _append(self, remote: Remote, partial: Path, progress: Progress) -> bool:
        """Read one answer to its end; whether the file is complete then."""
        have = _size(partial)
        headers = {"User-Agent": "raindrop-download", "Accept-Encoding": "identity"}
        tag = _tag(partial).read_text() if _tag(partial).is_file() else ""
        if have and (tag or remote.sha256):  # without either, two versions of a file could be mixed
            headers["Range"] = f"bytes={have}-"
            if tag:
                headers["If-Range"] = tag
        request = urllib.request.Request(remote.address, headers=headers)
        with urllib.request.urlopen(request, timeout=self.timeout) as answer:
            done = _start(answer, have)
            length = answer.headers.get("Content-Length")
            total = done + int(length) if length is not None else None
            with _Writing(partial, done, answer.headers.get("ETag") or "") as file:
                progress(remote.path, done, total)
                while block := answer.read(CHUNK):
                    file.write(block)
                    done += len(block)
                    progress(remote.path, done, total)
        return total is None or done == total

    # ---------------------------------------------------------------- many small files

    def fetch_listed(self, listing: Listing) -> list[Path]:
        """Every file of a published list, several at a time."""
        listed = self._listed(listing)
        done: list[Path] = []
        faults: list[str] = []

        def one(remote: Remote) -> None:
            if len(faults) < MOST_FAULTS:
                try:
                    done.append(self.fetch(remote, listed=True))
                    self.progress(listing.below, len(done), len(listed))
                except DataError as error:
                    faults.append(str(error).splitlines()[0])

        pool = ThreadPoolExecutor(self.connections)
        try:
            list(pool.map(one, listed))
        finally:
            pool.shutdown(cancel_futures=True)
        if faults:
            raise DataError(
                f"{format_count(len(listed) - len(done), len(listed), 'files')} are not fetched (first: {faults[0]})\n"
                "The others are kept; run the same command again to continue."
            )
        return sorted(done)

    def _listed(self, listing: Listing) -> list[Remote]:
        name = listing.address.rsplit("/", 1)[-1]
        lines = self.fetch(Remote(listing.address, name)).read_text(encoding="utf-8").splitlines()
        found = []
        for line in lines:
            checksum, _, path = line.partition(" ")
            path = path.strip().removeprefix("*").removeprefix("./")
            if path.startswith(listing.below) and ".." not in path:
                found.append(Remote(listing.root + path, path.removeprefix(listing.below), sha256=checksum))
        if not found:
            raise DataError(f"{listing.address}: the list names no file below '{listing.below}'.")
        return found


class _Writing:
    """A partial file open for what follows its first `start` bytes; a full disk is the person's, not the network's."""

    def __init__(self, partial: Path, start: int, tag: str):
        self.partial, self.start, self.tag = partial, start, tag

    def __enter__(self) -> _Writing:
        try:
            _tag(self.partial).write_text(self.tag)
            self.file = open(self.partial, "r+b" if self.start else "wb")
            self.file.truncate(self.start)
            self.file.seek(self.start)
        except OSError as error:
            raise self._unwritable(error) from None
        return self

    def write(self, block: bytes) -> None:
        try:
            self.file.write(block)
        except OSError as error:
            raise self._unwritable(error) from None

    def __exit__(self, *_: object) -> None:
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> DataError:
        return DataError(f"{self.partial}: cannot be written ({error.strerror}).")


def _silent(path: str, done: int, total: int | None) -> None:
    pass


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _tag(partial: Path) -> Path:
    """Where the server's name for the version that `partial` is of (its ETag) is kept."""
    return partial.with_name(partial.name + ".tag")


def _start(answer: Any, have: int) -> int:
    """Where in the file the answer begins: 0 where the server does not continue."""
    if answer.status != 206:
        return 0
    first = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    if not first.isdecimal() or int(first) > have:
        raise ConnectionError("the server continued at another place than it was asked to")
    return int(first)


def announcement(publication: Publication, folder: str | os.PathLike[str]) -> str:
    """What a person should know before a download starts."""
    return (
        f"{publication.title}: about {publication.megabytes:,} MB, into {folder}\n"
        f"From {publication.page}\n"
        f"Licence: {publication.licence}\n"
        f"Cite: {publication.citation}"
    )


def publication_of(name: str) -> Publication:
    """The publication of a data set by its short name."""
    if name not in PUBLICATIONS:
        raise DataError(f"There is no data set '{name}' to download: {suggest(name, PUBLICATIONS)}")
    return PUBLICATIONS[name]


def download(publication: Publication, fetcher: Fetcher) -> list[Path]:
    """Fetch everything of a publication; where its archives are gone, file by file from its list."""
    try:
        found = [fetcher.fetch(remote) for remote in publication.files]
    except Gone as gone:
        if publication.listing is None:
            raise DataError(f"{gone}\nSee {publication.page} for where it is now.") from None
        found = fetcher.fetch_listed(publication.listing)
    return found + [_split(remote, fetcher) for remote in publication.splits]


def _split(remote: Remote, fetcher: Fetcher) -> Path:
    """A split has no published checksum, but it can be read."""
    path = fetcher.fetch(remote)
    try:
        read_positions(path)
    except DataError:
        path.unlink()
        fetcher.forget(remote)
        raise
    return path
