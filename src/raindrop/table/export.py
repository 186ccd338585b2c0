"""A table as files for other programs: long or wide CSV, Parquet, MEDS."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import polars as pl

from raindrop.errors import DataError, check_choice
from raindrop.files import atomic_file, refuse_to_overwrite
from raindrop.table.event_table import EventTable
from raindrop.table.export_meds import write_meds
from raindrop.table.growing_files import growing_rows

Format = Literal["csv", "wide", "parquet", "meds"]


def export(table: EventTable, out: Path, format: Format) -> list[Path]:
    """Write the table, block by block if it is large; returns the paths that were written."""
    check_choice(format, Format, "format")
    refuse_existing(out, format)
    if format == "meds":
        return [write_meds(table, out)]
    samples_path = _samples_path(out, format)
    has_samples = table.samples.width > 1
    # Both are complete before either gets its final name, `out` last: without `out`, the command can be repeated.
    with atomic_file(out) as readings, ExitStack() as stack:
        if has_samples:
            samples = stack.enter_context(atomic_file(samples_path, overwrite=False))
            _write_samples(table.samples, samples, samples_path)
        with growing_rows(readings, out) as append:
            for block in table.blocks():
                append(wide_frame(block) if format == "wide" else block.events())
    return [out, samples_path] if has_samples else [out]


def refuse_existing(out: Path, format: Format) -> None:
    """Raise if `out` exists, or its name does not fit the format."""
    suffixes = {"csv": ".csv", "wide": ".csv", "parquet": ".parquet"}
    if format in suffixes and out.suffix != suffixes[format]:
        raise DataError(f"{out}: a file of the format '{format}' must end in {suffixes[format]}.")
    refuse_to_overwrite(out)


def wide_frame(table: EventTable) -> pl.DataFrame:
    """One row per sample and time, a column for each sensor, null where it was not read."""
    clash = {"sample", "time"} & set(table.sensors)
    if clash:
        raise DataError(
            f"A sensor is called '{min(clash)}', which a wide table has another column for; rename it first."
        )
    events = table.events().with_columns(pl.col("sensor").cast(pl.String))
    wide = events.pivot("sensor", index=["sample", "time"], values="value")
    absent = [pl.lit(None, dtype=pl.Float64).alias(name) for name in table.sensors if name not in wide.columns]
    return wide.with_columns(absent).select("sample", "time", *table.sensors)


def _samples_path(out: Path, format: Format) -> Path:
    return out.with_name(f"{out.stem}.samples{'.parquet' if format == 'parquet' else '.csv'}")


def _write_samples(frame: pl.DataFrame, partial: Path, path: Path) -> None:
    """Write the samples to a temporary path, in the format of their final `path`."""
    if path.suffix == ".parquet":
        frame.write_parquet(partial, compression="zstd")
        return
    try:
        frame.write_csv(partial)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: a column cannot be written as CSV ({error}). Write Parquet instead.") from None
