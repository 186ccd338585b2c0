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


def summarise_jobs(experiment: Experiment, data: DataSummary, jobs: Sequence[Job], store: Store) -> Summary:
    """The test-set results of an experiment that are in the store; unfinished jobs are left out."""
    values, ratios = metrics_by_split(experiment, jobs, store), size_ratios(jobs)
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
    return Summary(experiment, data, pl.DataFrame(records, schema=SCHEMA), tuple(verdicts(experiment, values, ratios)))


def metrics_by_split(experiment: Experiment, jobs: Sequence[Job], store: Store) -> ByColumn:
    """(row, scenario, setting, metric) -> split number -> metric on the test set, averaged over seeds."""
    settings = {(s.hidden, s.share, s.replace_with): s.name for s in experiment.settings}
    by_seed: dict[tuple[str, str, str, str], dict[int, list[float]]] = {}
    for job in jobs:
        stored = store.read_metrics(job.key)
        if stored is None:
            continue
        for record in stored.filter(pl.col("subset") == "test").iter_rows(named=True):
            setting = settings.get((record["hidden"], record["share"], record["replace_with"]))
            for metric in experiment.metrics if setting is not None else ():
                value = record.get(metric)  # None: added after the job was run; NaN: such as of a class without samples
                if value is not None and not np.isnan(value):
                    column = by_seed.setdefault((job.row.name, job.splits.name, str(setting), metric), {})
                    column.setdefault(job.split_number, []).append(value)
    return {
        column: {number: float(np.mean(values)) for number, values in by_split.items()}
        for column, by_split in by_seed.items()
    }


def size_ratios(jobs: Sequence[Job]) -> dict[str, dict[int, float]]:
    """scenario -> split number -> n_test / n_train, for the corrected t-test.

    Empty for a scenario with `train_where`: its splits share one training set, which the correction does not cover.
    """
    ratios: dict[str, dict[int, float]] = {}
    for job in jobs:
        of_scenario = ratios.setdefault(job.splits.name, {})
        if job.splits.train_where is None:
            of_scenario[job.split_number] = job.num_test / job.num_train
    return ratios
