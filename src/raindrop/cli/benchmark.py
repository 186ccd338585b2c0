"""The command `raindrop benchmark`: the paper's tables, by processes that may be stopped at any time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from raindrop.errors import ConfigError, RaindropError, suggest

if TYPE_CHECKING:
    from raindrop.benchmark.jobs import Cell, Facts
    from raindrop.benchmark.spec import Experiment
    from raindrop.benchmark.store import Store

console = Console(soft_wrap=True, highlight=False)
Words = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]
Numbers = Annotated[tuple[int, ...], Parameter(consume_multiple=True)]
Flag = Annotated[bool, Parameter(negative=())]


def benchmark(
    *tables: str,
    data: Path,
    out: Path = Path("results"),
    rows: Words = (),
    splits: Numbers = (),
    workers: int = 1,
    status: Flag = False,
    pictures: Flag = False,
) -> None:
    """Run models on splits under settings, and print the table beside the published figures.

    What is finished is kept in OUT and never run again; what was stopped goes on where it was. Several such commands
    may share OUT.

    Args:
        tables: such as table1; or the path of a file of your own that ends in .toml.
        data: folder with a folder for each data set (p12, p19, ...), or the folder of the one table that is needed.
        out: folder for the results; one that exists is continued.
        rows: only these, by their name or that of their model.
        splits: only these, by number.
        workers: processes to run at a time, each on one core.
        status: only say what is done and print the tables so far.
        pictures: also draw bars for each setting and curves over the hidden share.
    """
    from raindrop.benchmark.jobs import plan, refuse_other_defaults
    from raindrop.benchmark.spec import read_experiments, shipped
    from raindrop.benchmark.store import CAN_SHARE, Store

    if not tables:
        raise ConfigError(f"Which table? There are: {', '.join(shipped())}.")
    if workers < 1 or (workers > 1 and not CAN_SHARE):
        raise ConfigError(f"--workers {workers}: at least 1, and more than 1 only where files can be locked.")
    experiments = read_experiments(tables)
    _require_rows(experiments, rows)
    planned: list[tuple[Experiment, list[Cell], list[Cell], Facts]] = []
    with console.status("reading ..."):
        for experiment in experiments:
            chosen = experiment.choose(rows)
            if chosen:
                cells, facts = plan(experiment, data, chosen, splits)
                # The table is of all that is in the store, not only of what was asked for this time.
                whole, _ = plan(experiment, data, experiment.rows, ())
                planned.append((experiment, cells, whole, facts))
    store = Store(out)
    every = [cell for _, cells, _, _ in planned for cell in cells]
    refuse_other_defaults(every, store)
    failures: list[str] = []
    if not status:
        failures = _run(every, store, workers)
    _print_progress(every, store, workers)
    if status:
        for message in dict.fromkeys(store.failure(cell.key) for cell in every if cell.missing(store)):
            if message is not None:
                console.print(escape(f"failed: {message}"))
    for experiment, _, whole, facts in planned:
        _print_table(experiment, facts, whole, store, pictures)
    if failures:
        raise RaindropError("\n".join([f"{len(failures)} of {len(every)} cells could not be finished:", *failures]))


def _require_rows(experiments: Sequence[Experiment], rows: Sequence[str]) -> None:
    known = {name for experiment in experiments for row in experiment.rows for name in (row.name, row.model)}
    folded = {name.casefold() for name in known}
    for name in rows:
        if name.casefold() not in folded:
            raise ConfigError(f"There is no row '{name}': {suggest(name, sorted(known))}")


def _run(cells: Sequence[Cell], store: Store, number: int) -> list[str]:
    """Let workers run the cells, show how far they are, and return what went wrong."""
    from raindrop.benchmark.jobs import PAUSE
    from raindrop.benchmark.workers import settled, start

    for cell in cells:
        store.forget_failure(cell.key)
    left = [cell for cell in cells if not settled(cell, store)]
    if not left:
        return []
    processes = start(left, store.folder, min(number, len(left)))
    try:
        with Live(console=console, auto_refresh=False, transient=True) as line:
            while any(process.is_alive() for process in processes):
                for cell in [cell for cell in left if settled(cell, store)]:
                    left.remove(cell)
                    line.console.print(escape(_finished(cell, store)))
                line.update(Text(progress(cells, store, number)), refresh=True)
                processes[0].join(PAUSE) if processes[0].is_alive() else time.sleep(PAUSE)
    finally:
        for process in processes:
            process.terminate()
    for cell in [cell for cell in left if settled(cell, store)]:
        left.remove(cell)
        console.print(escape(_finished(cell, store)))
    failures = {cell.key: store.failure(cell.key) for cell in cells}
    said = [message for message in failures.values() if message]
    if left:
        codes = sorted({str(process.exitcode) for process in processes if process.exitcode})
        said.append(f"{left[0].name}: its process ended before its time (exit code {', '.join(codes)}); start again.")
    return said


def _finished(cell: Cell, store: Store) -> str:
    """The validation figure only: the test part is for the table."""
    failure = store.failure(cell.key)
    if failure is not None:
        return f"failed: {failure}"
    known = store.read(cell.key)
    assert known is not None  # it is settled
    record = known.row(0, named=True)
    metric = cell.experiment.metrics[0]
    took = f", {_span(record['training_seconds'])}" if record["training_seconds"] is not None else ""
    return f"done: {cell.name}: validation {metric} {record[metric]:.3f}{took}"


def progress(cells: Sequence[Cell], store: Store, workers: int) -> str:
    """'12 done, 2 running, 26 to do, end expected Tue 14:05 (in 3 h 20 min)'; failed ones are counted if there are."""
    done: list[Cell] = []
    failed: list[Cell] = []
    left: list[Cell] = []
    for cell in {(cell.key, cell.experiment.settings): cell for cell in cells}.values():
        kind = done if not cell.missing(store) else left if store.failure(cell.key) is None else failed
        kind.append(cell)
    running = [cell for cell in left if store.running(cell.key) is not None]
    lost = f", {len(failed)} failed" if failed else ""
    text = f"{len(done)} done{lost}, {len(running)} running, {len(left) - len(running)} to do"
    seconds = expected(left, done, store)
    if not left or seconds is None:
        return text
    wait = seconds / max(1, min(max(workers, len(running)), len(left)))
    return f"{text}, end expected {time.strftime('%a %H:%M', time.localtime(time.time() + wait))} (in {_span(wait)})"


def expected(left: Sequence[Cell], done: Sequence[Cell], store: Store) -> float | None:
    """Seconds of work left, from what finished cells of the same row and data took, else from those of any.

    What is trained already is only evaluated, under the settings that are missing.
    """
    training: dict[tuple[str, str], list[float]] = {}
    evaluation: dict[tuple[str, str], list[float]] = {}  # of one setting
    for cell in done:
        known = store.read(cell.key)
        if known is not None:
            training.setdefault(_kind(cell), []).append(float(known["training_seconds"].max() or 0.0))  # type: ignore[arg-type]
            settings = known.select("hidden", "share", "instead").n_unique()
            evaluation.setdefault(_kind(cell), []).append(float(known["evaluation_seconds"].sum()) / settings)
    if not training:
        return None
    total, trained = 0.0, set[str]()
    for cell in left:
        seconds = _usual(evaluation, _kind(cell)) * len(cell.missing(store))
        for key in filter(None, (cell.key, cell.network_key)):
            if key not in trained and not store.has_model(key):
                seconds += _usual(training, _kind(cell) if key == cell.key else None)
            trained.add(key)
        since = (store.running(cell.key) or {}).get("started")
        total += max(0.0, seconds - (time.time() - since if since is not None else 0.0))
    return total


def _kind(cell: Cell) -> tuple[str, str]:
    return cell.experiment.data.folder, cell.row.name


def _usual(took: dict[tuple[str, str], list[float]], kind: tuple[str, str] | None) -> float:
    """Of cells of this kind; of any where there is none yet."""
    of = took.get(kind) if kind is not None else None
    seconds = of or [sum(each) / len(each) for each in took.values()]
    return sum(seconds) / len(seconds)


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _print_progress(cells: Sequence[Cell], store: Store, workers: int) -> None:
    console.print(escape(progress(cells, store, workers)))
    for cell in cells:
        about = store.running(cell.key)
        if about:
            since = _span(time.time() - about["started"])
            console.print(escape(f"running: {about['name']} (for {since}, process {about['pid']} on {about['host']})"))


def _print_table(experiment: Experiment, facts: Facts, cells: Sequence[Cell], store: Store, pictures: bool) -> None:
    from raindrop.benchmark.aggregate import summarise_cells
    from raindrop.benchmark.render import markdown, write_tables

    summary = summarise_cells(experiment, facts, cells, store)
    paths = write_tables(summary, store.folder)
    if pictures:
        from raindrop.benchmark.figures import write_figures

        paths += write_figures(summary, store.folder)
    console.print(f"\n{escape(markdown(summary))}")
    console.print(f"wrote {escape(', '.join(map(str, paths)))}")
