"""The command `raindrop importances`: how much each sensor contributes to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rich.markup import escape
from rich.table import Table

from raindrop.cli.samples import console, drop_unlabelled, load_run, select_run_part
from raindrop.cli.table_options import DEFAULT, TableOptions, Words, read_table
from raindrop.cli.train import with_label_of

SHOWN = 20


def importances(
    run: Path,
    data: Path,
    *,
    out: Path | None = None,
    method: Literal["permutation", "occlusion"] = "permutation",
    metric: str | None = None,
    repeats: int = 5,
    part: Literal["auto", "all", "train", "val", "test"] = "auto",
    label: Words = (),
    unknown_sensors: Literal["error", "ignore"] = "error",
    seed: int = 0,
    require_signature: Path | None = None,
    options: TableOptions = DEFAULT,
) -> None:
    """How much worse a model predicts without each sensor, over all samples, with 95 % intervals.

    Args:
        run: folder that `raindrop train` wrote.
        data: folder with the labelled table.
        out: all rows as .csv or .parquet; must not exist yet.
        method: permutation gives each sample the sensor's readings of another one; occlusion removes them.
        metric: metric of the task; by default its first, such as auroc.
        repeats: how often each sensor is permuted.
        part: which samples; auto takes the test samples of the run's own split if the table has them, else all.
        label: column of the samples table with the true labels, if its name differs from training.
        unknown_sensors: what to do with readings of sensors not seen in training: error or ignore.
        seed: random seed of the permutations and the bootstrap.
        require_signature: file with a key; the run must have been signed with it (`raindrop sign`).
    """
    from raindrop.files import refuse_to_overwrite
    from raindrop.graphs.export import write_frame, writer_for

    if out is not None:
        writer_for(out, {".csv": write_frame, ".parquet": write_frame})
        refuse_to_overwrite(out)
    estimator = load_run(run, "samples", key=require_signature).set_params(unknown_sensors=unknown_sensors)
    table = with_label_of(estimator, read_table(data, options), label)
    chosen = select_run_part(table, run, part, estimator)
    chosen = drop_unlabelled({"test": chosen}, list(estimator.task_.labels))["test"]
    with console.status("leaving out every sensor ..."):
        frame = estimator.importances(chosen, method=method, metric=metric, repeats=repeats, seed=seed)
    name = frame["metric"][0] if len(frame) else ""
    rows = Table("sensor or static", f"worse by ({name})", "95 % interval", f"{name} without")
    for row in frame.head(SHOWN).iter_rows(named=True):
        between = f"{row['low']:.4f} to {row['high']:.4f}"
        rows.add_row(escape(row["name"]), f"{row['importance']:.4f}", between, f"{row['without']:.4f}")
    console.print(rows)
    if len(frame) > SHOWN:
        console.print(f"and {len(frame) - SHOWN:,} more" + ("" if out else "; --out FILE writes all of them"))
    console.print(f"on {len(chosen):,} samples; sensors with the same information hide each other's importance")
    if out is not None:
        write_frame(frame, out)
        console.print(f"wrote {len(frame):,} rows to {escape(str(out))}")
