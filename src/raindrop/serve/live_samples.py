"""All live samples of a stream: what has arrived, in what order, and what was dropped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.batch.scaling import StaticColumn
from raindrop.errors import DataError, suggest
from raindrop.serve.arrivals import Arrivals, Attributes, is_dated
from raindrop.serve.live_sample import LiveSample
from raindrop.serve.settings import StreamSettings
from raindrop.table.event_table import EventTable
from raindrop.table.relative_time import TIME_ZERO
from raindrop.table.store import Roles
from raindrop.table.time_columns import SECONDS

Float64 = NDArray[np.float64]
MAX_REMEMBERED = 100_000  # dropped samples whose last time is still remembered


@dataclass
class Counts:
    """Numbers of new readings, changed values, unchanged readings, and readings before their sample's window."""

    new: int = 0
    corrected: int = 0
    repeated: int = 0
    outside: int = 0


@dataclass
class LiveSamples:
    """The samples by id. Times are stored as they came: numbers, or microseconds since 1970, depending on `clock`."""

    settings: StreamSettings
    sensors: list[str]
    """The model's sensors, then ignored ones in order of arrival; codes of readings are positions here."""
    clock: str = ""
    now: float = 0.0
    """The latest time of arrival, in seconds since 1970."""
    live: OrderedDict[str, LiveSample] = field(default_factory=OrderedDict)
    """In order of their last arrival, most recent last."""
    gone: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """Dropped samples, with the time of their last reading."""
    changed: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._codes = {name: code for code, name in enumerate(self.sensors)}

    # ---------------------------------------------------------------- coming in

    def late(self, arrivals: Arrivals) -> NDArray[np.bool_]:
        """(n,) which readings are too late; independent of how readings are divided into pushes."""
        gone = np.array([self.gone.get(name, -np.inf) for name in arrivals.ids], dtype=np.float64)
        late = arrivals.time <= gone[arrivals.owner]
        if self.settings.lateness is None:
            return late
        lateness = self.settings.lateness * self._per_unit(arrivals.clock)
        order = np.argsort(arrivals.owner, kind="stable")
        bounds = np.searchsorted(arrivals.owner[order], np.arange(len(arrivals.ids) + 1))
        for at, name in enumerate(arrivals.ids):
            rows = order[bounds[at] : bounds[at + 1]]
            before = max(self.live[name].latest if name in self.live else -np.inf, gone[at])
            reached = np.maximum.accumulate(np.concatenate([[before], arrivals.time[rows]]))[:-1]
            late[rows] |= arrivals.time[rows] < reached - lateness
        return late

    def add(self, arrivals: Arrivals, now: float) -> Counts:
        """Add validated readings to their samples."""
        self.clock, self.now = self.clock or arrivals.clock, now
        for name in arrivals.sensors:
            if name not in self._codes:
                self._codes[name] = len(self.sensors)
                self.sensors.append(name)
        codes = np.array([self._codes[name] for name in arrivals.sensors], dtype=np.int32)
        owner, time, sensor, value, repeated = once_each(
            arrivals.owner, arrivals.time, codes[arrivals.sensor], arrivals.value
        )
        counts = Counts(repeated=repeated)
        starts = np.flatnonzero(np.diff(owner, prepend=-1)).tolist()
        for start, stop in pairwise([*starts, len(owner)]):
            name, rows = arrivals.ids[owner[start]], slice(start, stop)
            sample = self._touch(name)
            new, corrected, repeated = sample.add(time[rows], sensor[rows], value[rows])
            if self.settings.window is not None:
                first = sample.end - self.settings.window * self._per_unit()
                counts.outside += int((time[rows] < first).sum())
                sample.let_go_before(first)
            counts.new, counts.corrected = counts.new + new, counts.corrected + corrected
            counts.repeated += repeated
            if new or corrected:
                self.changed[name] = None
        self._let_old_go()
        return counts

    def describe(self, about: Attributes, now: float) -> None:
        """Set validated attributes of samples."""
        self.clock, self.now = self.clock or about.clock, now
        for at, name in enumerate(about.ids):
            sample = self._touch(name)
            sample.statics.update({name: column[at] for name, column in about.statics.items()})
            for which, column in about.times.items():
                setattr(sample, which, float(column[at]))
            self.changed[name] = None
        self._let_old_go()

    def _touch(self, name: str) -> LiveSample:
        """The live sample of this name, created if necessary, and moved to the end of the order."""
        sample = self.live.get(name)
        if sample is None:
            sample = self.live[name] = LiveSample()
        self.live.move_to_end(name)
        sample.arrived = self.now
        return sample

    # ---------------------------------------------------------------- letting go

    def _let_old_go(self) -> None:
        """Drop samples by number and by age, those without new readings for longest first."""
        settings = self.settings
        while self.live:
            name, sample = next(iter(self.live.items()))
            too_many = settings.max_samples is not None and len(self.live) > settings.max_samples
            age = self.now - sample.arrived
            too_old = settings.max_age is not None and age > settings.max_age * SECONDS[settings.time_unit]
            if not too_many and not too_old:
                return
            self.forget(name)

    def forget(self, name: str) -> None:
        """Drop a sample, and remember the time of its last reading."""
        sample = self.live.pop(name)
        self.changed.pop(name, None)
        self.gone[name] = max(sample.latest, self.gone.pop(name, -np.inf))
        if len(self.gone) > MAX_REMEMBERED:
            self.gone.popitem(last=False)

    # ---------------------------------------------------------------- going out

    def found(self, names: Sequence[str]) -> list[tuple[str, LiveSample]]:
        """The live samples of these names; raises on the first one that is not live."""
        for name in names:
            if name not in self.live:
                was = "was let go." if name in self.gone else f"is not live: {suggest(str(name), self.live)}"
                raise DataError(f"Sample '{name}' {was}")
        return [(name, self.live[name]) for name in names]

    def table(self, names: Sequence[str] | None, statics: Sequence[StaticColumn], *, shift: bool) -> EventTable:
        """The live samples, all or these; with `shift`, times count from the start of the window if there is one."""
        found = list(self.live.items()) if names is None else self.found(names)
        live = [sample for _, sample in found]
        zero = np.array([self._zero(sample, shift) for sample in live], dtype=np.float64)
        parts = [self._readings(sample, at) for sample, at in zip(live, zero.tolist(), strict=True)]
        count = np.array([len(part[0]) for part in parts], dtype=np.int64)
        empty = (np.empty(0), np.empty(0, dtype=np.int32), np.empty(0))
        time, sensor, value = (np.concatenate(columns) for columns in zip(*(parts or [empty]), strict=True))
        about = {
            column.name: pl.Series(
                [sample.statics.get(column.name) for sample in live],
                dtype=pl.Float64 if column.categories is None else pl.String,
            )
            for column in statics
        }
        if is_dated(self.clock):
            zone = "UTC" if self.clock.endswith("with a time zone") else None
            about[TIME_ZERO] = pl.Series(zero, nan_to_null=True).cast(pl.Int64).cast(pl.Datetime("us", zone))
        return EventTable(
            time=time,
            sensor=sensor,
            value=value,
            start=np.cumsum(count) - count,
            count=count,
            sensors=tuple(self.sensors),
            samples=pl.DataFrame({"sample": pl.Series([name for name, _ in found], dtype=pl.String), **about}),
            roles=Roles(statics=tuple(column.name for column in statics)),
            time_unit=self.settings.time_unit,
        )

    def _per_unit(self, clock: str = "") -> float:
        """The length of one `time_unit` in stored times."""
        return SECONDS[self.settings.time_unit] * 1e6 if is_dated(clock or self.clock) else 1.0

    def _zero(self, sample: LiveSample, shift: bool) -> float:
        """What the times of a sample count from, as stored; NaN for a sample of date times without any."""
        if shift and self.settings.window is not None:
            return sample.end - self.settings.window * self._per_unit() if sample.count else np.nan
        if not is_dated(self.clock):
            return 0.0
        return sample.first if np.isnan(sample.reference) else sample.reference

    def _readings(self, sample: LiveSample, zero: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Times since `zero` in `time_unit`, sensors and values, up to the cutoff."""
        count = sample.up_to_cutoff()
        time = sample.time[:count]
        if zero:
            time = time - zero
        if is_dated(self.clock):
            time = time / self._per_unit()
        if self.settings.cutoff is not None:
            count = int(np.searchsorted(time, self.settings.cutoff, side="right"))
        return time[:count], sample.sensor[:count], sample.value[:count]


def once_each(
    owner: NDArray[np.int64], time: Float64, sensor: NDArray[np.int32], value: Float64
) -> tuple[NDArray[np.int64], Float64, NDArray[np.int32], Float64, int]:
    """Readings sorted by (owner, time, sensor), the last of equal ones; and the number of those left out."""
    order = np.lexsort((sensor, time, owner))
    owner, time, sensor, value = owner[order], time[order], sensor[order], value[order]
    again = (owner[1:] == owner[:-1]) & (time[1:] == time[:-1]) & (sensor[1:] == sensor[:-1])
    if not again.any():
        return owner, time, sensor, value, 0
    keep = np.append(~again, True)
    return owner[keep], time[keep], sensor[keep], value[keep], int(again.sum())
