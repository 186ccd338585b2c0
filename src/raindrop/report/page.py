"""A report as one HTML file that needs nothing else: no network, no folder beside it."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from raindrop.files import to_json, write_text
from raindrop.graphs.graph import SensorGraphs
from raindrop.report.cases import Case
from raindrop.report.content import HIDDEN, Report
from raindrop.report.figures import PALETTE, all_figures
from raindrop.report.graphs import Reading

FIGURES = ("auroc", "auprc", "accuracy", "f1", "brier", "log_loss")

EDGES_OF_A_SAMPLE = 100  # a picture with more cannot be read
NAMES = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "accuracy": "Accuracy",
    "f1": "F1, mean over classes",
    "brier": "Brier score (lower is better)",
    "log_loss": "Log loss (lower is better)",
}


def write_page(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write the page; whole or not at all."""
    write_text(path, page(report))
    return Path(path)


def page(report: Report) -> str:
    """The page as text. What comes from data is escaped: by Jinja in the markup, by `inert` in the scripts."""
    environment = Environment(
        loader=PackageLoader("raindrop", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    here = files("raindrop.report")
    return environment.get_template("page.html").render(
        report=report,
        figures=FIGURES,
        names=NAMES,
        hidden=HIDDEN,
        palette=PALETTE,
        style=here.joinpath("page.css").read_text(encoding="utf-8"),
        script=here.joinpath("page.js").read_text(encoding="utf-8"),
        bokeh="\n".join(Resources(mode="inline", components=["bokeh"]).js_raw),
        data=inert(page_data(report)),
        charts=inert(all_figures(report)),
        percent=lambda share: f"{100 * share:.0f} %",
    )


def inert(content: Any) -> str:
    """JSON that can stand in a <script> element: it cannot end the element, nor start a comment."""
    text = to_json(content, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def page_data(report: Report) -> dict[str, Any]:
    """What the script of the page works on, compact."""
    place = circle(report.sensors)
    counts = np.bincount(report.truth, minlength=len(report.classes))
    mean, scale = report.scale
    return {
        "sensors": report.sensors,
        "short": shortened(report.sensors),
        "classes": report.classes,
        "counts": counts.tolist(),
        "place": digits(place, 5),
        "mean": digits(mean, 5),
        "scale": digits(scale, 5),
        "readings": [_reading(held, report) for held in report.readings],
        "samples": [_case(case) for case in report.cases],
    }


def _reading(held: Reading, report: Report) -> dict[str, Any]:
    return {
        "name": held.name,
        "about": held.about,
        "evidence": held.evidence,
        "warning": held.warning,
        "q": {code: digits(q.ravel(), 2) for code, q in held.q.items()},
        "means": {code: digits(graph.weights.ravel(), 3) for code, graph in held.means.items()},
        "samples": None if held.graphs is None else [strongest(held.graphs, at) for at in report.chosen],
    }


def strongest(graphs: SensorGraphs, at: int) -> list[float]:
    """The strongest edges of a sample between different sensors, flat: sender, receiver, weight, and again."""
    weights = np.where(np.eye(len(graphs.sensors), dtype=bool), 0, graphs.weights[at])
    order = np.argsort(-np.abs(weights), axis=None, kind="stable")[:EDGES_OF_A_SAMPLE]
    order = order[weights.ravel()[order] != 0]
    sender, receiver = np.unravel_index(order, weights.shape)
    flat: list[float] = []
    for u, v, w in zip(sender.tolist(), receiver.tolist(), digits(weights.ravel()[order], 3), strict=True):
        flat += [u, v, w]
    return flat


def _case(case: Case) -> dict[str, Any]:
    sensors, start = np.unique(case.sensor, return_index=True)
    return {
        "id": case.id,
        "label": case.label,
        "p": digits(case.probability, 4),
        "sensors": sensors.tolist(),
        "start": start.tolist(),
        "time": digits(case.time, 5),
        "value": digits(case.value, 5),
        "attention": None if case.attention is None else digits(case.attention, 2),
        "contribution": digits(case.contribution, 3),
        "without": digits(case.without, 3),
        "statics": {name: None if value is None else str(value) for name, value in case.statics.items()},
    }


def circle(sensors: tuple[str, ...]) -> NDArray[np.float64]:
    """(sensors, x and y) on NetworkX's circular layout, the first at the top, clockwise."""
    layout = nx.circular_layout(range(len(sensors)), scale=1.0)
    at = np.array([layout[code] for code in range(len(sensors))]).reshape(-1, 2)
    return at[:, ::-1] if len(sensors) > 1 else np.zeros((len(sensors), 2))


def shortened(sensors: tuple[str, ...], most: int = 16) -> list[str]:
    """Names for pictures: cut where they are long, and numbered where the cut makes two the same."""
    cut = [name if len(name) <= most else f"{name[: most - 1]}…" for name in sensors]
    return [name if cut.count(name) == 1 else f"{name} {at + 1}" for at, name in enumerate(cut)]


def digits(values: NDArray[Any], number: int) -> list[Any]:
    """Values rounded to so many significant digits, as a list; null where there is no number."""
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.where(values == 0, 0, np.floor(np.log10(np.abs(values))))
    power = number - 1 - np.nan_to_num(power, posinf=0, neginf=0)
    up, down = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)  # so that only whole numbers are divided
    rounded: list[Any] = (np.round(values * up / down) / up * down).tolist()
    return rounded
