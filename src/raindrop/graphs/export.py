"""Write a sensor graph for other programs. Sensor names are kept unchanged, and every write is atomic."""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import DataError, suggest
from raindrop.files import atomic_file, write_json
from raindrop.table.csv_text import plain_text, write_csv

Writer = Callable[[Sequence[str], NDArray[np.float32], str, Path], None]
NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def network(
    sensors: Sequence[str], weights: NDArray[np.float32], name: str = "", *, include_self: bool = True
) -> networkx.DiGraph[str]:
    """A NetworkX graph of all sensors, with an edge wherever the weight is not 0."""
    graph: networkx.DiGraph[str] = networkx.DiGraph(name=name)
    graph.add_nodes_from(sensors)
    u, v = np.nonzero(weights)
    keep = (u != v) | include_self
    edges = zip(u[keep].tolist(), v[keep].tolist(), weights[u[keep], v[keep]].tolist(), strict=True)
    graph.add_weighted_edges_from((sensors[sender], sensors[receiver], weight) for sender, receiver, weight in edges)
    return graph


def write_parquet(sensors: Sequence[str], weights: NDArray[np.float32], name: str, path: Path) -> None:
    """The edges, one row each: sender, receiver, weight."""
    edges = list(network(sensors, weights).edges(data="weight"))
    schema = {"sender": pl.String, "receiver": pl.String, "weight": pl.Float32}
    write_frame(pl.DataFrame(edges, schema=schema, orient="row"), path)


def write_adjacency(sensors: Sequence[str], weights: NDArray[np.float32], name: str, path: Path) -> None:
    """The matrix as CSV: the first column names the sender, the others are receivers."""
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sender", *map(plain_text, sensors)])
        writer.writerows([plain_text(sensor), *map(str, row)] for sensor, row in zip(sensors, weights, strict=True))


def write_graphml(sensors: Sequence[str], weights: NDArray[np.float32], name: str, path: Path) -> None:
    """GraphML, with sensor names as node ids."""
    refused = [text for text in (*sensors, name) if NOT_IN_XML.search(text)]
    if refused:
        raise DataError(
            f"{path}: the name {refused[0]!r} contains a control character, which GraphML cannot. "
            "Rename the sensor, or write .cyjs, .csv or .parquet."
        )
    with atomic_file(path) as partial:
        networkx.write_graphml_xml(network(sensors, weights, name), partial)


def write_cyjs(sensors: Sequence[str], weights: NDArray[np.float32], name: str, path: Path) -> None:
    """Cytoscape JSON as its desktop program imports it (and NetworkX's cytoscape_graph reads it)."""
    graph = network(sensors, weights, name)
    nodes = [{"id": sensor, "value": sensor, "name": sensor, "shared_name": sensor} for sensor in graph]
    ids = (text for number in itertools.count() if (text := f"edge {number}") not in graph)  # unlike any sensor's name
    edges: list[dict[str, Any]] = []
    for sender, receiver, weight in graph.edges(data="weight"):
        edge_name = f"{sender} (informs) {receiver}"
        edges.append(
            {
                "id": next(ids),
                "source": sender,
                "target": receiver,
                "interaction": "informs",
                "name": edge_name,
                "shared_name": edge_name,
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
    """Write a frame as Parquet or CSV, depending on the suffix of `path`."""
    write = writer_for(path, {".parquet": frame.write_parquet, ".csv": partial(write_csv, frame)})
    with atomic_file(path) as temporary:
        write(temporary)
    return Path(path)


def writer_for(path: str | os.PathLike[str], writers: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The writer for the suffix of `path`; an unknown suffix raises and suggests a known one."""
    ending = Path(path).suffix.lower()
    if ending not in writers:
        raise DataError(f"{path}: cannot write files ending in '{ending}'; {suggest(ending, writers)}")
    return writers[ending]
