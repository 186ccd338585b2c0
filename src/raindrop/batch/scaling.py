"""Scaling: z-scores of sensors and statics, learned from the training samples.

Means and scales are float64 and so is the arithmetic; only the scaled result becomes float32. Readings such as
120000000003 would otherwise be rounded to a constant before their mean is subtracted.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, RaindropWarning, format_count, suggest
from raindrop.table.event_table import EventTable

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class StaticColumn:
    """One static attribute: a number with its mean and scale, or a category with its values in training."""

    name: str
    mean: float = 0.0
    scale: float = 1.0
    categories: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """The number of encoded columns."""
        return 1 if self.categories is None else len(self.categories)

    def encode(self, column: pl.Series) -> Float32:
        """(n, width) z-scores or one-hot columns; a missing value or a new category becomes zeros."""
        if self.categories is None:
            return _z_scores([self], [column])
        values = np.array(_to_category(column), dtype=object)
        return np.asarray(values[:, None] == np.array(self.categories, dtype=object), dtype=np.float32)

    def plain(self, column: pl.Series) -> list[Any]:
        """The column as plain numbers or text, None if missing; `encode` gives the same result for it."""
        self.encode(column)  # raises if it cannot be encoded
        if self.categories is not None:
            return _to_category(column)
        return [None if np.isnan(number) else number for number in _to_number(column).tolist()]


@dataclass(frozen=True)
class Moments:
    """The number of readings of each sensor, their mean, and the sum of squared differences from it."""

    count: NDArray[np.int64]  # (sensor,)
    mean: Float64  # (sensor,)
    squares: Float64  # (sensor,)

    @classmethod
    def of_table(cls, table: EventTable) -> Moments:
        """The moments of all readings, in one pass over the blocks of a large table."""
        first, *others = (cls._of_block(part) for part in table.blocks())
        for other in others:
            first = first._and(other)
        return first

    @classmethod
    def _of_block(cls, table: EventTable) -> Moments:
        rows, width = table.rows(), len(table.sensors)
        sensor, value = np.asarray(table.sensor[rows]), np.asarray(table.value[rows], dtype=np.float64)
        readings = np.bincount(sensor, minlength=width)
        count = np.maximum(readings, 1)
        mean = np.bincount(sensor, value, minlength=width) / count
        mean += np.bincount(sensor, value - mean[sensor], minlength=width) / count  # corrects the long sum's rounding
        squares: Float64 = np.bincount(sensor, (value - mean[sensor]) ** 2, minlength=width).astype(np.float64)
        return cls(readings, mean, squares)

    def _and(self, other: Moments) -> Moments:
        """The moments of both (Chan, Golub and LeVeque, 1979)."""
        count = self.count + other.count
        share, apart = other.count / np.maximum(count, 1), other.mean - self.mean
        mean = np.where(self.count > 0, self.mean + apart * share, other.mean)
        return Moments(count, mean, self.squares + other.squares + apart**2 * self.count * share)


@dataclass(frozen=True)
class Scaler:
    """Mean and standard deviation of each sensor over the training readings, and the encoding of the statics."""

    sensors: tuple[str, ...]
    mean: Float64  # (sensor,)
    scale: Float64  # (sensor,)
    observed: NDArray[np.bool_]  # (sensor,) whether it has a training reading
    statics: tuple[StaticColumn, ...] = ()

    @classmethod
    def fit(cls, table: EventTable) -> Scaler:
        """Compute means and scales from the training table."""
        moments = Moments.of_table(table)
        deviation = np.sqrt(moments.squares / np.maximum(moments.count, 1))
        return cls(
            sensors=table.sensors,
            mean=moments.mean,
            scale=np.where(deviation > _rounding_error(moments.mean), deviation, 1.0),
            observed=moments.count > 0,
            statics=tuple(_fit_static(table.samples[name]) for name in table.roles.statics),
        )

    @property
    def observed_sensors(self) -> tuple[str, ...]:
        """The sensors that have a training reading; readings of other sensors raise or are ignored."""
        return tuple(name for name, observed in zip(self.sensors, self.observed, strict=True) if observed)

    @property
    def static_width(self) -> int:
        """The length of an encoded static vector."""
        return sum(column.width for column in self.statics)

    def scale_values(self, value: NDArray[Any], sensor: NDArray[np.int64]) -> Float32:
        """(n,) z-scores of readings; `sensor` are the codes of this scaler."""
        return _to_float32((value - self.mean[sensor]) / self.scale[sensor])

    def encode_statics(self, table: EventTable) -> Float32:
        """(samples, static_width) the encoded statics; a static without a column is treated as missing."""
        absent = [column.name for column in self.statics if column.name not in table.samples.columns]
        if absent:
            warnings.warn(
                f"samples: {format_count(len(absent), len(self.statics), 'static attributes')} of the model have no "
                f"column (first: '{absent[0]}'), so they are unknown for every sample; "
                f"{suggest(absent[0], table.samples.columns[1:])}",
                RaindropWarning,
                stacklevel=2,
            )
        samples = table.samples.with_columns(pl.lit(None).alias(name) for name in absent) if absent else table.samples
        parts = [np.zeros((len(table), 0), dtype=np.float32)]
        for is_category, columns in groupby(self.statics, lambda column: column.categories is not None):
            of_kind = list(columns)
            series = [samples[column.name] for column in of_kind]
            if is_category:
                parts += [column.encode(each) for column, each in zip(of_kind, series, strict=True)]
            else:
                parts.append(_z_scores(of_kind, series))
        return np.concatenate(parts, axis=1)

    def sensor_codes(self, table: EventTable, *, ignore_unknown: bool = False) -> NDArray[np.int64]:
        """The code here of each sensor of `table`, or -1 if it has no training reading, whether it was listed or not.

        Readings of such sensors raise unless `ignore_unknown`: their scale is unknown, and the weights of a sensor that
        was only listed are untrained.
        """
        code = {name: at for at, name in enumerate(self.sensors) if self.observed[at]}
        codes = np.array([code.get(name, -1) for name in table.sensors], dtype=np.int64)
        if not ignore_unknown and (codes < 0).any():
            unknown = np.flatnonzero(codes < 0)
            of_blocks = [np.bincount(part.sensor[part.rows()], minlength=len(codes)) for part in table.blocks()]
            readings = np.sum(of_blocks, axis=0)[unknown]
            if readings.any():
                present = [table.sensors[code] for code in unknown[readings > 0]]
                raise unknown_sensors_error(present, int(readings.sum()), table.num_readings)
        return codes

    def to_dict(self) -> dict[str, Any]:
        """The scaler as JSON values; floats survive the round trip exactly."""
        return {
            "sensors": list(self.sensors),
            "mean": [float(x) for x in self.mean],
            "scale": [float(x) for x in self.scale],
            "observed": [bool(x) for x in self.observed],
            "statics": [
                {"name": c.name, "mean": c.mean, "scale": c.scale, "categories": c.categories and list(c.categories)}
                for c in self.statics
            ],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Scaler:
        """The scaler that `to_dict` described; raindrop 0.1 wrote no "observed" and used every listed sensor."""
        statics = (
            StaticColumn(c["name"], c["mean"], c["scale"], None if c["categories"] is None else tuple(c["categories"]))
            for c in content["statics"]
        )
        mean, scale = (np.array(content[name], dtype=np.float64) for name in ("mean", "scale"))
        observed = np.array(content.get("observed", [True] * len(mean)), dtype=bool)
        if not all(isinstance(name, str) for name in content["sensors"]) or not (
            mean.shape == scale.shape == observed.shape == (len(content["sensors"]),)
        ):
            raise ValueError("sensors have names, and each its mean and scale")
        return cls(tuple(content["sensors"]), mean, scale, observed, tuple(statics))


def unknown_sensors_error(names: Sequence[str], readings: int, total: int) -> DataError:
    """The error about readings of sensors that had no reading in training."""
    subject = "1 sensor was" if len(names) == 1 else f"{len(names)} sensors were"
    return DataError(
        f"{subject} not read in training (first: '{names[0]}'; {format_count(readings, total, 'readings')}).\n"
        "Rename them to the names used in training, or ignore them with unknown_sensors='ignore' "
        "(--unknown-sensors ignore)."
    )


def scale_sensor_columns(table: EventTable, names: Sequence[str]) -> tuple[Float32, NDArray[np.bool_]]:
    """(sensor, column) z-scores over the sensors of these `sensor_columns`, 0 if not known; and whether they are known.

    Raises on a column that is not there, or not numeric.
    """
    columns = table.sensor_columns.drop("sensor")
    of_numbers = (name for name in columns.columns if is_number(columns[name]))
    numbers = columns.select(pl.col(name).cast(pl.Float64).fill_nan(None) for name in of_numbers)
    numeric = [each.name for each in numbers if each.count()]
    for name in names:
        if name not in numeric:
            raise DataError(
                f"sensors: model.sensor_facts asks for '{name}', which is not a numeric column of the table's "
                f"sensors.parquet; numeric columns: {', '.join(numeric) or 'none'}."
            )
        if not numbers[name].is_between(-LARGEST, LARGEST).all():
            raise DataError(f"sensors: column '{name}' is infinite for a sensor; leave it empty or fix the export.")
    series = [numbers[name] for name in names]
    known = np.stack([each.is_not_null().to_numpy() for each in series], axis=1)
    return _z_scores([_fit_static(each) for each in series], series), known


def is_number(column: pl.Series) -> bool:
    """Whether a static column is scaled as a number (true/false included) rather than encoded as a category."""
    return column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)


def _rounding_error(mean: Any) -> Any:
    """The standard deviation that float64 rounding alone can give a constant: a few units in the last place."""
    return 4 * np.finfo(np.float64).eps * np.abs(mean)


def _to_float32(scaled: Float64) -> Float32:
    """Convert to float32; values beyond its range become its largest number, not infinity."""
    return np.minimum(np.maximum(scaled, -LARGEST), LARGEST).astype(np.float32)  # np.clip takes longer to start


def _z_scores(columns: Sequence[StaticColumn], series: Sequence[pl.Series]) -> Float32:
    """(n, columns) numbers in units of their scale; 0 if they are missing."""
    numbers = np.empty((len(series[0]), len(series)))
    for at, each in enumerate(series):
        numbers[:, at] = _to_number(each)
    mean, scale = np.array([(column.mean, column.scale) for column in columns]).T
    scaled = (numbers - mean) / scale
    scaled[np.isnan(scaled)] = 0.0
    return _to_float32(scaled)


def _to_number(column: pl.Series) -> Float64:
    """The column as numbers; NaN if the value is missing."""
    if column.dtype == pl.String and column.null_count() == len(column):  # all missing, so there is no wrong type
        column = column.cast(pl.Float64)
    if not is_number(column):
        raise DataError(
            f"samples: static '{column.name}' was a number in training and is {column.dtype} here. "
            "Turn it into numbers, empty where unknown."
        )
    number: Float64 = column.cast(pl.Float64).to_numpy()
    wrong = np.abs(number) > LARGEST  # as a float32 it would be infinite
    if wrong.any():
        raise DataError(
            f"samples: static '{column.name}' is infinite in {format_count(int(wrong.sum()), len(column), 'rows')} "
            f"(first: row {int(wrong.argmax()) + 1:,}); leave them empty or fix the export."
        )
    return number


def _to_category(column: pl.Series) -> list[str | None]:
    """The column as text; None if the value is missing."""
    if column.dtype.is_nested() or column.dtype == pl.Duration:
        raise DataError(
            f"samples: static '{column.name}' is of type {column.dtype}, which is neither a number nor a category.\n"
            "Turn it into a number or text, or leave it out of statics."
        )
    return [text or None for text in column.cast(pl.String).to_list()]


def _fit_static(column: pl.Series) -> StaticColumn:
    if is_number(column):
        number = _to_number(column)
        number = number[~np.isnan(number)]
        if not len(number):
            return StaticColumn(column.name)
        mean = float(number.mean())
        mean += float((number - mean).mean())
        deviation = float(np.sqrt(np.mean((number - mean) ** 2)))
        return StaticColumn(column.name, mean, deviation if deviation > _rounding_error(mean) else 1.0)
    values = sorted({text for text in _to_category(column) if text is not None})
    if len(values) > 100:
        raise DataError(
            f"samples: static '{column.name}' has {len(values):,} different text values; that is an id or a number "
            "written as text, not a category. Turn it into a number or leave it out of statics."
        )
    return StaticColumn(column.name, categories=tuple(values))
