"""Forecaster: predict readings after a cutoff from those before it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from raindrop.batch.gaps import Gaps
from raindrop.errors import ConfigError, DataError, RaindropWarning, format_count
from raindrop.estimators.class_graphs import class_graphs
from raindrop.estimators.cutoffs import (
    LARGEST,
    Cutoff,
    cutoffs_of,
    from_json,
    is_fixed,
    last_before,
    require_cutoff,
    to_json,
)
from raindrop.estimators.inputs import require_table
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.estimators.sender_graphs import MAX_HIDDEN, Progress, SenderEffects, sender_effects
from raindrop.graphs.class_differences import ClassGraphs
from raindrop.graphs.graph import SensorGraphs
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hold_out_future
from raindrop.table.queries import QueryTable, spans
from raindrop.table.query_times import time_text
from raindrop.table.time_columns import SECONDS


class Forecaster(ReadingsEstimator):
    """Forecast the value of any sensor up to `horizon` after a cutoff, from the readings before it only.

    cutoff: the time at which forecasts are made: a number or a date for all samples, or the name of a column of the
    samples table; by default the last reading of each sample. Readings after it are never seen. A date (also as text,
    in UTC if it has a time zone) needs a table that was built from date times. The other arguments are those of
    `Imputer`.
    """

    def __init__(
        self,
        model: str = "raindrop",
        *,
        horizon: float,
        cutoff: Cutoff = None,
        preset: str = "tuned",
        config: Mapping[str, Any] | None = None,
        seed: int = 0,
        unknown_sensors: Literal["error", "ignore"] = "error",
        device: str = "cpu",
        threads: int | None = None,
        progress: bool = False,
    ):
        self.model = model
        self.horizon = horizon
        self.cutoff = cutoff
        self.preset = preset
        self.config = config
        self.seed = seed
        self.unknown_sensors = unknown_sensors
        self.device = device
        self.threads = threads
        self.progress = progress

    def cutoffs(self, X: EventTable) -> NDArray[np.float64]:
        """(samples,) the cutoff of each sample, in the table's time unit; later readings are not seen."""
        if self.cutoff is None:
            return spans(X)[1]
        factor = SECONDS[getattr(self, "time_unit_", X.time_unit)] / SECONDS[X.time_unit]
        return cutoffs_of(self.cutoff, X, factor)

    def graphs(self, X: EventTable, *, seed: int = 0) -> SensorGraphs:
        """For each sample, or each window of a long one: how much worse v is forecast without the readings of u.

        Scored on the readings up to one horizon after the cutoff; without a cutoff, on the last horizon of each sample.
        """
        return self.sender_effects(X, seed=seed).graphs()

    def sender_effects(
        self, X: EventTable, *, seed: int = 0, max_hidden: int = MAX_HIDDEN, progress: Progress | None = None
    ) -> SenderEffects:
        """Errors of forecasts with all sensors and without each of them.

        At most `max_hidden` readings are predicted. progress: called with the number of sensors done and the total.
        """
        self._require_fitted()
        table = require_table(X, "sender_effects")
        horizon = self._horizon_in(table)
        cutoffs = self.cutoffs(table) if self.cutoff is not None else spans(table)[1] - horizon
        visible, truth = hold_out_future(table, cutoffs, horizon)
        return sender_effects(self, visible, truth, seed, max_hidden=max_hidden, progress=progress)

    def class_graphs(
        self,
        X: EventTable,
        *,
        other_seeds: Sequence[Forecaster] = (),
        q: float = 0.05,
        permutations: int | None = None,
        seed: int = 0,
    ) -> ClassGraphs:
        """The graph of each class of a labelled table, and how they differ: edges with a q-value of at most `q`.

        Labels were never seen in training; they are permuted over samples, or over whole groups where the table has
        them. other_seeds: forecasters trained with other seeds; an edge that does not recur in all of them is left out.
        """
        models = (self, *other_seeds)
        return class_graphs(models, X, q=q, permutations=permutations, seed=seed)

    def _answerable(self, table: EventTable, every: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        cutoff = self.cutoffs(table)
        return cutoff + every, cutoff + self._horizon_in(table)

    def _check_arguments(self) -> None:
        if (
            isinstance(self.horizon, bool)
            or not isinstance(self.horizon, (int, float))
            or not 0 < self.horizon <= LARGEST
        ):
            raise ConfigError(
                f"horizon={self.horizon!r}: the horizon must be a positive number in the table's time unit."
            )
        require_cutoff(self.cutoff)

    def _horizon(self) -> float | None:
        return float(self.horizon)

    def _saved_cutoff(self) -> Any:
        return to_json(self.cutoff)

    def _gaps(self, table: EventTable) -> Gaps:
        """Random cutoffs; half of them at the fixed cutoff if it is a number."""
        present = np.flatnonzero(table.count)
        self._last_seen(table, present)  # raises if its column is missing, or if nothing lies before it
        fixed = float(cast(float, self.cutoff)) if is_fixed(self.cutoff) else None
        return Gaps.learn(table, self.interval_, horizon=float(self.horizon), cutoff=fixed, seed=int(self.seed))

    def _visible(self, table: EventTable) -> EventTable:
        limit = np.repeat(self.cutoffs(table), table.count)
        seen = np.asarray(table.time[table.rows()]) <= limit
        return table if seen.all() else table.where(seen)

    def _last_seen(self, table: EventTable, samples: NDArray[np.int64]) -> NDArray[np.float64]:
        """(s,) the last reading of these samples up to the cutoff, NaN if there is none; raises if none has any."""
        cutoff = self.cutoffs(table)[samples]
        last = last_before(table, samples, cutoff)
        if len(last) and np.isnan(last).all():
            at = samples[0]
            raise DataError(
                f"None of {len(samples):,} samples has a reading up to the cutoff (first: sample '{table.ids[at]}', "
                f"cutoff {time_text(cutoff[0], table, at)}), so there is nothing to forecast from. Choose a later one."
            )
        return last

    def _check_asked(self, table: EventTable, samples: NDArray[np.int64]) -> None:
        last, cutoff = self._last_seen(table, samples), self.cutoffs(table)[samples]
        horizon = self._horizon_in(table)
        for those, problem in (
            (np.isnan(last), "have no reading up to the cutoff, so their forecasts are not based on any of their own"),
            (
                cutoff - last > horizon * (1 + 1e-9),
                f"have their last reading more than the horizon of {horizon:g} {table.time_unit} before the cutoff, so "
                "their forecasts reach further than the model has learned",
            ),
        ):
            if those.any():
                at = samples[those][0]
                warnings.warn(
                    f"{format_count(int(those.sum()), len(samples), 'samples')} {problem} (first: sample "
                    f"'{table.ids[at]}', cutoff {time_text(cutoff[those][0], table, at)}).",
                    RaindropWarning,
                    stacklevel=3,
                )

    def _horizon_in(self, table: EventTable) -> float:
        """The horizon in the table's time unit."""
        return float(self.horizon) * SECONDS[self.time_unit_] / SECONDS[table.time_unit]

    def _checked(self, queries: QueryTable) -> QueryTable:
        cutoff = self.cutoffs(self._checked_truth(queries).table)[queries.sample]
        horizon = self._horizon_in(queries.table)
        queries.require(
            queries.time <= cutoff + horizon * (1 + 1e-9),
            f"lie more than the horizon of {horizon:g} {queries.table.time_unit} after the cutoff",
            "Ask for earlier times, or train with a longer horizon.",
        )
        return queries

    def _checked_truth(self, queries: QueryTable) -> QueryTable:
        """Raise unless all lie after the cutoff: earlier readings would be predicted from later ones."""
        cutoff = self.cutoffs(queries.table)[queries.sample]
        queries.require(
            queries.time > cutoff,
            "lie at or before the cutoff",
            "A forecaster predicts what comes after; ask an Imputer.",
        )
        return queries

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        content, arrays = super()._state()
        return content | {"horizon": float(self.horizon), "cutoff": self._saved_cutoff()}, arrays

    @classmethod
    def _restored(cls, about: Mapping[str, Any], **options: Any) -> Self:
        state = about["state"]
        return cls(about["model"], horizon=state["horizon"], cutoff=from_json(state["cutoff"]), **options)
