"""Soft targets for networks: out-of-fold predictions of boosted trees, mixed into the labels.

A probability carries more information than a single outcome, and the trees see all readings while training drops some,
so the network learns what the remaining sensors imply about the missing ones. Learning from another model's predictions
is distillation (Hinton, Vinyals and Dean, 2015); from one that sees more, learning with privileged information
(Lopez-Paz et al., ICLR 2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from torch import Tensor

from raindrop.batch.collate import BatchSource, bounded
from raindrop.files import atomic_file
from raindrop.models.base import DataSpec
from raindrop.models.boosting import Samples, TreesConfig
from raindrop.models.registry import MODELS
from raindrop.models.trees import Trees
from raindrop.table.blocks import is_large
from raindrop.table.sample_columns import group_or_own_codes
from raindrop.training.progress import bar

FOLDS = 5
QUICK = {"summaries": "more", "learning_rate": 0.08, "patience": 20}  # with MAX_TREES a third of the preset's time
MAX_TREES = 400  # per fold; a round adds one, or one per class if there are more than two
MIN_ROUNDS = 40
MAX_SAMPLES = 20_000  # for training the trees of a fold; a quarter as many choose the number of rounds
CHUNK = 4096  # samples predicted at a time

Folds = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


def soft_targets(
    training: BatchSource,
    spec: DataSpec,
    weight: float,
    seed: int,
    show: bool = False,
    path: Path | None = None,
    identity: str = "",
) -> NDArray[Any] | None:
    """Targets in which the trees' predictions have this `weight`; None if they are no better than a constant.

    Each fifth of the samples is predicted by trees that saw neither it nor any sample of its groups. A part of the
    other four fifths chooses the number of rounds. Summaries are computed once for all folds, and a fold learns from at
    most MAX_SAMPLES. With `path`, the predictions of finished folds are kept in that file and not computed again.
    """
    task, truth = spec.task, cast(NDArray[Any], training.truth)
    if task.soft_targets(torch.zeros(len(truth), task.num_outputs), truth, weight) is None:
        return None
    groups = groups_of(training)
    strata = task.strata(truth)
    if np.unique(strata, return_counts=True)[1].min() < 2 * FOLDS:
        return None  # a class has too few samples for folds
    if groups is not None and len(np.unique(groups)) < 2 * FOLDS:
        return None
    several = max(len(problem.outputs) for problem in task.boosting_problems())
    rounds = MAX_TREES if several == 1 else max(MAX_TREES // several, MIN_ROUNDS)
    config = TreesConfig(**MODELS["trees"].presets["tuned"]["model"] | QUICK | {"rounds": rounds})
    scores, finished = _load(path, identity, (len(truth), task.num_outputs))
    rows: _Columns | None = None
    with bar(show, FOLDS, "growing trees for soft targets") as update:
        for done, (rest, fold) in enumerate(folds(strata, groups, seed)):
            if done >= finished:
                trees = Trees(config, spec)
                rows = _Columns(trees, training, seed) if rows is None else rows
                grow, choose = folds(strata[rest], None if groups is None else groups[rest], seed)[0]
                parts = [
                    _at_most(rest[part], size, seed) for part, size in ((grow, MAX_SAMPLES), (choose, MAX_SAMPLES // 4))
                ]
                trees.fit_rows(rows.samples(parts[0]), rows.samples(parts[1]), seed)
                with torch.inference_mode():
                    for some, columns in rows.chunks(fold):
                        scores[torch.from_numpy(some)] = trees.score_columns(columns).float()
                _save(path, identity, scores, done + 1)
            update(done + 1, [])
    return task.soft_targets(scores, truth, weight) if task.knows(scores, truth) else None


class _Columns:
    """The trees' features of training samples: computed once for all folds, or on demand if they are too large."""

    def __init__(self, trees: Trees, training: BatchSource, seed: int):
        self.trees, self.training, self.seed = trees, training, seed
        self.rows = None if is_large(training.table.time) else trees.rows_of(training, seed)

    def samples(self, positions: NDArray[np.int64]) -> Samples:
        """Samples to learn from, at most MAX_SAMPLES."""
        if self.rows is not None:
            return self.rows.part(positions)
        return self.trees.rows_of(self.training.part(positions), self.seed)

    def chunks(self, positions: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """For predicting: positions and their columns, a chunk at a time."""
        for some in np.array_split(positions, -(-len(positions) // CHUNK)):
            if self.rows is not None:
                yield some, torch.from_numpy(self.rows.x[some])
            else:
                for part in bounded(self.training, some):
                    yield part, self.trees.columns(self.training.batch(part))


def folds(strata: NDArray[np.int64], groups: NDArray[np.int64] | None, seed: int) -> Folds:
    """(rest, fold) of each fold, with the same mix of classes; a group is never on both sides."""
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    splitter = kind(FOLDS, shuffle=True, random_state=seed % 2**32)
    return list(splitter.split(np.zeros(len(strata)), strata, groups))


def groups_of(training: BatchSource) -> NDArray[np.int64] | None:
    """(samples,) the group number of each sample; None if the table has no groups."""
    name = training.table.roles.group
    return None if name is None else group_or_own_codes(training.table.samples[name])


def _at_most(positions: NDArray[np.int64], size: int, seed: int) -> NDArray[np.int64]:
    """All positions, or a random subset of this size if there are more."""
    if len(positions) <= size:
        return positions
    return cast(NDArray[np.int64], np.sort(np.random.default_rng(seed).choice(positions, size, replace=False)))


def _save(path: Path | None, identity: str, scores: Tensor, finished: int) -> None:
    """Keep the predictions of the finished folds, atomically."""
    if path is not None:
        with atomic_file(path) as partial:
            save_file({"scores": scores}, partial, metadata={"identity": identity, "folds": str(finished)})


def _load(path: Path | None, identity: str, shape: tuple[int, int]) -> tuple[Tensor, int]:
    """What `_save` kept of this run, and the number of finished folds; zeros if there is nothing to use."""
    if path is not None and path.exists():
        with suppress(SafetensorError, OSError, KeyError, ValueError, TypeError), safe_open(path, "pt") as file:
            about, scores = file.metadata(), file.get_tensor("scores")
            if about["identity"] == identity and tuple(scores.shape) == shape and scores.isfinite().all():
                return scores, int(about["folds"])
    return torch.zeros(shape), 0
