"""Score a part of a table: one pure function from Arrow tables to predictions, the same for every engine."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import polars as pl

from raindrop.errors import RaindropWarning
from raindrop.estimators import SampleEstimator
from raindrop.table.cells import natural_key
from raindrop.table.event_table import EventTable
from raindrop.table.frames import to_polars
from raindrop.table.time_columns import TimeUnit
from raindrop.tasks.predictions import Predictions


def score_part(
    estimator: SampleEstimator,
    events: Any,
    samples: Any = None,
    *,
    sensors: Sequence[str] | None = None,
    time_unit: TimeUnit | None = None,
    coverage: float | None = None,
    by_class: bool = False,
) -> Predictions:
    """The predictions for a part of a table, in the order of its samples.

    `.frame()` has the columns that `raindrop predict` writes, as a polars frame, which is Arrow in memory
    (`.frame().to_arrow()` for pyarrow).

    events: columns sample, time, sensor and value; **every reading of a sample must be in the same part**. samples: one
    row per sample, with the static attributes that the model was trained with; by default they are taken from the
    columns of `events`. Both are Arrow tables, or polars or pandas frames.

    sensors: the order in which readings of the same time are summed; by default the model's. time_unit: of the times;
    by default the model's. coverage, by_class: as in `predict_table`.
    """
    event_frame = to_polars(events, "events")
    sample_frame = None if samples is None else to_polars(samples, "samples")
    columns = (event_frame if sample_frame is None else sample_frame).columns
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RaindropWarning)  # they were shown for the whole table when it was read
        table = EventTable.from_frames(
            event_frame,
            sample_frame,
            label="",
            group="",
            cutoff="",
            reference="",
            statics=[column.name for column in estimator.scaler_.statics if column.name in columns],
            sensors=_sensor_order(estimator, event_frame) if sensors is None else sensors,
            time_unit=time_unit or estimator.time_unit_,
            before_reference="keep",
        )
        by = {"by_class": True} if by_class else {}
        return estimator.predict_table(table, coverage=coverage, **by)


def _sensor_order(estimator: SampleEstimator, events: pl.DataFrame) -> list[str]:
    """The model's sensors in its order, then those it does not know, by name."""
    known = estimator.scaler_.sensors
    present = events["sensor"].cast(pl.String).drop_nulls().unique().to_list() if "sensor" in events.columns else []
    return [*known, *sorted(set(present) - set(known), key=natural_key)]
