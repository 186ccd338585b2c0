"""A table as files for other programs: long or wide CSV, Parquet, MEDS."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import polars as pl

from raindrop.errors import DataError, check_choice
from raindrop.files import atomic_file, atomic_folder, refuse_to_overwrite, write_json
from raindrop.table.cells import natural_key
from raindrop.table.event_table import EventTable
from raindrop.table.sample_columns import missing_to_null
from raindrop.table.time_columns import SECONDS
from raindrop.version import VERSION

Format = Literal["csv", "wide", "parquet", "meds"]
MEDS_START = dt.datetime(2000, 1, 1)
"""Time 0 of a sample in MEDS, whose times are dates, where the table does not know a date."""


def export(table: EventTable, out: Path, format: Format) -> list[Path]:
    """Write the table; returns what was written."""
    check_choice(format, Format, "format")
    refuse_existing(out, format)
    if format == "meds":
        return [_write_meds(table, out)]
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


# ---------------------------------------------------------------- MEDS


def _write_meds(table: EventTable, out: Path) -> Path:
    """data/0.parquet, labels/labels.parquet and metadata/ as in version 0.4 of the standard."""
    about = _subjects(table)
    with atomic_folder(out) as partial:
        for name in ("data", "metadata", "labels"):
            (partial / name).mkdir()
        data = pl.concat([*_meds_statics(table, about), _meds_events(table, about)])
        data = data.sort("subject_id", "time", nulls_last=False, maintain_order=True)
        data.write_parquet(partial / "data" / "0.parquet", compression="zstd")
        codes = sorted(data["code"].unique().to_list(), key=natural_key)
        pl.DataFrame({"code": codes}).with_columns(
            pl.lit(None, dtype=pl.String).alias("description"),
            pl.lit(None, dtype=pl.List(pl.String)).alias("parent_codes"),
        ).write_parquet(partial / "metadata" / "codes.parquet")
        etl = {"etl_name": "raindrop", "etl_version": VERSION, "meds_version": "0.4"}
        write_json(partial / "metadata" / "dataset.json", {"dataset_name": out.name, **etl})
        about.select("subject_id", "sample").write_csv(partial / "metadata" / "samples.csv")
        if "split" in table.samples.columns and table.samples["split"].dtype == pl.String:
            splits = about.select("subject_id").with_columns(table.samples["split"]).drop_nulls()
            splits.write_parquet(partial / "metadata" / "subject_splits.parquet")
        if table.roles.label is not None:
            _meds_labels(table, about).write_parquet(partial / "labels" / "labels.parquet")
        else:
            (partial / "labels").rmdir()
    return out


def _subjects(table: EventTable) -> pl.DataFrame:
    """sample, subject_id (whole numbers, as MEDS wants them), zero (the date of time 0) and end, for each sample."""
    candidates = [table.samples[name] for name in ("subject_id", "sample") if name in table.samples.columns]
    numbers = [column.cast(pl.Int64, strict=False) for column in candidates]
    fitting = [n for n in numbers if not n.null_count() and n.n_unique() == len(n)]
    subject = fitting[0] if fitting else pl.int_range(1, len(table) + 1, dtype=pl.Int64, eager=True)
    zero = pl.repeat(MEDS_START, len(table), dtype=pl.Datetime("us"), eager=True)
    cutoff = table.samples[table.roles.cutoff].cast(pl.Float64) if table.roles.cutoff else None
    known = table.samples["prediction_time"] if "prediction_time" in table.samples.columns else None
    if cutoff is not None and known is not None and known.dtype == pl.Datetime and not (known - known[0]).null_count():
        zero = known.cast(pl.Datetime("us")) - _duration(table, cutoff)
    last = pl.Series(
        [table.time[start + count - 1] if count else 0.0 for start, count in zip(table.start, table.count, strict=True)]
    )
    end = zero + _duration(table, last if cutoff is None else cutoff.fill_null(last))
    return pl.DataFrame(
        [table.samples["sample"], subject.alias("subject_id"), zero.alias("zero"), end.alias("prediction_time")]
    )


def _duration(table: EventTable, time: pl.Series) -> pl.Series:
    return (time * (SECONDS[table.time_unit] * 1e6)).round().cast(pl.Int64).cast(pl.Duration("us"))


def _meds_events(table: EventTable, about: pl.DataFrame) -> pl.DataFrame:
    events = table.events().join(about, on="sample", how="left", maintain_order="left")
    return events.select(
        "subject_id",
        (events["zero"] + _duration(table, events["time"])).alias("time"),
        pl.col("sensor").cast(pl.String).alias("code"),
        pl.col("value").cast(pl.Float32).alias("numeric_value"),
        pl.lit(None, dtype=pl.String).alias("text_value"),
    )


def _meds_statics(table: EventTable, about: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The statics as codes without a time, in front of the readings."""
    for name in table.roles.statics:
        column = missing_to_null(table.samples[name])
        nothing = {"numeric_value": pl.lit(None, dtype=pl.Float32), "text_value": pl.lit(None, dtype=pl.String)}
        is_number = column.dtype.is_numeric()
        content = {"numeric_value": column.cast(pl.Float32)} if is_number else {"text_value": column.cast(pl.String)}
        rows = about.select(
            "subject_id",
            time=pl.lit(None, dtype=pl.Datetime("us")),
            code=pl.lit(name),
            **(nothing | content),
        )
        yield rows.filter(column.is_not_null())


def _meds_labels(table: EventTable, about: pl.DataFrame) -> pl.DataFrame:
    """The labels that are known, in the column for their type, at the cutoff or the last reading."""
    label = missing_to_null(table.samples[str(table.roles.label)])
    if label.dtype == pl.Boolean:
        name = "boolean_value"
    elif label.dtype.is_integer():
        name, label = "integer_value", label.cast(pl.Int64)
    elif label.dtype.is_numeric():
        name, label = "float_value", label.cast(pl.Float32)
    else:
        name, label = "categorical_value", label.cast(pl.String)
    return about.select("subject_id", "prediction_time", label.alias(name)).filter(label.is_not_null())
