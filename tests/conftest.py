"""Small random tables and the batches made from them; what is drawn depends on the seed alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from class_tasks import classes, labelled_collator
from fork_server import use_fork_server
from hypothesis import settings
from random_tables import random_table

from raindrop.batch.batch import Batch
from raindrop.batch.scaling import Scaler
from raindrop.models.base import DataSpec
from raindrop.table.event_table import EventTable

# On small tensors more threads only wait for one another; `make test-cpus` runs the tests with two as well.
THREADS = os.environ.get("RAINDROP_TEST_THREADS", "1")
os.environ["OMP_NUM_THREADS"] = THREADS  # processes that a test starts compute exactly as this one does
LONGEST = ("test_site.py", "test_packaging.py")  # few tests, and each takes long
use_fork_server(dict(os.environ))
# The same examples in every run, so that a red run can be repeated; `--hypothesis-profile=default` looks for new ones.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Folders with many slow tests come first, and in each its files with many: at the end, both cores have work."""
    slow = Counter(
        place for item in items if item.get_closest_marker("slow") for place in (item.path, item.path.parent)
    )
    items.sort(key=lambda item: (item.path.name not in LONGEST, -slow[item.path.parent], str(item.path.parent),
                                 -slow[item.path], item.path.name))  # fmt: skip


@pytest.fixture(autouse=True, scope="session")
def set_threads() -> None:
    """Give torch that number of threads too; it read the environment when it was imported."""
    torch.set_num_threads(int(THREADS))


@pytest.fixture(autouse=True)
def same_draws_in_every_test() -> None:
    """What a test draws from torch does not depend on the tests before it."""
    torch.default_generator.manual_seed(0)  # of the CPU alone: `torch.manual_seed` takes ten times as long


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
