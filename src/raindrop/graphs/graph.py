"""SensorGraph: directed, weighted edges between sensors; SensorGraphs: one graph per sample."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import DataError, format_count, suggest
from raindrop.graphs.export import WRITERS, network, write_frame, writer_for

if TYPE_CHECKING:
    import networkx

SHOWN = 10  # edges in a notebook
EDGES = {"sender": pl.String, "receiver": pl.String, "weight": pl.Float32}


@dataclass(frozen=True, eq=False, repr=False)
class SensorGraph:
    """A directed graph of named sensors: weights[u, v] is the weight of the edge from sensor u to sensor v.

    A weight of 0 means no edge. Weights can be negative, for example in the difference of two graphs; the strongest
    edges are those with the largest absolute weight.
    """

    sensors: tuple[str, ...]
    weights: NDArray[np.float32]
    name: str = ""
    empty_reason: str = ""
    """Why there are no edges between different sensors, printed if there are none; see `describe_empty`."""

    def __post_init__(self) -> None:
        shape = (len(self.sensors),) * 2
        if self.weights.shape != shape:
            raise DataError(f"A graph of {shape[0]} sensors has weights of shape {shape}, not {self.weights.shape}.")

    def __repr__(self) -> str:
        name = f" '{self.name}'" if self.name else ""
        number = int(np.count_nonzero(self._between()))
        return f"{type(self).__name__}{name}({len(self.sensors):,} sensors, {number:,} edge{'s' * (number != 1)})"

    def _repr_html_(self) -> str:
        """In a notebook: a line about the graph, and its strongest edges."""
        shown = escape(self.describe_empty()) or self._shown_edges()._repr_html_()
        return f"<div><strong>{escape(repr(self))}</strong>{shown}</div>"

    def _shown_edges(self) -> pl.DataFrame:
        """The edges that a notebook shows."""
        return self.top(SHOWN)

    @property
    def is_empty(self) -> bool:
        """Whether no edge connects two different sensors."""
        return not self._between().any()

    def describe_empty(self) -> str:
        """One sentence saying that the graph has no edges, and why; an empty string if it has edges."""
        if not self.is_empty:
            return ""
        return f"There are no edges between sensors: {self.empty_reason or 'every weight is 0'}."

    def __getitem__(self, edge: tuple[str, str]) -> float:
        """graph['HR', 'MAP']: the weight of the edge from HR to MAP."""
        for name in edge:
            if name not in self.sensors:
                raise DataError(f"The graph has no sensor '{name}'; {suggest(name, self.sensors)}")
        sender, receiver = (self.sensors.index(name) for name in edge)
        return float(self.weights[sender, receiver])

    def edges(self, *, include_self: bool = False) -> pl.DataFrame:
        """All edges, strongest first: sender, receiver, weight; `include_self` adds those of a sensor to itself."""
        u, v = np.nonzero(self.weights)
        keep = (u != v) | include_self
        names = pl.Series(self.sensors, dtype=pl.String)
        columns = [names.gather(u[keep]), names.gather(v[keep]), self.weights[u[keep], v[keep]]]
        frame = pl.DataFrame(dict(zip(EDGES, columns, strict=True)), schema=EDGES)
        return frame[frame["weight"].abs().arg_sort(descending=True)]

    def top(self, number: int = 20) -> pl.DataFrame:
        """The strongest edges between different sensors."""
        return self.edges().head(number)

    def strongest(self, number: int = 50) -> SensorGraph:
        """The graph with only its `number` strongest edges between different sensors; ties keep the first."""
        between = self._between()
        kept = np.argsort(-np.abs(between), axis=None, kind="stable")[:number]
        weights = np.zeros(between.size, dtype=between.dtype)
        weights[kept] = between.flat[kept]
        return replace(self, weights=weights.reshape(between.shape))

    def threshold(self, min_weight: float) -> SensorGraph:
        """The graph with only the edges whose absolute weight is at least `min_weight`."""
        weights = np.where(np.abs(self.weights) >= min_weight, self.weights, 0)
        reason = self.empty_reason if self.is_empty else f"no weight reaches {min_weight:g}"
        return replace(self, weights=weights, empty_reason=reason)

    def strength(self) -> pl.DataFrame:
        """The total absolute weight of each sensor's edges to others (out) and from others (into), largest first.

        Columns: sensor, out, into, receivers (how many sensors it has an edge to), senders (how many have one to it).
        """
        size = np.abs(self._between())
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
            raise DataError("Only graphs of the same sensors can be subtracted.")
        reason = self.empty_reason if self.is_empty and other.is_empty else "the two graphs are the same"
        return SensorGraph(self.sensors, self.weights - other.weights, f"{self.name} - {other.name}", reason)

    def to_networkx(self, *, include_self: bool = True) -> networkx.DiGraph[str]:
        """A NetworkX DiGraph: a node per sensor name, a `weight` on each edge."""
        return network(self.sensors, self.weights, self.name, include_self=include_self)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write all edges to a file, atomically; the suffix chooses the format.

        .parquet: the edges (sender, receiver, weight); .csv: the adjacency matrix, row u to column v; .graphml: for
        NetworkX, Gephi, yEd, igraph; .cyjs: for Cytoscape and Cytoscape.js.
        """
        writer_for(path, WRITERS)(self.sensors, self.weights, self.name, Path(path))
        return Path(path)

    def _between(self) -> NDArray[np.float32]:
        """The weights with a diagonal of 0."""
        return np.where(np.eye(len(self.sensors), dtype=bool), np.float32(0), self.weights)


@dataclass(frozen=True, eq=False, repr=False)
class SensorGraphs(Mapping[str, SensorGraph]):
    """One graph per sample, by sample id."""

    sensors: tuple[str, ...]
    ids: Sequence[str]
    weights: NDArray[np.float32]  # (sample, u, v)
    empty_reason: str = ""
    """Passed on to each graph; see SensorGraph."""

    def __post_init__(self) -> None:
        shape = (len(self.ids), len(self.sensors), len(self.sensors))
        if self.weights.shape != shape:
            raise DataError(
                f"Graphs of {shape[0]:,} samples and {shape[1]} sensors have weights of shape {shape}, "
                f"not {self.weights.shape}."
            )

    def __repr__(self) -> str:
        return f"SensorGraphs({len(self):,} samples, {len(self.sensors):,} sensors)"

    def _repr_html_(self) -> str:
        """In a notebook: a line about the graphs, and the strongest edges of their mean."""
        mean = self.mean()._repr_html_() if len(self) else ""
        return f"<div><strong>{escape(repr(self))}</strong>{mean}</div>"

    def __getitem__(self, sample: str) -> SensorGraph:
        if sample not in self._position:
            raise KeyError(f"no sample '{sample}'; {suggest(str(sample), list(self.ids)[:1000])}")
        return SensorGraph(self.sensors, self.weights[self._position[sample]], sample, self.empty_reason)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.ids)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def mean(self, selection: Any = None, name: str = "mean") -> SensorGraph:
        """The mean graph of all samples, or of a selection given as a mask or as positions."""
        weights = self.weights if selection is None else self.weights[np.asarray(selection)]
        if not len(weights):
            raise DataError("No sample was selected, so there is no mean graph.")
        return SensorGraph(self.sensors, weights.mean(0), name, self.empty_reason)

    def by_class(self, labels: ArrayLike) -> dict[Any, SensorGraph]:
        """The mean graph of each class (or cohort), by its label."""
        label_of_sample = self.check_labels(labels)
        return {label.item(): self.mean(label_of_sample == label, str(label)) for label in np.unique(label_of_sample)}

    def difference(self, mask: ArrayLike, name: str = "selected - others") -> SensorGraph:
        """The mean graph of the samples selected by a mask, minus that of all others."""
        selected = self.check_mask(mask)
        return replace(self.mean(selected) - self.mean(~selected), name=name)

    def check_labels(self, labels: ArrayLike) -> NDArray[Any]:
        """`labels` as an array; raises unless there is one per sample."""
        array = np.asarray(labels)
        if array.shape != (len(self),):
            raise DataError(f"There are {len(self):,} graphs, but labels of shape {array.shape}: give one per sample.")
        return array

    def check_mask(self, mask: ArrayLike) -> NDArray[np.bool_]:
        """`mask` as an array; raises unless it has one boolean per sample and selects some samples but not all."""
        selected = self.check_labels(mask)
        if selected.dtype != bool:
            raise DataError(
                f"A mask has one true or false per sample, not {selected.dtype}; for example table.labels == 1."
            )
        if selected.all() or not selected.any():
            number = format_count(int(selected.sum()), len(selected), "samples")
            raise DataError(f"{number} are selected; a comparison needs at least one sample on each side.")
        return selected

    def frame(self, *, include_self: bool = False) -> pl.DataFrame:
        """Every edge of every sample, with columns sample, sender, receiver, weight."""
        b, u, v = np.nonzero(self.weights)
        keep = (u != v) | include_self
        b, u, v = b[keep], u[keep], v[keep]
        names = pl.Series(self.sensors, dtype=pl.String)
        columns = [pl.Series(self.ids, dtype=pl.String).gather(b), names.gather(u), names.gather(v)]
        schema = {"sample": pl.String, **EDGES}
        return pl.DataFrame(dict(zip(schema, [*columns, self.weights[b, u, v]], strict=True)), schema=schema)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write `frame`, including edges from a sensor to itself, as .parquet or .csv."""
        return write_frame(self.frame(include_self=True), path)
