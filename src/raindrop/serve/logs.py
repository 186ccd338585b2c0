"""The log: one JSON object per line, without values, sample ids, addresses or tokens unless requested."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec

LEVELS = ("info", "warning", "error")


class Log:
    """Writes lines to a file, or to standard error. A line that cannot be written is counted and never raises."""

    def __init__(self, path: Path | None = None, *, details: bool = False):
        """With `details`, lines also contain what identifies a client or a sample."""
        self.path, self.details = path, details
        self.lost = 0
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None

    def __call__(
        self, event: str, *, level: str = "info", details: Mapping[str, Any] | None = None, **facts: Any
    ) -> None:
        """Write a line; `details` are left out unless enabled."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, Any] = {"time": time, "level": level, "event": event, **facts}
        if self.details and details:
            line |= details
        text = msgspec.json.encode(line, enc_hook=str) + b"\n"
        with self._lock:
            try:
                self._open().write(text)
                self._open().flush()
            except (OSError, ValueError):  # a full disk, a closed pipe
                self.lost += 1
                self._close()

    def write_to(self, path: Path | None) -> None:
        """Continue in another file, or on standard error."""
        with self._lock:
            self._close()
            self.path = path

    def _close(self) -> None:
        if self._file is not None and self.path is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None

    def _open(self) -> IO[bytes]:
        if self._file is None:
            self._file = sys.stderr.buffer if self.path is None else open(self.path, "ab", buffering=0)  # noqa: SIM115
        return self._file


class ServerLines(logging.Handler):
    """Messages of the HTTP server as lines of the log; exceptions only by type and place."""

    def __init__(self, log: Log):
        super().__init__()
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        from raindrop.serve.failures import place_of

        level = (
            "error" if record.levelno >= logging.ERROR else "warning" if record.levelno >= logging.WARNING else "info"
        )
        error = record.exc_info[1] if record.exc_info else None
        self.log("server", level=level, message=str(record.msg).strip(), at="" if error is None else place_of(error))
