"""What is learned from the training samples before any model: the scale of each sensor and each static."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, count_of
from raindrop.table.build import require_columns
from raindrop.table.event_table import EventTable

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class StaticColumn:
    """One static attribute: a number with its mean and scale, or a category with its known values."""

    name: str
    mean: float = 0.0
    scale: float = 1.0
    categories: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return 1 if self.categories is None else len(self.categories)

    def encode(self, column: pl.Series) -> Floats:
        """(n, width): z-score, or one-hot; unknown is the mean, or no category at all."""
        if self.categories is not None:
            known = np.array(_as_category(column).to_list(), dtype=object)
            return np.asarray(known[:, None] == np.array(self.categories, dtype=object), dtype=np.float32)
        if not is_number(column):
            raise DataError(
                f"samples: static '{self.name}' was a number in training and is {column.dtype} here. "
                "Turn it into numbers, empty where unknown."
            )
        number = (_as_number(column) - self.mean) / self.scale
        return number.fill_null(0.0).to_numpy().astype(np.float32)[:, None]


@dataclass(frozen=True)
class Scaler:
    """Mean and standard deviation of each sensor over the training readings, and the encoding of the statics."""

    sensors: tuple[str, ...]
    mean: Floats  # (sensor,)
    scale: Floats  # (sensor,)
    statics: tuple[StaticColumn, ...] = ()

    @classmethod
    def fit(cls, table: EventTable) -> Scaler:
        """Learn from the readings and samples of the training table, and from nothing else."""
        rows = table.rows()
        sensor, value = np.asarray(table.sensor[rows]), np.asarray(table.value[rows], dtype=np.float64)
        width = len(table.sensors)
        count = np.maximum(np.bincount(sensor, minlength=width), 1)
        mean = np.bincount(sensor, value, minlength=width) / count
        spread = np.sqrt(np.bincount(sensor, (value - mean[sensor]) ** 2, minlength=width) / count)
        scale = np.where(spread > _rounding(mean), spread, 1.0)
        return cls(
            sensors=table.sensors,
            mean=mean.astype(np.float32),
            scale=scale.astype(np.float32),
            statics=tuple(_fit_static(table.samples[name]) for name in table.roles.statics),
        )

    @property
    def static_width(self) -> int:
        """Length of the static vector."""
        return sum(column.width for column in self.statics)

    def encode_statics(self, table: EventTable) -> Floats:
        """(samples, static_width)."""
        require_columns(table.samples, {f"statics[{c.name}]": c.name for c in self.statics}, "samples")
        parts = [column.encode(table.samples[column.name]) for column in self.statics]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(table), 0), dtype=np.float32)

    def sensor_codes(self, table: EventTable, *, ignore_unknown: bool = False) -> NDArray[np.int64]:
        """For each sensor of `table` its code here, -1 where it is unknown and to be ignored."""
        code = {name: at for at, name in enumerate(self.sensors)}
        codes = np.array([code.get(name, -1) for name in table.sensors], dtype=np.int64)
        if not ignore_unknown and (codes < 0).any():
            unknown = np.flatnonzero(codes < 0)
            present = unknown[np.isin(unknown, np.asarray(table.sensor[table.rows()]))]
            if len(present):
                readings = int(np.isin(table.sensor[table.rows()], present).sum())
                raise DataError(
                    f"{len(present)} sensors were not there in training (first: '{table.sensors[present[0]]}'; "
                    f"{count_of(readings, table.num_readings, 'readings')}).\n"
                    "Rename them to the names used in training, or ignore them with unknown_sensors='ignore' "
                    "(--unknown-sensors ignore)."
                )
        return codes

    def to_dict(self) -> dict[str, Any]:
        """JSON values; floats are written so that they come back identical."""
        return {
            "sensors": list(self.sensors),
            "mean": [float(x) for x in self.mean],
            "scale": [float(x) for x in self.scale],
            "statics": [
                {"name": c.name, "mean": c.mean, "scale": c.scale, "categories": c.categories and list(c.categories)}
                for c in self.statics
            ],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Scaler:
        """What `to_dict` gave."""
        statics = (
            StaticColumn(c["name"], c["mean"], c["scale"], None if c["categories"] is None else tuple(c["categories"]))
            for c in content["statics"]
        )
        mean, scale = (np.array(content[name], dtype=np.float32) for name in ("mean", "scale"))
        return cls(tuple(content["sensors"]), mean, scale, tuple(statics))


def is_number(column: pl.Series) -> bool:
    """Numbers are scaled, everything else is a category; true/false is a number."""
    return column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)


def _rounding(mean: Any) -> Any:
    """The spread that rounding alone can give to readings of one constant value."""
    return 1e-6 * np.maximum(np.abs(mean), 1e-6)


def _as_number(column: pl.Series) -> pl.Series:
    """Numbers, null where unknown."""
    number = column.cast(pl.Float64).fill_nan(None)
    wrong = ~number.cast(pl.Float32).is_finite()
    if wrong.any():
        raise DataError(
            f"samples: static '{column.name}' is infinite in {count_of(int(wrong.sum()), len(column), 'rows')} "
            f"(first: row {int(wrong.arg_max() or 0) + 1:,}); leave them empty or fix the export."
        )
    return number


def _as_category(column: pl.Series) -> pl.Series:
    """Text, null where unknown."""
    if column.dtype.is_nested() or column.dtype == pl.Duration:
        raise DataError(
            f"samples: static '{column.name}' is of type {column.dtype}, which is neither a number nor a category.\n"
            "Turn it into a number or text, or leave it out of statics."
        )
    text = column.cast(pl.String)
    return text.set(text == "", None)


def _fit_static(column: pl.Series) -> StaticColumn:
    if is_number(column):
        number = _as_number(column).drop_nulls().to_numpy()
        mean, spread = (float(number.mean()), float(number.std())) if len(number) else (0.0, 0.0)
        return StaticColumn(column.name, mean, spread if spread > _rounding(mean) else 1.0)
    known = _as_category(column).drop_nulls().unique().sort().to_list()
    if len(known) > 100:
        raise DataError(
            f"samples: static '{column.name}' has {len(known):,} different text values; that is an id or a number "
            "written as text, not a category. Turn it into a number or leave it out of statics."
        )
    return StaticColumn(column.name, categories=tuple(known))
