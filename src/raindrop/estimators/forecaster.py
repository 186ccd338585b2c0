"""Forecaster: predict readings after a cutoff from those before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.batch.gaps import Gaps
from raindrop.errors import ConfigError, DataError
from raindrop.estimators.class_graphs import class_graphs
from raindrop.estimators.inputs import require_table
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.estimators.sender_graphs import MAX_HIDDEN, Progress, SenderEffects, sender_effects
from raindrop.graphs.class_differences import ClassGraphs
from raindrop.graphs.graph import SensorGraphs
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns
from raindrop.table.hide import hold_out_future
from raindrop.table.queries import QueryTable, spans
from raindrop.table.time_columns import SECONDS

LARGEST = float(np.finfo(np.float64).max)  # whole numbers can be larger


class Forecaster(ReadingsEstimator):
    """Forecast the value of any sensor up to `horizon` after a cutoff, from the readings before it only.

    cutoff: the time at which forecasts are made, a number for all samples or the name of a column of the samples table;
    by default the last reading of each sample. Readings after it are never seen. The other arguments are those of
    `Imputer`.
    """

    def __init__(
        self,
        model: str = "raindrop",
        *,
        horizon: float,
        cutoff: float | str | None = None,
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
        if isinstance(self.cutoff, str):
            require_columns(X.samples, {"cutoff": self.cutoff}, "samples")
            column = X.samples[self.cutoff].cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
            if not np.isfinite(column).all():
                at = int(np.argmin(np.isfinite(column)))
                raise DataError(
                    f"samples: '{self.cutoff}' has no finite cutoff in row {at + 1:,} (sample '{X.ids[at]}'). "
                    f"A cutoff is a number of {X.time_unit} on the clock of the readings."
                )
            return column
        factor = SECONDS[getattr(self, "time_unit_", X.time_unit)] / SECONDS[X.time_unit]
        return np.full(len(X), float(self.cutoff) * factor)

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
        horizon = float(self.horizon) * SECONDS[self.time_unit_] / SECONDS[table.time_unit]
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
        return cutoff + every, cutoff + float(self.horizon) * SECONDS[self.time_unit_] / SECONDS[table.time_unit]

    def _check_arguments(self) -> None:
        if (
            isinstance(self.horizon, bool)
            or not isinstance(self.horizon, (int, float))
            or not 0 < self.horizon <= LARGEST
        ):
            raise ConfigError(
                f"horizon={self.horizon!r}: the horizon must be a positive number in the table's time unit."
            )
        if isinstance(self.cutoff, (int, float)) and not abs(self.cutoff) <= LARGEST:
            raise ConfigError(f"cutoff={self.cutoff!r}: must be a finite time, the name of a column, or None.")

    def _horizon(self) -> float | None:
        return float(self.horizon)

    def _gaps(self, table: EventTable) -> Gaps:
        """Random cutoffs; half of them at the fixed cutoff if it is a number."""
        self.cutoffs(table)  # raises if its column is missing
        fixed = None if self.cutoff is None or isinstance(self.cutoff, str) else float(self.cutoff)
        return Gaps.learn(table, self.interval_, horizon=float(self.horizon), cutoff=fixed, seed=int(self.seed))

    def _visible(self, table: EventTable) -> EventTable:
        limit = np.repeat(self.cutoffs(table), table.count)
        seen = np.asarray(table.time[table.rows()]) <= limit
        return table if seen.all() else table.where(seen)

    def _checked(self, queries: QueryTable) -> QueryTable:
        cutoff = self.cutoffs(self._checked_truth(queries).table)[queries.sample]
        factor = SECONDS[self.time_unit_] / SECONDS[queries.table.time_unit]
        horizon = float(self.horizon) * factor
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
        return content | {"horizon": float(self.horizon), "cutoff": self.cutoff}, arrays

    @classmethod
    def _restored(cls, about: Mapping[str, Any], **options: Any) -> Self:
        state = about["state"]
        return cls(about["model"], horizon=state["horizon"], cutoff=state["cutoff"], **options)
