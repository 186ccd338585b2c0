"""The report on a model as one HTML file, and plots for papers (`plots`).

`report_on` is for estimators that predict labels or quantities of samples, `report_on_readings` for imputers and
forecasters. `write_report` writes either.
"""

from __future__ import annotations

import os
from pathlib import Path

from raindrop.errors import ConfigError, MissingExtraError
from raindrop.files import refuse_to_overwrite, write_text
from raindrop.report.content import Report, report_on, report_on_run
from raindrop.report.graph_views import GraphView
from raindrop.report.readings import ReadingsReport, report_on_readings
from raindrop.report.tasks import Score

__all__ = [
    "GraphView",
    "ReadingsReport",
    "Report",
    "Score",
    "check_report_path",
    "report_on",
    "report_on_readings",
    "report_on_run",
    "write_report",
]


def write_report(report: Report | ReadingsReport, path: str | os.PathLike[str]) -> Path:
    """Write the report to a new HTML file, atomically."""
    check_report_path(path)
    from raindrop.report import page
    from raindrop.report.readings import page as readings_page

    text = readings_page.page(report) if isinstance(report, ReadingsReport) else page.page(report)
    write_text(path, text)
    return Path(path)


def check_report_path(path: str | os.PathLike[str]) -> None:
    """Raise if no report can be written to `path`; meant to be called before the work, not after it."""
    if Path(path).suffix not in (".html", ".htm"):
        raise ConfigError(f"{path}: a report is an HTML file; its name must end in .html.")
    refuse_to_overwrite(Path(path))
    try:
        import bokeh  # noqa: F401
        import jinja2  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "bokeh", "report", "Writing a report") from None
