"""The command line; `raindrop COMMAND --help` describes the options of a command."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from cyclopts import App, CycloptsError
from rich.console import Console
from rich.markup import escape

from raindrop.cli.benchmark import benchmark
from raindrop.cli.download import download
from raindrop.cli.export import export
from raindrop.cli.fit import fit
from raindrop.cli.graph import graph
from raindrop.cli.importances import importances
from raindrop.cli.models import models, settings
from raindrop.cli.monitor import monitor
from raindrop.cli.readings import forecast, impute
from raindrop.cli.report import explain, report
from raindrop.cli.samples import console
from raindrop.cli.serve import serve, token
from raindrop.cli.sign import sign
from raindrop.cli.tables import export_table, import_table, inspect, prepare
from raindrop.cli.train import evaluate, predict, train
from raindrop.cli.tune import tune
from raindrop.errors import RaindropError, RaindropWarning, describe_failure, printable
from raindrop.version import VERSION

app = App(
    name="raindrop",
    help="Learn from irregularly sampled time series: readings at uneven times, sensors that fail or never report.",
    version="",
)


NOT_UNDERSTOOD, FAILED = 2, 1
"""Exit codes: invalid command line; any other error."""
STOPPED = (
    "Stopped. What was saved is kept; a training run continues with --resume, a benchmark or search as it was started."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; an error is printed as one message with an exit code, without a traceback unless it is a bug."""
    app.version = VERSION
    try:
        with _stopped_by_sigterm():
            command, bound, _ = app.parse_args(arguments, print_error=False, exit_on_error=False)
            with warnings.catch_warnings():
                warnings.showwarning = _print_warning
                warnings.simplefilter("always", RaindropWarning)
                command(*bound.args, **bound.kwargs)
            sys.stdout.flush()
    except CycloptsError as error:
        _fail(str(error), NOT_UNDERSTOOD)
    except RaindropError as error:
        _fail(str(error), FAILED)
    except KeyboardInterrupt:
        _print_to_stderr(STOPPED)
        sys.exit(128 + signal.SIGINT)
    except Terminated:
        _print_to_stderr(f"Terminated by the system or another program (SIGTERM). {STOPPED}")
        sys.exit(128 + signal.SIGTERM)
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has closed it
        _discard_output()
        sys.exit(FAILED)
    except BaseException as error:
        sentence = describe_failure(error)
        if sentence is None:
            raise
        _discard_output()
        _fail(sentence, FAILED)


class Terminated(BaseException):
    """SIGTERM arrived."""


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an exception inside the block, so that the command can clean up; not in its subprocesses."""
    owner = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() == owner:
            raise Terminated
        os._exit(128 + number)

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield  # embedded in another program, which handles signals itself
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _fail(message: str, code: int) -> NoReturn:
    _print_to_stderr(f"[bold red]error:[/] {escape(printable(message))}")
    sys.exit(code)


def _print_to_stderr(text: str) -> None:
    with suppress(OSError):  # stderr is gone too
        Console(stderr=True, soft_wrap=True, highlight=False).print(text)


def _discard_output() -> None:
    """Drop output that could not be written; otherwise Python would try again, and complain, at exit."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print a warning on one line; warnings of other packages keep Python's format."""
    if issubclass(category, RaindropWarning):
        _print_to_stderr(f"[bold yellow]note:[/] {escape(printable(str(message)))}")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


@app.command
def demo(*, out: Path = Path("demo"), samples: int = 1500, seed: int = 0) -> None:
    """End-to-end demo on synthetic data: fill gaps, find which sensors inform which, classify, compare.

    Args:
        out: folder for tables, models, predictions and pages; must not exist yet.
        samples: number of labelled samples to generate.
        seed: random seed.
    """
    from raindrop.cli.demo import run_demo

    run_demo(out, samples, seed, console)


app.command(fit)
app.command(train)
app.command(evaluate)
app.command(predict)
app.command(tune)
app.command(impute)
app.command(forecast)
app.command(graph)
app.command(  # loaded lazily: its commands come from the data sets, which need polars
    "raindrop.cli.convert:convert", name="convert", help="Convert the published raw files of a data set to a table."
)
app.command(download)
app.command(benchmark)
app.command(models)
app.command(settings)
app.command(importances)
app.command(explain)
app.command(report)
app.command(sign)
app.command(serve)
app.command(token)
app.command(monitor)
app.command(export)
app.command(import_table, name="import")
app.command(prepare)
app.command(export_table)
app.command(inspect)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUTF8", "1")
    main()
