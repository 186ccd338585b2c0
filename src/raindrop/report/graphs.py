"""The sensor graphs of a report, each with what speaks for it and against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import ConfigError
from raindrop.estimators.classifier import Classifier
from raindrop.explain.faithfulness import faithfulness
from raindrop.explain.information import information_graphs
from raindrop.explain.probe import probe_graph
from raindrop.graphs.distances import distances
from raindrop.graphs.evidence import bootstrap, difference_test, stability
from raindrop.graphs.graph import SensorGraph, SensorGraphs
from raindrop.models.raindrop.model import Raindrop
from raindrop.table.event_table import EventTable

INFORMATION = (
    "How much worse the receiver's readings would be told without the sender's messages: the fall of the squared "
    "error, in units of the receiver's variance. About 0 where the sender tells nothing of the receiver, negative "
    "where it misleads."
)
WEIGHTS = (
    "The weights of the paper's Eq. 3, by which messages are scaled. A heavy edge is one the model listens along; "
    "whether what it hears is of use, the weight alone does not say."
)
PROBE = (
    "The share of the variance of the receiver's readings that the sender's embeddings tell and no other sensor's "
    "do, at the same times: what there is to be said, whether or not the model says it. One graph per class, none "
    "per sample."
)
JUDGED = 400  # samples at most on which edges are cut and distances taken


@dataclass(frozen=True)
class Reading:
    """One way to read sensor graphs off a model."""

    name: str
    about: str
    means: dict[int, SensorGraph]
    """By class."""
    graphs: SensorGraphs | None = None
    """Of every sample of the report, where this reading has any."""
    evidence: list[tuple[str, str]] = field(default_factory=list)
    """What was asked of the graphs, and the answer."""
    warning: str = ""
    q: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    """By class, (u, v): the false-discovery value of the edge's difference from all other classes."""


def readings_of(
    classifier: Classifier,
    table: EventTable,
    truth: NDArray[np.int64],
    others: Sequence[Classifier] = (),
    seed: int = 0,
) -> list[Reading]:
    """Every sensor graph that the model has to give; `others` are the same model trained with other seeds."""
    offered: dict[str, tuple[str, Callable[[Classifier, EventTable], SensorGraphs]]] = {
        "what messages tell": (INFORMATION, information_graphs),
        "edge weights": (WEIGHTS, lambda clf, samples: clf.graphs(samples)),
    }
    found = []
    for name, (about, graphs_of) in offered.items():
        try:
            graphs = graphs_of(classifier, table)
        except ConfigError:  # the model has no such graph
            continue
        again = [graphs_of(other, table) for other in others]
        means = {code: graphs.mean(truth == code) for code in np.unique(truth).tolist()}
        found.append(_judged(Reading(name, about, means, graphs), graphs, classifier, table, truth, again, seed))
    if isinstance(classifier.model_.network, Raindrop):
        probed = {code: probe_graph(classifier, table[truth == code]) for code in np.unique(truth).tolist()}
        found.append(Reading("what embeddings could tell", PROBE, probed))
    return found


def _judged(
    reading: Reading,
    graphs: SensorGraphs,
    classifier: Classifier,
    table: EventTable,
    truth: NDArray[np.int64],
    again: Sequence[SensorGraphs],
    seed: int,
) -> Reading:
    """The same reading with its evidence, so far as the samples allow any."""
    present = np.unique(truth)
    if len(present) < 2 or len(graphs.sensors) < 2:
        return reading
    q, asked = {}, present[-1:] if len(present) == 2 else present
    for code in asked.tolist():
        q[code] = _by_edge(graphs, truth == code, seed)
    if len(present) == 2:
        q[int(present[0])] = q[int(present[1])]
    edges = len(graphs.sensors) * (len(graphs.sensors) - 1)
    top = min(20, max(1, edges // 8))
    last = truth == present[-1]
    verdicts = [("Would other samples give the same difference?", bootstrap(graphs, last, seed=seed))]
    if again:
        seeds: list[SensorGraph] = [held.difference(last) for held in (graphs, *again)]
        verdicts.append(("Would another training give the same difference?", seeds))
    evidence, warnings = [], []
    for question, drawn in verdicts:
        verdict = stability(drawn, top=top)
        evidence.append((question, verdict.reason))
        if not verdict.stable:
            warnings.append(verdict.reason)
    if not again:
        evidence.append(
            ("Would another training give the same difference?", "Not asked: no run with another seed was given.")
        )
    few = np.random.default_rng(seed).permutation(len(table))[:JUDGED]
    part = SensorGraphs(graphs.sensors, [graphs.ids[at] for at in few], graphs.weights[few])
    try:
        carried = faithfulness(classifier, table[few], part, seed=seed)
        evidence.append(("Do the strong edges carry the prediction?", carried.reason))
        warnings += [] if carried.faithful else [carried.reason]
    except ConfigError:
        pass
    if np.bincount(truth[few])[present].min() >= 2:
        held = distances(part, truth[few], seed=seed)
        within = ", ".join(
            f"{mean:.3g} within '{classifier.classes_[code]}'" for code, (mean, _) in held.within.items()
        )
        told = f"Mean distance {within}, {held.across[0]:.3g} across classes (permutation p = {held.p:.2g})."
        evidence.append(("Are graphs nearer to those of their own class?", told))
    return replace(reading, evidence=evidence, warning=" ".join(warnings), q=q)


def _by_edge(graphs: SensorGraphs, chosen: NDArray[np.bool_], seed: int) -> NDArray[np.float64]:
    """(u, v) the false-discovery value of every difference; 1 on the diagonal."""
    frame = difference_test(graphs, chosen, permutations=2000, seed=seed)
    place = {name: at for at, name in enumerate(graphs.sensors)}
    q = np.ones((len(graphs.sensors),) * 2)
    u = [place[name] for name in frame["sender"].to_list()]
    v = [place[name] for name in frame["receiver"].to_list()]
    q[u, v] = frame["q"].to_numpy()
    return q
