"""Render a report as one self-contained HTML file: no network, no other files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from raindrop.files import to_json
from raindrop.graphs.graph import SensorGraphs
from raindrop.report.cases import Case
from raindrop.report.charts import PALETTE, all_charts
from raindrop.report.content import HIDDEN_SHARES, Report
from raindrop.report.graph_picture import asset, short_names
from raindrop.report.graph_views import GraphView
from raindrop.report.numbers import digits, percent_text, static_text
from raindrop.report.policy import content_nonce, policy_hash
from raindrop.report.tasks import TaskView

MAX_EDGES_PER_SAMPLE = 100  # more would be unreadable


def page(report: Report) -> str:
    """The page as text."""
    view = report.view
    first = next(iter(view.task.metrics))
    return render(
        "page.html",
        page_data(report),
        all_charts(report),
        ("common.js", "page.js"),
        report=report,
        view=view,
        names=report.metric_names,
        first=first,
        hidden_shares=HIDDEN_SHARES,
        history_metrics={name: report.metric_names[name] for name in view.headline[:3]},
        metric_text=view.metric_text,
        signed=lambda value: "+" * (value > 0) + view.metric_text(first, value),
    )


def render(template: str, data: Any, charts: Any, scripts: Sequence[str], **values: Any) -> str:
    """A page from its template. Text from the data is escaped: by Jinja in the markup, here in the scripts."""
    environment = Environment(
        loader=PackageLoader("raindrop", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    script = "\n".join(map(asset, scripts))
    bokeh = _element_text("\n".join([asset("styles.js"), *Resources(mode="inline", components=["bokeh"]).js_raw]))
    colours = "\n".join(f".series-{at} {{ background: {colour}; }}" for at, colour in enumerate(PALETTE))
    content = {"data": script_json(data), "charts": script_json(charts)}
    return environment.get_template(template).render(
        style=f"{asset('page.css')}{asset('graph.css')}\n{colours}\n",
        nonce=content_nonce(content["data"] + content["charts"]),
        script=script,
        bokeh=bokeh,
        script_hashes=" ".join(map(policy_hash, (bokeh, script))),
        num_colours=len(PALETTE),
        percent=percent_text,
        **content,
        **values,
    )


def _element_text(text: str) -> str:
    """The text of an element as a browser sees it, with normalised line endings."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def script_json(content: Any) -> str:
    """JSON that is safe inside a <script> element: it cannot end the element or start a comment."""
    text = to_json(content, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def page_data(report: Report) -> dict[str, Any]:
    """The data for the script of the page, compact."""
    view, (mean, scale) = report.view, report.scale
    counts = np.bincount(view.group_codes(report.truth), minlength=len(view.groups))
    return {
        "sensors": report.sensors,
        "short": short_names(report.sensors, 16),
        "groups": list(view.groups),
        "main_group": view.main_group,
        "effect_note": view.effect_note,
        "shares": view.shares,
        "counts": counts.tolist(),
        "place": digits(circle(report.sensors), 5),
        "mean": digits(mean, 5),
        "scale": digits(scale, 5),
        "views": [_graph_view(each, report) for each in report.graph_views],
        "samples": [_case(case, view) for case in report.cases],
    }


def _graph_view(view: GraphView, report: Report) -> dict[str, Any]:
    graphs = view.graphs
    return {
        "name": view.name,
        "about": view.about,
        "empty": view.empty,
        "empty_classes": {code: graph.describe_empty() for code, graph in view.means.items() if graph.is_empty},
        "evidence": view.evidence,
        "warnings": view.warnings,
        "q": {code: digits(q.ravel(), 2) for code, q in view.q.items()},
        "recurs": {
            name: {code: mask.ravel().astype(int).tolist() for code, mask in by_class.items()}
            for name, by_class in view.recurs.items()
        },
        "means": {code: digits(graph.weights.ravel(), 3) for code, graph in view.means.items()},
        "samples": None if graphs is None else [strongest(graphs, at) for at in report.case_positions],
        "empty_samples": [] if graphs is None else [_empty_sample(graphs, at) for at in report.case_positions],
    }


def _empty_sample(graphs: SensorGraphs, position: int) -> str:
    return graphs[graphs.ids[position]].describe_empty()


def strongest(graphs: SensorGraphs, position: int) -> list[float]:
    """A sample's strongest edges between different sensors as one flat list: sender, receiver, weight, sender, ..."""
    weights = np.where(np.eye(len(graphs.sensors), dtype=bool), 0, graphs.weights[position])
    order = np.argsort(-np.abs(weights), axis=None, kind="stable")[:MAX_EDGES_PER_SAMPLE]
    order = order[weights.ravel()[order] != 0]
    sender, receiver = np.unravel_index(order, weights.shape)
    flat: list[float] = []
    for u, v, w in zip(sender.tolist(), receiver.tolist(), digits(weights.ravel()[order], 3), strict=True):
        flat += [u, v, w]
    return flat


def _case(case: Case, view: TaskView) -> dict[str, Any]:
    summary = view.summary(case.truth, case.predicted, case.region)
    sensors, start = np.unique(case.sensor, return_index=True)
    return {
        "id": case.id,
        "truth": summary.truth,
        "predicted": summary.predicted,
        "score": digits(np.array(summary.score), 6),
        "facts": summary.facts,
        "bars": summary.bars,
        "explained": summary.explained,
        "sensors": sensors.tolist(),
        "start": start.tolist(),
        "time": digits(case.time, 5),
        "value": digits(case.value, 5),
        "attention": None if case.attention is None else digits(case.attention, 2),
        "contribution": digits(case.contribution, 3),
        "without": digits(case.without, 3),
        "statics": {name: None if value is None else static_text(value) for name, value in case.statics.items()},
    }


def circle(sensors: tuple[str, ...]) -> NDArray[np.float64]:
    """(sensors, x and y) on NetworkX's circular layout, the first at the top, clockwise."""
    layout = nx.circular_layout(range(len(sensors)), scale=1.0)
    at = np.array([layout[code] for code in range(len(sensors))]).reshape(-1, 2)
    return at[:, ::-1] if len(sensors) > 1 else np.zeros((len(sensors), 2))
