"""The commands that write a report for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.markup import escape

from raindrop.cli.samples import console, drop_unlabelled, has_label, read_table, select_run_part

if TYPE_CHECKING:  # torch and polars load only when a command needs them
    from raindrop.estimators.classifier import Classifier
    from raindrop.table.event_table import EventTable

Folders = Annotated[tuple[Path, ...], Parameter(consume_multiple=True)]


def explain(
    run: Path,
    data: Path,
    *,
    out: Path,
    part: Literal["auto", "all", "train", "val", "test"] = "auto",
    label: str | None = None,
    samples: int = 200,
    trees: bool = True,
    seeds: Folders = (),
    unknown_sensors: Literal["error", "ignore"] = "error",
    seed: int = 0,
) -> None:
    """One HTML file: how good a trained model is on a table, its sensor graphs, and sample by sample why.

    Args:
        run: folder that `raindrop train` wrote.
        data: folder with the table.
        out: the page, report.html; must not exist yet.
        part: which samples; auto takes the test samples of the run's own split where the table has them, else all.
        label: column of the samples table that holds the truth.
        samples: how many samples can be picked on the page.
        trees: whether to train trees on the run's training samples, to compare with.
        seeds: runs of the same model with other seeds, to see whether the graphs come out the same.
        unknown_sensors: readings of sensors that training never saw are an error, or ignored.
        seed: of the samples that are picked, of hidden sensors and of every draw.
    """
    from raindrop.estimators.classifier import load
    from raindrop.report import report_on, require_page, write_report

    require_page(out)
    clf = load(run).set_params(unknown_sensors=unknown_sensors)
    others = [load(other).set_params(unknown_sensors=unknown_sensors) for other in seeds]
    table = read_table(data, label or (clf.label_ if label is None and has_label(data, clf.label_) else None), (), None)
    chosen = drop_unlabelled({"test": select_run_part(table, run, part)})["test"]
    notes = {"Which samples": _which(run, part, len(table) - len(chosen)), **_left_out(data)}
    with console.status("training trees to compare with ..."):
        rivals = _trees(run, table, clf) if trees else {}
    with console.status("looking at every sample ..."):
        content = report_on(
            clf,
            chosen,
            rivals=rivals,
            others=others,
            notes=notes,
            samples=samples,
            seed=seed,
            title=f"{clf.label_ or 'label'}: {run.resolve().name} on {data.resolve().name}",
        )
    write_report(content, out)
    console.print(f"wrote the report to {escape(str(out))}; open it in any browser")


def report(run: Path, *, out: Path | None = None) -> None:
    """One HTML file of what a run knows of itself, without data: its model card, settings and training.

    Args:
        run: folder that `raindrop train` wrote.
        out: the page; report.html in the run's folder where not given. Must not exist yet.
    """
    from raindrop.estimators.classifier import load
    from raindrop.report import report_on_run, require_page, write_report

    path = run / "report.html" if out is None else out
    clf = load(run)
    require_page(path)
    write_report(report_on_run(clf, title=f"{clf.label_ or 'label'}: {run.resolve().name}"), path)
    console.print(f"wrote the report to {escape(str(path))}")
    console.print(
        f"for scores, graphs and samples: raindrop explain {escape(str(run))} DATA --out {escape(str(path.name))}"
    )


def _which(run: Path, part: str, others: int) -> str:
    if part == "all" or not (run / "split.parquet").exists():
        return "all of the table, which may include samples that the model was trained on"
    named = {"auto": "those of the table that the run was neither trained nor validated on"}
    return f"{named.get(part, f'the part {part!r} of the run')}; {others:,} others were left out"


def _left_out(data: Path) -> dict[str, str]:
    """What a converter left out or changed, where it left its account beside the table."""
    try:
        changes = json.loads((data / "conversion.json").read_text(encoding="utf-8"))["changes"]
        told = [f"{row['count']:,} {row['unit']}: {row['reason']}" for row in changes]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {"Left out or changed by the converter": "; ".join(told)} if told else {}


def _trees(run: Path, table: EventTable, clf: Classifier) -> dict[str, Classifier]:
    """Trees on the run's own training samples, where the table has them and the model is not trees itself."""
    from raindrop.estimators.classifier import Classifier

    if clf.model == "trees" or not (run / "split.parquet").exists():
        return {}
    parts = {name: _part(run, table, name) for name in ("train", "val")}
    if parts["train"] is None:
        return {}
    return {"Trees": Classifier("trees", seed=clf.seed).fit(parts["train"], validation=parts["val"])}


def _part(run: Path, table: EventTable, name: str) -> EventTable | None:
    import polars as pl

    listed = pl.read_parquet(run / "split.parquet").filter(pl.col("part") == name)["sample"]
    chosen = table[table.samples["sample"].is_in(listed.implode()).to_numpy() & table.labelled]
    return chosen if len(chosen) else None
