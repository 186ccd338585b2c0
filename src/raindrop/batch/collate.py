"""How samples of a table are put into batches."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from raindrop.batch.batch import Batch
from raindrop.batch.scaling import Scaler
from raindrop.errors import ConfigError, DataError, format_count
from raindrop.table.event_table import EventTable

Positions = NDArray[np.int64]
MAX_READINGS = 250_000  # readings in one batch when no gradient is needed


class Collator:
    """Makes batches from the samples of a table, touching only the readings of those samples."""

    def __init__(
        self,
        table: EventTable,
        scaler: Scaler,
        classes: NDArray[Any] | None = None,
        *,
        ignore_unknown: bool = False,
    ):
        self.table = table
        self.scaler = scaler
        self.codes = scaler.sensor_codes(table, ignore_unknown=ignore_unknown)
        self.statics = scaler.encode_statics(table)
        self.labels = None if classes is None else encode_labels(table.labels, classes)
        self.goals: NDArray[np.float32] | None = None  # (samples, classes) to learn instead of labels

    def __len__(self) -> int:
        return len(self.table)

    def part(self, positions: Positions) -> Collator:
        """Only the samples at `positions`, scaled as here."""
        part = copy(self)
        part.table, part.statics = self.table[positions], self.statics[positions]
        part.labels = None if self.labels is None else self.labels[positions]
        part.goals = None if self.goals is None else self.goals[positions]
        return part

    def batch(
        self,
        positions: Positions,
        *,
        rng: np.random.Generator | None = None,
        drop_readings: float = 0.0,
        drop_sensors: float = 0.0,
    ) -> Batch:
        """The samples at `positions`; with `rng`, readings and whole sensors are left out at random.

        `drop_readings` and `drop_sensors` are the largest shares: each sample draws its own between 0 and that.
        """
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
        time = np.asarray(table.time[rows])
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (time[1:] != time[:-1]) | (owner[1:] != owner[:-1])
        value = self.scaler.scale_values(np.asarray(table.value[rows]), sensor)
        return Batch(
            value=torch.from_numpy(value),
            sensor=torch.from_numpy(sensor),
            slot=torch.from_numpy(np.cumsum(new) - 1),
            time=torch.from_numpy(time[new]),
            slot_sample=torch.from_numpy(owner[new]),
            statics=torch.from_numpy(self.statics[positions]),
            num_sensors=width,
            label=None if self.labels is None else torch.from_numpy(self.labels[positions]),
            goal=None if self.goals is None else torch.from_numpy(self.goals[positions]),
        )


def in_order(data: Collator) -> Iterator[Batch]:
    """All samples in order, as batches of bounded size."""
    number = np.arange(len(data)) // 512 + np.cumsum(data.table.count) // MAX_READINGS
    for positions in np.split(np.arange(len(data)), np.flatnonzero(np.diff(number)) + 1):
        if len(positions):
            yield data.batch(positions)


def encode_labels(labels: NDArray[Any], classes: NDArray[Any]) -> Positions:
    """Position of each label in `classes`."""
    if labels.dtype.kind != classes.dtype.kind and {labels.dtype.kind, classes.dtype.kind} - set("biu"):
        labels, classes = labels.astype(str), classes.astype(str)
    order = np.argsort(classes)  # as text, 10 comes before 2
    code = order[np.searchsorted(classes, labels, sorter=order).clip(max=len(classes) - 1)]
    wrong = classes[code] != labels
    if wrong.any():
        known = ", ".join(f"'{name}'" for name in classes[:20])
        raise DataError(
            f"{format_count(int(wrong.sum()), len(labels), 'samples')} have a label that was not there in training "
            f"(first: '{labels[wrong][0]}').\nThe model knows the classes {known}."
        )
    return np.asarray(code, dtype=np.int64)


def plan_batches(
    size: int,
    rng: np.random.Generator,
    *,
    labels: Positions,
    lengths: NDArray[np.int64],
    balanced: bool = False,
    bucketed: bool = False,
) -> list[Positions]:
    """The batches of one epoch, as positions.

    Natural: every sample once, in random order. Balanced: as many batches, each with the same number of samples of
    every class; a class is gone through in random order again and again. Bucketed: samples of similar length
    together, which spares models with a dense grid their padding.
    """
    total = len(labels)
    num_batches = max(1, -(-total // size))
    if balanced:
        classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        if size < len(classes):
            raise ConfigError(f"A balanced batch of {size} cannot hold all {len(classes)} classes; raise train.batch.")
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
