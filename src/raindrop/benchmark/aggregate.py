"""From the metrics of jobs to those of a table: means over splits, published values, comparisons with the best row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from raindrop.benchmark.comparison import ByColumn, best_row, mean, paired_comparison, scale_of, verdicts
from raindrop.benchmark.jobs import DataSummary, Job
from raindrop.benchmark.spec import Experiment
from raindrop.benchmark.store import Store
from raindrop.benchmark.text_store import JobRecord, records_of

SCHEMA: dict[str, Any] = {
    "scenario": pl.String,
    "setting": pl.String,
    "hidden": pl.String,
    "share": pl.Float64,
    "row": pl.String,
    "model": pl.String,
    "metric": pl.String,
    "splits": pl.Int64,
    "split_numbers": pl.String,
    "mean": pl.Float64,
    "sd": pl.Float64,
    "published": pl.Float64,
    "published_sd": pl.Float64,
    "difference": pl.Float64,
    "best": pl.Boolean,
    "behind": pl.Float64,
    "behind_low": pl.Float64,
    "behind_high": pl.Float64,
    "common_splits": pl.Int64,
    "p_value": pl.Float64,
}


@dataclass(frozen=True)
class Summary:
    """The content of one table, and what its caption needs."""

    experiment: Experiment
    data: DataSummary
    results: pl.DataFrame
    """One row per (scenario, setting, row, metric), with the columns of SCHEMA."""
    verdicts: tuple[str, ...]
    """Sentences on whether the trees win, one per block and metric."""
    versions: tuple[str, ...] = ()
    """Versions of raindrop, with the rows they ran if there are several."""


def summarise_jobs(experiment: Experiment, data: DataSummary, jobs: Sequence[Job], store: Store) -> Summary:
    """The test-set results of an experiment that are in the store; unfinished jobs are left out."""
    return summarise(experiment, data, records_of(experiment, data, jobs, store))


def summarise(experiment: Experiment, data: DataSummary, jobs: Sequence[JobRecord]) -> Summary:
    """The test-set results of finished jobs."""
    values, ratios = metrics_by_split(experiment, jobs), size_ratios(experiment, jobs)
    records: list[dict[str, Any]] = []
    for scenario, setting in experiment.columns():
        for metric in experiment.metrics:
            block = {row.name: values.get((row.name, scenario, setting.name, metric), {}) for row in experiment.rows}
            best = best_row(block, metric)
            reference = experiment.reference or best or ""
            scale = scale_of(metric)
            for row in experiment.rows:
                by_split = block[row.name]
                row_mean = scale * mean(by_split) if by_split else None
                published = experiment.published_metric(row, scenario, setting, metric)
                comparable = published if experiment.published.same_data else None
                comparison = paired_comparison(block.get(reference, {}), by_split, metric, ratios.get(scenario, {}))
                compared = comparison if row.name != reference else None
                interval = compared.interval if compared else None
                records.append(
                    {
                        "scenario": scenario,
                        "setting": setting.name,
                        "hidden": setting.hidden,
                        "share": setting.share,
                        "row": row.name,
                        "model": row.model,
                        "metric": metric,
                        "splits": len(by_split),
                        "split_numbers": " ".join(map(str, sorted(by_split))),
                        "mean": row_mean,
                        "sd": scale * float(np.std(list(by_split.values()), ddof=1)) if len(by_split) > 1 else None,
                        "published": published[0] if published else None,
                        "published_sd": published[1] if published else None,
                        "difference": row_mean - comparable[0] if row_mean is not None and comparable else None,
                        "best": row.name == best,
                        "behind": scale * compared.behind if compared else None,
                        "behind_low": scale * interval[0] if interval else None,
                        "behind_high": scale * interval[1] if interval else None,
                        "common_splits": comparison.splits if comparison else 0,
                        "p_value": compared.p_value if compared else None,
                    }
                )
    results = pl.DataFrame(records, schema=SCHEMA)
    return Summary(experiment, data, results, tuple(verdicts(experiment, values, ratios)), _versions(experiment, jobs))


def _versions(experiment: Experiment, jobs: Sequence[JobRecord]) -> tuple[str, ...]:
    """'0.2.0', or '0.2.0 (Trees, GRU-D)' and so on if rows were run with several versions."""
    rows: dict[str, list[str]] = {}
    for row in experiment.rows:
        for version in sorted({job.version for job in jobs if job.row == row.name and job.version}):
            rows.setdefault(version, []).append(row.name)
    if len(rows) < 2:
        return tuple(rows)
    return tuple(f"{version} ({', '.join(names)})" for version, names in sorted(rows.items()))


def metrics_by_split(experiment: Experiment, jobs: Sequence[JobRecord]) -> ByColumn:
    """(row, scenario, setting, metric) -> split number -> metric on the test set, averaged over seeds."""
    settings = {(s.hidden, s.share, s.replace_with): s.name for s in experiment.settings}
    by_seed: dict[tuple[str, str, str, str], dict[int, list[float]]] = {}
    for job in jobs:
        for result in job.results:
            setting = settings.get((result.hidden, result.share, result.replace_with))
            for metric in experiment.metrics if setting is not None else ():
                value = result.test.get(metric)  # None: added after the job was run, or not a number
                if value is not None:
                    column = by_seed.setdefault((job.row, job.scenario, str(setting), metric), {})
                    column.setdefault(job.split, []).append(value)
    return {
        column: {number: float(np.mean(values)) for number, values in by_split.items()}
        for column, by_split in by_seed.items()
    }


def size_ratios(experiment: Experiment, jobs: Sequence[JobRecord]) -> dict[str, dict[int, float]]:
    """scenario -> split number -> n_test / n_train, for the corrected t-test.

    Empty for a scenario with `train_where`: its splits share one training set, which the correction does not cover.
    """
    corrected = {splits.name: splits.train_where is None for splits in experiment.splits}
    ratios: dict[str, dict[int, float]] = {name: {} for name in corrected}
    for job in jobs:
        if corrected.get(job.scenario):
            ratios[job.scenario][job.split] = job.test / job.train
    return ratios
