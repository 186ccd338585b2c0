"""One HTML page of a sensor graph: arrows whose evidence appears on hover, and the edges as a list. No scripts."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

from raindrop.files import atomic_file
from raindrop.graphs.informed import InformedGraph
from raindrop.graphs.layout import circle_places, sensor_places
from raindrop.report.policy import policy_hash

STYLE = """body{font:15px/1.5 system-ui,sans-serif;color:#1a2433;max-width:60rem;margin:2rem auto;padding:0 1rem}
svg{width:100%;max-width:46rem;height:auto}
path.edge{fill:none;stroke:#b4531a}path.edge:hover{stroke:#1f5f8b;stroke-opacity:1}text{font-size:11px}"""
SIZE, RADIUS = 760, 250.0


def write_graph_page(
    graph: InformedGraph, path: str | os.PathLike[str], *, unit: str = "", positions: Any = None
) -> Path:
    """Write the page. unit: that of lags, for the text; positions: a frame sensor, x, y, for a map."""
    with atomic_file(path) as partial:
        Path(partial).write_text(graph_page(graph, unit=unit, positions=positions), encoding="utf-8")
    return Path(path)


def graph_page(graph: InformedGraph, *, unit: str = "", positions: Any = None) -> str:
    """The page as text."""
    if graph.is_empty:
        body = f"<p>{escape(graph.describe_empty())}</p>"
    else:
        body = _picture(graph, unit, positions) + _list(graph, unit)
    if graph.untested:
        body += f"<p>Too few readings to be tested as receivers: {escape(', '.join(graph.untested))}.</p>"
    title, policy = escape(graph.name), f"default-src 'none'; style-src {policy_hash(STYLE)}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}; base-uri 'none'; form-action 'none'\">"
        f"<style>{STYLE}</style></head>"
        f"<body><h1>{title}</h1><p>An arrow u → v: the past of u helps to predict v, beyond v's own past and that of "
        "all other sensors. A line without a head: the two move together at the same time. Hover over one for its "
        f"evidence.</p>{body}</body></html>"
    )


def _picture(graph: InformedGraph, unit: str, positions: Any) -> str:
    place = circle_places(len(graph.sensors)) if positions is None else sensor_places(graph.sensors, positions)
    point = {name: (SIZE / 2 + RADIUS * x, SIZE / 2 - RADIUS * y)
             for name, (x, y) in zip(graph.sensors, place.tolist(), strict=True)}  # fmt: skip
    largest = float(graph.weights.max())
    parts = [
        '<defs><marker id="head" viewBox="0 0 10 10" refX="11" refY="5" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L10 5L0 10z" fill="#b4531a"/></marker></defs>'
    ]
    evidence = graph.edge_evidence()
    lagged = set(evidence.filter(kind="lagged").select("sender", "receiver").iter_rows())
    for (sender, receiver), rows in evidence.group_by("sender", "receiver", maintain_order=True):
        if (sender, receiver) not in lagged and ((receiver, sender) in lagged or sender > receiver):
            continue  # a pair at the same time is drawn once
        (x, y), (to_x, to_y) = point[str(sender)], point[str(receiver)]
        bend_x, bend_y = (x + to_x) / 2 - 0.15 * (to_y - y), (y + to_y) / 2 + 0.15 * (to_x - x)
        share = float(rows["weight"][0]) / largest
        head = ' marker-end="url(#head)"' if (sender, receiver) in lagged else ""
        text = "\n".join(_sentence(row, unit) for row in rows.iter_rows(named=True))
        parts.append(
            f'<path class="edge" d="M{x:.1f} {y:.1f}Q{bend_x:.1f} {bend_y:.1f} {to_x:.1f} {to_y:.1f}" '
            f'stroke-width="{1 + 4 * share:.1f}" stroke-opacity="{0.3 + 0.6 * share:.2f}"{head}>'
            f"<title>{escape(text)}</title></path>"
        )
    for name, (x, y) in point.items():
        anchor = "end" if x < SIZE / 2 - 1 and positions is None else "start"
        shift = -8 if anchor == "end" else 8
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#1a2433"/>')
        parts.append(f'<text x="{x + shift:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">{escape(name)}</text>')
    return f'<svg viewBox="0 0 {SIZE} {SIZE}" role="img" aria-label="sensor graph">{"".join(parts)}</svg>'


def _sentence(row: dict[str, Any], unit: str) -> str:
    when = "at the same time" if row["kind"] == "same time" else f"at a lag of {row['lag'] or 0:.3g} {unit}".rstrip()
    arrow = "-" if row["kind"] == "same time" else "→"
    return (
        f"{row['sender']} {arrow} {row['receiver']}, {when}: removes {row['gain']:.1%} of the error "
        f"({row['low']:.1%} to {row['high']:.1%}), q = {row['q']:.2g}"
    )


def _list(graph: InformedGraph, unit: str) -> str:
    rows = "".join(f"<li>{escape(_sentence(row, unit))}</li>" for row in graph.edge_evidence().iter_rows(named=True))
    return f"<h2>Edges, strongest first</h2><ul>{rows}</ul>"
