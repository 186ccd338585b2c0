"""Predictions: for each sample the probability of every class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import ConfigError
from raindrop.files import atomic_file, refuse_to_overwrite


@dataclass(frozen=True, eq=False)
class Predictions:
    """Sample ids with their class probabilities."""

    ids: Sequence[str]
    classes: NDArray[Any]
    probabilities: NDArray[np.float32]  # (sample, class)
    sets: NDArray[np.bool_] | None = None  # (sample, class) the classes that a sample may have

    def frame(self) -> pl.DataFrame:
        """sample, predicted, and one column of probabilities per class.

        With sets also whether each class is possible, and whether to abstain: where not exactly one is.
        """
        predicted = self.classes[self.probabilities.argmax(1)] if len(self.ids) else self.classes[:0]
        columns: dict[str, NDArray[Any]] = {
            f"probability_{name}": self.probabilities[:, at] for at, name in enumerate(self.classes)
        }
        if self.sets is not None:
            columns |= {f"possible_{name}": self.sets[:, at] for at, name in enumerate(self.classes)}
            columns["abstain"] = self.sets.sum(1) != 1
        return pl.DataFrame({"sample": pl.Series(list(self.ids), dtype=pl.String), "predicted": predicted, **columns})

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a .parquet or .csv file."""
        path = Path(path)
        require_free(path, overwrite=overwrite)
        with atomic_file(path) as partial:
            if path.suffix == ".parquet":
                self.frame().write_parquet(partial)
            else:
                self.frame().write_csv(partial)
        return path


def require_free(path: Path, *, overwrite: bool = False) -> None:
    """Raise unless predictions can be written to `path`."""
    if path.suffix not in (".parquet", ".csv"):
        raise ConfigError(f"{path}: predictions are written as .parquet or .csv; the name must end so.")
    if not overwrite:
        refuse_to_overwrite(path)
