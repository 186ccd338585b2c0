"""The command `raindrop tune`: search for better settings of a model."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal

from rich.markup import escape

from raindrop.cli.samples import console, drop_unlabelled, print_next, split_table
from raindrop.cli.table_options import DEFAULT, TableOptions, Words, read_table, roles_as_text
from raindrop.errors import ConfigError

if TYPE_CHECKING:  # torch loads only when the command runs
    from raindrop.search import SearchResult, TrialRecord


def tune(
    data: Path,
    *,
    out: Path,
    trials: int = 50,
    minutes: float | None = None,
    processes: int = 1,
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
    device: str = "cpu",
    threads: int | None = None,
    options: TableOptions = DEFAULT,
) -> None:
    """Search for better settings of a model on validation samples; needs the extra `tune` (Optuna).

    The first trial is the preset; trials that are worse than most after some epochs are stopped. Repeating the command
    continues a search that was stopped or killed; it may run several times at once. Test samples are never used. OUT
    has the best settings so far (best.toml), every trial (journal.jsonl) and a page of what mattered (search.html).

    Args:
        data: folder with events.parquet or .csv, and samples.parquet or .csv; or one such file, or a MEDS folder.
        out: folder for the search; an existing one is continued.
        trials: number of settings to try, including those of earlier runs of the command.
        minutes: stop after this many minutes; an interrupted trial is run again next time.
        processes: number of processes, each on one core.
        task: what is predicted: classification, multilabel or regression.
        model: name of the model; `raindrop models` lists them.
        preset: tuned or paper: the settings to start from.
        label: column of the samples table to predict; several for multilabel and regression.
        positive: of two classes, the one that AUROC and AUPRC refer to; by default the last in sorted order.
        class_weight: balanced gives all classes the same weight in the loss.
        loss: for regression: quantile (five quantiles, the default), absolute (the median) or squared (the mean).
        statics: columns of the samples table to use as static attributes.
        group: column of the samples table whose values a split keeps together.
        split: random (80 % training, 10 % validation, 10 % test) or FILE:1 for split 1 of a file, as `raindrop train`.
        seed: random seed of the split, the weights, the batches and the search.
        config: TOML file with the groups [model] and [train]; its settings are the same in every trial.
        set: individual settings that are the same in every trial, such as train.epochs=5 for short trials, or
            train.metric=auprc for another metric to search by.
        device: cpu, cuda, mps, or auto for the best available.
        threads: number of CPU threads per process; one unless OMP_NUM_THREADS is set.
    """
    from raindrop import config as configs
    from raindrop.estimators import make_estimator
    from raindrop.report.search_page import write_search_page
    from raindrop.search import tune as search

    if split == "none":
        raise ConfigError("A search needs validation samples, and --split none has none. Use 'random' or FILE:1.")
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
        unknown_sensors="ignore",  # all parts come from one table: a rare sensor may be missing in training
        device=device,
        threads=threads,
    )
    estimator.resolved()  # raises on invalid settings before the table is read
    table = read_table(data, options, label=label[0] if label else None, statics=statics, group=group)
    parts = split_table(table, split, seed, stratify=estimator.task_type.stratified)
    parts = drop_unlabelled({name: parts[name] for name in ("train", "val")}, list(label))
    result = search(
        estimator,
        parts["train"],
        validation=parts["val"],
        out=out,
        trials=trials,
        minutes=minutes,
        processes=processes,
        show=_print_trial,
    )
    page = write_search_page(result, out / "search.html", title=f"{model} on {data.resolve().name}")
    _print_result(result)
    console.print(f"wrote the best settings to {escape(str(out / 'best.toml'))} and a page to {escape(str(page))}")
    more = f" --task {task}" if task != "classification" else ""
    command = (
        f"train {quote(str(data))} --model {model}{more} --preset {preset} --config "
        f"{quote(str(out / 'best.toml'))} --split {quote(split)} --seed {seed} --out RUN"
        f"{roles_as_text(label, statics, group)}"
    )
    print_next(command, options)


def _print_trial(trial: TrialRecord) -> None:
    """Print one line for each finished trial."""
    value = "" if trial.value is None else f"{trial.value:.4f}"
    words = {"complete": value, "pruned": f"{value}, stopped after {trial.epochs} epochs", "failed": trial.failure}
    start = " (the settings to start from)" if trial.is_start else ""
    console.print(escape(f"trial {trial.number}{start}: {words[trial.state]} ({trial.seconds:.0f} s)"))


def _print_result(result: SearchResult) -> None:
    best = result.best
    console.print(escape(f"best: trial {best.number}, {result.metric} {best.value:.4f} on {result.judged_on}"))
    console.print(escape(result.compared_with_start()))
    if result.importance:
        first = [f"{name} {share:.0%}" for name, share in list(result.importance.items())[:5]]
        console.print(escape(f"what mattered (share of the variance): {', '.join(first)}"))
