"""The command `raindrop benchmark`: the paper's tables, run by worker processes that can be stopped at any time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from raindrop.errors import ConfigError, RaindropError, suggest

if TYPE_CHECKING:  # torch loads only when the command runs
    from raindrop.benchmark.jobs import DataSummary, Job
    from raindrop.benchmark.spec import Experiment
    from raindrop.benchmark.store import Store
    from raindrop.benchmark.workers import Worker

console = Console(soft_wrap=True, highlight=False)
Words = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]
Numbers = Annotated[tuple[int, ...], Parameter(consume_multiple=True)]
Flag = Annotated[bool, Parameter(negative=())]


def benchmark(
    *tables: str,
    data: Path | None = None,
    out: Path = Path("results"),
    text: Path | None = None,
    rows: Words = (),
    splits: Numbers = (),
    workers: int = 1,
    engine: Literal["local", "ray"] = "local",
    status: Flag = False,
    pictures: Flag = False,
) -> None:
    """Train models on every split, evaluate them under every setting, and print the table with published metrics.

    Finished jobs are kept in OUT and not run again; interrupted ones are resumed. Several of these commands may share
    OUT. Without --data nothing is run: the tables are made from the results as text in TEXT.

    Args:
        tables: names such as table1, or paths of your own .toml files.
        data: folder with one folder per data set (p12, p19, ...), or the folder of the only table that is needed.
        out: folder for the results; an existing one is continued.
        text: folder for the results as text, which can be committed: TABLE.jsonl with a line for each job. Results of
            other jobs in it stay. Without --data, OUT gets a page TABLE.md for each table in it, or for TABLES.
        rows: only these rows, by their name or their model's.
        splits: only the splits with these numbers.
        workers: number of processes, each on one core.
        engine: local, or ray for the machines of the Ray cluster at RAY_ADDRESS (this one if it is not set), which
            must share the folders DATA and OUT.
        status: only report progress and print the tables so far.
        pictures: also draw bars for each setting and curves over the hidden share.
    """
    from raindrop.benchmark.jobs import plan_jobs, refuse_changed_defaults
    from raindrop.benchmark.parsing import read_experiments, shipped_tables
    from raindrop.benchmark.store import Store
    from raindrop.benchmark.workers import progress
    from raindrop.files import HAS_LOCKS

    if data is None:
        if text is None:
            raise ConfigError("Give --data, the folder with the data, or --text, a folder with results as text.")
        _refuse_options(
            rows=rows, splits=splits, workers=workers > 1, engine=engine != "local", status=status, pictures=pictures
        )
        _write_pages(tables, text, out)
        return
    if not tables:
        raise ConfigError(f"Which table? There are: {', '.join(shipped_tables())}.")
    if workers < 1 or (workers > 1 and not HAS_LOCKS):
        raise ConfigError(f"--workers {workers}: at least 1, and more than 1 needs a system with file locks.")
    if engine == "ray":
        from raindrop.scale.ray_session import import_ray

        import_ray()  # raises if it is not installed, before the data are read
    experiments = read_experiments(tables)
    _require_rows(experiments, rows)
    planned: list[tuple[Experiment, list[Job], list[Job], DataSummary]] = []
    with console.status("reading the data ..."):
        for experiment in experiments:
            selected = experiment.select_rows(rows)
            if selected:
                jobs, data_summary = plan_jobs(experiment, data, selected, splits)
                # The table shows everything in the store, not only what is run this time.
                table_jobs, _ = plan_jobs(experiment, data, experiment.rows, ())
                planned.append((experiment, jobs, table_jobs, data_summary))
    store = Store(out)
    all_jobs = [job for _, jobs, _, _ in planned for job in jobs]
    refuse_changed_defaults(all_jobs, store)
    failures = [] if status else _run(all_jobs, store, workers, engine)
    console.print(escape(progress(all_jobs, store, workers)))
    _print_running(all_jobs, store)
    if status:
        for message in dict.fromkeys(store.failure(job.key) for job in all_jobs if job.missing_settings(store)):
            if message is not None:
                console.print(escape(f"failed: {message}"))
    for experiment, _, table_jobs, data_summary in planned:
        _print_table(experiment, data_summary, table_jobs, store, pictures, text)
    if failures:
        raise RaindropError("\n".join([f"{len(failures)} of {len(all_jobs)} jobs could not be finished:", *failures]))


def _refuse_options(**given: object) -> None:
    """Raise on options about running or drawing when nothing is run."""
    for name, value in given.items():
        if value:
            raise ConfigError(f"--{name} has no effect without --data; leave it out.")


def _write_pages(tables: Sequence[str], text: Path, out: Path) -> None:
    """Write pages from text results only."""
    from raindrop.benchmark.pages import write_pages

    paths = write_pages(text, out, tables)
    console.print(f"wrote {escape(', '.join(map(str, paths)))}")


def _require_rows(experiments: Sequence[Experiment], rows: Sequence[str]) -> None:
    known = {name for experiment in experiments for row in experiment.rows for name in (row.name, row.model)}
    folded = {name.casefold() for name in known}
    for name in rows:
        if name.casefold() not in folded:
            raise ConfigError(f"There is no row '{name}': {suggest(name, sorted(known))}")


def _run(jobs: Sequence[Job], store: Store, num_workers: int, engine: str) -> list[str]:
    """Run the jobs in worker processes, show their progress, and return the messages of those that failed."""
    from raindrop.benchmark.jobs import POLL_SECONDS
    from raindrop.benchmark.workers import done_or_failed, progress

    for job in jobs:
        store.clear_failure(job.key)
    pending = [job for job in jobs if not done_or_failed(job, store)]
    if not pending:
        return []
    with _workers(engine, pending, store.folder, min(num_workers, len(pending))) as processes:
        with Live(console=console, auto_refresh=False, transient=True) as line:
            while any(process.is_alive() for process in processes):
                _print_finished(pending, store, line.console)
                line.update(Text(progress(jobs, store, num_workers)), refresh=True)
                processes[0].join(POLL_SECONDS) if processes[0].is_alive() else time.sleep(POLL_SECONDS)
        codes = sorted({str(process.exitcode) for process in processes if process.exitcode})
    _print_finished(pending, store, console)
    failures = {job.key: store.failure(job.key) for job in jobs}
    messages = [message for message in failures.values() if message]
    if pending:
        messages.append(
            f"{pending[0].name}: its process ended unexpectedly (exit code {', '.join(codes)}); run the command again."
        )
    return messages


def _workers(engine: str, jobs: Sequence[Job], out: Path, number: int) -> AbstractContextManager[Sequence[Worker]]:
    if engine == "ray":
        from raindrop.scale.ray_benchmark import ray_workers

        return ray_workers(jobs, out, number)
    from raindrop.benchmark.workers import local_workers

    return local_workers(jobs, out, number)


def _print_finished(pending: list[Job], store: Store, output: Console) -> None:
    """Print the jobs that finished since the last call and remove them from `pending`."""
    from raindrop.benchmark.workers import done_or_failed

    for job in [job for job in pending if done_or_failed(job, store)]:
        pending.remove(job)
        output.print(escape(_finished(job, store)))


def _finished(job: Job, store: Store) -> str:
    """One line with the validation metric only: test metrics appear in the table."""
    from raindrop.benchmark.workers import format_duration

    failure = store.failure(job.key)
    if failure is not None:
        return f"failed: {failure}"
    metrics = store.read_metrics(job.key)
    assert metrics is not None  # it neither failed nor is pending
    record = metrics.row(0, named=True)
    metric = job.experiment.metrics[0]
    seconds = record["training_seconds"]
    duration = f", {format_duration(seconds)}" if seconds is not None else ""
    return f"done: {job.name}: validation {metric} {record[metric]:.3f}{duration}"


def _print_running(jobs: Sequence[Job], store: Store) -> None:
    from raindrop.benchmark.workers import format_duration

    for job in jobs:
        owner = store.claimed_by(job.key)
        if owner:
            duration = format_duration(time.time() - owner["started"])
            console.print(
                escape(f"running: {owner['name']} (for {duration}, process {owner['pid']} on {owner['host']})")
            )


def _print_table(
    experiment: Experiment,
    data_summary: DataSummary,
    jobs: Sequence[Job],
    store: Store,
    pictures: bool,
    text: Path | None,
) -> None:
    from raindrop.benchmark.aggregate import summarise
    from raindrop.benchmark.render import markdown, write_tables
    from raindrop.benchmark.text_store import records_of, write_records

    records = records_of(experiment, data_summary, jobs, store)
    summary = summarise(experiment, data_summary, records)
    paths = write_tables(summary, store.folder)
    if text is not None:
        paths.append(write_records(text, experiment, data_summary, records))
    if pictures:
        from raindrop.benchmark.figures import write_figures

        paths += write_figures(summary, store.folder)
    console.print(f"\n{escape(markdown(summary))}")
    console.print(f"wrote {escape(', '.join(map(str, paths)))}")
