"""A results table that takes seconds: little data, a tiny network, a few trees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from learnable import QUICK, easy_table

from raindrop.benchmark import Experiment, Job, Store, plan_jobs, read_experiments, summarise_jobs, work, write_tables
from raindrop.benchmark.jobs import DataSummary
from raindrop.table.event_table import EventTable

NETWORK = QUICK | {"train.batch_size": 8, "train.epochs": 2, "train.checkpoint_minutes": 0.0}
TOML = f"""
title = "Tiny"

[data]
folder = "tiny"
label = "label"
positive = 1

[[splits]]
random = true
numbers = [1, 2, 3]

[settings]
fixed = [0.34]
random = [0.34]

[[rows]]
name = "Net"
model = "raindrop"
config = {{ {", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in NETWORK.items())} }}

[[rows]]
name = "Trees"
model = "trees"
preset = "paper"
config = {{ "model.rounds" = 4, "model.min_samples" = 2 }}
"""


def tiny_table() -> EventTable:
    """60 samples of five subjects."""
    table = easy_table(60, statics=("age", "ward"))
    subjects = pl.Series([f"p{position % 5}" for position in range(len(table))])
    return replace(table, samples=table.samples.with_columns(subject=subjects))


def prepare(folder: Path, text: str = TOML) -> Path:
    """Write the data to FOLDER/data/tiny and the TOML file to FOLDER/tiny.toml; returns the path of the latter."""
    if not (folder / "data").exists():
        tiny_table().write(folder / "data" / "tiny")
    (folder / "tiny.toml").write_text(text)
    return folder / "tiny.toml"


def planned(file: Path, numbers: Sequence[int] = ()) -> tuple[Experiment, list[Job], DataSummary]:
    """The experiment of a TOML file with its data beside it, its jobs, and the summary of the data."""
    (experiment,) = read_experiments([file])
    jobs, data_summary = plan_jobs(experiment, file.parent / "data", experiment.rows, numbers)
    return experiment, jobs, data_summary


def finish(file: Path, out: Path) -> dict[str, str]:
    """Run all jobs of a TOML file; returns the text of the tables by file ending."""
    experiment, jobs, data_summary = planned(file)
    store = Store(out)
    work(jobs, store)
    assert [store.failure(job.key) for job in jobs if store.failure(job.key)] == []
    paths = write_tables(summarise_jobs(experiment, data_summary, jobs, store), out)
    return {path.suffix: path.read_text() for path in paths}


def stored_metrics(store: Store, job: Job) -> list[dict[str, Any]]:
    """The stored rows of a job, without the columns that depend on the clock."""
    metrics = store.read_metrics(job.key)
    assert metrics is not None
    return metrics.drop("finished", "training_seconds", "evaluation_seconds").rows(named=True)
