"""Imputer: fill the gaps of a table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from raindrop.batch.gap_windows import GapWindows, HeldOutWindows
from raindrop.batch.gaps import Gaps
from raindrop.batch.windows import Windows
from raindrop.errors import ConfigError, DataError
from raindrop.estimators.class_graphs import class_graphs
from raindrop.estimators.inputs import check_dates, require_table
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.estimators.sender_graphs import MAX_HIDDEN, Progress, SenderEffects, sender_effects
from raindrop.graphs.class_differences import ClassGraphs
from raindrop.graphs.graph import SensorGraphs
from raindrop.hardware import limit_threads, resolve_device
from raindrop.models.baselines.simple_imputation import correlations
from raindrop.table.blocks import BLOCK as BLOCK_READINGS
from raindrop.table.blocks import blocks_of, evenly_spread, is_large
from raindrop.table.event_table import EventTable
from raindrop.table.growing_table import write_filled
from raindrop.table.hide import hold_out_blocks
from raindrop.table.queries import QueryTable, at_times, in_gaps, spans
from raindrop.table.query_times import is_list_of_times
from raindrop.table.readings import Readings
from raindrop.table.time_columns import SECONDS
from raindrop.training.scoring import scores_of

BLOCK = 12.0  # length of a hidden block, in typical intervals
MIN_HIDDEN = 100  # readings to calibrate intervals on
MAX_CORRELATED = 300  # sensors; of more, correlations are not learned
CORRELATED_WINDOWS = 1024  # maximum number of training windows that correlations are learned from
MAX_TURNS = 5  # maximum rounds of hiding blocks of a small table in `sender_effects`


class Imputer(ReadingsEstimator):
    """Fill gaps: the value of any sensor at any time within a sample, from all readings around it.

    model: "raindrop", or a baseline: a network ("grud", "mtand", "ipnet", "brits", "grin"), "trees", or a simple rule
    ("linear", "last", "mean", "nearest"). The other arguments are those of `Classifier`. No labels are needed. A table
    may hold thousands of short samples or one long series.
    """

    correlation_: NDArray[Any] | None

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

    def fill(self, X: EventTable, at: Any = "gaps", *, out: str | os.PathLike[str] | None = None) -> EventTable:
        """The table with predicted readings added, marked in `filled`; measured readings are unchanged.

        at: "gaps" (each sensor at its typical interval, wherever it was silent for longer), a time or date or several
        (used where they lie within a sample), or a frame of queries (sample, time, sensor). `readings_at` also returns
        intervals.
        out: folder to write the result to, block by block if the table is large; the result is then opened from there.
        """
        if out is None:
            return self.fill_readings(X, at).fill()
        parts = self.gap_blocks(X) if isinstance(at, str) and at == "gaps" else [self.fill_readings(X, at)]
        write_filled(X, parts, folder=out)
        return EventTable.read(out)

    def fill_readings(self, X: EventTable, at: Any = "gaps", *, coverage: float = 0.9) -> Readings:
        """The readings that `fill` adds, with intervals."""
        table = self._with_all_sensors(X)
        if isinstance(at, str) and at == "gaps":
            queries = in_gaps(table, self._intervals_of(table))
        elif is_list_of_times(at):
            queries = at_times(table, at, self.scaler_.observed_sensors)
        elif isinstance(at, str):
            raise ConfigError(f"at='{at}': must be 'gaps', times or dates, or a frame of queries.")
        else:
            queries = QueryTable.from_frame(table, at)
        return self._answer(queries, coverage)

    def gap_blocks(self, X: EventTable, *, coverage: float = 0.9) -> Iterator[Readings]:
        """The same as `fill_readings` for gaps, one block of samples at a time if the table is large."""
        table = self._with_all_sensors(X)
        interval, (first, last) = self._intervals_of(table), spans(table)
        with np.errstate(over="ignore"):
            expected = (last - first) * (1 / interval).sum()
        for block in blocks_of(table, expected):
            yield self._answer(in_gaps(block.in_memory(), interval), coverage)

    def calibrate(self, X: EventTable, *, seed: int = 0) -> Self:
        """Calibrate the intervals anew, on the measured readings of a table; predicted values do not change.

        For a table that is harder or easier to fill than the training table, such as another site or season. Some of
        its readings are hidden, in outages like its own and singly, and at most 50,000 of them are predicted; intervals
        are widened or narrowed until they contain as many as requested. The model should not have been trained on this
        table: its errors there are smaller than elsewhere.
        """
        self._require_fitted()
        table = self._on_training_sensors(require_table(X, "calibrate").measured())
        check_dates(table, self.data_.get("dated"))
        source = HeldOutWindows(
            table,
            self.scaler_,
            Windows.cut(table, self._window_interval).with_readings(table),
            replace(Gaps.learn(table, self.interval_, seed=seed), only_outages=True),
            seed=seed,
            **self._visibility,
        )
        hidden = cast(NDArray[Any], source.truth)
        if len(hidden) < MIN_HIDDEN:
            raise DataError(
                f"Only {len(hidden):,} of the table's {table.num_readings:,} readings could be hidden to calibrate "
                f"intervals on them; at least {MIN_HIDDEN:,} are needed. Give a table with more readings."
            )
        with limit_threads(self.threads):
            scores = scores_of(self.model_, source, resolve_device(self.device), show=self.progress)
        self._calibrate(hidden, self.task_.predict(scores), source)
        return self

    def _training_source(self, table: EventTable) -> GapWindows:
        """Also learns the correlations that the baseline "nearest" needs, when this model is evaluated."""
        source, number = super()._training_source(table), len(self.scaler_.sensors)
        self.correlation_ = correlations(source, number, CORRELATED_WINDOWS) if number <= MAX_CORRELATED else None
        return source

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        content, arrays = super()._state()
        known = {} if self.correlation_ is None else {"correlation": self.correlation_.astype(np.float32)}
        return content, arrays | known

    def _restore_state(self, content: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore_state(content, arrays)
        self.correlation_ = arrays.get("correlation")
        number = len(self.scaler_.sensors)
        if self.correlation_ is not None and self.correlation_.shape != (number, number):
            raise ValueError("the correlations are not those of its sensors")

    def _on_training_sensors(self, table: EventTable) -> EventTable:
        """The table in the time unit and with the sensors of training; a large one is represented by some samples."""
        if is_large(table.time):
            table = table[evenly_spread(table.count, BLOCK_READINGS)].in_memory()
        codes = self.scaler_.sensor_codes(table, ignore_unknown=self.unknown_sensors == "ignore")
        known = codes[table.sensor[table.rows()]] >= 0
        table = (table if known.all() else table.where(known)).in_unit(self.time_unit_)
        return replace(table, sensors=self.scaler_.sensors, sensor=codes[table.sensor].astype(table.sensor.dtype))

    def _intervals_of(self, table: EventTable) -> NDArray[np.float64]:
        """(sensors of the table,) typical intervals in its time unit; infinite for a sensor that is not filled."""
        factor = SECONDS[self.time_unit_] / SECONDS[table.time_unit]
        of_training = dict(zip(self.scaler_.sensors, self.interval_ * factor, strict=True))
        observed = set(self.scaler_.observed_sensors)
        return np.array([of_training[name] if name in observed else np.inf for name in table.sensors])

    def graphs(self, X: EventTable, *, share: float = 0.1, seed: int = 0) -> SensorGraphs:
        """For each sample, or each window of a long one: how much worse v is filled without the readings of u.

        A `share` of the readings is hidden in blocks of twelve typical intervals and filled. `sender_effects` does this
        for the whole table, with intervals, p-values and a test of faithfulness.
        """
        return self.sender_effects(X, share=share, seed=seed).graphs()

    def sender_effects(
        self,
        X: EventTable,
        *,
        share: float = 0.1,
        seed: int = 0,
        max_hidden: int = MAX_HIDDEN,
        progress: Progress | None = None,
    ) -> SenderEffects:
        """Errors at readings hidden in blocks, with all sensors and without each of them.

        At most `max_hidden` readings are predicted. In a small table, other readings are hidden in up to five rounds,
        so that weaker effects can be detected. progress: called with the number of sensors done and the total.
        """
        self._require_fitted()
        table = require_table(X, "sender_effects")
        interval = self._window_interval * SECONDS[self.time_unit_] / SECONDS[table.time_unit]
        table, length = table.measured(), BLOCK * interval
        hidden = [hold_out_blocks(table, length, share=share, seed=seed)]
        turns = min(MAX_TURNS, max(1, max_hidden // max(len(hidden[0][1]), 1)))
        more = np.random.SeedSequence([seed]).generate_state(turns)[1:].tolist()
        hidden += [hold_out_blocks(table, length, share=share, seed=each) for each in more]
        effects = []
        for turn, (visible, truth) in enumerate(hidden):
            part = None if progress is None else _one_turn(progress, turn, turns)
            effects.append(
                sender_effects(self, visible, truth, seed, windows_of=table, max_hidden=max_hidden, progress=part)
            )
        return effects[0].joined(effects[1:])

    def class_graphs(
        self,
        X: EventTable,
        *,
        other_seeds: Sequence[Imputer] = (),
        share: float = 0.1,
        q: float = 0.05,
        permutations: int | None = None,
        seed: int = 0,
    ) -> ClassGraphs:
        """The graph of each class of a labelled table, and how they differ: edges with a q-value of at most `q`.

        Labels were never seen in training; they are permuted over samples, or over whole groups where the table has
        them. other_seeds: imputers trained with other seeds; an edge that does not recur in each of them is left out.
        """
        models = (self, *other_seeds)
        return class_graphs(models, X, q=q, permutations=permutations, seed=seed, share=share)

    def _checked(self, queries: QueryTable) -> QueryTable:
        first, last = spans(queries.table)
        start, stop = first[queries.sample], last[queries.sample]
        slack = 1e-9 * np.maximum(np.abs(start), np.abs(stop))
        queries.require(
            queries.table.count[queries.sample] > 0,
            "ask about a sample without readings",
            "An imputer fills in between readings; leave these rows out.",
        )
        queries.require(
            queries.time >= start - slack,
            "lie before the first reading of their sample",
            "An imputer fills in from the first reading to the last; ask for later times.",
        )
        queries.require(
            queries.time <= stop + slack,
            "lie after the last reading of their sample",
            "An imputer fills in between; ask a Forecaster for what comes after.",
        )
        return queries


def _one_turn(progress: Progress, turn: int, turns: int) -> Progress:
    """Report the progress of one round as part of all rounds."""
    return lambda done, number: progress(turn * number + done, turns * number)
