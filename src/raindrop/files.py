"""Writing so that a kill at any moment leaves the old file or the new one, never half of either."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raindrop.errors import OutputExistsError


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
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        yield partial
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; it takes the name `path` only when the block ends well."""
    path = Path(path)
    if not overwrite:
        refuse_to_overwrite(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        if path.exists():
            old = path.with_name(f".{path.name}.old-{os.getpid()}")
            os.rename(path, old)
            os.rename(partial, path)
            shutil.rmtree(old)
        else:
            os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def file_checksum(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_checksum(content: Any) -> str:
    """SHA-256 of a JSON value, whatever its layout in the file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
