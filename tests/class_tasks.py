"""Classification tasks for tests that need one without a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from raindrop.batch.collate import Collator
from raindrop.batch.scaling import Scaler
from raindrop.table.event_table import EventTable
from raindrop.tasks.classification import Classification


def classes(number: int) -> Classification:
    """The classes 0, 1, ..."""
    return Classification("label", np.arange(number))


def labelled_collator(table: EventTable, scaler: Scaler | None = None, **options: Any) -> Collator:
    """A collator whose targets are the classes of the table's labels."""
    truth = Classification("label", np.unique(table.labels)).encode(table)
    return Collator(table, scaler or Scaler.fit(table), truth=truth, **options)
