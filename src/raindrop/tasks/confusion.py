"""The confusion matrix: how many samples of each class were predicted as each class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """Counts of true classes (rows) and predicted classes (columns)."""

    classes: tuple[str, ...]
    counts: NDArray[np.int64]  # (true, predicted)

    @property
    def shares(self) -> NDArray[np.float64]:
        """(true, predicted) of the samples of each class, NaN if it has none; the diagonal is the recall."""
        totals = self.counts.sum(1, keepdims=True)
        return np.where(totals > 0, self.counts / np.maximum(totals, 1), np.nan)

    def frame(self) -> pl.DataFrame:
        """One row per true class: its name, and how many were predicted as each class."""
        columns = {f"predicted {name}": self.counts[:, at] for at, name in enumerate(self.classes)}
        return pl.DataFrame({"true class": list(self.classes), **columns})

    def _repr_html_(self) -> str:
        return self.frame()._repr_html_()

    def __str__(self) -> str:
        return str(self.frame())
