"""Predictions: the predictions for each sample, as a frame and as a file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import ConfigError, MissingExtraError
from raindrop.files import atomic_file, refuse_to_overwrite
from raindrop.table.csv_text import write_csv


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(ABC):
    """Sample ids with their predictions."""

    ids: Sequence[str]

    @abstractmethod
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns besides the sample ids."""

    def frame(self) -> pl.DataFrame:
        """One row per sample: its id and the columns."""
        return pl.DataFrame({"sample": pl.Series(list(self.ids), dtype=pl.String), **self.columns()})

    def to_polars(self) -> pl.DataFrame:
        """The same as `frame`."""
        return self.frame()

    def to_pandas(self) -> Any:
        """`frame` as a pandas frame; needs pandas."""
        try:
            import pandas
        except ImportError:
            raise MissingExtraError("pandas", "pandas", "A pandas frame") from None
        return pandas.DataFrame(self.frame().to_dict(as_series=False))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        names = list(self.columns())
        shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        return f"{type(self).__name__}({len(self):,} samples: {shown})"

    def _repr_html_(self) -> str:
        return self.frame()._repr_html_()

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a .parquet or .csv file."""
        return write_predictions(self.frame(), Path(path), overwrite=overwrite)

    @property
    def unsure(self) -> NDArray[np.bool_] | None:
        """(sample,) where no single answer reaches the coverage; None without a coverage."""
        return None


@dataclass(frozen=True, eq=False, repr=False)
class ClassPredictions(Predictions):
    """The probability of every class, and with a coverage the set of possible classes."""

    classes: NDArray[Any]
    probabilities: NDArray[np.float32]  # (sample, class)
    sets: NDArray[np.bool_] | None = None  # (sample, class)
    decisions: NDArray[np.int64] | None = None  # (sample,) the predicted class if a threshold decides

    def columns(self) -> dict[str, NDArray[Any]]:
        """predicted, probability_CLASS of each; with sets also possible_CLASS, and abstain unless one is possible."""
        codes = self.decisions if self.decisions is not None or not len(self.ids) else self.probabilities.argmax(1)
        predicted = self.classes[codes] if len(self.ids) else self.classes[:0]
        columns: dict[str, NDArray[Any]] = {
            f"probability_{name}": self.probabilities[:, at] for at, name in enumerate(self.classes)
        }
        if self.sets is not None and self.unsure is not None:
            columns |= {f"possible_{name}": self.sets[:, at] for at, name in enumerate(self.classes)}
            columns["abstain"] = self.unsure
        return {"predicted": predicted, **columns}

    @property
    def unsure(self) -> NDArray[np.bool_] | None:
        return None if self.sets is None else self.sets.sum(1) != 1


@dataclass(frozen=True, eq=False, repr=False)
class LabelPredictions(Predictions):
    """The probability of every yes/no label, and with a coverage whether yes and no are possible."""

    labels: Sequence[str]
    probabilities: NDArray[np.float32]  # (sample, label) of yes
    sets: NDArray[np.bool_] | None = None  # (sample, label, 2): no, yes

    def columns(self) -> dict[str, NDArray[Any]]:
        """predicted_LABEL and probability_LABEL of each; with sets also possible_LABEL_no and possible_LABEL_yes."""
        columns: dict[str, NDArray[Any]] = {}
        for at, name in enumerate(self.labels):
            columns[f"predicted_{name}"] = self.probabilities[:, at] > 0.5
            columns[f"probability_{name}"] = self.probabilities[:, at]
            if self.sets is not None:
                columns[f"possible_{name}_no"] = self.sets[:, at, 0]
                columns[f"possible_{name}_yes"] = self.sets[:, at, 1]
        return columns

    @property
    def unsure(self) -> NDArray[np.bool_] | None:
        return None if self.sets is None else (self.sets.sum(2) != 1).any(1)


@dataclass(frozen=True, eq=False, repr=False)
class QuantityPredictions(Predictions):
    """Every quantity, and with a coverage its interval."""

    labels: Sequence[str]
    values: NDArray[np.float32]  # (sample, quantity)
    intervals: NDArray[np.float64] | None = None  # (sample, quantity, 2)

    def columns(self) -> dict[str, NDArray[Any]]:
        """QUANTITY of each; with intervals also QUANTITY_low and QUANTITY_high."""
        columns: dict[str, NDArray[Any]] = {}
        for at, name in enumerate(self.labels):
            columns[name] = self.values[:, at]
            if self.intervals is not None:
                columns |= {f"{name}_low": self.intervals[:, at, 0], f"{name}_high": self.intervals[:, at, 1]}
        return columns


def write_predictions(frame: pl.DataFrame, path: Path, *, overwrite: bool = False) -> Path:
    """Write predictions as a .parquet or .csv file."""
    require_writable(path, overwrite=overwrite)
    with atomic_file(path) as partial:
        if path.suffix == ".parquet":
            frame.write_parquet(partial)
        else:
            write_csv(frame, partial)
    return path


def require_writable(path: Path, *, overwrite: bool = False) -> None:
    """Raise unless predictions can be written to `path`."""
    if path.suffix not in (".parquet", ".csv"):
        raise ConfigError(f"{path}: predictions are written as .parquet or .csv; the name must end in one of these.")
    if not overwrite:
        refuse_to_overwrite(path)
