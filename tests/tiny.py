"""A table of results that takes seconds: small data, a network of a few weights, a few trees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from learnable import QUICK, easy_table

from raindrop.benchmark.aggregate import summarise_cells
from raindrop.benchmark.jobs import Cell, Facts, plan
from raindrop.benchmark.render import write_tables
from raindrop.benchmark.spec import Experiment, read_experiments
from raindrop.benchmark.store import Store
from raindrop.benchmark.workers import work
from raindrop.table.event_table import EventTable

NETWORK = QUICK | {"train.batch_size": 8, "train.epochs": 2, "train.checkpoint_minutes": 0.0}
FILE = f"""
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
    return replace(
        table, samples=table.samples.with_columns(subject=pl.Series([f"p{at % 5}" for at in range(len(table))]))
    )


def prepare(folder: Path, text: str = FILE) -> Path:
    """Write the data to FOLDER/data/tiny and the file to FOLDER/tiny.toml, which is returned."""
    if not (folder / "data").exists():
        tiny_table().write(folder / "data" / "tiny")
    (folder / "tiny.toml").write_text(text)
    return folder / "tiny.toml"


def planned(file: Path, numbers: Sequence[int] = ()) -> tuple[Experiment, list[Cell], Facts]:
    """The cells of a file whose data lie beside it."""
    (experiment,) = read_experiments([file])
    cells, facts = plan(experiment, file.parent / "data", experiment.rows, numbers)
    return experiment, cells, facts


def finish(file: Path, out: Path) -> dict[str, str]:
    """Work until all is done; the tables by ending."""
    experiment, cells, facts = planned(file)
    store = Store(out)
    work(cells, store)
    assert [store.failure(cell.key) for cell in cells if store.failure(cell.key)] == []
    return {
        path.suffix: path.read_text() for path in write_tables(summarise_cells(experiment, facts, cells, store), out)
    }


def figures(store: Store, cell: Cell) -> list[dict[str, Any]]:
    """Of one cell, without what depends on the clock."""
    held = store.read(cell.key)
    assert held is not None
    return held.drop("finished", "training_seconds", "evaluation_seconds").rows(named=True)
