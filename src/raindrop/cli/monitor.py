"""The command `raindrop monitor`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rich.markup import escape

from raindrop.cli.samples import console, drop_unlabelled, select_run_part
from raindrop.cli.table_options import DEFAULT, TableOptions, read_table


def monitor(
    run: Path,
    data: Path,
    *,
    out: Path | None = None,
    labelled: bool = False,
    by: str | None = None,
    reference_data: Path | None = None,
    part: Literal["auto", "all", "train", "val", "test"] = "auto",
    alpha: float = 0.05,
    options: TableOptions = DEFAULT,
) -> None:
    """Report how new data differ from training: dead sensors, other units, rates, values, scores, calibration.

    Args:
        run: folder that `raindrop train`, `impute train` or `forecast train` wrote.
        data: folder with the table of new samples.
        out: page with figures (.html), or all tests (.json); must not exist yet.
        labelled: the table has true labels, so compare calibration too.
        by: column of the samples table, such as the site; each of its values is compared separately.
        reference_data: table to compare with, for a run that was saved without reference statistics.
        part: samples that the run was not trained on, all of them, or a part of the run's own split.
        alpha: probability of any alarm if nothing has changed.
    """
    from dataclasses import asdict

    from raindrop.errors import ConfigError
    from raindrop.estimators import load
    from raindrop.files import refuse_to_overwrite, write_json
    from raindrop.monitor import monitor_table, reference_from
    from raindrop.report.drift_page import check_drift_path, write_drift_page

    if not 0 < alpha < 1:
        raise ConfigError(f"--alpha {alpha:g}: must lie above 0 and below 1.")
    if out is not None:
        refuse_to_overwrite(out) if out.suffix == ".json" else check_drift_path(out)
    model = load(run)
    reference = None if reference_data is None else reference_from(model, read_table(reference_data, options))
    table = select_run_part(read_table(data, options), run, part, model)
    if labelled:
        table = drop_unlabelled({"new": table}, list(model.task_.labels))["new"]
    found = monitor_table(model, table, reference=reference, labelled=labelled, by=by, alpha=alpha)
    for sentence in found.sentences():
        console.print(f"[bold]alarm[/] {escape(sentence)}")
    if found.new_sensors:
        console.print(f"sensors that the model does not know: {escape(', '.join(found.new_sensors))}")
    console.print(f"{found.pieces:,} samples, {len(found.tests):,} tests, {len(found.alarms):,} alarms")
    if out is not None and out.suffix == ".json":
        write_json(out, asdict(found) | {"sentences": found.sentences()})
    elif out is not None:
        write_drift_page(found, out, title=f"{run.resolve().name}: what changed since training")
    if out is not None:
        console.print(f"wrote {escape(str(out))}")
