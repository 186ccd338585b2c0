"""`sensor_graph`: which sensors inform which, at what lag, how much and with what evidence; from readings alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from scipy import stats

from raindrop.errors import ConfigError, DataError, check_seed
from raindrop.graphs.export import write_frame
from raindrop.graphs.graph import SHOWN, SensorGraph
from raindrop.graphs.lagged import Lagged, compare_senders
from raindrop.graphs.past import Floats, Past
from raindrop.graphs.permutation import table_groups
from raindrop.graphs.receiver import BLOCKS, MIN_ROWS, Receiver
from raindrop.graphs.same_time import SameTime, same_time
from raindrop.hardware import limit_threads
from raindrop.table.event_table import EventTable

MIN_EXPLAINED = 0.1  # weights are shares of at least this much of a receiver's error
EVIDENCE = {
    "sender": pl.String,
    "receiver": pl.String,
    "kind": pl.String,
    "lag": pl.Float64,
    "gain": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
}


@dataclass(frozen=True, eq=False, repr=False)
class InformedGraph(SensorGraph):
    """Which sensors inform which: edges with evidence.

    The weight of u -> v is u's share of what other sensors explain of v (of at least a tenth of v's error, so that
    noise stays small for a sensor that no other informs). Edges without evidence have weight 0.
    """

    evidence: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=EVIDENCE))
    """Every test, smallest p first: sender, receiver, kind, lag, gain, low, high, p, q.

    kind "lagged": u's past helps to predict v's next reading beyond v's own past and that of all others; the edge has a
    direction, and `lag` is the lag at which u is most informative, in the table's time unit (0: u's latest reading).
    kind "same time": u and v move together beyond what the past of any sensor predicts; listed in both directions, with
    lag 0. gain: how much lower v's squared error is with u than without, as a share of its error from its own past
    alone, with a 95 % interval (low, high).
    """
    scores: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """(u, v) the weights of all pairs, with or without evidence; to rank pairs."""
    untested: tuple[str, ...] = ()
    """Sensors with too few readings to be a receiver."""

    def _shown_edges(self) -> pl.DataFrame:
        return self.edge_evidence().head(SHOWN)

    def ranking(self, kind: Literal["all", "lagged"] = "all") -> SensorGraph:
        """The graph of all pairs, including those without evidence; only to compare with known edges.

        "lagged" ranks by the gain from the sender's past alone, which has a direction; it can be negative.
        """
        weights = self.scores.astype(np.float32)
        if kind == "lagged":
            position = {name: at for at, name in enumerate(self.sensors)}
            weights = np.full(weights.shape, -1, dtype=np.float32)  # not tested
            lagged = self.evidence.filter(pl.col("kind") == "lagged")
            for sender, receiver, gain in lagged.select("sender", "receiver", "gain").iter_rows():
                weights[position[sender], position[receiver]] = gain
        elif kind != "all":
            raise ConfigError(f"kind='{kind}': must be 'all' or 'lagged'.")
        return SensorGraph(self.sensors, weights, f"{self.name}, all pairs")

    def edge_evidence(self) -> pl.DataFrame:
        """The evidence of the edges of this graph, strongest edge first."""
        weights = self.edges().rename({"weight": "edge_weight"})
        found = self.evidence.filter(pl.col("found")) if "found" in self.evidence.columns else self.evidence
        joined = weights.join(found, on=["sender", "receiver"], how="inner", maintain_order="left_right")
        return joined.rename({"edge_weight": "weight"}).drop("found", strict=False)

    def write_evidence(self, path: str | os.PathLike[str]) -> Path:
        """Write every test as .parquet or .csv."""
        return write_frame(self.evidence, path)


def sensor_graph(
    table: EventTable,
    *,
    q: float = 0.05,
    seed: int = 0,
    name: str = "sensor graph",
    progress: Callable[[int, int], None] | None = None,
) -> InformedGraph:
    """The graph of which sensors inform which, with evidence. Needs no labels and no trained model.

    An edge is kept if its q-value (Benjamini-Hochberg, over all tests of the table) is at most `q`. See `InformedGraph`
    for what an edge means, and docs/graphs.md for how it is computed. progress: called with the number of receivers
    done and the total.
    """
    with limit_threads(None):  # the matrices are small: more threads only wait for each other
        return _sensor_graph(checked_table(table, q, seed), q, seed, name, progress)


def _sensor_graph(
    table: EventTable, q: float, seed: int, name: str, progress: Callable[[int, int], None] | None
) -> InformedGraph:
    past, group = Past.of(table), table_groups(table)
    found: list[Lagged | None] = []
    for v in range(len(table.sensors)):
        receiver = Receiver(past, v, group, seed)
        found.append(compare_senders(receiver) if receiver.testable else None)
        if progress is not None:
            progress(v + 1, len(table.sensors))
    untested = tuple(name for name, each in zip(table.sensors, found, strict=True) if each is None)
    if all(each is None for each in found):
        reason = f"no sensor has {MIN_ROWS} readings that follow another one in the same sample; collect more"
        return InformedGraph(table.sensors, _zeros(table), name, reason, scores=_zeros(table), untested=untested)
    together = same_time(found, np.random.default_rng([seed, len(found)]))
    return _graph(table.sensors, found, together, q, name, untested)


def checked_table(table: EventTable, q: float, seed: int) -> EventTable:
    """The measured readings, with samples sorted by id; raises if no graph can be computed."""
    if not isinstance(table, EventTable):
        raise DataError(f"A sensor graph needs an EventTable, not {type(table).__name__}.")
    if not isinstance(q, (int, float)) or not 0 < q < 1:
        raise ConfigError(f"q={q!r}: the share of false edges to allow must lie between 0 and 1, such as 0.05.")
    check_seed(seed)
    table = table.measured()
    if not table.num_readings:
        raise DataError("The table has no readings, so there is no graph to find.")
    if len(table.sensors) < 2:
        raise DataError("The table has only one sensor; a graph needs at least two.")
    return table[np.argsort(np.array(table.ids), kind="stable")]  # so that the order of samples does not matter


def _graph(
    sensors: tuple[str, ...],
    found: list[Lagged | None],
    together: SameTime,
    q: float,
    name: str,
    untested: tuple[str, ...],
) -> InformedGraph:
    M = len(sensors)
    lagged, error, statistic, lag = (np.full((M, M), np.nan) for _ in range(4))
    past_explains = np.zeros(M)
    for v, each in enumerate(found):
        if each is not None:
            lagged[:, v], error[:, v], statistic[:, v], lag[:, v] = each.gain, each.error, each.statistic, each.lag
            past_explains[v] = each.explained
    by_chance = np.concatenate([each.by_chance for each in found if each is not None])
    p_lagged = _p_values(statistic, by_chance, two_sided=False)
    p_together = _p_values(together.statistic, together.by_chance, two_sided=True)
    left = 1 - past_explains  # share of v's error that the past of all sensors leaves
    same = together.gain * left
    q_lagged, q_together = _q_values(p_lagged, p_together)
    kept = (q_lagged <= q) | (q_together <= q)
    gains = _believed(lagged, p_lagged) + np.nan_to_num(np.maximum(same, 0))
    explained = np.maximum.reduce([past_explains + together.explained * left, gains.sum(0), np.full(M, MIN_EXPLAINED)])
    scores = gains / explained
    frames = [
        _frame(sensors, "lagged", lag, lagged, error, p_lagged, q_lagged, q),
        _frame(sensors, "same time", np.zeros((M, M)), same, together.error * left, p_together, q_together, q),
    ]
    evidence = pl.concat(frames).sort("p", "gain", descending=[False, True], maintain_order=True)
    reason = (
        f"none of {len(evidence):,} tests has a q-value up to {q:g} (the lowest is {_lowest(evidence):.2g}); "
        "with more readings, weaker edges can be found"
    )
    weights = np.where(kept, scores, 0).astype(np.float32)
    return InformedGraph(sensors, weights, name, reason, evidence=evidence, scores=scores, untested=untested)


def _believed(gain: Floats, p: Floats) -> Floats:
    """Gains, shrunk by the estimated share of false tests up to their p-value.

    If the past of sensors informs in general, a p-value of 0.1 is most likely a true edge, otherwise chance.
    """
    tested = np.isfinite(p)
    doubt = np.ones(p.shape)
    if tested.any():
        doubt[tested] = stats.false_discovery_control(p[tested])
    believed: Floats = np.nan_to_num(np.maximum(gain, 0)) * (1 - doubt) ** 2
    return believed


def _p_values(statistic: Floats, by_chance: Floats, *, two_sided: bool) -> Floats:
    """One p-value for each statistic, from Student's t, made wider if the statistics of surrogates vary more."""
    by_chance = by_chance[np.isfinite(by_chance)]
    shift, scale = 0.0, 1.0
    freedom = BLOCKS - 1
    if len(by_chance) >= 10:
        if two_sided:
            scale = max(1.0, float(np.sqrt((by_chance**2).mean() * (freedom - 2) / freedom)))
        else:
            shift = max(0.0, float(by_chance.mean()))
            upper = float(np.quantile(by_chance, 0.9)) - shift
            scale = max(1.0, upper / float(stats.t.ppf(0.9, freedom)))
    p = stats.t.sf((statistic - shift) / scale, freedom) * (2 if two_sided else 1)
    result: Floats = np.minimum(p, 1.0)
    return result


def _q_values(lagged: Floats, together: Floats) -> tuple[Floats, Floats]:
    """Benjamini-Hochberg over all tests; a pair at the same time is one test. NaN where there was no test."""
    upper = np.triu(np.isfinite(together), 1)
    one_way = np.isfinite(lagged)
    p = np.concatenate([lagged[one_way], together[upper]])
    adjusted = stats.false_discovery_control(p) if len(p) else p
    q_lagged, q_together = np.full(lagged.shape, np.nan), np.full(together.shape, np.nan)
    q_lagged[one_way], q_together[upper] = adjusted[: one_way.sum()], adjusted[one_way.sum() :]
    return q_lagged, np.where(upper, q_together, q_together.T)


def _frame(
    sensors: tuple[str, ...], kind: str, lag: Floats, gain: Floats, error: Floats, p: Floats, q: Floats, limit: float
) -> pl.DataFrame:
    u, v = np.nonzero(np.isfinite(p) & ~np.eye(len(sensors), dtype=bool))
    names = pl.Series(sensors, dtype=pl.String)
    width = float(stats.t.ppf(0.975, BLOCKS - 1)) * error[u, v]
    columns = [names.gather(u), names.gather(v), pl.repeat(kind, len(u), dtype=pl.String, eager=True), lag[u, v]]
    columns += [gain[u, v], gain[u, v] - width, gain[u, v] + width, p[u, v], q[u, v]]
    frame = pl.DataFrame(dict(zip(EVIDENCE, columns, strict=True)), schema=EVIDENCE)
    return frame.with_columns(pl.col("lag").fill_nan(None), found=pl.col("q") <= limit)


def _zeros(table: EventTable) -> np.ndarray:
    return np.zeros((len(table.sensors),) * 2, dtype=np.float32)


def _lowest(evidence: pl.DataFrame) -> float:
    lowest = evidence["q"].min()
    return float(lowest) if isinstance(lowest, (int, float)) else 1.0
