"""MEDS, the Medical Event Data Standard (version 0.4): shards of events, labels with a prediction time, splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from raindrop.errors import DataError, format_count
from raindrop.table.adapters.long_frames import LongFrames
from raindrop.table.cells import clean_text
from raindrop.table.frame_files import read_frame
from raindrop.table.frames import require_columns

BIRTH, DEATH = "MEDS_BIRTH", "MEDS_DEATH"
SPLITS = {"train": "train", "tuning": "val", "held_out": "test"}
LABELS = ("boolean_value", "integer_value", "float_value", "categorical_value")
MAX_STATIC_CODES = 100
PRESENT = "present"
"""A code without a value, such as a diagnosis, is the sensor CODE=present, which reads 1."""
HOURS_PER_YEAR = 365.25 * 24


def is_meds(folder: Path) -> bool:
    """Whether a folder has MEDS shards."""
    shard = next(iter(_shards(folder)), None)
    if shard is None:
        return False
    try:
        return {"subject_id", "code"} <= set(pl.read_parquet_schema(shard))
    except (pl.exceptions.PolarsError, OSError):
        return False


def from_meds(
    folder: Path, labels: Any = None, codes: Sequence[str] | None = None, window: float | None = None
) -> LongFrames:
    """One sample per label, with the readings up to and including its prediction time; without labels, one per subject.

    labels: a file, or a folder of files, with subject_id, prediction_time and one of LABELS; codes: read only these;
    window: use only readings within this many hours before the prediction time.
    """
    shards = _shards(folder)
    if not shards:
        raise DataError(f"{folder}: there are no MEDS shards; they are Parquet files in {folder / 'data'}.")
    if window is not None and (labels is None or not window > 0):
        raise DataError("window: a number of hours above 0 before each label's prediction time; it needs labels.")
    asked = None if labels is None else _read_labels(labels)
    parts = [_read_shard(shard, asked, codes, window) for shard in shards]
    events = pl.concat([part for part in parts if len(part)] or parts[:1], how="vertical_relaxed")
    notices: list[str] = []
    samples = _samples(events, asked)
    samples = _add_static_codes(samples, events.filter(pl.col("time").is_null()), notices)
    samples = _add_age(samples, events.filter(pl.col("code") == BIRTH))
    samples = _add_splits(samples, folder)
    timed = events.filter(pl.col("time").is_not_null() & ~pl.col("code").is_in([BIRTH, DEATH]))
    if not len(timed):
        raise DataError(f"{folder}: no reading is left; the codes, the labels' subjects and times fit no event.")
    text, _ = clean_text(timed["text_value"])
    without = timed["numeric_value"].is_null() & text.is_null()
    readings = timed.select(
        "sample",
        "time",
        pl.when(without).then(pl.format(f"{{}}={PRESENT}", "code")).otherwise("code").alias("sensor"),
        pl.when(without).then(1.0).otherwise(pl.col("numeric_value").cast(pl.Float64)).alias("value"),
        text.alias("text"),
    )
    roles = {"group": "subject_id", "label": "", "cutoff": "", "reference": ""}
    options: dict[str, Any] = {"text": "text", "duplicates": "last", **roles}
    if asked is not None:
        options |= {"cutoff": "cutoff", "label": "label", "reference": "reference" if window else ""}
        zero = pl.col("prediction_time") - pl.duration(microseconds=round((window or 0) * 3.6e9))
        samples = samples.with_columns(pl.col("prediction_time").alias("cutoff"))
        samples = samples.with_columns(zero.alias("reference")) if window else samples
    return LongFrames(readings, samples, options, tuple(notices))


def _shards(folder: Path) -> list[Path]:
    return sorted((folder / "data").rglob("*.parquet"))


def _read_shard(
    path: Path, asked: pl.DataFrame | None, codes: Sequence[str] | None, window: float | None
) -> pl.DataFrame:
    """sample, subject_id, time, code, numeric_value, text_value; nothing after the sample's prediction time."""
    frame = read_frame(path).frame
    require_columns(frame, {name: name for name in ("subject_id", "time", "code")}, str(path))
    for name, dtype in (("numeric_value", pl.Float32), ("text_value", pl.String)):
        if name not in frame.columns:
            frame = frame.with_columns(pl.lit(None, dtype=dtype).alias(name))
    frame = frame.select("subject_id", pl.col("time").cast(pl.Datetime("us")), pl.col("code").cast(pl.String),
                         pl.col("numeric_value").fill_nan(None), pl.col("text_value").cast(pl.String))  # fmt: skip
    if codes is not None:
        frame = frame.filter(pl.col("code").is_in([*codes, BIRTH]) | pl.col("time").is_null())
    if asked is None:
        return frame.with_columns(pl.col("subject_id").cast(pl.String).alias("sample"))
    frame = frame.join(asked.select("sample", "subject_id", "prediction_time"), on="subject_id", how="inner")
    known = pl.col("time").is_null() | (pl.col("time") <= pl.col("prediction_time"))
    if window is not None:
        first = pl.col("prediction_time") - pl.duration(microseconds=round(window * 3.6e9))
        known &= pl.col("time").is_null() | (pl.col("time") >= first) | (pl.col("code") == BIRTH)
    return frame.filter(known).drop("prediction_time")


def _read_labels(labels: Any) -> pl.DataFrame:
    """sample, subject_id, prediction_time and label; the sample id combines subject and prediction time."""
    path = Path(labels)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise DataError(f"{path}: there is no Parquet file with labels (subject_id, prediction_time and a value).")
    frame = pl.concat([read_frame(file, ids=()).frame for file in files], how="diagonal_relaxed")
    require_columns(frame, {name: name for name in ("subject_id", "prediction_time")}, str(path))
    values = [name for name in LABELS if name in frame.columns and frame[name].count()]
    if len(values) != 1:
        raise DataError(f"{path}: one of the columns {', '.join(LABELS)} must hold the labels, not {len(values)}.")
    time = frame["prediction_time"]
    time = time.str.to_datetime(time_unit="us") if time.dtype == pl.String else time.cast(pl.Datetime("us"))
    frame = frame.select("subject_id", time, pl.col(values[0]).alias("label")).unique(maintain_order=True)
    if frame["subject_id"].null_count() or frame["prediction_time"].null_count():
        raise DataError(f"{path}: labels without a subject_id or a prediction_time; drop them.")
    name = pl.format("{}@{}", "subject_id", pl.col("prediction_time").dt.strftime("%Y-%m-%dT%H:%M:%S%.f"))
    frame = frame.with_columns(name.alias("sample"))
    repeated = frame["sample"].is_duplicated()
    if repeated.any():
        raise DataError(
            f"{path}: {format_count(int(repeated.sum()), len(frame), 'labels')} differ for the same subject and time "
            f"(first: '{frame['sample'].filter(repeated)[0]}'); keep one of each."
        )
    return frame


def _samples(events: pl.DataFrame, asked: pl.DataFrame | None) -> pl.DataFrame:
    """One row per label or subject, in order."""
    if asked is not None:
        return asked.select("sample", "subject_id", "prediction_time", "label")
    return events.select("sample", "subject_id").unique(maintain_order=True)


def _add_static_codes(samples: pl.DataFrame, static: pl.DataFrame, notices: list[str]) -> pl.DataFrame:
    """A column for each code without a time: its number, its text, or the part after '//', as in GENDER//F."""
    if not len(static):
        return samples
    parts = pl.col("code").str.split_exact("//", 1).struct
    bare = pl.col("numeric_value").is_null() & pl.col("text_value").is_null()
    static = static.with_columns(
        pl.when(bare).then(parts.field("field_0")).otherwise("code").alias("name"),
        pl.coalesce("text_value", pl.when(bare).then(parts.field("field_1").fill_null("yes"))).alias("text"),
    )
    names = static.group_by("name").agg(pl.col("sample").n_unique()).sort("sample", "name", descending=[True, False])
    kept = [name for name in names["name"] if name not in samples.columns][:MAX_STATIC_CODES]
    for name in kept:
        of_code = static.filter(pl.col("name") == name)
        column = "numeric_value" if of_code["numeric_value"].count() else "text"
        last = of_code.group_by("sample").agg(pl.col(column).drop_nulls().last().alias(name))
        samples = samples.join(last, on="sample", how="left", maintain_order="left")
    if kept:
        left = f"; {len(names) - len(kept):,} rarer ones are left out" if len(names) > len(kept) else ""
        shown = ", ".join(map(repr, kept[:5])) + (", ..." if len(kept) > 5 else "")
        notices.append(
            f"MEDS: {len(kept):,} codes without a time are columns of the samples ({shown}){left}. Name those to learn "
            "from with statics=[...] (--statics)."
        )
    return samples


def _add_age(samples: pl.DataFrame, births: pl.DataFrame) -> pl.DataFrame:
    """A column 'age' in years at the prediction time, from the code MEDS_BIRTH; not added without labels."""
    if not len(births) or "prediction_time" not in samples.columns or "age" in samples.columns:
        return samples
    born = births.group_by("sample").agg(pl.col("time").min().alias("born"))
    samples = samples.join(born, on="sample", how="left", maintain_order="left")
    years = (pl.col("prediction_time") - pl.col("born")).dt.total_hours() / HOURS_PER_YEAR
    return samples.with_columns(years.alias("age")).drop("born")


def _add_splits(samples: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """A column 'split' from metadata/subject_splits.parquet, if that file exists."""
    path = folder / "metadata" / "subject_splits.parquet"
    if not path.exists() or "split" in samples.columns:
        return samples
    splits = read_frame(path).frame
    require_columns(splits, {"subject_id": "subject_id", "split": "split"}, str(path))
    splits = splits.select("subject_id", "split").unique("subject_id")
    return samples.join(splits, on="subject_id", how="left", maintain_order="left")
