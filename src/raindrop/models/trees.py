"""Trees: gradient boosting on summaries of each sensor and the statics, the baseline that every network must beat.

Boosting as in Friedman, "Greedy function approximation" (Annals of Statistics 2001), grown on histograms by
scikit-learn or by LightGBM (Ke et al., NeurIPS 2017; boosting.py). A score of the task, such as a logit, is

    F(x) = F^0 + sum over rounds m of f_m(x),

where x are the summaries (`summaries.SUMMARIES`: count, mean, min, max, standard deviation, first, last, last - first,
time of last) of each sensor's readings, all missing for a sensor without readings, and f_m is a tree. Whichever library
is used, the trees are converted to plain tensors that this file evaluates, so they are saved and loaded like any
weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.batch.collate import BatchSource
from raindrop.batch.summaries import details_of, summaries_of
from raindrop.errors import ModelFileError, RaindropWarning, format_count
from raindrop.models.base import DataSpec, DirectModel, Output
from raindrop.models.boosting import BoostingConfig, Nodes, Samples, TreesConfig
from raindrop.models.growing import grow
from raindrop.table.blocks import is_large
from raindrop.tasks.boosting import BoostingProblem

CHUNK = 1024  # samples summarised at a time in training
MAX_COLUMNS = 1 << 26  # maximum size of the training data of trees from a large table (0.5 GB)
TREES_AT_ONCE = 512  # evaluated together: more do not fit into the cache (9,500 trees: 9.1 s, in parts 3.4 s)
MANY_ROWS = 2048  # from this many samples on, trees are evaluated node by node
RECENT_SHARE = 8  # "recent" looks back over this fraction (1 / RECENT_SHARE) of the window

NODE_ARRAYS = {
    "feature": np.int64,
    "threshold": np.float64,
    "missing_left": np.bool_,
    "left": np.int64,
    "right": np.int64,
    "value": np.float64,
}


class Forest(nn.Module):
    """Trees as tensors: the nodes of all trees, one tree after another."""

    root: Tensor  # (tree,)
    feature: Tensor  # (node,) and so on
    threshold: Tensor
    missing_left: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    depth: Tensor  # () steps from a root to the farthest leaf

    def __init__(self, trees: Sequence[Nodes] = ()):
        super().__init__()
        size = np.array([len(tree.value) for tree in trees], dtype=np.int64)
        start = np.cumsum(size) - size
        self.register_buffer("root", torch.from_numpy(start))
        for name, kind in NODE_ARRAYS.items():
            joined = np.concatenate([np.zeros(0, dtype=kind), *(getattr(tree, name) for tree in trees)])
            if name in ("left", "right"):
                joined += np.repeat(start, size)
            self.register_buffer(name, torch.from_numpy(joined))
        self.register_buffer("depth", torch.tensor(max((tree.depth for tree in trees), default=0)))

    def forward(self, x: Tensor) -> Tensor:
        """f(x) of every tree: (b, column) -> (b, tree)."""
        if len(x) >= MANY_ROWS and x.device.type == "cpu":
            return self._evaluate_by_node(x)
        parts = [self._evaluate(x, roots) for roots in torch.split(self.root, TREES_AT_ONCE)]
        return torch.cat(parts, dim=1) if parts else x.new_zeros(len(x), 0)

    def _evaluate(self, x: Tensor, roots: Tensor) -> Tensor:
        """(b, column), (tree,) -> (b, tree): all samples descend these trees in parallel."""
        node = roots.expand(len(x), -1)  # (b, tree)
        for _ in range(int(self.depth)):
            value = x.gather(1, self.feature[node])
            to_left = torch.where(value.isnan(), self.missing_left[node], value <= self.threshold[node])
            node = torch.where(to_left, self.left[node], self.right[node])
        return self.value[node]

    def _evaluate_by_node(self, x: Tensor) -> Tensor:
        """The same node by node, each for the samples that reach it; four times as fast if they are many."""
        columns = np.ascontiguousarray(x.numpy().T)
        feature, threshold, missing_left, left, right, value = (getattr(self, name).numpy() for name in NODE_ARRAYS)
        result, deepest = np.empty((len(self.root), len(x))), int(self.depth)
        for tree, root in enumerate(self.root.tolist()):
            waiting = [(root, 0, np.arange(len(x)))]
            while waiting:
                node, depth, rows = waiting.pop()
                if left[node] == right[node] == node or depth == deepest:
                    result[tree, rows] = value[node]
                elif len(rows):
                    seen = columns[feature[node], rows]
                    to_left = seen <= threshold[node]
                    if missing_left[node]:
                        to_left |= np.isnan(seen)
                    waiting.append((int(left[node]), depth + 1, rows[to_left]))
                    waiting.append((int(right[node]), depth + 1, rows[~to_left]))
        return torch.from_numpy(np.ascontiguousarray(result.T))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """The number of nodes is learned too, so the buffers are resized to what is loaded."""
        resize_buffers(self, state_dict, prefix, ("root", *NODE_ARRAYS))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._check()

    def _check(self) -> None:
        """Raise a ValueError if nodes have invalid children, or if a path is longer than the number of nodes."""
        nodes = len(self.value)
        arrays = [getattr(self, name) for name in NODE_ARRAYS]
        inner = torch.cat([tensor.flatten() for tensor in (self.root, self.left, self.right)])
        if (
            any(tensor.shape != (nodes,) for tensor in arrays)
            or self.root.ndim != 1
            or not 0 <= int(self.depth) <= nodes
            or bool(((inner < 0) | (inner >= nodes)).any())
            or bool((self.feature < 0).any())
        ):
            raise ValueError("the nodes of its trees do not fit together")


class Trees(DirectModel):
    """Boosted trees over `summaries_of` a batch and its statics."""

    needs_cells = False
    forest: Forest
    output: Tensor  # (tree,) the score each tree adds to
    baseline: Tensor  # (output,) F^0

    def __init__(self, config: BoostingConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config, self.task = config, spec.task
        self.recent = max(spec.window[1] - spec.window[0], 1e-9) / RECENT_SHARE
        self._set_trees([], np.zeros(0, dtype=np.int64), np.zeros(spec.num_outputs))

    def _set_trees(self, trees: Sequence[Nodes], output: NDArray[np.int64], baseline: NDArray[np.float64]) -> None:
        self.forest = Forest(trees)
        self.register_buffer("output", torch.from_numpy(output))
        self.register_buffer("baseline", torch.from_numpy(baseline.astype(np.float64)))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        resize_buffers(self, state_dict, prefix, ("output",))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        trees = state_dict.get(prefix + "forest.root")
        if trees is not None and self.output.shape != trees.shape:
            raise ValueError("not every one of its trees has a score that it adds to")
        if self.output.ndim != 1 or bool(((self.output < 0) | (self.output >= len(self.baseline))).any()):
            raise ValueError(f"its trees are not for {len(self.baseline)} scores")

    # ---------------------------------------------------------------- predicting

    def forward(self, batch: Batch) -> Output:
        columns = self.columns(batch)
        scores = self.score_columns(columns)
        summaries = columns[:, : columns.shape[1] - batch.statics.shape[1]]
        return Output(scores.float(), summaries.nan_to_num(0.0).float(), scores.new_zeros(()).float())

    def score_columns(self, columns: Tensor) -> Tensor:
        """(b, column) -> (b, output) in double precision."""
        features = self.forest.feature
        if len(features) and int(features.max()) >= columns.shape[1]:
            raise ModelFileError(f"Its trees look at column {int(features.max()):,}; there are {columns.shape[1]:,}.")
        return self.baseline.repeat(len(columns), 1).index_add(1, self.output, self.forest(columns))

    def columns(self, batch: Batch) -> Tensor:
        """(b, column): the summaries of all sensors, and the statics."""
        parts = [summaries_of(batch).flatten(1)]  # (b, u 9)
        if cast(TreesConfig, self.config).summaries == "more":
            parts += [part.flatten(1) for part in details_of(batch, self.recent)]
        return torch.cat([*parts, batch.statics.double()], dim=1)

    # ---------------------------------------------------------------- learning

    def fit(self, training: BatchSource, validation: BatchSource | None, seed: int) -> list[dict[str, Any]]:
        """Fit the trees; with validation samples, keep the number of rounds with the lowest loss on them."""
        return self.fit_rows(
            self.rows_of(training, seed), None if validation is None else self.rows_of(validation, seed), seed
        )

    def fit_rows(self, rows: Samples, rows_validation: Samples | None, seed: int) -> list[dict[str, Any]]:
        """The same from columns that are already computed."""
        trees: list[Nodes] = []
        output: list[int] = []
        baseline = np.zeros(len(self.baseline))
        histories: list[tuple[list[float], list[float]]] = []
        for problem in self.task.boosting_problems():
            known = select(rows, problem)
            held_out = None if rows_validation is None else select(rows_validation, problem)
            held_out = None if held_out is None or not len(held_out.x) else held_out
            grown, start = grow(self.config, problem, known, held_out, seed)
            members = self.config.members
            losses = round_losses(problem, grown, start, known, members)
            held_out_losses = [] if held_out is None else round_losses(problem, grown, start, held_out, members)
            rounds = int(np.argmin(held_out_losses)) + 1 if held_out_losses else len(losses)
            trees += grown[: rounds * members * len(problem.outputs)]
            output += list(problem.outputs) * rounds * members
            baseline[list(problem.outputs)] = start
            histories.append((losses, held_out_losses))
        self._set_trees(trees, np.array(output, dtype=np.int64), baseline)
        self.eval()
        return merge_histories(histories, self.task.loss_name)

    def rows_of(self, data: BatchSource, seed: int) -> Samples:
        """The columns of all samples, or of a random part of a large table, with their targets and weights.

        With `hide_sensors`, the same samples follow once more without some of their sensors.
        """
        share = cast(TreesConfig, self.config).hide_sensors
        chosen = self.drawn(data, seed, copies=2 if share else 1)
        chunks = np.split(chosen, range(CHUNK, len(chosen), CHUNK))
        x = [self.columns(data.batch(positions)).numpy() for positions in chunks]
        targets, weights = cast(NDArray[Any], data.targets), data.weights
        if len(chosen) < len(data):
            targets, weights = targets[chosen], None if weights is None else weights[chosen]
        if not share:
            return Samples(np.concatenate(x), targets, weights)
        rng = np.random.default_rng(seed)
        x += [self.columns(data.batch(positions, rng=rng, drop_sensors=share)).numpy() for positions in chunks]
        twice = None if weights is None else np.concatenate([weights, weights])
        return Samples(np.concatenate(x), np.concatenate([targets, targets]), twice)

    def drawn(self, data: BatchSource, seed: int, copies: int) -> NDArray[np.int64]:
        """The samples to learn from, with `copies` rows each: all, or so many of a large table that their columns are
        at most MAX_COLUMNS."""
        if not is_large(data.table.time):
            return np.arange(len(data))
        width = self.columns(data.batch(np.zeros(1, dtype=np.int64))).shape[1]
        most = max(1, MAX_COLUMNS // (width * copies))
        if len(data) <= most:
            return np.arange(len(data))
        warnings.warn(
            f"Trees learn from {format_count(most, len(data), 'samples')}, drawn with the seed: the summaries of all "
            f"of them would take {len(data) * width * 8 / 1e9:.1f} GB of memory.",
            RaindropWarning,
            stacklevel=3,
        )
        return np.sort(np.random.default_rng(seed).choice(len(data), most, replace=False))


def select(rows: Samples, problem: BoostingProblem) -> Samples:
    """The rows with a known target for this problem."""
    target = problem.targets(rows.target)
    known = ~np.isnan(target) if target.dtype.kind == "f" else np.ones(len(target), dtype=bool)
    if known.all():
        return Samples(rows.x, target, rows.weight)
    weight = None if rows.weight is None else rows.weight[known]
    return Samples(rows.x[known], target[known], weight)


def round_losses(
    problem: BoostingProblem, trees: Sequence[Nodes], start: NDArray[np.float64], samples: Samples, members: int
) -> list[float]:
    """The mean loss after each round, of one tree per member and output."""
    forest, width = Forest(trees), len(problem.outputs)
    weight = np.ones(len(samples.x)) if samples.weight is None else samples.weight.astype(np.float64)
    columns = (torch.split(torch.from_numpy(column), MANY_ROWS) for column in (samples.x, samples.target, weight))
    total = torch.zeros(len(trees) // (members * width), dtype=torch.float64)
    for x, target, count in zip(*columns, strict=True):
        by_round = forest(x).view(len(x), -1, members, width).sum(2)
        scores = by_round.cumsum(1) + torch.from_numpy(start)  # (b, round, output)
        losses = problem.objective.losses(scores.flatten(0, 1), target.repeat_interleave(scores.shape[1]))
        total += (losses.view(len(x), -1) * count[:, None]).sum(0)
    return cast(list[float], (total / weight.sum()).tolist())


def merge_histories(histories: Sequence[tuple[list[float], list[float]]], loss_name: str) -> list[dict[str, Any]]:
    """One record per round: the mean over problems, each with its last value after it has stopped."""

    def mean(at: int, lists: Sequence[list[float]]) -> float:
        return float(np.mean([losses[min(at, len(losses) - 1)] for losses in lists if losses]))

    records: list[dict[str, Any]] = []
    held_out = [losses for _, losses in histories if losses]
    for at in range(max(len(losses) for losses, _ in histories)):
        records.append({"epoch": at + 1, "loss": mean(at, [losses for losses, _ in histories])})
        if held_out:
            records[-1]["validation"] = {loss_name: mean(at, held_out)}
    return records


def resize_buffers(module: nn.Module, state_dict: Any, prefix: str, names: Sequence[str]) -> None:
    """Resize these buffers to the shapes of what is loaded into them."""
    for name in names:
        if prefix + name in state_dict:
            setattr(module, name, getattr(module, name).new_empty(state_dict[prefix + name].shape))
