"""Ridge regressions out of fold, from which groups of columns are taken away or replaced without solving them anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from raindrop.graphs.past import Floats, Positions


@dataclass(frozen=True, eq=False)
class Regression:
    """A regression for each fold, on the rows outside it; axes: n rows, c columns, f folds."""

    columns: Floats  # (n, c)
    target: Floats  # (n,)
    folds: Sequence[slice]  # (f,) of rows
    gram: Floats  # (f, c, c) of the rows outside each fold
    cross: Floats  # (f, c)
    count: Floats  # (f,)

    @classmethod
    def of(cls, columns: Floats, target: Floats, folds: Sequence[slice]) -> Self:
        gram = np.stack([columns[fold].T @ columns[fold] for fold in folds])
        cross = np.stack([target[fold] @ columns[fold] for fold in folds])
        count = len(target) - np.array([fold.stop - fold.start for fold in folds], dtype=np.float64)
        return cls(columns, target, folds, gram.sum(0) - gram, cross.sum(0) - cross, count)

    def solve(self, penalty: float, kept: NDArray[np.bool_] | None = None) -> list[Floats]:
        """For each fold, (c,) the coefficients; 0 for columns that are not kept. The penalty is per row."""
        index = np.arange(self.cross.shape[1]) if kept is None else np.flatnonzero(kept)
        solutions = []
        for gram, cross, count in zip(self.gram, self.cross, self.count, strict=True):
            left = gram.copy() if kept is None else gram[np.ix_(index, index)]
            left.flat[:: len(index) + 1] += penalty * count
            solutions.append(np.zeros(len(cross)))
            solutions[-1][index] = np.linalg.solve(left, cross[index])
        return solutions

    def predicted(self, solutions: Sequence[Floats]) -> Floats:
        """(n,) the target of each row, from the regression on the other folds."""
        parts = [self.columns[fold] @ each for fold, each in zip(self.folds, solutions, strict=True)]
        return np.concatenate(parts)

    def squares(self, penalty: float) -> Floats:
        """(n,) squared errors out of fold."""
        return self._squares(self.solve(penalty))

    def best(
        self, penalties: Sequence[float] | Floats, kept: NDArray[np.bool_] | None = None
    ) -> tuple[float, Floats, list[Floats]]:
        """The penalty with the lowest error out of fold, (n,) squared errors with it, and the coefficients."""
        results = []
        for penalty in penalties:
            solutions = self.solve(float(penalty), kept)
            results.append((float(penalty), self._squares(solutions), solutions))
        return min(results, key=lambda result: float(result[1].sum()))

    def _squares(self, solutions: Sequence[Floats]) -> Floats:
        squares: Floats = (self.target - self.predicted(solutions)) ** 2
        return squares


class Ridge:
    """The regressions of one penalty, ready to lose columns."""

    def __init__(self, regression: Regression, penalty: float):
        self.regression = regression
        self.penalties = penalty * regression.count  # (f,)
        size = regression.cross.shape[1]
        systems = regression.gram + self.penalties[:, None, None] * np.eye(size)
        self.inverses: Floats = np.linalg.inv(systems).astype(np.float64, copy=False)  # (f, c, c)
        self.solutions = np.einsum("fcd,fd->fc", self.inverses, regression.cross)

    def without(self, removed: NDArray[np.bool_]) -> Without:
        """The same regressions without some columns."""
        return Without(self, np.flatnonzero(removed), np.flatnonzero(~removed))


class Without:
    """Regressions without some columns; R are the columns that remain."""

    def __init__(self, ridge: Ridge, removed: Positions, kept: Positions):
        self.ridge, self.kept = ridge, kept
        self._parts = []
        for inverse, solution in zip(ridge.inverses, ridge.solutions, strict=True):
            beside = inverse[np.ix_(removed, kept)]
            ratio = np.linalg.solve(inverse[np.ix_(removed, removed)], np.column_stack([beside, solution[removed]]))
            self._parts.append((inverse, beside, ratio[:, :-1], solution[kept] - beside.T @ ratio[:, -1]))

    @cached_property
    def squares(self) -> Floats:
        """(n,) squared errors out of fold."""
        regression = self.ridge.regression
        solutions = [self._whole(solution) for *_, solution in self._parts]
        squares: Floats = (regression.target - regression.predicted(solutions)) ** 2
        return squares

    def replaced(self, choices: Sequence[Floats]) -> list[Floats]:
        """For each choice of other columns (n, k) in their place: (n,) squared errors out of fold."""
        regression, kept = self.ridge.regression, self.kept
        new = np.concatenate(choices, axis=1)
        ends = np.cumsum([choice.shape[1] for choice in choices])
        held = [(new[fold].T @ regression.columns[fold], new[fold].T @ new[fold], new[fold].T @ regression.target[fold])
                for fold in regression.folds]  # fmt: skip
        total = [sum(part[at] for part in held) for at in range(3)]
        squares = [np.empty(len(regression.target)) for _ in choices]
        for at, (inverse, beside, ratio, solution) in enumerate(self._parts):
            fold = regression.folds[at]
            columns, target = regression.columns[fold], regression.target[fold]
            cross, own, to_target = (whole - part for whole, part in zip(total, held[at], strict=True))
            cross = cross[:, kept]
            solved = cross @ inverse[np.ix_(kept, kept)] - (cross @ beside.T) @ ratio  # cross times the inverse of R
            for choice, end in enumerate(ends):
                part = slice(end - choices[choice].shape[1], end)
                left = own[part, part] - solved[part] @ cross[part].T
                left.flat[:: len(left) + 1] += self.ridge.penalties[at]
                added = np.linalg.solve(left, to_target[part] - cross[part] @ solution)
                fitted = columns @ self._whole(solution - solved[part].T @ added) + new[fold, part] @ added
                squares[choice][fold] = (target - fitted) ** 2
        return squares

    def _whole(self, solution: Floats) -> Floats:
        whole = np.zeros(self.ridge.regression.cross.shape[1])
        whole[self.kept] = solution
        return whole
