"""A run and what it does on data, as one HTML file for people."""

from __future__ import annotations

import os
from pathlib import Path

from raindrop.errors import ConfigError, MissingExtraError
from raindrop.files import refuse_to_overwrite
from raindrop.report.content import Report, Score, report_on, report_on_run
from raindrop.report.graphs import Reading

__all__ = ["Reading", "Report", "Score", "report_on", "report_on_run", "require_page", "write_report"]


def write_report(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write a new HTML file; whole or not at all."""
    require_page(path)
    from raindrop.report.page import write_page

    return write_page(report, path)


def require_page(path: str | os.PathLike[str]) -> None:
    """Raise unless a page can be written to `path`: before the work, not after it."""
    if Path(path).suffix not in (".html", ".htm"):
        raise ConfigError(f"{path}: a report is written as .html; the name must end so.")
    refuse_to_overwrite(Path(path))
    try:
        import bokeh  # noqa: F401
        import jinja2  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "bokeh", "report", "Writing a report") from None
