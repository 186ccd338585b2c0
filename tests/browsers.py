"""The browser that opens pages in tests, and what happens where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser(
    bundled: str | None, environment: Mapping[str, str], which: Callable[[str], str | None] = shutil.which
) -> str | None:
    """Return the path of the browser named in RAINDROP_BROWSER, else of an installed one, else playwright's own.

    `bundled` is where playwright keeps its browser, whether or not it has been downloaded. Without any, return None.
    """
    named = environment.get("RAINDROP_BROWSER")
    for name in (named, *NAMES) if named else NAMES:
        if path := which(name):
            return path
    return bundled if bundled and Path(bundled).exists() else None


def give_up(reason: str, environment: Mapping[str, str]) -> NoReturn:
    """Fail the test where CI=true, because a browser is part of the setup there; skip it elsewhere."""
    if environment.get("CI") == "true":
        pytest.fail(f"{reason}. CI=true, so this is a failure; .ci/browser printed why none was installed.")
    pytest.skip(reason)


@contextmanager
def launched_browser() -> Iterator[Any]:
    """A browser without a window; the test is skipped, or fails, where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        give_up("the package playwright is not installed", os.environ)
    with sync_playwright() as engine:
        path = find_browser(engine.chromium.executable_path, os.environ)
        if path is None:
            give_up("no browser: install chromium, or name one in RAINDROP_BROWSER", os.environ)
        opened = engine.chromium.launch(executable_path=path, args=FLAGS.split())
        yield opened
        opened.close()
