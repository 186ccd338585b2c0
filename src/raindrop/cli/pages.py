"""Pages that a command writes where it can."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from raindrop.errors import MissingExtraError


def can_write_page(path: Path, otherwise: str, console: Console) -> bool:
    """Whether a page can be written to `path`; where packages for it are missing, print `otherwise` and which."""
    from raindrop.report import check_report_path

    try:
        check_report_path(path)
    except MissingExtraError as error:
        console.print(f"{otherwise}: {escape(str(error))}")
        return False
    return True
