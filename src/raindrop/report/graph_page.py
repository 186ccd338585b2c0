"""A self-contained HTML page of sensor graphs that needs no network: figures, evidence, a list of edges."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

from raindrop.files import write_text
from raindrop.graphs.class_differences import ClassGraphs
from raindrop.graphs.graph import SensorGraph
from raindrop.report.graph_frames import class_picture, graph_picture, with_places
from raindrop.report.graph_picture import Picture, asset, picture_html
from raindrop.report.policy import policy_hash

STYLE = """*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:#1a2433;max-width:62rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;overflow-wrap:anywhere}h3{font-size:1.05rem}.note{color:#52606d}
select,input,button{font:inherit;padding:5px 8px;max-width:100%}input[type=range]{width:100%}
:focus-visible{outline:3px solid #2f81c4;outline-offset:2px}
"""
INFORMED = (
    "An arrow u → v: the past of u helps to predict v, beyond v's own past and that of all other sensors. A line "
    "without a head: the two move together at the same time. No edge is a cause: something that is not measured may "
    "drive both. Hover over an edge, or select it in the list, for its evidence."
)
SENDERS = (
    "An arrow u → v: readings of v were hidden and predicted by the fitted model; without the readings of u it "
    "predicts them worse, by the share that the edge shows. It is about this model, and no edge is a cause. Hover over "
    "an edge, or select it in the list, for its evidence."
)


def write_graph_page(
    graph: SensorGraph | ClassGraphs | Picture,
    path: str | os.PathLike[str],
    *,
    unit: str = "",
    positions: Any = None,
    title: str = "",
    about: str = INFORMED,
) -> Path:
    """Write the page. unit: that of lags, for the text; positions: a frame with sensor, x, y, for a map."""
    write_text(path, graph_page(graph, unit=unit, positions=positions, title=title, about=about))
    return Path(path)


def graph_page(
    graph: SensorGraph | ClassGraphs | Picture,
    *,
    unit: str = "",
    positions: Any = None,
    title: str = "",
    about: str = INFORMED,
) -> str:
    """The page as text. A picture of several graphs has its positions already."""
    if isinstance(graph, Picture):
        picture = graph
    elif isinstance(graph, ClassGraphs):
        picture = with_places(class_picture(graph, unit=unit), positions)
    else:
        picture, title = with_places(graph_picture(graph, unit=unit), positions), title or graph.name
    script, style = asset("graph.js"), STYLE + asset("graph.css")
    policy = f"default-src 'none'; script-src {policy_hash(script)}; style-src {policy_hash(style)}; img-src data:"
    policy += "; base-uri 'none'; form-action 'none'"
    name = escape(title or "Sensor graphs")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{name}</title>'
        f'<link rel="icon" href="data:,"><style>{style}</style></head><body><main><h1>{name}</h1>'
        f"<p>{escape(about)}</p>{picture_html(picture)}</main><script>{script}</script></body></html>\n"
    )
