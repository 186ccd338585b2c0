"""`raindrop evaluate` on an imputer or a forecaster: readings are hidden, predicted and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from raindrop.cli.samples import console
from raindrop.errors import ConfigError

if TYPE_CHECKING:  # torch and polars load only when a command needs them
    from raindrop.estimators import Forecaster
    from raindrop.estimators.hidden_readings import Scenario
    from raindrop.table.event_table import EventTable

METRICS = {
    "mae": "MAE",
    "rmse": "RMSE",
    "standardised_mae": "scaled MAE",
    "coverage_80": "in 80 %",
    "coverage_95": "in 95 %",
}
OPTIONS = {
    "Imputer": {"--hide-sensors", "--hide-readings", "--hide-blocks", "--cutoff"},
    "Forecaster": {"--horizons", "--cutoff"},
}
OPTIONS_OF_SAMPLES = {"--hide-sensors", "--label", "--intervals", "--cutoff"}


@dataclass(frozen=True)
class HiddenReadings:
    """What to hide, from the options of `raindrop evaluate`."""

    readings: tuple[float, ...]
    blocks: tuple[float, ...]
    sensors: tuple[float, ...]
    horizons: tuple[float, ...]
    cutoff: float | str | None
    seed: int


def refuse_options_of_other_runs(estimator: Any, options: Mapping[str, Any]) -> None:
    """Raise if an option is given that has no effect for this kind of run."""
    kind = type(estimator).__name__
    names = {"Imputer": "an imputer", "Forecaster": "a forecaster"}
    for name, value in options.items():
        if value not in (None, False, ()) and name not in OPTIONS.get(kind, OPTIONS_OF_SAMPLES):
            holds = names.get(kind, f"the task '{estimator.task_.name}'")
            raise ConfigError(f"{name} has no effect with {holds}; leave it out.")


def evaluate_readings(estimator: Any, table: EventTable, hidden: HiddenReadings, out: Path | None) -> None:
    """Print the errors of an estimator and of simple baselines, and write them to `out`."""
    from raindrop.estimators import Forecaster
    from raindrop.estimators.hidden_readings import hide_in_gaps, with_known_sensors
    from raindrop.estimators.simple_baselines import baseline_names, simple_baseline
    from raindrop.files import write_json

    kind = type(estimator).__name__
    if estimator.data_["fingerprint"] == table.fingerprint:
        console.print("note: the model was trained on this table; its errors on new readings may be larger")
    table = with_known_sensors(estimator, table)
    if isinstance(estimator, Forecaster):
        scenarios = _hidden_future(estimator, table, hidden)
    else:
        scenarios = hide_in_gaps(
            estimator,
            table,
            readings=hidden.readings,
            blocks=hidden.blocks,
            sensors=hidden.sensors,
            seed=hidden.seed,
        )
    baselines = [(name, simple_baseline(estimator, name)) for name in baseline_names(estimator)]
    results: list[dict[str, Any]] = []
    columns = Table("hidden readings", *METRICS.values())
    for scenario in scenarios:
        title, truth = scenario.title, scenario.truth
        columns.add_row(escape(f"{title} ({len(truth):,})"))
        for name, model in [(estimator.model, estimator), *baselines]:
            metrics = model.evaluate(scenario.visible, truth)
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


def _hidden_future(forecaster: Forecaster, table: EventTable, hidden: HiddenReadings) -> Iterator[Scenario]:
    """Hide everything after the cutoff, and compare up to each horizon."""
    from raindrop.estimators.hidden_readings import hide_future, horizon_of, with_cutoffs

    if hidden.cutoff is not None:
        forecaster.set_params(cutoff=hidden.cutoff).resolved()
    longest = horizon_of(forecaster, table)
    for horizon in hidden.horizons:
        if not 0 < horizon <= longest * (1 + 1e-9):
            raise ConfigError(f"--horizons {horizon:g}: above 0, and at most the run's own, {longest:g}.")
    chosen, cutoff = with_cutoffs(forecaster, table)
    if len(chosen) < len(table):
        console.print(f"leaving out {len(table) - len(chosen):,} samples without a reading up to the cutoff")
    yield from hide_future(forecaster, chosen, cutoff, hidden.horizons)


def _format(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1%}" if name.startswith("coverage") else f"{value:.4g}"
