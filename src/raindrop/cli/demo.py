"""The whole way on made-up data: a table, a model, a rival, the graph against the truth, predictions, a report."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table

from raindrop.datasets.synthetic import PlantedGraph, planted_graph
from raindrop.errors import MissingExtraError
from raindrop.estimators.classifier import Classifier
from raindrop.explain.information import information_graphs
from raindrop.explain.probe import probe_graph
from raindrop.files import refuse_to_overwrite
from raindrop.graphs.graph import SensorGraph
from raindrop.graphs.recovery import lagged_correlation, recovery
from raindrop.report import report_on, require_page, write_report
from raindrop.table.event_table import EventTable


def run_demo(out: Path, num_samples: int, seed: int, console: Console) -> None:
    """Make, train, compare, recover, predict, report; everything is left in `out`."""
    started = time.monotonic()
    refuse_to_overwrite(out)
    planted = planted_graph(num_samples, seed=seed)
    table = planted.table
    table.write(out / "data")
    train, val, test = table.split(seed=seed)
    console.print(f"Made {table!r} in {out / 'data'}")
    console.print(f"Its {len(planted.edges)} planted edges decide the label; no sensor shows it by itself.")

    trees = Classifier("trees", seed=seed).fit(train, validation=val)
    console.print("\nTraining Raindrop ...")
    raindrop = Classifier("raindrop", preset="graph", seed=seed, progress=True)
    raindrop.fit(train, validation=val, run=out / "run", parts={"train": train, "val": val, "test": test})
    shown = Table("on 10 % unseen samples", "AUROC", "AUPRC", "accuracy")
    for name, classifier in (("trees on summaries of each sensor", trees), ("Raindrop", raindrop)):
        figures = classifier.evaluate(test)
        shown.add_row(name, *(f"{figures[key]:.3f}" for key in ("auroc", "auprc", "accuracy")))
    console.print(shown)

    chosen = test.labels == "coupled"
    graph = information_graphs(raindrop, test).difference(chosen, "coupled - apart")
    console.print(_against_truth(graph, planted))
    readings = {
        "what messages tell (information_graphs)": graph,
        "what embeddings could tell (probe_graph)": probe_graph(raindrop, test[chosen]),
        "edge weights of Eq. 3": raindrop.graphs(test).mean(chosen),
        "correlation at the same time": lagged_correlation(test[chosen], same_time=True),
    }
    scores = Table("against the planted edges", "AUROC", "AUPRC", "right direction")
    for name, found in readings.items():
        score = recovery(found, planted.adjacency())
        scores.add_row(name, f"{score.auroc:.3f}", f"{score.auprc:.3f}", f"{score.direction:.0%}")
    console.print(scores)

    raindrop.set_params(progress=False).predict_table(test).write(out / "predictions.parquet")
    graph.edges().write_csv(out / "edges.csv")
    console.print(
        f"\nWrote the model to {out / 'run'}, predictions to {out / 'predictions.parquet'}, "
        f"edges to {out / 'edges.csv'}."
    )
    _report(raindrop, trees, test, planted, out / "report.html", console)
    console.print(f"All of it took {time.monotonic() - started:.0f} s.")
    console.print(f"Next: raindrop inspect {out / 'data'}")
    console.print(f"      raindrop evaluate {out / 'run'} {out / 'data'} --hide-sensors 0.25 0.5")


def _report(
    raindrop: Classifier, trees: Classifier, test: EventTable, planted: PlantedGraph, path: Path, console: Console
) -> None:
    """The page for people; without the packages it needs, the demo ends without it."""
    try:
        require_page(path)
    except MissingExtraError as error:
        console.print(f"No report: {error}")
        return
    truth = ", ".join(f"{sender} -> {receiver}" for sender, receiver in planted.edges)
    notes = {"Which samples": "10 % that neither model has seen", "Planted edges": f"{truth} (made-up data)"}
    content = report_on(raindrop, test, rivals={"Trees": trees}, notes=notes, title="The demo: a planted sensor graph")
    console.print(f"Wrote the report to {write_report(content, path)}; open it in any browser.")


def _against_truth(graph: SensorGraph, planted: PlantedGraph) -> Table:
    truth = set(planted.edges)
    shown = Table("who tells whom", "gain", "planted", title="Strongest edges found")
    strongest = graph.edges().filter(pl.col("weight") > 0).head(2 * len(truth))
    for sender, receiver, weight in strongest.iter_rows():
        back = "the other way round" if (receiver, sender) in truth else "no"
        shown.add_row(f"{sender} -> {receiver}", f"{weight:.3f}", "yes" if (sender, receiver) in truth else back)
    return shown
