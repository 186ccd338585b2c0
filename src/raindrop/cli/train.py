"""The commands around a model: `raindrop train`, `evaluate` and `predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from raindrop.cli.decisions import print_decisions, print_threshold, threshold_rule
from raindrop.cli.hidden_readings import HiddenReadings, evaluate_readings, refuse_options_of_other_runs
from raindrop.cli.samples import (
    console,
    drop_unlabelled,
    load_run,
    number_or_text,
    select_run_part,
    select_split_part,
    split_table,
)
from raindrop.cli.table_options import DEFAULT, ReadOptions, TableOptions, Words, read_table
from raindrop.errors import ConfigError

if TYPE_CHECKING:  # torch and polars load only when a command needs them
    from raindrop.estimators import SampleEstimator
    from raindrop.table.event_table import EventTable

Numbers = Annotated[tuple[float, ...], Parameter(consume_multiple=True)]


def train(
    data: Path,
    *,
    out: Path,
    task: str = "classification",
    model: str = "raindrop",
    preset: str = "tuned",
    label: Words = (),
    positive: str | None = None,
    class_weight: Literal["balanced"] | None = None,
    loss: Literal["quantile", "absolute", "squared"] | None = None,
    statics: Words = (),
    group: str | None = None,
    split: str = "random",
    seed: int = 0,
    config: Path | None = None,
    set: Words = (),
    calibrate: Literal["none", "temperature", "isotonic"] | None = None,
    sensitivity: float | None = None,
    cost_ratio: float | None = None,
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    start_from: Path | None = None,
    tensorboard: bool = False,
    options: TableOptions = DEFAULT,
) -> None:
    """Train a model on a table and save it.

    Args:
        data: folder with events.parquet or .csv, and samples.parquet or .csv; or one such file, or a MEDS folder.
        out: folder for the run: checkpoint, log and the model.
        task: what is predicted: one of several classes (classification), several yes/no labels (multilabel) or
            quantities (regression); an unknown name lists all tasks.
        model: raindrop, transformer, trans_mean, grud, mtand, trees, blend, seft, ipnet, dgm2, mtgnn, odernn or
            evonet; `raindrop models` says when to use which.
        preset: tuned (to predict well), paper (to compare with published results) or, for raindrop, graph (to inspect
            the sensor graph).
        label: column of the samples table to predict; several for multilabel and regression.
        positive: of two classes, the one that AUROC and AUPRC refer to; by default the last in sorted order.
        class_weight: balanced gives all classes the same weight in the loss.
        loss: for regression: quantile (five quantiles, the default), absolute (the median) or squared (the mean).
        statics: columns of the samples table to use as static attributes.
        group: column of the samples table whose values a split keeps together.
        split: random (80 % training, 10 % validation, 10 % test), none (train on all), or FILE:1 for split 1 of a file.
        seed: random seed of the split, the weights and the batches.
        config: TOML file with the groups [model] and [train].
        set: individual settings, such as train.epochs=5 model.hidden=64; `raindrop settings MODEL` lists all of them.
        calibrate: calibrate probabilities on the validation samples, by temperature or isotonic regression.
        sensitivity: predict the positive class from the probability on that finds this share of the positive validation
            samples, such as 0.9; by default the most probable class is predicted.
        cost_ratio: the same from the probability on with the lowest cost on the validation samples, where a missed
            positive costs this many times as much as a false alarm.
        device: cpu, cuda, mps, or auto for the best available.
        threads: number of CPU threads; one unless OMP_NUM_THREADS is set.
        resume: continue the run in OUT where it stopped, or, with more train.epochs, where it ended; starts a
            new run if there is none.
        start_from: folder of a run of the same model and settings, on other data, whose weights training starts from.
        tensorboard: also write TensorBoard logs to OUT/tensorboard.
    """
    from raindrop import config as configs
    from raindrop.estimators import make_estimator
    from raindrop.files import refuse_to_overwrite
    from raindrop.training import distributed

    estimator = make_estimator(
        task,
        model,
        label,
        preset=preset,
        config={**(configs.read_toml(config) if config else {}), **configs.parse_assignments(set)},
        seed=seed,
        positive=positive,
        class_weight=class_weight,
        loss=loss,
        calibrate=calibrate,
        threshold=threshold_rule(sensitivity, cost_ratio),
        unknown_sensors="ignore",  # all parts come from one table: a rare sensor may be missing in training
        device=device,
        threads=threads,
        progress=True,
    )
    estimator.resolved()  # raises on invalid settings before the table is read
    table = read_table(data, options, label=label[0] if label else None, statics=statics, group=group)
    if not resume:
        refuse_to_overwrite(out)
    parts = split_table(table, split, seed, stratify=estimator.task_type.stratified)
    parts = drop_unlabelled(parts, list(label))
    distributed.join()
    try:
        estimator.fit(
            parts["train"],
            validation=parts.get("val"),
            run=out,
            resume=True,
            tensorboard=tensorboard,
            parts=parts,
            start_from=None if start_from is None else load_run(start_from, "samples"),
        )
        console.quiet = distributed.rank() != 0
        print_positive(estimator, chosen=positive is not None)
        print_mixture(estimator)
        print_threshold(estimator)
        _print_summary(estimator, parts)  # in all processes: they share the work
        console.print(f"wrote the model to {escape(str(out))}")
    finally:
        distributed.leave()


def evaluate(
    run: Path,
    data: Path,
    *,
    part: Literal["auto", "all", "train", "val", "test"] = "auto",
    split: str | None = None,
    label: Words = (),
    hide_sensors: Numbers = (),
    hide_readings: Numbers = (),
    hide_blocks: Numbers = (),
    horizons: Numbers = (),
    cutoff: str | None = None,
    intervals: Annotated[bool, Parameter(negative=())] = False,
    seed: int = 0,
    unknown_sensors: Literal["error", "ignore"] = "error",
    out: Path | None = None,
    require_signature: Path | None = None,
    options: ReadOptions = DEFAULT,
) -> None:
    """Evaluate a trained model on a table, optionally with sensors hidden.

    For an imputer or a forecaster, readings are hidden, predicted and compared, along with simple baselines.

    Args:
        run: folder that `raindrop train`, `impute train` or `forecast train` wrote.
        data: folder with the table.
        part: which samples; auto takes the test samples of the run's own split if the table has them, else all.
        split: take the part from split 1 of a file instead, as FILE:1.
        label: column of the samples table with the true labels, if its name differs from training.
        hide_sensors: shares of sensors to hide at random in each sample, such as 0.1 0.3 0.5.
        hide_readings: for an imputer: shares of single readings to hide, such as 0.1.
        hide_blocks: for an imputer: how long each sensor is hidden at a time, in the table's time unit, such as 6 24.
        horizons: for a forecaster: compare up to this long after the cutoff, such as 6 24; default: its own.
        cutoff: samples column with the last time that may be seen; for a forecaster also a time or date, by default one
            horizon before the last reading of each sample if the run has none either.
        intervals: also show 95 % bootstrap confidence intervals.
        seed: random seed of what is hidden and of the bootstrap.
        unknown_sensors: what to do with readings of sensors not seen in training: error or ignore.
        out: JSON file for the metrics.
        require_signature: file with a key; the run must have been signed with it (`raindrop sign`).
    """
    from raindrop.estimators import Forecaster, load
    from raindrop.estimators.readings import ReadingsEstimator
    from raindrop.files import refuse_to_overwrite, write_json
    from raindrop.table.hide import hide_random_sensors

    estimator = load(run, key=require_signature).set_params(unknown_sensors=unknown_sensors)
    task = estimator.task_
    refuse_options_of_other_runs(
        estimator,
        {
            "--label": label,
            "--intervals": intervals,
            "--hide-sensors": hide_sensors,
            "--hide-readings": hide_readings,
            "--hide-blocks": hide_blocks,
            "--horizons": horizons,
            "--cutoff": cutoff,
        },
    )
    if out is not None:
        refuse_to_overwrite(out)
    predicts_readings = isinstance(estimator, ReadingsEstimator)
    if predicts_readings:
        table = read_table(data, options, cutoff=None if isinstance(estimator, Forecaster) else cutoff)
    else:
        table = with_label_of(estimator, read_table(data, options, cutoff=cutoff), label)
    chosen = select_run_part(table, run, part, estimator) if split is None else select_split_part(table, split, part)
    if predicts_readings:
        hidden = HiddenReadings(hide_readings, hide_blocks, hide_sensors, horizons, number_or_text(cutoff), seed)
        return evaluate_readings(estimator, chosen, hidden, out)
    chosen = drop_unlabelled({"test": chosen}, list(task.labels))["test"]
    truth = estimator.truth(chosen)
    results: list[dict[str, Any]] = []
    complete = estimator.predictions(chosen)
    for share in (0.0, *hide_sensors):
        visible = hide_random_sensors(chosen, share, seed=seed) if share else chosen
        predicted = estimator.predictions(visible) if share else complete
        result: dict[str, Any] = {"hidden": share, **task.evaluate(truth, predicted)}
        if intervals:
            drawn = task.bootstrap(truth, predicted, seed=seed)
            result["intervals"] = {name: [interval.low, interval.high] for name, interval in drawn.items()}
        results.append(result)
    columns = Table("", "all sensors", *(f"{share:.0%} hidden" for share in hide_sensors))
    by_class = task.parts_are_classes
    for name in (key for key in results[0] if key not in ("hidden", "intervals") and not (by_class and "/" in key)):
        columns.add_row(escape(task.title(name)), *(_with_interval(row, name) for row in results))
    console.print(columns)
    confusion = print_decisions(estimator, truth, complete, results[0])
    print_threshold(estimator)
    print_mixture(estimator)
    balance = task.describe(truth)
    console.print(f"{len(chosen):,} samples, {escape(balance)}")
    if out is not None:
        about = {"samples": len(chosen), "task": task.name, "labels": list(task.labels), "about": balance, **confusion}
        write_json(out, {**about, "results": results})
        console.print(f"wrote the metrics to {escape(str(out))}")


def predict(
    run: Path,
    data: Path,
    *,
    out: Path,
    unknown_sensors: Literal["error", "ignore"] = "error",
    part: Literal["all", "train", "val", "test"] = "all",
    coverage: float | None = None,
    by_class: bool = False,
    engine: Literal["local", "ray"] = "local",
    processes: int | None = None,
    require_signature: Path | None = None,
    options: TableOptions = DEFAULT,
) -> None:
    """Predict every sample of a table: class probabilities, labels or quantities. Needs no labels.

    Args:
        run: folder that `raindrop train` wrote.
        data: folder with the table.
        out: predictions.parquet or predictions.csv.
        unknown_sensors: what to do with readings of sensors not seen in training: error or ignore.
        part: all samples, or train, val or test of the run's own split.
        coverage: also give sets of classes, or intervals, that contain the true value this often, such as 0.9.
        by_class: make the coverage hold for each class separately, however rare it is.
        engine: local, or ray for the machines of the Ray cluster at RAY_ADDRESS (this one if it is not set).
        processes: number of processes; by default one for a small table, otherwise one per core.
        require_signature: file with a key; the run must have been signed with it (`raindrop sign`).
    """
    from raindrop.scale.parts import is_small
    from raindrop.scale.scorer import Options
    from raindrop.scale.scoring import check_engine, score_table
    from raindrop.tasks.conformal import require_coverage
    from raindrop.tasks.predictions import require_writable

    require_writable(out)
    check_engine(engine)
    if coverage is not None:
        require_coverage(coverage)
    estimator = load_run(run, "samples", key=require_signature).set_params(
        unknown_sensors=unknown_sensors, progress=True
    )
    if by_class and not estimator.task_type.coverage_by_class:
        raise ConfigError(f"--by-class has no effect with the task '{estimator.task_type.name}'; leave it out.")
    chosen = select_run_part(read_table(data, options), run, part, estimator)
    if engine == "local" and processes is None and is_small(chosen):
        by = {"by_class": True} if by_class else {}
        predicted = estimator.predict_table(chosen, coverage=coverage, **by)
        predicted.write(out)
        unsure = None if predicted.unsure is None else int(predicted.unsure.sum())
    else:
        unsure = score_table(
            run,
            estimator,
            chosen,
            data if part == "all" and not options.given() else None,
            out=out,
            engine=engine,
            processes=processes,
            options=Options(unknown_sensors=unknown_sensors, coverage=coverage, by_class=by_class),
            key=require_signature,
            progress=True,
        ).unsure
    print_threshold(estimator)
    if unsure is not None:
        console.print(
            f"abstains for {unsure:,} of {len(chosen):,} samples, for which several answers or none are possible"
        )
    console.print(f"wrote {len(chosen):,} predictions to {escape(str(out))}")


def with_label_of(estimator: SampleEstimator, table: EventTable, label: tuple[str, ...] = ()) -> EventTable:
    """The table with the columns that the estimator predicts, or the given ones, as its label."""
    labels = estimator.task_.labels
    if label:
        if len(label) != len(labels):
            raise ConfigError(f"--label: the model predicts {len(labels)} columns ({', '.join(labels)}); name as many.")
        columns = [table.samples[name].alias(known) for name, known in zip(label, labels, strict=True)
                   if _require(table, name)]  # fmt: skip
        from dataclasses import replace

        table = replace(table, samples=table.samples.with_columns(columns))
    return table.with_roles(label=labels[0]) if labels[0] in table.samples.columns else table


def _require(table: EventTable, name: str) -> bool:
    from raindrop.table.frames import require_columns

    require_columns(table.samples, {"label": name}, "samples")
    return True


def print_positive(estimator: SampleEstimator, *, chosen: bool) -> None:
    """Print which of two classes the metrics refer to."""
    positive = getattr(estimator, "positive_", None)
    if positive is not None:
        names = ", ".join(f"'{name}'" for name in sorted(map(str, estimator.classes_)))
        how = "" if chosen else f" (the last of {names}; choose with --positive)"
        console.print(f"positive class: '{escape(str(positive))}'{escape(how)}")


def print_mixture(estimator: SampleEstimator) -> None:
    """For a blend: print how it is mixed, and the validation metrics of each part."""
    notes = estimator.notes_
    if "share_of_raindrop" not in notes:
        return
    share = notes["share_of_raindrop"]
    console.print(f"mixed of {share:.1%} raindrop and {1 - share:.1%} trees (average of {notes['average_of']})")
    missing, weight = ([f"{knot[name]:.0%}" for knot in notes["weights"]] for name in ("missing", "raindrop"))
    console.print(f"raindrop counts {', '.join(weight)} where {', '.join(missing)} of the usual sensors are missing")
    for name, metrics in notes.get("validation", {}).items():
        known = {key: value for key, value in list(metrics.items())[:2] if value is not None}
        console.print(f"validation, {name}: " + ", ".join(f"{key} {value:.4f}" for key, value in known.items()))


def _print_summary(estimator: SampleEstimator, parts: dict[str, EventTable]) -> None:
    for name in ("val", "test"):
        if name in parts and len(parts[name]):
            metrics = list(estimator.evaluate(parts[name]).items())[:3]
            values = ", ".join(f"{estimator.task_.title(key)} {value:.3f}" for key, value in metrics)
            console.print(f"{'validation' if name == 'val' else name}: {escape(values)}")


def _with_interval(row: dict[str, Any], name: str) -> str:
    interval = row.get("intervals", {}).get(name)
    return f"{row[name]:.4f}" + (f" ({interval[0]:.4f} to {interval[1]:.4f})" if interval else "")
