"""Small random tables and the batches made from them; what is drawn depends on the seed alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from class_tasks import classes, labelled_collator

from raindrop.batch.batch import Batch
from raindrop.batch.scaling import Scaler
from raindrop.models.base import DataSpec
from raindrop.table.event_table import EventTable

# On small tensors more threads only wait for one another; `make test-cpus` runs the tests with two as well.
THREADS = os.environ.get("RAINDROP_TEST_THREADS", "1")
os.environ["OMP_NUM_THREADS"] = THREADS  # processes that a test starts compute exactly as this one does


@pytest.fixture(autouse=True, scope="session")
def set_threads() -> None:
    """Give torch that number of threads too; it read the environment when it was imported."""
    torch.set_num_threads(int(THREADS))


@pytest.fixture(autouse=True)
def same_draws_in_every_test() -> None:
    """What a test draws from torch does not depend on the tests before it."""
    torch.manual_seed(0)


def random_table(
    *,
    samples: int = 6,
    sensors: int = 5,
    times: int = 8,
    observed: float = 0.4,
    classes: int = 2,
    statics: Sequence[str] = ("age", "ward"),
    extremes: bool = True,
    seed: int = 0,
) -> EventTable:
    """Irregular readings: sensors share some times and not others, and every sample has its own length and times.

    With `extremes`, sensor 1 is never read in sample 0, the last sample has no reading and the one before it one.
    """
    rng = np.random.default_rng(seed)
    names = [f"sensor {u}" for u in range(sensors)]
    rows: list[tuple[str, float, str, float]] = []
    for b in range(samples):
        length = times - b % max(1, times // 2)
        for time in rng.choice(1000, size=length, replace=False) / 20:
            active = rng.random(sensors) < observed
            active[rng.integers(sensors)] = True
            for u in np.flatnonzero(active):
                rows.append((f"sample {b}", float(time), names[u], float(rng.normal(u, 1 + u))))
    if extremes:
        last, single = f"sample {samples - 1}", f"sample {samples - 2}"
        rows = [row for row in rows if row[::2] != ("sample 0", "sensor 1") and row[0] not in (last, single)]
        rows.append((single, 3.25, names[-1], 1.5))
    about = {
        "sample": [f"sample {b}" for b in range(samples)],
        "label": [b % classes for b in range(samples)],
        "age": rng.normal(60, 15, samples).tolist(),
        "ward": [("north", "south", "west")[b % 3] for b in range(samples)],
    }
    columns = zip(*rows, strict=True)
    return EventTable.from_columns(*columns, about, label="label", statics=list(statics), sensors=names)


def collate(table: EventTable, positions: Sequence[int] | None = None, *, scaler: Scaler | None = None) -> Batch:
    """The samples at `positions` (all where not given) as a batch, scaled by the whole table."""
    chosen = np.arange(len(table)) if positions is None else np.asarray(positions, dtype=np.int64)
    return labelled_collator(table, scaler).batch(chosen)


def spec_of(table: EventTable) -> DataSpec:
    """What a model must know of the table."""
    return DataSpec(table.sensors, classes(len(np.unique(table.labels))), Scaler.fit(table).static_width)


@pytest.fixture
def make_table() -> Callable[..., EventTable]:
    """A function with the options of `random_table`, giving a table."""
    return random_table


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """A function from a table, and maybe positions of samples in it, to a batch."""
    return collate


@pytest.fixture
def make_spec() -> Callable[[EventTable], DataSpec]:
    """A function from a table to what a model must know of it."""
    return spec_of
