"""From the figures of cells to those of a table: means over splits, the published ones, paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy import stats

from raindrop.benchmark.jobs import Cell, Facts
from raindrop.benchmark.spec import Experiment, column_name
from raindrop.benchmark.store import Store
from raindrop.tasks.metrics import metric_of

ByColumn = dict[tuple[str, str, str, str], dict[int, float]]
UNSCALED = frozenset({"log_loss"})  # every other figure is shown in percent


@dataclass(frozen=True)
class Summary:
    """The figures of one table, and what its caption needs."""

    experiment: Experiment
    facts: Facts
    figures: pl.DataFrame
    """One row per (scenario, setting, row, metric): splits, mean, sd, published, difference, test against the best."""
    verdicts: tuple[str, ...]
    """Whether the trees win, block by block."""


SCHEMA: dict[str, Any] = {
    "scenario": pl.String,
    "setting": pl.String,
    "hidden": pl.String,
    "share": pl.Float64,
    "row": pl.String,
    "model": pl.String,
    "metric": pl.String,
    "splits": pl.Int64,
    "split_numbers": pl.String,
    "mean": pl.Float64,
    "sd": pl.Float64,
    "published": pl.Float64,
    "published_sd": pl.Float64,
    "difference": pl.Float64,
    "best": pl.Boolean,
    "behind": pl.Float64,
    "common_splits": pl.Int64,
    "p": pl.Float64,
}


def summarise_cells(experiment: Experiment, facts: Facts, cells: Sequence[Cell], store: Store) -> Summary:
    """What the store has for an experiment, on the test parts; cells that are not there yet do not count."""
    values = by_split(experiment, cells, store)
    records: list[dict[str, Any]] = []
    for scenario, setting in experiment.columns():
        for metric in experiment.metrics:
            block = {row.name: values.get((row.name, scenario, setting.name, metric), {}) for row in experiment.rows}
            best = best_row(block, metric)
            first = experiment.reference or best
            for row in experiment.rows:
                found = block[row.name]
                scale = _scale(metric)
                mean = scale * float(np.mean(list(found.values()))) if found else None
                published = experiment.published_for(row, scenario, setting, metric)
                compared = published if experiment.published.same_data else None
                behind, common, p = against(block.get(first or "", {}), found, metric)
                records.append(
                    {
                        "scenario": scenario,
                        "setting": column_name("", setting),
                        "hidden": setting.hidden,
                        "share": setting.share,
                        "row": row.name,
                        "model": row.model,
                        "metric": metric,
                        "splits": len(found),
                        "split_numbers": " ".join(map(str, sorted(found))),
                        "mean": mean,
                        "sd": scale * float(np.std(list(found.values()), ddof=1)) if len(found) > 1 else None,
                        "published": published[0] if published else None,
                        "published_sd": published[1] if published else None,
                        "difference": None if mean is None or compared is None else mean - compared[0],
                        "best": row.name == best,
                        "behind": None if behind is None or row.name == first else scale * behind,
                        "common_splits": common,
                        "p": None if row.name == first else p,
                    }
                )
    return Summary(experiment, facts, pl.DataFrame(records, schema=SCHEMA), tuple(verdicts(experiment, values)))


def by_split(experiment: Experiment, cells: Sequence[Cell], store: Store) -> ByColumn:
    """(row, scenario, setting, metric) -> split -> figure on the test part, the mean where there are several seeds."""
    settings = {(s.hidden, s.share, s.instead): s.name for s in experiment.settings}
    found: dict[tuple[str, str, str, str], dict[int, list[float]]] = {}
    for cell in cells:
        known = store.read(cell.key)
        if known is None:
            continue
        for record in known.filter(pl.col("part") == "test").iter_rows(named=True):
            setting = settings.get((record["hidden"], record["share"], record["instead"]))
            for metric in experiment.metrics if setting is not None else ():
                if record.get(metric) is not None:  # a figure that is younger than the cell
                    place = found.setdefault((cell.row.name, cell.splits.name, str(setting), metric), {})
                    place.setdefault(cell.number, []).append(record[metric])
    return {key: {n: float(np.mean(v)) for n, v in of.items()} for key, of in found.items()}


def best_row(block: dict[str, dict[int, float]], metric: str) -> str | None:
    """The best mean among the rows that stand on the most splits: a mean over fewer is not its equal."""
    most = max((len(found) for found in block.values()), default=0)
    means = {name: float(np.mean(list(found.values()))) for name, found in block.items() if len(found) == most > 0}
    if not means:
        return None
    return (min if metric_of(metric).lower_is_better else max)(means, key=lambda name: means[name])


def against(best: dict[int, float], rival: dict[int, float], metric: str) -> tuple[float | None, int, float | None]:
    """How far a rival is behind, over how many common splits, and the p of a paired t-test (from three splits on)."""
    common = sorted(set(best) & set(rival))
    if not common:
        return None, 0, None
    sign = -1 if metric_of(metric).lower_is_better else 1
    gaps = sign * np.array([best[number] - rival[number] for number in common])
    if len(common) < 3 or np.ptp(gaps) < 1e-12:
        return float(gaps.mean()), len(common), None
    return float(gaps.mean()), len(common), float(stats.ttest_1samp(gaps, 0.0).pvalue)


def verdicts(experiment: Experiment, values: ByColumn) -> list[str]:
    """For each block and figure a sentence: whether the trees win over every network, and where a blend stands."""
    rows: dict[str, list[str]] = {}
    for row in experiment.rows:
        rows.setdefault(row.model if row.model in ("trees", "blend") else "network", []).append(row.name)
    said = []
    for scenario, setting in experiment.columns():
        for metric in experiment.metrics:
            block = {row.name: values.get((row.name, scenario, setting.name, metric), {}) for row in experiment.rows}
            trees = block.get(best_row({name: block[name] for name in rows.get("trees", ())}, metric) or "", {})
            networks = {name: block[name] for name in rows.get("network", ())}
            blends = (_blend_beside(trees, name, block[name], metric) for name in rows.get("blend", ()))
            clauses = [clause for clause in (_networks_beside(trees, networks, metric), *blends) if clause]
            if clauses:
                said.append(f"{column_name(scenario, setting)}, {metric_of(metric).title}: {'; '.join(clauses)}.")
    return said


def _networks_beside(trees: dict[int, float], networks: dict[str, dict[int, float]], metric: str) -> str:
    """The best of the networks that share as many splits with the trees as any does."""
    gaps = {name: against(trees, found, metric) for name, found in networks.items()}
    shared = {name: (ahead, common) for name, (ahead, common, _) in gaps.items() if ahead is not None}
    if not shared:
        return ""
    most = max(common for _, common in shared.values())
    ahead, network = min((ahead, name) for name, (ahead, common) in shared.items() if common == most)
    fewer = ", rows on fewer left aside" if any(common < most for _, common in shared.values()) else ""
    if ahead < 0:
        return f"{network} is ahead of the trees by {_gap(ahead, metric)} ({_on(most)}{fewer})"
    return f"the trees win; {network} comes closest, {_gap(ahead, metric)} behind ({_on(most)}{fewer})"


def _blend_beside(trees: dict[int, float], name: str, blend: dict[int, float], metric: str) -> str:
    ahead, common, _ = against(trees, blend, metric)
    if ahead is None:
        return ""
    where = "ahead of" if ahead < 0 else "behind"
    return f"{name}, which contains trees, is {_gap(ahead, metric)} {where} them ({_on(common)})"


def _on(splits: int) -> str:
    return f"{splits} common split{'s' if splits > 1 else ''}"


def _gap(ahead: float, metric: str) -> str:
    return shown(_scale(metric) * abs(ahead), metric)


def _scale(metric: str) -> float:
    return 1.0 if metric in UNSCALED else 100.0


def shown(value: float, metric: str) -> str:
    """A figure as tables show it, scaled already; nothing is not negative."""
    return f"{value:z.3f}" if metric in UNSCALED else f"{value:z.1f}"
