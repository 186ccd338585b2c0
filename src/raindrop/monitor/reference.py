"""Reference statistics: how readings and scores were distributed in training, small enough to be saved with a model.

`Bins` defines the bins of numbers, `Counts` how many fell into each. The reference consists of the bins and the counts
of the training pieces and of the validation scores; new samples are counted in the same bins.
Axes: u a sensor, c a column of the scores, k a bin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from raindrop.monitor.pieces import Float64, Int64, Pieces
from raindrop.table.event_table import EventTable
from raindrop.table.time_columns import TimeUnit
from raindrop.tasks.base import Watched

BINS = 10
QUANTILES = np.linspace(0, 1, 101)
MAX_SAMPLES, MAX_READINGS = 20_000, 10_000_000  # maximum from training
FLOATS = ("readings_total", "predicted", "variance")  # counts that are sums of numbers
FEW_SAMPLES, PIECES = 50, 200  # with fewer samples than the first, long series are cut into about the second


@dataclass
class Counts:
    """Counts of pieces by what they contain; the sum of two is the counts of both."""

    pieces: Int64  # ()
    present: Int64  # (u,) pieces with a reading of the sensor
    level: Int64  # (u, k) their median values
    readings: Int64  # (u, k) how many readings they have
    readings_total: Float64  # (u,) the sum of these
    repeated: Int64  # (u,) pieces in which it was read at least three times
    constant: Int64  # (u,) of these, with one value
    scores: Int64  # (c, k) scores
    errors: Int64  # (c, k) truth minus score of quantities
    predicted: Float64  # (c, k) sum of the probabilities with a known outcome
    variance: Float64  # (c, k) sum of p (1 - p)
    happened: Int64  # (c, k)
    judged: Int64  # (c, k) scores with a known outcome

    @classmethod
    def zero(cls, sensors: int, columns: int) -> Self:
        """No piece."""
        u, c = (sensors, BINS), (columns, BINS)
        shapes: dict[str, Any] = {"pieces": (), "present": sensors, "repeated": sensors, "constant": sensors}
        shapes |= {"level": u, "readings": u, "readings_total": sensors, "predicted": c, "variance": c}
        kinds = {field.name: np.float64 if field.name in FLOATS else np.int64 for field in fields(cls)}
        return cls(**{name: np.zeros(shapes.get(name, c), dtype=kind) for name, kind in kinds.items()})

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)})


@dataclass(frozen=True)
class Bins:
    """The upper edges of all bins but the last; infinite if there are fewer."""

    level: Float64  # (u, BINS - 1)
    readings: Float64  # (u, BINS - 1)
    scores: Float64  # (c, BINS - 1)
    errors: Float64  # (c, BINS - 1)

    def count(self, pieces: Pieces, watched: Sequence[Watched]) -> Counts:
        """The counts of these pieces and scores."""
        sensors = len(self.level)
        counts = Counts.zero(sensors, len(self.scores))
        counts.pieces += pieces.count
        counts.present += np.bincount(pieces.sensor, minlength=sensors)
        counts.repeated += np.bincount(pieces.sensor[pieces.repeated], minlength=sensors)
        counts.constant += np.bincount(pieces.sensor[pieces.constant], minlength=sensors)
        counts.level += histograms(pieces.sensor, pieces.level, self.level)
        counts.readings += histograms(pieces.sensor, pieces.readings, self.readings)
        counts.readings_total += np.bincount(pieces.sensor, pieces.readings, minlength=sensors)
        for at, column in enumerate(watched):
            place = np.searchsorted(self.scores[at], column.score, side="left")
            counts.scores[at] += np.bincount(place, minlength=BINS)
            if column.outcome is None:
                continue
            known = np.isfinite(column.outcome)
            place, score, outcome = place[known], column.score[known], column.outcome[known]
            counts.judged[at] += np.bincount(place, minlength=BINS)
            if column.is_probability:
                counts.predicted[at] += np.bincount(place, score, minlength=BINS)
                counts.variance[at] += np.bincount(place, score * (1 - score), minlength=BINS)
                counts.happened[at] += np.bincount(place[outcome > 0], minlength=BINS)
            else:
                error = np.searchsorted(self.errors[at], outcome - score, side="left")
                counts.errors[at] += np.bincount(error, minlength=BINS)
        return counts


def histograms(sensor: Int64, value: Float64, edges: Float64) -> Int64:
    """(u, k) the number of values of each sensor in each of its bins."""
    order = np.argsort(sensor, kind="stable")
    bounds = np.searchsorted(sensor[order], np.arange(len(edges) + 1))
    counts = np.zeros((len(edges), BINS), dtype=np.int64)
    for at in range(len(edges)):
        own = value[order[bounds[at] : bounds[at + 1]]]
        counts[at] = np.bincount(np.searchsorted(edges[at], own, side="left"), minlength=BINS)
    return counts


@dataclass(frozen=True)
class Reference:
    """Statistics of the training data, and of the scores of validation samples."""

    sensors: tuple[str, ...]
    columns: tuple[str, ...]
    """What each score is about: a class, a label or a quantity."""
    time_unit: TimeUnit
    piece_length: float | None
    """In the time unit; None if a piece is a sample."""
    bins: Bins
    counts: Counts
    level_quantiles: Float64  # (u, 101) of the median values; NaN for a sensor without readings
    low: Float64  # (u,) the smallest reading
    high: Float64  # (u,)

    @classmethod
    def learn(
        cls, table: EventTable, sensors: Sequence[str], watched: Sequence[Watched] = (), *, seed: int = 0
    ) -> Self:
        """Learn from the training table and the monitored scores of validation samples."""
        if len(table) > MAX_SAMPLES or table.num_readings > MAX_READINGS:
            chosen = np.random.default_rng(seed).permutation(len(table))[:MAX_SAMPLES]
            few = int(np.searchsorted(np.cumsum(table.count[chosen]), MAX_READINGS, side="right"))
            table = table[np.sort(chosen[: max(few, 1)])].in_memory()
        length = piece_length(table)
        return cls.of_pieces(Pieces.of(table, sensors, length), sensors, watched, table.time_unit, length)

    @classmethod
    def of_pieces(
        cls,
        pieces: Pieces,
        sensors: Sequence[str],
        watched: Sequence[Watched],
        time_unit: TimeUnit,
        length: float | None = None,
    ) -> Self:
        """Learn from the pieces of the training table."""
        quantiles = np.full((len(sensors), len(QUANTILES)), np.nan)
        low, high = np.full(len(sensors), np.nan), np.full(len(sensors), np.nan)
        level, readings = np.full((2, len(sensors), BINS - 1), np.inf)
        order = np.argsort(pieces.sensor, kind="stable")
        bounds = np.searchsorted(pieces.sensor[order], np.arange(len(sensors) + 1))
        for at in range(len(sensors)):
            own = order[bounds[at] : bounds[at + 1]]
            if len(own):
                quantiles[at] = np.quantile(pieces.level[own], QUANTILES)
                low[at], high[at] = pieces.low[own].min(), pieces.high[own].max()
                level[at], readings[at] = edges(pieces.level[own]), edges(pieces.readings[own])
        scores, errors = np.full((2, len(watched), BINS - 1), np.inf)
        for at, column in enumerate(watched):
            scores[at] = edges(column.score)
            if column.outcome is not None and not column.is_probability:
                errors[at] = edges(column.outcome - column.score)
        bins = Bins(level, readings, scores, errors)
        names = tuple(column.name for column in watched)
        counts = bins.count(pieces, watched)
        return cls(tuple(sensors), names, time_unit, length, bins, counts, quantiles, low, high)

    # ---------------------------------------------------------------- keeping

    def to_dict(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """JSON values and arrays from which `from_dict` restores the reference."""
        about = {"columns": list(self.columns), "piece_length": self.piece_length}
        arrays = {f"bins/{name}": array for name, array in vars(self.bins).items()}
        arrays |= {f"counts/{name}": array for name, array in vars(self.counts).items()}
        return about, arrays | {name: getattr(self, name) for name in ("level_quantiles", "low", "high")}

    @classmethod
    def from_dict(
        cls, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], sensors: Sequence[str], time_unit: TimeUnit
    ) -> Self:
        """The reference that `to_dict` described; raises a ValueError if it is inconsistent."""
        columns = tuple(str(name) for name in about["columns"])
        for name, array in arrays.items():
            whole = name.startswith("counts/") and name.removeprefix("counts/") not in FLOATS
            if array.dtype != (np.int64 if whole else np.float64):
                raise ValueError(f"the reference statistics '{name}' are {array.dtype}")
        length = None if about["piece_length"] is None else float(about["piece_length"])
        expected = Counts.zero(len(sensors), len(columns))
        bins = {name: np.asarray(arrays[f"bins/{name}"], dtype=np.float64) for name in ("level", "readings")}
        bins |= {name: np.asarray(arrays[f"bins/{name}"], dtype=np.float64) for name in ("scores", "errors")}
        counts = {}
        for name, zero in vars(expected).items():
            counts[name] = np.asarray(arrays[f"counts/{name}"]).astype(zero.dtype)
            if counts[name].shape != zero.shape:
                raise ValueError(f"the reference statistics '{name}' have another shape than the model")
        own = {name: np.asarray(arrays[name], dtype=np.float64) for name in ("level_quantiles", "low", "high")}
        shapes = [bins["level"].shape, bins["readings"].shape, own["level_quantiles"].shape, own["low"].shape]
        u = len(sensors)
        if shapes != [(u, BINS - 1), (u, BINS - 1), (u, len(QUANTILES)), (u,)] or own["high"].shape != (u,):
            raise ValueError("the reference statistics have another shape than the model")
        if bins["scores"].shape != (len(columns), BINS - 1) or bins["errors"].shape != (len(columns), BINS - 1):
            raise ValueError("the reference statistics of the scores have another shape than the model")
        return cls(tuple(sensors), columns, time_unit, length, Bins(**bins), Counts(**counts), **own)


def edges(values: Float64) -> Float64:
    """(BINS - 1,) the distinct quantiles that separate the values, infinite if there are fewer."""
    found = np.full(BINS - 1, np.inf)
    values = values[np.isfinite(values)]
    if len(values):
        distinct = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1], method="inverted_cdf"))
        found[: len(distinct)] = distinct
    return found


def piece_length(table: EventTable) -> float | None:
    """The length of a piece if there are few, long samples; None if each sample is a piece."""
    if len(table) >= FEW_SAMPLES or not table.num_readings:
        return None
    first, last = np.full(len(table), np.inf), np.full(len(table), -np.inf)
    owner, time = np.repeat(np.arange(len(table)), table.count), np.asarray(table.time[table.rows()])
    np.minimum.at(first, owner, time)
    np.maximum.at(last, owner, time)
    total = float(np.sum((last - first)[table.count > 0]))
    return total / PIECES if total > 0 else None
