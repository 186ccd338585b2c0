"""A results table as Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from raindrop.benchmark.aggregate import Summary
from raindrop.benchmark.comparison import format_metric
from raindrop.benchmark.spec import column_name
from raindrop.files import atomic_file, write_text
from raindrop.table.csv_text import write_csv

Grid = tuple[str, list[str], list[list[str]]]  # heading, column names, rows of cells
BEHIND = "behind (p)"


def write_tables(summary: Summary, folder: Path) -> list[Path]:
    """Write NAME.md, NAME.tex and NAME.csv; returns their paths."""
    paths = [folder / f"{summary.experiment.name}.{ending}" for ending in ("md", "tex", "csv")]
    write_text(paths[0], markdown(summary))
    write_text(paths[1], latex(summary))
    with atomic_file(paths[2]) as partial:
        write_csv(summary.results, partial)
    return paths


def caption(summary: Summary) -> str:
    """Label, base rate, data, and the meaning of the numbers."""
    data, experiment = summary.data, summary.experiment
    if data.description:
        classes = data.description
    elif data.positive is not None:
        share = dict(data.class_shares)[data.positive]
        classes = f"{share:.1%} are '{data.positive}', which is the AUPRC of random guessing"
    else:
        name, share = max(data.class_shares, key=lambda pair: pair[1])
        classes = f"{len(data.class_shares)} classes, the most frequent '{name}' with {share:.1%}"
    source = experiment.published.source
    published = [f"Published: {source}."] if source else []
    if source and not experiment.published.same_data:
        published.append("Those were measured on other data, so no difference is shown.")
    fewer = "; [n] marks a value from fewer splits" if len(experiment.settings) > 1 else ""
    return " ".join(
        [
            f"Label '{data.label}' ({data.samples:,} samples; {classes}); {data.sensors} sensors, "
            f"{data.readings:,} readings.",
            *([experiment.note] if experiment.note else []),
            "Test sets, shares in percent: mean ± standard deviation (n - 1) over the splits; 'splits' is their number"
            f"{fewer}.",
            *published,
            *([f"Version {'; '.join(summary.versions)}."] if summary.versions else []),
        ]
    )


def comparison_note(summary: Summary) -> str:
    """The meaning of 'behind (p)', the test, and how it applies to the table's kind of splits."""
    experiment = summary.experiment
    reference = "the best row (bold, among the rows with the most splits)"
    if experiment.reference:
        reference = f"'{experiment.reference}' (negative: ahead of it; bold: the best of the rows with the most splits)"
    sentences = [
        f"Note: 'behind' is the mean distance from {reference} over the k splits both have, followed by the p-value of "
        "Nadeau and Bengio's corrected resampled t-test where k is at least three: its variance factor is "
        "1/k + n_test/n_train instead of 1/k, because the training sets of the splits overlap.",
        "A difference is called a tie if its 95 % interval by this test includes zero.",
        "p-values and intervals are not adjusted for the number of comparisons.",
    ]
    rotated = sorted({splits.rotate_by for splits in experiment.splits if splits.rotate_by})
    if rotated:
        sentences.append(
            f"The splits rotate through the values of '{rotated[0]}', so their test sets are disjoint while their "
            "training sets overlap; the same correction applies, with the mean of n_test/n_train over these splits."
        )
    if any(splits.train_where for splits in experiment.splits):
        sentences.append(
            "All splits of a scenario share one training set, which the correction does not cover, so there is no "
            "p-value and no interval."
        )
    return " ".join(sentences)


def markdown(summary: Summary) -> str:
    """Caption, one block per scenario and setting, the note on comparisons, and the verdicts."""
    lines, blocks = [f"## {summary.experiment.title}", "", caption(summary), ""], grids(summary, bold="**{}**".format)
    for heading, names, rows in blocks:
        lines += [f"### {heading}", ""] if heading else []
        lines += [markdown_line(names), markdown_line(["---"] * len(names)), *map(markdown_line, rows), ""]
    if any(BEHIND in names for _, names, _ in blocks):
        lines += [comparison_note(summary), ""]
    lines += [f"- {sentence}" for sentence in summary.verdicts]
    return "\n".join(lines).rstrip() + "\n"


def latex(summary: Summary) -> str:
    """The same as LaTeX tables in the style of booktabs."""
    lines = [f"% {summary.experiment.title}"]
    for heading, names, rows in grids(summary, bold="\\textbf{{{}}}".format, escape=_escape_tex):
        title = f"{summary.experiment.title}{': ' + heading if heading else ''}. {caption(summary)}"
        lines += [
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{_escape_tex(title)}}}",
            f"\\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}",
            "\\toprule",
            " & ".join(map(_escape_tex, names)) + " \\\\",
            "\\midrule",
            *(" & ".join(row) + " \\\\" for row in rows),
            "\\bottomrule",
            "\\end{tabular}",
            *([f"\\par\\footnotesize {_escape_tex(comparison_note(summary))}"] if BEHIND in names else []),
            "\\end{table}",
            "",
        ]
    items = [f"\\item {_escape_tex(sentence)}" for sentence in summary.verdicts]
    lines += ["\\begin{itemize}", *items, "\\end{itemize}"] if items else []
    return "\n".join(lines).rstrip() + "\n"


def grids(summary: Summary, bold: Callable[[str], str], escape: Callable[[str], str] = str) -> list[Grid]:
    """Overviews over the hidden shares, if sensors are hidden, then a block per scenario and setting."""
    return [grid for grid in (*_overviews(summary, bold, escape), *_blocks(summary, bold, escape)) if grid[2]]


def _overviews(summary: Summary, bold: Callable[[str], str], escape: Callable[[str], str]) -> list[Grid]:
    """Per scenario, kind of hiding and metric: one column for each share of hidden sensors."""
    overviews: list[Grid] = []
    for splits in summary.experiment.splits:
        in_scenario = summary.results.filter(pl.col("scenario") == splits.name)
        for hidden in [name for name in ("fixed", "random") if name in in_scenario["hidden"]]:
            for metric in summary.experiment.metrics:
                chosen = in_scenario.filter(pl.col("hidden").is_in(["none", hidden]) & (pl.col("metric") == metric))
                settings = chosen["setting"].unique(maintain_order=True).to_list()
                rows = []
                for row in summary.experiment.rows:
                    of_row = chosen.filter(pl.col("row") == row.name)
                    by_setting = {record["setting"]: record for record in of_row.iter_rows(named=True)}
                    most = max(record["splits"] for record in by_setting.values())
                    if most:
                        means = (_mean_and_splits(by_setting[name], most, bold) for name in settings)
                        rows.append([escape(row.name), str(most), *means])
                scenario = f"{splits.name}, " if splits.name else ""
                heading = f"{scenario}{hidden} sensors hidden, {summary.experiment.metric_title(metric)}"
                overviews.append((heading, ["", "splits", *settings], rows))
    return overviews


def _blocks(summary: Summary, bold: Callable[[str], str], escape: Callable[[str], str]) -> list[Grid]:
    """Per scenario and setting: every metric with published values and comparisons."""
    columns, metrics = summary.experiment.columns(), summary.experiment.metrics
    blocks: list[Grid] = []
    for scenario, setting in columns:
        block = summary.results.filter((pl.col("scenario") == scenario) & (pl.col("setting") == setting.name))
        optional = {metric: _optional_columns(block.filter(pl.col("metric") == metric)) for metric in metrics}
        names = ["", "splits"]
        for metric in metrics:
            names += [summary.experiment.metric_title(metric), *optional[metric], BEHIND]
        rows = []
        for row in summary.experiment.rows:
            of_row = block.filter(pl.col("row") == row.name)
            if not len(of_row.filter(pl.col("splits") > 0)) and of_row["published"].null_count() == len(of_row):
                continue
            cells = [escape(row.name), str(of_row["splits"].max())]
            for metric in metrics:
                record = of_row.row(by_predicate=pl.col("metric") == metric, named=True)
                difference = "" if record["difference"] is None else f"{record['difference']:+.1f}"
                texts = {"published": _published(record), "difference": difference}
                cells += [_mean(record, bold), *(texts[name] for name in optional[metric]), escape(_behind(record))]
            rows.append(cells)
        heading = column_name(scenario, setting) if len(columns) > 1 else ""
        blocks.append((heading, names, rows))
    return blocks


def _optional_columns(results: pl.DataFrame) -> Sequence[str]:
    """'published' and 'difference', if at least one row has them."""
    return [name for name in ("published", "difference") if results[name].null_count() < len(results)]


def _mean(record: dict[str, Any], bold: Callable[[str], str]) -> str:
    if record["mean"] is None:
        return "-"
    sd = "" if record["sd"] is None else f" ± {format_metric(record['sd'], record['metric'])}"
    text = f"{format_metric(record['mean'], record['metric'])}{sd}"
    return bold(text) if record["best"] else text


def _mean_and_splits(record: dict[str, Any], most: int, bold: Callable[[str], str]) -> str:
    """The mean, followed by its number of splits if that is below `most`, the row's number."""
    return _mean(record, bold) + (f" [{record['splits']}]" if 0 < record["splits"] < most else "")


def _published(record: dict[str, Any]) -> str:
    if record["published"] is None:
        return ""
    sd = "" if record["published_sd"] is None else f" ± {record['published_sd']:.1f}"
    return f"{record['published']:.1f}{sd}"


def _behind(record: dict[str, Any]) -> str:
    if record["behind"] is None:
        return ""
    behind, p_value = format_metric(record["behind"], record["metric"]), record["p_value"]
    if p_value is None:
        return behind
    return f"{behind} ({p_value:.3f})" if p_value >= 0.001 else f"{behind} (< 0.001)"


def markdown_line(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    escaped = [cell.replace("|", "\\|").replace("\n", " ") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _escape_tex(text: str) -> str:
    for sign in "\\{}":
        text = text.replace(sign, {"\\": "\x00", "{": "\\{", "}": "\\}"}[sign])
    for sign in "&%$#_":
        text = text.replace(sign, f"\\{sign}")
    for sign in "<>":
        text = text.replace(sign, f"${sign}$")
    return (
        text.replace("\x00", "\\textbackslash{}").replace("~", "\\textasciitilde{}").replace("^", "\\textasciicircum{}")
    )
