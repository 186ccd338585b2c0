"""The command line: `raindrop COMMAND --help` says what each takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from raindrop.cli.benchmark import benchmark
from raindrop.cli.data import convert, download
from raindrop.cli.report import explain, report
from raindrop.cli.samples import (
    console,
    drop_unlabelled,
    has_label,
    read_table,
    select_run_part,
    select_split_part,
    split_table,
)
from raindrop.errors import RaindropError
from raindrop.version import VERSION

if TYPE_CHECKING:  # torch and polars load only when a command needs them
    from raindrop.table.event_table import EventTable

app = App(
    name="raindrop",
    help="Learn from irregularly sampled time series: readings at uneven times, sensors that miss or fail.",
    version="",
)

Words = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]
Numbers = Annotated[tuple[float, ...], Parameter(consume_multiple=True)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a person's mistake is one message and exit code 1, never a traceback."""
    app.version = VERSION
    try:
        command, bound, _ = app.parse_args(arguments, print_error=False, exit_on_error=False)
        command(*bound.args, **bound.kwargs)
    except (RaindropError, CycloptsError) as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"[bold red]error:[/] {escape(str(error))}")
        sys.exit(1)
    except KeyboardInterrupt:
        Console(stderr=True, soft_wrap=True).print(
            "Stopped. What was saved is kept; a training run continues with --resume, a benchmark as it was started."
        )
        sys.exit(130)


@app.command
def demo(*, out: Path = Path("demo"), samples: int = 3000, seed: int = 0) -> None:
    """The whole way on made-up data with a planted sensor graph: train, compare, recover the graph, predict.

    Args:
        out: folder for the table, the run and the predictions; must not exist yet.
        samples: how many samples to make.
        seed: of everything that is random.
    """
    from raindrop.cli.demo import run_demo

    run_demo(out, samples, seed, console)


app.command(convert)
app.command(download)
app.command(benchmark)
app.command(explain)
app.command(report)


@app.command
def inspect(
    data: Path,
    *,
    label: str | None = None,
    statics: Words = (),
    group: str | None = None,
    picture: Path | None = None,
    seed: int = 0,
) -> None:
    """What is in a table: samples, sensors, readings, intervals, labels, and what the gaps alone tell about the label.

    Args:
        data: folder with events.parquet or .csv, and samples.parquet or .csv.
        label: column of the samples table to predict.
        statics: columns of the samples table to use as static attributes.
        group: column of the samples table whose values a split keeps together.
        picture: also draw it, as .png, .svg or .pdf.
        seed: of the samples that are looked at closely where there are many.
    """
    from raindrop.table.overview import overview

    table = read_table(data, label, statics, group)
    console.print(escape(repr(table)))
    about = overview(table, seed=seed)
    console.print(about)
    if picture is not None:
        console.print(f"wrote the picture to {escape(str(about.save(picture)))}")


@app.command
def train(
    data: Path,
    *,
    out: Path,
    model: str = "raindrop",
    preset: str = "tuned",
    label: str | None = None,
    statics: Words = (),
    group: str | None = None,
    split: str = "random",
    seed: int = 0,
    config: Path | None = None,
    set: Words = (),
    calibrate: Literal["none", "temperature", "isotonic"] = "none",
    resume: bool = False,
    tensorboard: bool = False,
) -> None:
    """Train a model on a table and save it.

    Args:
        data: folder with events.parquet or .csv, and samples.parquet or .csv.
        out: folder for the run: checkpoint, log and the model.
        model: which model.
        preset: tuned (the best we know) or paper (as published).
        label: column of the samples table to predict.
        statics: columns of the samples table to use as static attributes.
        group: column of the samples table whose values a split keeps together.
        split: random (80 % training, 10 % validation, 10 % test), none (train on all), or FILE:1 for split 1 of a file.
        seed: of the split, the weights and the batches.
        config: TOML file with the groups [model] and [train].
        set: single settings, such as train.epochs=5 model.prune=0.3.
        calibrate: fit probabilities to the validation samples, by a temperature or by rising curves (isotonic).
        resume: continue the run in OUT where it was stopped; the same as a new run where there is none.
        tensorboard: also write TensorBoard logs to OUT/tensorboard.
    """
    from raindrop import config as configs
    from raindrop.estimators.classifier import Classifier
    from raindrop.files import refuse_to_overwrite
    from raindrop.training import distributed

    table = read_table(data, label, statics, group)
    if not resume:
        refuse_to_overwrite(out)
    parts = drop_unlabelled(split_table(table, split, seed))
    changes = {**(configs.read_toml(config) if config else {}), **configs.parse_assignments(set)}
    clf = Classifier(
        model,
        preset=preset,
        config=changes,
        seed=seed,
        unknown_sensors="ignore",  # all parts are of one table: only a rare sensor can be missing from training
        calibrate=calibrate,
        progress=True,
    )
    distributed.join()
    try:
        clf.fit(parts["train"], validation=parts.get("val"), run=out, resume=True, tensorboard=tensorboard, parts=parts)
        console.quiet = distributed.rank() != 0
        _mixture(clf)
        _summary(clf, parts)  # by all processes: they share the work
        console.print(f"wrote the model to {escape(str(out))}")
    finally:
        distributed.leave()


@app.command
def evaluate(
    run: Path,
    data: Path,
    *,
    part: Literal["auto", "all", "train", "val", "test"] = "auto",
    split: str | None = None,
    label: str | None = None,
    hide_sensors: Numbers = (),
    seed: int = 0,
    unknown_sensors: Literal["error", "ignore"] = "error",
    out: Path | None = None,
) -> None:
    """How good a trained model is on a table, also with sensors hidden.

    Args:
        run: folder that `raindrop train` wrote.
        data: folder with the table.
        part: which samples; auto takes the test samples of the run's own split where the table has them, else all.
        split: take the part from split 1 of a file instead, as FILE:1.
        label: column of the samples table that holds the truth.
        hide_sensors: shares of sensors to hide at random in each sample, such as 0.1 0.3 0.5.
        seed: of the hidden sensors.
        unknown_sensors: readings of sensors that training never saw are an error, or ignored.
        out: JSON file for the figures.
    """
    from raindrop.batch.collate import encode_labels
    from raindrop.estimators.classifier import load
    from raindrop.files import refuse_to_overwrite, write_json
    from raindrop.table.hide import hide_random_sensors

    clf = load(run).set_params(unknown_sensors=unknown_sensors)
    if out is not None:
        refuse_to_overwrite(out)
    table = read_table(data, label or (clf.label_ if label is None and has_label(data, clf.label_) else None), (), None)
    chosen = select_run_part(table, run, part) if split is None else select_split_part(table, split, part)
    chosen = drop_unlabelled({"test": chosen})["test"]
    results = []
    for share in (0.0, *hide_sensors):
        figures = clf.evaluate(hide_random_sensors(chosen, share, seed=seed) if share else chosen)
        results.append({"hidden": share, **figures})
    shown = Table("", "all sensors", *(f"{share:.0%} hidden" for share in hide_sensors))
    for name in list(results[0])[1:]:
        shown.add_row(name, *(f"{row[name]:.4f}" for row in results))
    console.print(shown)
    _mixture(clf)
    codes = encode_labels(chosen.labels, clf.classes_)
    balance = {str(name): float((codes == at).mean()) for at, name in enumerate(clf.classes_)}
    rates = ", ".join(f"{name} {rate:.1%}" for name, rate in balance.items())
    console.print(f"{len(chosen):,} samples, label {escape(str(chosen.roles.label))} ({escape(rates)})")
    if out is not None:
        write_json(out, {"samples": len(chosen), "label": chosen.roles.label, "balance": balance, "results": results})
        console.print(f"wrote the figures to {escape(str(out))}")


@app.command
def predict(
    run: Path,
    data: Path,
    *,
    out: Path,
    unknown_sensors: Literal["error", "ignore"] = "error",
    part: Literal["all", "train", "val", "test"] = "all",
    coverage: float | None = None,
    by_class: bool = False,
) -> None:
    """Class probabilities for every sample of a table; no labels needed.

    Args:
        run: folder that `raindrop train` wrote.
        data: folder with the table.
        out: predictions.parquet or predictions.csv.
        unknown_sensors: readings of sensors that training never saw are an error, or ignored.
        part: all samples, or train, val or test of the run's own split.
        coverage: also say which classes are possible, so that the right one is among them this often, such as 0.9.
        by_class: let the coverage hold for each class by itself, however rare it is.
    """
    from raindrop.estimators.classifier import load
    from raindrop.tasks.conformal import require_share
    from raindrop.tasks.predictions import require_free

    require_free(out)
    if coverage is not None:
        require_share(coverage)
    clf = load(run).set_params(unknown_sensors=unknown_sensors, progress=True)
    chosen = select_run_part(read_table(data, None, (), None), run, part)
    predicted = clf.predict_table(chosen, coverage=coverage, by_class=by_class)
    predicted.write(out)
    if predicted.sets is not None:
        unsure = int((predicted.sets.sum(1) != 1).sum())
        console.print(f"abstains for {unsure:,} of {len(chosen):,} samples, which may be of several classes or of none")
    console.print(f"wrote {len(chosen):,} predictions to {escape(str(out))}")


def _mixture(clf: Any) -> None:
    """Of a blend: how it is mixed, and what each part was worth on the validation samples."""
    if "share_of_raindrop" not in clf.notes_:
        return
    share = clf.notes_["share_of_raindrop"]
    console.print(f"mixed of {share:.1%} raindrop and {1 - share:.1%} trees (average of {clf.notes_['average_of']})")
    for name, figures in clf.notes_.get("validation", {}).items():
        told = {key: figures[key] for key in ("auroc", "auprc", "log_loss") if figures[key] is not None}
        console.print(f"validation, {name}: " + ", ".join(f"{key} {value:.4f}" for key, value in told.items()))


def _summary(clf: Any, parts: dict[str, EventTable]) -> None:
    for name in ("val", "test"):
        if name in parts and len(parts[name]):
            figures = clf.evaluate(parts[name])
            shown = ", ".join(f"{key} {figures[key]:.3f}" for key in ("auroc", "auprc", "accuracy"))
            console.print(f"{'validation' if name == 'val' else name}: {shown}")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUTF8", "1")
    main()
