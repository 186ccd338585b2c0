"""Atomic writes: the old content or the new one, never half of it, and no leftovers."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import raindrop.files
from raindrop.errors import OutputExistsError, RaindropError
from raindrop.files import (
    atomic_file,
    atomic_folder,
    content_checksum,
    file_checksum,
    refuse_to_overwrite,
    write_json,
    write_text,
)


def file_names(folder):
    return sorted(path.name for path in folder.iterdir())


def fill(folder, text):
    (folder / "content").write_text(text)
    (folder / "deeper").mkdir()


def test_a_file_appears_only_when_the_block_succeeds(tmp_path):
    with atomic_file(tmp_path / "new" / "a.txt") as partial:
        partial.write_text("whole")
        assert not (tmp_path / "new" / "a.txt").exists()
    assert file_names(tmp_path / "new") == ["a.txt"]
    assert (tmp_path / "new" / "a.txt").read_text() == "whole"


def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with suppress(KeyboardInterrupt), atomic_file(tmp_path / "a.txt") as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert file_names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_file_replaces_a_file_but_not_a_folder(tmp_path):
    write_json(tmp_path / "a.json", {"x": 1})
    write_json(tmp_path / "a.json", {"x": "ü"})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n "x": "ü"\n}\n'
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputExistsError, match="folder: this is a folder; give the name of a file"):
        write_text(tmp_path / "folder", "")
    assert file_names(tmp_path) == ["a.json", "folder"]


def test_without_overwrite_only_a_file_with_the_same_content_is_replaced(tmp_path):
    path = tmp_path / "a.txt"
    for _ in range(2):
        with atomic_file(path, overwrite=False) as partial:
            partial.write_text("new")
    with pytest.raises(OutputExistsError, match="exists already"), atomic_file(path, overwrite=False) as partial:
        partial.write_text("other")
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_appears_only_when_the_block_succeeds(tmp_path):
    with atomic_folder(tmp_path / "new" / "run") as partial:
        fill(partial, "whole")
        assert not (tmp_path / "new" / "run").exists()
    assert file_names(tmp_path / "new") == ["run"]
    assert file_names(tmp_path / "new" / "run") == ["content", "deeper"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_exception_leaves_no_partial_folder(tmp_path, overwrite):
    if overwrite:
        (tmp_path / "run").mkdir()
        fill(tmp_path / "run", "old")
    own = ("content", "deeper") if overwrite else None
    with suppress(ZeroDivisionError), atomic_folder(tmp_path / "run", overwrite=own) as partial:
        fill(partial, "half")
        raise ZeroDivisionError
    assert file_names(tmp_path) == (["run"] if overwrite else [])
    assert not overwrite or (tmp_path / "run" / "content").read_text() == "old"


def test_an_existing_folder_is_refused_before_any_work(tmp_path):
    fill(tmp_path, "old")
    with pytest.raises(
        OutputExistsError, match=r"this folder exists already\. Choose another name, or remove it first"
    ):
        atomic_folder(tmp_path).__enter__()
    with pytest.raises(OutputExistsError, match="this file exists already"):
        refuse_to_overwrite(tmp_path / "content")
    with pytest.raises(OutputExistsError, match="this is a file; give the name of a folder"):
        atomic_folder(tmp_path / "content", overwrite=()).__enter__()
    assert file_names(tmp_path) == ["content", "deeper"]


def test_an_empty_folder_may_be_written_to(tmp_path):
    (tmp_path / "run").mkdir()
    with atomic_folder(tmp_path / "run") as partial:
        fill(partial, "new")
    assert file_names(tmp_path) == ["run"]
    assert (tmp_path / "run" / "content").read_text() == "new"


@pytest.mark.parametrize("atomically", [True, False])
def test_overwrite_replaces_the_named_files_of_the_old_folder(tmp_path, monkeypatch, atomically):
    if not atomically:
        monkeypatch.setattr(raindrop.files.ctypes, "CDLL", lambda _: None)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gone").touch()
    with atomic_folder(tmp_path / "run", overwrite=("gone",)) as partial:
        fill(partial, "new")
    assert file_names(tmp_path) == ["run"]
    assert file_names(tmp_path / "run") == ["content", "deeper"]


@pytest.mark.parametrize("name", ["notes.txt", "deeper/notes.txt", "folder/", "link"])
@pytest.mark.parametrize("late", [False, True], ids=["before", "while it is written"])
def test_a_folder_with_other_files_is_never_replaced(tmp_path, name, late):
    (tmp_path / "run").mkdir()
    fill(tmp_path / "run", "old")
    other = tmp_path / "run" / name

    def put():
        if name == "link":
            other.symlink_to(tmp_path)
        elif name.endswith("/"):
            other.mkdir()
        else:
            other.write_text("mine")

    if not late:
        put()

    def replace():
        with atomic_folder(tmp_path / "run", overwrite=("content", "deeper/content")) as partial:
            fill(partial, "new")
            put()

    with pytest.raises(OutputExistsError, match=rf"1 of \d files and folders .* \(first: '{name.rstrip('/')}'\)"):
        replace()
    assert os.path.lexists(other)
    assert (tmp_path / "run" / "content").read_text() == "old"
    assert file_names(tmp_path) == ["run"]


def test_files_and_folders_are_on_the_disk_before_they_have_their_name(tmp_path, monkeypatch):
    done = []

    def record(name):
        original = getattr(os, name)

        def recorded(*arguments):
            place = os.readlink(f"/proc/self/fd/{arguments[0]}") if name == "fsync" else os.fspath(arguments[1])
            done.append((name, os.path.relpath(place, tmp_path).split(".partial-")[0]))
            return original(*arguments)

        monkeypatch.setattr(os, name, recorded)

    for name in ("fsync", "replace", "rename"):
        record(name)
    write_text(tmp_path / "a.txt", "text")
    assert done == [("fsync", ".a.txt"), ("replace", "a.txt"), ("fsync", ".")]
    done.clear()
    with atomic_folder(tmp_path / "run") as partial:
        fill(partial, "new")
    assert done[-2:] == [("rename", "run"), ("fsync", ".")]
    assert sorted(done[:-2]) == [("fsync", ".run")] * 3  # the file, the folder in it, the folder itself


def test_the_longest_name_that_a_folder_can_hold_can_be_written(tmp_path):
    for name in ("x" * 255, "ü" * 127):
        write_text(tmp_path / name, "whole")
        assert (tmp_path / name).read_text() == "whole"
        (tmp_path / name).unlink()
        with atomic_folder(tmp_path / name) as partial:
            fill(partial, "whole")
        assert file_names(tmp_path) == [name]
        shutil.rmtree(tmp_path / name)


def test_overwrite_through_a_link_replaces_its_target(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").mkdir()
    (tmp_path / "latest").symlink_to(tmp_path / "runs" / "first")
    with atomic_folder(tmp_path / "latest", overwrite=()) as partial:
        fill(partial, "new")
    assert (tmp_path / "latest").is_symlink()
    assert (tmp_path / "runs" / "first" / "content").read_text() == "new"
    assert file_names(tmp_path / "runs") == ["first"]


def test_a_folder_inside_a_file_cannot_be_created_and_the_message_says_why(tmp_path):
    (tmp_path / "file").touch()
    for write in (atomic_file, atomic_folder):
        with pytest.raises(RaindropError, match=r"its folder .*file cannot be created"):
            write(tmp_path / "file" / "x").__enter__()


KILLED = """
import sys, time
from pathlib import Path
from raindrop.files import atomic_file, atomic_folder
path, kind = Path(sys.argv[1]), sys.argv[2]
if kind == "file":
    with atomic_file(path) as partial:
        partial.write_text("half")
        print("inside", flush=True)
        time.sleep(60)
else:
    with atomic_folder(path, overwrite=("content", "deeper")) as partial:
        (partial / "content").write_text("half")
        print("inside", flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_kill_while_writing_leaves_the_old_content(tmp_path, kind):
    path = tmp_path / "out"
    if kind == "file":
        path.write_text("old")
    else:
        path.mkdir()
        fill(path, "old")
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path), kind], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"inside\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert (path if kind == "file" else path / "content").read_text() == "old"


REPLACING = """
import sys
from pathlib import Path
from raindrop.files import atomic_folder
path, round_number = Path(sys.argv[1]), 0
while True:
    with atomic_folder(path, overwrite=("a", "b")) as partial:
        for name in ("a", "b"):
            (partial / name).write_text(str(round_number))
    round_number += 1
    print(round_number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="folders are swapped atomically on Linux only")
def test_a_complete_folder_exists_at_every_moment_while_it_is_replaced(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    for name in ("a", "b"):
        (path / name).write_text("first")
    with subprocess.Popen([sys.executable, "-c", REPLACING, str(path)], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            assert path.exists()
        process.kill()
    assert (path / "a").read_text() == (path / "b").read_text()


def test_checksums_depend_on_content_and_not_on_layout(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert file_checksum(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert content_checksum({"a": 1, "b": [2]}) == content_checksum({"b": [2], "a": 1})
    assert content_checksum({"a": 1}) != content_checksum({"a": 2})


def test_the_temporary_name_is_hidden_and_in_the_same_folder(tmp_path):
    with atomic_file(tmp_path / "a.txt") as partial:
        partial.touch()
        assert partial.parent == tmp_path
        assert partial.name == f".a.txt.partial-{socket.gethostname()}-{os.getpid()}"


def test_leftovers_of_a_dead_process_are_deleted_when_the_file_is_written_again_and_nothing_else_is(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    alive = os.getppid()
    here = socket.gethostname()
    for process in (f"{here}-{dead.pid}", f"{here}-{alive}", f"elsewhere-{dead.pid}"):
        (tmp_path / f".a.txt.partial-{process}").write_text("half")
        (tmp_path / f".run.partial-{process}").mkdir()
        fill(tmp_path / f".run.partial-{process}", "half")
    (tmp_path / f".other.txt.partial-{here}-{dead.pid}").write_text("half")
    (tmp_path / f".a.txt.partial-{here}-mine").write_text("not ours")
    write_text(tmp_path / "a.txt", "whole")
    with atomic_folder(tmp_path / "run") as partial:
        fill(partial, "whole")
    others = [f".other.txt.partial-{here}-{dead.pid}", f".a.txt.partial-{here}-mine"]
    ours = [
        f".{name}.partial-{owner}"
        for name in ("a.txt", "run")
        for owner in (f"{here}-{alive}", f"elsewhere-{dead.pid}")
    ]
    assert file_names(tmp_path) == sorted([*others, *ours, "a.txt", "run"])
