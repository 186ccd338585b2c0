"""Files as published: a folder, an archive or several of either, read one file after the other.

Nothing is unpacked to disk, and an archive that stops early is an error, never a shorter data set.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from raindrop.datasets.conversion import Report
from raindrop.errors import DataError

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz")
SUFFIXES = (*TAR_SUFFIXES, ".zip")
DAMAGE = (EOFError, OSError, lzma.LZMAError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
"""What the readers raise at a truncated, damaged or locked archive."""


@dataclass(frozen=True)
class Member:
    """One file of a source."""

    where: str
    """The path a person would look for, through the archive if there is one."""
    name: str
    content: bytes


def members(source: Source, wanted: Callable[[str], object]) -> Iterator[Member]:
    """Every file of `source` whose name (without folders) is `wanted`, in the order of the paths or of the archive."""
    for path in paths(source):
        yield from _inside(path, wanted)


def paths(source: Source) -> list[Path]:
    """`source` as a list of paths that exist."""
    given = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not given:
        raise DataError("There is no source. Name a folder, an archive, or several of them.")
    for path in map(Path, given):
        if not path.exists():
            raise DataError(f"{path}: there is no such file or folder.")
    return [Path(path) for path in given]


def without_repeats(found: Iterable[Member], report: Report) -> Iterator[Member]:
    """Each file name once: a second file of that name is counted if it is the same, an error if it is not."""
    seen: dict[str, tuple[bytes, str]] = {}
    for member in found:
        digest = hashlib.blake2b(member.content, digest_size=16).digest()
        if member.name not in seen:
            seen[member.name] = digest, member.where
            yield member
        elif seen[member.name][0] == digest:
            report.count("the same file a second time, read once", 1, "files")
        else:
            raise DataError(
                f"{member.where}: a second, different file for the record of {seen[member.name][1]}.\n"
                "Every record is one file; remove the wrong one, or give a source that has only one of them."
            )


def _inside(path: Path, wanted: Callable[[str], object]) -> Iterator[Member]:
    if path.is_dir():
        for inner in sorted(path.iterdir()):
            if inner.is_dir() or is_archive(inner.name) or wanted(inner.name):
                yield from _inside(inner, wanted)
    elif is_archive(path.name):
        try:
            with open(path, "rb") as file:
                yield from _unpacked(file, path.name, str(path), wanted)
        except DAMAGE as error:
            raise DataError(
                f"{path}: the archive is truncated or damaged ({_reason(error)}).\nDownload or copy it again."
            ) from None
    elif wanted(path.name):
        try:
            yield Member(str(path), path.name, path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({_reason(error)}).") from None
    else:
        raise DataError(f"{path}: neither a folder nor an archive that can be read ({', '.join(SUFFIXES)}).")


def is_archive(name: str) -> bool:
    """Whether a file of this name is opened and searched."""
    return name.casefold().endswith(SUFFIXES)


def _unpacked(file: IO[bytes], name: str, where: str, wanted: Callable[[str], object]) -> Iterator[Member]:
    if name.casefold().endswith(".zip"):
        yield from _zip_members(file, where, wanted)
    else:
        yield from _tar_members(file, name.casefold(), where, wanted)


def _tar_members(file: IO[bytes], name: str, where: str, wanted: Callable[[str], object]) -> Iterator[Member]:
    """`tarfile` takes a stream that ends early for a shorter archive, so the end is checked here."""
    stream = _Remembering(_decompressed(file, name))
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for entry in tar:
            base = os.path.basename(entry.name)
            if entry.isfile() and (wanted(base) or is_archive(base)):
                content = tar.extractfile(entry)
                assert content is not None  # it is a file
                yield from _entry(content, base, f"{where}/{entry.name}", wanted)
    while stream.read(1 << 20):
        pass
    if stream.tail.strip(b"\0") or len(stream.tail) < 1024:
        raise EOFError("it ends before its end marker")


def _decompressed(file: IO[bytes], name: str) -> Any:
    if name.endswith((".gz", ".tgz")):
        return gzip.GzipFile(fileobj=file)
    return lzma.LZMAFile(file) if name.endswith((".xz", ".txz")) else file


class _Remembering(io.RawIOBase):
    """A stream that remembers its last bytes."""

    def __init__(self, stream: Any):
        self.stream, self.tail = stream, b""

    def read(self, size: int = -1) -> bytes:
        data: bytes = self.stream.read(size)
        self.tail = data[-1024:] if len(data) >= 1024 else (self.tail + data)[-1024:]
        return data


def _zip_members(file: IO[bytes], where: str, wanted: Callable[[str], object]) -> Iterator[Member]:
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            base = os.path.basename(entry.filename)
            if not entry.is_dir() and (wanted(base) or is_archive(base)):
                with archive.open(entry) as content:
                    yield from _entry(content, base, f"{where}/{entry.filename}", wanted)


def _entry(content: IO[bytes], name: str, where: str, wanted: Callable[[str], object]) -> Iterator[Member]:
    """A file of an archive, or the files of an archive within it."""
    if wanted(name):
        yield Member(where, name, content.read())
        return
    with tempfile.TemporaryFile() as copy:  # an archive needs to be seekable, what comes out of another is not
        shutil.copyfileobj(content, copy, 1 << 20)
        copy.seek(0)
        yield from _unpacked(copy, name, where, wanted)


def _reason(error: BaseException) -> str:
    text = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    return text[0].lower() + text[1:]
