"""Comparing rows over the splits they share: the best row, paired tests, and verdicts in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from raindrop.benchmark.spec import Experiment, column_name
from raindrop.tasks.metrics import LOWER_IS_BETTER, NAMES

BySplit = Mapping[int, float]  # split number -> metric on the test set
ByColumn = Mapping[tuple[str, str, str, str], BySplit]  # (row, scenario, setting, metric) -> by split
NOT_IN_PERCENT = frozenset({"log_loss"})
MIN_SPLITS = 3  # for a test


@dataclass(frozen=True)
class Comparison:
    """How far one row is behind another, over the splits that both have."""

    behind: float
    """Mean over the common splits; negative where the row is ahead."""
    splits: int
    p_value: float | None = None
    """Of a paired t-test; None with fewer than three common splits, or where all differences are equal."""


def best_row(rows: Mapping[str, BySplit], metric: str) -> str | None:
    """The row with the best mean among those with the most splits; None where no row has any."""
    most = max((len(by_split) for by_split in rows.values()), default=0)
    means = {name: mean(by_split) for name, by_split in rows.items() if len(by_split) == most > 0}
    if not means:
        return None
    return (min if metric in LOWER_IS_BETTER else max)(means, key=lambda name: means[name])


def mean(by_split: BySplit) -> float:
    """Mean over the splits."""
    return float(np.mean(list(by_split.values())))


def paired_comparison(reference: BySplit, row: BySplit, metric: str) -> Comparison | None:
    """How far `row` is behind `reference`, with a paired t-test; None without a common split."""
    common = sorted(set(reference) & set(row))
    if not common:
        return None
    sign = -1 if metric in LOWER_IS_BETTER else 1
    differences = sign * np.array([reference[number] - row[number] for number in common])
    behind = float(differences.mean())
    if len(common) < MIN_SPLITS or np.ptp(differences) < 1e-12:
        return Comparison(behind, len(common))
    return Comparison(behind, len(common), float(stats.ttest_1samp(differences, 0.0).pvalue))


# ---------------------------------------------------------------- verdicts


def verdicts(experiment: Experiment, values: ByColumn) -> list[str]:
    """One sentence per block and metric: whether the trees beat every network, and how a blend compares with them."""
    rows: dict[str, list[str]] = {"trees": [], "blend": [], "network": []}
    for row in experiment.rows:
        rows[row.model if row.model in ("trees", "blend") else "network"].append(row.name)
    sentences = []
    for scenario, setting in experiment.columns():
        for metric in experiment.metrics:
            block = {row.name: values.get((row.name, scenario, setting.name, metric), {}) for row in experiment.rows}
            best_trees = best_row({name: block[name] for name in rows["trees"]}, metric)
            if best_trees is None:
                continue
            trees = block[best_trees]
            clauses = [
                _compare_networks(trees, {name: block[name] for name in rows["network"]}, metric),
                *(_compare_blend(trees, name, block[name], metric) for name in rows["blend"]),
            ]
            if any(clauses):
                sentences.append(
                    f"{column_name(scenario, setting)}, {NAMES[metric]}: {'; '.join(filter(None, clauses))}."
                )
    return sentences


def _compare_networks(trees: BySplit, networks: Mapping[str, BySplit], metric: str) -> str:
    """The trees against the best network, among the networks that share the most splits with them."""
    compared = {name: paired_comparison(trees, by_split, metric) for name, by_split in networks.items()}
    shared = {name: comparison for name, comparison in compared.items() if comparison is not None}
    if not shared:
        return ""
    most = max(comparison.splits for comparison in shared.values())
    network = _closest((name, comparison) for name, comparison in shared.items() if comparison.splits == most)
    fewer = ", rows with fewer left out" if any(each.splits < most for each in shared.values()) else ""
    gap, basis = _format_gap(shared[network], metric), f"({_count_splits(most)}{fewer})"
    if shared[network].behind < 0:
        return f"{network} is ahead of the trees by {gap} {basis}"
    return f"the trees win; {network} comes closest, {gap} behind {basis}"


def _closest(comparisons: Iterable[tuple[str, Comparison]]) -> str:
    return min((comparison.behind, name) for name, comparison in comparisons)[1]


def _compare_blend(trees: BySplit, name: str, blend: BySplit, metric: str) -> str:
    comparison = paired_comparison(trees, blend, metric)
    if comparison is None:
        return ""
    gap, side = _format_gap(comparison, metric), "ahead of" if comparison.behind < 0 else "behind"
    return f"{name}, which contains trees, is {gap} {side} them ({_count_splits(comparison.splits)})"


def _count_splits(number: int) -> str:
    return f"{number} common split{'s' if number > 1 else ''}"


def _format_gap(comparison: Comparison, metric: str) -> str:
    return format_metric(scale_of(metric) * abs(comparison.behind), metric)


# ---------------------------------------------------------------- numbers in tables


def scale_of(metric: str) -> float:
    """Factor from the metric to its value in tables, which is in percent for most."""
    return 1.0 if metric in NOT_IN_PERCENT else 100.0


def format_metric(value: float, metric: str) -> str:
    """A value in the table's unit as text; a value that rounds to zero has no sign."""
    return f"{value:z.3f}" if metric in NOT_IN_PERCENT else f"{value:z.1f}"
