"""A small table, its batch in double precision, its samples for the loops, and a function that builds models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paper_loops as paper
import pytest
import torch
from paper_checks import as_double

from raindrop.batch.batch import Batch
from raindrop.config import make
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop
from raindrop.table.event_table import EventTable


@pytest.fixture
def table(make_table: Callable[..., EventTable]) -> EventTable:
    return make_table()


@pytest.fixture
def batch(table: EventTable, make_batch: Callable[..., Batch]) -> Batch:
    return as_double(make_batch(table))


@pytest.fixture
def samples(table: EventTable, batch: Batch) -> list[paper.Sample]:
    return paper.samples_of(table, batch.statics.numpy())


@pytest.fixture
def build(table: EventTable, make_spec: Any) -> Callable[..., Raindrop]:
    """A function from settings, such as {"graph.heads": 2} or layers=1, to a model in double precision."""

    def build_model(settings: dict[str, Any] | None = None, *, seed: int = 0, **more: Any) -> Raindrop:
        torch.manual_seed(seed)
        return Raindrop(make(RaindropConfig, settings or {}, more), make_spec(table)).double().eval()

    return build_model
