"""The command `raindrop fit`: try a few models and keep the best, without choosing one by name."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from raindrop.cli.pages import can_write_page
from raindrop.cli.samples import console, print_next
from raindrop.cli.table_options import DEFAULT, TableOptions, Words, read_table, roles_as_text
from raindrop.errors import ConfigError, suggest

if TYPE_CHECKING:  # torch loads only when the command runs
    from raindrop.estimators.auto import AutoResult


def fit(
    data: Path,
    *,
    out: Path = Path("run"),
    minutes: float = 10.0,
    label: Words = (),
    task: str | None = None,
    positive: str | None = None,
    statics: Words = (),
    group: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
    page: bool = True,
    options: TableOptions = DEFAULT,
) -> None:
    """Try a few models on a table within a time budget, and save the best: a first result in minutes.

    The label decides what is predicted: classes, several yes/no labels or quantities; without a label, gaps are filled.
    The best model so far is always saved, so Ctrl-C ends the search with a result.

    Args:
        data: folder with events.parquet or .csv, and samples.parquet or .csv; or one such file, or a MEDS folder.
        out: folder for the best model; must not exist yet.
        minutes: the time budget. The first answer, by trees, usually takes less than a minute.
        label: column of the samples table to predict; several for yes/no labels or quantities. By default the
            table's label.
        task: classification, multilabel, regression or readings, if the guess from the label is wrong.
        positive: of two classes, the one that AUROC refers to; by default the last in sorted order.
        statics: columns of the samples table to use as static attributes.
        group: column of the samples table whose values are kept together when models are compared, such as the patient.
        seed: random seed.
        device: cpu, cuda, mps, or auto for the best available.
        threads: number of CPU threads; one unless OMP_NUM_THREADS is set.
        page: whether to write an HTML report to OUT/report.html.
    """
    from raindrop.estimators.auto import auto
    from raindrop.estimators.guess import READINGS
    from raindrop.estimators.loading import ESTIMATORS
    from raindrop.files import refuse_to_overwrite

    if task is not None and task not in (known := (*ESTIMATORS, READINGS)):
        raise ConfigError(f"Unknown task '{task}': {suggest(task, known)}")
    refuse_to_overwrite(out)
    table = read_table(data, options, label=label[0] if label else None, statics=statics, group=group)
    console.print(escape(repr(table)))
    result = auto(
        table,
        label=label,
        task=task,
        minutes=minutes,
        run=out,
        positive=positive,
        seed=seed,
        device=device,
        threads=threads,
        progress=True,
    )
    _print_ranking(result)
    if page and not result.stopped:
        _write_page(result, out, data)
    _print_next(result, out, data, options, statics, group)


def _print_ranking(result: AutoResult) -> None:
    rows = Table("model", result.metric, "95 % interval", "seconds")
    for each in result.ranking:
        value = each.metric
        rows.add_row(each.name, f"{value.value:.3f}", f"{value.low:.3f} to {value.high:.3f}", f"{each.seconds:.0f}")
    console.print(rows)
    console.print(f"judged on {escape(result.judged_on)}")
    if result.skipped:
        console.print(f"skipped for lack of time: {', '.join(result.skipped)}")
    best = result.best
    assert best is not None  # otherwise there is no result
    if len(result.candidates) > 2:
        console.print(f"'{best.name}' was chosen on the same samples, so its value is slightly optimistic")
    if result.ranking[0] is not best:
        console.print("no model is better than a constant: the readings may not determine this label")


def _write_page(result: AutoResult, out: Path, data: Path) -> None:
    """Write the report to the run's folder; without the packages for it, print a sentence instead."""
    from raindrop.estimators.readings import ReadingsEstimator
    from raindrop.report import report_on, report_on_readings, write_report

    path = out / "report.html"
    if not can_write_page(path, "no page", console):
        return
    assert result.evaluated is not None  # it is set along with the model
    assert result.best is not None
    estimator, unseen = result.evaluated
    estimator.set_params(progress=False)
    notes = {"Judged on": result.judged_on, "Chosen among": ", ".join(each.name for each in result.ranking)}
    title = f"{', '.join(result.guess.labels) or 'gaps'}: {result.best.name} on {data.resolve().name}"
    with console.status("writing the page ..."):
        content: Any
        if isinstance(estimator, ReadingsEstimator):
            content = report_on_readings(estimator, unseen, notes=notes, title=title)
        else:
            if estimator is not result.model:
                notes["Samples"] = (
                    "one fold that this model was not trained on; the saved model is fitted on all samples"
                )
            content = report_on(estimator, unseen, notes=notes, title=title)
        write_report(content, path)
    console.print(f"wrote the page to {escape(str(path))}; open it in any browser")


def _print_next(
    result: AutoResult, out: Path, data: Path, options: TableOptions, statics: Words, group: str | None
) -> None:
    """The commands to go on with, with the options that this table needs."""
    assert result.best is not None
    best = result.best.name
    console.print(
        f"wrote the best model, '{best}', to {escape(str(out))}" + (" (stopped early)" if result.stopped else "")
    )
    run, table = quote(str(out)), quote(str(data))
    if result.guess.task == "readings":
        print_next(f"impute apply {run} {table} --out FILLED", options)
        return
    print_next(f"predict {run} NEW_DATA --out predictions.csv", options)
    roles = roles_as_text(result.guess.labels, statics, group)
    longer = f"raindrop train {table} --out LONGER --task {result.guess.task} --model {best}{roles}{options.as_text()}"
    console.print(escape(f"      {longer}    # without a time limit"), soft_wrap=True)
