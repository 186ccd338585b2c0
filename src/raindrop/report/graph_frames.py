"""The content of a figure of sensor graphs: the arrows of each frame and the evidence of each arrow as a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from raindrop.estimators.sender_graphs import SenderEffects, SenderGraph
from raindrop.graphs.class_differences import ClassGraphs
from raindrop.graphs.graph import SensorGraph
from raindrop.graphs.informed import InformedGraph
from raindrop.graphs.layout import sensor_places, table_positions
from raindrop.report.graph_picture import Arrow, Frame, Picture
from raindrop.table.event_table import EventTable

MIN_HERE = 5  # minimum number of hidden readings of a receiver in a stretch, to show it


def with_places(picture: Picture, positions: Any = None, table: EventTable | None = None) -> Picture:
    """The picture as a map, with these positions, or with those of the table if it has them for all its sensors."""
    notes = list(picture.notes)
    if positions is None and table is not None:
        positions, note = table_positions(table)
        notes += [note] if note else []
    places = None if positions is None else sensor_places(picture.sensors, positions)
    return replace(picture, places=places, notes=notes)


def graph_picture(graph: SensorGraph, *, unit: str = "") -> Picture:
    """One graph of a table; unit: that of lags."""
    return Picture(graph.sensors, [_frame(graph, "", unit, _largest([graph]))], notes=_notes(graph))


def class_picture(classes: ClassGraphs, *, unit: str = "", of: str = "class") -> Picture:
    """The differences between classes, then the graph of each class."""
    differences, graphs = list(classes.differences.values()), list(classes.graphs.values())
    sensors = graphs[0].sensors
    largest = _largest(differences)
    frames = []
    for label, graph in classes.differences.items():
        rows = classes.evidence.filter(pl.col("class") == str(label))
        texts = {(row["sender"], row["receiver"]): _difference_sentence(row) for row in rows.iter_rows(named=True)}
        frames.append(Frame(f"difference: {graph.name}", _arrows(graph, texts, largest), _with_advice(graph)))
    largest = _largest(graphs)
    frames += [_frame(graph, f"{of} {name}", unit, largest) for name, graph in classes.graphs.items()]
    notes = [
        "In a difference, an edge is orange where the sender helps more in the first named class, and blue where less.",
        classes.describe_stability(),
    ]
    if isinstance(graphs[0], InformedGraph):
        notes[1] = "Only lagged edges are compared; edges at the same time are in the graphs of the classes."
    return Picture(sensors, frames, notes=notes)


def effects_picture(effects: SenderEffects, graph: SenderGraph, *, unit: str = "") -> Picture:
    """The graph of a fitted model; for long series also of each stretch of time, with a slider."""
    stretches = effects.stretches()
    largest = _largest([graph])
    whole = _frame(graph, "whole table" if stretches else "", unit, largest)
    frames = [whole]
    if stretches and not graph.is_empty:
        owner = np.full(len(effects.ids), -1)
        for at, (_, mask) in enumerate(stretches):
            owner[mask] = at
        total, count = effects.sums(np.where(owner < 0, len(stretches), owner)[effects.owner], len(stretches) + 1)
        rows = list(graph.edge_evidence().iter_rows(named=True))
        for at, (title, _) in enumerate(stretches):
            frames.append(_stretch(f"{title} {unit}".rstrip(), rows, graph, total[at], count[at], largest))
    return Picture(graph.sensors, frames, "time", notes=_notes(graph))


# ---------------------------------------------------------------- frames


def _frame(graph: SensorGraph, title: str, unit: str, largest: float) -> Frame:
    texts: dict[tuple[str, str], str] = {}
    lagged: set[tuple[str, str]] | None = None
    if isinstance(graph, InformedGraph):
        evidence = graph.edge_evidence()
        lagged = set(evidence.filter(kind="lagged").select("sender", "receiver").iter_rows())
        lines: dict[tuple[str, str], list[str]] = {}
        for row in evidence.iter_rows(named=True):
            lines.setdefault((row["sender"], row["receiver"]), []).append(informed_sentence(row, unit))
        texts = {pair: "\n".join(each) for pair, each in lines.items()}
    elif isinstance(graph, SenderGraph):
        rows = graph.edge_evidence().iter_rows(named=True)
        texts = {(row["sender"], row["receiver"]): sender_sentence(row) for row in rows}
    return Frame(title, _arrows(graph, texts, largest, lagged), _with_advice(graph))


def _arrows(
    graph: SensorGraph,
    texts: dict[tuple[str, str], str],
    largest: float,
    lagged: set[tuple[str, str]] | None = None,
) -> list[Arrow]:
    """The arrows, strongest first. lagged: the pairs with a direction; any other pair is drawn once."""
    position = {name: at for at, name in enumerate(graph.sensors)}
    arrows = []
    for sender, receiver, weight in graph.edges().iter_rows():
        head = lagged is None or (sender, receiver) in lagged
        if not head and ((receiver, sender) in (lagged or ()) or sender > receiver):
            continue
        text = texts.get((sender, receiver), f"{sender} → {receiver}: {weight:.3g}")
        size = min(1.0, abs(weight) / largest)
        arrows.append(Arrow(position[sender], position[receiver], size, text, head, "more" if weight > 0 else "less"))
    return arrows


def _stretch(
    title: str, rows: list[dict[str, Any]], graph: SenderGraph, total: Any, count: Any, largest: float
) -> Frame:
    """The edges of the whole table, with their strength in this stretch."""
    position = {name: at for at, name in enumerate(graph.sensors)}
    arrows = []
    for row in rows:
        u, v = position[row["sender"]], position[row["receiver"]]
        number, pair = int(count[v]), f"{row['sender']} → {row['receiver']}"
        overall = f"Whole table: {sender_sentence(row)}"
        if number < MIN_HERE:
            text = f"{pair}: {number} hidden readings of {row['receiver']} here are too few to say. {overall}"
            arrows.append(Arrow(u, v, 0.0, text, kind="none"))
            continue
        worse = float(total[u, v]) / number
        text = f"{pair}: {worse:+.1%} error without it here ({number} hidden readings). {overall}"
        arrows.append(Arrow(u, v, min(1.0, max(worse, 0.0) / largest), text, kind="more" if worse > 0 else "none"))
    arrows.sort(key=lambda arrow: -arrow.size)
    note = "Dashed: an edge of the whole table that does not help here, or with too few hidden readings here."
    return Frame(title, arrows, note=note if any(arrow.kind == "none" for arrow in arrows) else "")


def _largest(graphs: Iterable[SensorGraph]) -> float:
    return max((float(np.abs(graph.weights).max(initial=0)) for graph in graphs), default=0) or 1.0


def _notes(graph: SensorGraph) -> list[str]:
    notes = []
    if isinstance(graph, SenderGraph):
        notes.append(graph.describe_stability())
    if isinstance(graph, InformedGraph) and graph.untested:
        notes.append(f"Too few readings to be tested as receivers: {', '.join(graph.untested)}.")
    return notes


def _with_advice(graph: SensorGraph) -> str:
    """Why there are no edges, and what to do next."""
    if not graph.is_empty:
        return ""
    return f"{graph.describe_empty()} Next: 'raindrop inspect DATA' shows how often each sensor is read."


# ---------------------------------------------------------------- sentences


def informed_sentence(row: dict[str, Any], unit: str) -> str:
    """A sentence about an edge from readings alone."""
    when = "at the same time" if row["kind"] == "same time" else f"at a lag of {row['lag'] or 0:.3g} {unit}".rstrip()
    arrow = "-" if row["kind"] == "same time" else "→"
    return (
        f"{row['sender']} {arrow} {row['receiver']}, {when}: removes {row['gain']:.1%} of the error "
        f"({row['low']:.1%} to {row['high']:.1%}), q = {row['q']:.2g}"
    )


def sender_sentence(row: dict[str, Any]) -> str:
    """A sentence about an edge of a fitted model."""
    return (
        f"{row['sender']} → {row['receiver']}: {row['worse']:+.1%} error without it "
        f"({row['low']:+.1%} to {row['high']:+.1%}), q = {row['q']:.2g}"
    )


def _difference_sentence(row: dict[str, Any]) -> str:
    recurs = "" if row["recurs"] is None else f"; recurs with {row['recurs']:.0%} of the other seeds"
    return (
        f"{row['sender']} → {row['receiver']}: removes {row['in_class']:.1%} of the error in {row['class']}, "
        f"{row['in_others']:.1%} elsewhere, q = {row['q']:.2g}{recurs}"
    )
