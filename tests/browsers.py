"""The browser that opens the report in its tests, and what happens where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

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
