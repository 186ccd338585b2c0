"""`raindrop evaluate` on an imputer or a forecaster: readings are hidden, predicted and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.markup import escape
from rich.table import Table

from raindrop.cli.samples import console
from raindrop.errors import ConfigError

if TYPE_CHECKING:  # torch and polars load only when a command needs them
    import polars as pl

    from raindrop.estimators import Forecaster, Imputer
    from raindrop.estimators.readings import ReadingsEstimator
    from raindrop.table.event_table import EventTable

Scenario = tuple[str, "EventTable", "pl.DataFrame"]  # what is hidden, the visible table, the hidden readings
BLOCK = 12  # typical intervals: the length of a block where none is given
METRICS = {
    "mae": "MAE",
    "rmse": "RMSE",
    "standardised_mae": "scaled MAE",
    "coverage_80": "in 80 %",
    "coverage_95": "in 95 %",
}
BASELINES: dict[str, tuple[Literal["linear", "last", "mean"], ...]] = {
    "Imputer": ("linear", "last", "mean"),
    "Forecaster": ("last", "mean"),
}
OPTIONS = {
    "Imputer": {"--hide-sensors", "--hide-readings", "--hide-blocks"},
    "Forecaster": {"--horizons", "--cutoff"},
}
OPTIONS_OF_SAMPLES = {"--hide-sensors", "--label", "--intervals"}


@dataclass(frozen=True)
class HiddenReadings:
    """What is hidden, as the options of `raindrop evaluate` say."""

    readings: tuple[float, ...]
    blocks: tuple[float, ...]
    sensors: tuple[float, ...]
    horizons: tuple[float, ...]
    cutoff: float | str | None
    seed: int


def refuse_options_of_other_runs(estimator: Any, options: Mapping[str, Any]) -> None:
    """Raise where an option is given that has no effect with what the run holds."""
    kind = type(estimator).__name__
    names = {"Imputer": "an imputer", "Forecaster": "a forecaster"}
    for name, value in options.items():
        if value not in (None, False, ()) and name not in OPTIONS.get(kind, OPTIONS_OF_SAMPLES):
            holds = names.get(kind, f"the task '{estimator.task_.name}'")
            raise ConfigError(f"{name} has no effect with {holds}; leave it out.")


def evaluate_readings(estimator: Any, table: EventTable, hidden: HiddenReadings, out: Path | None) -> None:
    """Print the errors of an estimator and of simple baselines, and write them to `out`."""
    from raindrop.estimators import Forecaster
    from raindrop.estimators.simple_baselines import simple_baseline
    from raindrop.files import write_json

    kind = type(estimator).__name__
    if estimator.data_["fingerprint"] == table.fingerprint:
        console.print("note: the model was trained on this table; its errors on new readings may be larger")
    table = _with_known_sensors(estimator, table)
    if isinstance(estimator, Forecaster):
        scenarios = _hidden_future(estimator, table, hidden)
    else:
        scenarios = _hidden_in_gaps(estimator, table, hidden)
    baselines = [(name, simple_baseline(estimator, name)) for name in BASELINES[kind] if name != estimator.model]
    results: list[dict[str, Any]] = []
    columns = Table("hidden readings", *METRICS.values())
    for title, visible, truth in scenarios:
        columns.add_row(escape(f"{title} ({len(truth):,})"))
        for name, model in [(estimator.model, estimator), *baselines]:
            metrics = model.evaluate(visible, truth)
            results.append({"hidden": title, "readings": len(truth), "model": name, **metrics})
            columns.add_row(escape(f"  {name}"), *(_format(key, metrics.get(key)) for key in METRICS))
        columns.add_section()
    console.print(columns)
    console.print(
        "scaled MAE: mean over sensors, in standard deviations of the training readings\n"
        "in 80 %, in 95 %: how many of the readings lie in their intervals of that coverage"
    )
    if out is not None:
        write_json(out, {"samples": len(table), "task": estimator.task_.name, "estimator": kind, "results": results})
        console.print(f"wrote the metrics to {escape(str(out))}")


def _with_known_sensors(estimator: ReadingsEstimator, table: EventTable) -> EventTable:
    """The table with the sensors of training alone; where others are read, an error unless they are ignored."""
    codes = estimator.scaler_.sensor_codes(table, ignore_unknown=estimator.unknown_sensors == "ignore")
    known = codes[table.sensor[table.rows()]] >= 0
    return table if known.all() else table.where(known)


def _hidden_in_gaps(imputer: Imputer, table: EventTable, hidden: HiddenReadings) -> Iterator[Scenario]:
    """Single readings, blocks and whole sensors hidden; one of each where none is given."""
    import numpy as np

    from raindrop.table.hide import hold_out_blocks, hold_out_readings, hold_out_sensors
    from raindrop.table.time_columns import SECONDS

    readings, blocks, sensors, seed = hidden.readings, hidden.blocks, hidden.sensors, hidden.seed
    if not (readings or blocks or sensors):
        typical = float(np.median(imputer.interval_)) * SECONDS[imputer.time_unit_] / SECONDS[table.time_unit]
        readings, blocks = (0.1,), (float(f"{BLOCK * typical:.3g}"),)
        sensors = (0.1,) if len(table.sensors) > 1 else ()
    for share in readings:
        yield f"{share:.0%} of all readings", *hold_out_readings(table, share, seed=seed)
    for length in blocks:
        yield f"blocks of {length:g} {table.time_unit}", *hold_out_blocks(table, length, seed=seed)
    for share in sensors:
        yield f"{share:.0%} of the sensors", *hold_out_sensors(table, share, seed=seed)


def _hidden_future(forecaster: Forecaster, table: EventTable, hidden: HiddenReadings) -> Iterator[Scenario]:
    """Everything after the cutoff hidden, and compared up to each horizon.

    Without a cutoff, each sample is cut one horizon before its last reading.
    """
    import numpy as np

    from raindrop.table.hide import hold_out_future
    from raindrop.table.queries import spans
    from raindrop.table.time_columns import SECONDS

    if hidden.cutoff is not None:
        forecaster.set_params(cutoff=hidden.cutoff).resolved()
    longest = float(forecaster.horizon) * SECONDS[forecaster.time_unit_] / SECONDS[table.time_unit]
    for horizon in hidden.horizons:
        if not 0 < horizon <= longest * (1 + 1e-9):
            raise ConfigError(f"--horizons {horizon:g}: above 0, and at most the run's own, {longest:g}.")
    first, last = spans(table)
    cutoff = last - longest if forecaster.cutoff is None else forecaster.cutoffs(table)
    known = (first <= cutoff) & (table.count > 0)
    if not known.any():
        raise ConfigError("No sample has a reading up to the cutoff. Choose a later one with --cutoff.")
    if not known.all():
        console.print(f"leaving out {int((~known).sum()):,} samples without a reading up to the cutoff")
    for horizon in hidden.horizons or (longest,):
        title = f"up to {horizon:g} {table.time_unit} ahead"
        yield title, *hold_out_future(table[np.flatnonzero(known)], cutoff[known], horizon)


def _format(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1%}" if name.startswith("coverage") else f"{value:.4g}"
