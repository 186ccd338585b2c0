"""Reading members of folders and archives: truncated or damaged ones are errors."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest
from published_layout import pack, write

from raindrop.datasets.archives import read_members, skip_repeats
from raindrop.datasets.conversion import Report
from raindrop.errors import DataError


def is_text(name: str) -> bool:
    return name.endswith(".txt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "raw", {f"set-a/{n}.txt": f"record {n}\n" * (n * 300) for n in range(1, 30)})


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.xz", "zip"])
def test_every_file_of_an_archive_is_found_with_its_path(folder: Path, tmp_path: Path, kind: str) -> None:
    archive = pack(folder, tmp_path / f"set-a.{kind}")
    read = list(read_members(archive, is_text))
    assert [m.name for m in read] == sorted(f"{n}.txt" for n in range(1, 30))
    assert read[0].path == f"{archive}/set-a/1.txt"
    assert read[0].content == (folder / "set-a/1.txt").read_bytes()


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.xz", "zip"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_a_truncated_archive_is_an_error_whatever_its_length(
    folder: Path, tmp_path: Path, kind: str, share: float
) -> None:
    archive = pack(folder, tmp_path / f"set-a.{kind}")
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(DataError, match=r"the archive is truncated or damaged \(.*\)\.\nDownload or copy it again"):
        list(read_members(archive, is_text))


def test_a_tar_cut_exactly_between_two_files_is_an_error(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "set-a.tar"
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted((folder / "set-a").iterdir()):
            tar.add(path, f"set-a/{path.name}")
    content = archive.read_bytes()
    assert len(list(read_members(archive, is_text))) == 29
    archive.write_bytes(content[: content.index(b"set-a/20.txt")])
    with pytest.raises(DataError, match="it ends before its end marker"):
        list(read_members(archive, is_text))


def test_a_flipped_byte_is_an_error(folder: Path, tmp_path: Path) -> None:
    archive = pack(folder, tmp_path / "set-a.tar.xz")
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 0xFF
    archive.write_bytes(content)
    with pytest.raises(DataError, match="truncated or damaged"):
        list(read_members(archive, is_text))


def test_a_file_with_the_name_of_an_archive_and_other_content_is_an_error(tmp_path: Path) -> None:
    for name in ("a.zip", "a.tar.gz", "a.tar.xz", "a.tar"):
        write(tmp_path, {name: "<html>not found</html>"})
        with pytest.raises(DataError, match="truncated or damaged"):
            list(read_members(tmp_path / name, is_text))


def test_an_archive_inside_an_archive_is_read(folder: Path, tmp_path: Path) -> None:
    inner = pack(folder, tmp_path / "outer/inner.zip")
    outer = pack(inner.parent, tmp_path / "outer.zip")
    read = list(read_members(outer, is_text))
    assert len(read) == 29
    assert read[0].path == f"{outer}/inner.zip/set-a/1.txt"


def test_a_truncated_archive_inside_an_archive_is_an_error(folder: Path, tmp_path: Path) -> None:
    inner = pack(folder, tmp_path / "outer/inner.tar.gz")
    inner.write_bytes(inner.read_bytes()[:2000])
    outer = tmp_path / "outer.zip"
    with zipfile.ZipFile(outer, "w") as packed:
        packed.write(inner, "inner.tar.gz")
    with pytest.raises(DataError, match="truncated or damaged"):
        list(read_members(outer, is_text))


def test_a_source_is_one_or_several_paths_that_must_exist(folder: Path, tmp_path: Path) -> None:
    assert len(list(read_members([folder / "set-a/1.txt", folder / "set-a/2.txt"], is_text))) == 2
    with pytest.raises(DataError, match="There is no source"):
        list(read_members([], is_text))
    with pytest.raises(DataError, match="nowhere: there is no such file or folder"):
        list(read_members([folder, tmp_path / "nowhere"], is_text))
    write(tmp_path, {"data.rar": "x"})
    with pytest.raises(DataError, match=r"data.rar: neither a folder nor an archive that can be read \(\.tar"):
        list(read_members(tmp_path / "data.rar", is_text))


def test_the_same_file_twice_is_read_once(folder: Path) -> None:
    report = Report("test")
    read = list(skip_repeats(read_members([folder, folder], is_text), report))
    assert len(read) == 29
    assert report.total("the same file a second time, read once") == 29
