"""An overview of a table: what it holds, and how it looks in a terminal or as a picture."""

from __future__ import annotations

import os
from dataclasses import dataclass
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

PICTURES = (".png", ".svg", ".pdf")
MOST = 60  # sensors and classes shown
BLUE, GREY = "#3b6ea5", "#9aa5b1"


@dataclass(frozen=True)
class Missingness:
    """How well the gaps alone tell the label: AUROC of trees that see counts and times, never a value."""

    auroc: float | None
    samples: int
    reason: str = ""
    """Why there is no figure, where there is none."""


@dataclass(frozen=True)
class Overview:
    """The answer to `raindrop inspect`."""

    samples: int
    samples_without_readings: int
    readings: int
    time_unit: str
    density: float
    """Share of observed values at the times at which a sample has any."""
    padded_density: float
    """The same on a grid as long as the longest sample; one minus this is the paper's missing ratio."""
    readings_per_sample: NDArray[np.int64]
    times_per_sample: NDArray[np.int64]
    span: NDArray[np.float64]
    """Time of the last reading, of every sample that has one."""
    intervals: NDArray[np.float64]
    """Time between one reading of a sensor and its next, in at most LIMIT samples."""
    sensors: pl.DataFrame
    """sensor, readings, samples (share that has it), per_sample, interval, low, median, high."""
    label: str | None
    labels: pl.DataFrame
    """class, samples, share; null where a sample has none."""
    missingness: Missingness
    dropped: dict[str, int]

    def __rich__(self) -> Group:
        return rendered(self)

    def figure(self) -> Figure:
        """The overview as a matplotlib figure."""
        try:
            import matplotlib.figure  # noqa: F401
        except ModuleNotFoundError:
            raise MissingExtraError("matplotlib", "plot", "A picture of a table") from None
        return drawn(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the figure as .png, .svg or .pdf."""
        path = Path(path)
        if path.suffix not in PICTURES:
            raise DataError(f"{path}: a picture ends in {', '.join(PICTURES)}.")
        figure = self.figure()
        with atomic_file(path) as partial:
            figure.savefig(partial, format=path.suffix[1:])
        return path


# ---------------------------------------------------------------- text


def rendered(about: Overview) -> Group:
    """The whole overview."""
    parts: list[RenderableType] = [_summary(about), _sensors(about), Text(_key(about))]
    if about.label is not None:
        parts.append(_labels(about))
    parts.append(Text(missingness_sentence(about)))
    if about.dropped:
        parts.append(_dropped(about))
    return Group(*parts)


def missingness_sentence(about: Overview) -> str:
    """How much the gaps alone give away, in words."""
    found = about.missingness
    if found.auroc is None:
        return f"How well missingness alone tells the label cannot be said: {found.reason}."
    return (
        f"Missingness alone (which sensors, how often, how long; no value) tells '{about.label}' with an AUROC of "
        f"{found.auroc:.3f}, cross-validated on {found.samples:,} samples; 0.5 is chance."
    )


def _summary(about: Overview) -> Table:
    grid = Table.grid(padding=(0, 2))
    empty = f" ({about.samples_without_readings:,} without a reading)" if about.samples_without_readings else ""
    unit = about.time_unit
    rows = {
        "samples": f"{about.samples:,}{empty}",
        "sensors": f"{len(about.sensors):,}",
        "readings": f"{about.readings:,}",
        "readings per sample": spread(about.readings_per_sample),
        "times per sample": spread(about.times_per_sample),
        "last reading at": f"{spread(about.span)} {unit}",
        "between readings of a sensor": f"{spread(about.intervals)} {unit}",
        "density": f"{about.density:.1%} of the values at a sample's own times, "
        f"{about.padded_density:.1%} of a grid as long as the longest sample",
    }
    for name, text in rows.items():
        grid.add_row(Text(name, style="bold"), text)
    return grid


def spread(values: np.ndarray) -> str:
    """'median 35.0 (10th 12.0, 90th 61.0, most 120)'."""
    if not len(values):
        return "none"
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"median {middle:,.4g} (10th {low:,.4g}, 90th {high:,.4g}, most {values.max():,.4g})"


def _sensors(about: Overview) -> Table:
    table = Table(title="Sensors", title_justify="left")
    table.add_column("sensor", no_wrap=True)
    for name in ("readings", "in", "each", "interval", "1 %", "median", "99 %"):
        table.add_column(name, justify="right")
    for row in about.sensors.head(MOST).iter_rows(named=True):
        numbers = [row[name] for name in ("per_sample", "interval", "low", "median", "high")]
        table.add_row(
            row["sensor"],
            f"{row['readings']:,}",
            f"{row['samples']:.1%}",
            *("" if number is None else f"{number:,.4g}" for number in numbers),
        )
    return table


def _key(about: Overview) -> str:
    more = f"{len(about.sensors) - MOST:,} more sensors are not shown. " if len(about.sensors) > MOST else ""
    return f"{more}in: share of samples that have it; each: readings in such a sample; interval in {about.time_unit}."


def _labels(about: Overview) -> Table:
    table = Table(title=f"Label '{about.label}'", title_justify="left", caption_justify="left")
    table.add_column("class")
    table.add_column("samples", justify="right")
    table.add_column("share", justify="right")
    for name, samples, share in about.labels.head(MOST).iter_rows():
        table.add_row("(none)" if name is None else name, f"{samples:,}", f"{share:.1%}")
    if len(about.labels) > MOST:
        table.caption = f"and {len(about.labels) - MOST:,} more"
    return table


def _dropped(about: Overview) -> Table:
    table = Table(title="Left out when the table was built", title_justify="left")
    table.add_column("rows", justify="right")
    table.add_column("reason")
    for reason, number in about.dropped.items():
        table.add_row(f"{number:,}", reason)
    return table


# ---------------------------------------------------------------- picture


def drawn(about: Overview) -> Figure:
    """Four panels: sensors, readings per sample, intervals, labels."""
    from matplotlib.figure import Figure

    sensors = about.sensors.head(MOST)
    figure = Figure(figsize=(11, max(6.0, 1.5 + 0.19 * len(sensors))), layout="constrained")
    grid = figure.add_gridspec(3, 2, width_ratios=[1.2, 1])
    _bars(
        figure.add_subplot(grid[:, 0]),
        sensors["sensor"].to_list(),
        sensors["samples"].to_numpy(),
        "share of samples with a reading",
    )
    _histogram(figure.add_subplot(grid[0, 1]), about.readings_per_sample, "readings per sample")
    _histogram(
        figure.add_subplot(grid[1, 1]), about.intervals, f"time between readings of a sensor ({about.time_unit})"
    )
    classes = about.labels.head(MOST)
    _bars(
        figure.add_subplot(grid[2, 1]),
        ["(none)" if name is None else name for name in classes["class"].to_list()],
        classes["share"].to_numpy(),
        f"share of samples, '{about.label}'" if about.label else "no label",
    )
    figure.suptitle(
        f"{about.samples:,} samples, {len(about.sensors):,} sensors, {about.readings:,} readings\n"
        f"{missingness_sentence(about)}",
        fontsize=9,
        wrap=True,
    )
    return figure


def _bars(axes: Any, names: list[str], shares: np.ndarray, title: str) -> None:
    at = np.arange(len(names))
    axes.barh(at, shares, color=BLUE)
    axes.set_yticks(at, names, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_title(title, fontsize=9)


def _histogram(axes: Any, values: np.ndarray, title: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_ylabel("how many", fontsize=8)
    if not len(values):
        return
    positive = values[values > 0]
    if len(positive) and positive.max() > 50 * np.quantile(positive, 0.25):
        axes.hist(positive, bins=np.geomspace(positive.min(), positive.max(), 40), color=GREY)
        axes.set_xscale("log")
    else:
        axes.hist(values, bins=40, color=GREY)
