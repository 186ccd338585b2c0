"""Stream: takes readings as they arrive, and scores the samples that changed."""

from __future__ import annotations

import os
import time as wall_clock
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from raindrop.batch.scaling import unknown_sensors_error
from raindrop.errors import ConfigError, DataError, format_count
from raindrop.estimators.base import Estimator
from raindrop.estimators.imputer import Imputer
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.estimators.samples import SampleEstimator
from raindrop.serve.arrivals import Arrivals, Attributes, is_dated
from raindrop.serve.live_samples import LiveSamples
from raindrop.serve.settings import BeforeReference, Late, StreamSettings, is_finite_number
from raindrop.serve.state import State
from raindrop.serve.state_folder import StateFolder
from raindrop.table.event_table import EventTable
from raindrop.table.frames import ids_as_text, require_columns, to_polars
from raindrop.table.readings import Readings
from raindrop.table.time_columns import TimeUnit
from raindrop.tasks.predictions import Predictions


@dataclass(frozen=True)
class Pushed:
    """The result of one push."""

    offset: int
    """The offset of its source after the push."""
    new: int = 0
    corrected: int = 0
    """Readings that changed the value of an earlier one."""
    repeated: int = 0
    """Readings that existed already, with the same value."""
    late: int = 0
    """Left out: later than `lateness`, or of a dropped sample; only with late="drop"."""
    outside: int = 0
    """Left out: before their sample's window."""
    skipped: bool = False
    """The whole push was stored before: its offset is not above that of its source."""


class Stream:
    """The live samples of a fitted model: readings are pushed as they arrive, and samples that changed are scored.

    model: any fitted estimator. lateness: how much older than its sample's latest reading a reading may be, in
    `time_unit`; None for no limit. late: what to do with later readings: "error", or "drop" and count them. window:
    keep only the readings of a sample up to this long before its latest one; times then count from the start of the
    window (except for imputers and forecasters). cutoff: readings after this time are left out, as after a table's
    cutoff; `set_samples` sets it for single samples. max_samples: beyond this number, samples without new readings for
    longest are dropped. max_age: samples without new readings for this long, in `time_unit`, by the time of arrival,
    are dropped. time_unit: unit of numbers that are pushed as times; by default the model's. before_reference: what to
    do with readings at a negative time: "error" or "keep", as in a table.

    Times are numbers on the clock of the sample, as in a table, or date times; these count from the sample's reference,
    or from its first reading if it has none. The score of a sample equals that of a table with the same readings.
    `Stream.open` keeps a stream in a folder. A stream must be used by one thread at a time.
    """

    def __init__(
        self,
        model: Estimator,
        *,
        lateness: float | None = None,
        late: Late = "error",
        window: float | None = None,
        cutoff: float | None = None,
        max_samples: int | None = None,
        max_age: float | None = None,
        time_unit: TimeUnit | None = None,
        before_reference: BeforeReference = "error",
    ):
        if not isinstance(model, Estimator):
            raise ConfigError(f"A stream needs a fitted model such as rd.load(folder), not {type(model).__name__}.")
        model._require_fitted()
        self.model = model
        self.settings = StreamSettings(
            lateness=lateness,
            late=late,
            window=window,
            cutoff=cutoff,
            max_samples=max_samples,
            max_age=max_age,
            time_unit=model.time_unit_ if time_unit is None else time_unit,
            before_reference=before_reference,
        )
        self.offsets: dict[str, int] = {}
        """The offset of the last stored push of each source."""
        self._live = LiveSamples(self.settings, list(model.scaler_.sensors))
        self._folder: StateFolder | None = None

    # ---------------------------------------------------------------- coming in

    def push(
        self,
        readings: Any,
        *,
        offset: int | None = None,
        source: str = "",
        now: datetime | float | None = None,
    ) -> Pushed:
        """Store readings: a frame, or a mapping of columns, with sample, time, sensor and value, in any order.

        A reading of the same sample, time and sensor as an earlier one replaces its value. Either all are stored, or
        none and an error says why. `offset` is the position of the producer (`source`) after these readings, an
        increasing whole number; a push whose offset is not above `offsets[source]` was stored before and is skipped.
        Without an offset, pushes are counted 1, 2, 3, ... `now` is the time of arrival, for `max_age`; by default the
        current time.
        """
        position = self._next_offset(offset, source)
        if position is None:
            return Pushed(self.offsets[source], skipped=True)
        arrivals = Arrivals.from_frame(readings, self.settings.time_unit)
        self._check_clock(arrivals.clock)
        self._check_sensors(arrivals)
        self._check_reference(arrivals)
        late = self._live.late(arrivals)
        if late.any() and self.settings.late == "error":
            raise self._late_error(arrivals, late)
        kept, arrival = arrivals.only(~late), self._arrival(now)
        about = {"kind": "readings", "offset": position, "source": source, "now": arrival}
        self._write_ahead(lambda: about | kept.entry())
        counts = self._live.add(kept, arrival)
        self.offsets[source] = position
        return Pushed(position, counts.new, counts.corrected, counts.repeated, int(late.sum()), counts.outside)

    def set_samples(
        self, samples: Any, *, offset: int | None = None, source: str = "", now: datetime | float | None = None
    ) -> Pushed:
        """Set attributes of samples: a frame, or a mapping of columns, with `sample` and any of the model's statics.

        `cutoff` and `reference`, if present, apply to the sample's times. Absent columns stay unchanged, and columns
        without a role are ignored. A sample may be set before its first reading. `offset`, `source` and `now` are those
        of `push`.
        """
        position = self._next_offset(offset, source)
        if position is None:
            return Pushed(self.offsets[source], skipped=True)
        about = Attributes.from_frame(samples, self.model.scaler_, self.settings.time_unit)
        self._check_clock(about.clock)
        self._check_new_reference(about)
        arrival = self._arrival(now)
        entry = {"kind": "samples", "offset": position, "source": source, "now": arrival}
        self._write_ahead(lambda: entry | about.entry())
        self._live.describe(about, arrival)
        self.offsets[source] = position
        return Pushed(position)

    def let_go(self, samples: Sequence[str] | str) -> None:
        """Drop samples; raises if one is not live."""
        names = [samples] if isinstance(samples, str) else list(samples)
        self._live.found(names)
        self._write_ahead(lambda: {"kind": "let go", "ids": names})
        for name in names:
            self._live.forget(name)

    # ---------------------------------------------------------------- going out

    def scores(self, samples: Sequence[str] | None = None, *, coverage: float | None = None) -> Predictions:
        """Predictions of the samples that changed since the last call, in the order in which they first changed.

        With `samples`, predictions of these samples, changed or not. `coverage` is that of `predict_table`.
        """
        if not isinstance(self.model, SampleEstimator):
            raise ConfigError(
                f"The model ({type(self.model).__name__}) predicts readings; ask it with readings_at or fill."
            )
        names = self.changed if samples is None else samples
        predictions = self.model.predict_table(self.table(names), coverage=coverage)
        for name in names:
            self._live.changed.pop(name, None)
        return predictions

    def readings_at(self, queries: Any, *, coverage: float = 0.9) -> Readings:
        """Predictions of an imputer or forecaster for (sample, time, sensor), as with `readings_at` on a table."""
        model = self._answering()
        frame = to_polars(queries, "queries")
        require_columns(frame, {"sample": "sample"}, "queries")
        names = ids_as_text(frame["sample"], "sample", "queries").drop_nulls().unique(maintain_order=True)
        return model.readings_at(self.table(names.to_list()), frame, coverage=coverage)

    def fill(self, samples: Sequence[str] | None = None, at: Any = "gaps", *, coverage: float = 0.9) -> Readings:
        """The gaps of live samples, all or these, filled by an imputer, as with `fill_readings` on a table."""
        model = self._answering()
        if not isinstance(model, Imputer):
            raise ConfigError(
                f"The model ({type(model).__name__}) fills no gaps; ask it with readings_at, or an Imputer."
            )
        return model.fill_readings(self.table(samples), at, coverage=coverage)

    def _answering(self) -> ReadingsEstimator:
        if not isinstance(self.model, ReadingsEstimator):
            raise ConfigError(f"The model ({type(self.model).__name__}) predicts no readings; it has scores().")
        return self.model

    def table(self, samples: Sequence[str] | None = None) -> EventTable:
        """The live samples, all or these, as the table that is scored."""
        return self._live.table(samples, self.model.scaler_.statics, shift=isinstance(self.model, SampleEstimator))

    @property
    def changed(self) -> list[str]:
        """The samples that `scores` will score."""
        return list(self._live.changed)

    @property
    def samples(self) -> list[str]:
        """The live samples, in order of their last arrival."""
        return list(self._live.live)

    @property
    def offset(self) -> int:
        """The offset of the last stored push of the unnamed producer: replay what comes after it."""
        return self.offsets.get("", 0)

    def __len__(self) -> int:
        """The number of live samples."""
        return len(self._live.live)

    def __contains__(self, sample: object) -> bool:
        """Whether a sample is live."""
        return sample in self._live.live

    # ---------------------------------------------------------------- keeping

    @classmethod
    def open(cls, model: Estimator, folder: str | os.PathLike[str], *, sync: bool = True, **settings: Any) -> Self:
        """The stream in a folder, which is created if necessary; `settings` are those of `Stream`.

        Pushed readings are on disk before `push` returns, so that a kill at any moment loses nothing: open the folder
        again and replay what comes after `offset`. For an existing stream, given settings must match its own. Only one
        process can have it open. Without `sync`, `push` does not wait for the disk: a kill of the process loses
        nothing, a power cut may.
        """
        place = StateFolder.lock(Path(folder), sync=sync)
        try:
            stream = cls(model, **settings)
            if place.exists:
                stream = cls._from_state(model, place.read(), settings)
                stream._replay(place)
            stream._folder = place
            place.write(stream._state())
        except BaseException:
            place.close()
            raise
        return stream

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the state of the stream to a folder, atomically, replacing an existing state."""
        place = Path(folder)
        if self._folder is not None and place.resolve() == self._folder.path.resolve():
            self._folder.write(self._state())
            return place
        place.mkdir(parents=True, exist_ok=True)
        self._state().write(place)
        return place

    @classmethod
    def restore(cls, model: Estimator, folder: str | os.PathLike[str]) -> Self:
        """The stream whose state `save` or `open` wrote; later pushes are not stored there."""
        place = StateFolder(Path(folder))
        stream = cls._from_state(model, place.read(), {})
        stream._replay(place)
        return stream

    def close(self) -> None:
        """Save the state of a stream that has a folder, and release the folder."""
        if self._folder is not None:
            self._folder.write(self._state())
            self._folder.close()
            self._folder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _state(self) -> State:
        live = self._live
        return State(
            model=_identity(self.model),
            settings=asdict(self.settings),
            generation=0 if self._folder is None else self._folder.generation,
            offsets=self.offsets,
            clock=live.clock,
            now=live.now,
            sensors=live.sensors,
            live=live.live,
            gone=live.gone,
            changed=self.changed,
        )

    @classmethod
    def _from_state(cls, model: Estimator, state: State, given: Mapping[str, Any]) -> Self:
        for name, value in given.items():
            if name in state.settings and value is not None and state.settings[name] != value:
                raise ConfigError(
                    f"{name}={value!r}: the stream was made with {name}={state.settings[name]!r}, which cannot change; "
                    "leave the setting out, or begin a new stream."
                )
        stream = cls(model, **state.settings)
        if state.model != _identity(model):
            raise ConfigError(
                "The state of this stream belongs to another model; load that model, or begin a new stream."
            )
        stream.offsets = dict(state.offsets)
        stream._live = LiveSamples(
            stream.settings,
            state.sensors,
            state.clock,
            state.now,
            OrderedDict(state.live),
            OrderedDict(state.gone),
            dict.fromkeys(state.changed),
        )
        return stream

    def _replay(self, place: StateFolder) -> None:
        """Apply what arrived after the state was written."""
        for entry in place.entries():
            if entry["kind"] == "let go":
                for name in entry["ids"]:
                    self._live.forget(name)
                continue
            if entry["kind"] == "readings":
                self._live.add(Arrivals.from_entry(entry), entry["now"])
            else:
                self._live.describe(Attributes.from_entry(entry), entry["now"])
            self.offsets[entry["source"]] = entry["offset"]

    def _write_ahead(self, entry: Callable[[], dict[str, Any]]) -> None:
        """Write an entry, created by a function, to disk before anything changes; only if there is a folder."""
        if self._folder is not None:
            if self._folder.is_full:
                self._folder.write(self._state())
            self._folder.append(entry())

    # ---------------------------------------------------------------- checks, before anything is stored

    def _next_offset(self, offset: int | None, source: str) -> int | None:
        """The offset of a push; None if it was stored before."""
        if not isinstance(source, str):
            raise DataError(f"source={source!r}: the name of a producer must be text.")
        last = self.offsets.get(source, 0)
        if offset is None:
            return last + 1
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise DataError(f"offset={offset!r}: must be a whole number of at least 0 that rises from push to push.")
        return offset if offset > last or source not in self.offsets else None

    def _arrival(self, now: datetime | float | None) -> float:
        """Seconds since 1970; the time of arrival never decreases."""
        seconds = wall_clock.time() if now is None else now.timestamp() if isinstance(now, datetime) else now
        if not is_finite_number(seconds):
            raise DataError(f"now={now!r}: the time of arrival must be a date time, or seconds since 1970.")
        return max(self._live.now, float(seconds))

    def _check_clock(self, clock: str) -> None:
        """Raise unless all times of a stream are of the same kind."""
        known = self._live.clock
        if clock and known and clock != known:
            raise DataError(f"Times are {clock} here, and were {known} before; a stream has times of one kind.")

    def _check_sensors(self, arrivals: Arrivals) -> None:
        """Apply the model's rule for sensors not seen in training."""
        if self.model.unknown_sensors == "ignore":
            return
        known = set(self.model.scaler_.observed_sensors)
        unknown = np.array([name not in known for name in arrivals.sensors], dtype=bool)
        if unknown.any():
            names = [name for name in arrivals.sensors if name not in known]
            raise unknown_sensors_error(names, int(unknown[arrivals.sensor].sum()), len(arrivals))

    def _check_reference(self, arrivals: Arrivals) -> None:
        """Raise on readings before the reference of their sample's times, as in a table."""
        if self.settings.before_reference == "keep":
            return
        limit = np.zeros(len(arrivals.ids))
        if is_dated(arrivals.clock):
            live = self._live.live
            limit = np.array([live[name].reference if name in live else np.nan for name in arrivals.ids])
        before = arrivals.time < limit[arrivals.owner]
        if before.any():
            raise DataError(
                f"readings: {format_count(int(before.sum()), len(arrivals), 'rows')} are before their sample's "
                f"reference time (first: {arrivals.describe(int(before.argmax()))}); make the stream with "
                "before_reference='keep' to allow negative times."
            )

    def _check_new_reference(self, about: Attributes) -> None:
        if self.settings.before_reference == "keep" or "reference" not in about.times:
            return
        for name, reference in zip(about.ids, about.times["reference"], strict=True):
            if name in self and self._live.live[name].first < reference:
                raise DataError(
                    f"samples: '{name}' has readings before this reference; make the stream with "
                    "before_reference='keep' to allow negative times."
                )

    def _late_error(self, arrivals: Arrivals, late: NDArray[np.bool_]) -> DataError:
        row, lateness = int(late.argmax()), self.settings.lateness
        name = arrivals.ids[arrivals.owner[row]]
        limit = "" if lateness is None else f", the lateness of this stream is {lateness:g} {self.settings.time_unit}"
        why = " of a sample that was let go" if name in self._live.gone else limit
        return DataError(
            f"readings: {format_count(int(late.sum()), len(arrivals), 'rows')} come too late (first: "
            f"{arrivals.describe(row)}{why}); nothing of this push is stored. Make the stream with a longer lateness, "
            "or with late='drop' to leave such readings out."
        )


def _identity(model: Estimator) -> str:
    """Identifies a stream's model: what was trained on what, and what it predicts."""
    return f"{type(model).__name__} {model.identity_}"
