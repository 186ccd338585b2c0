"""Watching what comes in: whether the readings that a worker answers for are still as in training, for the metrics."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

from raindrop.serve.messages import Watched
from raindrop.serve.tables import is_quick, join_tables
from raindrop.table.event_table import EventTable

WINDOW = 2_000  # samples after which the oldest half is forgotten
TOGETHER = 64  # samples that are counted at once
SECONDS = 10.0  # between two comparisons with the reference


class Watching:
    """Counts the samples of one model; a model that was saved without reference statistics is not watched."""

    def __init__(self, estimator: Any):
        self.scaler = estimator.scaler_
        reference = getattr(estimator, "reference_", None)
        self.monitor: Any = None
        if reference is not None:
            self.monitor = import_module("raindrop.monitor").Monitor(reference, window=WINDOW)
        self._waiting: list[EventTable] = []
        self._compared = 0.0
        self._gauges: list[Watched] = []

    def see(self, table: EventTable) -> None:
        """Count the samples of a request, now or together with later ones."""
        if self.monitor is None or not is_quick(table, self.scaler):
            return
        self._waiting.append(table)
        if sum(map(len, self._waiting)) >= TOGETHER:
            self._count()

    def _count(self) -> None:
        if self._waiting:
            self.monitor.update(join_tables(self._waiting, self.scaler))
            self._waiting = []

    def gauges(self) -> list[Watched]:
        """How far each sensor has drifted; compared anew every few seconds at most."""
        if self.monitor is not None and time.monotonic() - self._compared > SECONDS:
            self._count()
            self._gauges = list(self.monitor.metrics())
            self._compared = time.monotonic()
        return self._gauges
