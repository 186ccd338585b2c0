"""Shared by Imputer and Forecaster: learning to predict hidden readings, and answering queries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.batch.batch import Batch
from raindrop.batch.collate import BatchSource
from raindrop.batch.gap_windows import GapWindows, HeldOutWindows
from raindrop.batch.gaps import Gaps, typical_intervals
from raindrop.batch.windows import QueryWindows, Windows, slow_sensors
from raindrop.errors import ConfigError, DataError, format_count
from raindrop.estimators.base import Estimator
from raindrop.estimators.inputs import check_dates, kind_of_dates, no_holdout_warning, require_table
from raindrop.files import content_checksum
from raindrop.hardware import limit_threads, resolve_device
from raindrop.models.base import Output
from raindrop.models.registry import QUERY_MODELS
from raindrop.table.blocks import blocks_of
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns, to_polars
from raindrop.table.queries import QueryTable, grid_times, on_grid, spans, whole_steps
from raindrop.table.query_times import to_duration
from raindrop.table.readings import Readings
from raindrop.table.time_columns import SECONDS
from raindrop.tasks.conformal import GroupedIntervals, require_coverage
from raindrop.tasks.readings import ReadingsAt
from raindrop.training.scoring import run_model, scores_of

Bools = NDArray[np.bool_]
Float64 = NDArray[np.float64]
MIN_SAMPLES = 10  # with fewer, stretches of the series are held out instead of samples
MIN_WINDOWS = 5  # with fewer, nothing is held out
PIECES = 8  # stretches of a window; neighbouring errors are correlated, so many short stretches are better
DISTANCES = (1.5, 3.0, 6.0, 12.0, 24.0, 48.0, 96.0)  # groups by typical intervals to the sensor's nearest reading
MIN_GROUP = 1000  # validation readings in each group


class ReadingsEstimator(Estimator):
    """Base of estimators that answer queries: the value of a sensor at a time."""

    registry = QUERY_MODELS
    task_type = ReadingsAt
    task_: ReadingsAt
    conformal_: GroupedIntervals | None

    def fit(
        self,
        X: EventTable,
        *,
        validation: EventTable | None = None,
        run: str | os.PathLike[str] | None = None,
        resume: bool = False,
        tensorboard: bool = False,
        parts: Mapping[str, EventTable] | None = None,
        callbacks: Sequence[Any] = (),
    ) -> Self:
        """Learn from the measured readings of a table; labels and readings that were filled in are not used.

        Without `validation`, a random share (train.holdout) of the samples, or of the stretches of a long series, is
        used to choose the epoch and to calibrate the intervals. `run`, `resume`, `parts` and `callbacks` are those of
        `Classifier.fit`.
        """
        _, _, train_config = self._configs()
        resolve_device(self.device)
        table = require_table(X, "fit").measured()
        if not table.num_readings:
            raise DataError("The training table has no readings. There must be some to learn from.")
        if train_config.soft_targets or train_config.drop_readings or train_config.drop_sensors:
            raise ConfigError(
                "train.soft_targets, train.drop_readings and train.drop_sensors have no effect here: readings are "
                "hidden by the gaps that are drawn. Leave them out."
            )
        self.learn_task(table).require_metric(train_config.metric)
        self._check_run(run, resume)
        self.holds_out_windows_ = False
        training, held_out = self._hold_out(table, validation, train_config.holdout)
        self.interval_ = typical_intervals(training)
        return self._fit(
            table,
            training,
            held_out,
            run=run,
            resume=resume,
            tensorboard=tensorboard,
            parts=parts,
            callbacks=callbacks,
        )

    # ---------------------------------------------------------------- asking

    def readings_at(self, X: EventTable, queries: Any, *, coverage: float = 0.9) -> Readings:
        """The value of each query, with an interval that contains the true value with this probability.

        The interval is NaN if the estimator was fitted without validation readings.

        `queries` is a frame with the columns sample, time and sensor (`raindrop.grid` makes a regular one). For a query
        at a time when the sensor was read, that reading is hidden from the model.
        """
        table = self._with_all_sensors(X)
        asked = self._checked(QueryTable.from_frame(table, queries))
        self._check_asked(table, np.unique(asked.sample))
        return self._answer(asked, coverage)

    def grid(self, X: EventTable, every: Any) -> pl.DataFrame:
        """Queries at regular times, wherever this estimator can answer them, for all sensors it was trained on.

        every: as in `raindrop.grid`. An imputer is asked at whole steps, a forecaster in steps after the cutoff.
        """
        table = self._with_all_sensors(X)
        return self._on_grid(table, to_duration(every, table, "every")).frame()

    def _on_grid(self, table: EventTable, every: float) -> QueryTable:
        start, stop = self._answerable(table, every)
        return on_grid(table, every, self.scaler_.observed_sensors, start=start, stop=stop)

    def grid_blocks(self, X: EventTable, every: Any, *, coverage: float = 0.9) -> Iterator[Readings]:
        """The answers to `grid`, one block of samples at a time, so that only one block is in memory."""
        table = self._with_all_sensors(X)
        step = to_duration(every, table, "every")
        times = grid_times(table, step, *self._answerable(table, step))
        if not times.any():
            raise DataError("There are no queries: no regular time lies where readings can be predicted.")
        self._check_asked(table, np.flatnonzero(times))
        for block in blocks_of(table, times * len(self.scaler_.observed_sensors)):
            yield self._answer(self._on_grid(block.in_memory(), step).checked(), coverage)

    def _answerable(self, table: EventTable, every: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(samples,) where a grid of queries starts, and where it ends."""
        return whole_steps(table, every), spans(table)[1]

    def evaluate(self, X: EventTable, truth: Any) -> dict[str, float]:
        """Errors on known readings: a frame with the columns sample, time, sensor and value.

        Readings of the table at the same sample, sensor and time are hidden from the model. MAE and RMSE are over all
        readings in their own units; the standardised ones are means over sensors, in standard deviations.
        """
        queries, value, answers, distance = self._answers_to(X, truth)
        codes = self._codes(queries)
        scale, mean = self.scaler_.scale[codes], self.scaler_.mean[codes]
        error = answers[:, len(self.task_.levels) // 2] * scale + mean - value
        scaled = np.stack([(value - mean) / scale, codes], axis=1)
        standardised = self.task_.evaluate(scaled, answers)
        metrics = {"mae": float(np.abs(error).mean()), "rmse": float(np.sqrt((error**2).mean()))}
        metrics |= {f"standardised_{name}": standardised[name] for name in ("mae", "rmse")}
        if self.conformal_ is not None:
            for coverage in (0.8, 0.95):
                interval = self.conformal_.intervals(answers, distance, coverage, self.task_.levels)
                inside = (interval[:, 0] <= scaled[:, 0]) & (scaled[:, 0] <= interval[:, 1])
                metrics[f"coverage_{100 * coverage:.0f}"] = float(inside.mean())
        return metrics

    def _answers_to(self, X: EventTable, truth: Any) -> tuple[QueryTable, Float64, NDArray[np.float32], Float64]:
        """The queries of known readings, their values, and the result of `_quantiles` with those readings hidden."""
        table = self._with_all_sensors(X)
        frame = to_polars(truth, "truth")
        require_columns(frame, {"value": "value"}, "truth")
        queries = QueryTable.from_frame(table, frame)
        value = frame["value"].cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        if not np.isfinite(value).all():
            wrong = np.flatnonzero(~np.isfinite(value))
            raise DataError(
                f"truth: {format_count(len(wrong), len(value), 'rows')} have no finite value (first: row "
                f"{wrong[0] + 1:,}); leave them out."
            )
        unseen = self._checked_truth(queries.unseen())
        return queries, value, *self._quantiles(unseen)

    def senders(self, X: EventTable, queries: Any) -> pl.DataFrame:
        """How much each sensor informed each query: sample, time, sensor, sender, weight; weights sum to at most 1."""
        asked, weight = self._sender_weights(X, queries)
        frame, names = asked.frame(), self.scaler_.sensors
        every = frame[np.repeat(np.arange(len(frame)), len(names))]
        sender = pl.Series(list(names) * len(frame), dtype=pl.String)
        return every.with_columns(sender=sender, weight=pl.Series(weight.ravel())).filter(
            pl.col("sender") != pl.col("sensor")
        )

    def sender_weights(self, X: EventTable, queries: Any) -> NDArray[np.float32]:
        """The same as an array: (queries, sensors of training), 0 for the queried sensor itself."""
        asked, weight = self._sender_weights(X, queries)
        weight[np.arange(len(asked)), self._codes(asked)] = 0
        return weight

    def _sender_weights(self, X: EventTable, queries: Any) -> tuple[QueryTable, NDArray[np.float32]]:
        table = self._with_all_sensors(X)
        asked = self._checked(QueryTable.from_frame(table, queries))
        source = self._source(asked)
        parts = []
        with limit_threads(self.threads):
            for _, output in self._run(source):
                if output.senders is None:
                    raise ConfigError(f"Model '{self.model}' with these settings passes no messages.")
                parts.append(output.senders.cpu().numpy())
        return asked, source.in_asked_order(np.concatenate(parts))

    def _answer(self, queries: QueryTable, coverage: float) -> Readings:
        require_coverage(coverage)
        answers, distance = self._quantiles(self._checked(queries))
        codes = self._codes(queries)
        scale, mean = self.scaler_.scale[codes], self.scaler_.mean[codes]
        value = answers[:, len(self.task_.levels) // 2].astype(np.float64)
        low = high = np.full(len(value), np.nan)
        if self.conformal_ is not None:
            interval = self.conformal_.intervals(answers, distance, coverage, self.task_.levels)
            low, high = np.minimum(interval[:, 0], value), np.maximum(interval[:, 1], value)
        return Readings(queries, value * scale + mean, low * scale + mean, high * scale + mean, coverage)

    def _quantiles(self, queries: QueryTable) -> tuple[NDArray[np.float32], Float64]:
        """(q, level) scaled, and (q,) the distance to the queried sensor's nearest reading, in typical intervals."""
        answers, distance = np.zeros((len(queries), len(self.task_.levels)), dtype=np.float32), np.zeros(len(queries))
        for rows, part in queries.in_blocks():
            if len(part):
                answers[rows], distance[rows] = self._quantiles_in_block(part)
        return answers, distance

    def _quantiles_in_block(self, queries: QueryTable) -> tuple[NDArray[np.float32], Float64]:
        source = self._source(queries)
        device = resolve_device(self.device)
        with limit_threads(self.threads):
            scores = self.task_.predict(scores_of(self.model_, source, device, show=self.progress))
        distance = source.in_asked_order(source.distance) / self.interval_[self._codes(queries)]
        return source.in_asked_order(scores), distance

    def _run(self, source: QueryWindows) -> Iterator[tuple[Batch, Output]]:
        return run_model(self.model_, source, resolve_device(self.device))

    def _source(self, queries: QueryTable, values: NDArray[np.float64] | None = None) -> QueryWindows:
        table = self._visible(queries.table)
        check_dates(table, self.data_.get("dated"))
        factor = SECONDS[table.time_unit] / SECONDS[self.time_unit_]
        return QueryWindows(
            table.in_unit(self.time_unit_),
            self.scaler_,
            self._window_interval,
            (queries.sample, self._codes(queries), queries.time * factor),
            values,
            ignore_unknown=self.unknown_sensors == "ignore",
            **self._visibility,
        )

    def _visible(self, table: EventTable) -> EventTable:
        """The readings that the model may see."""
        return table

    def _check_asked(self, table: EventTable, samples: NDArray[np.int64]) -> None:
        """Raise if none of the samples that are asked about can be answered; warn if some cannot be answered well."""

    def _checked(self, queries: QueryTable) -> QueryTable:
        """The queries; raises if one cannot be answered."""
        return queries

    def _checked_truth(self, queries: QueryTable) -> QueryTable:
        """The queries of known readings; raises if one cannot be scored."""
        return queries

    def _codes(self, queries: QueryTable) -> NDArray[np.int64]:
        """(q,) sensor codes of training; raises for a sensor that had no reading there."""
        known = {name: at for at, name in enumerate(self.scaler_.sensors) if self.scaler_.observed[at]}
        codes = np.array([known.get(name, -1) for name in queries.table.sensors], dtype=np.int64)[queries.sensor]
        queries.require(
            codes >= 0, "ask for a sensor without a training reading", "Ask for sensors that were read in training."
        )
        return codes

    def _with_all_sensors(self, X: EventTable) -> EventTable:
        """The table with all sensors of training listed, since queries may be about a sensor that it does not have."""
        self._require_fitted()
        table = require_table(X, "readings_at")
        if not len(table):
            raise DataError("The table is empty; at least one sample is needed.")
        missing = tuple(name for name in self.scaler_.sensors if name not in set(table.sensors))
        return replace(table, sensors=table.sensors + missing) if missing else table

    # ---------------------------------------------------------------- learning

    def learn_task(self, table: EventTable) -> ReadingsAt:
        return ReadingsAt(table.sensors)

    @property
    def _window_interval(self) -> float:
        return float(np.median(self.interval_))

    @property
    def _visibility(self) -> dict[str, Any]:
        """Which readings are visible far from a window: options of all `WindowSource`s."""
        return {"sees_distant": self.model_.sees_distant, "slow": slow_sensors(self.interval_)}

    def _about_dates(self, training: EventTable) -> dict[str, str]:
        kind = kind_of_dates(training)
        return {} if kind is None else {"dated": kind}

    def _horizon(self) -> float | None:
        return None

    def _saved_cutoff(self) -> Any:
        """The cutoff for JSON."""
        return None

    def _gaps(self, table: EventTable) -> Gaps:
        return Gaps.learn(table, self.interval_, seed=int(self.seed))

    def _hold_out(
        self, table: EventTable, validation: EventTable | None, share: float
    ) -> tuple[EventTable, EventTable | None]:
        if validation is not None:
            if not require_table(validation, "validation").num_readings:
                raise DataError("The validation table has no readings. Leave it out, or give some.")
            return table, validation
        if share <= 0:
            return table, None
        readable = table[table.count > 0]
        if len(readable) >= MIN_SAMPLES:
            unlabelled = replace(readable, roles=replace(table.roles, label=None))
            training, held_out = unlabelled.split((1 - share, share), seed=int(self.seed))
            return training, held_out
        windows = Windows.cut(table, float(np.median(typical_intervals(table))), self._horizon()).with_readings(table)
        if len(windows) < MIN_WINDOWS:
            no_holdout_warning(table, "their series are too short to leave a part of them out")
            return table, None
        self.holds_out_windows_ = True
        return table, table

    def _held_out_rows(self, table: EventTable) -> Bools | None:
        """(readings,) which readings of a long series are for validation: many short stretches; None if too few."""
        if not self.holds_out_windows_:
            return None
        stretches = Windows.cut(table, self._window_interval, self._horizon(), pieces=PIECES).with_readings(table)
        number = max(1, round(self._configs()[2].holdout * len(stretches)))
        chosen = np.random.default_rng(int(self.seed)).choice(len(stretches), number, replace=False)
        held_out = np.zeros(len(table.time), dtype=bool)
        for first, last in zip(*stretches[chosen].rows_inside(table), strict=True):
            held_out[first:last] = True
        return held_out

    def _training_source(self, table: EventTable) -> GapWindows:
        self.gaps_ = self._gaps(table)
        held_out = self._held_out_rows(table)
        askable = None if held_out is None else ~held_out
        return GapWindows(
            table,
            self.scaler_,
            self._windows(table, askable),
            self.gaps_,
            askable=askable,
            **self._visibility,
        )

    def _validation_source(self, table: EventTable) -> HeldOutWindows:
        """Readings hidden once, drawn as in training."""
        check_dates(table, self.data_.get("dated"))
        table = table.in_unit(self.time_unit_)
        askable = self._held_out_rows(table)
        return HeldOutWindows(
            table,
            self.scaler_,
            self._windows(table, askable),
            self.gaps_,
            askable=askable,
            seed=int(self.seed),
            ignore_unknown=True,
            **self._visibility,
        )

    def _windows(self, table: EventTable, askable: Bools | None) -> Windows:
        return Windows.cut(table, self._window_interval, self._horizon()).with_readings(table, askable)

    def _forget_calibration(self) -> None:
        self.conformal_ = None

    def _calibrate(self, truth: NDArray[Any], predicted: NDArray[Any], source: BatchSource) -> None:
        distance = cast(HeldOutWindows, source).distance / self.interval_[truth[:, 1].astype(np.int64)]
        self.conformal_ = GroupedIntervals.fit(truth[:, 0], predicted, distance, DISTANCES, MIN_GROUP)

    # ---------------------------------------------------------------- saving

    def _identity(self, held_out: EventTable | None, data: Estimator | None = None, *, resumable: bool = False) -> str:
        arguments = [type(self).__name__, self._horizon(), self._saved_cutoff()]
        return content_checksum([super()._identity(held_out, data, resumable=resumable), arguments])

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays = {} if self.conformal_ is None else {f"conformal/{k}": v for k, v in vars(self.conformal_).items()}
        return {"estimator": type(self).__name__.lower()}, arrays | {"interval": self.interval_}

    def _restore_state(self, content: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.interval_ = arrays["interval"].astype(np.float64)
        saved = {name.removeprefix("conformal/"): a for name, a in arrays.items() if name.startswith("conformal/")}
        self.conformal_ = GroupedIntervals(**saved) if saved else None
