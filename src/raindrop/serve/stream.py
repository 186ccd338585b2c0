"""Stream: readings in as they come, scores of the samples that changed out."""

from __future__ import annotations

import time as clock
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.batch.scaling import unknown_sensors_error
from raindrop.errors import ConfigError, DataError, check_choice, format_count, suggest
from raindrop.estimators.base import Estimator
from raindrop.estimators.imputer import Imputer
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.estimators.samples import SampleEstimator
from raindrop.serve.arrivals import Arrivals, Attributes
from raindrop.serve.live_samples import LiveSample, once_each
from raindrop.table.event_table import EventTable
from raindrop.table.frames import ids_as_text, require_columns, to_polars
from raindrop.table.readings import Readings
from raindrop.table.relative_time import TIME_ZERO
from raindrop.table.store import Roles
from raindrop.table.time_columns import SECONDS, TimeUnit
from raindrop.tasks.predictions import Predictions

MAX_REMEMBERED = 100_000  # samples that were let go, of which the last time is still known


@dataclass(frozen=True)
class Pushed:
    """What became of the readings of one push."""

    offset: int
    """The offset of the stream after it."""
    new: int = 0
    corrected: int = 0
    """Readings that changed the value of an earlier one."""
    repeated: int = 0
    """Readings that were there already, with the same value."""
    late: int = 0
    """Left out: later than `lateness`, or of a sample that was let go; only with late="drop"."""
    outside: int = 0
    """Left out: before their sample's window."""
    skipped: bool = False
    """The whole push was stored before: its offset is not above the stream's."""


class Stream:
    """The live samples of a fitted model: readings are pushed as they come, and samples that changed are scored.

    model: any fitted estimator. lateness: how long before its sample's latest reading a reading may lie, in
    `time_unit`; None for any time. late: readings that are later than that are an "error", or "drop" them and count
    them. window: a sample is its readings of so long before its latest one, and their times count from the start of
    the window (for imputers and forecasters times stay). cutoff: readings after this time are left out, as after a
    table's cutoff; `set_samples` gives a sample its own. max_samples: beyond this number the samples are let go that
    received nothing for longest. max_age: samples are let go that received nothing for so long, in `time_unit`, by the
    clock of arrival. time_unit: of numbers that are pushed as times; the model's own where not given. before_reference:
    readings with a negative time are an "error", or "keep" them, as in a table.

    Times are numbers on the clock of the sample, as in a table, or date times; these count from the sample's reference,
    or from its first reading where it has none. The score of a sample equals that of a table of the same readings.
    """

    def __init__(
        self,
        model: Estimator,
        *,
        lateness: float | None = None,
        late: Literal["error", "drop"] = "error",
        window: float | None = None,
        cutoff: float | None = None,
        max_samples: int | None = None,
        max_age: float | None = None,
        time_unit: TimeUnit | None = None,
        before_reference: Literal["error", "keep"] = "error",
    ):
        self.model = model
        self._check_arguments(model, lateness, late, window, cutoff, max_samples, max_age, time_unit, before_reference)
        self.lateness, self.late = lateness, late
        self.window, self.cutoff = window, cutoff
        self.max_samples, self.max_age = max_samples, max_age
        self.time_unit: TimeUnit = model.time_unit_ if time_unit is None else time_unit
        self.before_reference = before_reference
        self.offsets: dict[str, int] = {}
        """The offset of the last push of each source that was stored."""
        self._clock = ""  # what times are: numbers or date times; known from the first push on
        self._now = 0.0  # the latest time of arrival
        self._sensors = list(model.scaler_.sensors)  # and those that are ignored, as they come
        self._codes = {name: code for code, name in enumerate(self._sensors)}
        self._live: OrderedDict[str, LiveSample] = OrderedDict()  # the last one received something last
        self._gone: OrderedDict[str, float] = OrderedDict()  # samples that were let go, with their latest time
        self._changed: dict[str, None] = {}

    @staticmethod
    def _check_arguments(
        model: Any,
        lateness: Any,
        late: str,
        window: Any,
        cutoff: Any,
        max_samples: Any,
        max_age: Any,
        time_unit: Any,
        before_reference: str,
    ) -> None:
        if not isinstance(model, Estimator):
            raise ConfigError(f"A stream needs a fitted model such as rd.load(folder), not {type(model).__name__}.")
        model._require_fitted()
        for name, value, least in (("lateness", lateness, 0.0), ("window", window, None), ("max_age", max_age, None)):
            if value is not None and (not _is_number(value) or value < 0 or (least is None and value == 0)):
                raise ConfigError(f"{name}={value!r}: a length of time is a positive number, or None for no limit.")
        if cutoff is not None and not _is_number(cutoff):
            raise ConfigError(f"cutoff={cutoff!r}: a finite time, or None; set_samples gives each sample its own.")
        if cutoff is not None and window is not None:
            raise ConfigError("window and cutoff: times count from the start of the window; leave one of them out.")
        if max_samples is not None and (not isinstance(max_samples, int) or max_samples < 1):
            raise ConfigError(f"max_samples={max_samples!r}: a whole number from 1 on, or None for no limit.")
        check_choice(late, Literal["error", "drop"], "late")
        check_choice(before_reference, Literal["error", "keep"], "before_reference")
        if time_unit is not None:
            check_choice(time_unit, TimeUnit, "time_unit")

    # ---------------------------------------------------------------- coming in

    def push(
        self,
        readings: Any,
        *,
        offset: int | None = None,
        source: str = "",
        now: datetime | float | None = None,
    ) -> Pushed:
        """Take in readings: a frame, or a mapping of columns, with sample, time, sensor and value, in any order.

        A reading of the same sample, time and sensor as an earlier one replaces its value. Either all are stored, or
        none and an error says why. `offset` is the position of the producer (`source`) after these readings, a whole
        number that rises; a push whose offset is not above `offsets[source]` was stored before and is skipped. Without
        one, pushes count 1, 2, 3, ... `now` is the time of arrival, for `max_age`: this moment where not given.
        """
        position = self._next_offset(offset, source)
        if position is None:
            return Pushed(self.offsets[source], skipped=True)
        arrivals = Arrivals.from_frame(readings, self.time_unit)
        self._check_clock(arrivals.clock)
        self._check_sensors(arrivals)
        self._check_reference(arrivals)
        late = self._late(arrivals)
        if self.late == "error":
            self._refuse_late(arrivals, late)
        return self._store(arrivals, ~late, position, source, self._arrival(now))

    def set_samples(
        self, samples: Any, *, offset: int | None = None, source: str = "", now: datetime | float | None = None
    ) -> Pushed:
        """Set what is known of samples: a frame, or a mapping of columns, with `sample` and any of the model's statics.

        `cutoff` and `reference`, if they are there, are those of the sample's times. Columns that are absent stay as
        they were, and columns that have no role are left alone. A sample may be set before its first reading.
        """
        position = self._next_offset(offset, source)
        if position is None:
            return Pushed(self.offsets[source], skipped=True)
        about = Attributes.from_frame(samples, self.model.scaler_, self.time_unit)
        self._check_clock(about.clock)
        references = about.times.get("reference")
        if references is not None and self.before_reference == "error":
            for name, reference in zip(about.ids, references, strict=True):
                if name in self._live and self._live[name].first < reference:
                    raise DataError(
                        f"samples: '{name}' has readings before this reference; readings count from the reference on, "
                        "unless the stream has before_reference='keep'."
                    )
        return self._describe(about, position, source, self._arrival(now))

    def let_go(self, samples: Sequence[str] | str) -> None:
        """Forget samples; an error names one that is not there."""
        for name, _ in self._found([samples] if isinstance(samples, str) else samples):
            self._forget(name)

    # ---------------------------------------------------------------- going out

    def scores(self, samples: Sequence[str] | None = None, *, coverage: float | None = None) -> Predictions:
        """Predictions of the samples that changed since the last call, in the order in which they first changed.

        With `samples`, those of these samples, changed or not. `coverage` is that of `predict_table`.
        """
        if not isinstance(self.model, SampleEstimator):
            raise ConfigError(f"A {type(self.model).__name__} has no scores; ask it with readings_at or fill.")
        names = self.changed if samples is None else samples
        predictions = self.model.predict_table(self.table(names), coverage=coverage)
        for name in predictions.ids:
            self._changed.pop(name, None)
        return predictions

    def readings_at(self, queries: Any, *, coverage: float = 0.9) -> Readings:
        """What an imputer or forecaster says of (sample, time, sensor), as its `readings_at` with a table does."""
        frame = to_polars(queries, "queries")
        require_columns(frame, {"sample": "sample"}, "queries")
        names = ids_as_text(frame["sample"], "sample", "queries").drop_nulls().unique(maintain_order=True).to_list()
        return self._answering().readings_at(self.table(names), frame, coverage=coverage)

    def fill(self, samples: Sequence[str] | None = None, at: Any = "gaps", *, coverage: float = 0.9) -> Readings:
        """What an imputer fills in the gaps of live samples, all or these, as its `fill_readings` with a table does."""
        model = self._answering()
        if not isinstance(model, Imputer):
            raise ConfigError(f"A {type(model).__name__} fills no gaps; ask it with readings_at, or an Imputer.")
        return model.fill_readings(self.table(samples), at, coverage=coverage)

    def _answering(self) -> ReadingsEstimator:
        if not isinstance(self.model, ReadingsEstimator):
            raise ConfigError(f"A {type(self.model).__name__} predicts no readings; it has scores().")
        return self.model

    def table(self, samples: Sequence[str] | None = None) -> EventTable:
        """The live samples, all or these, as a table; what is scored."""
        found = list(self._live.items()) if samples is None else self._found(samples)
        live = [sample for _, sample in found]
        zero = np.array([self._zero(sample) for sample in live], dtype=np.float64)
        parts = [self._readings(sample, at) for sample, at in zip(live, zero, strict=True)]
        count = np.array([len(part[0]) for part in parts], dtype=np.int64)
        empty = (np.empty(0), np.empty(0, dtype=np.int32), np.empty(0))
        time, sensor, value = (np.concatenate(columns) for columns in zip(*(parts or [empty]), strict=True))
        statics = self.model.scaler_.statics
        about = {
            column.name: pl.Series(
                [sample.statics.get(column.name) for sample in live],
                dtype=pl.Float64 if column.categories is None else pl.String,
            )
            for column in statics
        }
        if self._dated:
            zone = "UTC" if self._clock.endswith("with a time zone") else None
            dates = pl.Series(zero, nan_to_null=True).cast(pl.Int64).cast(pl.Datetime("us", zone))
            about[TIME_ZERO] = dates
        return EventTable(
            time=time,
            sensor=sensor,
            value=value,
            start=np.cumsum(count) - count,
            count=count,
            sensors=tuple(self._sensors),
            samples=pl.DataFrame({"sample": pl.Series([name for name, _ in found], dtype=pl.String), **about}),
            roles=Roles(statics=tuple(column.name for column in statics)),
            time_unit=self.time_unit,
        )

    @property
    def changed(self) -> list[str]:
        """The samples that `scores` will score."""
        return list(self._changed)

    @property
    def samples(self) -> list[str]:
        """The live samples; those that received something last come last."""
        return list(self._live)

    @property
    def offset(self) -> int:
        """The offset of the last stored push of a producer without a name: replay what comes after it."""
        return self.offsets.get("", 0)

    def __len__(self) -> int:
        """The number of live samples."""
        return len(self._live)

    def __contains__(self, sample: object) -> bool:
        """Whether a sample is live."""
        return sample in self._live

    # ---------------------------------------------------------------- checks, before anything is stored

    def _next_offset(self, offset: int | None, source: str) -> int | None:
        """The offset of what comes in; None where it was stored before."""
        last = self.offsets.get(source, 0)
        if offset is None:
            return last + 1
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise DataError(f"offset={offset!r}: a whole number from 0 on that rises from push to push.")
        return offset if offset > last or source not in self.offsets else None

    def _check_clock(self, clock: str) -> None:
        """One kind of time for all of a stream."""
        if clock and self._clock and clock != self._clock:
            raise DataError(f"Times are {clock} here, and were {self._clock} before; a stream has times of one kind.")

    def _check_sensors(self, arrivals: Arrivals) -> None:
        """The model's own rule for sensors that were not read in training."""
        if self.model.unknown_sensors == "ignore":
            return
        scaler = self.model.scaler_
        known = {name for name, observed in zip(scaler.sensors, scaler.observed, strict=True) if observed}
        unknown = [name not in known for name in arrivals.sensors]
        if any(unknown):
            count = int(np.array(unknown)[arrivals.sensor].sum())
            raise unknown_sensors_error(
                [name for name, wrong in zip(arrivals.sensors, unknown, strict=True) if wrong], count, len(arrivals)
            )

    def _check_reference(self, arrivals: Arrivals) -> None:
        """Nothing before the reference of its sample's times, as in a table."""
        if self.before_reference == "keep":
            return
        if arrivals.clock.startswith("date times"):
            known = [self._live[name].reference if name in self._live else np.nan for name in arrivals.ids]
            before = arrivals.time < np.array(known, dtype=np.float64)[arrivals.owner]
        else:
            before = arrivals.time < 0
        if before.any():
            raise DataError(
                f"readings: {format_count(int(before.sum()), len(arrivals), 'rows')} are before their sample's "
                f"reference time (first: {arrivals.describe(int(before.argmax()))}); make the stream with "
                "before_reference='keep' to allow negative times."
            )

    def _late(self, arrivals: Arrivals) -> NDArray[np.bool_]:
        """(n,) which readings come too late; the same however readings are cut into pushes."""
        gone = np.array([self._gone.get(name, -np.inf) for name in arrivals.ids], dtype=np.float64)
        late = arrivals.time <= gone[arrivals.owner]
        if self.lateness is None:
            return late
        order = np.argsort(arrivals.owner, kind="stable")
        bounds = np.searchsorted(arrivals.owner[order], np.arange(len(arrivals.ids) + 1))
        for at, name in enumerate(arrivals.ids):
            rows = order[bounds[at] : bounds[at + 1]]
            before = max(self._live[name].latest if name in self._live else -np.inf, gone[at])
            reached = np.maximum.accumulate(np.concatenate([[before], arrivals.time[rows]]))[:-1]
            late[rows] |= arrivals.time[rows] < reached - self.lateness * self._per_unit(arrivals.clock)
        return late

    def _refuse_late(self, arrivals: Arrivals, late: NDArray[np.bool_]) -> None:
        if late.any():
            row = int(late.argmax())
            name = arrivals.ids[arrivals.owner[row]]
            limit = "" if self.lateness is None else f" by more than {self.lateness:g} {self.time_unit}"
            why = "of a sample that was let go" if name in self._gone else f"later than allowed{limit}"
            raise DataError(
                f"readings: {format_count(int(late.sum()), len(arrivals), 'rows')} come too late (first: "
                f"{arrivals.describe(row)}, {why}); nothing of this push is stored. Make the stream with a longer "
                "lateness, or with late='drop' to leave such readings out."
            )

    # ---------------------------------------------------------------- storing

    def _store(self, arrivals: Arrivals, kept: NDArray[np.bool_], position: int, source: str, now: float) -> Pushed:
        """Add checked readings to their samples."""
        self._clock = self._clock or arrivals.clock
        for name in arrivals.sensors:
            if name not in self._codes:
                self._codes[name] = len(self._sensors)
                self._sensors.append(name)
        codes = np.array([self._codes[name] for name in arrivals.sensors], dtype=np.int32)
        owner, time, sensor, value, repeated = once_each(
            arrivals.owner[kept], arrivals.time[kept], codes[arrivals.sensor[kept]], arrivals.value[kept]
        )
        new = corrected = outside = 0
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(owner)], strict=True):
            name, rows = arrivals.ids[owner[start]], slice(start, stop)
            sample = self._touch(name, now)
            counts = sample.add(time[rows], sensor[rows], value[rows])
            if self.window is not None:
                first = self._end(sample) - self.window * self._per_unit()
                outside += int((time[rows] < first).sum())
                sample.let_go_before(first)
            new, corrected, repeated = new + counts[0], corrected + counts[1], repeated + counts[2]
            if counts[0] or counts[1]:
                self._changed[name] = None
        self.offsets[source] = position
        self._let_old_go()
        return Pushed(position, new, corrected, repeated, int((~kept).sum()), outside)

    def _describe(self, about: Attributes, position: int, source: str, now: float) -> Pushed:
        """Set checked attributes of samples."""
        self._clock = self._clock or about.clock
        for at, name in enumerate(about.ids):
            sample = self._touch(name, now)
            sample.statics.update(about.of(at))
            for which, column in about.times.items():
                setattr(sample, which, float(column[at]))
            self._changed[name] = None
        self.offsets[source] = position
        self._let_old_go()
        return Pushed(position)

    def _touch(self, name: str, now: float) -> LiveSample:
        """The live sample of this name, new where there is none, as the one that received something last."""
        sample = self._live.get(name)
        if sample is None:
            sample = self._live[name] = LiveSample()
        self._live.move_to_end(name)
        sample.arrived = now
        return sample

    def _arrival(self, now: datetime | float | None) -> float:
        """Seconds since 1970; the clock of arrival never goes back."""
        if now is None:
            now = clock.time()
        seconds = now.timestamp() if isinstance(now, datetime) else now
        if not _is_number(seconds):
            raise DataError(f"now={now!r}: the time of arrival is a date time, or seconds since 1970.")
        self._now = max(self._now, float(seconds))
        return self._now

    def _let_old_go(self) -> None:
        """Let samples go by number and by age; those that received nothing for longest come first."""
        while self._live:
            name, sample = next(iter(self._live.items()))
            too_many = self.max_samples is not None and len(self._live) > self.max_samples
            too_old = self.max_age is not None and self._now - sample.arrived > self.max_age * SECONDS[self.time_unit]
            if not too_many and not too_old:
                return
            self._forget(name)

    def _forget(self, name: str) -> None:
        sample = self._live.pop(name)
        self._changed.pop(name, None)
        self._gone[name] = max(sample.latest, self._gone.pop(name, -np.inf))
        if len(self._gone) > MAX_REMEMBERED:
            self._gone.popitem(last=False)

    # ---------------------------------------------------------------- times

    @property
    def _dated(self) -> bool:
        return self._clock.startswith("date times")

    def _per_unit(self, clock: str = "") -> float:
        """How much of a stored time is one `time_unit`: date times are stored in microseconds."""
        return SECONDS[self.time_unit] * 1e6 if (clock or self._clock).startswith("date times") else 1.0

    def _end(self, sample: LiveSample) -> float:
        """Where the window of a sample ends: at its latest reading, or at its cutoff if that is earlier."""
        return float(np.fmin(sample.latest, sample.cutoff))

    def _zero(self, sample: LiveSample) -> float:
        """What the times of a sample count from, as stored; NaN for a sample of date times without any."""
        if self.window is not None and isinstance(self.model, SampleEstimator):
            return self._end(sample) - self.window * self._per_unit() if sample.count else np.nan
        if not self._dated:
            return 0.0
        return sample.first if np.isnan(sample.reference) else sample.reference

    def _readings(self, sample: LiveSample, zero: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Times since `zero` in `time_unit`, sensors and values up to the cutoff."""
        count = sample.count
        if not np.isnan(sample.cutoff):
            count = int(np.searchsorted(sample.time[:count], sample.cutoff, side="right"))
        time = sample.time[:count]
        if zero:
            time = time - zero
        if self._dated:
            time = time / self._per_unit()
        if self.cutoff is not None:
            count = int(np.searchsorted(time, self.cutoff, side="right"))
        return time[:count], sample.sensor[:count], sample.value[:count]

    def _found(self, samples: Sequence[str]) -> list[tuple[str, LiveSample]]:
        names = [str(name) for name in samples]
        for name in names:
            if name not in self._live:
                was = "was let go" if name in self._gone else f"is not live: {suggest(name, self._live)}"
                raise DataError(f"Sample '{name}' {was}")
        return [(name, self._live[name]) for name in names]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and bool(np.isfinite(value))
