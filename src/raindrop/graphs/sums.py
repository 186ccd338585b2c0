"""Sums of squares and products of columns by block of rows, gathered chunk by chunk, and regressions from them.

Each row is used only once, when it is summed, so the memory of a regression does not grow with the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from raindrop.graphs.past import Floats, Positions
from raindrop.graphs.ridge import System

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of standardised columns and the target; axes: b blocks, c columns, f folds of whole blocks."""

    gram: Floats  # (b, c, c)
    cross: Floats  # (b, c) with the target
    square: Floats  # (b,) of the target
    count: Floats  # (b,) rows
    fold: Positions  # (b,)
    mean: Floats  # (c,) of the raw columns
    spread: Floats  # (c,)

    @classmethod
    def of(cls, products: Floats, count: Floats, fold: Positions) -> Self:
        """From products (b, c + 2, c + 2) of raw columns, the weight and the target, each multiplied by the weight.

        A standardised column has mean 0 and spread 1 over all rows, each weighted with the square of its weight.
        """
        raw, weight, target = slice(0, -2), -2, -1
        total, number = products.sum(0), float(count.sum())
        mean = total[raw, weight] / number
        variance = np.diag(total)[raw] / number - mean**2 * (2 - total[weight, weight] / number)
        spread = np.sqrt(np.maximum(variance, 0))
        spread = np.where(spread > 1e-9, spread, 1.0)
        gram, shift, scale = np.empty_like(products[:, raw, raw]), np.outer(mean, mean), 1 / np.outer(spread, spread)
        for centred, each in zip(gram, products, strict=True):
            beside = np.outer(mean, each[raw, weight])
            beside += beside.T - each[weight, weight] * shift
            np.subtract(each[raw, raw], beside, out=centred)
            centred *= scale
        cross = (products[:, raw, target] - mean * products[:, weight, target, None]) / spread
        return cls(gram, cross, products[:, target, target], count, fold, mean, spread)

    def columns(self, kept: Positions) -> Sums:
        """The sums of some of the columns."""
        gram = self.gram[:, kept[:, None], kept]
        return replace(self, gram=gram, cross=self.cross[:, kept], mean=self.mean[kept], spread=self.spread[kept])

    @cached_property
    def system(self) -> System:
        """For each fold, the sums over the rows outside it."""
        outside = (self.fold != np.unique(self.fold)[:, None]).astype(np.float64)  # (f, b)
        blocks, size = self.cross.shape
        gram = (outside @ self.gram.reshape(blocks, -1)).reshape(-1, size, size)
        return System(gram, outside @ self.cross, outside @ self.count)

    def losses(self, solutions: Floats) -> Floats:
        """(k, b) the squared error of each block, for each of k regressions: (k, f, c) coefficients by fold."""
        fold = np.unique(self.fold, return_inverse=True)[1]
        chosen = solutions[:, fold].transpose(1, 2, 0)  # (b, c, k)
        losses: Floats = self.square[:, None] - 2 * (chosen * self.cross[:, :, None]).sum(1)
        losses += (chosen * (self.gram @ chosen)).sum(1)
        return losses.T

    def best(self, penalties: Floats, kept: Bools | None = None) -> tuple[float, Floats, Floats]:
        """The penalty with the lowest out-of-fold error, (b,) its errors and the (f, c) coefficients."""
        solutions = np.stack([self.system.solve(penalty, kept) for penalty in penalties.tolist()])
        losses = self.losses(solutions)
        at = int(losses.sum(1).argmin())
        return float(penalties[at]), losses[at], solutions[at]

    def raw(self, solutions: Floats) -> Floats:
        """(f, c + 1) the coefficients of the raw columns and of the weight."""
        scaled = solutions / self.spread
        return np.concatenate([scaled, -(scaled @ self.mean)[:, None]], axis=1)
