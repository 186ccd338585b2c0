"""Drift of the readings that a worker processes, as gauges; samples are counted in groups, so requests do not wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from raindrop.monitor import Monitor
from raindrop.serve.messages import Watched
from raindrop.serve.tables import is_quick, join_tables
from raindrop.table.event_table import EventTable

GROUP = 64  # samples counted together
WINDOW = 5000  # most recent samples compared with training
SECONDS = 10.0  # between two comparisons


class DriftGauges:
    """Counts the samples of a served model; a model saved without reference statistics is not monitored."""

    def __init__(self, estimator: Any, clock: Callable[[], float] = time.monotonic):
        reference = estimator.reference_
        self.monitor = None if reference is None else Monitor(reference, window=WINDOW)
        self.scaler, self.clock = estimator.scaler_, clock
        self._waiting: list[EventTable] = []
        self._counted_since, self._due = False, 0.0

    def add(self, table: EventTable) -> None:
        """Count the samples of a request, now or with the next ones."""
        if self.monitor is None:
            return
        if not is_quick(table, self.scaler):
            self.monitor.update(table)
            self._counted_since = True
            return
        self._waiting.append(table)
        if sum(map(len, self._waiting)) >= GROUP:
            self.monitor.update(join_tables(self._waiting, self.scaler))
            self._waiting, self._counted_since = [], True

    def gauges(self) -> list[Watched]:
        """All gauges if there are new values and the last ones are some seconds old; otherwise empty."""
        if self.monitor is None or not self._counted_since or self.clock() < self._due:
            return []
        self._counted_since, self._due = False, self.clock() + SECONDS
        return list(self.monitor.metrics())
