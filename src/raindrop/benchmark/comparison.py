"""Compare rows over the splits they share: the best row, corrected t-tests, and verdicts in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from raindrop.benchmark.spec import Experiment, column_name
from raindrop.tasks.metrics import metric_of

BySplit = Mapping[int, float]  # split number -> metric on the test set
ByColumn = Mapping[tuple[str, str, str, str], BySplit]  # (row, scenario, setting, metric) -> by split
MIN_SPLITS = 3  # for a test
ROUNDING = 1e-12  # differences of metrics below it are rounding errors


@dataclass(frozen=True)
class Comparison:
    """How far one row is behind another, over their common splits."""

    behind: float
    """Mean over the common splits; negative if the row is ahead."""
    splits: int
    interval: tuple[float, float] | None = None
    """95 % confidence interval of `behind`; None if no test is possible."""
    p_value: float | None = None
    """None if no test is possible, or if all differences are equal."""

    @property
    def is_tie(self) -> bool:
        """Whether the interval includes zero."""
        return self.interval is not None and self.interval[0] < ROUNDING and self.interval[1] > -ROUNDING


def best_row(rows: Mapping[str, BySplit], metric: str) -> str | None:
    """The row with the best mean among those with the most splits; None if no row has any."""
    most = max((len(by_split) for by_split in rows.values()), default=0)
    means = {name: mean(by_split) for name, by_split in rows.items() if len(by_split) == most > 0}
    if not means:
        return None
    return (min if metric_of(metric).lower_is_better else max)(means, key=lambda name: means[name])


def mean(by_split: BySplit) -> float:
    """Mean over the splits."""
    return float(np.mean(list(by_split.values())))


def paired_comparison(reference: BySplit, row: BySplit, metric: str, size_ratios: BySplit) -> Comparison | None:
    """How far `row` is behind `reference`, by the corrected resampled t-test; None without a common split.

    size_ratios: n_test / n_train of each split. The training sets of different splits overlap, so the k differences
    d are not independent, and a plain paired t-test finds too many differences. Nadeau and Bengio (Inference for the
    Generalization Error, 2003) replace its variance var(d) / k by (1/k + n_test/n_train) var(d). There is no test with
    fewer than three common splits, or if `size_ratios` lacks one of them.
    """
    common = sorted(set(reference) & set(row))
    if not common:
        return None
    k = len(common)
    sign = -1 if metric_of(metric).lower_is_better else 1
    differences = sign * np.array([reference[number] - row[number] for number in common])
    behind = float(differences.mean())
    if k < MIN_SPLITS or not set(common) <= set(size_ratios):
        return Comparison(behind, k)
    if np.ptp(differences) < ROUNDING:
        return Comparison(behind, k, (behind, behind))
    ratio = np.mean([size_ratios[number] for number in common])
    error = float(np.sqrt((1 / k + ratio) * differences.var(ddof=1)))
    reach = float(stats.t.ppf(0.975, k - 1)) * error
    p_value = float(2 * stats.t.sf(abs(behind) / error, k - 1))
    return Comparison(behind, k, (behind - reach, behind + reach), p_value)


# ---------------------------------------------------------------- verdicts


def verdicts(experiment: Experiment, values: ByColumn, size_ratios: Mapping[str, BySplit]) -> list[str]:
    """One sentence per block and metric: trees against the best network and against blends, with ties.

    size_ratios: n_test / n_train by scenario and split.
    """
    rows: dict[str, list[str]] = {"trees": [], "blend": [], "network": []}
    for row in experiment.rows:
        rows[row.model if row.model in ("trees", "blend") else "network"].append(row.name)
    sentences = []
    for scenario, setting in experiment.columns():
        ratios = size_ratios.get(scenario, {})
        for metric in experiment.metrics:
            block = {row.name: values.get((row.name, scenario, setting.name, metric), {}) for row in experiment.rows}
            best_trees = best_row({name: block[name] for name in rows["trees"]}, metric)
            if best_trees is None:
                continue
            compared = {
                name: comparison
                for name in (*rows["network"], *rows["blend"])
                if (comparison := paired_comparison(block[best_trees], block[name], metric, ratios)) is not None
            }
            clauses = [
                *_best_network({name: compared[name] for name in rows["network"] if name in compared}, metric),
                *(_against_trees(name, "which contains trees", compared[name], metric)
                  for name in rows["blend"] if name in compared),
            ]  # fmt: skip
            if clauses:
                sentences.append(
                    f"{column_name(scenario, setting)}, {experiment.metric_title(metric)}: {'; '.join(clauses)}."
                )
    return sentences


def _best_network(compared: Mapping[str, Comparison], metric: str) -> list[str]:
    """The clause on the network that is least behind the trees, among those with the most splits in common."""
    if not compared:
        return []
    most = max(comparison.splits for comparison in compared.values())
    _, name = min((comparison.behind, name) for name, comparison in compared.items() if comparison.splits == most)
    fewer = ", rows with fewer left out" if any(each.splits < most for each in compared.values()) else ""
    return [_against_trees(name, "the best network", compared[name], metric, fewer)]


def _against_trees(name: str, kind: str, comparison: Comparison, metric: str, remark: str = "") -> str:
    """'the trees beat NAME, KIND, by 2.0 (95 % interval 0.5 to 3.5, 5 common splits)', or a tie, or the reverse."""
    sign = -1 if comparison.behind < 0 else 1
    gap = _format(sign * comparison.behind, metric)
    basis = f"{comparison.splits} common split{'s' if comparison.splits > 1 else ''}{remark}"
    if comparison.interval is None:
        untested = f"({basis}, no test)"
        if float(gap) == 0:
            return f"the trees and {name}, {kind}, are level {untested}"
        if sign < 0:
            return f"{name}, {kind}, is {gap} ahead of the trees {untested}"
        return f"the trees are {gap} ahead of {name}, {kind} {untested}"
    low, high = sorted(sign * end for end in comparison.interval)
    tested = f"(95 % interval {_format(low, metric)} to {_format(high, metric)}, {basis})"
    if comparison.is_tie:
        return f"the trees and {name}, {kind}, tie: {name} is {gap} {'ahead' if sign < 0 else 'behind'} {tested}"
    if sign < 0:
        return f"{name}, {kind}, beats the trees by {gap} {tested}"
    return f"the trees beat {name}, {kind}, by {gap} {tested}"


def _format(difference: float, metric: str) -> str:
    return format_metric(scale_of(metric) * difference, metric)


# ---------------------------------------------------------------- numbers in tables


def scale_of(metric: str) -> float:
    """Factor from the metric to its value in tables, which is in percent for most."""
    return 1.0 if not metric_of(metric).is_share else 100.0


def format_metric(value: float, metric: str) -> str:
    """A value in the table's unit as text; a value that rounds to zero has no sign."""
    return f"{value:z.3f}" if not metric_of(metric).is_share else f"{value:z.1f}"
