"""Batch: the readings of some samples as flat tensors; Grid, its dense view."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.batch.ragged import Blocks, Segments


@dataclass(frozen=True)
class Grid:
    """The dense view for models that need one: every sensor at every timestamp, padded to the longest sample."""

    value: Tensor  # (b, t, sensor), 0 where not observed
    observed: Tensor  # (b, t, sensor)
    time: Tensor  # (b, t), 0 where padded
    present: Tensor  # (b, t): a timestamp of the sample, not padding


@dataclass(frozen=True)
class Queries:
    """Readings to predict: sensor `sensor` of sample `sample` at `time`."""

    sample: Tensor  # (q,)
    sensor: Tensor  # (q,)
    time: Tensor  # (q,) double, on the CPU
    time_of_day: Tensor | None = None  # (q, 2) sine and cosine of it; 0 where it is unknown

    def __len__(self) -> int:
        return len(self.sample)

    def __getitem__(self, rows: Any) -> Queries:
        time_of_day = None if self.time_of_day is None else self.time_of_day[rows]
        return Queries(self.sample[rows], self.sensor[rows], self.time[rows], time_of_day)

    def to(self, device: torch.device | str) -> Queries:
        """The same queries on another device, except for their times."""
        time_of_day = None if self.time_of_day is None else self.time_of_day.to(device)
        return Queries(self.sample.to(device), self.sensor.to(device), self.time, time_of_day)


@dataclass(frozen=True)
class Batch:
    """Readings n of samples b; a step s is one distinct timestamp of one sample. All are in (sample, time) order."""

    value: Tensor  # (n,) scaled
    sensor: Tensor  # (n,)
    step: Tensor  # (n,)
    time: Tensor  # (s,) double, on the CPU: single precision resolves Unix seconds only to about two minutes
    step_sample: Tensor  # (s,)
    statics: Tensor  # (b, a)
    num_sensors: int
    target: Tensor | None = None  # (b,) or (b, ...) targets of the loss
    weight: Tensor | None = None  # (b,) weight of each sample in the loss
    queries: Queries | None = None  # readings to predict; target and weight then belong to them

    @property
    def num_samples(self) -> int:
        """b."""
        return self.statics.shape[0]

    @property
    def num_steps(self) -> int:
        """s."""
        return self.time.shape[0]

    @cached_property
    def sample(self) -> Tensor:
        """(n,) the sample of each reading."""
        return self.step_sample[self.step]

    @cached_property
    def steps(self) -> Segments:
        """Readings by timestamp."""
        return Segments.from_index(self.step, self.num_steps, is_sorted=True)

    @cached_property
    def samples(self) -> Segments:
        """Timestamps by sample."""
        return Segments.from_index(self.step_sample, self.num_samples, is_sorted=True)

    @cached_property
    def senders(self) -> Segments:
        """Readings by (sample, sensor)."""
        return Segments.from_index(self.sample * self.num_sensors + self.sensor, self.num_samples * self.num_sensors)

    @cached_property
    def sensors(self) -> Segments:
        """Readings by sensor."""
        return Segments.from_index(self.sensor, self.num_sensors)

    @cached_property
    def blocks(self) -> Blocks:
        """Timestamps in blocks per sample, for matrix products."""
        return Blocks.from_segments(self.samples)

    @cached_property
    def sensor_blocks(self) -> Blocks:
        """Readings in blocks per sensor, for products with a matrix of each sensor."""
        return Blocks.from_segments(self.sensors)

    @cached_property
    def cell(self) -> Tensor:
        """(n,) position of each reading in a flattened (s, sensor) array."""
        return self.step * self.num_sensors + self.sensor

    @cached_property
    def observed(self) -> Tensor:
        """(s, sensor) which sensors have a reading at which timestamp."""
        flat = torch.zeros(self.num_steps * self.num_sensors, dtype=torch.bool, device=self.value.device)
        flat[self.cell] = True
        return flat.view(self.num_steps, self.num_sensors)

    @cached_property
    def following(self) -> Tensor:
        """(s, sensor) the first reading of the sensor in the same sample after timestamp s; -1 if there is none."""
        number = len(self.value)
        first = np.full((self.num_steps + 1, self.num_sensors), number)
        first.reshape(-1)[self.cell.cpu().numpy()] = np.arange(number)
        first = np.minimum.accumulate(first[::-1], axis=0)[::-1][1:]  # of any sample: readings are in order
        return self._in_same_sample(np.where(first < number, first, -1))

    @cached_property
    def previous(self) -> Tensor:
        """(s, sensor) the latest reading of the sensor in the same sample up to timestamp s; -1 if there is none."""
        latest = np.full((self.num_steps, self.num_sensors), -1)
        latest.reshape(-1)[self.cell.cpu().numpy()] = np.arange(len(self.value))
        return self._in_same_sample(np.maximum.accumulate(latest, axis=0))  # of any sample: readings are in order

    def _in_same_sample(self, reading: NDArray[np.int64]) -> Tensor:
        """Readings (s, sensor), -1 if they belong to another sample than the timestamp."""
        if self.num_samples > 1:
            owner = np.append(self.sample.cpu().numpy(), -1)
            reading = np.where(owner[reading] == self.step_sample.cpu().numpy()[:, None], reading, -1)
        return torch.from_numpy(reading).to(self.value.device)

    @cached_property
    def rank(self) -> Tensor:
        """(s,) the number of earlier timestamps of the same sample."""
        return torch.arange(self.num_steps, device=self.step.device) - self.samples.offsets[self.step_sample]

    def grid(self) -> Grid:
        """The dense view, (b, longest, sensor)."""
        longest = int(self.samples.counts.max()) if self.num_steps else 1
        shape = (self.num_samples, max(longest, 1))
        at = self.step_sample * shape[1] + self.rank  # (s,)
        cell = at[self.step] * self.num_sensors + self.sensor
        value = self.value.new_zeros(shape[0] * shape[1] * self.num_sensors).index_copy(0, cell, self.value)
        observed = torch.zeros_like(value, dtype=torch.bool)
        observed[cell] = True
        time = self.time.new_zeros(shape[0] * shape[1]).index_copy(0, at.to(self.time.device), self.time)
        present = torch.zeros(shape[0] * shape[1], dtype=torch.bool, device=self.value.device)
        present[at] = True
        full = (*shape, self.num_sensors)
        return Grid(value.view(full), observed.view(full), time.view(shape), present.view(shape))

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device, except for its times: not every device has double precision."""
        if self.value.device == torch.device(device):
            return self
        moved: dict[str, Any] = {
            name: value.to(device)
            for name in self.__dataclass_fields__
            if name != "time" and isinstance(value := getattr(self, name), Tensor | Queries)
        }
        return replace(self, **moved)

    # -------------------------------------------------- long series (end of Sec. 3.4)

    def thinned(self, most: int) -> Batch:
        """At most `most` timestamps per sample, evenly spread, including the first."""
        count = self.samples.counts[self.step_sample]
        place = self.rank * most // count.clamp_min(1)
        before = (self.rank - 1) * most // count.clamp_min(1)
        keep = (count <= most) | (place != before) | (self.rank == 0)
        return self._only(keep)

    def cut(self, most: int) -> tuple[Batch, Segments]:
        """Each sample cut into pieces of at most `most` timestamps, as samples; and the original sample of each."""
        pieces = ((self.samples.counts + most - 1) // most).clamp_min(1)
        first = torch.cumsum(pieces, 0) - pieces
        owner = torch.repeat_interleave(torch.arange(self.num_samples, device=pieces.device), pieces)
        batch = replace(
            self,
            step_sample=first[self.step_sample] + self.rank // most,
            statics=self.statics[owner],
            target=None if self.target is None else self.target[owner],
            weight=None if self.weight is None else self.weight[owner],
        )
        return batch, Segments.from_index(owner, self.num_samples, is_sorted=True)

    def _only(self, keep: Tensor) -> Batch:
        """The batch with only the timestamps selected by keep (s,)."""
        place = torch.cumsum(keep, 0) - 1
        kept = keep[self.step]
        return replace(
            self,
            value=self.value[kept],
            sensor=self.sensor[kept],
            step=place[self.step[kept]],
            time=self.time[keep.to(self.time.device)],
            step_sample=self.step_sample[keep],
        )
