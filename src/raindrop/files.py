"""Writing so that a kill at any moment leaves the old file or the new one, never half of either."""

from __future__ import annotations

import ctypes
import glob
import hashlib
import json
import math
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from raindrop.errors import OutputExistsError, RaindropError

AT_CURRENT_FOLDER, EXCHANGE = -100, 2  # of renameat2(2)


@contextmanager
def run_folder(path: Path) -> Iterator[None]:
    """Make a folder to work in; one that exists is fine. What a kill left half-written in it is removed.

    If the work fails before it has written anything, the folder goes again.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RaindropError(f"{path}: the folder cannot be made ({error.strerror}).") from None
    for partial in path.glob(".*.partial-*"):
        partial.unlink(missing_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            path.rmdir()  # does so only where it is empty
        raise


def refuse_to_overwrite(path: Path) -> None:
    """Raise unless `path` is free; an empty folder counts as free."""
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists():
        kind = "folder" if path.is_dir() else "file"
        raise OutputExistsError(f"{path}: this {kind} exists already. Choose another name, or remove it first.")


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes the name `path` only when the block ends well."""
    path = Path(path)
    if path.is_dir():
        raise OutputExistsError(f"{path}: this is a folder; give the name of a file.")
    partial = _beside(path)
    try:
        partial.touch()
        usual = partial.stat().st_mode
        yield partial
        os.chmod(partial, usual)  # some writers make files that only their owner can read
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; it takes the name `path` only when the block ends well."""
    path = Path(path)
    if path.is_file():
        raise OutputExistsError(f"{path}: this is a file; give the name of a folder, or remove it first.")
    if not overwrite:
        refuse_to_overwrite(path)
    path = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    partial = _beside(path)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        if path.exists():
            _exchange(partial, path)
        else:
            os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _beside(path: Path) -> Path:
    """A temporary name in the same folder, which is made if need be; what a killed process left of `path` goes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RaindropError(f"{path}: its folder {path.parent} cannot be made ({error.strerror}).") from None
    if not os.access(path.parent, os.W_OK):
        raise RaindropError(f"{path}: there is no permission to write in {path.parent}.")
    beginning = f".{path.name}.partial-{socket.gethostname()}-"  # what another machine writes here is not ours to judge
    for left in path.parent.glob(f"{glob.escape(beginning)}*"):
        if not _runs(left.name.removeprefix(beginning)):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    return path.with_name(f"{beginning}{os.getpid()}")


def _runs(process: str) -> bool:
    """Whether a process of this number may still be at work on this machine."""
    if os.name != "posix" or not process.isdecimal():
        return True
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is somebody else's
        pass
    return True


def _exchange(new: Path, old: Path) -> None:
    """Let two folders change names: in one step where the system can (Linux), else in three."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
        done = renameat2(AT_CURRENT_FOLDER, os.fsencode(new), AT_CURRENT_FOLDER, os.fsencode(old), EXCHANGE) == 0
    except (AttributeError, OSError, TypeError):
        done = False
    if not done:
        away = old.with_name(f".{old.name}.old-{os.getpid()}")
        os.rename(old, away)
        os.rename(new, old)
        os.rename(away, new)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def to_json(content: Any, **layout: Any) -> str:
    """JSON that every reader takes: null where a figure is not a number."""
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


def file_checksum(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_checksum(content: Any) -> str:
    """SHA-256 of a JSON value, whatever its layout in the file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
