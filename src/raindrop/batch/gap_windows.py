"""Windows for training and validation: some of their readings are hidden and predicted."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Positions
from raindrop.batch.gaps import Gaps
from raindrop.batch.scaling import Scaler
from raindrop.batch.windows import Bools, Windows, WindowSource
from raindrop.table.event_table import EventTable

MAX_PAIRS = 1 << 17  # queries x sensors in a training batch,
MIN_QUERIES = 64  # but at least this many queries
MAX_VALIDATION = 50_000  # readings to validate on
DISTANT_SHARE = 0.5  # of the sensors whose distant readings are visible in training
UNDATED_SHARE = 0.1  # of the training windows whose queries do not know the time of day


class GapWindows(WindowSource):
    """Training windows: some readings are hidden and predicted, drawn again for every batch."""

    def __init__(
        self,
        table: EventTable,
        scaler: Scaler,
        windows: Windows,
        gaps: Gaps,
        *,
        askable: Bools | None = None,
        **options: Any,
    ):
        """If given, only readings that are `askable` (readings of the table,) are predicted."""
        super().__init__(table, scaler, windows, **options)
        self.gaps, self.askable = gaps, askable
        self.sees_after = gaps.horizon is None

    def draw_distant(self, number: int, rng: np.random.Generator) -> Bools | None:
        """(window, sensor) whose distant readings are visible; so training also covers sensors without any."""
        if self.distant is None:
            return None
        return rng.random((number, len(self.scaler.sensors))) < DISTANT_SHARE

    def draw(self, positions: Positions, rng: np.random.Generator) -> tuple[Bools, Bools]:
        """Of the `readings` at these positions: which are hidden, and which are predicted."""
        rows, owner, sensor = self.readings(positions)
        time = np.asarray(self.table.time[rows])
        start, stop = self.windows.start[positions], self.windows.stop[positions]
        inside = (time >= start[owner]) & (time < stop[owner])
        askable = None if self.askable is None else self.askable[rows]
        return self.gaps.draw(rng, owner, sensor, time, inside, len(positions), askable)

    def hide(
        self, positions: Positions, hidden: Bools, asked: Positions, distant: Bools | None, dated: Bools | None = None
    ) -> Batch:
        """The batch without the hidden readings, with queries for the asked ones.

        `distant` (window, sensor) are the sensors whose distant readings are visible. Queries know their time of day,
        unless `dated` (window,) says that those of a window do not.
        """
        rows, owner, sensor = self.readings(positions)
        target = self.scaler.scale_values(np.asarray(self.table.value[rows[asked]]), sensor[asked])
        keep = ~hidden
        return self.ask(
            positions,
            self.with_distant(positions, (rows[keep], owner[keep], sensor[keep]), distant),
            (owner[asked], sensor[asked], np.asarray(self.table.time[rows[asked]])),
            target,
            dated,
        )

    def cells(self, positions: Positions) -> NDArray[np.int64]:
        """Queries x sensors, at most MAX_PAIRS, and the readings."""
        seen: NDArray[np.int64] = np.cumsum(self.windows.count[positions])
        cells: NDArray[np.int64] = seen * 8 + np.minimum(seen * len(self.scaler.sensors), MAX_PAIRS)
        return cells

    def batch(
        self,
        positions: Positions,
        *,
        rng: np.random.Generator | None = None,
        drop_readings: float = 0.0,
        drop_sensors: float = 0.0,
    ) -> Batch:
        rng = np.random.default_rng(0) if rng is None else rng
        hidden, drawn = self.draw(positions, rng)
        asked = np.flatnonzero(drawn)
        most = max(MIN_QUERIES, MAX_PAIRS // len(self.scaler.sensors))
        if len(asked) > most:
            asked = np.sort(rng.choice(asked, most, replace=False))
        distant = self.draw_distant(len(positions), rng)
        # A model of dated tables can then also answer where the time of day is unknown.
        dated = None if self.day_share is None else rng.random(len(positions)) >= UNDATED_SHARE
        return self.hide(positions, hidden, asked, distant, dated)


class HeldOutWindows(GapWindows):
    """Validation windows: with gaps as in training, but drawn only once."""

    def __init__(
        self,
        table: EventTable,
        scaler: Scaler,
        windows: Windows,
        gaps: Gaps,
        *,
        most: int = MAX_VALIDATION,
        seed: int = 0,
        **options: Any,
    ):
        """Predicts at most `most` readings."""
        super().__init__(table, scaler, windows, gaps, **options)
        rng = np.random.default_rng(seed)
        parts = np.array_split(np.arange(len(self)), max(1, len(self) // 64))
        drawn = [self.draw(at, rng) for at in parts]
        self.hidden, self.asked = (np.concatenate(flags) for flags in zip(*drawn, strict=True))
        if self.asked.sum() > most:
            left_out = rng.permutation(np.flatnonzero(self.asked))[most:]
            self.asked[left_out] = False
        rows, owner, sensor = self.readings(np.arange(len(self)))
        self.offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(self)))])
        self.num_asked = np.bincount(owner[self.asked], minlength=len(self))
        scaled = scaler.scale_values(np.asarray(table.value[rows[self.asked]]), sensor[self.asked])
        self.truth = np.stack([scaled.astype(np.float64), sensor[self.asked]], axis=1)
        self.seen_distant = self.draw_distant(len(self), rng)
        every = np.arange(len(self))
        seen = self.with_distant(
            every, (rows[~self.hidden], owner[~self.hidden], sensor[~self.hidden]), self.seen_distant
        )
        asked = owner[self.asked], sensor[self.asked], np.asarray(table.time[rows[self.asked]])
        self.distance = self.time_to_nearest(every, seen, asked)

    def cells(self, positions: Positions) -> NDArray[np.int64]:
        """Readings, and queries x sensors."""
        asked = np.cumsum(self.num_asked[positions]) * len(self.scaler.sensors)
        cells: NDArray[np.int64] = np.cumsum(self.windows.count[positions]) * 8 + asked
        return cells

    def part(self, positions: Positions) -> Self:
        raise NotImplementedError("queries are answered by one process")

    def batch(
        self,
        positions: Positions,
        *,
        rng: np.random.Generator | None = None,
        drop_readings: float = 0.0,
        drop_sensors: float = 0.0,
    ) -> Batch:
        flags = np.concatenate([np.arange(self.offsets[at], self.offsets[at + 1]) for at in positions])
        distant = None if self.seen_distant is None else self.seen_distant[positions]
        return self.hide(positions, self.hidden[flags], np.flatnonzero(self.asked[flags]), distant)
