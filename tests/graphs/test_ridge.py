"""Regressions that lose columns, or have others in their place, are those that are solved from the start."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import assert_close

from raindrop.graphs.past import LAGS, Past, Rows
from raindrop.graphs.ridge import Regression, Ridge
from raindrop.table.event_table import EventTable

CONDITION = 1e4  # of the systems that are solved: by so much rounding grows
FOLDS = [slice(0, 20), slice(20, 50), slice(50, 60)]


@pytest.fixture
def regression() -> Regression:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(60, 8)) @ rng.normal(size=(8, 8))
    return Regression.of(columns, columns @ rng.normal(size=8) + rng.normal(size=60), FOLDS)


def by_hand(columns: np.ndarray, target: np.ndarray, penalty: float) -> np.ndarray:
    squares = np.empty(60)
    for fold in FOLDS:
        outside = np.ones(60, dtype=bool)
        outside[fold] = False
        x, y = columns[outside], target[outside]
        solution = np.linalg.solve(x.T @ x + penalty * outside.sum() * np.eye(x.shape[1]), x.T @ y)
        squares[fold] = (target[fold] - columns[fold] @ solution) ** 2
    return squares


def test_errors_are_out_of_fold(regression):
    assert_close(regression.squares(0.1), by_hand(regression.columns, regression.target, 0.1), magnitude=CONDITION)


def test_removed_columns_are_as_if_they_had_never_been_there(regression):
    removed = np.isin(np.arange(8), [1, 4, 5])
    solutions = Ridge(regression, 0.1).without(removed).solutions
    squares = (regression.target - regression.predicted(solutions)) ** 2
    assert_close(squares, by_hand(regression.columns[:, ~removed], regression.target, 0.1), magnitude=CONDITION)
    assert_close(solutions, regression.solve(0.1, ~removed), magnitude=CONDITION)


def test_replaced_columns_are_as_if_they_had_been_there_from_the_start(regression):
    rng = np.random.default_rng(1)
    removed = np.isin(np.arange(8), [0, 6])
    choices = [rng.normal(size=(60, 3)), rng.normal(size=(60, 1))]
    found = Ridge(regression, 0.2).without(removed).replaced(choices)
    for squares, new in zip(found, choices, strict=True):
        columns = np.concatenate([regression.columns[:, ~removed], new], axis=1)
        assert_close(squares, by_hand(columns, regression.target, 0.2), magnitude=CONDITION)


def test_the_grid_of_a_first_look_never_sees_the_present():
    rng = np.random.default_rng(2)
    time = np.sort(rng.uniform(0, 50, 80))
    table = EventTable.from_columns(["a"] * 80, time, ["u", "v"] * 40, rng.normal(size=80))
    past = Past.of(table)
    rows = Rows(np.zeros(1, dtype=np.int64), np.array([30.0]))
    seen = np.stack(list(past.on_grid(rows)))
    assert seen.shape == (len(LAGS), 1, 2)
    later = Past(past.time, np.where(past.time >= 30, 99.0, past.value), past.offsets, 2, past.interval, past.memory,
                 past.first, past.last)  # fmt: skip
    np.testing.assert_array_equal(np.stack(list(later.on_grid(rows))), seen)
