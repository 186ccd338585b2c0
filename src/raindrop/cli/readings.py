"""The commands `raindrop impute` and `raindrop forecast`: train on a table, and apply to one.

`raindrop evaluate` also takes their runs; hidden_readings.py has that part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App, Parameter
from rich.markup import escape

from raindrop.cli.samples import console, load_run, number_or_text, print_next, select_run_part, split_table
from raindrop.cli.table_options import DEFAULT, ReadOptions, TableOptions, Words, read_table
from raindrop.errors import ConfigError

if TYPE_CHECKING:  # torch and polars load only when a command needs them
    from polars import DataFrame

    from raindrop.estimators.readings import ReadingsEstimator
    from raindrop.table.event_table import EventTable
    from raindrop.table.readings import Readings

Part = Literal["all", "train", "val", "test"]

impute = App(name="impute", help="Fill gaps: train an imputer on a table, or apply a trained one.")
forecast = App(name="forecast", help="Forecast readings: train a forecaster on a table, or apply a trained one.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Training:
    """Options for training shared by imputers and forecasters."""

    model: str = "raindrop"
    """raindrop, grud, mtand, ipnet, brits, grin, trees, or a simple baseline: linear, last, mean, nearest."""
    preset: str = "tuned"
    """tuned, our best settings."""
    statics: Words = ()
    """columns of the samples table to use as static attributes."""
    group: str | None = None
    """column of the samples table whose values a split keeps together."""
    split: str = "auto"
    """auto (random if there are at least ten samples, else none), random (80 % training, 10 % validation, 10 % test),
    none (train on all), or FILE:1 for split 1 of a file."""
    seed: int = 0
    """random seed of the split, the weights, the batches and the hidden readings."""
    config: Path | None = None
    """TOML file with the groups [model] and [train]."""
    set: Words = ()
    """single settings, such as train.epochs=5 model.messages=false."""
    device: str = "cpu"
    """cpu, cuda, mps, or auto for the best available."""
    threads: int | None = None
    """number of CPU threads; one unless OMP_NUM_THREADS is set."""
    resume: bool = False
    """continue the run in OUT where it stopped; starts a new run if there is none."""
    tensorboard: bool = False
    """also write TensorBoard logs to OUT/tensorboard."""


TRAINING = Training()


@impute.command(name="train")
def train_imputer(data: Path, *, out: Path, training: Training = TRAINING, options: TableOptions = DEFAULT) -> None:
    """Train an imputer on a table and save it. Labels are not needed.

    Args:
        data: folder with events.parquet or .csv, or one such file; many short samples or a few long ones.
        out: folder for the run: checkpoint, log and the model.
    """
    from raindrop.estimators import Imputer

    _train(Imputer(training.model, **_arguments(training)), data, out, training, options)


@forecast.command(name="train")
def train_forecaster(
    data: Path,
    *,
    out: Path,
    horizon: float,
    cutoff: str | None = None,
    training: Training = TRAINING,
    options: ReadOptions = DEFAULT,
) -> None:
    """Train a forecaster on a table and save it. Labels are not needed.

    Args:
        data: folder with events.parquet or .csv, or one such file; many short samples or a few long ones.
        out: folder for the run: checkpoint, log and the model.
        horizon: how far after the cutoff readings are forecast, in the table's time unit.
        cutoff: when forecasts are made: a time, a date such as 2024-01-31, or a column of the samples
            table; by default the last reading of each sample. Training also draws other cutoffs.
    """
    from raindrop.estimators import Forecaster

    arguments = {"horizon": horizon, "cutoff": number_or_text(cutoff), **_arguments(training)}
    _train(Forecaster(training.model, **arguments), data, out, training, options)


@impute.command(name="apply")
def apply_imputer(
    run: Path,
    data: Path,
    *,
    out: Path | None = None,
    readings: Path | None = None,
    every: str | None = None,
    queries: Path | None = None,
    coverage: float | None = None,
    calibrate: bool = False,
    part: Part = "all",
    unknown_sensors: Literal["error", "ignore"] = "error",
    require_signature: Path | None = None,
    options: TableOptions = DEFAULT,
) -> None:
    """Fill the gaps of a table: each sensor at its typical interval, wherever it was silent for longer.

    Args:
        run: folder that `raindrop impute train` wrote.
        data: folder with the table.
        out: folder for the filled table; its events have a column `filled`. Must not exist yet.
        readings: .parquet or .csv file for the filled readings alone, with their intervals.
        every: fill all sensors at regular times instead, this far apart: a number, or 30m, 1h or 1d for dates.
        queries: fill at the rows of a .parquet or .csv file instead (sample, time, sensor, or the names
            that --sample, --time and --sensor give).
        coverage: how often the intervals contain the true reading; default 0.9.
        calibrate: calibrate the intervals on this table's own readings, some of which are hidden and predicted:
            for another site or season than that of training.
        part: all samples, or train, val or test of the run's own split.
        unknown_sensors: what to do with readings of sensors not seen in training: error or ignore.
        require_signature: file with a key; the run must have been signed with it (`raindrop sign`).
    """
    from raindrop.files import refuse_to_overwrite
    from raindrop.table.growing_table import write_filled

    if out is None and readings is None:
        raise ConfigError("Give --out FOLDER for the filled table, --readings FILE for the filled readings, or both.")
    for option, given in (("--coverage", coverage is not None), ("--calibrate", calibrate)):
        if given and readings is None:
            raise ConfigError(
                f"{option} is about the intervals, which only --readings FILE has. Leave it out, or add it."
            )
    if out is not None:
        refuse_to_overwrite(out)
    _check(readings, every, queries, coverage, may_exist=out is not None)
    imputer = load_run(run, "imputer", key=require_signature).set_params(unknown_sensors=unknown_sensors, progress=True)
    table = select_run_part(read_table(data, options), run, part, imputer)
    if calibrate:
        imputer.calibrate(table)
    if every is None and queries is None:
        parts = imputer.gap_blocks(table, **_coverage(coverage))
    else:
        parts = _answers(imputer, table, every, queries, coverage, options)
    in_dates = parts if queries else (part.with_dates() for part in parts)
    filled, added = write_filled(table, in_dates, folder=out, readings=readings)
    if readings is not None:
        console.print(f"wrote {filled:,} filled readings to {escape(str(readings))}")
    if out is not None:
        console.print(f"wrote the table with {added:,} filled readings to {escape(str(out))}")


@forecast.command(name="apply")
def apply_forecaster(
    run: Path,
    data: Path,
    *,
    out: Path,
    every: str | None = None,
    queries: Path | None = None,
    cutoff: str | None = None,
    coverage: float | None = None,
    part: Part = "all",
    unknown_sensors: Literal["error", "ignore"] = "error",
    require_signature: Path | None = None,
    options: ReadOptions = DEFAULT,
) -> None:
    """Forecast the readings of a table after the cutoff, with intervals.

    Args:
        run: folder that `raindrop forecast train` wrote.
        data: folder with the table.
        out: .parquet or .csv file for the forecasts.
        every: forecast all sensors at regular times from the cutoff to the horizon, this far apart: a
            number, or 30m, 1h or 1d for dates.
        queries: forecast the rows of a .parquet or .csv file (sample, time, sensor, or the names that
            --sample, --time and --sensor give).
        cutoff: when forecasts are made, if not as in training: a time, a date such as 2024-01-31, or a
            column of the samples table.
        coverage: how often the intervals contain the true reading; default 0.9.
        part: all samples, or train, val or test of the run's own split.
        unknown_sensors: what to do with readings of sensors not seen in training: error or ignore.
        require_signature: file with a key; the run must have been signed with it (`raindrop sign`).
    """
    from raindrop.table.readings import write_readings

    _check(out, every, queries, coverage)
    if every is None and queries is None:
        raise ConfigError("Which readings? Give --every 1.0 for regular times, or --queries FILE for your own.")
    forecaster = load_run(run, "forecaster", key=require_signature).set_params(
        unknown_sensors=unknown_sensors, progress=True
    )
    if cutoff is not None:
        forecaster.set_params(cutoff=number_or_text(cutoff))
        forecaster.resolved()  # raises if the cutoff is invalid
    table = select_run_part(read_table(data, options), run, part, forecaster)
    parts = _answers(forecaster, table, every, queries, coverage, options)
    number = write_readings(parts if queries else (part.with_dates() for part in parts), out)
    console.print(f"wrote {number:,} forecasts to {escape(str(out))}")


def _arguments(training: Training) -> dict[str, Any]:
    """The arguments of an estimator."""
    from raindrop import config as configs

    return {
        "preset": training.preset,
        "config": {
            **(configs.read_toml(training.config) if training.config else {}),
            **configs.parse_assignments(training.set),
        },
        "seed": training.seed,
        "unknown_sensors": "ignore",  # all parts come from one table: a rare sensor may be missing in training
        "device": training.device,
        "threads": training.threads,
        "progress": True,
    }


def _train(estimator: ReadingsEstimator, data: Path, out: Path, training: Training, options: ReadOptions) -> None:
    import os

    from raindrop.estimators.readings import MIN_SAMPLES
    from raindrop.files import refuse_to_overwrite

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("Imputers and forecasters are trained by one process; start this one without torchrun.")
    estimator.resolved()  # raises on invalid settings before the table is read
    table = read_table(data, options, statics=training.statics, group=training.group)
    if not training.resume:
        refuse_to_overwrite(out)
    split = training.split
    if split == "auto":
        split = "random" if len(table) >= MIN_SAMPLES else "none"
    if split == "none":
        console.print("training on the whole table; there is no test part")
    parts = split_table(table, split, training.seed, stratify=False)
    estimator.fit(
        parts["train"],
        validation=parts.get("val"),
        run=out,
        resume=True,
        tensorboard=training.tensorboard,
        parts=parts if len(parts) > 1 else None,  # without a test part, every table is new to the run
    )
    best = [epoch["validation"]["mae"] for epoch in estimator.history_ if "mae" in epoch.get("validation", {})]
    if best:
        console.print(f"validation: MAE {min(best):.3f} standard deviations, readings hidden as in training")
    console.print(f"wrote the model to {escape(str(out))}")
    print_next(f"evaluate {quote(str(out))} {quote(str(data))}", options)


def _check(
    path: Path | None, every: str | None, queries: Path | None, coverage: float | None, *, may_exist: bool = False
) -> None:
    """Raise on invalid options before anything is read.

    may_exist: the file is the first of two outputs, so a killed command may have left it behind.
    """
    from raindrop.files import refuse_to_overwrite
    from raindrop.table.readings import require_suffix
    from raindrop.tasks.conformal import require_coverage

    if path is not None:
        require_suffix(path)
        if not may_exist:
            refuse_to_overwrite(path)
    if every is not None and queries is not None:
        raise ConfigError("--every and --queries both say which readings to predict; give one of them.")
    if coverage is not None:
        require_coverage(coverage)


def _answers(
    estimator: ReadingsEstimator,
    table: EventTable,
    every: str | None,
    queries: Path | None,
    coverage: float | None,
    options: ReadOptions,
) -> Iterable[Readings]:
    """The readings for `--every`, block by block for a large table, or for `--queries`, in the order of the file."""
    from raindrop.errors import DataError

    if every is not None:
        return estimator.grid_blocks(table, number_or_text(every), **_coverage(coverage))
    if queries is None or queries.suffix not in (".parquet", ".csv") or not queries.is_file():
        raise DataError(f"{queries}: queries are a .parquet or .csv file with the columns sample, time and sensor.")
    return [estimator.readings_at(table, _read_queries(queries, options), **_coverage(coverage))]


def _read_queries(path: Path, options: ReadOptions) -> DataFrame:
    """The queries in a file, with the standard names of columns or those that the options give."""
    from raindrop.table.frame_files import read_frame

    given = {role: getattr(options, role) for role in ("sample", "time", "sensor")}
    frame = read_frame(path, ids=("sample", given["sample"] or "sample")).frame
    named = {name: role for role, name in given.items() if name in frame.columns and role not in frame.columns}
    return frame.rename(named)


def _coverage(given: float | None) -> dict[str, float]:
    return {} if given is None else {"coverage": given}
