"""What is in a table: how dense, how irregular, how balanced, and how much its gaps alone give away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError
from raindrop.table.event_table import EventTable
from raindrop.table.overview_view import Missingness, Overview
from raindrop.table.splits import stratified_parts

LIMIT = 5_000  # samples looked at for whatever needs more than one pass over the readings
FOLDS = 5


def overview(table: EventTable, *, seed: int = 0, limit: int = LIMIT) -> Overview:
    """Look at a table; what needs more than one pass looks at `limit` samples drawn under `seed`."""
    read = _Readings.of(table)
    times = read.times()
    some = table[_draw(table, limit, seed)]
    gaps = _gaps(some)
    grid = len(table.sensors) * np.array([times.sum(), len(table) * times.max(initial=0)])
    return Overview(
        samples=len(table),
        samples_without_readings=int((table.count == 0).sum()),
        readings=table.num_readings,
        time_unit=table.time_unit,
        density=table.num_readings / max(1, grid[0]),
        padded_density=table.num_readings / max(1, grid[1]),
        readings_per_sample=table.count,
        times_per_sample=times,
        span=read.ends()[1],
        intervals=gaps["gap"].to_numpy(),
        sensors=_sensors(table, read, some, gaps),
        label=table.roles.label,
        labels=_labels(table),
        missingness=missingness(table, seed=seed, limit=limit),
        dropped=dict(table.dropped),
    )


@dataclass(frozen=True)
class _Readings:
    """The readings of a table, sample after sample."""

    count: NDArray[np.int64]  # per sample
    position: NDArray[np.int64]
    time: NDArray[np.float64]
    sensor: NDArray[np.int32]

    @classmethod
    def of(cls, table: EventTable) -> _Readings:
        rows = table.rows()
        return cls(table.count, np.repeat(np.arange(len(table)), table.count), table.time[rows], table.sensor[rows])

    def times(self) -> NDArray[np.int64]:
        """How many distinct times each sample has."""
        fresh = np.ones(len(self.time), dtype=bool)
        fresh[1:] = (np.diff(self.position) != 0) | (np.diff(self.time) != 0)
        return np.bincount(self.position[fresh], minlength=len(self.count))

    def ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """First and last time of every sample that has a reading."""
        count = self.count[self.count > 0]
        ends = np.cumsum(count)
        return self.time[ends - count], self.time[ends - 1]


def _draw(table: EventTable, limit: int, seed: int) -> NDArray[np.int64]:
    if len(table) <= limit:
        return np.arange(len(table))
    return np.sort(np.random.default_rng(seed).choice(len(table), limit, replace=False))


def _gaps(table: EventTable) -> pl.DataFrame:
    """Time to the next reading of the same sensor in the same sample."""
    read = _Readings.of(table)
    order = np.lexsort((read.time, read.sensor, read.position))
    sensor = read.sensor[order]
    same = (np.diff(read.position[order]) == 0) & (np.diff(sensor) == 0)
    return pl.DataFrame({"code": sensor[1:][same], "gap": np.diff(read.time[order])[same]})


def _sensors(table: EventTable, read: _Readings, some: EventTable, gaps: pl.DataFrame) -> pl.DataFrame:
    count = len(table.sensors)
    pairs, readings = np.unique(read.position * count + read.sensor, return_counts=True)  # (sample, sensor) that occur
    owner = pl.DataFrame({"code": (pairs % max(1, count)).astype(np.int32), "readings": readings})
    values = pl.DataFrame({"code": some.sensor[some.rows()], "value": some.value[some.rows()]})
    names = pl.DataFrame({"code": np.arange(count, dtype=np.int32), "sensor": list(table.sensors)})
    per_sensor = owner.group_by("code").agg(
        pl.col("readings").sum().alias("total"),
        (pl.len() / max(1, len(table))).alias("samples"),
        pl.col("readings").median().alias("per_sample"),
    )
    range_of = values.group_by("code").agg(
        pl.col("value").quantile(0.01).alias("low"),
        pl.col("value").median().alias("median"),
        pl.col("value").quantile(0.99).alias("high"),
    )
    interval = gaps.group_by("code").agg(pl.col("gap").median().alias("interval"))
    together = names
    for part in (per_sensor, interval, range_of):
        together = together.join(part, on="code", how="left", maintain_order="left")
    return together.select(
        "sensor",
        pl.col("total").fill_null(0).alias("readings"),
        pl.col("samples").fill_null(0.0),
        "per_sample",
        "interval",
        "low",
        "median",
        "high",
    )


def _labels(table: EventTable) -> pl.DataFrame:
    if table.roles.label is None:
        return pl.DataFrame(schema={"class": pl.String, "samples": pl.UInt32, "share": pl.Float64})
    column = table.samples[table.roles.label].cast(pl.String)
    return (
        pl.DataFrame({"class": column})
        .group_by("class")
        .agg(pl.len().alias("samples"))
        .with_columns(share=pl.col("samples") / max(1, len(table)))
        .sort("class", nulls_last=True)
    )


def missingness(table: EventTable, *, seed: int = 0, limit: int = LIMIT) -> Missingness:
    """Cross-validated AUROC (mean over classes, one against the rest) of trees that see no value.

    They see how often each sensor was read, at how many times, how many readings there are, and how long the sample is.
    A group (subject, site) is never in training and test at once.
    """
    if table.roles.label is None:
        return Missingness(None, 0, "the table has no label")
    table = table[table.labelled]
    try:
        labels = table.labels
    except DataError as error:
        return Missingness(None, len(table), str(error).splitlines()[0])
    classes, codes = np.unique(labels, return_inverse=True)
    if len(table) > limit:
        share = limit / len(table)
        chosen = stratified_parts(codes.astype(np.int64), (share, 1 - share), seed)[0]
        table, codes = table[chosen], codes[chosen]
    smallest = int(np.bincount(codes, minlength=len(classes)).min(initial=len(codes)))
    if len(classes) < 2 or smallest < FOLDS:
        reason = "there is one class only" if len(classes) < 2 else f"a class has fewer than {FOLDS} samples"
        return Missingness(None, len(table), reason)
    groups = None if table.roles.group is None else table.samples[table.roles.group].cast(pl.String).to_numpy()
    if groups is not None and len(np.unique(groups)) < FOLDS:
        return Missingness(None, len(table), f"there are fewer than {FOLDS} groups ('{table.roles.group}')")
    return Missingness(_cross_validated(_pattern(table), codes, groups, seed), len(table))


def _pattern(table: EventTable) -> NDArray[np.float64]:
    """(samples, sensors + 4): readings of each sensor, readings, times, first and last time."""
    read, count = _Readings.of(table), len(table.sensors)
    cells = np.bincount(read.position * count + read.sensor, minlength=len(table) * count)
    first, last = np.full(len(table), np.nan), np.full(len(table), np.nan)
    first[table.count > 0], last[table.count > 0] = read.ends()
    columns = [cells.reshape(len(table), count), table.count, read.times(), first, last]
    return np.column_stack(columns).astype(np.float64)


def _cross_validated(
    pattern: NDArray[np.float64], codes: NDArray[Any], groups: NDArray[Any] | None, seed: int
) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    folds = StratifiedKFold if groups is None else StratifiedGroupKFold
    chance = np.zeros((len(codes), int(codes.max()) + 1))
    for train, test in folds(FOLDS, shuffle=True, random_state=seed).split(pattern, codes, groups):
        trees = HistGradientBoostingClassifier(max_iter=80, learning_rate=0.08, max_leaf_nodes=15, random_state=seed)
        trees.fit(pattern[train], codes[train])
        chance[np.ix_(test, trees.classes_)] = trees.predict_proba(pattern[test])
    present = range(1, chance.shape[1]) if chance.shape[1] == 2 else range(chance.shape[1])
    return float(np.mean([roc_auc_score(codes == code, chance[:, code]) for code in present]))
