"""An overview for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from raindrop.overview import Overview

MOST = 60  # sensors and classes shown


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
