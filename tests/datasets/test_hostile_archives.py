"""Archives made to fill memory, disk or time are refused at once; links and pipes are not followed."""

from __future__ import annotations

import io
import os
import resource
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from raindrop.datasets import limits
from raindrop.datasets.archives import read_members
from raindrop.errors import DataError


def zipped(name: str | zipfile.ZipInfo, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def tarred(entry: tarfile.TarInfo, content: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(entry, io.BytesIO(content) if content else None)
    return buffer.getvalue()


def tar_entry(kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo("a.psv")
    entry.type, entry.linkname, entry.size = kind, link, size
    return entry


def sparse_tar() -> bytes:
    """An old GNU sparse file of 1 TB in one block."""
    header = bytearray(tar_entry(tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    header[386:398] = b"%011o\0" % 0
    header[398:410] = b"%011o\0" % 0
    header[483:495] = b"\x80" + bytes(3) + struct.pack(">Q", 1 << 40)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1024)


def nested_zip(depth: int) -> bytes:
    content = zipped("a.psv", b"x")
    for _ in range(depth):
        content = zipped("inner.zip", content)
    return content


def lying_zip() -> bytes:
    """A zip whose directory says 10 bytes where there are 300 MB."""
    content = zipped("a.psv", bytes(300_000_000))
    real = struct.pack("<L", 300_000_000)
    return content.replace(real, struct.pack("<L", 10))


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "zip that unpacks to 1,000 times its size": ("a.zip", lambda: zipped("a.psv", bytes(300_000_000))),
    "zip that says it is small": ("a.zip", lying_zip),
    "zip in a zip in a zip in a zip": ("a.zip", lambda: nested_zip(4)),
    "sparse tar of 1 TB": ("a.tar", sparse_tar),
    "tar that announces 1 TB": (
        "a.tar",
        lambda: tar_entry(size=1 << 40).tobuf(tarfile.GNU_FORMAT) + bytes(1024),
    ),
    "symbolic link in a tar": ("a.tar", lambda: tarred(tar_entry(tarfile.SYMTYPE, "/etc/passwd"))),
    "hard link in a tar": ("a.tar", lambda: tarred(tar_entry(tarfile.LNKTYPE, "a.psv"))),
    "pipe in a tar": ("a.tar", lambda: tarred(tar_entry(tarfile.FIFOTYPE))),
    "device in a tar": ("a.tar", lambda: tarred(tar_entry(tarfile.CHRTYPE))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_once(name: str, tmp_path: Path) -> None:
    file, make = BOMBS[name]
    (tmp_path / file).write_bytes(make())
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(DataError, match=str(tmp_path / file)):
        list(read_members(tmp_path, lambda name: name.endswith(".psv")))
    assert time.monotonic() - started < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def test_too_many_entries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_MEMBERS", 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for at in range(21):
            archive.writestr(f"{at}.psv", "x")
    with pytest.raises(DataError, match="it has more than 20 entries, which no published data set does"):
        list(read_members(tmp_path, lambda name: name.endswith(".psv")))


def test_a_folder_that_contains_itself_and_a_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "again").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(DataError, match=r"a/again: a link to a folder that contains it, so it has no end"):
        list(read_members(tmp_path, lambda name: name.endswith(".psv")))
    (tmp_path / "a" / "again").unlink()
    for name in ("x.psv", "x.zip"):
        os.mkfifo(tmp_path / "a" / name)
        with pytest.raises(DataError, match=rf"{name}: not a regular file but a device, pipe or socket"):
            list(read_members(tmp_path, lambda name: name.endswith(".psv")))
        (tmp_path / "a" / name).unlink()


def test_an_ordinary_archive_in_an_archive_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(nested_zip(2))
    assert [member.content for member in read_members(tmp_path, lambda name: name.endswith(".psv"))] == [b"x"]


def test_an_entry_without_a_name_is_left_out(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped(zipfile.ZipInfo(""), b"x"))
    assert list(read_members(tmp_path, lambda name: name.endswith(".psv"))) == []
