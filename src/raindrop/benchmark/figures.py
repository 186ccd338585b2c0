"""Figures of results: bars for each setting, curves over the hidden share, mean ranks. Needs the extra `plot`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from raindrop.benchmark.aggregate import Summary
from raindrop.benchmark.ranks import Ranking
from raindrop.benchmark.spec import column_name
from raindrop.errors import DataError, MissingExtraError
from raindrop.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, PUBLISHED = "#3b6ea5", "#9aa5b1"


def bars(summary: Summary) -> Figure:
    """One panel per scenario or setting and metric: each row's mean and standard deviation, and the published one."""
    columns, metrics = summary.experiment.columns(), summary.experiment.metrics
    names = [row.name for row in summary.experiment.rows]
    size = (3.6 * len(metrics) + 1.5, (0.28 * len(names) + 0.9) * len(columns) + 0.6)
    figure = _figure(size)
    panels = figure.subplots(len(columns), len(metrics), squeeze=False, sharey=True)
    for line, (scenario, setting) in zip(panels, columns, strict=True):
        for axes, metric in zip(line, metrics, strict=True):
            block = _select(summary, scenario, metric).filter(pl.col("setting") == setting.name)
            for offset, mean, sd, colour, label in (
                (-0.2, "mean", "sd", OURS, "here"),
                (0.2, "published", "published_sd", PUBLISHED, "published"),
            ):
                known = [r for r in block.iter_rows(named=True) if r[mean] is not None]
                if known:
                    positions = [names.index(r["row"]) + offset for r in known]
                    errors = [r[sd] or 0.0 for r in known]
                    axes.barh(positions, [r[mean] for r in known], 0.38, xerr=errors, color=colour, label=label)
            axes.set_yticks(range(len(names)), _literal(names), fontsize=7)
            axes.set_ylim(len(names) - 0.4, -0.6)
            axes.set_title(
                _literal([f"{column_name(scenario, setting)}: {summary.experiment.metric_title(metric)}"])[0],
                fontsize=8,
            )
            axes.set_xlim(*_limits(block))
    figure.suptitle(_literal([f"{summary.experiment.title} (label '{summary.data.label}')"])[0], fontsize=9)
    _legend(figure, panels)
    return figure


def curves(summary: Summary) -> Figure:
    """One panel per kind of hiding and metric: each row over the hidden share; published ones are dashed."""
    experiment = summary.experiment
    kinds = [
        (splits.name, hidden)
        for splits in experiment.splits
        for hidden in ("fixed", "random")
        if any(setting.hidden == hidden for setting in experiment.settings)
    ]
    if not kinds:
        raise DataError(
            f"{experiment.name} hides no sensors, so there is no curve to draw. Add shares to hide under [settings]."
        )
    figure = _figure((4.2 * len(experiment.metrics), 3.2 * len(kinds) + 0.8))
    panels = figure.subplots(len(kinds), len(experiment.metrics), squeeze=False)
    for line, (scenario, hidden) in zip(panels, kinds, strict=True):
        for axes, metric in zip(line, experiment.metrics, strict=True):
            block = _select(summary, scenario, metric).filter(pl.col("hidden").is_in(["none", hidden])).sort("share")
            for number, row in enumerate(experiment.rows):
                of_row, colour = block.filter(pl.col("row") == row.name), f"C{number % 10}"
                ours = of_row.drop_nulls("mean")
                if len(ours):
                    label = _literal([row.name])[0]
                    axes.errorbar(100 * ours["share"], ours["mean"], ours["sd"].fill_null(0.0), marker="o",
                                  markersize=3, capsize=2, color=colour, label=label)  # fmt: skip
                published = of_row.drop_nulls("published")
                if len(published) and not row.published_as:
                    axes.plot(100 * published["share"], published["published"], "--", color=colour, linewidth=0.9)
            title = f"{scenario}, {hidden}" if scenario else hidden
            axes.set_title(
                _literal([f"{title} sensors hidden: {summary.experiment.metric_title(metric)}"])[0], fontsize=8
            )
            axes.set_xlabel("hidden sensors (%)", fontsize=8)
    figure.suptitle(_literal([f"{experiment.title} (label '{summary.data.label}'; dashed: published)"])[0], fontsize=9)
    _legend(figure, panels)
    return figure


def rank_diagram(ranking: Ranking) -> Figure:
    """Rows at their mean ranks, the best on the left; bars connect rows within the critical difference."""
    ranks, groups = ranking.ranks, ranking.groups()
    k, half = len(ranks), (len(ranks) + 1) // 2
    lowest = 0.55 + 0.62 * len(groups)
    depth = lowest + 0.6 + half
    figure = _figure((8.0, 0.26 * (depth + 3.2) + 0.3))
    axes = figure.add_subplot()
    axes.set(xlim=(1 - 0.42 * k, k + 0.42 * k), ylim=(-depth, 3.2))
    axes.axis("off")
    axes.plot([1, k], [0, 0], color="black", linewidth=1)
    for tick in range(1, k + 1):
        axes.plot([tick, tick], [0, 0.35], color="black", linewidth=1)
        axes.text(tick, 0.5, str(tick), ha="center", va="bottom", fontsize=8)
    for number, (first, last) in enumerate(groups):
        y = -0.55 - 0.62 * number
        ends = [ranks[first][1] - 0.04 * k / 10, ranks[last][1] + 0.04 * k / 10]
        axes.plot(ends, [y, y], color=OURS, linewidth=3, solid_capstyle="butt")
    for at, (name, rank) in enumerate(ranks):
        left = at < half
        y = -lowest - 0.6 - (at if left else k - 1 - at)
        edge = 1 - 0.03 * k if left else k + 0.03 * k
        axes.plot([rank, rank, edge], [0, y, y], color="black", linewidth=0.7)
        text = _literal([f"{name}  {rank:.1f}" if left else f"{rank:.1f}  {name}"])[0]
        axes.text(
            edge + (-0.01 * k if left else 0.01 * k), y, text, ha="right" if left else "left", va="center", fontsize=9
        )
    shown = min(ranking.critical_difference, float(k - 1))
    axes.plot([1, 1 + shown], [2.0, 2.0], color=OURS, linewidth=2)
    more = "" if shown == ranking.critical_difference else ", more than the axis is long"
    label = f"critical difference {ranking.critical_difference:.1f}{more}"
    axes.text(1, 2.25, label, va="bottom", fontsize=8, color=OURS)
    tables = "; ".join(title + (f", {splits} splits" if splits > 1 else "") for title, splits in ranking.blocks)
    axes.set_title(_literal([f"Mean ranks: {tables}"])[0], fontsize=8, wrap=True)
    return figure


def to_svg(figure: Figure, name: str) -> str:
    """A figure as SVG that is the same each time it is drawn, with text as text."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def write_figures(summary: Summary, folder: Path) -> list[Path]:
    """Write NAME_bars.png, and NAME_curves.png if sensors are hidden; returns their paths."""
    figures = {"bars": bars(summary)}
    if any(setting.hidden != "none" for setting in summary.experiment.settings):
        figures["curves"] = curves(summary)
    paths = []
    for kind, figure in figures.items():
        paths.append(folder / f"{summary.experiment.name}_{kind}.png")
        with atomic_file(paths[-1]) as partial:
            figure.savefig(partial, format="png", dpi=150)
    return paths


def _figure(size: tuple[float, float]) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise MissingExtraError("matplotlib", "plot", "A figure of results") from None
    return Figure(figsize=size, layout="constrained")


def _select(summary: Summary, scenario: str, metric: str) -> pl.DataFrame:
    return summary.results.filter((pl.col("scenario") == scenario) & (pl.col("metric") == metric))


def _limits(block: pl.DataFrame) -> tuple[float, float]:
    """From a little below the lowest error bar to a little above the highest, so that differences are visible."""
    ends = [
        float(mean) + sign * float(sd or 0.0)
        for mean_name, sd_name in (("mean", "sd"), ("published", "published_sd"))
        for mean, sd in block.select(mean_name, sd_name).iter_rows()
        if mean is not None
        for sign in (-1, 1)
    ]
    if not ends:
        return 0.0, 100.0
    margin = 0.1 * (max(ends) - min(ends)) or 1.0
    return min(ends) - margin, max(ends) + margin


def _legend(figure: Figure, panels: Any) -> None:
    """One legend for all panels."""
    entries: dict[str, Any] = {}
    for axes in panels.flat:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    if entries:
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=4, fontsize=7)


def _literal(texts: list[str]) -> list[str]:
    """Escape dollar signs, which would start a formula."""
    return [text.replace("$", r"\$") for text in texts]
