"""An overview as a picture. Imported only when one is asked for, because matplotlib is an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from raindrop.overview_text import missingness_sentence

if TYPE_CHECKING:
    from raindrop.overview import Overview

BLUE, GREY = "#3b6ea5", "#9aa5b1"
MOST = 60


def drawn(about: Overview) -> Figure:
    """Four panels: sensors, readings per sample, intervals, labels."""
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
