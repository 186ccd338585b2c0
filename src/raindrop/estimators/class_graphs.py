"""Class graphs of a fitted imputer or forecaster. Labels are used only for the comparison, never in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from raindrop.errors import ConfigError
from raindrop.estimators.inputs import require_table
from raindrop.estimators.sender_graphs import SenderEffects
from raindrop.graphs.class_differences import ClassGraphs, Effects, compare_classes
from raindrop.graphs.informed_classes import labelled_samples
from raindrop.table.event_table import EventTable


def class_graphs(
    models: Sequence[Any],
    X: EventTable,
    *,
    q: float = 0.05,
    permutations: int | None = None,
    seed: int = 0,
    **hiding: Any,
) -> ClassGraphs:
    """The graph of each class of a labelled table and their differences.

    models: the fitted model, then models with other seeds. hiding: which readings to hide, for `sender_effects`.
    """
    table = labelled_samples(require_table(X, "class_graphs"))
    effects = [each.sender_effects(table, seed=seed + at, **hiding) for at, each in enumerate(models)]
    return compare_effects(effects, table, q=q, permutations=permutations, seed=seed)


def compare_effects(
    effects: Sequence[SenderEffects],
    table: EventTable,
    *,
    q: float = 0.05,
    permutations: int | None = None,
    seed: int = 0,
) -> ClassGraphs:
    """As `class_graphs`, from the effects of a model and of models with other seeds on the `labelled_samples`."""
    own, labels = effects[0], np.asarray(table.labels)
    if any(each.sensors != own.sensors for each in effects):
        raise ConfigError("Models with other seeds must be trained on the same sensors.")
    graphs = {
        label.item(): replace(own.of_samples(labels == label).graph(q), name=str(label)) for label in np.unique(labels)
    }
    sums = [each.sums(each.sample[each.owner], len(table)) for each in effects]
    compared = [Effects(own.sensors, total.astype(np.float32), count.astype(np.float32)) for total, count in sums]
    return compare_classes(compared, graphs, labels, own.group, q=q, permutations=permutations, seed=seed)
