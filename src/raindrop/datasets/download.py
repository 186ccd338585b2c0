"""Download published files: checksums are verified, and interrupted downloads are resumed.

A file gets its name only when it is complete and its checksum is right; until then it is `.NAME.part`.
"""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raindrop.datasets.publishers import Listing, Publication, Remote, entries_checksum
from raindrop.errors import DataError, format_count, reading
from raindrop.files import file_checksum, read_json, write_json
from raindrop.table.npy_positions import read_positions

CHUNK = 1 << 18
RETRY_STATUS = (408, 425, 429, 500, 502, 503, 504)
"""HTTP status codes after which a request is repeated."""
CONNECTION_ERRORS = (OSError, http.client.HTTPException)
"""Raised when a connection fails; urllib's errors are OSErrors."""
RECORD_NAME = "checksums.json"

Progress = Callable[[str, int, int | None], None]
"""Called with a path, the amount downloaded so far, and the total if it is known."""

MAX_FAILURES = 20
"""After this many failed files of a list, the remaining ones are not tried."""


class UnavailableError(DataError):
    """The publisher does not serve this address, or it cannot be reached."""


@dataclass
class Fetcher:
    """Downloads files into a folder."""

    folder: Path
    attempts: int = 6
    """Requests in a row without any progress before giving up."""
    wait: float = 1.0
    """Seconds before the next request; doubles each time, up to 30."""
    timeout: float = 60.0
    """Seconds without data after which a connection counts as interrupted."""
    connections: int = 8
    """Simultaneous connections, for lists of small files."""
    progress: Progress = field(default=lambda path, done, total: None)
    checksums: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        record = self.folder / RECORD_NAME
        if record.exists():
            try:
                self.checksums = dict(read_json(record))
            except (ValueError, TypeError):
                raise DataError(f"{record}: damaged. Delete it to have the files checked and recorded again.") from None

    # ---------------------------------------------------------------- one file

    def fetch(self, remote: Remote, *, listed: bool = False) -> Path:
        """The path of a file, downloaded unless it is already in the folder with the right checksum.

        A `listed` file is one of many: its progress is not shown and its checksum, which is in the list, not recorded.
        """
        target = self.folder / remote.path
        expected = remote.sha256 or self.checksums.get(remote.path, {}).get("sha256")
        if target.exists() and expected and file_checksum(target) == expected:
            if not listed and remote.path not in self.checksums:  # killed before it was recorded
                self._record(remote, expected, target)
            return target
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{target.parent}: cannot be created ({error.strerror}).") from None
        partial = target.with_name(f".{target.name}.part")
        checksum = ""
        for _ in range(2):
            self._complete(remote, partial, _no_progress if listed else self.progress)
            checksum = file_checksum(partial)
            if expected in (None, checksum):
                break
            partial.unlink()
        else:
            raise DataError(
                f"{remote.address}: the wrong file arrived, twice (received SHA-256 {checksum[:16]}..., expected "
                f"{str(expected)[:16]}...).\nThe publisher has changed the file, or something on the way alters it; "
                "nothing was kept."
            )
        os.replace(partial, target)
        _tag_path(partial).unlink(missing_ok=True)
        if not listed:
            self._record(remote, checksum, target)
        return target

    def _record(self, remote: Remote, checksum: str, target: Path) -> None:
        size = target.stat().st_size
        self.checksums[remote.path] = {"sha256": checksum, "size": size, "address": remote.address}
        write_json(self.folder / RECORD_NAME, dict(sorted(self.checksums.items())))

    def forget(self, remote: Remote) -> None:
        """Remove a file from the record of checksums."""
        self.checksums.pop(remote.path, None)
        write_json(self.folder / RECORD_NAME, dict(sorted(self.checksums.items())))

    def _complete(self, remote: Remote, partial: Path, progress: Progress) -> None:
        """Repeat requests until `partial` is complete, each starting where the last one ended."""
        idle = 0
        while True:
            before = _size(partial)
            try:
                if self._append(remote, partial, progress):
                    return
                reason = "the connection was interrupted"
            except urllib.error.HTTPError as error:
                with error:
                    reason = f"the server answered {error.code} {error.reason}"
                    if error.code == 416:  # the partial file is longer than the published one: another version
                        partial.unlink(missing_ok=True)
                    elif error.code not in RETRY_STATUS:
                        error_type = UnavailableError if error.code in (404, 410) else DataError
                        raise error_type(f"{remote.address}: {reason}.") from None
            except CONNECTION_ERRORS as error:
                reason = str(getattr(error, "reason", "") or error) or type(error).__name__
            idle = 0 if _size(partial) > before else idle + 1
            if idle >= self.attempts:
                error_type = DataError if _size(partial) else UnavailableError
                raise error_type(
                    f"{remote.address}: {reason}, {self.attempts} times in a row.\n"
                    f"{_size(partial):,} bytes are kept in {partial}; run the same command again to continue."
                )
            time.sleep(min(30.0, self.wait * 2**idle))

    def _append(self, remote: Remote, partial: Path, progress: Progress) -> bool:
        """Append the response to one request; returns whether the file is complete."""
        size = _size(partial)
        headers = {"User-Agent": "raindrop-download", "Accept-Encoding": "identity"}
        tag = _tag_path(partial).read_text() if _tag_path(partial).is_file() else ""
        if size and (tag or remote.sha256):  # without either, two versions of a file could be mixed
            headers["Range"] = f"bytes={size}-"
            if tag:
                headers["If-Range"] = tag
        request = urllib.request.Request(remote.address, headers=headers)
        opener = urllib.request.build_opener(_NamedHostsOnly(remote))
        with opener.open(request, timeout=self.timeout) as response:
            done = _first_byte(response, size)
            length = response.headers.get("Content-Length")
            if length is not None and not length.strip().isdecimal():
                raise ConnectionError(f"the server announced {length!r} as the length of the file")
            total = done + int(length) if length is not None else None
            with _PartialFile(partial, done, response.headers.get("ETag") or "") as file:
                progress(remote.path, done, total)
                while block := response.read(CHUNK):
                    file.write(block)
                    done += len(block)
                    progress(remote.path, done, total)
        return total is None or done == total

    # ---------------------------------------------------------------- many small files

    def fetch_listed(self, listing: Listing) -> list[Path]:
        """Download every file of a published list, several at a time."""
        listed = self._read_listing(listing)
        done: list[Path] = []
        failures: list[str] = []

        def fetch_one(remote: Remote) -> None:
            if len(failures) < MAX_FAILURES:
                try:
                    done.append(self.fetch(remote, listed=True))
                    self.progress(listing.prefix, len(done), len(listed))
                except DataError as error:
                    failures.append(str(error).splitlines()[0])

        pool = ThreadPoolExecutor(self.connections)
        try:
            list(pool.map(fetch_one, listed))
        finally:
            pool.shutdown(cancel_futures=True)
        if failures:
            raise DataError(
                f"{format_count(len(listed) - len(done), len(listed), 'files')} could not be downloaded "
                f"(first: {failures[0]})\nThe others are kept; run the same command again to continue."
            )
        return sorted(done)

    def _read_listing(self, listing: Listing) -> list[Remote]:
        name = listing.address.rsplit("/", 1)[-1]
        file = self.fetch(Remote(listing.address, name))
        with reading(file, "a list of files and their checksums"):
            lines = file.read_text(encoding="utf-8").splitlines()
        remotes = []
        for line in lines:
            checksum, _, path = line.partition(" ")
            path = path.strip().removeprefix("*").removeprefix("./")
            if path.startswith(listing.prefix):
                remotes.append(Remote(listing.root + path, path.removeprefix(listing.prefix), sha256=checksum))
        if not remotes:
            raise DataError(f"{listing.address}: the list names no file below '{listing.prefix}'.")
        entries = [(remote.path, str(remote.sha256)) for remote in remotes]
        if listing.sha256 is not None and entries_checksum(entries) != listing.sha256:
            raise DataError(
                f"{listing.address}: the list of {len(entries):,} files is not the one that this version of raindrop "
                "knows; the publisher has changed it, or something on the way alters it. Nothing was downloaded."
            )
        return remotes


class _NamedHostsOnly(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to the host of the address or one that is named with it, and never from HTTPS to HTTP."""

    def __init__(self, remote: Remote):
        self.scheme, self.host = _scheme_and_host(remote.address)
        self.hosts = {self.host, *remote.hosts}

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        scheme, host = _scheme_and_host(newurl)
        if scheme not in ("https", self.scheme) or host not in self.hosts:
            raise DataError(
                f"{req.full_url}: the server redirects to {newurl[:200]!r}, which is not a place that its publisher "
                "named. Nothing was downloaded from there."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _scheme_and_host(address: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(address)
    return parts.scheme, parts.netloc


class _PartialFile:
    """A partial file opened after its first `start` bytes. Its errors are DataErrors, not errors of the connection."""

    def __init__(self, partial: Path, start: int, tag: str):
        self.partial, self.start, self.tag = partial, start, tag

    def __enter__(self) -> _PartialFile:
        try:
            _tag_path(self.partial).write_text(self.tag)
            self.file = open(self.partial, "r+b" if self.start else "wb")
            self.file.truncate(self.start)
            self.file.seek(self.start)
        except OSError as error:
            raise self._write_error(error) from None
        return self

    def write(self, block: bytes) -> None:
        try:
            self.file.write(block)
        except OSError as error:
            raise self._write_error(error) from None

    def __exit__(self, *_: object) -> None:
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
        except OSError as error:
            raise self._write_error(error) from None

    def _write_error(self, error: OSError) -> DataError:
        return DataError(f"{self.partial}: cannot be written ({error.strerror}).")


def _no_progress(path: str, done: int, total: int | None) -> None:
    pass


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _tag_path(partial: Path) -> Path:
    """The file that holds the ETag of `partial`, the server's name for this version of the file."""
    return partial.with_name(partial.name + ".tag")


def _first_byte(response: Any, size: int) -> int:
    """The position in the file at which the response starts: 0 if the server does not resume."""
    if response.status != 206:
        return 0
    first = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    if not first.isdecimal() or int(first) > size:
        raise ConnectionError("the server resumed at the wrong position")
    return int(first)


def announcement(publication: Publication, folder: str | os.PathLike[str]) -> str:
    """Size, source, licence and citation, to be shown before a download starts."""
    return (
        f"{publication.title}: about {publication.megabytes:,} MB, into {folder}\n"
        f"From {publication.page}\n"
        f"Licence: {publication.licence}\n"
        f"Cite: {publication.citation}"
    )


def download(publication: Publication, fetcher: Fetcher) -> list[Path]:
    """Download a publication; if its archives are unavailable, file by file from its list."""
    try:
        paths = [fetcher.fetch(remote) for remote in publication.files]
    except UnavailableError as error:
        if publication.listing is None:
            raise DataError(f"{error}\nSee {publication.page} for where it is now.") from None
        paths = fetcher.fetch_listed(publication.listing)
    return paths + [_fetch_split(remote, fetcher) for remote in publication.splits]


def _fetch_split(remote: Remote, fetcher: Fetcher) -> Path:
    """Download a split file. It has no published checksum, so it is read as a check."""
    path = fetcher.fetch(remote)
    try:
        read_positions(path)
    except DataError:
        path.unlink()
        fetcher.forget(remote)
        raise
    return path
