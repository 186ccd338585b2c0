"""Imputer and Forecaster: the readings that are not there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.batch.gaps import Gaps, typical_intervals
from raindrop.batch.windows import GapWindows, QueryWindows, Windows
from raindrop.errors import ConfigError, DataError
from raindrop.estimators.base import Estimator
from raindrop.estimators.inputs import no_holdout_warning, require_table
from raindrop.hardware import limit_threads, resolve_device
from raindrop.models.registry import QUERY_MODELS
from raindrop.table.event_table import EventTable
from raindrop.table.frames import require_columns, to_polars
from raindrop.table.queries import QueryTable, at_times, in_gaps, spans
from raindrop.table.readings import Readings
from raindrop.table.time_columns import SECONDS
from raindrop.tasks.conformal import ConformalIntervals
from raindrop.tasks.readings import ReadingsAt
from raindrop.training.scoring import scores_of

MIN_SAMPLES = 10  # with fewer, windows of the series are held out instead of samples
MIN_WINDOWS = 5  # with fewer, nothing is held out


class ReadingsEstimator(Estimator):
    """Any model that answers queries: the value of a sensor at a time."""

    registry = QUERY_MODELS
    task_type = ReadingsAt
    task_: ReadingsAt
    conformal_: ConformalIntervals | None

    def fit(
        self,
        X: EventTable,
        *,
        validation: EventTable | None = None,
        run: str | os.PathLike[str] | None = None,
        resume: bool = False,
        tensorboard: bool = False,
        parts: Mapping[str, EventTable] | None = None,
    ) -> Self:
        """Learn from a table; labels are not used.

        Without `validation`, a random share (train.holdout) of the samples, or of a long series' windows, chooses the
        epoch to keep and makes the intervals honest. `run`, `resume` and `parts` are those of `Classifier.fit`.
        """
        _, _, train_config = self._configs()
        resolve_device(self.device)
        table = require_table(X, "fit")
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
        return self._fit(table, training, held_out, run=run, resume=resume, tensorboard=tensorboard, parts=parts)

    # ---------------------------------------------------------------- asking

    def readings_at(self, X: EventTable, queries: Any, *, coverage: float = 0.9) -> Readings:
        """The value of each query, with an interval that contains the true one with this probability.

        `queries` is a frame with the columns sample, time and sensor (`raindrop.grid` makes a regular one). A query at
        a time when the sensor was read is answered as if that reading were not there.
        """
        table = self._with_all_sensors(X)
        return self._answer(QueryTable.from_frame(table, queries), coverage)

    def evaluate(self, X: EventTable, truth: Any) -> dict[str, float]:
        """Errors against known readings: a frame with the columns sample, time, sensor and value.

        Readings of the table at the same sample, sensor and time are hidden from the model. MAE and RMSE are over all
        readings in their own units, the standardised ones are means over sensors in units of a standard deviation.
        """
        table = self._with_all_sensors(X)
        frame = to_polars(truth, "truth")
        require_columns(frame, {"value": "value"}, "truth")
        queries = QueryTable.from_frame(table, frame)
        value = frame["value"].cast(pl.Float64).to_numpy()
        if not np.isfinite(value).all():
            raise DataError("truth: some values are missing or not finite; leave those rows out.")
        hidden = _without(table, queries)
        answers = self._quantiles(replace(queries, table=hidden))
        codes = self._codes(queries)
        scale, mean = self.scaler_.scale[codes], self.scaler_.mean[codes]
        error = answers[:, len(self.task_.levels) // 2] * scale + mean - value
        scaled = np.stack([(value - mean) / scale, codes], axis=1)
        standardised = self.task_.evaluate(scaled, answers)
        metrics = {"mae": float(np.abs(error).mean()), "rmse": float(np.sqrt((error**2).mean()))}
        metrics |= {f"standardised_{name}": standardised[name] for name in ("mae", "rmse")}
        if self.conformal_ is not None:
            for coverage in (0.8, 0.95):
                interval = self.conformal_.intervals(answers[:, None], coverage, self.task_.levels)[:, 0]
                inside = (interval[:, 0] <= scaled[:, 0]) & (scaled[:, 0] <= interval[:, 1])
                metrics[f"coverage_{100 * coverage:.0f}"] = float(inside.mean())
        return metrics

    def senders(self, X: EventTable, queries: Any) -> pl.DataFrame:
        """How much each sensor informed each query: sample, time, sensor, sender, weight; weights sum to at most 1."""
        table = self._with_all_sensors(X)
        asked = self._checked(QueryTable.from_frame(table, queries))
        source = self._source(asked)
        parts = []
        with limit_threads(self.threads):
            for _, output in self._run(source):
                if output.senders is None:
                    raise ConfigError(f"Model '{self.model}' with these settings passes no messages.")
                parts.append(output.senders.cpu().numpy())
        weight = source.in_asked_order(np.concatenate(parts))
        frame, names = asked.frame(), self.scaler_.sensors
        every = frame[np.repeat(np.arange(len(frame)), len(names))]
        sender = pl.Series(list(names) * len(frame), dtype=pl.String)
        return every.with_columns(sender=sender, weight=pl.Series(weight.ravel())).filter(
            pl.col("sender") != pl.col("sensor")
        )

    def _answer(self, queries: QueryTable, coverage: float) -> Readings:
        answers = self._quantiles(self._checked(queries))
        codes = self._codes(queries)
        if self.conformal_ is None:
            raise ConfigError(
                "Intervals with a coverage need validation readings, and this model was fitted without any. "
                "Fit it with validation=TABLE or a train.holdout above 0."
            )
        interval = self.conformal_.intervals(answers[:, None], coverage, self.task_.levels)[:, 0]
        scale, mean = self.scaler_.scale[codes], self.scaler_.mean[codes]
        value = answers[:, len(self.task_.levels) // 2].astype(np.float64)
        low, high = np.minimum(interval[:, 0], value), np.maximum(interval[:, 1], value)
        return Readings(queries, value * scale + mean, low * scale + mean, high * scale + mean, coverage)

    def _quantiles(self, queries: QueryTable) -> NDArray[np.float32]:
        """(q, level) scaled."""
        if not len(queries):
            return np.zeros((0, len(self.task_.levels)), dtype=np.float32)
        source = self._source(queries)
        device = resolve_device(self.device)
        self.model_.to(device)
        with limit_threads(self.threads):
            scores = self.task_.predict(scores_of(self.model_, source, device, show=self.progress))
        return source.in_asked_order(scores)

    def _run(self, source: QueryWindows) -> Any:
        from raindrop.training.scoring import run_model

        device = resolve_device(self.device)
        self.model_.to(device)
        return run_model(self.model_, source, device)

    def _source(self, queries: QueryTable, values: NDArray[np.float64] | None = None) -> QueryWindows:
        table = self._visible(queries.table)
        factor = SECONDS[table.time_unit] / SECONDS[self.time_unit_]
        return QueryWindows(
            table.in_unit(self.time_unit_),
            self.scaler_,
            self._window_interval,
            (queries.sample, self._codes(queries), queries.time * factor),
            values,
            ignore_unknown=self.unknown_sensors == "ignore",
        )

    def _visible(self, table: EventTable) -> EventTable:
        """The readings the model may see."""
        return table

    def _checked(self, queries: QueryTable) -> QueryTable:
        """The queries; an error where one cannot be answered."""
        return queries

    def _codes(self, queries: QueryTable) -> NDArray[np.int64]:
        """(q,) sensor codes of training; an error for a sensor that was never read there."""
        known = {name: at for at, name in enumerate(self.scaler_.sensors) if self.scaler_.observed[at]}
        codes = np.array([known.get(name, -1) for name in queries.table.sensors], dtype=np.int64)[queries.sensor]
        queries.require(codes >= 0, "ask for a sensor without a training reading", "Ask for others.")
        return codes

    def _with_all_sensors(self, X: EventTable) -> EventTable:
        """The table with the sensors of training listed too: a sensor that it never had may be asked for."""
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

    def _horizon(self) -> float | None:
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
        if len(table) >= MIN_SAMPLES:
            unlabelled = replace(table, roles=replace(table.roles, label=None))
            training, held_out = unlabelled.split((1 - share, share), seed=int(self.seed))
            return training, held_out
        windows = Windows.cut(table, float(np.median(typical_intervals(table))), self._horizon())
        if len(windows) < MIN_WINDOWS:
            no_holdout_warning(table, f"its series are only {len(windows)} windows long")
            return table, None
        self.holds_out_windows_ = True
        return table, table

    def _held_out_windows(self, windows: Windows, share: float) -> NDArray[np.bool_]:
        held = np.zeros(len(windows), dtype=bool)
        number = max(1, round(share * len(windows)))
        held[np.random.default_rng(int(self.seed)).choice(len(windows), number, replace=False)] = True
        return held

    def _training_source(self, table: EventTable) -> GapWindows:
        windows = Windows.cut(table, self._window_interval, self._horizon())
        if self.holds_out_windows_:
            windows = windows[~self._held_out_windows(windows, self._configs()[2].holdout)]
        return GapWindows(table, self.scaler_, windows, self._gaps(table))

    def _validation_source(self, table: EventTable) -> QueryWindows:
        """Readings hidden once, as in training."""
        table = table.in_unit(self.time_unit_)
        windows = Windows.cut(table, self._window_interval, self._horizon())
        if self.holds_out_windows_:
            windows = windows[self._held_out_windows(windows, self._configs()[2].holdout)]
        source = GapWindows(table, self.scaler_, windows, self._gaps(table), ignore_unknown=True)
        hidden, asked = source.draw_once(np.random.default_rng(int(self.seed)))
        rows = np.flatnonzero(asked)
        sensor = source.codes[table.sensor[table.rows()[rows]]]
        sample = np.repeat(np.arange(len(table)), table.count)[rows]
        at = table.rows()[rows]
        return QueryWindows(
            table.where(~hidden),
            self.scaler_,
            self._window_interval,
            (sample, sensor, np.asarray(table.time[at])),
            np.asarray(table.value[at]),
            ignore_unknown=True,
        )

    def _forget_calibration(self) -> None:
        self.conformal_ = None

    def _calibrate(self, truth: NDArray[Any], predicted: NDArray[Any], table: EventTable) -> None:
        self.conformal_ = ConformalIntervals.fit(truth[:, :1], predicted[:, None])

    # ---------------------------------------------------------------- saving

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays = {} if self.conformal_ is None else {f"conformal/{k}": v for k, v in vars(self.conformal_).items()}
        return {"estimator": type(self).__name__.lower()}, arrays | {"interval": self.interval_}

    def _restore_state(self, content: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.interval_ = arrays["interval"].astype(np.float64)
        saved = {name.removeprefix("conformal/"): a for name, a in arrays.items() if name.startswith("conformal/")}
        self.conformal_ = ConformalIntervals(**saved) if saved else None


class Imputer(ReadingsEstimator):
    """Fill gaps: the value of any sensor at any time within a sample, from all readings around it.

    model: "raindrop", or a baseline: a network ("grud", "mtand", "ipnet", "brits", "grin"), "trees", or a simple rule
    ("linear", "last", "mean", "nearest"). The other arguments are those of `Classifier`. No labels are needed. A table
    may hold thousands of short samples or one long series.
    """

    def __init__(
        self,
        model: str = "raindrop",
        *,
        preset: str = "tuned",
        config: Mapping[str, Any] | None = None,
        seed: int = 0,
        unknown_sensors: Literal["error", "ignore"] = "error",
        device: str = "cpu",
        threads: int | None = None,
        progress: bool = False,
    ):
        self.model = model
        self.preset = preset
        self.config = config
        self.seed = seed
        self.unknown_sensors = unknown_sensors
        self.device = device
        self.threads = threads
        self.progress = progress

    def fill(self, X: EventTable, at: Any = "gaps") -> EventTable:
        """The table with predicted readings added, marked in `filled`; its own readings stay as they are.

        at: "gaps" (each sensor at its typical interval, wherever it was silent for longer), a list of times, or a frame
        of queries (sample, time, sensor). `readings_at` gives the intervals too.
        """
        return self.fill_readings(X, at).fill()

    def fill_readings(self, X: EventTable, at: Any = "gaps", *, coverage: float = 0.9) -> Readings:
        """What `fill` adds, with intervals."""
        table = self._with_all_sensors(X)
        if isinstance(at, str):
            if at != "gaps":
                raise ConfigError(f"at='{at}': 'gaps', a list of times, or a frame of queries.")
            factor = SECONDS[self.time_unit_] / SECONDS[table.time_unit]
            of_training = dict(zip(self.scaler_.sensors, self.interval_ * factor, strict=True))
            observed = set(self.scaler_.observed_sensors)
            interval = np.array([of_training[name] if name in observed else np.inf for name in table.sensors])
            queries = in_gaps(table, interval)
        elif isinstance(at, Sequence | np.ndarray):
            queries = at_times(table, at)  # type: ignore[arg-type]
        else:
            queries = QueryTable.from_frame(table, at)
        return self._answer(queries, coverage)

    def _checked(self, queries: QueryTable) -> QueryTable:
        first, last = spans(queries.table)
        start, stop = first[queries.sample], last[queries.sample]
        slack = 1e-9 * np.maximum(np.abs(start), np.abs(stop))
        inside = (queries.time >= start - slack) & (queries.time <= stop + slack)
        queries.require(
            inside & (queries.table.count[queries.sample] > 0),
            "lie before the first reading of their sample or after its last",
            "An imputer fills in between; ask a Forecaster for what comes after.",
        )
        return queries


class Forecaster(ReadingsEstimator):
    """Forecast: the value of any sensor up to `horizon` after a cutoff, from the readings before it alone.

    cutoff: the time at which forecasts are made, a number for all samples or the name of a column of the samples table;
    the last reading of each sample where not given. Readings after it are never seen. The other arguments are those of
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
        """(samples,) the time after which nothing is seen, in the table's unit."""
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

    def _check_arguments(self) -> None:
        if not isinstance(self.horizon, (int, float)) or not 0 < self.horizon < np.inf:
            raise ConfigError(
                f"horizon={self.horizon!r}: how far to forecast is a positive number in the table's unit."
            )
        if isinstance(self.cutoff, (int, float)) and not np.isfinite(self.cutoff):
            raise ConfigError(f"cutoff={self.cutoff!r}: a finite time, the name of a column, or None.")

    def _horizon(self) -> float | None:
        return float(self.horizon)

    def _gaps(self, table: EventTable) -> Gaps:
        fixed = None if self.cutoff is None or isinstance(self.cutoff, str) else float(self.cutoff)
        return Gaps.learn(table, self.interval_, horizon=float(self.horizon), cutoff=fixed, seed=int(self.seed))

    def _visible(self, table: EventTable) -> EventTable:
        limit = np.repeat(self.cutoffs(table), table.count)
        seen = np.asarray(table.time[table.rows()]) <= limit
        return table if seen.all() else table.where(seen)

    def _checked(self, queries: QueryTable) -> QueryTable:
        cutoff = self.cutoffs(queries.table)[queries.sample]
        factor = SECONDS[self.time_unit_] / SECONDS[queries.table.time_unit]
        horizon = float(self.horizon) * factor
        queries.require(
            queries.time > cutoff,
            "lie at or before the cutoff",
            "A forecaster predicts what comes after; ask an Imputer.",
        )
        queries.require(
            queries.time <= cutoff + horizon * (1 + 1e-9),
            f"lie more than the horizon of {horizon:g} {queries.table.time_unit} after the cutoff",
            "Ask for earlier times, or train with a longer horizon.",
        )
        return queries

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        content, arrays = super()._state()
        return content | {"horizon": float(self.horizon), "cutoff": self.cutoff}, arrays

    @classmethod
    def _restored(cls, about: Mapping[str, Any], **options: Any) -> Self:
        state = about["state"]
        return cls(about["model"], horizon=state["horizon"], cutoff=state["cutoff"], **options)


def _without(table: EventTable, queries: QueryTable) -> EventTable:
    """The table without the readings at the queries."""
    rows = table.rows()
    owner = np.repeat(np.arange(len(table)), table.count)
    columns = [
        np.concatenate([own, asked])
        for own, asked in (
            (owner, queries.sample),
            (np.asarray(table.sensor[rows], dtype=np.int64), queries.sensor),
            (np.asarray(table.time[rows]), queries.time),
        )
    ]
    order = np.lexsort(columns[::-1])
    same = np.logical_and.reduce([column[order][1:] == column[order][:-1] for column in columns])
    twin = np.zeros(len(order), dtype=bool)
    twin[order[1:][same]] = twin[order[:-1][same]] = True
    return table.where(~twin[: len(rows)])


REGISTRY: dict[str, type[ReadingsEstimator]] = {"imputer": Imputer, "forecaster": Forecaster}
"""By the name under which they are saved."""
