"""How sure a figure is: intervals from samples drawn anew, for thousands of draws at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import ConfigError, DataError, suggest
from raindrop.tasks.metrics import METRICS, Codes, Probabilities

Floats = NDArray[np.float64]
CHUNK = 2_000_000  # draws times samples at once
FIGURES = ("auroc", "auprc", "accuracy", "f1", "brier", "log_loss")


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % confidence interval."""

    value: float
    low: float
    high: float


def bootstrap(
    truth: Codes, probability: Probabilities, names: Sequence[str] = FIGURES, *, draws: int = 1000, seed: int = 0
) -> dict[str, Interval]:
    """Figures with percentile intervals: samples are drawn with replacement, of each class as many as there are.

    That each draw has every class keeps AUROC defined for rare outcomes. The interval says how far other samples would
    move the figure, not how far another training would.
    """
    if not len(truth):
        raise DataError("There is no sample, so there is no figure and no interval.")
    if draws < 1:
        raise ConfigError(f"An interval needs at least 1 draw, not {draws}.")
    for name in names:
        if name not in FIGURES:
            raise ConfigError(f"There is no interval for '{name}': {suggest(name, FIGURES)}")
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(truth == code) for code in np.unique(truth)]
    parts = []
    for size in _chunks(draws, len(truth)):
        times = np.zeros((size, len(truth)))
        for of_class in members:
            even = np.full(len(of_class), 1 / len(of_class))
            times[:, of_class] = rng.multinomial(len(of_class), even, size)
        parts.append(weighted(truth, probability, times, names))
    found = {name: np.concatenate([part[name] for part in parts]) for name in names}
    exact = {name: METRICS[name](truth, probability) for name in names}
    return {name: Interval(exact[name], *np.quantile(found[name], [0.025, 0.975]).tolist()) for name in names}


def _chunks(draws: int, samples: int) -> list[int]:
    most = max(1, CHUNK // samples)
    return [min(most, draws - start) for start in range(0, draws, most)]


def weighted(
    truth: Codes, probability: Probabilities, times: Floats, names: Sequence[str] = FIGURES
) -> dict[str, Floats]:
    """(draw,) each figure of `metrics` where sample n counts times[draw, n] times."""
    total = times.sum(1)
    predicted, classes = probability.argmax(1), range(probability.shape[1])
    wanted = [1] if len(classes) == 2 else np.unique(truth).tolist()
    found: dict[str, Floats] = {}
    if "auroc" in names or "auprc" in names:
        ranked = [_ranking(truth == code, probability[:, code], times) for code in wanted]
        found |= {"auroc": np.mean([pair[0] for pair in ranked], 0), "auprc": np.mean([pair[1] for pair in ranked], 0)}
    if "accuracy" in names:
        found["accuracy"] = times @ (predicted == truth) / total
    if "f1" in names:
        hit = np.stack([times @ ((predicted == c) & (truth == c)) for c in classes])
        either = np.stack([times @ ((predicted == c).astype(float) + (truth == c)) for c in classes])
        found["f1"] = (2 * hit / np.where(either > 0, either, 1)).mean(0)
    if "brier" in names:
        squared = ((probability - np.eye(len(classes))[truth]) ** 2).sum(1) / (2 if len(classes) == 2 else 1)
        found["brier"] = times @ squared / total
    if "log_loss" in names:
        right = probability[np.arange(len(truth)), truth]
        found["log_loss"] = times @ -np.log(np.maximum(right, 1e-12)) / total
    return {name: found[name] for name in names}


def _ranking(of_class: NDArray[np.bool_], score: Probabilities, times: Floats) -> tuple[Floats, Floats]:
    """(draw,) AUROC and average precision of one class; samples of equal score count as one step."""
    if of_class.all() or not of_class.any():
        nothing = np.full(len(times), np.nan)
        return nothing, nothing
    order = np.argsort(-score, kind="stable")
    ordered = score[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    true = np.add.reduceat(times[:, order] * of_class[order], starts, axis=1)  # (draw, step), highest score first
    false = np.add.reduceat(times[:, order] * ~of_class[order], starts, axis=1)
    true_so_far, false_so_far = true.cumsum(1), false.cumsum(1)
    below = false_so_far[:, -1:] - false_so_far  # false ones that score lower
    auroc = (true * (below + false / 2)).sum(1) / (true_so_far[:, -1] * false_so_far[:, -1])
    called = true_so_far + false_so_far
    precision = true_so_far / np.where(called > 0, called, 1)
    return auroc, (true * precision).sum(1) / true_so_far[:, -1]
