"""Mean ranks of rows over tables and splits, and the critical difference between ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from raindrop.benchmark.aggregate import metrics_by_split, size_ratios
from raindrop.benchmark.comparison import BySplit
from raindrop.benchmark.spec import Experiment, Setting
from raindrop.benchmark.text_store import JobRecord
from raindrop.errors import DataError
from raindrop.tasks.metrics import metric_of


@dataclass(frozen=True)
class Block:
    """One metric of a table's rows by split, with all sensors."""

    title: str
    rows: Mapping[str, BySplit]
    size_ratios: BySplit
    """n_test / n_train of each split; 0 for values that represent a whole table."""
    lower_is_better: bool = False

    def ranks(self, rows: Sequence[str], splits: Sequence[int]) -> list[float]:
        """The rank of each of `rows`, 1 for the best, averaged over `splits`; equal values share their ranks."""
        sign = 1 if self.lower_is_better else -1
        by_split = [stats.rankdata([sign * self.rows[row][number] for row in rows]) for number in splits]
        return [float(rank) for rank in np.mean(by_split, axis=0)]


@dataclass(frozen=True)
class Ranking:
    """Mean ranks, best first."""

    ranks: tuple[tuple[str, float], ...]
    blocks: tuple[tuple[str, int], ...]
    """Tables, and the number of splits of each."""
    critical_difference: float

    def groups(self) -> list[tuple[int, int]]:
        """First and last position of the longest runs of rows whose ranks are within the critical difference."""
        values = [rank for _, rank in self.ranks]
        reach = [max(j for j, r in enumerate(values) if r - start < self.critical_difference) for start in values]
        return [(i, j) for i, j in enumerate(reach) if j > i and (i == 0 or reach[i - 1] < j)]


def rank_rows(blocks: Sequence[Block], *, level: float = 0.05) -> Ranking:
    """Mean ranks of the rows that all blocks have, over the splits that all of these rows have.

    Each table counts the same. Ranks of two rows differ at `level` if they are further apart than Nemenyi's critical
    difference q sqrt(k (k + 1) / (6 N)) for k rows and N independent data sets. The J splits of a table are not
    independent, since their training sets overlap. As in Nadeau and Bengio's corrected t-test, the variance of their
    mean is 1/J + n_test/n_train times that of one split, so N = T^2 / sum over the T tables of (1/J + n_test/n_train).
    """
    if not blocks:
        raise DataError("There is no table to rank rows by.")
    rows = [row for row in blocks[0].rows if all(block.rows.get(row) for block in blocks)]
    if len(rows) < 2:
        raise DataError(f"Ranks need two rows that all tables have; {', '.join(b.title for b in blocks)} share {rows}.")
    total, variance, counts = np.zeros(len(rows)), 0.0, []
    for block in blocks:
        splits = sorted(set.intersection(*(set(block.rows[row]) for row in rows)))
        if not splits:
            raise DataError(f"{block.title}: there is no split that all of these rows have: {', '.join(rows)}.")
        total += block.ranks(rows, splits)
        variance += 1 / len(splits) + float(np.mean([block.size_ratios[number] for number in splits]))
        counts.append((block.title, len(splits)))
    k, number = len(rows), len(blocks) ** 2 / variance
    q = float(stats.studentized_range.ppf(1 - level, k, np.inf)) / math.sqrt(2)
    ranked = sorted(zip(rows, total / len(blocks), strict=True), key=lambda pair: pair[1])
    return Ranking(
        tuple((row, float(rank)) for row, rank in ranked),
        tuple(counts),
        q * math.sqrt(k * (k + 1) / (6 * number)),
    )


def blocks_of(tables: Sequence[tuple[Experiment, Sequence[JobRecord]]]) -> list[Block]:
    """The first metric of each table of Setting 1, once for each label.

    Tables that hide sensors or compare with one of their own rows are made of the same jobs, and the splits of one
    with `train_where` share their training set.
    """
    blocks: dict[tuple[str, tuple[str, ...]], Block] = {}
    for experiment, jobs in tables:
        shared = any(splits.train_where for splits in experiment.splits)
        if len(experiment.columns()) > 1 or experiment.reference or shared or not jobs:
            continue
        metric, scenario = experiment.metrics[0], experiment.splits[0].name
        values = metrics_by_split(experiment, jobs)
        rows = {row.name: values.get((row.name, scenario, Setting().name, metric), {}) for row in experiment.rows}
        block = Block(
            f"{experiment.title} ({experiment.metric_title(metric)})",
            {row: by_split for row, by_split in rows.items() if by_split},
            size_ratios(experiment, jobs)[scenario],
            metric_of(metric).lower_is_better,
        )
        blocks.setdefault((experiment.data.folder, experiment.data.labels), block)
    return list(blocks.values())
