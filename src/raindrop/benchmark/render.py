"""A table of results as Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from raindrop.benchmark.aggregate import Summary, shown
from raindrop.benchmark.spec import column_name
from raindrop.files import atomic_file, write_text
from raindrop.tasks.metrics import metric_of

Grid = tuple[str, list[str], list[list[str]]]  # heading, names of the columns, rows


def write_tables(summary: Summary, folder: Path) -> list[Path]:
    """NAME.md, NAME.tex and NAME.csv in a folder."""
    paths = [folder / f"{summary.experiment.name}.{ending}" for ending in ("md", "tex", "csv")]
    write_text(paths[0], markdown(summary))
    write_text(paths[1], latex(summary))
    with atomic_file(paths[2]) as partial:
        summary.figures.write_csv(partial)
    return paths


def caption(summary: Summary) -> str:
    """Label, base rate, data, and how to read the figures."""
    facts, experiment = summary.facts, summary.experiment
    name, share = facts.balance[-1] if len(facts.balance) == 2 else max(facts.balance, key=lambda pair: pair[1])
    rate = (
        f"{share:.1%} are '{name}', so that is the AUPRC of chance"
        if len(facts.balance) == 2
        else f"{len(facts.balance)} classes, the most frequent '{name}' with {share:.1%}"
    )
    first = "the best row (bold; among those on most splits)"
    if experiment.reference:
        first = f"'{experiment.reference}' (negative: ahead of it; bold: the best among those on most splits)"
    source = experiment.published.source
    paper = [f"Published: {source}."] if source else []
    if source and not experiment.published.same_data:
        paper.append("Those are of other data, so no difference is shown.")
    return " ".join(
        [
            f"Label '{facts.label}' ({facts.samples:,} samples; {rate}); {facts.sensors} sensors, "
            f"{facts.readings:,} readings.",
            *([experiment.note] if experiment.note else []),
            "Test parts, in percent: mean ± standard deviation (n - 1) over the splits; 'splits' says how many stand "
            f"behind a row{', [n] behind a figure that has fewer' if len(experiment.settings) > 1 else ''}.",
            *paper,
            f"'behind' is the mean distance from {first} over the splits both have, with the p of a paired t-test "
            "where there are at least three. Splits share training samples, and five are few: a small p is a hint, not "
            "proof, and a large one proves no tie.",
        ]
    )


def markdown(summary: Summary) -> str:
    """The table with its caption; one block per scenario and setting."""
    lines = [f"## {summary.experiment.title}", "", caption(summary), ""]
    for heading, names, rows in grids(summary, bold="**{}**".format):
        lines += [f"### {heading}", ""] if heading else []
        names, rows = [_plain(name) for name in names], [[_plain(cell) for cell in row] for row in rows]
        lines += [_line(names), _line(["---"] * len(names)), *map(_line, rows), ""]
    lines += [f"- {sentence}" for sentence in summary.verdicts]
    return "\n".join(lines).rstrip() + "\n"


def latex(summary: Summary) -> str:
    """The same with booktabs."""
    lines = [f"% {summary.experiment.title}"]
    for heading, names, rows in grids(summary, bold="\\textbf{{{}}}".format, escape=_tex):
        title = _tex(f"{summary.experiment.title}{': ' + heading if heading else ''}. {caption(summary)}")
        body = [" & ".join(row) + " \\\\" for row in rows]
        lines += [
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{title}}}",
            f"\\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}",
            "\\toprule",
            " & ".join(map(_tex, names)) + " \\\\",
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            "\\end{table}",
            "",
        ]
    said = [f"\\item {_tex(sentence)}" for sentence in summary.verdicts]
    lines += ["\\begin{itemize}", *said, "\\end{itemize}"] if said else []
    return "\n".join(lines).rstrip() + "\n"


def grids(summary: Summary, bold: Callable[[str], str], escape: Callable[[str], str] = str) -> list[Grid]:
    """An overview over the hidden shares where there are any, then a block per scenario and setting."""
    return [grid for grid in (*_overviews(summary, bold, escape), *_blocks(summary, bold, escape)) if grid[2]]


def _overviews(summary: Summary, bold: Callable[[str], str], escape: Callable[[str], str]) -> list[Grid]:
    found: list[Grid] = []
    for splits in summary.experiment.splits:
        here = summary.figures.filter(pl.col("scenario") == splits.name)
        for hidden in [name for name in ("fixed", "random") if name in here["hidden"]]:
            for metric in summary.experiment.metrics:
                chosen = here.filter(pl.col("hidden").is_in(["none", hidden]) & (pl.col("metric") == metric))
                settings = chosen["setting"].unique(maintain_order=True).to_list()
                rows = []
                for row in summary.experiment.rows:
                    held = {r["setting"]: r for r in chosen.filter(pl.col("row") == row.name).iter_rows(named=True)}
                    most = max(record["splits"] for record in held.values())
                    if most:
                        rows.append([escape(row.name), str(most), *(_of(held[name], most, bold) for name in settings)])
                scenario = f"{splits.name}, " if splits.name else ""
                heading = f"{scenario}{hidden} sensors hidden, {metric_of(metric).title}"
                found.append((heading, ["", "splits", *settings], rows))
    return found


def _blocks(summary: Summary, bold: Callable[[str], str], escape: Callable[[str], str]) -> list[Grid]:
    columns = summary.experiment.columns()
    found: list[Grid] = []
    for scenario, setting in columns:
        here = summary.figures.filter((pl.col("scenario") == scenario) & (pl.col("setting") == setting.name))
        names = ["", "splits"]
        for metric in summary.experiment.metrics:
            of = here.filter(pl.col("metric") == metric)
            names += [metric_of(metric).title, *_extras(of), "behind (p)"]
        rows = []
        for row in summary.experiment.rows:
            held = here.filter(pl.col("row") == row.name)
            if not len(held.filter(pl.col("splits") > 0)) and held["published"].null_count() == len(held):
                continue
            cells = [escape(row.name), str(held["splits"].max())]
            for metric in summary.experiment.metrics:
                of = here.filter(pl.col("metric") == metric)
                record = held.row(by_predicate=pl.col("metric") == metric, named=True)
                paper = _published(record)
                difference = "" if record["difference"] is None else f"{record['difference']:+.1f}"
                extras = {"published": paper, "difference": difference}
                cells += [_mean(record, bold), *(extras[name] for name in _extras(of)), escape(_behind(record))]
            rows.append(cells)
        heading = column_name(scenario, setting) if len(columns) > 1 else ""
        found.append((heading, names, rows))
    return found


def _extras(of: pl.DataFrame) -> Sequence[str]:
    """Columns that would be empty are left out."""
    return [name for name in ("published", "difference") if of[name].null_count() < len(of)]


def _mean(record: dict[str, Any], bold: Callable[[str], str]) -> str:
    if record["mean"] is None:
        return "-"
    spread = "" if record["sd"] is None else f" ± {shown(record['sd'], record['metric'])}"
    text = f"{shown(record['mean'], record['metric'])}{spread}"
    return bold(text) if record["best"] else text


def _of(record: dict[str, Any], most: int, bold: Callable[[str], str]) -> str:
    """With the number of splits behind it where that is less than the row's."""
    return _mean(record, bold) + (f" [{record['splits']}]" if 0 < record["splits"] < most else "")


def _published(record: dict[str, Any]) -> str:
    if record["published"] is None:
        return ""
    spread = "" if record["published_sd"] is None else f" ± {record['published_sd']:.1f}"
    return f"{record['published']:.1f}{spread}"


def _behind(record: dict[str, Any]) -> str:
    if record["behind"] is None:
        return ""
    distance = shown(record["behind"], record["metric"])
    if record["p"] is None:
        return distance
    return f"{distance} ({record['p']:.3f})" if record["p"] >= 0.001 else f"{distance} (< 0.001)"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _tex(text: str) -> str:
    for sign in "\\{}":
        text = text.replace(sign, {"\\": "\x00", "{": "\\{", "}": "\\}"}[sign])
    for sign in "&%$#_":
        text = text.replace(sign, f"\\{sign}")
    for sign in "<>":
        text = text.replace(sign, f"${sign}$")
    return (
        text.replace("\x00", "\\textbackslash{}").replace("~", "\\textasciitilde{}").replace("^", "\\textasciicircum{}")
    )
