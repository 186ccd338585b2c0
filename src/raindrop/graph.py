"""SensorGraph: which sensor informs which, and how strongly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, suggest


@dataclass(frozen=True, eq=False)
class SensorGraph:
    """A directed graph of named sensors: weights[u, v] is the weight of the edge from sensor u to sensor v."""

    sensors: tuple[str, ...]
    weights: NDArray[np.float32]
    name: str = ""

    def __post_init__(self) -> None:
        wanted = (len(self.sensors),) * 2
        if self.weights.shape != wanted:
            raise DataError(f"A graph of {wanted[0]} sensors has weights of shape {wanted}, not {self.weights.shape}.")

    def __getitem__(self, edge: tuple[str, str]) -> float:
        """graph['HR', 'MAP']: the weight of the edge from HR to MAP."""
        at = []
        for name in edge:
            if name not in self.sensors:
                raise DataError(f"The graph has no sensor '{name}'; {suggest(name, self.sensors)}")
            at.append(self.sensors.index(name))
        return float(self.weights[at[0], at[1]])

    def edges(self, *, itself: bool = False) -> pl.DataFrame:
        """All edges with a weight other than 0, strongest first: sender, receiver, weight."""
        u, v = np.nonzero(self.weights)
        keep = (u != v) | itself
        frame = pl.DataFrame(
            {
                "sender": [self.sensors[at] for at in u[keep]],
                "receiver": [self.sensors[at] for at in v[keep]],
                "weight": self.weights[u[keep], v[keep]],
            },
            schema={"sender": pl.String, "receiver": pl.String, "weight": pl.Float32},
        )
        order = frame["weight"].abs().arg_sort(descending=True)
        return frame[order]

    def top(self, number: int = 20) -> pl.DataFrame:
        """The strongest edges between different sensors."""
        return self.edges().head(number)

    def __sub__(self, other: SensorGraph) -> SensorGraph:
        """The difference of two graphs of the same sensors."""
        if other.sensors != self.sensors:
            raise DataError("Only graphs of the same sensors have a difference.")
        return SensorGraph(self.sensors, self.weights - other.weights, f"{self.name} - {other.name}")


@dataclass(frozen=True, eq=False)
class SensorGraphs(Mapping[str, SensorGraph]):
    """One graph per sample, by sample id."""

    sensors: tuple[str, ...]
    ids: Sequence[str]
    weights: NDArray[np.float32]  # (sample, u, v)

    def __getitem__(self, sample: str) -> SensorGraph:
        if sample not in self._place:
            raise KeyError(f"no sample '{sample}'; {suggest(str(sample), list(self.ids)[:1000])}")
        return SensorGraph(self.sensors, self.weights[self._place[sample]], sample)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.ids)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def mean(self, chosen: Any = None, name: str = "mean") -> SensorGraph:
        """The mean graph of all samples, or of those a mask or positions choose."""
        weights = self.weights if chosen is None else self.weights[np.asarray(chosen)]
        if not len(weights):
            raise DataError("No sample was chosen, so there is no mean graph.")
        return SensorGraph(self.sensors, weights.mean(0), name)
