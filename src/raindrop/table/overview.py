"""Statistics of a table for `raindrop inspect`: density, irregularity, class balance, predictive missingness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, check_seed
from raindrop.table.event_table import EventTable
from raindrop.table.overview_view import Missingness, Overview
from raindrop.table.sample_columns import encode_column
from raindrop.table.splits import stratified_parts

MAX_SAMPLES = 5_000  # samples used for statistics that need more than one pass over the readings
MAX_SENSORS = 500  # with a feature each in `missingness`; others only count in the sum
NUM_FOLDS = 5


def overview(table: EventTable, *, seed: int = 0, max_samples: int = MAX_SAMPLES) -> Overview:
    """Summarise a table. Statistics that need more than one pass use `max_samples` samples drawn with `seed`."""
    check_seed(seed)
    counts = _Counts.of_table(table)
    times_per_sample = counts.times_per_sample
    subset = table[_random_positions(table, max_samples, seed)].in_memory()
    gaps = _gaps(subset)
    grid_size = len(table.sensors) * int(times_per_sample.sum())
    padded_grid_size = len(table.sensors) * len(table) * int(times_per_sample.max(initial=0))
    return Overview(
        samples=len(table),
        samples_without_readings=int((table.count == 0).sum()),
        readings=table.num_readings,
        time_unit=table.time_unit,
        density=table.num_readings / max(1, grid_size),
        padded_density=table.num_readings / max(1, padded_grid_size),
        simultaneous_share=counts.simultaneous / max(1, table.num_readings),
        readings_per_sample=table.count,
        times_per_sample=times_per_sample,
        last_times=counts.last_times,
        intervals=gaps["gap"].to_numpy(),
        sensors=_sensor_statistics(table, counts.per_pair, subset, gaps),
        label=table.roles.label,
        labels=_class_balance(table),
        missingness=missingness(table, seed=seed, max_samples=max_samples),
        dropped=dict(table.dropped),
    )


@dataclass(frozen=True)
class _Readings:
    """The readings of a table, one sample after another."""

    count: NDArray[np.int64]  # per sample
    position: NDArray[np.int64]
    time: NDArray[np.float64]
    sensor: NDArray[np.int32]

    @classmethod
    def from_table(cls, table: EventTable) -> _Readings:
        rows = table.rows()
        return cls(table.count, np.repeat(np.arange(len(table)), table.count), table.time[rows], table.sensor[rows])

    def _starts_new_time(self) -> NDArray[np.bool_]:
        """(n,) whether a reading is the first one of its sample at its time."""
        is_new = np.ones(len(self.time), dtype=bool)
        is_new[1:] = (np.diff(self.position) != 0) | (np.diff(self.time) != 0)
        return is_new

    def times_per_sample(self) -> NDArray[np.int64]:
        """How many distinct times each sample has."""
        return np.bincount(self.position[self._starts_new_time()], minlength=len(self.count))

    def simultaneous(self) -> int:
        """How many readings have one of another sensor in the same sample at the identical time."""
        first = np.flatnonzero(self._starts_new_time())
        readings_per_time = np.diff(first, append=len(self.time))
        return int(readings_per_time[readings_per_time > 1].sum())

    def per_pair(self, num_sensors: int) -> pl.DataFrame:
        """The number of (sample, sensor) `pairs`, by sensor `code` and number of `readings`."""
        pairs, count = np.unique(self.position * num_sensors + self.sensor, return_counts=True)
        found = pl.DataFrame({"code": (pairs % max(1, num_sensors)).astype(np.int32), "readings": count})
        return found.group_by("code", "readings").agg(pl.len().cast(pl.Int64).alias("pairs"))

    def first_and_last_times(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """First and last time of every sample that has a reading."""
        count = self.count[self.count > 0]
        ends = np.cumsum(count)
        return self.time[ends - count], self.time[ends - 1]


@dataclass(frozen=True)
class _Counts:
    """The counts from one pass over the blocks of a table."""

    times_per_sample: NDArray[np.int64]
    last_times: NDArray[np.float64]
    simultaneous: int
    per_pair: pl.DataFrame

    @classmethod
    def of_table(cls, table: EventTable) -> _Counts:
        found = []
        for part in table.blocks():
            readings = _Readings.from_table(part)
            last = readings.first_and_last_times()[1]
            pairs = readings.per_pair(len(table.sensors))
            found.append((readings.times_per_sample(), last, readings.simultaneous(), pairs))
        times, last_times, simultaneous, per_pair = zip(*found, strict=True)
        together = pl.concat(per_pair).group_by("code", "readings").agg(pl.col("pairs").sum())
        return cls(np.concatenate(times), np.concatenate(last_times), sum(simultaneous), together)


def _random_positions(table: EventTable, max_samples: int, seed: int) -> NDArray[np.int64]:
    if len(table) <= max_samples:
        return np.arange(len(table))
    return np.sort(np.random.default_rng(seed).choice(len(table), max_samples, replace=False))


def _gaps(table: EventTable) -> pl.DataFrame:
    """Time to the next reading of the same sensor in the same sample."""
    readings = _Readings.from_table(table)
    order = np.lexsort((readings.time, readings.sensor, readings.position))
    sensor = readings.sensor[order]
    same_series = (np.diff(readings.position[order]) == 0) & (np.diff(sensor) == 0)
    return pl.DataFrame({"code": sensor[1:][same_series], "gap": np.diff(readings.time[order])[same_series]})


def _sensor_statistics(
    table: EventTable, per_pair: pl.DataFrame, subset: EventTable, gaps: pl.DataFrame
) -> pl.DataFrame:
    num_sensors = len(table.sensors)
    values = pl.DataFrame({"code": subset.sensor[subset.rows()], "value": subset.value[subset.rows()]})
    statistics = pl.DataFrame({"code": np.arange(num_sensors, dtype=np.int32), "sensor": list(table.sensors)})
    pairs, ordered = pl.col("pairs"), per_pair.sort("code", "readings")
    counts = ordered.group_by("code").agg(
        (pl.col("readings") * pairs).sum().alias("total"),
        (pairs.sum() / max(1, len(table))).alias("samples"),
        ((_at(pairs, (pairs.sum() - 1) // 2) + _at(pairs, pairs.sum() // 2)) / 2).alias("per_sample"),  # median
    )
    intervals = gaps.group_by("code").agg(pl.col("gap").median().alias("interval"))
    quantiles = values.group_by("code").agg(
        pl.col("value").quantile(0.01).alias("low"),
        pl.col("value").median().alias("median"),
        pl.col("value").quantile(0.99).alias("high"),
    )
    for columns in (counts, intervals, quantiles):
        statistics = statistics.join(columns, on="code", how="left", maintain_order="left")
    return statistics.select(
        "sensor",
        pl.col("total").fill_null(0).alias("readings"),
        pl.col("samples").fill_null(0.0),
        "per_sample",
        "interval",
        "low",
        "median",
        "high",
    )


def _at(pairs: pl.Expr, rank: pl.Expr) -> pl.Expr:
    """The number of readings of the pair with this rank, with `readings` ascending."""
    return pl.col("readings").filter(pairs.cum_sum() > rank).first()


def _class_balance(table: EventTable) -> pl.DataFrame:
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


def missingness(table: EventTable, *, seed: int = 0, max_samples: int = MAX_SAMPLES) -> Missingness:
    """How well missingness alone predicts the label: the cross-validated AUROC of trees that see no value.

    The features are how often each sensor was read, the number of readings and of distinct times, and the first and
    last time. With more than two classes the AUROC is the one-versus-rest mean. A group (subject, site) is never in
    training and test at the same time.
    """
    if table.roles.label is None:
        return Missingness(None, 0, "the table has no label")
    table = table[table.labelled]
    try:
        labels = table.labels
    except DataError as error:
        return Missingness(None, len(table), str(error).splitlines()[0])
    classes, codes = np.unique(labels, return_inverse=True)
    if len(table) > max_samples:
        share = max_samples / len(table)
        subset = stratified_parts(codes.astype(np.int64), (share, 1 - share), seed)[0]
        table, codes = table[subset].in_memory(), codes[subset]
    groups = None if table.roles.group is None else _groups(table, table.roles.group)
    reason = _why_not_cross_validated(codes, len(classes), groups, table.roles.group)
    if reason:
        return Missingness(None, len(table), reason)
    auroc = _cross_validated_auroc(_missingness_features(table), codes, groups, seed)
    return Missingness(auroc, len(table), sensors=min(MAX_SENSORS, len(table.sensors)))


def _groups(table: EventTable, column: str) -> NDArray[np.int64]:
    """A code per group; a sample without a group is its own group."""
    codes = encode_column(table.samples[column])
    return np.where(codes == 0, -1 - np.arange(len(table)), codes)


def _why_not_cross_validated(
    codes: NDArray[np.int64], num_classes: int, groups: NDArray[np.int64] | None, group_column: str | None
) -> str:
    """The reason why no folds can be made; '' if they can."""
    if num_classes < 2:
        return "there is only one class" if num_classes else "no sample has a label"
    if np.bincount(codes, minlength=num_classes).min() < NUM_FOLDS:
        return f"a class has fewer than {NUM_FOLDS} samples"
    if groups is None:
        return ""
    if len(np.unique(groups)) < NUM_FOLDS:
        return f"there are fewer than {NUM_FOLDS} groups ('{group_column}')"
    if min(len(np.unique(groups[codes == code])) for code in range(num_classes)) < 2:
        return f"a class occurs in only one group ('{group_column}')"
    return ""


def _missingness_features(table: EventTable) -> NDArray[np.float64]:
    """(samples, sensors + 4): readings of each sensor (of the most frequent ones), all readings, times, first, last."""
    readings = _Readings.from_table(table)
    often = np.bincount(readings.sensor, minlength=len(table.sensors))
    columns_of = np.full(len(table.sensors), -1, dtype=np.int64)  # of the sensors that are read most often
    chosen = np.sort(np.argsort(-often, kind="stable")[:MAX_SENSORS])
    columns_of[chosen] = np.arange(len(chosen))
    num_sensors, column = len(chosen), columns_of[readings.sensor]
    counted = column >= 0
    cell = readings.position[counted] * num_sensors + column[counted]
    per_sensor = np.bincount(cell, minlength=len(table) * num_sensors)
    first, last = np.full(len(table), np.nan), np.full(len(table), np.nan)
    first[table.count > 0], last[table.count > 0] = readings.first_and_last_times()
    columns = [per_sensor.reshape(len(table), num_sensors), table.count, readings.times_per_sample(), first, last]
    return np.column_stack(columns).astype(np.float64)


def _cross_validated_auroc(
    features: NDArray[np.float64], codes: NDArray[Any], groups: NDArray[np.int64] | None, seed: int
) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    folds = StratifiedKFold if groups is None else StratifiedGroupKFold
    probability = np.zeros((len(codes), int(codes.max()) + 1))
    for train, test in folds(NUM_FOLDS, shuffle=True, random_state=seed % 2**32).split(features, codes, groups):
        present = np.unique(codes[train])
        if len(present) == 1:  # both groups of a class can be in the test fold
            probability[test, present[0]] = 1.0
            continue
        filled = ~np.isnan(features[train]).all(0)  # the trees cannot bin a column without any value
        trees = HistGradientBoostingClassifier(
            max_iter=80, learning_rate=0.08, max_leaf_nodes=15, random_state=seed % 2**32
        )
        trees.fit(features[np.ix_(train, filled)], codes[train])
        probability[np.ix_(test, trees.classes_)] = trees.predict_proba(features[np.ix_(test, filled)])
    scored = range(1, probability.shape[1]) if probability.shape[1] == 2 else range(probability.shape[1])
    return float(np.mean([roc_auc_score(codes == code, probability[:, code]) for code in scored]))
