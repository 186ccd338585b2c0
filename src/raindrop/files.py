"""Atomic writes: after a kill at any moment a file or folder has its old content or its new one, never a part of it.

A file or folder with its final name is on disk: contents are synchronised before the rename, and the rename after it.
"""

from __future__ import annotations

import ctypes
import errno
import filecmp
import glob
import hashlib
import json
import math
import os
import shutil
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from raindrop.errors import OutputExistsError, RaindropError, format_count

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None
LONG_NAME = 128  # bytes; temporary names of longer ones use a hash, as a name has at most 255
MAX_JSON_BYTES = 256 << 20
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # constants of renameat2(2)


@contextmanager
def run_folder(path: Path) -> Iterator[None]:
    """Create a folder to work in, or use an existing one; partial files left by a killed process are deleted.

    Only one process can use it: others raise until it is released, which the system does when the process ends in any
    way. If the block fails before anything was written, the folder is removed again.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RaindropError(f"{path}: the folder cannot be created ({error.strerror}).") from None
    with _locked_folder(path):
        for partial in path.glob(".*.partial-*"):
            partial.unlink(missing_ok=True)
        try:
            yield
        except BaseException:
            with suppress(OSError):
                path.rmdir()  # succeeds only if it is empty
            raise


@contextmanager
def _locked_folder(path: Path) -> Iterator[None]:
    """Lock a folder for this process, without leaving a file in it."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if not try_lock(descriptor):
            raise RaindropError(
                f"{path}: another process is writing a run there. Wait until it has finished, or choose another folder."
            )
        yield
    except NoLocksError as error:
        raise RaindropError(
            f"{path}: the file system has no locks ({error}), so two runs could be written into one folder. "
            "Write the run to a local disk and copy it."
        ) from None
    finally:
        os.close(descriptor)


class NoLocksError(OSError):
    """The file system cannot lock files."""


def try_lock(file: int | IO[Any], *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; False if another process has locked it.

    The system releases the lock when the process ends. On systems without such locks (Windows) it is always True.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise NoLocksError(error.errno, error.strerror) from None
    return True


def refuse_to_overwrite(path: Path) -> None:
    """Raise if `path` exists; an empty folder is allowed."""
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists():
        kind = "folder" if path.is_dir() else "file"
        raise OutputExistsError(f"{path}: this {kind} exists already. Choose another name, or remove it first.")


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary path next to `path`; it is renamed to `path` only if the block succeeds.

    overwrite: whether a file with other content may be replaced. One with the same content always may: a command that
    was killed later has left it.
    """
    path = Path(path)
    if path.is_dir():
        raise OutputExistsError(f"{path}: this is a folder; give the name of a file.")
    partial = _temporary_path(path)
    try:
        partial.touch()
        default_mode = partial.stat().st_mode
        yield partial
        os.chmod(partial, default_mode)  # some writers create files readable only by their owner
        _synchronise(partial)
        if not overwrite and path.exists() and not filecmp.cmp(partial, path, shallow=False):
            refuse_to_overwrite(path)
        os.replace(partial, path)
        _synchronise(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, overwrite: Collection[str] | None = None) -> Iterator[Path]:
    """Yield a temporary folder next to `path`; it is renamed to `path` only if the block succeeds.

    overwrite: the files (paths relative to the folder) of an existing folder that may be replaced; if it has any other
    file this raises, so that nothing else is ever removed. None raises for every folder that is not empty.
    """
    path = Path(path)
    if path.is_file():
        raise OutputExistsError(f"{path}: this is a file; give the name of a folder, or remove it first.")
    if overwrite is None:
        refuse_to_overwrite(path)
    _refuse_other_files(path, overwrite or ())
    path = Path(os.path.realpath(path))  # replace the target of a link, not the link
    partial = _temporary_path(path)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        for folder, _, names in os.walk(partial, topdown=False):
            for name in names:
                _synchronise(Path(folder, name))
            _synchronise(Path(folder))
        if path.exists():
            _refuse_other_files(path, overwrite or ())  # one may have appeared while the new folder was written
            _swap_folders(partial, path)
        else:
            os.rename(partial, path)
        _synchronise(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def temporary_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A hidden folder beside `path` for intermediate files; removed afterwards, or by the next attempt."""
    path = Path(path)
    folder = _temporary_path(path.with_name(f"{path.name}.parts"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_other_files(folder: Path, known: Collection[str]) -> None:
    """Raise if a folder contains anything except the files `known` (by their relative paths) and their folders."""
    known_folders = {str(parent) for name in known for parent in Path(name).parents}
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    other = [name for name in found if name not in known and name not in known_folders]
    if other:
        raise OutputExistsError(
            f"{folder}: {format_count(len(other), len(found), 'files and folders')} in it were not written with the "
            f"content to be replaced (first: '{other[0]}'), and replacing it would remove them.\n"
            "Move them elsewhere, or choose another name."
        )


def _synchronise(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    if path.is_dir() and os.name != "posix":  # Windows cannot open a folder, and keeps its names by itself
        return
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
            raise
    finally:
        os.close(descriptor)


def _temporary_path(path: Path) -> Path:
    """A temporary name in the folder of `path`, which is created; leftovers of killed processes are deleted."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RaindropError(f"{path}: its folder {path.parent} cannot be created ({error.strerror}).") from None
    if not os.access(path.parent, os.W_OK):
        raise RaindropError(f"{path}: there is no permission to write in {path.parent}.")
    name = path.name
    if len(os.fsencode(name)) > LONG_NAME:
        name = hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
    prefix = f".{name}.partial-{socket.gethostname()}-"  # files of other machines are left alone
    for leftover in path.parent.glob(f"{glob.escape(prefix)}*"):
        if not _may_be_running(leftover.name.removeprefix(prefix)):
            shutil.rmtree(leftover, ignore_errors=True) if leftover.is_dir() else leftover.unlink(missing_ok=True)
    return path.with_name(f"{prefix}{os.getpid()}")


def _may_be_running(process_id: str) -> bool:
    """Whether a process with this id may be running on this machine."""
    if os.name != "posix" or not process_id.isdecimal():
        return True
    try:
        os.kill(int(process_id), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True


def _swap_folders(new: Path, old: Path) -> None:
    """Exchange the names of two folders: atomically where the system can (Linux), otherwise in three renames."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
        done = renameat2(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old), RENAME_EXCHANGE) == 0
    except (AttributeError, OSError, TypeError):
        done = False
    if not done:
        aside = old.with_name(f".{old.name}.old-{os.getpid()}")
        os.rename(old, aside)
        os.rename(new, old)
        os.rename(aside, new)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def to_json(content: Any, **layout: Any) -> str:
    """Strict JSON: NaN and infinity become null."""
    return json.dumps(_without_nan(content), ensure_ascii=False, allow_nan=False, **layout)


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _without_nan(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, to_json(content, indent=1) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """The content of a JSON file; raises a ValueError if it is damaged, too large, or nested too deeply."""
    if os.path.getsize(path) > MAX_JSON_BYTES:
        raise ValueError(f"it is larger than {MAX_JSON_BYTES >> 20} MiB")
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def file_checksum(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_checksum(content: Any) -> str:
    """SHA-256 of a JSON value; independent of the order of keys and the file layout."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
