"""Trees: summaries of each sensor and the statics into gradient boosting, the yardstick for every network.

Boosting as in Friedman, "Greedy function approximation" (Annals of Statistics 2001), grown on histograms by
scikit-learn or by LightGBM (Ke et al., NeurIPS 2017). The score of class c is

    F_c(x) = F_c^0 + sum over rounds m of f_mc(x),    p = softmax(F), for two classes p = sigmoid(F),

where x are the summaries (`summaries.SUMMARIES`: count, mean, min, max, standard deviation, first, last,
last - first, time of last) of each sensor's readings, none of them for a sensor without readings, and f_mc is a tree.
Whoever grew them, the trees end as plain tensors that this file walks, so they are saved and loaded like any weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator
from raindrop.batch.summaries import details_of, summaries_of
from raindrop.errors import MissingExtraError
from raindrop.models.base import DataSpec, DirectModel, Output

CHUNK = 1024  # samples summarised at once while learning
AT_ONCE = 512  # trees walked at once: more fall out of the cache (9,500 trees: 9.1 s, in parts 3.4 s)
RECENT = 8  # of a window so many parts are as long as "recent" looks back


@dataclass(frozen=True, kw_only=True)
class TreesConfig:
    """How the trees are grown."""

    engine: Literal["sklearn", "lightgbm"] = "sklearn"
    """Who grows them: scikit-learn, or LightGBM (extra `trees`)."""
    summaries: Literal["nine", "more"] = "nine"
    """What they see of a sensor: nine summaries, or also details such as slope and time since the last reading."""
    rounds: int = 1000
    """Most rounds of boosting, one tree per round, or one per class and round where there are more than two."""
    patience: int = 50
    """Stop after this many rounds without a lower validation loss; needs validation samples."""
    learning_rate: float = 0.05
    """Share of each tree's correction that is applied."""
    leaves: int = 31
    """Most leaves of a tree."""
    min_samples: int = 20
    """Fewest training samples in a leaf."""
    l2: float = 0.0
    """Pull of the leaf values towards zero."""
    columns: float = 1.0
    """Share of the summaries a tree (LightGBM) or a split (scikit-learn) may choose from, drawn at random."""

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("patience", 1), ("leaves", 2), ("min_samples", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}.")
        if not 0 < self.columns <= 1:
            raise ValueError(f"columns is a share of the summaries, above 0 and up to 1, not {self.columns}.")
        if self.learning_rate <= 0 or self.l2 < 0:
            raise ValueError("learning_rate must be positive and l2 at least 0.")


Labelled = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True)
class Nodes:
    """One tree, by node; node 0 is the root, and a leaf is its own child."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]  # a value up to this goes left
    missing_left: NDArray[np.bool_]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: NDArray[np.float64]  # of a leaf, 0 within
    depth: int


class Trees(DirectModel):
    """Gradient-boosted trees over `summaries_of` a batch and its statics."""

    root: Tensor  # (tree,) in order of rounds, within a round of classes
    feature: Tensor  # (node,) and so on, the nodes of all trees
    threshold: Tensor
    missing_left: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    depth: Tensor  # () steps from a root to the farthest leaf
    baseline: Tensor  # (score,) F^0

    def __init__(self, config: TreesConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.config = config
        self.recent = max(spec.window[1] - spec.window[0], 1e-9) / RECENT
        self.scores = 1 if spec.num_classes == 2 else spec.num_classes
        self._hold([], np.zeros(self.scores))

    def _hold(self, trees: Sequence[Nodes], baseline: NDArray[np.float64]) -> None:
        """Take these trees as buffers."""
        size = np.array([len(tree.value) for tree in trees], dtype=np.int64)
        start = np.cumsum(size) - size
        self.register_buffer("root", torch.from_numpy(start))
        for name, kind in (("feature", np.int64), ("threshold", np.float64), ("missing_left", np.bool_),
                           ("left", np.int64), ("right", np.int64), ("value", np.float64)):  # fmt: skip
            joined = np.concatenate([np.zeros(0, dtype=kind), *(getattr(tree, name) for tree in trees)])
            if name in ("left", "right"):
                joined += np.repeat(start, size)
            self.register_buffer(name, torch.from_numpy(joined))
        self.register_buffer("depth", torch.tensor(max((tree.depth for tree in trees), default=0)))
        self.register_buffer("baseline", torch.from_numpy(baseline.astype(np.float64)))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """The number of nodes is learned too, so room is made for what comes."""
        for name, held in list(self.named_buffers(recurse=False)):
            if prefix + name in state_dict:
                setattr(self, name, held.new_empty(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    # ---------------------------------------------------------------- using

    def forward(self, batch: Batch) -> Output:
        columns = self.columns(batch)
        score = self.leaves_of(columns).sum(1) + self.baseline
        logits = score if self.scores > 1 else torch.cat([torch.zeros_like(score), score], dim=1)
        summaries = columns[:, : columns.shape[1] - batch.statics.shape[1]]
        return Output(logits.float(), summaries.nan_to_num(0.0).float(), logits.new_zeros(()).float())

    def columns(self, batch: Batch) -> Tensor:
        """(b, column): the summaries of all sensors, and the statics."""
        seen = [summaries_of(batch).flatten(1)]  # (b, u 9)
        if self.config.summaries == "more":
            seen += [part.flatten(1) for part in details_of(batch, self.recent)]
        return torch.cat([*seen, batch.statics.double()], dim=1)

    def leaves_of(self, x: Tensor) -> Tensor:
        """f(x) of every tree: (b, column) -> (b, round, score)."""
        value = torch.cat([self._walk(x, roots) for roots in torch.split(self.root, AT_ONCE)], dim=1)
        return value.view(len(x), -1, self.scores)

    def _walk(self, x: Tensor, roots: Tensor) -> Tensor:
        """(b, column), (tree,) -> (b, tree): all samples walk down these trees in step."""
        node = roots.expand(len(x), -1)  # (b, tree)
        for _ in range(int(self.depth)):
            value = x.gather(1, self.feature[node])
            to_left = torch.where(value.isnan(), self.missing_left[node], value <= self.threshold[node])
            node = torch.where(to_left, self.left[node], self.right[node])
        return self.value[node]

    # ---------------------------------------------------------------- learning

    def fit(self, training: Collator, validation: Collator | None, seed: int) -> list[dict[str, Any]]:
        """Grow trees; with validation samples, keep the number of rounds with the lowest log loss on them."""
        known = self.table_of(training)
        held_out = None if validation is None else self.table_of(validation)
        grow = {"sklearn": grow_sklearn, "lightgbm": grow_lightgbm}[self.config.engine]
        trees, baseline = grow(self.config, known, held_out, self.scores, seed)
        self._hold(trees, baseline)
        losses = self._losses(*known)
        history: list[dict[str, Any]] = [{"epoch": at + 1, "loss": loss} for at, loss in enumerate(losses)]
        if held_out is not None:
            held_out_losses = self._losses(*held_out)
            for record, loss in zip(history, held_out_losses, strict=True):
                record["validation"] = {"log_loss": loss}
            kept = int(np.argmin(held_out_losses)) + 1
            self._hold(trees[: kept * self.scores], baseline)
        self.eval()
        return history

    def table_of(self, data: Collator) -> Labelled:
        """(samples, columns) and the labels, of all samples."""
        chunks = np.split(np.arange(len(data)), range(CHUNK, len(data), CHUNK))
        columns = [self.columns(data.batch(positions)).numpy() for positions in chunks]
        return np.concatenate(columns), cast(NDArray[np.int64], data.labels)

    def _losses(self, x: NDArray[np.float64], label: NDArray[np.int64]) -> list[float]:
        """The mean log loss after each round."""
        total = torch.zeros(len(self.root) // self.scores, dtype=torch.float64)
        parts = (torch.split(torch.from_numpy(rows), CHUNK) for rows in (x, label))
        for part, wanted in zip(*parts, strict=True):
            score = self.leaves_of(part).cumsum(1) + self.baseline  # (b, round, score)
            if self.scores == 1:
                score = torch.cat([torch.zeros_like(score), score], dim=2)
            loss = F.cross_entropy(score.flatten(0, 1), wanted.repeat_interleave(score.shape[1]), reduction="none")
            total += loss.view(len(part), -1).sum(0)
        return cast(list[float], (total / len(x)).tolist())


def grow_sklearn(
    config: TreesConfig, training: Labelled, validation: Labelled | None, scores: int, seed: int
) -> tuple[list[Nodes], NDArray[np.float64]]:
    """scikit-learn's histogram boosting; its trees and F^0."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=config.rounds,
        learning_rate=config.learning_rate,
        max_leaf_nodes=config.leaves,
        min_samples_leaf=config.min_samples,
        l2_regularization=config.l2,
        max_features=config.columns,
        early_stopping=validation is not None,
        n_iter_no_change=config.patience,
        tol=0.0,
        random_state=seed,
    )
    held_out = {} if validation is None else {"X_val": validation[0], "y_val": validation[1]}
    model.fit(*training, **held_out)
    trees = []
    for grown in (tree for tier in model._predictors for tree in tier):
        node, leaf = grown.nodes, grown.nodes["is_leaf"].astype(bool)
        own = np.arange(len(node))
        trees.append(
            Nodes(
                feature=np.where(leaf, 0, node["feature_idx"]),
                threshold=node["num_threshold"],
                missing_left=node["missing_go_to_left"].astype(bool),
                left=np.where(leaf, own, node["left"]),
                right=np.where(leaf, own, node["right"]),
                value=np.where(leaf, node["value"], 0.0),
                depth=int(node["depth"].max()),
            )
        )
    return trees, model._baseline_prediction.reshape(-1)


def grow_lightgbm(
    config: TreesConfig, training: Labelled, validation: Labelled | None, scores: int, seed: int
) -> tuple[list[Nodes], NDArray[np.float64]]:
    """LightGBM's boosting; its trees, the first of which hold F^0."""
    try:
        import lightgbm
    except ImportError:
        raise MissingExtraError("lightgbm", "trees", "Growing trees with LightGBM") from None
    settings = {
        "objective": "binary" if scores == 1 else "multiclass",
        "learning_rate": config.learning_rate,
        "num_leaves": config.leaves,
        "min_data_in_leaf": config.min_samples,
        "lambda_l2": config.l2,
        "feature_fraction": config.columns,
        "seed": seed,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": torch.get_num_threads(),
        "verbose": -1,
    }
    if scores > 1:
        settings["num_class"] = scores
    data = lightgbm.Dataset(*training)
    held_out = [] if validation is None else [lightgbm.Dataset(*validation, reference=data)]
    stop: list[Any] = [lightgbm.early_stopping(config.patience, verbose=False)] if held_out else []
    model = lightgbm.train(settings, data, config.rounds, valid_sets=held_out, callbacks=stop)
    grown = model.dump_model(num_iteration=model.current_iteration())["tree_info"]
    return [read_lightgbm(tree["tree_structure"]) for tree in grown], np.zeros(scores)


def read_lightgbm(root: dict[str, Any]) -> Nodes:
    """A tree as LightGBM describes it, node by node from the root down."""
    rows: list[list[Any]] = []
    deepest = 0
    waiting: list[tuple[dict[str, Any], int, int]] = [(root, -1, 0)]  # node, row of its parent, depth
    while waiting:
        node, parent, depth = waiting.pop()
        at, deepest = len(rows), max(deepest, depth)
        if parent >= 0:
            rows[parent][4 if rows[parent][3] >= 0 else 3] = at
        if "split_index" not in node:
            rows.append([0, 0.0, False, at, at, node["leaf_value"]])
            continue
        # Where training met nothing missing, LightGBM reads a missing value as 0.
        missing_left = node["default_left"] if node["missing_type"] == "NaN" else node["threshold"] >= 0
        rows.append([node["split_feature"], node["threshold"], missing_left, -1, -1, 0.0])
        waiting += [(node["right_child"], at, depth + 1), (node["left_child"], at, depth + 1)]  # left comes first
    feature, threshold, missing, left, right, value = (np.array(column) for column in zip(*rows, strict=True))
    return Nodes(feature, threshold.astype(np.float64), missing.astype(bool), left, right, value, deepest)
