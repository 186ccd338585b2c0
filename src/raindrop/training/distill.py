"""Soft targets for networks: out-of-fold predictions of boosted trees, mixed into the labels.

A probability carries more than the one outcome that was drawn with it, and the trees see all readings where training
drops some: so the network learns what the remaining sensors imply about the missing ones. Learning from another
model's predictions is distillation (Hinton, Vinyals and Dean, 2015); from one that sees more, learning with privileged
information (Lopez-Paz et al., ICLR 2016).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from raindrop.batch.collate import BatchSource
from raindrop.models.base import DataSpec
from raindrop.models.boosting import TreesConfig
from raindrop.models.registry import MODELS
from raindrop.models.trees import Trees
from raindrop.table.sample_columns import group_or_own_codes
from raindrop.training.progress import bar
from raindrop.training.scoring import scores_of

FOLDS = 5
QUICK = {"summaries": "more", "learning_rate": 0.08, "patience": 20}  # with MAX_TREES a third of the preset's time
MAX_TREES = 400  # in a fold; a round grows one, or one for each class where there are more than two
MIN_ROUNDS = 40

Folds = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


def soft_targets(
    training: BatchSource, spec: DataSpec, weight: float, seed: int, show: bool = False
) -> NDArray[Any] | None:
    """Targets in which the trees' predictions count `weight`; None where they are no better than a constant.

    Each fifth of the samples is predicted by trees that saw neither it nor any sample of its groups. A part of the
    other four fifths chooses the number of rounds.
    """
    task, truth = spec.task, cast(NDArray[Any], training.truth)
    if task.soft_targets(torch.zeros(len(truth), task.num_outputs), truth, weight) is None:
        return None
    groups = groups_of(training)
    strata = task.strata(truth)
    if np.unique(strata, return_counts=True)[1].min() < 2 * FOLDS:
        return None  # too few of a class to learn it from part of them
    if groups is not None and len(np.unique(groups)) < 2 * FOLDS:
        return None
    several = max(len(problem.outputs) for problem in task.boosting_problems())
    rounds = MAX_TREES if several == 1 else max(MAX_TREES // several, MIN_ROUNDS)
    config = TreesConfig(**MODELS["trees"].presets["tuned"]["model"] | QUICK | {"rounds": rounds})
    scores = torch.zeros(len(truth), task.num_outputs)
    with bar(show, FOLDS, "growing trees for soft targets") as update:
        for done, (rest, fold) in enumerate(folds(strata, groups, seed)):
            grow, choose = folds(strata[rest], None if groups is None else groups[rest], seed)[0]
            trees = Trees(config, spec)
            trees.fit(training.part(rest[grow]), training.part(rest[choose]), seed)
            scores[torch.from_numpy(fold)] = scores_of(trees, training.part(fold))
            update(done + 1, [])
    return task.soft_targets(scores, truth, weight) if task.knows(scores, truth) else None


def folds(strata: NDArray[np.int64], groups: NDArray[np.int64] | None, seed: int) -> Folds:
    """(rest, fold) of each fold, with the same mix of classes; a group is never on both sides."""
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    splitter = kind(FOLDS, shuffle=True, random_state=seed % 2**32)
    return list(splitter.split(np.zeros(len(strata)), strata, groups))


def groups_of(training: BatchSource) -> NDArray[np.int64] | None:
    """(samples,) a number for the group of each sample; None where the table has no groups."""
    name = training.table.roles.group
    return None if name is None else group_or_own_codes(training.table.samples[name])
