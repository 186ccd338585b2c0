"""End-to-end demo on synthetic data: a table, a model, a baseline, recovery of the graph, predictions, a report."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table

from raindrop.cli.demo_graph import show_sensor_graph
from raindrop.datasets.synthetic import PlantedGraph, planted_graph
from raindrop.errors import MissingExtraError
from raindrop.estimators.classifier import Classifier
from raindrop.explain.information import information_graphs
from raindrop.explain.probe import probe_graph
from raindrop.files import atomic_folder
from raindrop.graphs.export import write_frame
from raindrop.graphs.graph import SensorGraph
from raindrop.graphs.recovery import lagged_correlation, recovery
from raindrop.report import check_report_path, report_on, write_report
from raindrop.table.event_table import EventTable

DAYS = 60.0  # of the series whose graph is found


def run_demo(out: Path, num_samples: int, seed: int, console: Console) -> None:
    """Create a table, train, compare, recover the graph, predict, report; the folder `out` appears with all of it."""
    started = time.monotonic()
    with atomic_folder(out) as folder:
        _fill(folder, out, num_samples, seed, console)
    console.print(f"The demo took {time.monotonic() - started:.0f} s; everything is in {out}.")
    console.print(f"Next: raindrop inspect {out / 'data'}")
    console.print(f"      raindrop evaluate {out / 'run'} {out / 'data'} --hide-sensors 0.25 0.5")


def _fill(folder: Path, out: Path, num_samples: int, seed: int, console: Console) -> None:
    """Do it all in `folder`, which will be called `out`."""
    planted = planted_graph(num_samples, seed=seed)
    table = planted.table
    train, val, test = table.split(seed=seed)
    table.write(folder / "data")
    console.print(f"Created {table!r} in {out / 'data'}")
    console.print(f"Its {len(planted.edges)} planted edges determine the label; no single sensor predicts it.")

    trees = Classifier("trees", seed=seed).fit(train, validation=val)
    console.print("\nTraining Raindrop ...")
    raindrop = Classifier("raindrop", preset="graph", seed=seed, progress=True)
    raindrop.fit(train, validation=val, run=folder / "run", parts={"train": train, "val": val, "test": test})
    positive = raindrop.positive_
    metrics = Table("10 % unseen samples", f"AUROC ({positive})", f"AUPRC ({positive})", "accuracy")
    for name, classifier in (("trees on summaries of each sensor", trees), ("Raindrop", raindrop)):
        values = classifier.evaluate(test)
        metrics.add_row(name, *(f"{values[key]:.3f}" for key in ("auroc", "auprc", "accuracy")))
    console.print(metrics)

    coupled = test.labels == "coupled"
    graph = information_graphs(raindrop, test).difference(coupled, "coupled - apart")
    console.print(_edge_table(graph, planted))
    graphs = {
        "information in messages (information_graphs)": graph,
        "linear probe (probe_graph)": probe_graph(raindrop, test[coupled]),
        "edge weights of Eq. 3": raindrop.graphs(test).mean(coupled),
        "correlation at the same time": lagged_correlation(test[coupled], same_time=True),
    }
    scores = Table("recovery of the planted edges", "AUROC", "AUPRC", "right direction")
    for name, each in graphs.items():
        score = recovery(each, planted.adjacency())
        scores.add_row(name, f"{score.auroc:.3f}", f"{score.auprc:.3f}", f"{score.direction:.0%}")
    console.print(scores)

    raindrop.set_params(progress=False).predict_table(test).write(folder / "predictions.parquet")
    write_frame(graph.edges(), folder / "edges.csv")
    console.print(
        f"\nWrote the model to {out / 'run'}, predictions to {out / 'predictions.parquet'}, "
        f"edges to {out / 'edges.csv'}."
    )
    _report(raindrop, trees, test, planted, folder, out, console)
    show_sensor_graph(folder, out, DAYS, seed, console)


def _report(
    raindrop: Classifier,
    trees: Classifier,
    test: EventTable,
    planted: PlantedGraph,
    folder: Path,
    out: Path,
    console: Console,
) -> None:
    """Write the HTML report; without the packages for it, the demo ends without a report."""
    path = folder / "report.html"
    try:
        check_report_path(path)
    except MissingExtraError as error:
        console.print(f"No report: {error}")
        return
    truth = ", ".join(f"{sender} -> {receiver}" for sender, receiver in planted.edges)
    notes = {"Samples": "10 % that were not used for training or validation", "Planted edges": f"{truth} (synthetic)"}
    title = "Demo on synthetic data with a planted sensor graph"
    content = report_on(raindrop, test, baselines={"Trees": trees}, notes=notes, title=title)
    write_report(content, path)
    console.print(f"Wrote the report to {out / path.name}; open it in any browser.")


def _edge_table(graph: SensorGraph, planted: PlantedGraph) -> Table:
    truth = set(planted.edges)
    rows = Table("edge", "gain", "planted", title="Strongest edges")
    strongest = graph.edges().filter(pl.col("weight") > 0).head(2 * len(truth))
    for sender, receiver, weight in strongest.iter_rows():
        reverse = "reversed" if (receiver, sender) in truth else "no"
        rows.add_row(f"{sender} -> {receiver}", f"{weight:.3f}", "yes" if (sender, receiver) in truth else reverse)
    return rows
