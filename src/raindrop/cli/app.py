"""The command line: `raindrop COMMAND --help` says what each takes."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError
from rich.console import Console
from rich.markup import escape

from raindrop.cli.benchmark import benchmark
from raindrop.cli.download import download
from raindrop.cli.readings import forecast, impute
from raindrop.cli.report import explain, report
from raindrop.cli.samples import console
from raindrop.cli.tables import export_table, import_table, inspect
from raindrop.cli.train import evaluate, predict, train
from raindrop.errors import RaindropError, RaindropWarning, printable
from raindrop.version import VERSION

app = App(
    name="raindrop",
    help="Learn from irregularly sampled time series: readings at uneven times, sensors that miss or fail.",
    version="",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a person's mistake is one message and exit code 1, never a traceback."""
    app.version = VERSION
    try:
        command, bound, _ = app.parse_args(arguments, print_error=False, exit_on_error=False)
        with warnings.catch_warnings():
            warnings.showwarning = _print_warning
            warnings.simplefilter("always", RaindropWarning)
            command(*bound.args, **bound.kwargs)
    except (RaindropError, CycloptsError) as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            f"[bold red]error:[/] {escape(printable(str(error)))}"
        )
        sys.exit(1)
    except KeyboardInterrupt:
        Console(stderr=True, soft_wrap=True).print(
            "Stopped. What was saved is kept; a training run continues with --resume, a benchmark as it was started."
        )
        sys.exit(130)


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """One line for a person; warnings of other packages keep Python's form."""
    if issubclass(category, RaindropWarning):
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            f"[bold yellow]note:[/] {escape(printable(str(message)))}"
        )
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


@app.command
def demo(*, out: Path = Path("demo"), samples: int = 3000, seed: int = 0) -> None:
    """End-to-end demo on synthetic data with a planted sensor graph: train, compare, recover the graph, predict.

    Args:
        out: folder for the table, the run and the predictions; must not exist yet.
        samples: how many samples to make.
        seed: of everything that is random.
    """
    from raindrop.cli.demo import run_demo

    run_demo(out, samples, seed, console)


app.command(train)
app.command(evaluate)
app.command(predict)
app.command(impute)
app.command(forecast)
app.command(  # loaded when it is used: its commands come from the data sets, which need polars
    "raindrop.cli.convert:convert", name="convert", help="Convert the published raw files of a data set to a table."
)
app.command(download)
app.command(benchmark)
app.command(explain)
app.command(report)
app.command(import_table, name="import")
app.command(export_table)
app.command(inspect)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUTF8", "1")
    main()
