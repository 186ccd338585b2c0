"""Worker processes: a worker must not outlive the process that started it."""

from __future__ import annotations

import os
import threading
import time

POLL_SECONDS = 1.0


def end_with_parent(parent: int) -> None:
    """End this process when its parent (a process id) is gone: a killed parent cannot stop its workers."""
    threading.Thread(target=_wait_for_end, args=(parent,), daemon=True).start()


def _wait_for_end(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)
