"""`class_graphs`: the sensor graph of each class of a labelled table and their differences, from readings alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raindrop.errors import DataError
from raindrop.graphs.class_differences import ClassGraphs, Effects, compare_classes
from raindrop.graphs.graph import SensorGraph
from raindrop.graphs.informed import checked_table, sensor_graph
from raindrop.graphs.lagged import compare_senders
from raindrop.graphs.past import Past
from raindrop.graphs.permutation import table_groups
from raindrop.graphs.receiver import Receiver
from raindrop.hardware import limit_threads
from raindrop.table.event_table import EventTable


def labelled_samples(table: EventTable) -> EventTable:
    """The samples of a table that have a label; raises if there are fewer than two classes."""
    known = table.labelled
    if table.roles.label is not None and not known.any():
        raise DataError(f"No sample has a label in column '{table.roles.label}', so there are no classes to compare.")
    table = table[known] if known.any() else table
    if len(np.unique(table.labels)) < 2:  # without a label column, `labels` says what to do
        raise DataError(f"All labels in column '{table.roles.label}' are the same; there are no classes to compare.")
    return table


def class_graphs(
    table: EventTable,
    *,
    q: float = 0.05,
    permutations: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> ClassGraphs:
    """The graph of each class of a labelled table and how they differ; no model is needed.

    Each class has its own `sensor_graph`. For the difference, one regression for all samples predicts each sensor from
    the past of all, without using labels; an edge differs if its sender helps more in one class than in the others.
    Labels are permuted over samples, or over whole groups. Edges at the same time are in the graphs of the classes, but
    only lagged ones are compared. progress: called with the number of steps done and the total.
    """
    table = labelled_samples(checked_table(table, q, seed))
    labels, group, past = np.asarray(table.labels), table_groups(table), Past.of(table)
    classes, M = np.unique(labels), len(table.sensors)
    steps = M * (1 + len(classes))
    total = np.zeros((len(table), M, M), dtype=np.float32)
    count = np.zeros((len(table), M), dtype=np.float32)
    for v in range(M):
        with limit_threads(None):
            receiver = Receiver(past, v, group, seed)
            if receiver.testable:
                found = compare_senders(receiver, by_sample=True)
                total[:, :, v] = found.gain_sums
                count[:, v] = np.bincount(found.rows.sample, minlength=len(table))
        if progress is not None:
            progress(v + 1, steps)
    graphs: dict[object, SensorGraph] = {}
    for at, label in enumerate(classes, start=1):
        part = None if progress is None else lambda done, _, before=at * M: progress(before + done, steps)
        graphs[label.item()] = sensor_graph(table[labels == label], q=q, seed=seed, name=str(label), progress=part)
    effects = [Effects(table.sensors, total, count)]
    with limit_threads(None):
        return compare_classes(effects, graphs, labels, group, q=q, permutations=permutations, seed=seed)
