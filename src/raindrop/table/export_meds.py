"""A table as a MEDS folder, in the schemas that the package `meds` publishes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from raindrop.errors import DataError, MissingExtraError
from raindrop.files import atomic_folder, write_json
from raindrop.table.cells import natural_key
from raindrop.table.event_table import EventTable
from raindrop.table.queries import spans
from raindrop.table.sample_columns import missing_to_null
from raindrop.table.time_columns import SECONDS
from raindrop.version import VERSION

START = dt.datetime(2000, 1, 1)
"""Time 0 of a sample if the table has no dates, because MEDS times are dates."""


def write_meds(table: EventTable, out: Path) -> Path:
    """data/0.parquet, labels/labels.parquet and metadata/: one subject for each sample.

    A large table has a file of readings for each block: data/1.parquet and so on. Values are single precision, as the
    standard requires. metadata/samples.csv maps subjects to samples.
    """
    try:
        from meds import schema
    except ModuleNotFoundError:
        raise MissingExtraError("meds", "meds", "Writing MEDS") from None
    subjects = _subjects(table)
    names: set[str] = set()
    with atomic_folder(out) as partial:
        metadata, first = partial / "metadata", 0
        for number, block in enumerate(table.blocks()):
            of_block = subjects[first : first + len(block)]
            data = pl.concat([*_statics(block, of_block), _events(block, of_block)])
            data = data.sort("subject_id", "time", nulls_last=False, maintain_order=True)
            _write(data, schema.DataSchema, partial / "data" / f"{number}.parquet")
            names.update(data["code"].unique().to_list())
            first += len(block)
        codes = pl.DataFrame({"code": sorted(names, key=natural_key)}, schema={"code": pl.String})
        _write(codes, schema.CodeMetadataSchema, metadata / "codes.parquet")
        about = {"dataset_name": out.name, "etl_name": "raindrop", "etl_version": VERSION}
        write_json(metadata / "dataset.json", {**about, "meds_version": version("meds")})
        subjects.select("subject_id", "sample").write_csv(metadata / "samples.csv")
        if "split" in table.samples.columns and table.samples["split"].dtype == pl.String:
            splits = subjects.select("subject_id").with_columns(table.samples["split"]).drop_nulls()
            _write(splits, schema.SubjectSplitSchema, metadata / "subject_splits.parquet")
        if table.roles.label is not None:
            _write(_labels(table, subjects), schema.LabelSchema, partial / "labels" / "labels.parquet")
    return out


def _write(frame: pl.DataFrame, schema: Any, path: Path) -> None:
    """Write a frame in exactly the types of a schema of the standard."""
    import pyarrow.parquet as pq

    path.parent.mkdir(exist_ok=True)
    pq.write_table(schema.align(frame.to_arrow()), path, compression="zstd")


def _subjects(table: EventTable) -> pl.DataFrame:
    """sample, subject_id (whole numbers, as MEDS requires), zero (the date of time 0) and end, for each sample."""
    candidates = [table.samples[name] for name in ("subject_id", "sample") if name in table.samples.columns]
    numbers = [column.cast(pl.Int64, strict=False) for column in candidates]
    fitting = [n for n in numbers if not n.null_count() and n.n_unique() == len(n)]
    subject = fitting[0] if fitting else pl.int_range(1, len(table) + 1, dtype=pl.Int64, eager=True)
    zero = pl.repeat(START, len(table), dtype=pl.Datetime("us"), eager=True)
    cutoff = table.samples[table.roles.cutoff].cast(pl.Float64) if table.roles.cutoff else None
    known = table.samples["prediction_time"] if "prediction_time" in table.samples.columns else None
    if cutoff is not None and known is not None and known.dtype == pl.Datetime and not (known - known[0]).null_count():
        zero = known.cast(pl.Datetime("us")) - _duration(table, cutoff)
    last = pl.Series(spans(table)[1])
    end = zero + _duration(table, last if cutoff is None else cutoff.fill_null(last))
    return pl.DataFrame(
        [table.samples["sample"], subject.alias("subject_id"), zero.alias("zero"), end.alias("prediction_time")]
    )


def _duration(table: EventTable, time: pl.Series) -> pl.Series:
    return (time * (SECONDS[table.time_unit] * 1e6)).round().cast(pl.Int64).cast(pl.Duration("us"))


def _events(table: EventTable, subjects: pl.DataFrame) -> pl.DataFrame:
    events = table.events().join(subjects, on="sample", how="left", maintain_order="left")
    times = events.select("sample", "sensor", time=events["zero"] + _duration(table, events["time"]))
    if not (unique := times.is_unique()).all():
        row = times.filter(~unique).row(0, named=True)
        raise DataError(
            f"Sample '{row['sample']}' has several readings of '{row['sensor']}' within one microsecond, "
            "the finest time that MEDS has. Export as csv or parquet."
        )
    return events.select(
        "subject_id",
        times["time"],
        pl.col("sensor").cast(pl.String).alias("code"),
        pl.col("value").cast(pl.Float32).alias("numeric_value"),
        pl.lit(None, dtype=pl.String).alias("text_value"),
    )


def _statics(table: EventTable, subjects: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The statics as codes without a time, before the readings."""
    for name in table.roles.statics:
        column = missing_to_null(table.samples[name])
        nothing = {"numeric_value": pl.lit(None, dtype=pl.Float32), "text_value": pl.lit(None, dtype=pl.String)}
        is_number = column.dtype.is_numeric()
        content = {"numeric_value": column.cast(pl.Float32)} if is_number else {"text_value": column.cast(pl.String)}
        rows = subjects.select(
            "subject_id",
            time=pl.lit(None, dtype=pl.Datetime("us")),
            code=pl.lit(name),
            **(nothing | content),
        )
        yield rows.filter(column.is_not_null())


def _labels(table: EventTable, subjects: pl.DataFrame) -> pl.DataFrame:
    """The known labels, in the column for their type, at the cutoff or the last reading."""
    label = missing_to_null(table.samples[str(table.roles.label)])
    if label.dtype == pl.Boolean:
        name = "boolean_value"
    elif label.dtype.is_integer():
        name, label = "integer_value", label.cast(pl.Int64)
    elif label.dtype.is_numeric():
        name, label = "float_value", label.cast(pl.Float32)
    else:
        name, label = "categorical_value", label.cast(pl.String)
    return subjects.select("subject_id", "prediction_time", label.alias(name)).filter(label.is_not_null())
