"""The part of the demo about gaps: hide stretches of a series, fill them with and without messages, show the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from raindrop.cli.pages import can_write_page
from raindrop.estimators.imputer import Imputer
from raindrop.estimators.simple_baselines import simple_baseline
from raindrop.report import write_report
from raindrop.report.readings.content import report_on_readings
from raindrop.table.event_table import EventTable
from raindrop.table.hide import hold_out_blocks

BLOCK = 10.0  # hours
TRAINING: dict[str, Any] = {"train.epochs": 1, "train.min_steps": 300, "train.batch_readings": 10_000}


def show_gaps(folder: Path, out: Path, table: EventTable, seed: int, console: Console) -> None:
    """Compare ways to fill hidden stretches, and write the imputer, the filled series and a page.

    They are written to `folder`, which is renamed to `out` later.
    """
    visible, truth = hold_out_blocks(table, BLOCK, share=0.1, seed=seed)
    console.print(f"\nHid {len(truth):,} of its readings, each sensor for {BLOCK:g} hours at a time. Filling them ...")
    with console.status("Training with messages, then without ..."):
        imputer = Imputer("raindrop", seed=seed, config=TRAINING).fit(visible, run=folder / "imputer")
        alone = Imputer("raindrop", seed=seed, config=TRAINING | {"model.messages": False}).fit(visible)
    rows = Table("error of the hidden readings, in standard deviations", "mean absolute", "root mean square")
    for name, each in (
        ("straight lines", simple_baseline(imputer, "linear")),
        ("Raindrop without messages: each sensor from its own readings", alone),
        ("Raindrop", imputer),
    ):
        metrics = each.evaluate(visible, truth)
        rows.add_row(name, *(f"{metrics[f'standardised_{kind}']:.3f}" for kind in ("mae", "rmse")))
    console.print(rows)
    imputer.fill(visible).write(folder / "filled")
    console.print(f"Wrote the imputer to {out / 'imputer'} and the filled series to {out / 'filled'}.")
    path = folder / "gaps.html"
    if not can_write_page(path, "No page of gaps", console):
        return
    write_report(report_on_readings(imputer, table, seed=seed, title="Demo: gaps, and what filled them"), path)
    console.print(f"Wrote the page of gaps to {out / path.name}; open it in any browser.")
