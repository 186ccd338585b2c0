"""The content of the page about a gap: readings around it, filled values with intervals, true values, and senders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import ConfigError
from raindrop.estimators.hidden_readings import intervals_of
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.report.readings.gaps import Window, missing_times
from raindrop.table.event_table import EventTable
from raindrop.table.queries import spans
from raindrop.table.readings import Readings
from raindrop.table.time_columns import SECONDS, TimeUnit

Float64 = NDArray[np.float64]
Codes = NDArray[np.int64]
COVERAGE = 0.9  # of the intervals
MAX_SENSORS = 8  # that can be selected in one case
MAX_VALUES = 100  # filled values of a sensor in a case
MAX_READINGS = 200  # readings of a sensor in a case
MAX_GAPS = 12  # of a sensor in a case that can be selected
MAX_SENDERS = 10  # of a gap
UNKNOWN = np.datetime64("NaT", "ms")
DRAWN_SENDERS = 3  # whose readings are also shown, and that are named at each value


@dataclass(frozen=True, eq=False)
class Gap:
    """A period without visible readings of a sensor; it may begin before the case and end after it."""

    start: float
    stop: float
    values: slice
    """Its filled values."""
    senders: list[tuple[int, float]]
    """The sensors that informed these values, and their mean weights, largest first."""


@dataclass(frozen=True, eq=False)
class Filled:
    """The filled values of one sensor in a case."""

    sensor: int
    time: Float64  # (q,)
    value: Float64  # (q,)
    low: Float64  # (q,) NaN or infinite if the interval is unknown
    high: Float64  # (q,)
    truth: Float64  # (q,) NaN if it is unknown
    gaps: list[Gap]
    """By time."""
    listed: list[int]
    """The gaps that can be selected: those with most hidden readings first, then the longest."""
    senders: Codes  # (q, DRAWN_SENDERS) the largest weights of each value
    weights: Float64  # (q, DRAWN_SENDERS)


@dataclass(frozen=True, eq=False)
class GapCase:
    """A part of a sample with gaps."""

    kind: str
    """What was hidden; empty if the gaps are in the table itself."""
    reason: str
    sample: str
    start: float
    stop: float
    filled: list[Filled]
    """By sensor; the one that the case was chosen for is first."""
    readings: dict[int, tuple[Float64, Float64]]
    """Times and values of these sensors and of their strongest senders, thinned if there are many."""
    thinned: bool
    zero: np.datetime64 = UNKNOWN
    """The date time, in UTC if it has a time zone, that times count from; NaT if it is unknown."""

    def in_dates(self, time: Any, time_unit: TimeUnit) -> NDArray[np.datetime64]:
        """Times as date times, to the millisecond."""
        return self.zero + np.round(np.asarray(time) * (1e3 * SECONDS[time_unit])).astype("timedelta64[ms]")


@dataclass(eq=False)
class _Asked:
    """The queries of one sensor in a window; the answers are added later."""

    window: int
    sensor: int
    gaps: list[tuple[float, float]]
    time: Float64
    truth: Float64
    rows: slice = field(default_factory=lambda: slice(0, 0))


def gap_cases(
    estimator: ReadingsEstimator,
    table: EventTable,
    windows: Sequence[Window],
    *,
    kind: str = "",
    truth: pl.DataFrame | None = None,
    ahead: tuple[Float64, Float64] | None = None,
    sensors: Sequence[int] | None = None,
    coverage: float = COVERAGE,
    max_values: int = MAX_VALUES,
    max_readings: int = MAX_READINGS,
) -> list[GapCase]:
    """The content of the page about these windows of a table.

    truth: hidden readings (sample, time, sensor, value), if any. ahead: for a forecaster, the cutoff of each sample and
    its horizon. sensors: those to show for every window; by default its own and those with most missing readings.
    coverage: that of the intervals.
    """
    if not windows:
        return []
    reader = _Reader(estimator, table, truth, ahead, max_values, max_readings)
    asked: list[_Asked] = []
    for at, window in enumerate(windows):
        shown = reader.sensors(window) if sensors is None else sensors
        asked += [each for sensor in shown if (each := reader.asked(at, window, sensor)) is not None]
    if not asked:
        return []
    ends = np.cumsum([len(each.time) for each in asked])
    for each, end in zip(asked, ends.tolist(), strict=True):
        each.rows = slice(end - len(each.time), end)
    names = estimator.scaler_.sensors
    queries = pl.DataFrame(
        {
            "sample": [table.ids[windows[each.window].sample] for each in asked for _ in each.time],
            "time": np.concatenate([each.time for each in asked]),
            "sensor": [names[each.sensor] for each in asked for _ in each.time],
        }
    )
    answers = estimator.readings_at(table, queries, coverage=coverage)
    weights = sender_weights(estimator, table, queries)
    cases, zero = [], _zeros(table)
    for at, window in enumerate(windows):
        filled = [_filled(each, answers, weights) for each in asked if each.window == at]
        if filled:
            selectable = [each.gaps[gap] for each in filled for gap in each.listed]
            strongest = {code for gap in selectable for code, _ in gap.senders[:DRAWN_SENDERS]}
            drawn, thinned = reader.drawn(window, [each.sensor for each in filled], strongest)
            cases.append(
                GapCase(
                    kind,
                    window.reason,
                    table.ids[window.sample],
                    window.start,
                    window.stop,
                    filled,
                    drawn,
                    thinned,
                    zero[window.sample],
                )
            )
    return cases


def time_title(dates: str | None, time_unit: str) -> str:
    """The title of a column or an axis of times; `dates` as `kind_of_dates`."""
    return {None: f"time in {time_unit}", "local": "time", "UTC": "time (UTC)"}[dates]


def _zeros(table: EventTable) -> NDArray[np.datetime64]:
    """(samples,) the date time that the times of each sample count from, NaT where it is unknown."""
    if table.time_zero is None:
        return np.full(len(table), UNKNOWN)
    return table.time_zero.dt.replace_time_zone(None).to_numpy().astype("datetime64[ms]")


def sender_weights(
    estimator: ReadingsEstimator, table: EventTable, queries: pl.DataFrame
) -> NDArray[np.float32] | None:
    """(queries, sensors) how much each sensor informed each value; None if the model passes no messages."""
    try:
        return estimator.sender_weights(table, queries)
    except ConfigError:
        return None


def strongest_senders(weights: NDArray[np.float32]) -> list[tuple[int, float]]:
    """The sensors with the largest mean weights over some values, largest first; without those of weight 0."""
    mean = weights.mean(0, dtype=np.float64)
    order = np.argsort(-mean, kind="stable")[:MAX_SENDERS]
    return [(int(code), float(mean[code])) for code in order if mean[code] > 0]


def _filled(asked: _Asked, answers: Readings, weights: NDArray[np.float32] | None) -> Filled:
    value, low, high = (column[asked.rows] for column in (answers.value, answers.low, answers.high))
    own = np.zeros((len(value), 0), dtype=np.float32) if weights is None else weights[asked.rows]
    top = np.argsort(-own, axis=1, kind="stable")[:, :DRAWN_SENDERS].astype(np.int64)
    gaps = []
    for start, stop in asked.gaps:
        first, last = np.searchsorted(asked.time, start, "left"), np.searchsorted(asked.time, stop, "right")
        if first < last:
            values = slice(int(first), int(last))
            gaps.append(Gap(start, stop, values, strongest_senders(own[values])))
    known = np.isfinite(asked.truth)
    order = sorted(range(len(gaps)), key=lambda at: (-known[gaps[at].values].sum(), gaps[at].start - gaps[at].stop))
    return Filled(
        sensor=asked.sensor,
        time=asked.time,
        value=value,
        low=low,
        high=high,
        truth=asked.truth,
        gaps=gaps,
        listed=order[:MAX_GAPS],
        senders=top,
        weights=np.take_along_axis(own, top, axis=1).astype(np.float64),
    )


class _Reader:
    """The readings of a table in windows, with sensors by their positions in training."""

    def __init__(
        self,
        estimator: ReadingsEstimator,
        table: EventTable,
        truth: pl.DataFrame | None,
        ahead: tuple[Float64, Float64] | None,
        max_values: int,
        max_readings: int,
    ):
        self.table, self.ahead, self.max_values, self.max_readings = table, ahead, max_values, max_readings
        self.codes = estimator.scaler_.sensor_codes(table, ignore_unknown=True)
        self.observed = estimator.scaler_.observed
        self.interval = intervals_of(estimator, table)
        self.first, self.last = spans(table)
        self.truth: dict[str, pl.DataFrame] = {}
        if truth is not None:
            code = pl.col("sensor").replace_strict(
                list(estimator.scaler_.sensors), range(len(self.interval)), return_dtype=pl.Int64
            )
            parts = truth.with_columns(code=code).sort("time").partition_by("sample", as_dict=True)
            self.truth = {str(key[0]): part for key, part in parts.items()}

    def readings(self, window: Window, start: float, stop: float) -> tuple[Float64, Codes, Float64]:
        """(n,) times, sensors and values of a sample between two times."""
        rows = slice(self.table.start[window.sample], self.table.start[window.sample] + self.table.count[window.sample])
        time = self.table.time[rows]
        part = slice(np.searchsorted(time, start, "left"), np.searchsorted(time, stop, "right"))
        code = self.codes[self.table.sensor[rows][part]]
        return np.asarray(time[part]), code, np.asarray(self.table.value[rows][part])

    def hidden(self, window: Window) -> tuple[Float64, Codes, Float64]:
        """(n,) times, sensors and values of the hidden readings in a window."""
        frame = self.truth.get(self.table.ids[window.sample])
        if frame is None:
            return np.empty(0), np.empty(0, dtype=np.int64), np.empty(0)
        frame = frame.filter(pl.col("time").is_between(window.start, window.stop))
        return frame["time"].to_numpy(), frame["code"].to_numpy(), frame["value"].to_numpy()

    def sensors(self, window: Window) -> list[int]:
        """The sensors to show for a window: its own, then those with most hidden or missing readings."""
        width = len(self.interval)
        hidden = np.bincount(self.hidden(window)[1], minlength=width)
        code = self.readings(window, window.start, window.stop)[1]
        count = np.bincount(code[code >= 0], minlength=width)
        missing = np.maximum((window.stop - window.start) / self.interval - count, 0) * self.observed
        most = np.lexsort([-missing, -hidden])[: 2 * MAX_SENSORS].tolist()
        possible = [code for code in most if code != window.sensor and (hidden[code] or missing[code] > 1)]
        return [window.sensor, *sorted(possible[: MAX_SENSORS - 1])]

    def asked(self, at: int, window: Window, sensor: int) -> _Asked | None:
        """The queries of a sensor in a window; None if it has no gap there."""
        first, last = float(self.first[window.sample]), float(self.last[window.sample])
        interval = float(self.interval[sensor])
        time, code, _ = self.readings(window, first, last)
        time = np.unique(time[code == sensor])
        hidden, code, value = self.hidden(window)
        hidden, value = hidden[code == sensor], value[code == sensor]
        if self.ahead is None:
            missing = missing_times(time, first, last, interval)
            edges = np.concatenate([[first], time, [last]])
            inside = (hidden >= first) & (hidden <= last)
        else:
            cutoff, end = (float(limit[window.sample]) for limit in self.ahead)
            missing = cutoff + interval * np.arange(1, int((end - cutoff) / interval + 1e-9) + 1, dtype=np.float64)
            edges = np.array([cutoff, end])
            inside = hidden <= end
        hidden, value = hidden[inside], value[inside]
        missing = missing[(missing >= window.start) & (missing <= window.stop)]
        missing = missing[thin(len(missing), self.max_values)]
        kept = thin(len(hidden), self.max_values)
        times = np.concatenate([hidden[kept], missing])
        times, where = np.unique(times, return_index=True)
        if not len(times):
            return None
        truth = np.concatenate([value[kept], np.full(len(missing), np.nan)])[where]
        after = np.searchsorted(edges, times, "left")  # times lie between edges[after - 1] and edges[after]
        ends = np.unique(np.clip(after, 1, len(edges) - 1))
        gaps = [(float(edges[k - 1]), float(edges[k])) for k in ends.tolist()]
        return _Asked(at, sensor, gaps, times, truth)

    def drawn(
        self, window: Window, sensors: Sequence[int], senders: set[int]
    ) -> tuple[dict[int, tuple[Float64, Float64]], bool]:
        """The readings of these sensors in a window, and whether some were left out."""
        time, code, value = self.readings(window, window.start, window.stop)
        result, thinned = {}, False
        for sensor in dict.fromkeys([*sensors, *sorted(senders)]):
            rows = np.flatnonzero(code == sensor)
            kept = rows[thin(len(rows), self.max_readings)]
            thinned |= len(kept) < len(rows)
            result[sensor] = (time[kept], value[kept])
        return result, thinned


def thin(length: int, most: int) -> Codes:
    """At most `most` positions, evenly spread."""
    if length <= most:
        return np.arange(length)
    return np.unique(np.linspace(0, length - 1, most).round().astype(np.int64))
