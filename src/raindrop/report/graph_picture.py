"""A picture of one or several sensor graphs of the same sensors, as HTML: arrows with their evidence, a list of them,
and a choice of graph or a slider over time.

`graph.js` and `graph.css` go with it; it needs no other package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Literal

import numpy as np
from numpy.typing import NDArray

SIZE = 760  # of the drawing, in SVG units
MAX_ARROWS = 300  # per frame; more would be unreadable
MAX_UPRIGHT = 16  # sensors on a circle; with more, names are rotated
MAX_ISOLATED = 40  # with more sensors, those without any edge are not drawn
NAME_LENGTH = 18


@dataclass(frozen=True)
class Arrow:
    """An edge as it is drawn."""

    sender: int
    receiver: int
    size: float
    """Its weight, as a share of the largest one on the page, from 0 to 1."""
    text: str
    """Its evidence, one line for each kind."""
    head: bool = True
    """Whether it has a direction."""
    kind: Literal["more", "less", "none"] = "more"
    """Positive weight, negative weight, or an edge that is not shown as one here."""


@dataclass(frozen=True)
class Frame:
    """One graph: of the whole table, of a class, of a stretch of time."""

    title: str
    arrows: list[Arrow]
    empty: str = ""
    """Why there are no arrows, and what to do next."""
    note: str = ""


@dataclass(frozen=True, eq=False)
class Picture:
    """Several frames with the same sensors at the same positions."""

    sensors: tuple[str, ...]
    frames: list[Frame]
    control: Literal["choice", "time"] = "choice"
    places: NDArray[np.float64] | None = None
    """(sensor, 2) positions on a map, between -1 and 1; None for a circle."""
    notes: list[str] = field(default_factory=list)

    @property
    def drawn(self) -> list[int]:
        """The sensors that are drawn: all, or only those with an arrow in some frame if there are many."""
        if len(self.sensors) <= MAX_ISOLATED:
            return list(range(len(self.sensors)))
        used = {
            at for frame in self.frames for arrow in frame.arrows[:MAX_ARROWS] for at in (arrow.sender, arrow.receiver)
        }
        return sorted(used)


def asset(name: str) -> str:
    """The text of a file in this folder, with normalised line endings, as a browser sees it."""
    return files("raindrop.report").joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def picture_html(picture: Picture) -> str:
    """The picture as part of a page. All text from the data is escaped."""
    parts = [f'<div class="sensor-graph" data-control="{picture.control}">', _controls(picture)]
    parts.append('<div class="graph-scroll" tabindex="0" role="region" aria-label="Drawing of the graph">')
    parts.append(f"{_drawing(picture)}</div>")
    for at, frame in enumerate(picture.frames):
        hidden = " hidden" if at else ""
        text = " ".join(part for part in (frame.empty if not frame.arrows else "", frame.note) if part)
        if len(frame.arrows) > MAX_ARROWS:
            text += f" The {MAX_ARROWS} strongest of {len(frame.arrows):,} edges are drawn."
        parts.append(f'<p class="frame-note" data-frame="{at}"{hidden}>{escape(text.strip())}</p>')
    left_out = len(picture.sensors) - len(picture.drawn)
    if left_out and picture.drawn:
        parts.append(f"<p class='note'>{left_out:,} sensors without an edge are not drawn.</p>")
    parts += [f"<p class='note'>{escape(note)}</p>" for note in picture.notes]
    parts.append('<p class="edge-text" aria-live="polite"></p>')
    if any(frame.arrows for frame in picture.frames):
        first = picture.frames[0].arrows[:MAX_ARROWS]
        rows = "".join(f"<li>{escape(line)}</li>" for arrow in first for line in arrow.text.split("\n"))
        parts.append('<h3 class="edges-title">Edges, strongest first</h3>')
        parts.append(f'<ul class="edges">{rows}</ul><p><button type="button" class="all-edges" hidden></button></p>')
    return "".join([*parts, "</div>"])


def _controls(picture: Picture) -> str:
    titles = [escape(frame.title) for frame in picture.frames]
    parts = []
    if len(titles) > 1 and picture.control == "time":
        parts.append(
            f'<label>Time <input type="range" class="frame-slider" min="0" max="{len(titles) - 1}" value="0" step="1" '
            f'aria-valuetext="{titles[0]}"></label>'
        )
    elif len(titles) > 1:
        options = "".join(f'<option value="{at}">{title}</option>' for at, title in enumerate(titles))
        parts.append(f'<label>Graph <select class="frame-choice">{options}</select></label>')
    if len(picture.sensors) > 6:
        parts.append('<label>Find a sensor <input type="search" class="edge-filter" spellcheck="false"></label>')
    spans = "".join(
        f'<span data-frame="{at}"{" hidden" if at else ""}>{title}</span>' for at, title in enumerate(titles)
    )
    if any(titles):
        parts.insert(int(len(titles) > 1), f'<output class="frame-title" aria-live="polite">{spans}</output>')
    return f'<form class="graph-controls" autocomplete="off">{"".join(parts)}</form>'


# ---------------------------------------------------------------- the drawing


def _drawing(picture: Picture) -> str:
    drawn = picture.drawn
    if not any(frame.arrows for frame in picture.frames):
        return ""
    names = short_names([picture.sensors[at] for at in drawn])
    font = 18 if len(drawn) <= MAX_UPRIGHT else 14 if len(drawn) <= 24 else 11 if len(drawn) <= 60 else 8
    point = _points(picture, drawn, max(map(len, names), default=1) * font * 0.6)
    parts = [
        "<defs>"
        + "".join(
            f'<marker id="head-{kind}" class="{kind}" viewBox="0 0 10 10" refX="13" refY="5" markerWidth="9" '
            'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L10 5L0 10z"/></marker>'
            for kind in ("more", "less", "none")
        )
        + "</defs>"
    ]
    on_circle = picture.places is None
    for at, frame in enumerate(picture.frames):
        hidden = " hidden" if at else ""
        curves = "".join(_curve(arrow, point, on_circle) for arrow in reversed(frame.arrows[:MAX_ARROWS]))
        parts.append(f'<g class="frame" data-frame="{at}"{hidden}>{curves}</g>')
    free: list[tuple[float, float, float]] = []
    for at, name in zip(drawn, names, strict=True):
        x, y = point[at]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if len(drawn) <= 60 else 2.5}" data-sensor="{at}">')
        parts.append(f"<title>{escape(picture.sensors[at])}</title></circle>")
        parts.append(_label(name, x, y, font, len(drawn), on_circle, free))
    width = ' class="many"' if len(drawn) > MAX_ISOLATED else ""
    turned = on_circle and len(drawn) > MAX_UPRIGHT  # names above and below
    heights = [30, SIZE - 30] if turned else [y for _, y in point.values()]
    top, bottom = min(heights) - 30, max(heights) + 30
    box = f"0 {top:.0f} {SIZE} {bottom - top:.0f}"
    return f'<svg viewBox="{box}"{width} role="img" aria-label="sensor graph">{"".join(parts)}</svg>'


def _points(picture: Picture, drawn: Sequence[int], room: float) -> dict[int, tuple[float, float]]:
    """The position of each sensor, in the units of the drawing."""
    if picture.places is None:
        radius = SIZE / 2 - 14 - room
        angle = -np.pi / 2 + 2 * np.pi * np.arange(len(drawn)) / max(len(drawn), 1)
        place = np.column_stack([np.cos(angle), np.sin(angle)]) * radius
    else:
        place = picture.places[list(drawn)] * (1, -1) * (SIZE - 40 - room) / 2
        place[:, 0] -= room / 2  # names stand to the right
    return {at: (SIZE / 2 + x, SIZE / 2 + y) for at, (x, y) in zip(drawn, place.tolist(), strict=True)}


def _curve(arrow: Arrow, point: dict[int, tuple[float, float]], on_circle: bool) -> str:
    (x, y), (to_x, to_y) = point[arrow.sender], point[arrow.receiver]
    middle_x, middle_y = (x + to_x) / 2, (y + to_y) / 2
    if on_circle:  # bend towards the centre, away from the rim
        middle_x, middle_y = (SIZE / 2 + 0.6 * (each - SIZE / 2) for each in (middle_x, middle_y))
    bend_x, bend_y = middle_x - 0.12 * (to_y - y), middle_y + 0.12 * (to_x - x)
    head = f' marker-end="url(#head-{arrow.kind})"' if arrow.head else ""
    return (
        f'<path class="edge {arrow.kind}" data-edge="{arrow.sender},{arrow.receiver}" '
        f'd="M{x:.1f} {y:.1f}Q{bend_x:.1f} {bend_y:.1f} {to_x:.1f} {to_y:.1f}" '
        f'stroke-width="{1 + 4 * arrow.size:.1f}" stroke-opacity="{0.35 + 0.6 * arrow.size:.2f}"{head}>'
        f"<title>{escape(arrow.text)}</title></path>"
    )


def _label(
    name: str, x: float, y: float, font: int, number: int, on_circle: bool, taken: list[tuple[float, float, float]]
) -> str:
    """The name beside its point; on a map, omitted if it would cover another one (hovering shows it)."""
    if not on_circle:
        width = len(name) * font * 0.6
        if any(
            abs(y - other_y) < font and x < other_x + other and other_x < x + width for other_x, other_y, other in taken
        ):
            return ""
        taken.append((x, y, width))
        return f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" font-size="{font}">{escape(name)}</text>'
    left = x < SIZE / 2 - 1
    anchor = "end" if left else "start"
    if number <= MAX_UPRIGHT:
        return (
            f'<text x="{x + (-9 if left else 9):.1f}" y="{y + 4:.1f}" font-size="{font}" '
            f'text-anchor="{anchor}">{escape(name)}</text>'
        )
    turn = float(np.degrees(np.arctan2(y - SIZE / 2, x - SIZE / 2))) + (180 if left else 0)
    return (
        f'<text transform="translate({x:.1f} {y:.1f}) rotate({turn:.1f})" x="{-8 if left else 8}" y="{font / 3:.1f}" '
        f'font-size="{font}" text-anchor="{anchor}">{escape(name)}</text>'
    )


def short_names(names: Sequence[str], length: int = NAME_LENGTH) -> list[str]:
    """Names for drawings: long ones are shortened in the middle, and numbered if two would be the same."""
    end = length // 2 - 1
    short = [name if len(name) <= length else f"{name[: length - end - 1]}…{name[-end:]}" for name in names]
    return [name if short.count(name) == 1 else f"{name} {at + 1}" for at, name in enumerate(short)]
