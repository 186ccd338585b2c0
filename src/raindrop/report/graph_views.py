"""The sensor graphs of a report, each with the evidence for and against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import ConfigError, format_count
from raindrop.estimators.samples import SampleEstimator
from raindrop.explain.faithfulness import faithfulness
from raindrop.explain.information import information_graphs
from raindrop.explain.probe import probe_graph
from raindrop.graphs.distances import distances
from raindrop.graphs.empty import no_shared_times_reason
from raindrop.graphs.evidence import Stability, bootstrap, difference_test, stability
from raindrop.graphs.graph import SensorGraph, SensorGraphs
from raindrop.graphs.permutation import table_groups
from raindrop.table.event_table import EventTable

INFORMATION = (
    "How much worse the receiver's readings are predicted without the sender's messages: the increase of the squared "
    "error, in units of the receiver's variance. About 0 where the messages do not help, negative where they mislead."
)
WEIGHTS = (
    "The edge weights of the paper's Eq. 3, which scale the messages. A large weight means that the model uses the "
    "edge strongly; it does not mean that the messages along it are informative."
)
NO_OTHER_SEED = (
    "Not compared with other seeds: a model that is trained again may have other edges. Do not read anything into a "
    "single edge; give runs with other seeds (raindrop explain --seeds) to see which edges recur."
)
PROBE = (
    "The share of the variance of the receiver's readings that only the sender's embeddings at the same time explain, "
    "by linear regression: what could be predicted, whether or not the model does it. "
)
Answers = list[tuple[str, str]]  # question and answer
MAX_SAMPLES = 400  # for faithfulness and distances


@dataclass(frozen=True)
class GraphView:
    """One kind of sensor graph of a model."""

    name: str
    about: str
    means: dict[int, SensorGraph]
    """By class."""
    graphs: SensorGraphs | None = None
    """Graphs of every sample of the report, if this kind has graphs per sample."""
    evidence: dict[int, Answers] = field(default_factory=dict)
    """By class: questions about its difference from the other classes, and their answers."""
    warnings: dict[int, str] = field(default_factory=dict)
    """By class: the answers that speak against trusting the graph."""
    q: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    """By class, (u, v): the adjusted p-value of the edge's difference from all other classes."""
    recurs: dict[str, dict[int, NDArray[np.bool_]]] = field(default_factory=dict)
    """If other seeds were given: for the mean of a class ("own"), of the other classes ("others") and their
    "difference", by class, (u, v): whether the edge is among the strongest with every seed. Other edges are not
    reliable."""

    @property
    def empty(self) -> str:
        """One sentence saying why no class has any edge; an empty string if one has."""
        sentences = [graph.describe_empty() for graph in self.means.values()]
        return sentences[0] if all(sentences) else ""


def graph_views(
    estimator: SampleEstimator,
    table: EventTable,
    code: NDArray[np.int64],
    names: Sequence[str] = ("all samples",),
    other_seeds: Sequence[SampleEstimator] = (),
    seed: int = 0,
) -> list[GraphView]:
    """Every kind of sensor graph that the model has.

    code: (samples,) the class of each sample, a position in `names`; with a single class there is one mean graph, and
    no differences. other_seeds: the same model trained with other seeds.
    """
    codes = np.unique(code).tolist()
    kinds: dict[str, tuple[str, Callable[[SampleEstimator, EventTable], SensorGraphs]]] = {
        "Information in messages": (INFORMATION, information_graphs),
        "Edge weights (Eq. 3)": (WEIGHTS, lambda model, samples: model.graphs(samples)),
    }
    views = []
    for name, (about, graphs_of) in kinds.items():
        try:
            graphs = graphs_of(estimator, table)
        except ConfigError:  # the model has no such graph
            continue
        view = GraphView(name, about, {each: graphs.mean(code == each) for each in codes}, graphs)
        if view.empty:
            views.append(view)
            continue
        others = []
        for other in other_seeds:
            with suppress(ConfigError):  # training left out messages with this seed
                others.append(graphs_of(other, table))
        if len(others) < len(other_seeds):
            missing = format_count(len(other_seeds) - len(others), len(other_seeds), "models with other seeds")
            view = replace(view, about=f"{about} {missing} have no such graph.")
        if len(codes) < 2:
            views.append(_with_seeds(view, graphs, others, codes[0]))
        else:
            views.append(_with_evidence(view, graphs, estimator, table, code, names, others, seed))
    try:
        probes = {each: _probe(estimator, table[code == each]) for each in codes}
        extent = "per class" if len(names) > 1 else "of all samples"
        why = estimator.why_no_messages()
        no_other = f" The model has no graph of its own: {why}." if why else ""
        views.append(GraphView("Linear probe", f"{PROBE}One graph {extent}, none per sample.{no_other}", probes))
    except ConfigError:  # the model has no embeddings of single readings
        pass
    return views


def _with_seeds(view: GraphView, graphs: SensorGraphs, other_seeds: Sequence[SensorGraphs], code: int) -> GraphView:
    """The same view for a table without classes, with the stability of its mean graph over seeds."""
    if not other_seeds:
        return replace(view, warnings={code: NO_OTHER_SEED})
    result = stability([each.mean() for each in (graphs, *other_seeds)], top=_top(graphs))
    return replace(
        view,
        evidence={code: [("Do other training seeds give the same graph?", result.reason)]},
        warnings={} if result.stable else {code: result.reason},
        recurs={"own": {code: recurring(result, graphs.sensors)}},
    )


def _top(graphs: SensorGraphs) -> int:
    """The number of edges that count as strong."""
    return min(20, max(1, len(graphs.sensors) * (len(graphs.sensors) - 1) // 8))


def recurring(result: Stability, sensors: Sequence[str]) -> NDArray[np.bool_]:
    """(u, v) whether the edge is among the strongest of every graph, with the same sign."""
    position = {name: at for at, name in enumerate(sensors)}
    recurs = np.zeros((len(sensors),) * 2, dtype=bool)
    kept = result.edges.filter((pl.col("share") == 1) & pl.col("same_sign"))
    for sender, receiver in kept.select("sender", "receiver").iter_rows():
        recurs[position[sender], position[receiver]] = True
    return recurs


def _recurrence(
    graphs: SensorGraphs, other_seeds: Sequence[SensorGraphs], mask: NDArray[np.bool_]
) -> dict[str, NDArray[np.bool_]]:
    """The entries of `GraphView.recurs` for the class of `mask`."""
    every = (graphs, *other_seeds)
    compared = {
        "own": [each.mean(mask) for each in every],
        "others": [each.mean(~mask) for each in every],
        "difference": [each.difference(mask) for each in every],
    }
    return {name: recurring(stability(part, top=_top(graphs)), graphs.sensors) for name, part in compared.items()}


def _probe(estimator: SampleEstimator, table: EventTable) -> SensorGraph:
    if table.num_readings:
        return probe_graph(estimator, table)
    sensors = estimator.scaler_.sensors
    return SensorGraph(sensors, np.zeros((len(sensors),) * 2, np.float32), "", no_shared_times_reason(table))


def _with_evidence(
    view: GraphView,
    graphs: SensorGraphs,
    estimator: SampleEstimator,
    table: EventTable,
    truth: NDArray[np.int64],
    names: Sequence[str],
    other_seeds: Sequence[SensorGraphs],
    seed: int,
) -> GraphView:
    """The same view with evidence about the difference between each class and all others."""
    general, general_warnings = _general_evidence(graphs, estimator, table, truth, names, seed)
    two, present = len(names) == 2, np.unique(truth).tolist()
    evidence: dict[int, Answers] = {}
    warnings: dict[int, str] = {}
    q: dict[int, NDArray[np.float64]] = {}
    recurs: dict[str, dict[int, NDArray[np.bool_]]] = {}
    groups = None if table.roles.group is None else table_groups(table)
    for code in present if other_seeds else ():
        for name, found in _recurrence(graphs, other_seeds, truth == code).items():
            recurs.setdefault(name, {})[code] = found
    for code in [1] if two else present:
        which = "the classes" if two else f"'{names[code]}' and the other classes"
        answers, against = _stability(graphs, other_seeds, truth == code, which, seed)
        evidence[code] = answers + general
        warnings[code] = " ".join(against + general_warnings)
        q[code] = _q_by_edge(graphs, truth == code, groups, seed)
    if two:  # the same difference with the opposite sign
        evidence[0], warnings[0], q[0] = evidence[1], warnings[1], q[1]
    return replace(view, evidence=evidence, warnings=warnings, q=q, recurs=recurs)


def _stability(
    graphs: SensorGraphs, other_seeds: Sequence[SensorGraphs], mask: NDArray[np.bool_], which: str, seed: int
) -> tuple[Answers, list[str]]:
    """Whether other samples and other seeds give the same difference: answers, and the negative ones."""
    top = _top(graphs)
    seeds_question = f"Do other training seeds give the same difference between {which}?"
    comparisons = [(f"Do other samples give the same difference between {which}?", bootstrap(graphs, mask, seed=seed))]
    if other_seeds:
        comparisons.append((seeds_question, [each.difference(mask) for each in (graphs, *other_seeds)]))
    results = [(question, stability(compared, top=top)) for question, compared in comparisons]
    answers = [(question, result.reason) for question, result in results]
    if not other_seeds:
        answers.append((seeds_question, "Not tested: no run with another seed was given."))
    against = [result.reason for _, result in results if not result.stable]
    return answers, against if other_seeds else [*against, NO_OTHER_SEED]


def _general_evidence(
    graphs: SensorGraphs,
    estimator: SampleEstimator,
    table: EventTable,
    truth: NDArray[np.int64],
    names: Sequence[str],
    seed: int,
) -> tuple[Answers, list[str]]:
    """Faithfulness and distances, on some samples: answers, and those that speak against trusting the graph."""
    answers, against = [], []
    subset = np.random.default_rng(seed).permutation(len(table))[:MAX_SAMPLES]
    part = SensorGraphs(graphs.sensors, [graphs.ids[at] for at in subset], graphs.weights[subset])
    try:
        result = faithfulness(estimator, table[subset], part, seed=seed)
        answers.append(("Do the strongest edges determine the prediction?", result.reason))
        against += [] if result.faithful else [result.reason]
    except ConfigError:  # the model has no edges that can be removed
        pass
    if np.bincount(truth[subset], minlength=len(names))[np.unique(truth)].min() >= 2:
        spread = distances(part, truth[subset], seed=seed)
        within = ", ".join(f"{mean:.3g} within '{names[at]}'" for at, (mean, _) in spread.within.items())
        answer = f"Mean distance {within}, {spread.across[0]:.3g} across classes (permutation p = {spread.p:.2g})."
        answers.append(("Are graphs closer to those of their own class?", answer))
    return answers, against


def _q_by_edge(
    graphs: SensorGraphs, mask: NDArray[np.bool_], groups: NDArray[np.int64] | None, seed: int
) -> NDArray[np.float64]:
    """(u, v) the adjusted p-value of every difference; 1 on the diagonal."""
    frame = difference_test(graphs, mask, groups=groups, permutations=2000, seed=seed)
    position = {name: at for at, name in enumerate(graphs.sensors)}
    q = np.ones((len(graphs.sensors),) * 2)
    u = [position[name] for name in frame["sender"].to_list()]
    v = [position[name] for name in frame["receiver"].to_list()]
    q[u, v] = frame["q"].to_numpy()
    return q
