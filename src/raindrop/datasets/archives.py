"""Read published files one by one from folders and archives.

Nothing is unpacked to disk. A truncated archive raises, and never gives a shorter data set.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from raindrop.datasets.conversion import Report, Source
from raindrop.datasets.limits import MAX_DEPTH, Budget, require_regular_file
from raindrop.errors import DataError

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz")
SUFFIXES = (*TAR_SUFFIXES, ".zip")
MAX_PADDING = 64 << 20
ARCHIVE_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError,
                  NotImplementedError, ValueError)  # fmt: skip
"""Raised by the readers of truncated, damaged or encrypted archives."""


@dataclass(frozen=True)
class Member:
    """One file of a source."""

    path: str
    """The full path for messages, including the path inside an archive."""
    name: str
    content: bytes


def read_members(source: Source, matches: Callable[[str], object]) -> Iterator[Member]:
    """Every file of `source` whose name (without folders) matches, in the order of the paths or of the archive."""
    for path in source_paths(source):
        yield from _members_of_path(path, matches)


def source_paths(source: Source) -> list[Path]:
    """`source` as a list of paths, which must exist."""
    paths = [Path(path) for path in ([source] if isinstance(source, (str, os.PathLike)) else source)]
    if not paths:
        raise DataError("There is no source. Name a folder, an archive, or several of them.")
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: there is no such file or folder.")
    return paths


def skip_repeats(members: Iterable[Member], report: Report) -> Iterator[Member]:
    """Each file name once. An identical second file is skipped and counted, a different one raises."""
    seen: dict[str, tuple[bytes, str]] = {}
    for member in members:
        digest = hashlib.blake2b(member.content, digest_size=16).digest()
        if member.name not in seen:
            seen[member.name] = digest, member.path
            yield member
        elif seen[member.name][0] == digest:
            report.count("the same file a second time, read once", 1, "files")
        else:
            raise DataError(
                f"{member.path}: a second, different file for the record of {seen[member.name][1]}.\n"
                "Every record is one file; remove the wrong one, or give a source that has only one of them."
            )


def _members_of_path(
    path: Path, matches: Callable[[str], object], above: frozenset[str] = frozenset()
) -> Iterator[Member]:
    if path.is_dir():
        place = os.path.realpath(path)
        if place in above:
            raise DataError(f"{path}: a link to a folder that contains it, so it has no end. Remove the link.")
        for inner in sorted(path.iterdir()):
            if inner.is_dir() or is_archive(inner.name) or matches(inner.name):
                yield from _members_of_path(inner, matches, above | {place})
    elif is_archive(path.name):
        require_regular_file(path)
        budget = Budget(str(path), path.stat().st_size)
        try:
            with open(path, "rb") as file:
                yield from _members_of_archive(file, path.name, str(path), matches, budget)
        except DataError:
            raise
        except ARCHIVE_ERRORS as error:
            raise DataError(
                f"{path}: the archive is truncated or damaged ({_reason(error)}).\nDownload or copy it again."
            ) from None
    elif matches(path.name):
        try:
            require_regular_file(path)
            yield Member(str(path), path.name, path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({_reason(error)}).") from None
    else:
        raise DataError(f"{path}: neither a folder nor an archive that can be read ({', '.join(SUFFIXES)}).")


def is_archive(name: str) -> bool:
    """Whether a file with this name is searched for members."""
    return name.casefold().endswith(SUFFIXES)


def _members_of_archive(
    file: IO[bytes], name: str, path: str, matches: Callable[[str], object], budget: Budget, depth: int = 1
) -> Iterator[Member]:
    if depth > MAX_DEPTH:
        raise DataError(f"{path}: an archive inside {MAX_DEPTH} others. Unpack it yourself and give the folder.")
    if name.casefold().endswith(".zip"):
        yield from _zip_members(file, path, matches, budget, depth)
    else:
        yield from _tar_members(file, name.casefold(), path, matches, budget, depth)


def _tar_members(
    file: IO[bytes], name: str, path: str, matches: Callable[[str], object], budget: Budget, depth: int
) -> Iterator[Member]:
    """The members of a tar file. `tarfile` accepts a stream that ends early, so the end marker is checked here."""
    stream = _TailRecorder(_decompress(file, name))
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for entry in tar:
            base, place = os.path.basename(entry.name), f"{path}/{entry.name}"
            budget.count(place)
            if entry.issparse() or (not (entry.isfile() or entry.isdir()) and (matches(base) or is_archive(base))):
                raise DataError(
                    f"{place}: not a plain file but a link, pipe, device or sparse file; such are not read."
                )
            budget.announce(place, entry.size)
            if entry.isfile() and (matches(base) or is_archive(base)):
                content = tar.extractfile(entry)
                assert content is not None  # it is a file
                yield from _members_of_entry(content, base, place, matches, budget, depth)
    for _ in range(MAX_PADDING >> 20):
        if not stream.read(1 << 20):
            break
    else:
        raise DataError(f"{path}: more than {MAX_PADDING >> 20} MiB follow the end of the archive.")
    if stream.tail.strip(b"\0") or len(stream.tail) < 1024:
        raise EOFError("it ends before its end marker")


def _decompress(file: IO[bytes], name: str) -> Any:
    if name.endswith((".gz", ".tgz")):
        return gzip.GzipFile(fileobj=file)
    return lzma.LZMAFile(file) if name.endswith((".xz", ".txz")) else file


class _TailRecorder(io.RawIOBase):
    """A stream that records the last 1,024 bytes read."""

    def __init__(self, stream: Any):
        self.stream, self.tail = stream, b""

    def read(self, size: int = -1) -> bytes:
        data: bytes = self.stream.read(size)
        self.tail = data[-1024:] if len(data) >= 1024 else (self.tail + data)[-1024:]
        return data


def _zip_members(
    file: IO[bytes], path: str, matches: Callable[[str], object], budget: Budget, depth: int
) -> Iterator[Member]:
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            base, place = os.path.basename(entry.filename), f"{path}/{entry.filename}"
            budget.count(place)
            if not place.endswith("/") and (matches(base) or is_archive(base)):
                if stat.S_ISLNK(entry.external_attr >> 16):
                    raise DataError(f"{place}: not a plain file but a link; such are not read.")
                budget.announce(place, entry.file_size)
                with archive.open(entry) as content:
                    yield from _members_of_entry(content, base, place, matches, budget, depth)


def _members_of_entry(
    content: IO[bytes], name: str, path: str, matches: Callable[[str], object], budget: Budget, depth: int
) -> Iterator[Member]:
    """A file in an archive, or the members of an archive inside an archive."""
    if matches(name):
        yield Member(path, name, budget.read(content, path))
        return
    with tempfile.TemporaryFile() as copy:  # an archive must be seekable, an entry of another archive is not
        budget.read(content, path, copy)
        copy.seek(0)
        yield from _members_of_archive(copy, name, path, matches, budget, depth + 1)


def _reason(error: BaseException) -> str:
    text = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    return text[0].lower() + text[1:]
