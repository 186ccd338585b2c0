"""SensorGraph: which sensor informs which, and how strongly."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import DataError, format_count, suggest
from raindrop.graphs.export import WRITERS, network, write_frame, writer_for

if TYPE_CHECKING:
    import networkx

EDGES = {"sender": pl.String, "receiver": pl.String, "weight": pl.Float32}


@dataclass(frozen=True, eq=False)
class SensorGraph:
    """A directed graph of named sensors: weights[u, v] is the weight of the edge from sensor u to sensor v.

    A weight of 0 is no edge. In a difference of two graphs weights may be negative; "strong" is then said of the size.
    """

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
        names = pl.Series(self.sensors, dtype=pl.String)
        columns = [names.gather(u[keep]), names.gather(v[keep]), self.weights[u[keep], v[keep]]]
        frame = pl.DataFrame(dict(zip(EDGES, columns, strict=True)), schema=EDGES)
        return frame[frame["weight"].abs().arg_sort(descending=True)]

    def top(self, number: int = 20) -> pl.DataFrame:
        """The strongest edges between different sensors."""
        return self.edges().head(number)

    def strongest(self, number: int = 50) -> SensorGraph:
        """The graph of its `number` strongest edges between different sensors; of equal ones the first stay."""
        size = np.abs(self.weights) * ~np.eye(len(self.sensors), dtype=bool)
        kept = np.argsort(-size, axis=None, kind="stable")[:number]
        weights = np.zeros(size.size, dtype=self.weights.dtype)
        weights[kept] = (self.weights * (size > 0)).flat[kept]
        return replace(self, weights=weights.reshape(size.shape))

    def threshold(self, least: float) -> SensorGraph:
        """The graph of the edges whose weight has at least this size."""
        return replace(self, weights=np.where(np.abs(self.weights) >= least, self.weights, 0))

    def strength(self) -> pl.DataFrame:
        """What each sensor sends and receives: sums of the sizes of its edges with others; the strongest first.

        Columns: sensor, out, into, senders and receivers (how many others have an edge to it, or from it).
        """
        size = np.abs(self.weights) * ~np.eye(len(self.sensors), dtype=bool)
        frame = pl.DataFrame(
            {
                "sensor": pl.Series(self.sensors, dtype=pl.String),
                "out": size.sum(1),
                "into": size.sum(0),
                "receivers": (size > 0).sum(1),
                "senders": (size > 0).sum(0),
            }
        )
        return frame[(frame["out"] + frame["into"]).arg_sort(descending=True)]

    def __sub__(self, other: SensorGraph) -> SensorGraph:
        """The difference of two graphs of the same sensors."""
        if other.sensors != self.sensors:
            raise DataError("Only graphs of the same sensors have a difference.")
        return SensorGraph(self.sensors, self.weights - other.weights, f"{self.name} - {other.name}")

    def to_networkx(self, *, itself: bool = True) -> networkx.DiGraph[str]:
        """A NetworkX DiGraph: sensors are nodes by name, each edge has its `weight`."""
        return network(self.sensors, self.weights, self.name, itself=itself)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the graph, whole, in the format that the name's ending says.

        .parquet: the edges (sender, receiver, weight); .csv: the adjacency matrix, row u to column v; .graphml: for
        NetworkX, Gephi, yEd, igraph; .cyjs: for Cytoscape and Cytoscape.js.
        """
        writer_for(path, WRITERS)(self.sensors, self.weights, self.name, Path(path))
        return Path(path)


@dataclass(frozen=True, eq=False)
class SensorGraphs(Mapping[str, SensorGraph]):
    """One graph per sample, by sample id."""

    sensors: tuple[str, ...]
    ids: Sequence[str]
    weights: NDArray[np.float32]  # (sample, u, v)

    def __post_init__(self) -> None:
        wanted = (len(self.ids), len(self.sensors), len(self.sensors))
        if self.weights.shape != wanted:
            raise DataError(
                f"Graphs of {wanted[0]:,} samples and {wanted[1]} sensors have weights of shape {wanted}, "
                f"not {self.weights.shape}."
            )

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

    def by_class(self, labels: ArrayLike) -> dict[Any, SensorGraph]:
        """The mean graph of each class (or cohort), by its label."""
        codes = self.one_each(labels)
        return {label.item(): self.mean(codes == label, str(label)) for label in np.unique(codes)}

    def difference(self, chosen: ArrayLike, name: str = "chosen - others") -> SensorGraph:
        """The mean graph of the samples that a mask chooses, minus that of all others."""
        mask = self.two_cohorts(chosen)
        return replace(self.mean(mask) - self.mean(~mask), name=name)

    def one_each(self, labels: ArrayLike) -> NDArray[Any]:
        """`labels` as an array with one entry per sample, or an error."""
        array = np.asarray(labels)
        if array.shape != (len(self),):
            raise DataError(f"There are {len(self):,} graphs, but labels of shape {array.shape}: give one per sample.")
        return array

    def two_cohorts(self, chosen: ArrayLike) -> NDArray[np.bool_]:
        """`chosen` as a mask over the samples that leaves some on either side, or an error."""
        mask = self.one_each(chosen)
        if mask.dtype != bool:
            raise DataError(
                f"Two cohorts are told apart by one true or false per sample, not by {mask.dtype}; "
                "for example table.labels == 1."
            )
        if mask.all() or not mask.any():
            inside = format_count(int(mask.sum()), len(mask), "samples")
            raise DataError(f"{inside} are chosen; two cohorts need at least one sample each.")
        return mask

    def frame(self, *, itself: bool = False) -> pl.DataFrame:
        """Every edge of every sample with a weight other than 0: sample, sender, receiver, weight."""
        b, u, v = np.nonzero(self.weights)
        keep = (u != v) | itself
        b, u, v = b[keep], u[keep], v[keep]
        names = pl.Series(self.sensors, dtype=pl.String)
        columns = [pl.Series(self.ids, dtype=pl.String).gather(b), names.gather(u), names.gather(v)]
        schema = {"sample": pl.String, **EDGES}
        return pl.DataFrame(dict(zip(schema, [*columns, self.weights[b, u, v]], strict=True)), schema=schema)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write `frame`, edges to itself included, as .parquet or .csv."""
        return write_frame(self.frame(itself=True), path)
