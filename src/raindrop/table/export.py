"""A table as files for other programs: long or wide CSV, Parquet, MEDS."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import polars as pl

from raindrop.errors import DataError, check_choice
from raindrop.files import atomic_file, refuse_to_overwrite
from raindrop.table.event_table import EventTable
from raindrop.table.export_meds import write_meds

Format = Literal["csv", "wide", "parquet", "meds"]


def export(table: EventTable, out: Path, format: Format) -> list[Path]:
    """Write the table; returns what was written."""
    check_choice(format, Format, "format")
    refuse_existing(out, format)
    if format == "meds":
        return [write_meds(table, out)]
    written = []
    if table.samples.width > 1:
        path = _samples_path(out, format)
        _write(table.samples, path)
        written.append(path)
    _write(wide_frame(table) if format == "wide" else table.events(), out, as_parquet=format == "parquet")
    return [out, *written]


def refuse_existing(out: Path, format: Format) -> None:
    """Raise if something that would be written exists, or the name does not fit the format."""
    suffixes = {"csv": ".csv", "wide": ".csv", "parquet": ".parquet"}
    if format in suffixes and out.suffix != suffixes[format]:
        raise DataError(f"{out}: a file of the format '{format}' must end in {suffixes[format]}.")
    refuse_to_overwrite(out)
    if format in suffixes:
        refuse_to_overwrite(_samples_path(out, format))


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


def _write(frame: pl.DataFrame, path: Path, *, as_parquet: bool | None = None) -> None:
    as_parquet = path.suffix == ".parquet" if as_parquet is None else as_parquet
    with atomic_file(path) as partial:
        if as_parquet:
            frame.write_parquet(partial, compression="zstd")
            return
        try:
            frame.write_csv(partial)
        except pl.exceptions.PolarsError as error:
            raise DataError(f"{path}: a column cannot be written as CSV ({error}). Write Parquet instead.") from None
