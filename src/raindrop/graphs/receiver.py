"""The readings of one receiver as rows of a regression, with targets, columns and weights.

Each reading is a row, and its target is the change since the sensor's previous reading. Rows form blocks, over which
errors are summed: stretches of time, or groups of samples.
"""

from __future__ import annotations

import itertools

import numpy as np

from raindrop.graphs.past import Floats, Past, Positions, Rows

BLOCKS, FOLDS = 30, 5
MIN_ROWS = 60  # with fewer readings, a sensor is not tested as a receiver
MAX_ROWS = 60_000  # if there are more, a random subset is used


class Receiver:
    """The rows of one receiver, sorted by fold."""

    def __init__(self, past: Past, sensor: int, group: Positions, seed: int, limit: int = MAX_ROWS):
        """`group` (samples,): samples of a group stay in one block. Of more than `limit` readings, some are drawn."""
        self.past, self.sensor, self.group, self.seed = past, sensor, group, seed
        rows, value = past.readings_of(sensor)
        usable = np.flatnonzero(np.isfinite(past.age(sensor, rows)))
        if len(usable) > limit:
            usable = past.drawn(sensor, usable, limit, seed)
        self.rows, self.value = Rows(rows.sample[usable], rows.time[usable]), value[usable]
        if not self.testable:
            return
        order, block = _blocks(self.rows, group)
        by_fold = np.argsort(block % FOLDS, kind="stable")  # so that a fold is a slice
        order, self.block = order[by_fold], block[by_fold]
        bounds = np.searchsorted(self.block % FOLDS, np.arange(FOLDS + 1))
        self.folds = [slice(start, stop) for start, stop in itertools.pairwise(bounds.tolist()) if stop > start]
        self.rows, self.value = Rows(self.rows.sample[order], self.rows.time[order]), self.value[order]
        self.age = past.age(sensor, self.rows) / past.interval
        own = past.values(sensor, self.rows)
        self.now = own[:, 0]
        change = self.value - self.now
        slope = np.polyfit(np.log(self.age), np.log(change**2 + 1e-3), 1)[0] if np.ptp(self.age) > 0 else 0.0
        weight = self.age**-slope  # a change over a long gap is less certain
        self.weight = np.sqrt(weight / weight.mean())
        log_age = np.log1p(self.age)[:, None]
        self.own_past = np.concatenate([own, own**2, log_age, log_age * own[:, :2]], axis=1)
        self.mean_change = float(np.average(change, weights=self.weight**2))
        self.target = (change - self.mean_change) * self.weight

    @property
    def testable(self) -> bool:
        return len(self.rows) >= MIN_ROWS and float(np.ptp(self.value)) > 0

    def smaller(self, limit: int) -> Receiver:
        """The same receiver with at most `limit` rows; itself if it has no more, or if all of those would be equal."""
        if len(self.rows) <= limit:
            return self
        smaller = Receiver(self.past, self.sensor, self.group, self.seed, limit)
        return smaller if smaller.testable else self

    def scale(self, columns: Floats) -> Floats:
        """Standardised and weighted."""
        square = self.weight[:, None] ** 2
        mean = (columns * square).mean(0)
        spread = np.sqrt(((columns - mean) ** 2 * square).mean(0))
        scaled: Floats = (columns - mean) / np.where(spread > 1e-9, spread, 1.0) * self.weight[:, None]
        return scaled


def _blocks(rows: Rows, group: Positions) -> tuple[Positions, Positions]:
    """An order of the rows, and (n,) their blocks, ascending: groups of samples, or stretches of time."""
    owner = group[rows.sample]
    number = len(np.unique(owner))
    if number >= BLOCKS:
        order = np.lexsort([rows.time, rows.sample, owner])
        rank = np.unique(owner[order], return_inverse=True)[1]
        starts = np.flatnonzero(np.diff(rank, prepend=-1))
        block = (starts * BLOCKS // len(rows))[rank]  # whole groups, about the same number of rows in each block
        block = np.unique(block, return_inverse=True)[1]
        if block[-1] >= FOLDS - 1:  # otherwise one group has nearly all rows
            return order, block
    order = np.lexsort([rows.time, rows.sample])
    return order, np.arange(len(rows)) * BLOCKS // len(rows)
