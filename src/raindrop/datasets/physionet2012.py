"""P12: PhysioNet/CinC Challenge 2012, the first 48 hours of 12,000 stays in intensive care.

There is one text file per stay (`set-a/132539.txt`: Time,Parameter,Value) and three tables of outcomes.
The default cohort is the paper's: 11,988 stays that have at least one reading. See docs/data_p12.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import polars as pl

from raindrop.datasets.archives import Member, read_members, skip_repeats
from raindrop.datasets.conversion import (
    Conversion,
    Limits,
    Report,
    Source,
    concatenate_by_number,
    drop_impossible,
    no_files_error,
)
from raindrop.datasets.publishers import PHYSIONET, Publication, Remote, author_splits
from raindrop.datasets.records import Records, batch_records
from raindrop.errors import DataError, check_choice
from raindrop.table.build import Duplicates
from raindrop.table.event_table import EventTable

Label = Literal["mortality", "length_of_stay_gt_3"]
UnknownStay = Literal["exclude", "short"]
SENSORS = (
    "ALP", "ALT", "AST", "Albumin", "BUN", "Bilirubin", "Cholesterol", "Creatinine", "DiasABP", "FiO2", "GCS",
    "Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "MAP", "MechVent", "Mg", "NIDiasABP", "NIMAP", "NISysABP", "Na",
    "PaCO2", "PaO2", "Platelets", "RespRate", "SaO2", "SysABP", "Temp", "TroponinI", "TroponinT", "Urine", "WBC", "pH",
)  # fmt: skip
STATICS = ("Age", "Gender", "Height", "ICUType", "Weight")
CLASSES = ("Gender", "ICUType")
"""Statics whose numbers are codes of classes; they become text, so that each class gets its own column."""
NOT_MEASURED = -1.0
LIMITS: Limits = {
    "pH": (6.0, 8.5),
    "Temp": (13.0, 46.0),
    "PaO2": (1.0, 800.0),
    "PaCO2": (1.0, 300.0),
    "WBC": (0.0, 2000.0),
    "Height": (50.0, 275.0),
    "Weight": (10.0, 650.0),
}
"""Values outside are impossible in a living adult: misplaced decimal points, other units, a probe in the air."""
COLUMNS = {"Time": pl.String, "Parameter": pl.String, "Value": pl.Float64}
OUTCOME_COLUMNS = ("RecordID", "SAPS-I", "SOFA", "Length_of_stay", "Survival", "In-hospital_death")
RECORD, OUTCOMES = re.compile(r"(\d+)\.txt"), re.compile(r"Outcomes-(\w+)\.txt")
LAYOUT = (
    "P12 is published as set-a, set-b and set-c (each a folder or an archive of files such as 132539.txt) "
    "and Outcomes-a.txt, Outcomes-b.txt and Outcomes-c.txt; give the folder that holds them."
)


def _published(name: str, sha256: str) -> Remote:
    return Remote(f"{PHYSIONET}/challenge-2012/1.0.0/{name}", name, sha256)


PUBLICATION = Publication(
    title="PhysioNet/CinC Challenge 2012 (P12)",
    files=(
        _published("set-a.tar.gz", "8cb250f179cd0952b4b9ebcf8954b63d70383131670fac1cfee13deaa13ca920"),
        _published("set-b.tar.gz", "b1637a2a423a8e76f8f087896cfc5fdf28f88519e1f4e874fbda69b2a64dac30"),
        _published("set-c.tar.gz", "a4a56b95bcee4d50a3874fe298bf2998f2ed0dd98a676579573dc10419329ee1"),
        _published("Outcomes-a.txt", "2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2"),
        _published("Outcomes-b.txt", "1305f29734da374a809483229a99f33a9230aa8d4fa74b1a2d6ad788136423d5"),
        _published("Outcomes-c.txt", "0b32dcb7753c0f18f2f5fde498a28618b8879c5e527ce0dae8ad120dd7e205c9"),
    ),
    splits=author_splits("P12data/splits/phy12_split{}.npy"),
    licence="Open Data Commons Attribution License v1.0; the splits: MIT",
    page="https://physionet.org/content/challenge-2012/1.0.0/",
    megabytes=21,
    citation="Silva, Moody, Mark, Celi: Predicting mortality of ICU patients (Computing in Cardiology 2012)",
)


def convert(
    source: Source,
    *,
    label: Label = "mortality",
    unknown_stay: UnknownStay = "exclude",
    duplicates: Duplicates = "last",
    keep_impossible: bool = False,
) -> Conversion:
    """PhysioNet/CinC Challenge 2012: 48 hours in intensive care, mortality and length of stay.

    Args:
        source: folder or archives with set-a, set-b, set-c and the three tables of outcomes.
        label: the default label of the table; both labels are written.
        unknown_stay: leave the label of an unknown length of stay (-1) empty (exclude), or count it as three days or
            less like the paper (short).
        duplicates: several values of a sensor in one minute: take the last like the authors' published code, their
            mean, or stop with an error.
        keep_impossible: keep readings and statics that are impossible in a living adult, such as a pH of 735.
    """
    check_choice(label, Label, "label")
    check_choice(unknown_stay, UnknownStay, "unknown_stay")
    limits = None if keep_impossible else LIMITS
    report = Report("P12")
    outcomes: list[Member] = []
    tables = []
    files = skip_repeats(read_members(source, lambda name: RECORD.fullmatch(name) or OUTCOMES.fullmatch(name)), report)
    for batch in batch_records(_records(files, outcomes), COLUMNS, ","):
        tables.append(_table(batch, limits, duplicates, report))
    if not tables:
        raise no_files_error(source, "records of P12", LAYOUT)
    table = concatenate_by_number(tables)
    report.count("no reading of any sensor, excluded", int((table.count == 0).sum()), "samples")
    table = table[table.count > 0]
    if not len(table):
        raise DataError(f"None of the {report.read['files']:,} records has a reading.\n{LAYOUT}")
    samples = _labels(table.samples, _outcomes(outcomes, source, report), unknown_stay, report)
    table = replace(table, samples=samples).with_roles(label=label, statics=STATICS)
    return Conversion.from_table(table, report)


def _records(files: Iterable[Member], outcomes: list[Member]) -> Iterator[Member]:
    """The records among the files; tables of outcomes are appended to `outcomes`."""
    for member in files:
        if RECORD.fullmatch(member.name):
            yield member
        else:
            outcomes.append(member)


def _table(batch: Records, limits: Limits | None, duplicates: Duplicates, report: Report) -> EventTable:
    """The readings and statics of a batch of records."""
    rows = batch.frame()
    report.count_read("files", len(batch.members))
    report.count_read("rows", len(rows))
    record = pl.Series("sample", [RECORD.fullmatch(m.name)[1] for m in batch.members], dtype=pl.String)  # type: ignore[index]
    rows = rows.select("file", time=_hours(rows, batch), sensor="Parameter", value="Value")
    rows = _drop(rows, pl.col("sensor") == "", report, "empty variable name")
    static = rows.filter(pl.col("sensor").is_in(["RecordID", *STATICS]))
    rows = rows.filter(~pl.col("sensor").is_in(["RecordID", *STATICS]))
    rows = _drop(rows, ~pl.col("sensor").is_in(SENSORS), report, "unknown variable name")
    samples = _statics(static, record, batch, limits, report)
    rows = _drop(rows, pl.col("value") == NOT_MEASURED, report, "-1, not measured", "readings")
    rows = drop_impossible(rows, {name: limits[name] for name in limits if name in SENSORS} if limits else None, report)
    events = rows.select(sample=record.gather(rows["file"]), time="time", sensor="sensor", value="value")
    return EventTable.from_frames(
        events, samples, sensors=SENSORS, duplicates=duplicates, source="P12", time_unit="hours"
    )


def _drop(rows: pl.DataFrame, wrong: pl.Expr, report: Report, reason: str, unit: str = "rows") -> pl.DataFrame:
    kept = rows.filter(~wrong)
    report.count(reason, len(rows) - len(kept), unit)
    return kept


def _hours(rows: pl.DataFrame, batch: Records) -> pl.Series:
    """'35:19' as hours. There are only 2,881 different texts, so each is parsed once."""
    texts = rows["Time"].unique()
    parts = texts.str.extract_groups(r"^(\d{1,3}):([0-5]\d)$").struct.unnest().cast(pl.Float64)
    hours = dict(zip(texts, parts.to_series(0) + parts.to_series(1) / 60, strict=True))
    time = rows["Time"].replace_strict(hours, default=None, return_dtype=pl.Float64)
    batch.reject_rows(rows, time.is_null(), "the time is not like 35:19")
    return time


def _statics(
    rows: pl.DataFrame, record: pl.Series, batch: Records, limits: Limits | None, report: Report
) -> pl.DataFrame:
    """One row of statics per record; they are found by name among the rows of minute 0."""
    at_admission = rows.filter(pl.col("time") == 0).unique(["file", "sensor"], keep="first", maintain_order=True)
    report.count("later value of a static (Weight, above all), not a reading", len(rows) - len(at_admission), "rows")
    wide = pl.DataFrame({"file": np.arange(len(record), dtype=np.int32)})
    for name in ("RecordID", *STATICS):
        column = at_admission.filter(pl.col("sensor") == name).select("file", pl.col("value").alias(name))
        wide = wide.join(column, on="file", how="left", maintain_order="left")
    mismatch = wide["RecordID"].is_null() | (wide["RecordID"].cast(pl.Int64, strict=False) != record.cast(pl.Int64))
    if mismatch.any():
        at = int(mismatch.arg_max() or 0)
        raise DataError(
            f"{batch.members[at].path}: the row RecordID says {wide['RecordID'][at]}, but the file is named for "
            f"{record[at]}.\nThe file was renamed or damaged; download or copy it again."
        )
    for name in STATICS:
        low, high = (limits or {}).get(name, (-np.inf, np.inf))
        absent = wide[name] == NOT_MEASURED
        impossible = ~absent & ~wide[name].is_between(low, high)
        report.count(f"{name} -1, not measured", int(absent.sum()), "statics")
        report.count(f"{name} outside {low:g} to {high:g}, emptied", int(impossible.sum()), "statics")
        wide = wide.with_columns(pl.when(~(absent | impossible)).then(pl.col(name)))
    sets = [_set_name(member.path) for member in batch.members]
    return wide.select(
        record,
        pl.Series("set", sets, dtype=pl.String),
        *(pl.col(name).cast(pl.Int64).cast(pl.String) if name in CLASSES else pl.col(name) for name in STATICS),
    )


def _set_name(path: str) -> str | None:
    """'a' for a record below set-a."""
    names = re.findall(r"set-([a-z])\b", path)
    return names[-1] if names else None


def _outcomes(files: Sequence[Member], source: Source, report: Report) -> pl.DataFrame:
    if not files:
        raise no_files_error(source, "outcomes (Outcomes-a.txt, Outcomes-b.txt, Outcomes-c.txt)", LAYOUT)
    table = Records(dict.fromkeys(OUTCOME_COLUMNS, pl.Float64), ",")
    for member in files:
        table.add(member)
    outcomes = table.frame().cast(dict.fromkeys(OUTCOME_COLUMNS, pl.Int64)).drop("file")
    report.count_read("outcomes", len(outcomes))
    repeated = outcomes["RecordID"].is_duplicated()
    if repeated.any():
        raise DataError(
            f"{', '.join(m.path for m in files)}: {int(repeated.sum()):,} outcomes are for a record that has another "
            f"one (first: {outcomes['RecordID'].filter(repeated)[0]}).\n"
            "There is one outcome per record; remove the others."
        )
    return outcomes


def _labels(samples: pl.DataFrame, outcomes: pl.DataFrame, unknown: UnknownStay, report: Report) -> pl.DataFrame:
    stay = pl.col("Length_of_stay")
    known = pl.when(stay >= 0)
    long_stay = (stay > 3).cast(pl.Int8)
    labels = outcomes.select(
        sample=pl.col("RecordID").cast(pl.String),
        mortality=pl.col("In-hospital_death").cast(pl.Int8),
        length_of_stay_gt_3=long_stay if unknown == "short" else known.then(long_stay),
        length_of_stay=known.then(stay),
    )
    labelled = samples.join(labels, on="sample", how="left", maintain_order="left")
    unlabelled = int(labelled["mortality"].null_count())
    report.count("no outcome, both labels empty", unlabelled, "labels")
    report.count(
        f"length of stay -1 is unknown: {'counted as short' if unknown == 'short' else 'length_of_stay_gt_3 empty'}",
        int(labelled["length_of_stay"].null_count()) - unlabelled,
        "labels",
    )
    return labelled
