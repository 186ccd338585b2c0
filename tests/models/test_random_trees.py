"""Trees with random thresholds: splits and leaves against loops, every kind of target, missing values, settings."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from closeness import assert_close

from raindrop.errors import ConfigError
from raindrop.estimators import Classifier
from raindrop.models.boosting import BoostingConfig, Samples
from raindrop.models.growing import grow
from raindrop.models.random_trees import LEVELS, MISSING, Levels
from raindrop.models.trees import Forest
from raindrop.tasks.boosting import ABSOLUTE, BINARY, MULTICLASS, SQUARED, BoostingProblem, quantile

SETTINGS = {
    "engine": "random",
    "rounds": 40,
    "patience": 40,
    "learning_rate": 0.2,
    "leaves": 8,
    "min_samples": 5,
    "l2": 1.0,
}


def samples(seed: int, rows: int = 400, missing: float = 0.2) -> Samples:
    """Six columns, the first two of which tell the target; some values are missing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6)).round(2)
    target = (np.where(x[:, 0] > 0.3, x[:, 1], -x[:, 1]) + 0.3 * rng.normal(size=rows) > 0).astype(float)
    x[rng.random(x.shape) < missing] = np.nan
    return Samples(x, target)


def scores_of(trees, start, x, width: int) -> np.ndarray:
    return Forest(trees)(torch.from_numpy(x)).view(len(x), -1, width).sum(1).numpy() + start


def children(tree, x):
    """The rows of x at each node, found by walking from the root one row at a time."""
    at: dict[int, list[int]] = {0: list(range(len(x)))}
    for node in range(len(tree.value)):
        if tree.left[node] == node:
            continue
        for row in at[node]:
            value = x[row, tree.feature[node]]
            left = tree.missing_left[node] if math.isnan(value) else value <= tree.threshold[node]
            at.setdefault(int(tree.left[node] if left else tree.right[node]), []).append(row)
    return at


def test_codes_are_numbers_of_thresholds_below_a_value_and_thresholds_lie_between_values():
    x = np.array([[1.0, np.nan, 5.0], [2.0, np.nan, 5.0], [4.0, np.nan, np.nan], [2.0, np.nan, 5.0]])
    levels = Levels(x)
    assert [t.tolist() for t in levels.thresholds] == [[1.5, 3.0], [], []]
    assert levels.encode(x).T.tolist() == [[0, MISSING, 0], [1, MISSING, 0], [2, MISSING, MISSING], [1, MISSING, 0]]
    assert levels.value(2, 0) == np.inf  # every value is left of it: the split of known and missing values
    many = np.random.default_rng(0).normal(size=(5000, 1))
    codes = Levels(many).encode(many)[0]
    assert codes.max() == LEVELS - 1
    assert np.bincount(codes).max() < 3 * len(many) / LEVELS


def test_the_first_tree_has_the_best_splits_of_its_thresholds_and_newton_leaves():
    data, config = samples(0), BoostingConfig(**SETTINGS | {"rounds": 1, "leaves": 4})
    (tree,), start = grow(config, BoostingProblem((0,), BINARY), data, None, 3)
    p = data.target.mean()
    assert start[0] == pytest.approx(math.log(p / (1 - p)))
    slope, curvature = p - data.target, np.full(len(data.x), p * (1 - p))
    rows = children(tree, data.x)

    def gain(of: list[int], left: list[bool]) -> float:
        total = 0.0
        for chosen in (np.array(left), ~np.array(left)):
            if chosen.sum() < config.min_samples:
                return 0.0
            total += slope[of][chosen].sum() ** 2 / (curvature[of][chosen].sum() + config.l2)
        return total - slope[of].sum() ** 2 / (curvature[of].sum() + config.l2)

    thresholds = {}  # as far as they show: a tree has one for each column
    for node in range(len(tree.value)):
        if tree.left[node] != node:
            assert thresholds.setdefault(tree.feature[node], tree.threshold[node]) == tree.threshold[node]
    for node, of in rows.items():
        if tree.left[node] == node:
            wanted = -config.learning_rate * slope[of].sum() / (curvature[of].sum() + config.l2)
            assert tree.value[node] == pytest.approx(wanted, rel=1e-4)
            continue
        found = gain(of, [row in rows[int(tree.left[node])] for row in of])
        for column, threshold in thresholds.items():
            value = data.x[of, column]
            for missing_left in (True, False):
                other = gain(of, (np.where(np.isnan(value), missing_left, value <= threshold) > 0).tolist())
                assert found >= other * (1 - 1e-4)


@pytest.mark.parametrize(
    ("objective", "outputs"), [(BINARY, 1), (MULTICLASS, 3), (SQUARED, 1), (ABSOLUTE, 1), (quantile(0.9), 1)]
)
def test_the_loss_on_other_samples_falls_and_stops_where_it_is_lowest(objective, outputs):
    training, validation = samples(1), samples(2)
    if outputs == 3:
        training, validation = (Samples(s.x, s.target + (s.x[:, 2] > 1)) for s in (training, validation))
    elif objective is not BINARY:
        training, validation = (Samples(s.x, s.target + np.nan_to_num(s.x[:, 2])) for s in (training, validation))
    problem = BoostingProblem(tuple(range(outputs)), objective)
    config = BoostingConfig(**SETTINGS | {"members": 2, "rows": 0.7, "patience": 15, "rounds": 200})
    trees, start = grow(config, problem, training, validation, 0)
    rounds = len(trees) // (2 * outputs)
    assert len(trees) == rounds * 2 * outputs
    assert 10 < rounds < 200
    target = torch.from_numpy(validation.target)
    losses = [
        float(objective.losses(torch.from_numpy(found), target).mean())
        for found in (scores_of(trees[: n * 2 * outputs], start, validation.x, outputs) for n in range(rounds + 1))
    ]
    assert int(np.argmin(losses)) == rounds - config.patience
    assert min(losses) < 0.9 * losses[0]


def test_leaves_of_a_quantile_are_quantiles_of_the_residuals_with_weights():
    data = samples(3)
    weight = np.random.default_rng(0).random(len(data.x)).astype(np.float32)
    data = Samples(data.x, data.x[:, 1].copy(), weight)
    data.target[np.isnan(data.target)] = 0.0
    (tree,), start = grow(
        BoostingConfig(**SETTINGS | {"rounds": 1}), BoostingProblem((0,), quantile(0.9)), data, None, 0
    )
    for node, of in children(tree, data.x).items():
        if tree.left[node] == node:
            below = data.target[of] - start[0] <= tree.value[node] / 0.2 + 1e-9
            assert weight[of][below].sum() >= 0.9 * weight[of].sum() - 1e-4
            under = data.target[of] - start[0] < tree.value[node] / 0.2 - 1e-9
            assert weight[of][under].sum() <= 0.9 * weight[of].sum() + 1e-4


def test_weights_count_like_repeated_samples():
    data = samples(4, rows=120)
    counts = np.random.default_rng(0).integers(1, 4, len(data.x))
    config = BoostingConfig(**SETTINGS | {"min_samples": 1, "rounds": 3})
    problem = BoostingProblem((0,), BINARY)
    weighted = grow(config, problem, Samples(data.x, data.target, counts.astype(np.float32)), None, 0)
    repeated = grow(
        config, problem, Samples(np.repeat(data.x, counts, axis=0), np.repeat(data.target, counts)), None, 0
    )
    found, wanted = (scores_of(*both, data.x, 1) for both in (weighted, repeated))
    assert_close(found, wanted, dtype=np.float32, roundings=64)


def test_members_learn_from_parts_and_are_averaged():
    data, problem = samples(5), BoostingProblem((0,), BINARY)
    one, start = grow(BoostingConfig(**SETTINGS), problem, data, None, 0)
    several, _ = grow(BoostingConfig(**SETTINGS | {"members": 4, "rows": 0.5}), problem, data, None, 0)
    assert len(several) == 4 * len(one)
    members = [4 * (scores_of(several[m::4], 0, data.x, 1)) + start for m in range(4)]
    assert_close(scores_of(several, start, data.x, 1), np.mean(members, axis=0))
    assert min(np.abs(a - b).max() for a, b in pairwise(members)) > 0.1
    again, _ = grow(BoostingConfig(**SETTINGS | {"members": 4, "rows": 0.5}), problem, data, None, 0)
    for tree, other in zip(several, again, strict=True):
        np.testing.assert_array_equal(tree.value, other.value)


def test_values_that_are_missing_tell_too_and_empty_columns_do_no_harm():
    data = samples(6, missing=0.0)
    told = np.where(data.target == 1, np.nan, 1.0)  # known or not is all that the column tells
    x = np.stack([told, np.full(len(told), np.nan), np.zeros(len(told))], axis=1)
    trees, start = grow(BoostingConfig(**SETTINGS), BoostingProblem((0,), BINARY), Samples(x, data.target), None, 0)
    scores = scores_of(trees, start, x, 1)[:, 0]
    assert scores[data.target == 1].min() > 2 > -2 > scores[data.target == 0].max()
    alone = Samples(np.full((30, 1), np.nan), np.arange(30) % 2.0)
    trees, start = grow(BoostingConfig(**SETTINGS), BoostingProblem((0,), BINARY), alone, None, 0)
    assert np.abs(scores_of(trees, start, alone.x, 1)).max() < 1e-6


def test_members_and_rows_of_another_engine_are_refused():
    for config in ({"model.members": 3}, {"model.rows": 0.5}, {"model.engine": "lightgbm", "model.members": 2}):
        with pytest.raises(ConfigError, match="members and rows are for engine"):
            Classifier("trees", config=config).resolved()
    with pytest.raises(ConfigError, match="engine"):
        Classifier("blend", config={"model.random_trees.engine": "sklearn"}).resolved()
