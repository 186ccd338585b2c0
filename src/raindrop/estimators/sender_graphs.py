"""Which sensors a fitted imputer or forecaster needs: how much worse it predicts v without u's readings.

Some readings of a table are hidden and predicted: once with all the others, and twice more for each sensor u, without
its readings and with its values shifted to other times. The first comparison measures how much u contributes. The
second is the test: a model may get worse without any sensor that it is used to, but shifted values only hurt if u's
values carry information about v. The estimator is not fitted again. Works with every model that answers queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from raindrop.batch.windows import Windows
from raindrop.errors import ConfigError
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.graphs.graph import SensorGraph, SensorGraphs
from raindrop.graphs.permutation import table_groups
from raindrop.table.event_table import EventTable
from raindrop.table.queries import QueryTable, spans
from raindrop.table.time_columns import SECONDS

Progress = Callable[[int, int], None]
MAX_HIDDEN = 20_000  # maximum number of hidden readings that are predicted
MIN_HIDDEN = 10  # minimum of a receiver, to test its senders
BY_READING = ("owner", "receiver", "error", "error_without", "error_shifted", "change")
"""The arrays of `SenderEffects` with one row per hidden reading."""


@dataclass(frozen=True, eq=False)
class SenderGraph(SensorGraph):
    """Which sensors a fitted model needs to predict which: the weight of u -> v is the growth of v's error."""

    evidence: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Every pair: the columns of `SenderEffects.evidence`, and `recurs`: the share of the models with other seeds that
    also have the edge (null if there are none)."""
    q: float = 0.05
    """The largest q-value of an edge."""
    num_other_seeds: int = 0

    def edge_evidence(self) -> pl.DataFrame:
        """The evidence of the edges of this graph, strongest edge first."""
        edges = self.edges().select("sender", "receiver")
        return edges.join(self.evidence, on=["sender", "receiver"], how="inner", maintain_order="left")

    def describe_stability(self) -> str:
        """One sentence on whether models with other seeds have the same edges."""
        if not self.num_other_seeds:
            return (
                "Not compared with models of other seeds, so an edge may be an accident of this one. "
                "Train again with another seed and give both."
            )
        found = self.evidence.filter(_is_edge(self.q))
        lost = int((found["recurs"] < 1).sum())
        others = "1 model" if self.num_other_seeds == 1 else f"{self.num_other_seeds} models"
        end = "; the rest are not shown as edges." if lost else "."
        return f"Compared with {others} of other seeds: {len(found) - lost} of {len(found)} edges recur in each{end}"


@dataclass(frozen=True, eq=False)
class SenderEffects:
    """Errors at hidden readings, with all sensors and without each of them, in standard deviations of the sensor.

    Axes: q hidden readings, u senders. `graphs`, `evidence` and `faithfulness` summarise them.
    """

    sensors: tuple[str, ...]
    ids: tuple[str, ...]  # of samples, or of the windows of long samples
    owner: NDArray[np.int64]  # (q,) position in `ids`
    receiver: NDArray[np.int64]  # (q,) sensor
    error: NDArray[np.float64]  # (q,) absolute
    error_without: NDArray[np.float64]  # (q, u)
    error_shifted: NDArray[np.float64]  # (q, u) with the values of u shifted to other times
    change: NDArray[np.float64]  # (q, u) absolute change of the predicted value without u
    sample: NDArray[np.int64]  # (ids,) position of the sample in the table
    start: NDArray[np.float64]  # (ids,) start of the sample or window, in the table's time unit
    group: NDArray[np.int64]  # (samples,) of the table; samples of a group are not independent

    def graphs(self) -> SensorGraphs:
        """One graph for each sample, or for each window of a long sample.

        The weight of u -> v is the growth of v's mean absolute error without u's readings, as a share of v's error in
        the whole table; negative if u misled the model, and 0 if no reading of v was hidden.
        """
        total, count = self.sums(self.owner, len(self.ids))
        weights = (total / np.maximum(count, 1)[:, None]).astype(np.float32)
        return SensorGraphs(self.sensors, self.ids, weights, "no reading of these sensors was hidden to be predicted")

    def sums(self, owner: NDArray[np.int64], number: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(owner, u, v) sum of the growth of v's error without u, as a share; (owner, v) number of hidden readings.

        owner: (q,) the unit that each hidden reading is counted for, below `number`.
        """
        M = len(self.sensors)
        place = owner * M + self.receiver
        sums = [np.bincount(place, grows, minlength=number * M) for grows in self._growth(self.error_without).T]
        total = np.stack(sums).astype(np.float64).reshape(M, number, M).transpose(1, 0, 2)
        total[:, np.arange(M), np.arange(M)] = 0
        return total, np.bincount(place, minlength=number * M).reshape(number, M).astype(np.float64)

    def _growth(self, changed: NDArray[np.float64]) -> NDArray[np.float64]:
        """(q, u) how much larger errors (q, u) are than with all sensors, as a share of v's error in the table."""
        growth: NDArray[np.float64] = (changed - self.error[:, None]) / self._mean_error()[self.receiver][:, None]
        return growth

    def joined(self, others: Sequence[SenderEffects]) -> SenderEffects:
        """These hidden readings and those of `others`, of the same samples and windows."""
        every = (self, *others)
        arrays: dict[str, Any] = {name: np.concatenate([getattr(e, name) for e in every]) for name in BY_READING}
        return replace(self, **arrays)

    def of_samples(self, chosen: NDArray[np.bool_]) -> SenderEffects:
        """Only the hidden readings of these samples, given as a mask over the samples of the table."""
        kept = chosen[self.sample[self.owner]]
        return replace(self, **{name: getattr(self, name)[kept] for name in BY_READING})

    def evidence(self) -> pl.DataFrame:
        """Every pair: sender, receiver, worse, low, high, p, q; smallest p first.

        worse: the growth of v's mean absolute error without u, as a share, with a 95 % interval over samples (whole
        groups) or windows; p: one-sided, of the null hypothesis that the error does not grow if u's values are shifted
        to other times; q: Benjamini-Hochberg over all pairs.
        """
        rows, growth, shifted = [], self._growth(self.error_without), self._growth(self.error_shifted)
        cluster = self._clusters()
        for v in range(len(self.sensors)):
            of_v = self.receiver == v
            if of_v.sum() < MIN_HIDDEN:
                continue
            owner = np.unique(cluster[of_v], return_inverse=True)[1]
            if owner.max() < 4:  # too few samples to resample: stretches of readings instead
                owner = np.arange(len(owner)) * MIN_HIDDEN // len(owner)
            count = np.bincount(owner)
            for u in range(len(self.sensors)):
                if u == v:
                    continue
                mean, error = _mean_over(owner, count, growth[of_v, u])
                width = float(stats.t.ppf(0.975, len(count) - 1)) * error
                against, its_error = _mean_over(owner, count, shifted[of_v, u])
                p = float(stats.t.sf(against / its_error, len(count) - 1)) if its_error > 0 else 1.0
                rows.append((self.sensors[u], self.sensors[v], mean, mean - width, mean + width, p))
        schema = {"sender": pl.String, "receiver": pl.String} | dict.fromkeys(("worse", "low", "high", "p"), pl.Float64)
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        q = stats.false_discovery_control(frame["p"].to_numpy()) if len(frame) else np.zeros(0)
        return frame.with_columns(q=pl.Series(q, dtype=pl.Float64)).sort("p", "worse", descending=[False, True])

    def graph(self, q: float = 0.05, *, other_seeds: Sequence[SenderEffects] = ()) -> SenderGraph:
        """One graph of the whole table: the pairs with a q-value of at most `q`, weighted by `worse`.

        other_seeds: effects of models with other seeds; an edge that any of them lacks is left out.
        """
        evidence = self.evidence()
        keys = ["sender", "receiver"]
        recurs = np.zeros(len(evidence))
        for other in other_seeds:
            found = other.evidence().filter(_is_edge(q)).select(*keys, found=pl.lit(1.0))
            recurs += (
                evidence.join(found, on=keys, how="left", maintain_order="left")["found"].fill_null(0.0).to_numpy()
            )
        shares = pl.Series(recurs / max(len(other_seeds), 1)) if other_seeds else pl.lit(None, dtype=pl.Float64)
        evidence = evidence.with_columns(recurs=shares)
        small = evidence.filter(_is_edge(q))
        kept = small.filter(pl.col("recurs").fill_null(1.0) == 1)
        position = {name: at for at, name in enumerate(self.sensors)}
        weights = np.zeros((len(self.sensors),) * 2, dtype=np.float32)
        for sender, receiver, worse in kept.select(*keys, "worse").iter_rows():
            weights[position[sender], position[receiver]] = worse
        tested = f"none of {len(evidence):,} pairs has a q-value up to {q:g}"
        reason = f"{tested}; what one sensor adds to another is within chance"
        if len(small):
            reason = f"none of the {len(small)} edges with a q-value up to {q:g} recurs with every other seed"
        elif len(self.sensors) < 2:
            reason = "there is only one sensor"
        elif not len(evidence):
            reason = f"no sensor has {MIN_HIDDEN} hidden readings; use a table with more of them"
        name = "senders of the fitted model"
        return SenderGraph(self.sensors, weights, name, reason, evidence, q, len(other_seeds))

    def stretches(self, most: int = 48) -> list[tuple[str, NDArray[np.bool_]]]:
        """Stretches of time of long samples, in order: a title, and (ids,) a mask of their windows.

        Neighbouring windows are joined where there are more than `most`. Empty where no sample has several windows.
        """
        several = np.bincount(self.sample)[self.sample] > 1
        long = np.flatnonzero(several)
        if not len(long):
            return []
        size = -(-len(long) // most)
        found = []
        for sample in np.unique(self.sample[long]):
            windows = long[self.sample[long] == sample]
            for at in range(0, len(windows), size):
                mask = np.zeros(len(self.ids), dtype=bool)
                mask[windows[at : at + size]] = True
                found.append((self.ids[windows[at]], mask))
        return found

    def faithfulness(self, *, seed: int = 0) -> dict[str, float]:
        """Whether removing strong edges changes predictions more than removing random ones.

        The strongest sender of each receiver is chosen on one half of the samples or windows. On the other half its
        readings are removed, or those of a random sender. Returns the mean absolute change of the predictions, in
        standard deviations: `strongest`, `random`, and their `ratio`.
        """
        rng = np.random.default_rng(seed)
        half = rng.permutation(len(self.ids))[: max(1, len(self.ids) // 2)]
        first = np.isin(self.owner, half) if len(self.ids) > 1 else np.arange(len(self.owner)) % 2 == 0
        M = len(self.sensors)
        if M < 2:
            raise ConfigError("There is only one sensor, so there is no edge to cut.")
        strongest, random = [], []
        for v in range(M):
            learn, judge = first & (self.receiver == v), ~first & (self.receiver == v)
            if not learn.any() or not judge.any():
                continue
            others = np.array([u for u in range(M) if u != v])
            grows = (self.error_without[learn] - self.error[learn, None]).mean(0)[others]
            strongest.append(self.change[judge, others[int(grows.argmax())]].mean())
            random.append(self.change[judge][:, others].mean())
        if not strongest:
            raise ConfigError("Too few readings were hidden to compare edges; use a larger table.")
        pair = float(np.mean(strongest)), float(np.mean(random))
        return {"strongest": pair[0], "random": pair[1], "ratio": pair[0] / max(pair[1], 1e-12)}

    def _clusters(self) -> NDArray[np.int64]:
        """(q,) the independent unit of each hidden reading: its window or sample, or its group if there are groups."""
        grouped = len(np.unique(self.group)) < len(self.group)
        return self.group[self.sample[self.owner]] if grouped else self.owner

    def _mean_error(self) -> NDArray[np.float64]:
        M = len(self.sensors)
        total = np.bincount(self.receiver, self.error, minlength=M)
        return np.maximum(total / np.maximum(np.bincount(self.receiver, minlength=M), 1), 1e-12)


def _is_edge(q: float) -> pl.Expr:
    """Condition for an edge: its values matter, and v is predicted worse without it."""
    return (pl.col("q") <= q) & (pl.col("worse") > 0)


def _mean_over(owner: NDArray[np.int64], count: NDArray[np.int64], value: NDArray[np.float64]) -> tuple[float, float]:
    """The mean of values (q,), and its standard error over their owners, which have `count` values each."""
    sums = np.bincount(owner, value)
    mean = float(sums.sum() / count.sum())
    error = float(np.sqrt(((sums - mean * count) ** 2).sum()) / count.sum())
    return mean, error * float(np.sqrt(len(count) / (len(count) - 1)))


def sender_effects(
    estimator: ReadingsEstimator,
    visible: EventTable,
    truth: pl.DataFrame,
    seed: int,
    *,
    windows_of: EventTable | None = None,
    max_hidden: int = MAX_HIDDEN,
    progress: Progress | None = None,
) -> SenderEffects:
    """Predict hidden readings from the visible ones, with all sensors and without each of them.

    If there are more than `max_hidden` readings, a random subset of that size is used. windows_of: a table with the
    same samples whose windows are compared, instead of those of `visible`. progress: called with the number of sensors
    done and the total.
    """
    known = [name for name, there in zip(estimator.scaler_.sensors, estimator.scaler_.observed, strict=True) if there]
    truth = truth.filter(pl.col("sensor").is_in(known))
    if len(truth) > max_hidden:
        chosen = np.sort(np.random.default_rng(seed).choice(len(truth), max_hidden, replace=False))
        truth = truth[chosen]
    queries, value, answers, _ = estimator._answers_to(visible, truth)
    codes, middle = estimator._codes(queries), len(estimator.task_.levels) // 2
    scaled = (value - estimator.scaler_.mean[codes]) / estimator.scaler_.scale[codes]
    predicted = answers[:, middle].astype(np.float64)
    sensors = estimator.scaler_.sensors
    without, shifted = (np.tile(predicted[:, None], (1, len(sensors))) for _ in range(2))
    rng = np.random.default_rng([seed, 1])
    sensor = np.array(queries.table.sensors)[np.asarray(queries.table.sensor[queries.table.rows()])]
    for u, name in enumerate(sensors):
        if progress is not None:
            progress(u + 1, len(sensors))
        asked = np.flatnonzero(codes != u)
        if not (sensor == name).any() or not len(asked):
            continue
        for table, changed in (
            (queries.table.where(sensor != name), without),
            (_with_shifted_values(queries.table, sensor == name, rng), shifted),
        ):
            part = QueryTable(table, queries.sample[asked], queries.sensor[asked], queries.time[asked])
            changed[asked, u] = estimator._quantiles(part)[0][:, middle]
    ids, owner, sample, start = _owners(queries, queries.table if windows_of is None else windows_of, estimator)
    return SenderEffects(
        sensors,
        ids,
        owner,
        codes,
        np.abs(predicted - scaled),
        np.abs(without - scaled[:, None]),
        np.abs(shifted - scaled[:, None]),
        np.abs(without - predicted[:, None]),
        sample,
        start,
        table_groups(queries.table),
    )


def _with_shifted_values(table: EventTable, chosen: NDArray[np.bool_], rng: np.random.Generator) -> EventTable:
    """The table with the values of the chosen readings rotated among them, by at least a tenth of their number.

    Consecutive values stay together, so that the series keeps its shape.
    """
    rows = table.rows()[chosen]
    least = len(rows) // 10
    shift = int(rng.integers(max(1, least), max(2, len(rows) - least)))
    value = np.array(table.value)
    value[rows] = np.roll(value[rows], shift)
    return replace(table, value=value)


def _owners(
    queries: QueryTable, whole: EventTable, estimator: ReadingsEstimator
) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Names of samples, or of the windows of long samples; which of them each query belongs to; sample and start."""
    table = replace(whole, filled=None).in_unit(estimator.time_unit_)
    windows = Windows.cut(table, estimator._window_interval)
    several = np.bincount(windows.sample, minlength=len(table)) > 1
    factor = SECONDS[queries.table.time_unit] / SECONDS[table.time_unit]
    start = np.maximum(windows.start, spans(table)[0][windows.sample])
    names = [
        f"{table.ids[sample]}, from {time:g}" if several[sample] else table.ids[sample]
        for sample, time in zip(windows.sample.tolist(), start.tolist(), strict=True)
    ]
    return tuple(names), windows.of(queries.sample, queries.time * factor), windows.sample, start / factor
