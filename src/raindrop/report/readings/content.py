"""The content of a report on an imputer or a forecaster, as plain values, before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.errors import ConfigError, DataError, check_seed
from raindrop.estimators.forecaster import Forecaster
from raindrop.estimators.hidden_readings import (
    Scenario,
    hide_future,
    hide_in_gaps,
    horizon_of,
    intervals_of,
    typical_block,
    with_cutoffs,
    with_known_sensors,
)
from raindrop.estimators.imputer import Imputer
from raindrop.estimators.inputs import kind_of_dates
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.estimators.sender_graphs import MAX_HIDDEN
from raindrop.estimators.simple_baselines import baseline_names, simple_baseline
from raindrop.report.card import Card
from raindrop.report.graph_frames import effects_picture, with_places
from raindrop.report.graph_picture import Frame, Picture
from raindrop.report.readings.card import readings_card
from raindrop.report.readings.cases import GapCase, gap_cases
from raindrop.report.readings.gaps import CONTEXT, LONG, Window, choose, hidden_periods, silent_periods
from raindrop.report.readings.scores import BASELINES, ScenarioScore, compare_models, limited, score
from raindrop.table.event_table import EventTable
from raindrop.table.queries import spans
from raindrop.table.query_times import time_text
from raindrop.table.time_columns import TimeUnit

HIDDEN_SHARE = 0.1  # of single readings, and of sensors
HORIZON_SHARES = (0.25, 0.5, 1.0)
FEW_SAMPLES = 10  # with fewer, a forecaster is evaluated at several times of each
CUTOFFS = 20  # over all samples, if there are few
OWN_READINGS_ONLY = ("mean", "last", "linear")  # models that use only the sensor's own readings
MAX_GRAPH_SENSORS = 200
MAX_PREDICTED, MIN_PREDICTED = 100_000, 1000  # for the graph: hidden readings times sensors; hidden readings


@dataclass(frozen=True)
class ReadingsReport:
    """The content of the page. A run alone has a card and a training history; the rest needs data."""

    title: str
    forecasts: bool
    """Whether it is about a forecaster."""
    model: str
    card: Card
    history: list[dict[str, Any]]
    epoch_metric: str | None
    """The validation metric that chose the epoch, if there was a choice."""
    sensors: tuple[str, ...]
    time_unit: TimeUnit
    scale: tuple[NDArray[Any], NDArray[Any]]
    """(sensors,) mean and standard deviation in training."""
    num_samples: int = 0
    num_readings: int = 0
    scores: list[ScenarioScore] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be measured, and why."""
    cases: list[GapCase] = field(default_factory=list)
    passes_messages: bool = True
    dates: str | None = None
    """"UTC" or "local" if times are shown as dates, in UTC or without a time zone; None if they are numbers."""
    graph: Picture | None = None
    """Which sensors the model needs to predict which; None without data."""


def report_on_readings(
    estimator: ReadingsEstimator,
    table: EventTable | None = None,
    *,
    other_seeds: Sequence[ReadingsEstimator] = (),
    notes: Mapping[str, str] | None = None,
    cases: int = 24,
    seed: int = 0,
    title: str = "",
) -> ReadingsReport:
    """Errors of an imputer or a forecaster on hidden readings, and gaps with their filled values.

    Without a table, the report has only the model card and the training history. other_seeds: the same model trained
    with other seeds; an edge of the sensor graph that does not recur in all of them is not shown. notes: additional
    lines for the model card; cases: the number of parts of samples that can be selected on the page.
    """
    if cases < 1:
        raise ConfigError(f"cases={cases}: a report shows at least one.")
    check_seed(seed)
    estimator._require_fitted()
    kind = "Forecaster" if isinstance(estimator, Forecaster) else "Imputer"
    validated = any("validation" in row for row in estimator.history_)
    base = ReadingsReport(
        title=title or f"{kind} '{estimator.model}'",
        forecasts=isinstance(estimator, Forecaster),
        model=estimator.model,
        card=readings_card(estimator),
        history=list(estimator.history_),
        epoch_metric=estimator.task_.require_metric(estimator.resolved()["train"]["metric"]) if validated else None,
        sensors=estimator.scaler_.sensors,
        time_unit=estimator.time_unit_,
        scale=(estimator.scaler_.mean, estimator.scaler_.scale),
    )
    if table is None:
        return base
    if estimator.data_["fingerprint"] == table.fingerprint:
        base = replace(base, notes=["The model was trained on this table; its errors on new readings may be larger."])
    table = with_known_sensors(estimator, table.measured())
    if not table.num_readings:
        raise DataError("The table has no readings, so there is nothing to report on.")
    missing = tuple(name for name in base.sensors if name not in set(table.sensors))
    table = replace(table, sensors=table.sensors + missing)
    base = replace(
        base,
        card=readings_card(estimator, table, notes),
        time_unit=table.time_unit,
        num_samples=len(table),
        num_readings=table.num_readings,
        passes_messages=_passes_messages(estimator),
        dates=_kind_of_known_dates(table),
    )
    base = replace(base, graph=_graph([estimator, *other_seeds], table, seed))
    if isinstance(estimator, Forecaster):
        return _on_forecasts(base, estimator, table, cases, seed)
    return _on_gaps(base, cast(Imputer, estimator), table, cases, seed)


def _graph(models: Sequence[Any], table: EventTable, seed: int) -> Picture:
    """Which sensors the model needs to predict which; if that cannot be measured, the picture says why."""
    sensors = models[0].scaler_.sensors
    why = ""
    if models[0].model in OWN_READINGS_ONLY:
        why = f"There are no edges between sensors: the model '{models[0].model}' predicts each sensor from itself."
    elif len(sensors) > MAX_GRAPH_SENSORS:
        why = (
            f"There is no graph of {len(sensors):,} sensors here, because each has to be left out once. "
            "'raindrop graph DATA --run RUN --out FOLDER' takes the time for it."
        )
    if why:
        return Picture(sensors, [Frame("", [], why)])
    number = int(np.clip(MAX_PREDICTED / len(sensors), MIN_PREDICTED, MAX_HIDDEN))
    try:
        effects = [each.sender_effects(table, seed=seed + at, max_hidden=number) for at, each in enumerate(models)]
    except DataError as error:
        return Picture(
            sensors, [Frame("", [], f"There are no edges between sensors: nothing could be hidden. {error}")]
        )
    graph = effects[0].graph(other_seeds=effects[1:])
    return with_places(effects_picture(effects[0], graph, unit=table.time_unit), table=table)


def _on_gaps(base: ReadingsReport, imputer: Imputer, table: EventTable, num_cases: int, seed: int) -> ReadingsReport:
    """Hide single readings, blocks and whole sensors; cases are gaps of the table, and of the latter two."""
    models = _with_baselines(imputer)
    interval = intervals_of(imputer, table)
    typical = float(np.median(interval))
    codes = imputer.scaler_.sensor_codes(table, ignore_unknown=True)
    found = silent_periods(table, codes, np.where(imputer.scaler_.observed, interval, np.inf), seed)
    notes, scores = list(base.notes), []
    each = -(-num_cases // 3)
    chosen = choose(table, found, typical, each, ("long gap", "random gap"), seed)
    cases = gap_cases(imputer, table, chosen)
    if not cases:
        notes.append(
            "The table has no gaps: no sensor was silent for much longer than its typical interval. "
            "All cases below have hidden readings."
        )
    hiding: list[tuple[dict[str, Any], bool]] = [
        ({"readings": (HIDDEN_SHARE,)}, False),
        ({"blocks": (typical_block(imputer, table),)}, True),
        ({"sensors": (HIDDEN_SHARE,)}, True),
    ]
    for options, has_cases in hiding:
        try:
            scenario = next(hide_in_gaps(imputer, table, **options, seed=seed))
        except DataError as error:
            notes.append(f"Hiding {next(iter(options))} was not possible. {error}")
            continue
        comparisons = compare_models(models, limited(scenario, len(base.sensors), typical, seed))
        scores.append(score(scenario.title, len(scenario.truth), comparisons))
        if has_cases:
            periods = hidden_periods(comparisons[next(iter(models))], typical)
            chosen = choose(scenario.visible, periods, typical, each, ("large error", "random gap"), seed)
            kind = f"Hidden: {scenario.title}"
            cases += gap_cases(imputer, scenario.visible, chosen, kind=kind, truth=scenario.truth)
    return replace(base, scores=scores, notes=notes, cases=cases)


def _on_forecasts(
    base: ReadingsReport, forecaster: Forecaster, table: EventTable, num_cases: int, seed: int
) -> ReadingsReport:
    """Hide everything after the cutoff; errors up to several horizons."""
    longest = horizon_of(forecaster, table)
    notes = list(base.notes)
    if forecaster.cutoff is None and len(table) < FEW_SAMPLES:
        table, number = at_several_cutoffs(table, longest)
        if number > 1:
            notes.append(
                f"There are few samples, so forecasts were made at several times of each, {number:,} in all. Each is "
                "listed as a sample that ends one horizon after its cutoff."
            )
    chosen, cutoff = with_cutoffs(forecaster, table)
    if len(chosen) < len(table):
        left_out = len(table) - len(chosen)
        notes.append(f"{left_out:,} samples without a reading up to the cutoff were left out.")
    try:
        scenario = next(hide_future(forecaster, chosen, cutoff))
    except DataError as error:
        return replace(base, notes=[*notes, f"There is nothing to compare forecasts with. {error}"])
    models = _with_baselines(forecaster)
    typical = float(np.median(intervals_of(forecaster, table)))
    comparisons = compare_models(models, limited(scenario, len(base.sensors), typical, seed))
    own = comparisons[next(iter(models))]
    ahead = own.queries.time - cutoff[own.queries.sample]
    all_ahead = _ahead(scenario, cutoff)
    scores = []
    for share in HORIZON_SHARES:
        horizon = float(f"{share * longest:.3g}") if share < 1 else longest
        within = ahead <= horizon * (1 + 1e-9)
        if within.any():
            hidden = int((all_ahead <= horizon * (1 + 1e-9)).sum())
            title = f"up to {horizon:g} {table.time_unit} ahead"
            scores.append(score(title, hidden, {name: each[within] for name, each in comparisons.items()}, horizon))
    periods = hidden_periods(own, typical)
    windows: list[Window] = []
    for window in choose(scenario.visible, periods, typical, num_cases, ("large error", "random sample"), seed):
        at = cutoff[window.sample]
        start = max(window.start, at - min(max(2 * longest, CONTEXT * typical), LONG * typical))
        windows.append(replace(window, start=min(start, at), stop=at + longest))
    windows = list({window.sample: window for window in reversed(windows)}.values())[::-1]
    fixed, visible = _with_cutoff_column(forecaster, scenario.visible, cutoff)
    cases = gap_cases(fixed, visible, windows, kind="Forecast", truth=scenario.truth, ahead=(cutoff, cutoff + longest))
    return replace(base, scores=scores, notes=notes, cases=cases)


def at_several_cutoffs(table: EventTable, horizon: float) -> tuple[EventTable, int]:
    """Each long sample as several that end at different times in its second half; and the number of samples.

    No two of them end within the same horizon.
    """
    first, last = spans(table)
    start, count, names, rows = [], [], [], []
    for at, name in enumerate(table.ids):
        room = (last[at] - first[at]) / 2
        number = int(np.clip(room / horizon, 1, -(-CUTOFFS // len(table))))
        time = np.asarray(table.time[table.start[at] : table.start[at] + table.count[at]])
        for end in last[at] - room * np.arange(number)[::-1] / number:
            start.append(int(table.start[at]))
            count.append(int(np.searchsorted(time, end, "right")))
            names.append(name if number == 1 else f"{name} to {_end_text(table, at, float(end))}")
            rows.append(at)
    samples = table.samples[rows].with_columns(pl.Series("sample", names))
    several = replace(table, start=np.array(start), count=np.array(count), samples=samples)
    return (several, len(names)) if len(set(names)) == len(names) else (table, len(table))


def _end_text(table: EventTable, sample: int, end: float) -> str:
    """A time of a sample for its name: a date to the second, or a number."""
    zero = table.time_zero
    if zero is None or zero[sample] is None:
        return f"{end:.5g} {table.time_unit}"
    return time_text(end, table, sample)[: len("2024-01-31 08:15:00")]


def _with_baselines(estimator: ReadingsEstimator) -> dict[str, ReadingsEstimator]:
    """The estimator and simple baselines, by display name."""
    own = "Raindrop" if estimator.model == "raindrop" else BASELINES.get(estimator.model, estimator.model)
    others = {BASELINES[name]: simple_baseline(estimator, name) for name in baseline_names(estimator)}
    return {own: estimator, **others}


def _kind_of_known_dates(table: EventTable) -> str | None:
    """ "UTC" or "local" if the dates of all readings are known."""
    zero = table.time_zero
    known = zero is not None and not (zero.is_null().to_numpy() & (table.count > 0)).any()
    return kind_of_dates(table) if known else None


def _passes_messages(estimator: ReadingsEstimator) -> bool:
    return getattr(estimator.model_, "messages", None) is not None


def _ahead(scenario: Scenario, cutoff: NDArray[np.float64]) -> NDArray[np.float64]:
    """(hidden readings,) time after the cutoff."""
    position = {name: at for at, name in enumerate(scenario.visible.ids)}
    sample = scenario.truth["sample"].cast(pl.String).replace_strict(position, return_dtype=pl.Int64).to_numpy()
    return np.asarray(scenario.truth["time"].to_numpy() - cutoff[sample])


def _with_cutoff_column(
    forecaster: Forecaster, table: EventTable, cutoff: NDArray[np.float64]
) -> tuple[Forecaster, EventTable]:
    """The forecaster and the table with this cutoff for each sample."""
    name = "cutoff"
    while name in table.samples.columns:
        name += " of the report"
    fixed = copy(forecaster).set_params(cutoff=name)
    return fixed, replace(table, samples=table.samples.with_columns(pl.Series(name, cutoff)))
