"""Batch: the readings of some samples as flat tensors, and how samples are put into batches."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.errors import ConfigError, DataError, count_of
from raindrop.events import EventTable
from raindrop.ragged import Blocks, Segments
from raindrop.scaling import Scaler

Positions = NDArray[np.int64]
MAX_READINGS = 250_000  # readings in one batch when no gradient is needed


@dataclass(frozen=True)
class Grid:
    """The dense view for models that need one: every sensor at every timestamp, padded to the longest sample."""

    value: Tensor  # (b, t, sensor), 0 where not observed
    observed: Tensor  # (b, t, sensor)
    time: Tensor  # (b, t), 0 where padded
    present: Tensor  # (b, t): a timestamp of the sample, not padding


@dataclass(frozen=True)
class Batch:
    """Readings n of samples b; a slot s is one distinct timestamp of one sample. All lie in (sample, time) order."""

    value: Tensor  # (n,) scaled
    sensor: Tensor  # (n,)
    slot: Tensor  # (n,)
    time: Tensor  # (s,) double: single precision knows Unix seconds only to the nearest two minutes
    slot_sample: Tensor  # (s,)
    statics: Tensor  # (b, a)
    num_sensors: int
    label: Tensor | None = None  # (b,)
    goal: Tensor | None = None  # (b, class) probabilities to learn instead of the label

    @property
    def num_samples(self) -> int:
        """b."""
        return self.statics.shape[0]

    @property
    def num_slots(self) -> int:
        """s."""
        return self.time.shape[0]

    @cached_property
    def sample(self) -> Tensor:
        """(n,) the sample of each reading."""
        return self.slot_sample[self.slot]

    @cached_property
    def slots(self) -> Segments:
        """Readings by timestamp."""
        return Segments.of(self.slot, self.num_slots, ordered=True)

    @cached_property
    def samples(self) -> Segments:
        """Timestamps by sample."""
        return Segments.of(self.slot_sample, self.num_samples, ordered=True)

    @cached_property
    def senders(self) -> Segments:
        """Readings by (sample, sensor)."""
        return Segments.of(self.sample * self.num_sensors + self.sensor, self.num_samples * self.num_sensors)

    @cached_property
    def sensors(self) -> Segments:
        """Readings by sensor."""
        return Segments.of(self.sensor, self.num_sensors)

    @cached_property
    def blocks(self) -> Blocks:
        """Timestamps in blocks per sample, for matrix products."""
        return Blocks.of(self.samples)

    @cached_property
    def cell(self) -> Tensor:
        """(n,) position of each reading in a flattened (s, sensor) array."""
        return self.slot * self.num_sensors + self.sensor

    @cached_property
    def observed(self) -> Tensor:
        """(s, sensor) which sensors have a reading at which timestamp."""
        flat = torch.zeros(self.num_slots * self.num_sensors, dtype=torch.bool, device=self.value.device)
        flat[self.cell] = True
        return flat.view(self.num_slots, self.num_sensors)

    @cached_property
    def following(self) -> Tensor:
        """(s, sensor) the first reading of the sensor in the same sample after timestamp s; -1 where none follows."""
        number = len(self.value)
        first = torch.full((self.num_slots + 1, self.num_sensors), number, device=self.value.device)
        first[:-1].view(-1)[self.cell] = torch.arange(number, device=self.value.device)
        first = first.flip(0).cummin(0).values.flip(0)[1:]  # of any sample: readings lie in order
        owner = torch.cat([self.sample, self.sample.new_full((1,), -1)])
        return first.masked_fill(owner[first] != self.slot_sample[:, None], -1)

    @cached_property
    def rank(self) -> Tensor:
        """(s,) how many timestamps of the same sample came before."""
        return torch.arange(self.num_slots, device=self.time.device) - self.samples.offsets[self.slot_sample]

    def grid(self) -> Grid:
        """The dense view, (b, longest, sensor)."""
        longest = int(self.samples.counts.max()) if self.num_slots else 1
        shape = (self.num_samples, max(longest, 1))
        at = self.slot_sample * shape[1] + self.rank  # (s,)
        cell = at[self.slot] * self.num_sensors + self.sensor
        value = self.value.new_zeros(shape[0] * shape[1] * self.num_sensors).index_copy(0, cell, self.value)
        observed = torch.zeros_like(value, dtype=torch.bool)
        observed[cell] = True
        time = self.time.new_zeros(shape[0] * shape[1]).index_copy(0, at, self.time)
        present = torch.zeros_like(time, dtype=torch.bool)
        present[at] = True
        full = (*shape, self.num_sensors)
        return Grid(value.view(full), observed.view(full), time.view(shape), present.view(shape))

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        moved: dict[str, Any] = {
            name: tensor.to(device) for name, tensor in vars(self).items() if isinstance(tensor, Tensor)
        }
        fields = {name: moved[name] for name in self.__dataclass_fields__ if name in moved}
        return replace(self, **fields)

    # -------------------------------------------------- long series (end of Sec. 3.4)

    def thinned(self, most: int) -> Batch:
        """At most `most` timestamps per sample, evenly spread over its own, the first one included."""
        count = self.samples.counts[self.slot_sample]
        step = self.rank * most // count.clamp_min(1)
        before = (self.rank - 1) * most // count.clamp_min(1)
        keep = (count <= most) | (step != before) | (self.rank == 0)
        return self._only(keep)

    def cut(self, most: int) -> tuple[Batch, Segments]:
        """Each sample cut into pieces of at most `most` timestamps, as samples of their own; and whose they are."""
        pieces = ((self.samples.counts + most - 1) // most).clamp_min(1)
        first = torch.cumsum(pieces, 0) - pieces
        owner = torch.repeat_interleave(torch.arange(self.num_samples, device=pieces.device), pieces)
        batch = replace(
            self,
            slot_sample=first[self.slot_sample] + self.rank // most,
            statics=self.statics[owner],
            label=None if self.label is None else self.label[owner],
            goal=None if self.goal is None else self.goal[owner],
        )
        return batch, Segments.of(owner, self.num_samples, ordered=True)

    def _only(self, keep: Tensor) -> Batch:
        """The batch with only the timestamps where keep (s,)."""
        place = torch.cumsum(keep, 0) - 1
        kept = keep[self.slot]
        return replace(
            self,
            value=self.value[kept],
            sensor=self.sensor[kept],
            slot=place[self.slot[kept]],
            time=self.time[keep],
            slot_sample=self.slot_sample[keep],
        )


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
        value = (np.asarray(table.value[rows]) - self.scaler.mean[sensor]) / self.scaler.scale[sensor]
        return Batch(
            value=torch.from_numpy(value.astype(np.float32, copy=False)),
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
            f"{count_of(int(wrong.sum()), len(labels), 'samples')} have a label that was not there in training "
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
