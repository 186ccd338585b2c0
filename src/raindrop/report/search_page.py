"""One HTML page about a search: trials over time, which settings mattered, the best and the start. No scripts."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from raindrop.files import write_text
from raindrop.report.plain_page import plain_page
from raindrop.search.result import SearchResult, TrialRecord

BEST, OTHER, PRUNED, LINE = "#b4531a", "#1f5f8b", "#b8c0c8", "#d9e0e7"
WIDTH, HEIGHT, LEFT, FOOT = 860, 260, 62, 34
SMALL_WIDTH, SMALL_HEIGHT = 400, 170
MAX_PICTURES = 6  # settings plotted against the metric
MARGIN = 0.06  # of a plot, so that no dot lies on its edge

NOTE = (
    "Trials are compared on the same validation samples, so the best value is somewhat optimistic, more so with more "
    "trials. No test sample was looked at. A pruned trial was worse than half of the others at the same epoch; its "
    "value is that of its last epoch. Importance (fANOVA): the share of the variance of the metric over the search "
    "space that a setting explains, estimated from the complete trials; with few of them it is rough."
)


def write_search_page(result: SearchResult, path: str | os.PathLike[str], *, title: str = "Search") -> Path:
    """Write the page, atomically, replacing the page of an earlier run of the search."""
    write_text(path, search_page(result, title=title))
    return Path(path)


def search_page(result: SearchResult, *, title: str = "Search") -> str:
    """The page as text."""
    best, states = result.best, [trial.state for trial in result.trials]
    counts = [f"{states.count('complete')} complete", f"{states.count('pruned')} pruned"]
    counts += [f"{states.count('failed')} failed"] if "failed" in states else []
    lead = (
        f"{len(states):,} trials ({', '.join(counts)}) of '{result.model}', preset '{result.preset}': {result.metric} "
        f"{best.value:.4f} on {result.judged_on}. {result.compared_with_start()}"
    )
    sections = [_over_time(result), _importance(result), _against_settings(result), _best(result), _table(result)]
    return plain_page(title, "raindrop tune", lead, sections, escape(NOTE))


# ---------------------------------------------------------------- sections


def _over_time(result: SearchResult) -> str:
    known = [trial for trial in result.trials if _is_known(trial)]
    y = _Axis([_value(trial) for trial in known], HEIGHT)
    x = _Axis([0, max(1, len(result.trials) - 1)], WIDTH - LEFT, start=LEFT, up=False)
    parts = [_scale(y, WIDTH)]
    start = result.start
    if start is not None:
        at = y(_value(start))
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="#52606d" '
                     'stroke-dasharray="5 4"/>')  # fmt: skip
    steps: list[str] = []
    best: TrialRecord | None = None
    for trial in known:
        if trial.state == "complete" and (best is None or _is_better(result, trial, best)):
            best = trial
        if best is not None:
            place, height = f"{x(trial.number):.1f}", f"{y(_value(best)):.1f}"
            steps += [f"{place},{steps[-1].partition(',')[2]}"] if steps else []
            steps.append(f"{place},{height}")
    parts.append(f'<polyline points="{" ".join(steps)}" fill="none" stroke="{BEST}" stroke-width="2"/>')
    parts += [_dot(trial, x(trial.number), y(_value(trial)), result) for trial in known]
    for number in sorted({0, len(result.trials) // 2, len(result.trials) - 1}):
        parts.append(_text(x(number), HEIGHT + 20, str(number), "middle"))
    key = "".join(
        f'<span><span class="swatch" style="background:{colour}"></span>{text}</span>'
        for colour, text in ((BEST, "best so far"), (OTHER, "complete"), (PRUNED, "pruned"))
    )
    caption = f"{escape(result.metric)} by number of the trial; dashed: the settings that the search started from."
    return (
        f'<section id="trials"><h2>Trials over time</h2><p class="key">{key}</p><figure class="card">'
        f"{_picture(parts, WIDTH, HEIGHT, 'metric by trial')}<figcaption>{caption}</figcaption></figure></section>"
    )


def _importance(result: SearchResult) -> str:
    if not result.importance:
        body = '<p class="note">There are too few complete trials to say which settings mattered.</p>'
    else:
        body = "".join(
            f'<div class="bar"><span class="name">{escape(name)}</span><span class="bar-track"><span '
            f'class="bar-fill" style="width:{100 * share:.1f}%"></span></span><span class="number">{share:.0%}</span>'
            "</div>"
            for name, share in result.importance.items()
        )
    return f'<section id="importance"><h2>What mattered</h2><div class="card">{body}</div></section>'


def _against_settings(result: SearchResult) -> str:
    """The metric against each of the settings that mattered most."""
    names = list(result.importance)[:MAX_PICTURES]
    if not names:
        return ""
    cards = "".join(f'<figure class="card"><h3>{escape(name)}</h3>{_scatter(result, name)}</figure>' for name in names)
    return f'<section id="settings"><h2>By setting</h2><div class="grid two">{cards}</div></section>'


def _scatter(result: SearchResult, name: str) -> str:
    known = [trial for trial in result.trials if _is_known(trial) and name in trial.settings]
    values = [trial.settings[name] for trial in known]
    y = _Axis([_value(trial) for trial in known], SMALL_HEIGHT)
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    distinct = sorted(set(map(str, values))) if len(numbers) < len(values) else sorted(set(numbers))
    width = SMALL_WIDTH - LEFT
    if len(distinct) <= 8:  # categorical axis
        place = {str(value): at for at, value in enumerate(distinct)}
        x = _Axis([-0.4, len(distinct) - 0.6], width, start=LEFT, up=False)
        positions = [x(place[str(value)]) for value in values]
        ticks = [(x(at), str(value)) for at, value in enumerate(distinct)]
    else:
        is_wide = min(numbers) > 0 and max(numbers) / min(numbers) > 20
        x = _Axis(numbers, width, start=LEFT, up=False, log=is_wide)
        positions = [x(value) for value in values]
        ticks = [(x(value), f"{value:.2g}") for value in (min(numbers), max(numbers))]
    parts = [_scale(y, SMALL_WIDTH)]
    parts += [_dot(trial, at, y(_value(trial)), result) for trial, at in zip(known, positions, strict=True)]
    parts += [_text(at, SMALL_HEIGHT + 20, text, "middle") for at, text in ticks]
    return _picture(parts, SMALL_WIDTH, SMALL_HEIGHT, f"metric by {name}")


def _best(result: SearchResult) -> str:
    best, start = result.best, result.start
    rows = "".join(
        f'<tr><th scope="row" class="name">{escape(name)}</th>'
        f'<td class="number">{"" if start is None else _setting(start.settings.get(name))}</td>'
        f'<td class="number">{_setting(value)}</td></tr>'
        for name, value in best.settings.items()
    )
    value = "" if start is None else f"{start.value:.4f}"
    given = ", ".join(f"{name} = {_setting(setting)}" for name, setting in result.given.items())
    note = f'<p class="note">The same in every trial: {escape(given)}.</p>' if given else ""
    return (
        '<section id="best"><h2>The best beside the start</h2><div class="card scroll"><table class="narrow"><thead>'
        '<tr><th scope="col">Setting</th><th scope="col" class="number">Start</th><th scope="col" class="number">Best '
        f"(trial {best.number})</th></tr></thead><tbody>{rows}<tr><th scope='row'>{escape(result.metric)}</th>"
        f'<td class="number">{value}</td><td class="number">{best.value:.4f}</td></tr></tbody></table>{note}'
        "</div></section>"
    )


def _table(result: SearchResult) -> str:
    names = list(result.best.settings)
    rows = "".join(
        f'<tr><td class="number">{trial.number}</td><td>{trial.state}</td>'
        f'<td class="number">{"" if trial.value is None else f"{trial.value:.4f}"}</td>'
        f'<td class="number">{trial.epochs or ""}</td><td class="number">{trial.seconds:.0f}</td>'
        + "".join(f'<td class="number">{_setting(trial.settings.get(name))}</td>' for name in names)
        + f"<td>{escape(trial.failure.splitlines()[0] if trial.failure else '')}</td></tr>"
        for trial in result.trials
    )
    heads = ["Trial", "State", escape(result.metric), "Epochs", "Seconds", *map(escape, names), ""]
    head = "".join(f'<th scope="col"{"" if at == 1 else " class=number"}>{text}</th>' for at, text in enumerate(heads))
    return (
        '<section id="all"><h2>All trials</h2><div class="card scroll tall" tabindex="0" role="region" aria-label='
        f'"All trials"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>'
    )


# ---------------------------------------------------------------- drawing


class _Axis:
    """Maps values to pixels of a plot."""

    def __init__(self, values: Sequence[float], size: float, *, start: float = 0, up: bool = True, log: bool = False):
        self.log, self.start, self.size, self.up = log, start, size, up
        self.low, self.high = min(values), max(values)
        low, high = self._of(self.low), self._of(self.high)
        self._span = (high - low) or max(abs(high), 1e-9)
        self._first = low if high > low else low - self._span / 2

    def _of(self, value: float) -> float:
        return math.log(value) if self.log else float(value)

    def __call__(self, value: float) -> float:
        share = MARGIN + (1 - 2 * MARGIN) * (self._of(value) - self._first) / self._span
        return self.start + self.size * (1 - share if self.up else share)


def _scale(y: _Axis, width: float) -> str:
    """Lines and numbers at the lowest, middle and highest value."""
    ticks = sorted({y.low, (y.low + y.high) / 2, y.high})
    return "".join(
        f'<line x1="{LEFT}" x2="{width}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="{LINE}"/>'
        + _text(LEFT - 8, y(tick) + 4, f"{tick:.4g}", "end")
        for tick in ticks
    )


def _dot(trial: TrialRecord, x: float, y: float, result: SearchResult) -> str:
    colour = BEST if trial is result.best else OTHER if trial.state == "complete" else PRUNED
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{6 if trial is result.best else 4}" fill="{colour}"><title>trial '
        f"{trial.number}: {trial.value:.4f} ({trial.state})</title></circle>"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" fill="#52606d">{escape(text)}</text>'


def _picture(parts: Sequence[str], width: int, height: int, label: str) -> str:
    return f'<svg viewBox="0 0 {width} {height + FOOT}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _is_known(trial: TrialRecord) -> bool:
    return trial.value is not None and math.isfinite(trial.value)


def _value(trial: TrialRecord) -> float:
    assert trial.value is not None  # only trials with a value are drawn
    return trial.value


def _is_better(result: SearchResult, one: TrialRecord, other: TrialRecord) -> bool:
    return (_value(one) < _value(other)) if result.lower_is_better else (_value(one) > _value(other))


def _setting(value: Any) -> str:
    return escape(f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value))
