"""Score a whole table with an engine: in this process, on a pool of processes, or on Ray."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from raindrop.errors import ConfigError, DataError, RaindropError, format_count, suggest
from raindrop.estimators import SampleEstimator, load
from raindrop.files import content_checksum, file_checksum
from raindrop.hardware import usable_cores
from raindrop.scale.messages import Done, LostPart, Part
from raindrop.scale.parts import SMALL_TABLE, cut_table, describe_samples, stored_fingerprint
from raindrop.scale.parts_folder import TABLE, PartsFolder, Scored
from raindrop.scale.pool import score_in_pool
from raindrop.scale.scorer import Options, Scorer, Work
from raindrop.table.event_table import EventTable
from raindrop.tasks.conformal import require_coverage
from raindrop.tasks.predictions import require_writable, write_predictions
from raindrop.training.progress import bar, note
from raindrop.version import VERSION

Engine = Literal["local", "ray"]


def predict(
    run: str | os.PathLike[str],
    data: str | os.PathLike[str] | EventTable,
    *,
    out: str | os.PathLike[str] | None = None,
    engine: Engine = "local",
    processes: int | None = None,
    unknown_sensors: Literal["error", "ignore"] = "error",
    coverage: float | None = None,
    by_class: bool = False,
    key: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> pl.DataFrame:
    """The predictions of a saved model for every sample of a table, with the columns that `raindrop predict` writes.

    run: folder of the model; data: folder of a table, or a table. engine: "local", with processes on this machine, or
    "ray", on the cluster of RAY_ADDRESS, or on this machine if it is not set. processes: their number; by default one
    for a small table and otherwise one per core. The result does not depend on either, to the last bit on processors of
    one kind: parts and batches are cut in the same way, and each process computes with one thread.

    out: .parquet or .csv file to write as well. Until it is complete, finished parts are kept beside it in
    `.OUT.parts`, and repeating the call resumes from there. With several machines, the folders of the run, the table
    and `out` must be shared by all of them. key: file with the key that the run must be signed with.

    A script that calls it with several processes needs `if __name__ == "__main__":` around its main part.
    """
    check_engine(engine)
    if out is not None:
        require_writable(Path(out))
    estimator = load(run, key=key)
    if not isinstance(estimator, SampleEstimator):
        raise ConfigError(f"{run}: the run holds an imputer or a forecaster, which predicts readings, not samples.")
    scored = score_table(
        Path(run),
        estimator,
        data if isinstance(data, EventTable) else EventTable.read(data),
        None if isinstance(data, EventTable) else Path(data),
        out=None if out is None else Path(out),
        engine=engine,
        processes=processes,
        options=Options(unknown_sensors=unknown_sensors, coverage=coverage, by_class=by_class),
        key=None if key is None else Path(key),
        progress=progress,
    )
    return scored.frame


def score_table(
    run: Path,
    estimator: SampleEstimator,
    table: EventTable,
    folder: Path | None,
    *,
    out: Path | None,
    engine: Engine,
    processes: int | None,
    options: Options,
    key: Path | None,
    progress: bool,
) -> Scored:
    """As `predict`, for a loaded run and a table; `folder` is where the table was read from, unchanged."""
    if processes is not None and processes < 1:
        raise ConfigError(f"processes={processes}: at least 1.")
    _check_options(estimator, table, options)
    stored = None if folder is None else stored_fingerprint(folder)
    fingerprint = stored or table.fingerprint
    checksum, parts = file_checksum(run / "model.json"), cut_table(table)
    plan = [VERSION, checksum, fingerprint, asdict(options), [[part.start, part.stop] for part in parts]]
    with _parts_path(out) as path:
        waiting = PartsFolder(path, content_checksum(plan), parts)
        with waiting.opened():
            missing = waiting.missing()
            if len(missing) < len(parts):
                note(progress, f"{format_count(len(parts) - len(missing), len(parts), 'parts')} were scored before")
            if engine == "local" and _num_processes(processes, len(parts)) == 1:
                done = _in_this_process(Scorer(estimator, table, path, options), missing)
            else:
                work = Work(
                    run=run.resolve(),
                    model_checksum=checksum,
                    key=None if key is None else key.resolve(),
                    table=_shared_table(table, folder if stored else None, path / TABLE, fingerprint),
                    fingerprint=fingerprint,
                    out=path,
                    options=options,
                )
                done = _by_engine(engine, work, missing, processes, len(parts))
            _follow(done, missing, table, progress)
            scored = waiting.join(table.samples["sample"])
            if out is not None:
                write_predictions(scored.frame, out)
            waiting.remove()
    return scored


def check_engine(engine: str) -> None:
    """Raise if an engine is unknown, or its package is not installed."""
    if engine not in get_args(Engine):
        raise ConfigError(f"Unknown engine '{engine}': {suggest(str(engine), get_args(Engine))}")
    if engine == "ray":
        from raindrop.scale.ray_session import import_ray

        import_ray()


def _check_options(estimator: SampleEstimator, table: EventTable, options: Options) -> None:
    """Raise or warn before any worker is started: about an impossible coverage, or missing statics."""
    if not len(table):
        raise DataError("The table is empty; at least one sample is needed.")
    if options.coverage is not None:
        require_coverage(options.coverage)
    if options.by_class and not estimator.task_type.coverage_by_class:
        raise ConfigError(f"by_class has no effect with the task '{estimator.task_type.name}'; leave it out.")
    by = {"by_class": True} if options.by_class else {}
    estimator.predict_table(table[:0], coverage=options.coverage, **by)


def _num_processes(processes: int | None, num_parts: int) -> int:
    if processes is None:
        return 1 if num_parts < SMALL_TABLE else usable_cores()
    return processes


def _by_engine(engine: Engine, work: Work, missing: Sequence[Part], processes: int | None, num_parts: int) -> Done:
    if engine == "ray":
        from raindrop.scale.ray_engine import score_on_ray

        return score_on_ray(work.open, missing, processes, work.out)
    return score_in_pool(work.open, missing, _num_processes(processes, num_parts))


def _in_this_process(scorer: Scorer, parts: Sequence[Part]) -> Done:
    for part in parts:
        scorer(part)
        yield part


def _follow(done: Done, missing: Sequence[Part], table: EventTable, progress: bool) -> None:
    """Collect the parts as they finish, and show progress."""
    scored = len(table) - sum(len(part) for part in missing)
    try:
        with closing(done), bar(progress, len(table), "predicting") as update:
            for part in done:
                scored += len(part)
                update(scored, [])
    except LostPart as lost:
        samples = describe_samples(lost.part, table.samples["sample"])
        raise RaindropError(
            f"The process that scores {samples} was ended every time ({lost.reason}), "
            "as the system does where memory runs out. Use fewer processes, or look at these samples."
        ) from None


def _shared_table(table: EventTable, folder: Path | None, copy: Path, fingerprint: str) -> Path:
    """A folder from which workers can open the table: its own, or a copy that is written once."""
    if folder is not None:
        return folder.resolve()
    if stored_fingerprint(copy) != fingerprint:
        table.write(copy, overwrite=True)
    return copy


@contextmanager
def _parts_path(out: Path | None) -> Iterator[Path]:
    """The folder for parts beside the output; without an output, a temporary one."""
    if out is not None:
        yield out.resolve().with_name(f".{out.name}.parts")
        return
    with tempfile.TemporaryDirectory(prefix="raindrop-") as folder:
        yield Path(folder) / "parts"
