"""Boosted trees with random thresholds: a tree tries only one threshold of each column, drawn at random.

Random thresholds as in extremely randomised trees (Geurts, Ernst and Wehenkel, Machine Learning 2006), here in gradient
boosting with Newton steps (Chen and Guestrin, KDD 2016): with gradients g and curvatures h of the loss, summed over the
samples of a node, a split into left and right gains

    G_left^2 / (H_left + l2) + G_right^2 / (H_right + l2) - G^2 / (H + l2),

and a leaf's value is -G / (H + l2). A tree splits the leaf that gains most until it has enough leaves. Where noise is
large and columns are many, the best of all thresholds is mostly the luckiest; random ones leave trees that differ more.
Each tree learns from a random part of the samples, and several forests are averaged on top.

Thresholds are between the values of a column, or between at most LEVELS quantiles of them. Samples without a value go
where they gain more. A loss without curvature, such as the pinball loss, has the quantile of the residuals as leaves.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from raindrop.models.boosting import BoostingConfig, Nodes, Samples
from raindrop.tasks.boosting import BoostingProblem, Objective

LEVELS = 255  # distinct levels of a column, whose codes are 0 to 254
MISSING = 255
START_STEPS = 20  # Newton steps towards the best constant scores

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Codes = NDArray[np.uint8]


def grow_random(
    config: BoostingConfig, problem: BoostingProblem, training: Samples, validation: Samples | None, seed: int
) -> tuple[list[Nodes], Floats]:
    """Trees by round, within a round one per member and output, and the scores before the first round.

    All members grow side by side; their mean stops after `patience` rounds without a lower validation loss.
    """
    rng, rows_rng = np.random.default_rng(seed).spawn(2)
    objective, outputs = problem.objective, len(problem.outputs)
    levels = Levels(training.x)
    codes = levels.encode(training.x)
    held_out = None if validation is None else levels.encode(validation.x)
    start = _start(objective, training, outputs)
    size = max(1, round(config.rows * len(training.x)))
    scores = [np.tile(start, (len(training.x), 1)) for _ in range(config.members)]
    mean = None if held_out is None else np.tile(start, (held_out.shape[1], 1))
    trees: list[Nodes] = []
    best, best_round = np.inf, 0
    for number in range(config.rounds):
        for score in scores:
            slope, curvature = _derivatives(objective, score, training)
            rows = np.sort(rows_rng.permutation(len(score))[:size])
            for at in range(outputs):
                tree = _Tree(config, codes, rows, levels.counts, slope[rows, at], curvature[rows, at], rng)
                if objective.flat:
                    weight = None if training.weight is None else training.weight[rows]
                    tree.set_quantiles((training.target - score[:, at])[rows], weight, objective.level or 0.5)
                score[:, at] += tree.predict(codes)
                if mean is not None:
                    mean[:, at] += tree.predict(cast(Codes, held_out)) / config.members
                trees.append(tree.nodes(levels, 1 / config.members))
        if mean is not None:
            loss = _mean_loss(objective, mean, cast(Samples, validation))
            if loss < best:
                best, best_round = loss, number
            elif number - best_round >= config.patience:
                break
    return trees, start


class Levels:
    """The thresholds of each column, and values as the number of thresholds below them."""

    def __init__(self, x: Floats):
        self.thresholds = [_thresholds(column) for column in x.T]
        self.counts = np.array([len(thresholds) for thresholds in self.thresholds])

    def encode(self, x: Floats) -> Codes:
        """(column, n) codes: a value up to threshold k has a code up to k; MISSING for none."""
        codes = np.empty(x.shape[::-1], dtype=np.uint8)
        for code, thresholds, column in zip(codes, self.thresholds, x.T, strict=True):
            code[:] = np.where(np.isnan(column), MISSING, np.searchsorted(thresholds, column))
        return codes

    def value(self, column: int, code: int) -> float:
        """The threshold with this number; of a column with a single value, any number is below it."""
        thresholds = self.thresholds[column]
        return float(thresholds[code]) if len(thresholds) else np.inf


def _thresholds(column: Floats) -> Floats:
    """Halfway between the distinct values, or between LEVELS quantiles of them if there are more."""
    known = np.sort(column[~np.isnan(column)])
    distinct = np.unique(known)
    if len(distinct) > LEVELS:
        distinct = np.unique(known[np.linspace(0, len(known) - 1, LEVELS).round().astype(np.int64)])
    return 0.5 * distinct[:-1] + 0.5 * distinct[1:]


@dataclass
class _Node:
    rows: Rows
    sums: Floats  # (3, 1 + 2 columns) slopes, curvatures and samples: all, left of each split, without a value
    depth: int = 0
    split: int = -1  # none: a leaf
    missing_left: bool = False
    left: int = -1
    right: int = -1
    value: float = 0.0


class _Tree:
    """One tree, grown from the leaf that gains most; each of its columns has one threshold, drawn at random."""

    def __init__(
        self,
        config: BoostingConfig,
        codes: Codes,
        rows: Rows,
        counts: Rows,
        slope: Floats,
        curvature: Floats,
        rng: Generator,
    ):
        """codes (column, sample); rows (n,) the samples to learn from, with their slopes and curvatures (n,); counts
        (column,) of thresholds."""
        self.config = config
        self.columns = np.sort(rng.permutation(len(codes))[: max(1, round(config.columns * len(codes)))])
        self.codes = (rng.random(len(self.columns)) * np.maximum(counts[self.columns], 1)).astype(np.uint8)
        some = np.ascontiguousarray(codes[self.columns][:, rows].T)
        # (n, 1 + 2 columns): every sample, whether it is left of each split, and whether its value is missing
        self.flags = np.ones((len(some), 1 + 2 * len(self.columns)), dtype=np.float32)
        self.flags[:, 1 : 1 + len(self.columns)] = some <= self.codes
        self.flags[:, 1 + len(self.columns) :] = some == MISSING
        self.sums = np.stack([slope, curvature, np.ones(len(slope))]).astype(np.float32)
        everything = np.arange(len(rows))
        self.grown = [_Node(everything, self._total(everything))]
        self._grow()
        for node in self.grown:
            node.value = -config.learning_rate * node.sums[0, 0] / max(node.sums[1, 0] + config.l2, 1e-12)

    def _total(self, rows: Rows) -> Floats:
        return (self.sums[:, rows] @ self.flags[rows]).astype(np.float64)

    def _grow(self) -> None:
        waiting: list[tuple[float, int, int, bool]] = []
        self._offer(0, waiting)
        for _ in range(self.config.leaves - 1):
            if not waiting:
                return
            _, at, split, missing_left = heapq.heappop(waiting)
            node = self.grown[at]
            is_left = self.flags[node.rows, 1 + split] > 0
            if missing_left:
                is_left |= self.flags[node.rows, 1 + len(self.columns) + split] > 0
            left, right = node.rows[is_left], node.rows[~is_left]
            fewer = self._total(left if len(left) < len(right) else right)
            sums = (fewer, node.sums - fewer) if len(left) < len(right) else (node.sums - fewer, fewer)
            node.split, node.missing_left = split, missing_left
            node.left, node.right = len(self.grown), len(self.grown) + 1
            self.grown += [_Node(rows, each, node.depth + 1) for rows, each in zip((left, right), sums, strict=True)]
            self._offer(node.left, waiting)
            self._offer(node.right, waiting)

    def _offer(self, at: int, waiting: list[tuple[float, int, int, bool]]) -> None:
        """Put the best split of a node among those that wait, if it gains anything."""
        sums = self.grown[at].sums
        total, (left, missing) = sums[:, :1], np.split(sums[:, 1:], 2, axis=1)
        gains = np.stack([self._gain(left, total), self._gain(left + missing, total)])
        missing_left, split = divmod(int(np.argmax(gains)), len(self.columns))
        if gains[missing_left, split] > 0:
            heapq.heappush(waiting, (-gains[missing_left, split], at, split, bool(missing_left)))

    def _gain(self, left: Floats, total: Floats) -> Floats:
        """(column,) what each split gains; nothing if a side has too few samples."""
        right, l2 = total - left, self.config.l2 + 1e-6
        gain = left[0] ** 2 / (left[1] + l2) + right[0] ** 2 / (right[1] + l2) - total[0] ** 2 / (total[1] + l2)
        return np.where(np.minimum(left[2], right[2]) >= self.config.min_samples, gain, 0.0)

    def set_quantiles(self, residuals: Floats, weight: NDArray[np.float32] | None, level: float) -> None:
        """Leaves whose value is the quantile of this level of their residuals, for losses without curvature."""
        for node in self.grown:
            of = None if weight is None else weight[node.rows]
            node.value = self.config.learning_rate * _quantile(residuals[node.rows], level, of)

    def predict(self, codes: Codes) -> Floats:
        """(n,) the leaves' values, from the codes (column, n) of all columns."""
        result = np.empty(codes.shape[1])
        waiting = [(0, np.arange(codes.shape[1]))]
        while waiting:
            at, rows = waiting.pop()
            node = self.grown[at]
            if node.split < 0:
                result[rows] = node.value
                continue
            code = codes[self.columns[node.split], rows]
            left = code <= self.codes[node.split]
            if node.missing_left:
                left |= code == MISSING
            waiting += [(node.left, rows[left]), (node.right, rows[~left])]
        return result

    def nodes(self, levels: Levels, share: float) -> Nodes:
        """This tree with thresholds in the columns' own unit and `share` of its values."""
        inner = np.array([node.split >= 0 for node in self.grown])
        split = np.array([node.split for node in self.grown])
        column, own = np.where(inner, self.columns[split], 0), np.arange(len(self.grown))
        return Nodes(
            feature=column,
            threshold=np.array(
                [levels.value(self.columns[k], self.codes[k]) if k >= 0 else 0.0 for k in split.tolist()]
            ),
            missing_left=np.array([node.missing_left for node in self.grown]),
            left=np.where(inner, [node.left for node in self.grown], own),
            right=np.where(inner, [node.right for node in self.grown], own),
            value=np.where(inner, 0.0, [share * node.value for node in self.grown]),
            depth=max(node.depth for node in self.grown),
        )


def _derivatives(objective: Objective, scores: Floats, samples: Samples) -> tuple[Floats, Floats]:
    """(n, output) slopes and curvatures of the weighted losses; curvatures are the weights where losses have none."""
    weight = torch.ones(len(scores)) if samples.weight is None else torch.from_numpy(samples.weight)
    at = torch.from_numpy(scores).requires_grad_()
    losses = objective.losses(at, torch.from_numpy(samples.target)) * weight.double()
    (slope,) = torch.autograd.grad(losses.sum(), at, create_graph=not objective.flat)
    if objective.flat:
        return slope.numpy(), weight.double()[:, None].expand_as(slope).numpy()
    curvature = [torch.autograd.grad(slope[:, k].sum(), at, retain_graph=True)[0][:, k] for k in range(at.shape[1])]
    return slope.detach().numpy(), torch.stack(curvature, dim=1).numpy()


def _start(objective: Objective, samples: Samples, outputs: int) -> Floats:
    """The best constant scores."""
    if objective.flat:
        return np.array([_quantile(samples.target, objective.level or 0.5, samples.weight)])
    start = np.zeros(outputs)
    for _ in range(START_STEPS):
        slope, curvature = _derivatives(objective, np.tile(start, (len(samples.x), 1)), samples)
        start -= slope.sum(0) / np.maximum(curvature.sum(0), 1e-12)
    return start


def _mean_loss(objective: Objective, scores: Floats, samples: Samples) -> float:
    losses = objective.losses(torch.from_numpy(scores), torch.from_numpy(samples.target)).numpy()
    return float(np.average(losses, weights=samples.weight))


def _quantile(values: Floats, level: float, weight: NDArray[np.float32] | None) -> float:
    if weight is None:
        return float(np.quantile(values, level))
    return float(np.quantile(values, level, weights=weight, method="inverted_cdf"))
