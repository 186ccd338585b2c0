"""The commands `explain` and `report`, which write an HTML report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.markup import escape

from raindrop.cli.samples import (
    console,
    drop_unlabelled,
    find_run_parts,
    labelled_samples,
    load_run,
    select_run_part,
)
from raindrop.cli.table_options import DEFAULT, TableOptions, Words, read_table
from raindrop.cli.train import with_label_of
from raindrop.errors import ConfigError
from raindrop.files import read_json

if TYPE_CHECKING:  # torch and polars load only when a command needs them
    from raindrop.estimators import SampleEstimator
    from raindrop.table.event_table import EventTable

Folders = Annotated[tuple[Path, ...], Parameter(consume_multiple=True)]


def explain(
    run: Path,
    data: Path,
    *,
    out: Path,
    part: Literal["auto", "all", "train", "val", "test"] = "auto",
    label: Words = (),
    samples: int = 200,
    trees: bool = True,
    seeds: Folders = (),
    unknown_sensors: Literal["error", "ignore"] = "error",
    seed: int = 0,
    require_signature: Path | None = None,
    options: TableOptions = DEFAULT,
) -> None:
    """Write an HTML report: metrics of a trained model on a table, its sensor graphs, and explanations by sample.

    Args:
        run: folder that `raindrop train` wrote.
        data: folder with the table.
        out: the page, report.html; must not exist yet.
        part: which samples; auto takes the test samples of the run's own split if the table has them, else all.
        label: column of the samples table with the true labels, if its name differs from training.
        samples: number of samples that can be selected on the page.
        trees: whether to train trees on the run's training samples as a baseline.
        seeds: runs of the same model with other seeds, to check whether their graphs agree.
        unknown_sensors: what to do with readings of sensors not seen in training: error or ignore.
        seed: random seed of the choice of samples, of hidden sensors and of all other draws.
        require_signature: file with a key; the run must have been signed with it (`raindrop sign`).
    """
    from raindrop.report import check_report_path, report_on, write_report

    check_report_path(out)
    instead = f"raindrop report {run} {data} --out {out}"
    estimator, *other_seeds = (
        load_run(each, "samples", otherwise=instead if each == run else "", key=require_signature).set_params(
            unknown_sensors=unknown_sensors
        )
        for each in (run, *seeds)
    )
    table = with_label_of(estimator, read_table(data, options), label)
    chosen = select_run_part(table, run, part, estimator)
    chosen = drop_unlabelled({"test": chosen}, list(estimator.task_.labels))["test"]
    notes = {"Samples": _which_samples(estimator, part, len(table) - len(chosen)), **_conversion_notes(data)}
    with console.status("training trees as a baseline ..."):
        baselines = _trees(run, table, estimator) if trees else {}
    with console.status("explaining every sample ..."):
        content = report_on(
            estimator,
            chosen,
            baselines=baselines,
            other_seeds=other_seeds,
            notes=notes,
            samples=samples,
            seed=seed,
            title=f"{', '.join(estimator.task_.labels)}: {run.resolve().name} on {data.resolve().name}",
        )
    write_report(content, out)
    for view in content.graph_views:
        if view.empty:
            console.print(f"{view.name}: {escape(view.empty)}")
    console.print(f"wrote the report to {escape(str(out))}; open it in any browser")


def report(
    run: Path,
    data: Path | None = None,
    *,
    out: Path | None = None,
    part: Literal["auto", "all", "train", "val", "test"] = "auto",
    cases: int = 24,
    seeds: Folders = (),
    unknown_sensors: Literal["error", "ignore"] = "error",
    seed: int = 0,
    require_signature: Path | None = None,
    options: TableOptions = DEFAULT,
) -> None:
    """Write an HTML report of a run: its model card, settings and training history.

    For an imputer or a forecaster, with data: also errors on hidden readings, and gaps with the values they were filled
    with. For other runs, `raindrop explain` takes data.

    Args:
        run: folder that `raindrop train`, `impute train` or `forecast train` wrote.
        data: folder with the table, for an imputer or a forecaster.
        out: the page; by default report.html in the run's folder. Must not exist yet.
        part: which samples; auto takes the test samples of the run's own split if the table has them, else all.
        cases: number of gaps or forecasts that can be selected on the page.
        seeds: runs of the same imputer or forecaster with other seeds; edges of the sensor graph that do not recur in
            each of them are not shown.
        unknown_sensors: what to do with readings of sensors not seen in training: error or ignore.
        seed: random seed of what is hidden and of the choice of cases.
        require_signature: file with a key; the run must have been signed with it (`raindrop sign`).
    """
    from raindrop.estimators import load
    from raindrop.estimators.readings import ReadingsEstimator
    from raindrop.report import check_report_path, report_on_readings, report_on_run, write_report

    path = run / "report.html" if out is None else out
    estimator = load(run, key=require_signature).set_params(unknown_sensors=unknown_sensors)
    check_report_path(path)
    name = run.resolve().name
    if seeds and (data is None or not isinstance(estimator, ReadingsEstimator)):
        raise ConfigError("--seeds compares the sensor graphs of imputers or forecasters on data; leave it out here.")
    if isinstance(estimator, ReadingsEstimator):
        if data is None:
            write_report(report_on_readings(estimator, title=name), path)
            more = f"for errors and gaps: raindrop report {run} DATA --out {path.name}"
        else:
            table = read_table(data, options)
            chosen = select_run_part(table, run, part, estimator)
            notes = {"Samples": _which_samples(estimator, part, len(table) - len(chosen)), **_conversion_notes(data)}
            with console.status("hiding readings and filling gaps ..."):
                content = report_on_readings(
                    estimator,
                    chosen,
                    other_seeds=_other_seeds(seeds, estimator, require_signature),
                    notes=notes,
                    cases=cases,
                    seed=seed,
                    title=f"{name} on {data.resolve().name}",
                )
            write_report(content, path)
            more = "open it in any browser"
    else:
        if data is not None:
            raise ConfigError(
                f"{run}: the run holds a model for {estimator.task_.name}; its report on data is written by "
                f"'raindrop explain {run} {data} --out report.html'."
            )
        labels = ", ".join(estimator.task_.labels)
        write_report(report_on_run(estimator, title=f"{labels}: {name}"), path)
        more = f"for metrics, graphs and samples: raindrop explain {run} DATA --out {path.name}"
    console.print(f"wrote the report to {escape(str(path))}")
    console.print(escape(more))


def _other_seeds(runs: tuple[Path, ...], estimator: Any, key: Path | None) -> list[Any]:
    """The models of other runs; raises if one is of another kind."""
    kind: Literal["imputer", "forecaster"] = "forecaster" if type(estimator).__name__ == "Forecaster" else "imputer"
    return [load_run(each, kind, key=key).set_params(unknown_sensors=estimator.unknown_sensors) for each in runs]


def _which_samples(estimator: Any, part: str, left_out: int) -> str:
    if part == "all" or estimator.split_checksum_ is None:
        return "all of the table, which may include samples that the model was trained on"
    unseen = "those of the table that were not used for training or validation"
    return f"{unseen if part == 'auto' else f'the part {part!r} of the run'}; {left_out:,} others were left out"


def _conversion_notes(data: Path) -> dict[str, str]:
    """What a converter left out or changed, if conversion.json beside the table lists it."""
    try:
        changes = read_json(data / "conversion.json")["changes"]
        lines = [f"{row['count']:,} {row['unit']}: {row['reason']}" for row in changes]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {"Left out or changed by the converter": "; ".join(lines)} if lines else {}


def _trees(run: Path, table: EventTable, estimator: SampleEstimator) -> dict[str, SampleEstimator]:
    """Trees for the same task, trained on the run's training samples, if the table has them.

    Empty if the model itself is trees. Their settings are the defaults.
    """
    found = None if estimator.model == "trees" else find_run_parts(table, run, estimator)
    if found is None:
        return {}
    labelled = labelled_samples(table, estimator.task_.labels)
    parts = {name: table[found.is_in(name) & labelled] for name in ("train", "val")}
    if not len(parts["train"]):
        return {}
    defaults = ("model", "preset", "config", "calibrate", "class_weight")
    same = {name: value for name, value in estimator.get_params().items() if name not in defaults}
    validation = parts["val"] if len(parts["val"]) else None
    return {"Trees": type(estimator)("trees", **same).fit(parts["train"], validation=validation)}
