"""End-to-end demo on synthetic data with planted graphs, in two parts.

A long series with gaps: fill them, and find which sensor informs which. Then labelled samples: models that fail and one
that does not, and a report. Each sensor has its own clock, causes precede their effects by hours, and sensors fail in
the test samples.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sklearn.metrics import roc_auc_score

from raindrop.cli.demo_correlations import CorrelationClassifier
from raindrop.cli.demo_gaps import show_gaps
from raindrop.cli.demo_graph import show_sensor_graph
from raindrop.cli.pages import can_write_page
from raindrop.datasets.asynchronous import delayed_samples
from raindrop.datasets.synthetic import PlantedGraph
from raindrop.errors import MissingExtraError
from raindrop.estimators.classifier import Classifier
from raindrop.explain.information import information_graphs
from raindrop.files import atomic_folder
from raindrop.graphs.export import write_frame
from raindrop.graphs.graph import SensorGraph
from raindrop.graphs.recovery import lagged_correlation, recovery
from raindrop.report import report_on, write_report
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hide_random_sensors

DAYS = 60.0  # length of the series
FAILING = (0.25, 0.5)  # shares of the sensors


class Predicts(Protocol):
    """The interface of a model in the demo."""

    def predict_proba(self, table: EventTable, /) -> NDArray[Any]:
        """(samples, classes)."""


def run_demo(out: Path, num_samples: int, seed: int, console: Console) -> None:
    """Fill gaps, find the graph, classify, compare, report; `out` is created when everything is complete."""
    started = time.monotonic()
    with atomic_folder(out) as folder:
        _fill(folder, out, num_samples, seed, console)
    console.print(f"The demo took {time.monotonic() - started:.0f} s; everything is in {out}.")
    console.print(f"Next: raindrop inspect {out / 'data'}")
    console.print(f"      raindrop evaluate {out / 'run'} {out / 'data'} --hide-sensors 0.25 0.5")


def _fill(folder: Path, out: Path, num_samples: int, seed: int, console: Console) -> None:
    """Write everything to `folder`, which is renamed to `out` later."""
    planted = delayed_samples(num_samples, seed=seed)  # raises on too few samples before anything slow
    table = planted.table
    train, val, test = table.split(seed=seed)
    series, of_series = show_sensor_graph(folder, out, DAYS, seed, console)
    show_gaps(folder, out, series.table, seed, console)
    table.write(folder / "data")
    console.print(f"\nCreated {table!r} in {out / 'data'}: every sensor on its own clock, with gaps.")
    console.print(
        f"Its {len(planted.edges)} planted edges determine the label: a sensor follows another one, or an unobserved "
        "copy of it, half an hour to two hours later. No single sensor predicts it."
    )
    console.print("\nTraining Raindrop ...")
    raindrop = Classifier("raindrop", preset="graph", seed=seed, progress=True)
    raindrop.fit(train, validation=val, run=folder / "run", parts={"train": train, "val": val, "test": test})
    trees = Classifier("trees", seed=seed).fit(train, validation=val)
    models: dict[str, Predicts] = {
        "lagged correlations of all pairs, logistic regression": CorrelationClassifier().fit(train),
        "trees on summaries of each sensor": trees,
        "Raindrop": raindrop.set_params(progress=False),
    }
    console.print(_comparison(models, test, seed))

    coupled = test.labels == "coupled"
    graph = information_graphs(raindrop, test).difference(coupled, "found: information in messages")
    console.print(_edge_table(graph, planted))
    graphs = {
        "information in messages (information_graphs)": graph,
        "edge weights of Eq. 3": raindrop.graphs(test).mean(coupled),
        "lagged correlation": lagged_correlation(test[coupled]),
    }
    scores = Table("recovery of the planted edges", "AUROC", "AUPRC", "right direction")
    for name, each in graphs.items():
        score = recovery(each, planted.adjacency())
        scores.add_row(name, f"{score.auroc:.3f}", f"{score.auprc:.3f}", f"{score.direction:.0%}")
    console.print(scores)

    raindrop.predict_table(test).write(folder / "predictions.parquet")
    write_frame(graph.edges(), folder / "edges.csv")
    console.print(
        f"\nWrote the model to {out / 'run'}, predictions to {out / 'predictions.parquet'}, "
        f"edges to {out / 'edges.csv'}."
    )
    _report(raindrop, {"Trees": trees}, test, planted, folder, out, console)
    _draw(
        {
            "samples: planted": planted.graph("samples: planted"),
            f"samples: the {len(planted.edges)} strongest found by Raindrop": graph.strongest(len(planted.edges)),
            "series: planted": series.graph("series: planted"),
            "series: found by sensor_graph": of_series,
        },
        folder,
        out,
        console,
    )


def _comparison(models: dict[str, Predicts], test: EventTable, seed: int) -> Table:
    """AUROC of every model, with all sensors and with some failing in each test sample."""
    coupled = test.labels == "coupled"
    tables = [test, *(hide_random_sensors(test, share, seed=seed) for share in FAILING)]
    columns = ["all sensors", *(f"{share:.0%} failing" for share in FAILING)]
    rows = Table("AUROC (coupled), 10 % unseen samples", *columns)
    for name, model in models.items():
        values = [roc_auc_score(coupled, np.asarray(model.predict_proba(each))[:, 1]) for each in tables]
        rows.add_row(name, *(f"{value:.3f}" for value in values))
    return rows


def _report(
    raindrop: Classifier,
    baselines: dict[str, Classifier],
    test: EventTable,
    planted: PlantedGraph,
    folder: Path,
    out: Path,
    console: Console,
) -> None:
    """Write the HTML report; without the packages for it, the demo ends without a report."""
    path = folder / "report.html"
    if not can_write_page(path, "No report", console):
        return
    truth = ", ".join(f"{sender} -> {receiver}" for sender, receiver in planted.edges)
    notes = {"Samples": "10 % that were not used for training or validation", "Planted edges": f"{truth} (synthetic)"}
    title = "Demo on synthetic data with a planted sensor graph"
    content = report_on(raindrop, test, baselines=baselines, notes=notes, title=title)
    write_report(content, path)
    console.print(f"Wrote the report to {out / path.name}; open it in any browser.")


def _draw(graphs: dict[str, SensorGraph], folder: Path, out: Path, console: Console) -> None:
    """Draw planted and found graphs side by side; without matplotlib, print a sentence instead."""
    try:
        from raindrop.report import plots
    except MissingExtraError as error:
        console.print(f"No picture: {escape(str(error))}")
        return
    name = "planted_and_found.svg"
    plots.side_by_side(graphs).savefig(folder / name)
    console.print(f"Drew the planted graphs beside those found: {out / name}")


def _edge_table(graph: SensorGraph, planted: PlantedGraph) -> Table:
    truth = set(planted.edges)
    rows = Table("edge", "gain", "planted", title="Strongest edges")
    strongest = graph.edges().filter(pl.col("weight") > 0).head(2 * len(truth))
    for sender, receiver, weight in strongest.iter_rows():
        reverse = "reversed" if (receiver, sender) in truth else "no"
        rows.add_row(f"{sender} -> {receiver}", f"{weight:.3f}", "yes" if (sender, receiver) in truth else reverse)
    return rows
