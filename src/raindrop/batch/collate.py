"""Put samples of a table into batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.batch.batch import Batch, Queries
from raindrop.batch.scaling import Scaler
from raindrop.errors import ConfigError
from raindrop.table.blocks import PageBudget, is_large, pools
from raindrop.table.event_table import EventTable

Positions = NDArray[np.int64]
MAX_SAMPLES = 512  # in a batch without gradients
GRAPH_ARRAYS = 16  # about one in this many arrays of a batch is sensors x sensors per sample
MIN_WIDTH = 64  # numbers that a model keeps per reading or timestamp, however few sensors there are
MAX_CELLS = 1 << 23  # readings x sensors, or padded times x sensors, in one batch (32 MB per array)


class BatchSource(ABC):
    """Where the training loop gets its batches: items (samples, or windows of samples) by position."""

    budget: PageBudget
    """How much of a large table has been read since its memory was last released."""
    table: EventTable
    scaler: Scaler
    truth: NDArray[Any] | None
    """The true values that predictions of all items, in order, are scored against."""
    targets: NDArray[Any] | None
    """The targets of the loss, if they are fixed before training."""
    weights: NDArray[np.float32] | None
    """The weight of each item in the loss."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of items."""

    @property
    @abstractmethod
    def lengths(self) -> NDArray[np.int64]:
        """(items,) number of readings of each."""

    @property
    @abstractmethod
    def places(self) -> Positions:
        """(items,) where the readings of each item begin in the table."""

    def pools(self, rng: np.random.Generator) -> list[Positions]:
        """The items in pools that are processed one after another; a single pool if the table is not large."""
        return pools(self.table.time, self.places, self.lengths, rng)

    @abstractmethod
    def cells(self, positions: Positions) -> NDArray[np.int64]:
        """(positions,) how many numbers a model holds at once for the first item, the first two, and so on."""

    def largest(self) -> tuple[int, int]:
        """Readings and cells of the item with the most readings, or the cells of a sensor graph if they are more."""
        if not len(self):
            return 0, 0
        at = np.array([int(np.argmax(self.lengths))])
        return int(self.lengths[at[0]]), max(int(self.cells(at)[0]), len(self.scaler.sensors) ** 2)

    @abstractmethod
    def part(self, positions: Positions) -> Self:
        """Only the items at `positions`, scaled as here."""

    @abstractmethod
    def batch(
        self,
        positions: Positions,
        *,
        rng: np.random.Generator | None = None,
        drop_readings: float = 0.0,
        drop_sensors: float = 0.0,
    ) -> Batch:
        """The items at `positions`; with `rng`, readings and whole sensors are dropped at random.

        `drop_readings` and `drop_sensors` are the maximum shares: each item draws its own share between 0 and that.
        """

    def assemble(
        self,
        readings: tuple[Positions, Positions, Positions],
        statics: NDArray[np.float32],
        *,
        target: Tensor | None = None,
        weight: Tensor | None = None,
        queries: Queries | None = None,
    ) -> Batch:
        """The batch of these readings: (n,) row of the table, item and sensor code, in (item, time) order."""
        rows, owner, sensor = readings
        time = np.asarray(self.table.time[rows])
        new = first_of_each_step(time, owner)
        value = self.scaler.scale_values(np.asarray(self.table.value[rows]), sensor)
        if is_large(self.table.time) and self.budget.spend(len(rows), len(statics)):
            self.table.release()
        return Batch(
            value=torch.from_numpy(value),
            sensor=torch.from_numpy(sensor),
            step=torch.from_numpy(np.cumsum(new) - 1),
            time=torch.from_numpy(time[new]),
            step_sample=torch.from_numpy(owner[new]),
            statics=torch.from_numpy(statics),
            num_sensors=len(self.scaler.sensors),
            target=target,
            weight=weight,
            queries=queries,
        )


class Collator(BatchSource):
    """Makes batches from the samples of a table, reading only those samples."""

    def __init__(
        self,
        table: EventTable,
        scaler: Scaler,
        *,
        truth: NDArray[Any] | None = None,
        targets: NDArray[Any] | None = None,
        weights: NDArray[np.float32] | None = None,
        ignore_unknown: bool = False,
    ):
        """`truth` is what predictions are scored against, `targets` (by default the same) what the loss uses."""
        self.table = table
        self.scaler = scaler
        self.budget = PageBudget()
        self.codes = scaler.sensor_codes(table, ignore_unknown=ignore_unknown)
        self.statics = scaler.encode_statics(table)
        self.truth = truth
        self.targets = truth if targets is None else targets
        self.weights = weights

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def num_times(self) -> NDArray[np.int64]:
        """(samples,) distinct timestamps of each sample."""
        return np.concatenate([_num_times(part) for part in self.table.blocks()])

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.table.count

    @property
    def places(self) -> Positions:
        return self.table.start

    def cells(self, positions: Positions) -> NDArray[np.int64]:
        """Readings x sensors for models on flat readings; samples x longest series x sensors for those on a grid.

        Fewer than MIN_WIDTH sensors count as MIN_WIDTH. Sensor graphs need sensors x sensors for each sample, in few
        arrays; they matter if there are many sensors.
        """
        number, sensors = np.arange(1, len(positions) + 1), len(self.scaler.sensors)
        flat = np.cumsum(self.table.count[positions])
        padded = np.maximum.accumulate(self.num_times[positions]) * number
        return np.maximum(np.maximum(flat, padded), number * (sensors // GRAPH_ARRAYS)) * max(sensors, MIN_WIDTH)

    def part(self, positions: Positions) -> Self:
        part = copy(self)
        part.__dict__.pop("num_times", None)
        part.table, part.statics = self.table[positions], self.statics[positions]
        for name in ("truth", "targets", "weights"):
            column = getattr(self, name)
            setattr(part, name, None if column is None else column[positions])
        return part

    def batch(
        self,
        positions: Positions,
        *,
        rng: np.random.Generator | None = None,
        drop_readings: float = 0.0,
        drop_sensors: float = 0.0,
    ) -> Batch:
        table, width = self.table, len(self.scaler.sensors)
        rows = table.rows(positions)
        owner = np.repeat(np.arange(len(positions)), table.count[positions])
        sensor = self.codes[table.sensor[rows]]
        keep = sensor >= 0
        if rng is not None and drop_readings:
            share = rng.random(len(positions)) * drop_readings
            keep &= rng.random(len(rows)) >= share[owner]
        if rng is not None and drop_sensors:
            share = rng.random((len(positions), 1)) * drop_sensors
            keep &= (rng.random((len(positions), width)) >= share)[owner, sensor]
        if not keep.all():
            rows, owner, sensor = rows[keep], owner[keep], sensor[keep]
        return self.assemble(
            (rows, owner, sensor),
            self.statics[positions],
            target=None if self.targets is None else torch.from_numpy(self.targets[positions]),
            weight=None if self.weights is None else torch.from_numpy(self.weights[positions]),
        )


def _num_times(table: EventTable) -> NDArray[np.int64]:
    owner = np.repeat(np.arange(len(table)), table.count)
    new = first_of_each_step(np.asarray(table.time[table.rows()]), owner)
    return np.bincount(owner[new], minlength=len(table))


def first_of_each_step(time: NDArray[np.float64], owner: Positions) -> NDArray[np.bool_]:
    """(n,) whether a reading is the first of its timestamp; readings are in (owner, time) order."""
    new = np.ones(len(time), dtype=bool)
    new[1:] = (time[1:] != time[:-1]) | (owner[1:] != owner[:-1])
    return new


def in_order(data: BatchSource) -> Iterator[Batch]:
    """All items in order, as batches of bounded size."""
    for positions in bounded(data, np.arange(len(data)), MAX_SAMPLES):
        yield data.batch(positions)


def bounded(data: BatchSource, positions: Positions, max_items: int | None = None) -> Iterator[Positions]:
    """Cut `positions` into runs so that the memory a model allocates for each stays bounded.

    An item that exceeds the bound is a run by itself.
    """
    most = max_items or len(positions)
    start = 0
    while start < len(positions):
        run = positions[start : start + most]
        fitting = int(np.searchsorted(data.cells(run), MAX_CELLS, side="right"))
        run = run[: max(fitting, 1)]
        yield run
        start += len(run)


def plan_batches(
    size: int,
    rng: np.random.Generator,
    *,
    strata: Positions,
    lengths: NDArray[np.int64],
    balanced: bool = False,
    bucketed: bool = False,
    pools: Sequence[Positions] | None = None,
) -> list[Positions]:
    """The batches of one epoch, as positions.

    Natural: every sample once, in random order. Balanced: as many batches, each with the same number of samples of
    every class; each class is repeated, in a new random order, as often as needed. Bucketed: samples of similar length
    together, which saves padding in models with a dense grid. With several `pools`, the batches of each pool in turn.
    """
    if pools is not None and len(pools) > 1:
        plans = (
            plan_batches(size, rng, strata=strata[some], lengths=lengths[some], balanced=balanced, bucketed=bucketed)
            for some in pools
        )
        return [some[batch] for some, plan in zip(pools, plans, strict=True) for batch in plan]
    total = len(strata)
    num_batches = max(1, -(-total // size))
    if balanced:
        classes = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
        if size < len(classes):
            raise ConfigError(
                f"A balanced batch of {size} samples cannot hold all {len(classes)} classes; raise train.batch_size."
            )
        drawn = []
        for rank, members in enumerate(classes):
            share = size // len(classes) + (rank < size % len(classes))
            rounds = -(-share * num_batches // len(members))
            order = np.concatenate([rng.permutation(members) for _ in range(rounds)])
            drawn.append(order[: share * num_batches].reshape(num_batches, share))
        return list(np.concatenate(drawn, axis=1))
    order = rng.permutation(total)
    if not bucketed:
        return np.array_split(order, num_batches)
    pool = size * 50
    batches = []
    for start in range(0, total, pool):
        part = order[start : start + pool]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches += np.array_split(part, max(1, -(-len(part) // size)))
    return [batches[at] for at in rng.permutation(len(batches))]
