"""One HTML page about drift since training: alarms with figures, and every test. No scripts."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from raindrop.errors import ConfigError
from raindrop.files import refuse_to_overwrite, write_text
from raindrop.monitor.drift import Drift, Findings
from raindrop.report.numbers import quantity_text
from raindrop.report.plain_page import plain_page

BEFORE, NOW = "#b8c0c8", "#b4531a"
WIDTH, HEIGHT, FOOT = 420, 150, 34
MAX_PICTURES = 60
TITLES = {
    "missing": "Share of samples with a reading",
    "level": "Median value of a sample",
    "rate": "Readings of a sample",
    "constant": "Share of samples with one value throughout",
    "scores": "Scores",
    "calibration": "Outcomes by bin of the score",
}


def check_drift_path(path: str | os.PathLike[str]) -> None:
    """Raise if no page can be written to `path`."""
    if Path(path).suffix not in (".html", ".htm"):
        raise ConfigError(f"{path}: the page is an HTML file; its name must end in .html.")
    refuse_to_overwrite(Path(path))


def write_drift_page(findings: Findings, path: str | os.PathLike[str], *, title: str = "Drift") -> Path:
    """Write the page to a new HTML file, atomically."""
    check_drift_path(path)
    write_text(path, drift_page(findings, title=title))
    return Path(path)


def drift_page(findings: Findings, *, title: str = "Drift") -> str:
    """The page as text."""
    alarms = findings.alarms
    count = "nothing has" if not alarms else "1 thing has" if len(alarms) == 1 else f"{len(alarms):,} things have"
    lead = f"{findings.pieces:,} new samples: {count} changed since training, of {len(findings.tests):,} compared."
    note = (
        "An alarm: the p-value, adjusted for all tests by Holm's method, is below "
        f"{findings.alpha:g}, and the change is not small (population stability index of at least 0.05; outcomes off "
        f"by at least 0.02). With nothing changed, the chance of any alarm is at most {findings.alpha:.0%}."
    )
    sections = [_alarms(findings), _pictures(alarms), _table(findings.tests)]
    return plain_page(title, "raindrop monitor", lead, sections, note)


def _alarms(findings: Findings) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in findings.sentences())
    body = f"<ul>{items}</ul>" if items else "<p>Readings and scores are as they were in training.</p>"
    if findings.new_sensors:
        names = escape(", ".join(findings.new_sensors[:50]))
        body += f'<p class="warning">Sensors that the model does not know: {names}.</p>'
    if findings.untested:
        names = escape(", ".join(findings.untested[:50]))
        body += f'<p class="note">Too few samples to compare: {names}.</p>'
    return f'<section id="alarms"><h2>Alarms</h2><div class="card">{body}</div></section>'


def _pictures(alarms: tuple[Drift, ...]) -> str:
    drawn = [drift for drift in alarms if drift.shares[0]][:MAX_PICTURES]
    if not drawn:
        return ""
    cards = "".join(
        f'<figure class="card"><h3>{escape(drift.name)}{escape(f" ({drift.group})" if drift.group else "")}</h3>'
        f"{_bars(drift)}<figcaption>{TITLES[drift.kind]}. {escape(drift.sentence())}. Adjusted p "
        f"{drift.q:.2g}.</figcaption></figure>"
        for drift in drawn
    )
    key = (
        f'<p class="key"><span><span class="swatch" style="background:{BEFORE}"></span>training</span>'
        f'<span><span class="swatch" style="background:{NOW}"></span>now</span></p>'
    )
    return f'<section id="pictures"><h2>What changed</h2>{key}<div class="grid two">{cards}</div></section>'


def _bars(drift: Drift) -> str:
    """Two bars for each bin, training and now."""
    before, now = drift.shares
    tallest = max(*before, *now, 1e-9)
    step = WIDTH / len(before)
    parts = []
    for at, pair in enumerate(zip(before, now, strict=True)):
        for side, (share, colour) in enumerate(zip(pair, (BEFORE, NOW), strict=True)):
            height = share / tallest * HEIGHT
            x = at * step + step * (0.1 + 0.4 * side)
            parts.append(
                f'<rect x="{x:.1f}" y="{HEIGHT - height:.1f}" width="{0.4 * step:.1f}" height="{height:.1f}" '
                f'fill="{colour}"><title>{share:.1%}</title></rect>'
            )
    labels = [(at + 1.0, quantity_text(edge)) for at, edge in enumerate(drift.edges)]
    if drift.kind in ("missing", "constant"):
        labels = [(0.5, "no"), (1.5, "yes")]
    for place, text in labels[:: max(1, len(labels) // 5)]:
        parts.append(
            f'<text x="{place * step:.1f}" y="{HEIGHT + 18}" text-anchor="middle" font-size="12" fill="#52606d">'
            f"{escape(text)}</text>"
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + FOOT}" role="img" aria-label="training and now, by bin">'
        f"{''.join(parts)}</svg>"
    )


def _table(tests: tuple[Drift, ...]) -> str:
    rows = "".join(
        f'<tr><th scope="row" class="name">{escape(test.name)}</th><td>{escape(test.group)}</td><td>{test.kind}</td>'
        f'<td class="number">{quantity_text(test.before)}</td><td class="number">{quantity_text(test.now)}</td>'
        f'<td class="number">{test.psi:.3f}</td><td class="number">{test.q:.2g}</td>'
        f"<td>{'alarm' if test.is_alarm else ''}</td></tr>"
        for test in sorted(tests, key=lambda test: (test.q, -test.psi))
    )
    names = ("Sensor or score", "Group", "What", "Training", "Now", "Index", "Adjusted p", "")
    head = "".join(f'<th scope="col"{" class=number" if 3 <= at <= 6 else ""}>{n}</th>' for at, n in enumerate(names))
    return (
        '<section id="tests"><h2>All tests</h2><div class="card scroll tall" tabindex="0" role="region" '
        f'aria-label="All tests"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>'
    )
