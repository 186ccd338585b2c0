"""The report on a model as one HTML file (`report_on`, `write_report`), and plots for papers (`plots`)."""

from __future__ import annotations

import os
from pathlib import Path

from raindrop.errors import ConfigError, MissingExtraError
from raindrop.files import refuse_to_overwrite
from raindrop.report.content import Report, report_on, report_on_run
from raindrop.report.graph_views import GraphView
from raindrop.report.tasks import Score

__all__ = ["GraphView", "Report", "Score", "check_report_path", "report_on", "report_on_run", "write_report"]


def write_report(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write the report to a new HTML file, atomically."""
    check_report_path(path)
    from raindrop.report.page import write_page

    return write_page(report, path)


def check_report_path(path: str | os.PathLike[str]) -> None:
    """Raise where no report can be written to `path`; to be called before the work, not after it."""
    if Path(path).suffix not in (".html", ".htm"):
        raise ConfigError(f"{path}: a report is an HTML file; its name must end in .html.")
    refuse_to_overwrite(Path(path))
    try:
        import bokeh  # noqa: F401
        import jinja2  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "bokeh", "report", "Writing a report") from None
