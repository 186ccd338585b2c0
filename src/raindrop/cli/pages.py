"""HTML pages that commands write if they can."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from raindrop.errors import MissingExtraError


def can_write_page(path: Path, otherwise: str, console: Console) -> bool:
    """Whether a page can be written to `path`; if packages are missing, print `otherwise` and which ones."""
    from raindrop.report import check_report_path

    try:
        check_report_path(path)
    except MissingExtraError as error:
        console.print(f"{otherwise}: {escape(str(error))}")
        return False
    return True
