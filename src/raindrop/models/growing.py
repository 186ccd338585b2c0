"""Grow boosted trees with scikit-learn, LightGBM or random thresholds, and convert them to plain arrays.

scikit-learn keeps its trees in private attributes (`_predictors`, `_baseline_prediction`), which is why pyproject.toml
caps its version.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from raindrop.errors import MissingExtraError
from raindrop.models.boosting import BoostingConfig, Nodes, Samples
from raindrop.models.random_trees import grow_random
from raindrop.tasks.boosting import BoostingProblem


def grow(
    config: BoostingConfig, problem: BoostingProblem, training: Samples, validation: Samples | None, seed: int
) -> tuple[list[Nodes], NDArray[np.float64]]:
    """Trees by round, within a round one per member and output of the problem, and the scores before the first round.

    A column without any value in training is left out: it cannot be split, and scikit-learn fails on it.
    """
    usable = np.flatnonzero(~np.isnan(training.x).all(0))
    training, validation = training.only(usable), None if validation is None else validation.only(usable)
    engine = {"sklearn": _grow_sklearn, "lightgbm": _grow_lightgbm, "random": grow_random}[config.engine]
    trees, baseline = engine(config, problem, training, validation, seed)
    column = usable if len(usable) else np.zeros(1, dtype=np.int64)
    return [replace(tree, feature=column[tree.feature]) for tree in trees], baseline


def _grow_sklearn(
    config: BoostingConfig, problem: BoostingProblem, training: Samples, validation: Samples | None, seed: int
) -> tuple[list[Nodes], NDArray[np.float64]]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    settings: dict[str, Any] = {
        "max_iter": config.rounds,
        "learning_rate": config.learning_rate,
        "max_leaf_nodes": config.leaves,
        "min_samples_leaf": config.min_samples,
        "l2_regularization": config.l2,
        "max_features": config.columns,
        "early_stopping": validation is not None,
        "n_iter_no_change": config.patience,
        "tol": 0.0,
        "random_state": seed,
    }
    objective = problem.objective
    if objective.sklearn == "log_loss":
        model = HistGradientBoostingClassifier(**settings)
    else:
        model = HistGradientBoostingRegressor(loss=objective.sklearn, quantile=objective.level, **settings)
    held_out = {}
    if validation is not None:
        held_out = {"X_val": validation.x, "y_val": validation.target, "sample_weight_val": validation.weight}
    model.fit(training.x, training.target, sample_weight=training.weight, **held_out)
    trees = []
    for tree in (tree for round_trees in model._predictors for tree in round_trees):
        nodes, leaf = tree.nodes, tree.nodes["is_leaf"].astype(bool)
        own = np.arange(len(nodes))
        trees.append(
            Nodes(
                feature=np.where(leaf, 0, nodes["feature_idx"]),
                threshold=nodes["num_threshold"],
                missing_left=nodes["missing_go_to_left"].astype(bool),
                left=np.where(leaf, own, nodes["left"]),
                right=np.where(leaf, own, nodes["right"]),
                value=np.where(leaf, nodes["value"], 0.0),
                depth=int(nodes["depth"].max()),
            )
        )
    return trees, model._baseline_prediction.reshape(-1)


def _grow_lightgbm(
    config: BoostingConfig, problem: BoostingProblem, training: Samples, validation: Samples | None, seed: int
) -> tuple[list[Nodes], NDArray[np.float64]]:
    """LightGBM's trees, the first of which contain the initial scores."""
    try:
        import lightgbm
    except ImportError:
        raise MissingExtraError("lightgbm", "trees", "Growing trees with LightGBM") from None
    settings = {
        "objective": problem.objective.lightgbm,
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
    if len(problem.outputs) > 1:
        settings["num_class"] = len(problem.outputs)
    if problem.objective.level is not None:
        settings["alpha"] = problem.objective.level
    data = lightgbm.Dataset(training.x, training.target, weight=training.weight)
    held_out: list[Any] = []
    stop: list[Any] = []
    if validation is not None:
        held_out = [lightgbm.Dataset(validation.x, validation.target, weight=validation.weight, reference=data)]
        stop = [lightgbm.early_stopping(config.patience, verbose=False)]
    model = lightgbm.train(settings, data, config.rounds, valid_sets=held_out, callbacks=stop)
    grown = model.dump_model(num_iteration=model.current_iteration())["tree_info"]
    return [_read_lightgbm(tree["tree_structure"]) for tree in grown], np.zeros(len(problem.outputs))


def _read_lightgbm(root: dict[str, Any]) -> Nodes:
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
        # If training had no missing values, LightGBM treats a missing value as 0.
        missing_left = node["default_left"] if node["missing_type"] == "NaN" else node["threshold"] >= 0
        rows.append([node["split_feature"], node["threshold"], missing_left, -1, -1, 0.0])
        waiting += [(node["right_child"], at, depth + 1), (node["left_child"], at, depth + 1)]  # left comes first
    feature, threshold, missing, left, right, value = (np.array(column) for column in zip(*rows, strict=True))
    return Nodes(feature, threshold.astype(np.float64), missing.astype(bool), left, right, value, deepest)
