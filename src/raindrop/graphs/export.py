"""A sensor graph as a file for other programs; sensor names go through literally, and every write is atomic."""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, suggest
from raindrop.files import atomic_file, write_json

Writer = Callable[[Sequence[str], NDArray[np.float32], str, Path], None]
NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def network(
    sensors: Sequence[str], weights: NDArray[np.float32], name: str = "", *, itself: bool = True
) -> networkx.DiGraph[str]:
    """A NetworkX graph of all sensors, with an edge wherever the weight is not 0."""
    graph: networkx.DiGraph[str] = networkx.DiGraph(name=name)
    graph.add_nodes_from(sensors)
    u, v = np.nonzero(weights)
    keep = (u != v) | itself
    found = zip(u[keep].tolist(), v[keep].tolist(), weights[u[keep], v[keep]].tolist(), strict=True)
    graph.add_weighted_edges_from((sensors[a], sensors[b], weight) for a, b, weight in found)
    return graph


def write_parquet(sensors: Sequence[str], weights: NDArray[np.float32], name: str, path: Path) -> None:
    """The edges, one row each: sender, receiver, weight."""
    found = list(network(sensors, weights).edges(data="weight"))
    schema = {"sender": pl.String, "receiver": pl.String, "weight": pl.Float32}
    write_frame(pl.DataFrame(found, schema=schema, orient="row"), path)


def write_adjacency(sensors: Sequence[str], weights: NDArray[np.float32], name: str, path: Path) -> None:
    """The matrix as CSV: the first column names the sender, the others are receivers."""
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sender", *sensors])
        writer.writerows([sensor, *map(str, row)] for sensor, row in zip(sensors, weights, strict=True))


def write_graphml(sensors: Sequence[str], weights: NDArray[np.float32], name: str, path: Path) -> None:
    """GraphML; a sensor's name is its node's id."""
    wrong = [text for text in (*sensors, name) if NOT_IN_XML.search(text)]
    if wrong:
        raise DataError(
            f"{path}: the name {wrong[0]!r} holds a control character, which GraphML cannot. "
            "Rename the sensor, or write .cyjs, .csv or .parquet."
        )
    with atomic_file(path) as partial:
        networkx.write_graphml_xml(network(sensors, weights, name), partial)


def write_cyjs(sensors: Sequence[str], weights: NDArray[np.float32], name: str, path: Path) -> None:
    """Cytoscape JSON as its desktop program imports it (and NetworkX's cytoscape_graph reads it)."""
    graph = network(sensors, weights, name)
    nodes = [{"id": sensor, "value": sensor, "name": sensor, "shared_name": sensor} for sensor in graph]
    ids = (text for number in itertools.count() if (text := f"edge {number}") not in graph)  # no sensor is called so
    edges: list[dict[str, Any]] = []
    for sender, receiver, weight in graph.edges(data="weight"):
        called = f"{sender} (informs) {receiver}"
        edges.append(
            {
                "id": next(ids),
                "source": sender,
                "target": receiver,
                "interaction": "informs",
                "name": called,
                "shared_name": called,
                "weight": weight,
            }
        )
    content = {
        "format_version": "1.0",
        "generated_by": "raindrop",
        "target_cytoscapejs_version": "~2.1",
        "directed": True,
        "multigraph": False,
        "data": {"name": name, "shared_name": name},
        "elements": {"nodes": [{"data": node} for node in nodes], "edges": [{"data": edge} for edge in edges]},
    }
    write_json(path, content)


WRITERS: dict[str, Writer] = {
    ".parquet": write_parquet,
    ".csv": write_adjacency,
    ".graphml": write_graphml,
    ".cyjs": write_cyjs,
}


def write_frame(frame: pl.DataFrame, path: str | os.PathLike[str]) -> Path:
    """A frame as Parquet or CSV, by the name's ending."""
    write = writer_for(path, {".parquet": frame.write_parquet, ".csv": frame.write_csv})
    with atomic_file(path) as partial:
        write(partial)
    return Path(path)


def writer_for(path: str | os.PathLike[str], writers: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The writer that the ending of `path` names, or an error that lists the endings there are."""
    ending = Path(path).suffix.lower()
    if ending not in writers:
        raise DataError(f"{path}: the ending '{ending}' names no format to write; {suggest(ending, writers)}")
    return writers[ending]
