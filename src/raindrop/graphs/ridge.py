"""Out-of-fold ridge regressions; groups of columns are removed or replaced without solving them from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from raindrop.graphs.past import Floats, Positions


@dataclass(frozen=True, eq=False)
class System:
    """The sums of one regression for each fold, over the rows outside it; axes: c columns, f folds."""

    gram: Floats  # (f, c, c)
    cross: Floats  # (f, c)
    count: Floats  # (f,) rows

    def solve(self, penalty: float, kept: NDArray[np.bool_] | None = None) -> Floats:
        """(f, c) the coefficients; 0 for columns that are not kept. The penalty is per row."""
        index = np.arange(self.cross.shape[1]) if kept is None else np.flatnonzero(kept)
        solutions = np.zeros(self.cross.shape)
        for at, (gram, cross, count) in enumerate(zip(self.gram, self.cross, self.count, strict=True)):
            left = gram.copy() if kept is None else gram[np.ix_(index, index)]
            left.flat[:: len(index) + 1] += penalty * count
            solutions[at, index] = np.linalg.solve(left, cross[index])
        return solutions


@dataclass(frozen=True, eq=False)
class Regression(System):
    """A system that keeps all n rows."""

    columns: Floats  # (n, c)
    target: Floats  # (n,)
    folds: Sequence[slice]  # (f,) of rows

    @classmethod
    def of(cls, columns: Floats, target: Floats, folds: Sequence[slice]) -> Self:
        gram = np.stack([columns[fold].T @ columns[fold] for fold in folds])
        cross = np.stack([target[fold] @ columns[fold] for fold in folds])
        count = len(target) - np.array([fold.stop - fold.start for fold in folds], dtype=np.float64)
        return cls(gram.sum(0) - gram, cross.sum(0) - cross, count, columns, target, folds)

    def predicted(self, solutions: Sequence[Floats] | Floats) -> Floats:
        """(n,) the prediction for each row, from the regression on the other folds."""
        parts = [self.columns[fold] @ each for fold, each in zip(self.folds, solutions, strict=True)]
        return np.concatenate(parts)

    def squares(self, penalty: float) -> Floats:
        """(n,) squared out-of-fold errors."""
        squares: Floats = (self.target - self.predicted(self.solve(penalty))) ** 2
        return squares


class Ridge:
    """The regressions with one penalty, prepared for removing columns."""

    def __init__(self, system: System, penalty: float):
        self.system = system
        self.penalties = penalty * system.count  # (f,)
        size = system.cross.shape[1]
        systems = system.gram + self.penalties[:, None, None] * np.eye(size)
        self.inverses: Floats = np.linalg.inv(systems).astype(np.float64, copy=False)  # (f, c, c)
        self.solutions = np.einsum("fcd,fd->fc", self.inverses, system.cross)

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

    @property
    def solutions(self) -> Floats:
        """(f, c) the coefficients; 0 for the columns that were removed."""
        return np.stack([self._whole(solution) for *_, solution in self._parts])

    def replaced(self, choices: Sequence[Floats]) -> list[Floats]:
        """For each choice of replacement columns (n, k), with a `Regression`: (n,) squared errors."""
        regression, kept = self.ridge.system, self.kept
        if not isinstance(regression, Regression):
            raise TypeError("Columns can only be replaced in a Regression, which keeps all rows.")
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
        whole = np.zeros(self.ridge.system.cross.shape[1])
        whole[self.kept] = solution
        return whole
