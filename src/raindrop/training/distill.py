"""A teacher for networks: trees that say of each training sample, which they have not seen, how probable each class is.

A probability tells more than the one outcome that was drawn with it, and the trees see all readings where training
leaves some out: so the network learns what the sensors that are left say of what the others would have said. Learning
from another model's probabilities is distillation (Hinton, Vinyals and Dean, 2015); from one that sees more, learning
with privileged information (Lopez-Paz et al., ICLR 2016).
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from raindrop.batch.collate import Collator
from raindrop.models.base import DataSpec
from raindrop.models.registry import MODELS
from raindrop.models.trees import Trees, TreesConfig
from raindrop.tasks.metrics import METRICS
from raindrop.training.loop import probabilities
from raindrop.training.progress import bar

FOLDS = 5
QUICK = {"summaries": "more", "learning_rate": 0.08, "patience": 20}  # with TREES a third of the preset's time
TREES = 400  # most trees of a fold; a round grows one, or one for each class where there are more than two
FEWEST_ROUNDS = 40

KNOWS = 0.95  # of the log loss of the class shares: trees that come no lower know nothing


def goals_of(
    training: Collator, spec: DataSpec, weight: float, seed: int, show: bool = False
) -> NDArray[np.float32] | None:
    """(samples, classes): `weight` of what the trees say and the rest of the label; None where they know nothing.

    Each fifth of the samples is judged by trees grown on the other four.
    """
    labels = cast(NDArray[np.int64], training.labels)
    truth = np.eye(spec.num_classes, dtype=np.float32)[labels]
    if np.bincount(labels, minlength=spec.num_classes).min() < 2 * FOLDS:
        return None  # too few of a class to learn it from four fifths of them
    fold = folds_of(labels, np.random.default_rng(seed))
    rounds = TREES if spec.num_classes == 2 else max(TREES // spec.num_classes, FEWEST_ROUNDS)
    config = TreesConfig(**MODELS["trees"].presets["tuned"]["model"] | QUICK | {"rounds": rounds})
    said = np.empty_like(truth)
    with bar(show, FOLDS, "growing trees that teach") as tick:
        for number in range(FOLDS):
            seen, held = training.part(np.flatnonzero(fold != number)), training.part(np.flatnonzero(fold == number))
            trees = Trees(config, spec)
            trees.fit(seen, held, seed)
            said[fold == number] = probabilities(trees, held)
            tick(number + 1, [])
    guess = np.tile(truth.mean(0), (len(truth), 1))
    if METRICS["log_loss"](labels, said) >= KNOWS * METRICS["log_loss"](labels, guess):
        return None  # what they say would only blur the labels
    return weight * said + (1 - weight) * truth


def folds_of(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """The fold of each sample, with as many of each class in all folds as can be."""
    fold = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        fold[members] = np.arange(len(members)) % FOLDS
    return fold
