"""The part of the demo about graphs from readings alone: sensors on their own clocks, gaps, planted lagged edges."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from raindrop.datasets.asynchronous import delayed_sensors
from raindrop.datasets.synthetic import PlantedGraph
from raindrop.graphs.informed import InformedGraph, sensor_graph
from raindrop.graphs.recovery import lagged_correlation, recovery
from raindrop.report.graph_page import write_graph_page


def show_sensor_graph(
    folder: Path, out: Path, days: float, seed: int, console: Console
) -> tuple[PlantedGraph, InformedGraph]:
    """Generate a long series with planted edges, find them, compare with correlation, write table and page.

    They are written to `folder`, which is renamed to `out` later. Returns the planted and the found graph.
    """
    planted = delayed_sensors(days, seed=seed)
    table = planted.table
    table.write(folder / "series")
    console.print(f"\nCreated {table!r} in {out / 'series'}: one series, each sensor on its own clock, with gaps.")
    graph = sensor_graph(table, name="Demo: who informs whom")
    edges = Table("edge", "lag (hours)", "error removed", "q", "planted", title="Edges found (no labels, no model)")
    for row in graph.edge_evidence().iter_rows(named=True):
        pair = (row["sender"], row["receiver"])
        status = "yes" if pair in planted.edges else "reversed" if pair[::-1] in planted.edges else "no"
        edges.add_row(" -> ".join(pair), f"{row['lag'] or 0:.2g}", f"{row['gain']:.1%}", f"{row['q']:.2g}", status)
    console.print(edges if not graph.is_empty else graph.describe_empty())
    scores = Table(f"recovery of its {len(planted.edges)} planted edges", "AUROC", "AUPRC", "right direction")
    correlation = lagged_correlation(table)
    for name, each in (("sensor_graph", graph.ranking()), ("lagged correlation", correlation)):
        score = recovery(each, planted.adjacency())
        scores.add_row(name, f"{score.auroc:.3f}", f"{score.auprc:.3f}", f"{score.direction:.0%}")
    console.print(scores)
    page = write_graph_page(graph, folder / "graph.html", unit=table.time_unit)
    console.print(f"Wrote the graph to {out / page.name}; open it in any browser.")
    return planted, graph
