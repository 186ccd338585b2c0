"""Results as text that can be committed: TABLE.jsonl, from which a table is rendered without its data or models.

The first line identifies the table, with what its caption needs to know about the data. Every other line is a job: its
key, row, split and label, the version and checksum of the code that ran it, and its metrics under each setting. Jobs
are sorted, so that a new result is a new line and nothing else changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import polars as pl

from raindrop.benchmark.jobs import DataSummary, Job
from raindrop.benchmark.spec import Experiment
from raindrop.benchmark.store import Store
from raindrop.errors import DataError, suggest
from raindrop.files import to_json, write_text

FORMAT = 1
Line = TypeVar("Line")
Metrics = dict[str, float | None]  # by name; None if it is not a number, such as for a class without samples


@dataclass(frozen=True, kw_only=True)
class SettingMetrics:
    """The metrics of a job under one setting that its table shows."""

    hidden: Literal["none", "fixed", "random"] = "none"
    share: float = 0.0
    replace_with: Literal["nothing", "zeros"] = "nothing"
    test: Metrics
    val: Metrics


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A finished job: one line of the text."""

    row: str
    scenario: str
    split: int
    seed: int
    """The table's seed; that of split k is k - 1 higher."""
    model: str
    preset: str
    label: str
    base_rate: float | None
    """Share of the positive class, or of the most frequent one, among all labelled samples; None without classes."""
    train: int
    """Samples in the training set."""
    test: int
    """Samples in the test set."""
    key: str
    """The job's key in the store it was run in."""
    version: str
    source: str
    """Checksum of the code."""
    finished: str
    seconds: float | None
    """Seconds of training; None if unknown."""
    results: tuple[SettingMetrics, ...]

    @property
    def place(self) -> tuple[str, str, int, int]:
        """The position of the job, unique within a table."""
        return self.row, self.scenario, self.split, self.seed


@dataclass(frozen=True, kw_only=True)
class Header:
    """The first line."""

    format: int
    table: str
    data: DataSummary


# ---------------------------------------------------------------- from the store of a benchmark


def records_of(experiment: Experiment, data: DataSummary, jobs: Sequence[Job], store: Store) -> list[JobRecord]:
    """A record for every job that has metrics in the store."""
    shares = dict(data.class_shares)
    base_rate = max(shares.values(), default=None) if data.positive is None else shares[data.positive]
    records = []
    for job in jobs:
        stored = store.read_metrics(job.key)
        results = () if stored is None else _results(experiment, stored)
        if stored is None or not results:
            continue
        run = stored.row(0, named=True)
        records.append(
            JobRecord(
                row=job.row.name,
                scenario=job.splits.name,
                split=job.split_number,
                seed=job.seed,
                model=job.row.model,
                preset=job.row.preset,
                label=data.label,
                base_rate=base_rate,
                train=job.num_train,
                test=job.num_test,
                key=job.key,
                version=run.get("version") or "",
                source=run.get("source") or "",
                finished=run.get("finished") or "",
                seconds=run.get("training_seconds"),
                results=results,
            )
        )
    return records


def _results(experiment: Experiment, stored: pl.DataFrame) -> tuple[SettingMetrics, ...]:
    results = []
    for setting in experiment.settings:
        rows = stored.filter(**asdict(setting)).rows_by_key("subset", named=True, unique=True)
        if "test" in rows:
            test, val = (_metrics(experiment, rows.get(subset, {})) for subset in ("test", "val"))
            results.append(SettingMetrics(**asdict(setting), test=test, val=val))
    return tuple(results)


def _metrics(experiment: Experiment, row: dict[str, Any]) -> Metrics:
    values = {metric: row.get(metric) for metric in experiment.metrics}
    return {metric: None if value is None or math.isnan(value) else value for metric, value in values.items()}


# ---------------------------------------------------------------- files


def write_records(folder: Path, experiment: Experiment, data: DataSummary, records: Sequence[JobRecord]) -> Path:
    """Write or add to FOLDER/TABLE.jsonl. A record replaces the one of the same row and split; others are kept."""
    path = folder / f"{experiment.name}.jsonl"
    merged = {record.place: record for record in (read_records(path, experiment)[1] if path.exists() else ())}
    merged |= {record.place: record for record in records}
    header = Header(format=FORMAT, table=experiment.name, data=data)
    lines = [asdict(header), *(asdict(merged[place]) for place in sorted(merged))]
    write_text(path, "".join(f"{to_json(line)}\n" for line in lines))
    return path


def read_records(path: Path, experiment: Experiment) -> tuple[DataSummary, list[JobRecord]]:
    """What the table's caption needs to know about the data, and its jobs."""
    try:
        first, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise DataError(f"{path}: cannot be read ({reason}).") from None
    header = _decode(first, Header, path, 1)
    if header.format != FORMAT or header.table != experiment.name:
        raise DataError(
            f"{path}: these are results of the table '{header.table}' in format {header.format}, not of "
            f"'{experiment.name}' in format {FORMAT}."
        )
    rows = [row.name for row in experiment.rows]
    records: dict[tuple[str, str, int, int], JobRecord] = {}
    for number, line in enumerate(lines, start=2):
        record = _decode(line, JobRecord, path, number)
        if record.row not in rows:
            raise DataError(
                f"{path}, line {number}: the table has no row '{record.row}'; {suggest(record.row, rows)} "
                "Rename it in this line, or remove the line."
            )
        if record.place in records:
            raise DataError(f"{path}, line {number}: '{record.row}', split {record.split}, is there twice; remove one.")
        records[record.place] = record
    return header.data, list(records.values())


def _decode(text: str, kind: type[Line], path: Path, number: int) -> Line:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise DataError(
            f"{path}, line {number}: not a line of results ({error}). `raindrop benchmark --text` writes such files."
        ) from None
