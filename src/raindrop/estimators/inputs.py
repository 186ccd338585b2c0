"""Checks of the tables that estimators receive, and columns added to them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from raindrop.errors import ConfigError, DataError, RaindropWarning
from raindrop.graphs.empty import no_shared_times_reason
from raindrop.models.base import Model
from raindrop.table.event_table import EventTable

WEIGHT = "raindrop sample weight"  # column of the samples table while a model is fitted


def no_holdout_warning(table: EventTable, reason: str) -> None:
    """Warn that no validation samples could be held out, why, and what to do."""
    warnings.warn(
        f"No validation samples are held out of the {len(table):,} training samples: {reason}. The weights of the last "
        "epoch are kept. Give validation=TABLE, or more samples.",
        RaindropWarning,
        stacklevel=4,
    )


def shared_times_warning(model: Model, table: EventTable) -> None:
    """Warn if a model's messages need readings at the same time and there are hardly any."""
    reason = no_shared_times_reason(table) if model.network.needs_shared_times else ""
    if reason and table.num_readings and len(table.sensors) > 1:
        warnings.warn(
            f"{reason[0].upper()}{reason[1:]}, so sensors exchange few messages or none: with these settings they pass "
            'only between readings of the same time. The presets "tuned" and "graph" have messages that cross time '
            '(model.graph.senders = "nearby").',
            RaindropWarning,
            stacklevel=4,
        )


def with_weights(table: EventTable, sample_weight: ArrayLike | None) -> EventTable:
    """The table with a column of weights, which follows its samples through every split."""
    if sample_weight is None:
        return table
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (len(table),) or not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise DataError(
            f"sample_weight: must be one finite number of at least 0 for each of {len(table):,} samples, not all 0."
        )
    return replace(table, samples=table.samples.with_columns(pl.Series(WEIGHT, weight)))


def require_table(X: Any, method: str) -> EventTable:
    """Raise unless X is an EventTable."""
    if not isinstance(X, EventTable):
        raise DataError(
            f"{method} takes an EventTable, not {type(X).__name__}. "
            "Make one with EventTable.from_frames(events, samples), from_wide, from_arrays or EventTable.read(folder)."
        )
    return X


def kind_of_dates(table: EventTable) -> str | None:
    """ "UTC" if the table was built from date times with a time zone, "local" from others; None without dates."""
    zero = table.time_zero
    if zero is None or not zero.count():
        return None
    return "local" if cast(pl.Datetime, zero.dtype).time_zone is None else "UTC"


def check_dates(table: EventTable, of_training: str | None) -> None:
    """Raise if the time of day of this table is on another clock than that of training, given as `kind_of_dates`."""
    kind = kind_of_dates(table)
    if of_training is not None and kind is not None and of_training != kind:
        has, had = ("no time zone", "one") if kind == "local" else ("a time zone", "none")
        raise DataError(
            f"The date times of this table have {has}, and those of training had {had}, so their times of day "
            "cannot be compared. Build the table as the training table was, or remove 'time_zero' from its samples."
        )


def time_window(table: EventTable) -> list[float]:
    """Earliest and latest time of a reading."""
    bounds = [
        (float(time.min()), float(time.max()))
        for part in table.blocks()
        if len(time := np.asarray(part.time[part.rows()]))
    ]
    return [min(low for low, _ in bounds), max(high for _, high in bounds)] if bounds else [0.0, 1.0]


def label_names(label: str | Sequence[str] | None, table: EventTable | None) -> list[str]:
    """The given columns, or the table's label; "label" if neither is given and there is no table."""
    if label is not None:
        return [label] if isinstance(label, str) else [str(name) for name in label]
    if table is None:
        return ["label"]
    if table.roles.label is None:
        raise ConfigError("Name the column to predict with label='NAME'; the table does not say which one it is.")
    return [table.roles.label]


def with_columns(table: EventTable, y: ArrayLike, names: Sequence[str]) -> EventTable:
    """The table with y (samples,) or (samples, columns) stored in these columns of its samples."""
    values = np.asarray(y)
    values = values[:, None] if values.ndim == 1 else values
    if values.shape != (len(table), len(names)):
        raise DataError(
            f"There are {len(table):,} samples and {len(names)} columns to predict ({', '.join(names)}), but y has the "
            f"shape {np.asarray(y).shape}."
        )
    columns = [pl.Series(name, values[:, at].tolist()) for at, name in enumerate(names)]
    samples = table.samples.with_columns(columns)
    label = names[0] if table.roles.label is None else table.roles.label
    return replace(table, samples=samples, roles=replace(table.roles, label=label))
