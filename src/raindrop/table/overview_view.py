"""Overview: the statistics of a table as a dataclass that renders itself in a terminal or as a figure."""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from raindrop.errors import DataError, MissingExtraError
from raindrop.files import atomic_file

if TYPE_CHECKING:  # an extra
    from matplotlib.figure import Figure

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
MAX_ROWS = 60  # sensors and classes shown
BLUE, GREY = "#3b6ea5", "#9aa5b1"


@dataclass(frozen=True)
class Missingness:
    """How well missingness alone predicts the label: AUROC of trees that use counts and times but no values."""

    auroc: float | None
    samples: int
    reason: str = ""
    """Why `auroc` is None."""
    sensors: int = 0
    """The number of sensors with a feature of their own, the most frequent ones."""


@dataclass(frozen=True, repr=False)
class Overview:
    """The statistics that `raindrop inspect` shows."""

    samples: int
    samples_without_readings: int
    readings: int
    time_unit: str
    density: float
    """Share of observed values on a grid of each sample's own times and all sensors."""
    padded_density: float
    """The same on a grid as long as the longest sample; one minus this is the paper's missing ratio."""
    simultaneous_share: float
    """Share of readings with a reading of another sensor in the same sample at the identical time.

    Only these readings can exchange messages between sensors at one timestamp."""
    readings_per_sample: NDArray[np.int64]
    times_per_sample: NDArray[np.int64]
    last_times: NDArray[np.float64]
    """Time of the last reading, for every sample that has one."""
    intervals: NDArray[np.float64]
    """Time from one reading of a sensor to its next, in at most MAX_SAMPLES samples."""
    sensors: pl.DataFrame
    """sensor, readings, samples (share with a reading), per_sample, interval, low, median, high."""
    label: str | None
    labels: pl.DataFrame
    """class, samples, share; the class is null for samples without a label."""
    missingness: Missingness
    dropped: dict[str, int]

    def __rich__(self) -> Group:
        return render_text(self)

    def __repr__(self) -> str:
        return f"Overview({self.samples:,} samples, {len(self.sensors):,} sensors, {self.readings:,} readings)"

    def _repr_html_(self) -> str:
        """In a notebook: the same as in a terminal."""
        facts = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in summary_rows(self).items()
        )
        tables = [self.sensors.head(MAX_ROWS)._repr_html_()]
        tables += [self.labels.head(MAX_ROWS)._repr_html_()] if self.label is not None else []
        sentences = "".join(f"<p>{escape(text)}</p>" for text in (_legend(self), missingness_sentence(self)))
        return f"<div><table><tbody>{facts}</tbody></table>{''.join(tables)}{sentences}</div>"

    def figure(self) -> Figure:
        """The overview as a matplotlib figure."""
        try:
            import matplotlib.figure  # noqa: F401
        except ModuleNotFoundError:
            raise MissingExtraError("matplotlib", "plot", "A figure of a table") from None
        return draw_figure(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the figure as .png, .svg or .pdf."""
        path = Path(path)
        if path.suffix not in FIGURE_SUFFIXES:
            raise DataError(f"{path}: a figure must end in {', '.join(FIGURE_SUFFIXES)}.")
        figure = self.figure()
        with atomic_file(path) as partial:
            figure.savefig(partial, format=path.suffix[1:])
        return path


# ---------------------------------------------------------------- text


def render_text(info: Overview) -> Group:
    """The overview as tables and sentences for a terminal."""
    parts: list[RenderableType] = [_summary(info), _sensor_table(info), Text(_legend(info))]
    if info.label is not None:
        parts.append(_class_table(info))
    parts.append(Text(missingness_sentence(info)))
    if info.dropped:
        parts.append(_dropped_table(info))
    return Group(*parts)


def missingness_sentence(info: Overview) -> str:
    """How well missingness alone predicts the label, as a sentence."""
    result = info.missingness
    if result.auroc is None:
        return f"How well missingness alone predicts the label cannot be estimated: {result.reason}."
    few = f" and the {result.sensors:,} most frequent sensors" if result.sensors < len(info.sensors) else ""
    return (
        f"Missingness alone (which sensors, how often, how long; no value) predicts '{info.label}' with an AUROC of "
        f"{result.auroc:.3f}, cross-validated on {result.samples:,} samples{few}; 0.5 is chance."
    )


def summary_rows(info: Overview) -> dict[str, str]:
    """Facts about the table as a whole, by title."""
    empty = f" ({info.samples_without_readings:,} without a reading)" if info.samples_without_readings else ""
    unit = info.time_unit
    return {
        "samples": f"{info.samples:,}{empty}",
        "sensors": f"{len(info.sensors):,}",
        "readings": f"{info.readings:,}",
        "readings per sample": format_quantiles(info.readings_per_sample),
        "times per sample": format_quantiles(info.times_per_sample),
        "last reading at": f"{format_quantiles(info.last_times)} {unit}",
        "between readings of a sensor": f"{format_quantiles(info.intervals)} {unit}",
        "density": f"{info.density:.1%} of the values at a sample's own times, "
        f"{info.padded_density:.1%} of a grid as long as the longest sample",
        "simultaneous readings": f"{info.simultaneous_share:.1%} have another sensor's at the identical time",
    }


def _summary(info: Overview) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, text in summary_rows(info).items():
        grid.add_row(Text(name, style="bold"), text)
    return grid


def format_quantiles(values: np.ndarray) -> str:
    """'median 35 (10th 12, 90th 61, most 120)'."""
    if not len(values):
        return "none"
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"median {middle:,.4g} (10th {low:,.4g}, 90th {high:,.4g}, most {values.max():,.4g})"


def _sensor_table(info: Overview) -> Table:
    table = Table(title="Sensors", title_justify="left")
    table.add_column("sensor", no_wrap=True)
    for name in ("readings", "in", "each", "interval", "1 %", "median", "99 %"):
        table.add_column(name, justify="right")
    for row in info.sensors.head(MAX_ROWS).iter_rows(named=True):
        numbers = [row[name] for name in ("per_sample", "interval", "low", "median", "high")]
        table.add_row(
            row["sensor"],
            f"{row['readings']:,}",
            f"{row['samples']:.1%}",
            *("" if number is None else f"{number:,.4g}" for number in numbers),
        )
    return table


def _legend(info: Overview) -> str:
    hidden = len(info.sensors) - MAX_ROWS
    more = f"{hidden:,} more sensors are not shown. " if hidden > 0 else ""
    return f"{more}in: share of samples with a reading; each: readings in such a sample; interval in {info.time_unit}."


def _class_table(info: Overview) -> Table:
    table = Table(title=f"Label '{info.label}'", title_justify="left", caption_justify="left")
    table.add_column("class")
    table.add_column("samples", justify="right")
    table.add_column("share", justify="right")
    for name, samples, share in info.labels.head(MAX_ROWS).iter_rows():
        table.add_row("(none)" if name is None else name, f"{samples:,}", f"{share:.1%}")
    if len(info.labels) > MAX_ROWS:
        table.caption = f"and {len(info.labels) - MAX_ROWS:,} more"
    return table


def _dropped_table(info: Overview) -> Table:
    table = Table(title="Left out when the table was built", title_justify="left")
    table.add_column("rows", justify="right")
    table.add_column("reason")
    for reason, count in info.dropped.items():
        table.add_row(f"{count:,}", reason)
    return table


# ---------------------------------------------------------------- figure


def draw_figure(info: Overview) -> Figure:
    """Four panels: sensors, readings per sample, intervals, classes."""
    from matplotlib.figure import Figure

    sensors = info.sensors.head(MAX_ROWS)
    figure = Figure(figsize=(11, max(6.0, 1.5 + 0.19 * len(sensors))), layout="constrained")
    grid = figure.add_gridspec(3, 2, width_ratios=[1.2, 1])
    _bars(
        figure.add_subplot(grid[:, 0]),
        sensors["sensor"].to_list(),
        sensors["samples"].to_numpy(),
        "share of samples with a reading",
    )
    _histogram(figure.add_subplot(grid[0, 1]), info.readings_per_sample, "readings per sample")
    _histogram(figure.add_subplot(grid[1, 1]), info.intervals, f"time between readings of a sensor ({info.time_unit})")
    classes = info.labels.head(MAX_ROWS)
    _bars(
        figure.add_subplot(grid[2, 1]),
        ["(none)" if name is None else name for name in classes["class"].to_list()],
        classes["share"].to_numpy(),
        f"share of samples, '{info.label}'" if info.label else "no label",
    )
    title = (
        f"{info.samples:,} samples, {len(info.sensors):,} sensors, {info.readings:,} readings\n"
        f"{missingness_sentence(info)}"
    )
    figure.suptitle(title.replace("$", r"\$"), fontsize=9, wrap=True)  # wrapping ignores parse_math=False
    return figure


def _bars(axes: Any, names: list[str], shares: np.ndarray, title: str) -> None:
    y = np.arange(len(names))
    axes.barh(y, shares, color=BLUE)
    axes.set_yticks(y, names, fontsize=7, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_title(title, fontsize=9, parse_math=False)


def _histogram(axes: Any, values: np.ndarray, title: str) -> None:
    axes.set_title(title, fontsize=9, parse_math=False)
    axes.set_ylabel("count", fontsize=8)
    if not len(values):
        return
    positive = values[values > 0]
    if len(positive) and positive.max() > 50 * np.quantile(positive, 0.25):
        axes.hist(positive, bins=np.geomspace(positive.min(), positive.max(), 40), color=GREY)
        axes.set_xscale("log")
    else:
        low, high = float(values.min()), float(values.max())
        size = max(abs(low), abs(high)) or 1.0
        if high - low > 1e-9 * size:
            axes.hist(values, bins=40, color=GREY)
        else:  # all the same but for rounding, which 40 bins cannot divide
            axes.hist(values, bins=1, range=(low - 0.05 * size, high + 0.05 * size), color=GREY)
