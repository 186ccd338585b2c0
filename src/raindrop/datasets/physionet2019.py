"""P19: PhysioNet/CinC Challenge 2019, hourly rows of 40,336 stays in intensive care, labelled for sepsis.

There is one `.psv` file per stay (`training_setA/p000001.psv`). The default cohort is the paper's: a septic
stay ends before its first positive row, and 38,803 stays of 1 to 60 rows remain. See docs/data_p19.md.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import polars as pl

from raindrop.datasets.archives import read_members, skip_repeats
from raindrop.datasets.conversion import (
    Conversion,
    Limits,
    Report,
    Source,
    concatenate_by_number,
    drop_impossible,
    no_files_error,
)
from raindrop.datasets.publishers import PHYSIONET, Listing, Publication, Remote, author_splits
from raindrop.datasets.records import Records, batch_records
from raindrop.errors import DataError, check_choice
from raindrop.table.event_table import EventTable

Cohort = Literal["paper", "all"]
SENSORS = (
    "HR", "O2Sat", "Temp", "SBP", "MAP", "DBP", "Resp", "EtCO2", "BaseExcess", "HCO3", "FiO2", "pH", "PaCO2", "SaO2",
    "AST", "BUN", "Alkalinephos", "Calcium", "Chloride", "Creatinine", "Bilirubin_direct", "Glucose", "Lactate",
    "Magnesium", "Phosphate", "Potassium", "Bilirubin_total", "TroponinI", "Hct", "Hgb", "PTT", "WBC", "Fibrinogen",
    "Platelets",
)  # fmt: skip
STATICS = ("Age", "Gender", "Unit1", "Unit2", "HospAdmTime", "ICULOS")
COLUMNS = {**dict.fromkeys((*SENSORS, *STATICS), pl.Float64), "SepsisLabel": pl.Float64}
MAX_ROWS = 60
LIMITS: Limits = {"FiO2": (0.1, 1.0), "Temp": (13.0, 46.0), "BaseExcess": (-60.0, 60.0), "HCO3": (1.0, 100.0)}
"""Values outside are impossible: oxygen as a percentage or below zero, a temperature of 50, a base excess of 100."""
RECORD = re.compile(r"p(\d{6})\.psv")
LAYOUT = (
    "P19 is published as training_setA and training_setB, each a folder or an archive of files such as p000001.psv; "
    "give the folder that holds both."
)
PUBLICATION = Publication(
    title="PhysioNet/CinC Challenge 2019 (P19)",
    files=(
        Remote(
            "https://archive.physionet.org/users/shared/challenge-2019/training_setA.zip",
            "training_setA.zip",
            sha256="c0def317798312e4facc0f33ac0202b3a34f412052d9096e8b122b4d3ecb7935",
        ),
        Remote(
            "https://archive.physionet.org/users/shared/challenge-2019/training_setB.zip",
            "training_setB.zip",
            sha256="8a88d69a5f64bc9a87d869f527fcc2741c0712cb9a7cb1f5cdcb725336b4c8cc",
        ),
    ),
    splits=author_splits("P19data/splits/phy19_split{}_new.npy"),
    listing=Listing(
        address=f"{PHYSIONET}/challenge-2019/1.0.0/SHA256SUMS.txt",
        root=f"{PHYSIONET}/challenge-2019/1.0.0/",
        prefix="training/",
        # of the 40,336 files in the archives above, which the list must name
        sha256="86486f6800a3964441342546f0848051258d2b81d5d0f3504c777e81d514ca0e",
    ),
    licence="Creative Commons Attribution 4.0; the splits: MIT",
    page="https://physionet.org/content/challenge-2019/1.0.0/",
    megabytes=42,
    citation="Reyna et al.: Early prediction of sepsis from clinical data (Critical Care Medicine 48, 2020)",
)


def convert(
    source: Source, *, iculos: bool = True, cohort: Cohort = "paper", keep_impossible: bool = False
) -> Conversion:
    """PhysioNet/CinC Challenge 2019: hourly rows in intensive care, sepsis.

    Times are hours since the first row of a record.

    Args:
        source: folder or archives with training_setA and training_setB.
        iculos: use ICULOS, the hours in intensive care at the last kept row, as a static. It reveals how long the
            record is, which is a shortcut to the label; report results with and without it.
        cohort: apply the paper's exclusions (paper), or keep every record with a row before its first positive one,
            whatever its length (all).
        keep_impossible: keep impossible readings, such as 40 for a share of oxygen.
    """
    check_choice(cohort, Cohort, "cohort")
    limits = None if keep_impossible else LIMITS
    report = Report("P19")
    files = skip_repeats(read_members(source, RECORD.fullmatch), report)
    tables = [_table(batch, cohort, limits, report) for batch in batch_records(files, COLUMNS, "|")]
    if not tables:
        raise no_files_error(source, "records of P19", LAYOUT)
    table = concatenate_by_number(tables)
    if not len(table):
        raise DataError(f"None of the {report.read['files']:,} records belongs to the cohort.\n{LAYOUT}")
    empty = table.count == 0
    if empty.any():
        septic = int(table.samples["sepsis"].filter(pl.Series(empty)).sum())
        report.notes.append(
            f"{int(empty.sum()):,} samples of the cohort have no reading in the kept rows; {septic:,} of them are "
            "septic, so having no reading gives the label away. Leave them out with table[table.count > 0]."
        )
    table = table.with_roles(statics=STATICS if iculos else STATICS[:-1])
    return Conversion.from_table(table, report)


def _table(batch: Records, cohort: Cohort, limits: Limits | None, report: Report) -> EventTable:
    """The readings and statics of a batch of records."""
    rows = batch.frame()
    report.count_read("files", len(batch.members))
    report.count_read("rows", len(rows))
    batch.reject_rows(rows, ~rows["SepsisLabel"].is_in([0.0, 1.0]), "SepsisLabel is neither 0 nor 1")
    batch.reject_rows(rows, ~rows["ICULOS"].is_finite(), "ICULOS is not a number")
    observed = pl.any_horizontal(pl.col(SENSORS).is_not_nan())
    positive = pl.col("SepsisLabel") == 1
    rows = rows.with_columns(observed=observed, late=positive.cum_max().over("file"))
    records = _describe_records(rows, batch)
    kept = rows.filter(~pl.col("late"))
    samples = records.join(_describe_kept_rows(kept), on="file", how="left", maintain_order="left").with_columns(
        pl.col("rows_kept").fill_null(0)
    )
    samples = _apply_cohort(samples, cohort, report)
    kept = kept.join(samples.select("file", "sample", "first_hour"), on="file", how="inner", maintain_order="left")
    late = int(rows.join(samples, on="file", how="semi")["late"].sum())
    report.count("at or after the first positive label", late, "rows")
    report.count("of an excluded sample", len(rows) - len(kept) - late, "rows")
    events = drop_impossible(_readings(kept), limits, report)
    return EventTable.from_frames(
        events, samples.drop("file", "first_hour", "observed"), label="sepsis", sensors=SENSORS, source="P19"
    )


def _readings(kept: pl.DataFrame) -> pl.DataFrame:
    """One row per observed value."""
    value = kept.select(SENSORS).to_numpy()  # (rows, sensors)
    row, sensor = np.nonzero(~np.isnan(value))
    return pl.DataFrame(
        {
            "sample": kept["sample"].gather(row),
            "time": (kept["ICULOS"] - kept["first_hour"]).gather(row),
            "sensor": pl.Series(SENSORS, dtype=pl.String).gather(sensor),
            "value": value[row, sensor],
        }
    )


def _describe_records(rows: pl.DataFrame, batch: Records) -> pl.DataFrame:
    """One row per record from all its rows: id, label, whether anything was observed, constant statics."""
    constant = STATICS[:-1]
    about = rows.group_by("file", maintain_order=True).agg(
        pl.col("SepsisLabel").max().cast(pl.Int8).alias("sepsis"),
        pl.col("observed").any(),
        pl.col("ICULOS").first().alias("first_hour"),
        pl.col("ICULOS").diff().le(0).any().alias("unordered"),
        *(pl.col(name).first().fill_nan(None) for name in constant),
    )
    if about["unordered"].any():
        member = batch.members[about.filter("unordered")["file"][0]]
        raise DataError(f"{member.path}: the hours (ICULOS) do not ascend.\nThis file is damaged; download it again.")
    numbers = [RECORD.fullmatch(member.name)[1] for member in batch.members]  # type: ignore[index]
    sets = [names[-1] if (names := re.findall(r"set([AB])\b", m.path)) else None for m in batch.members]
    ids = pl.DataFrame(
        {
            "file": np.arange(len(numbers), dtype=np.int32),
            "sample": [str(int(number)) for number in numbers],
            "set": pl.Series(sets, dtype=pl.String),
        }
    )
    return ids.join(about.drop("unordered"), on="file", how="left", maintain_order="left")


def _describe_kept_rows(kept: pl.DataFrame) -> pl.DataFrame:
    """The number of kept rows of each record and the hour of the last one; reveals nothing about the rows cut off."""
    return kept.group_by("file", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("rows_kept"), pl.col("ICULOS").last()
    )


def _apply_cohort(samples: pl.DataFrame, cohort: Cohort, report: Report) -> pl.DataFrame:
    """The samples of the cohort; the report counts each exclusion with its reason."""
    exclusions = {
        "no row before the first positive label": pl.col("rows_kept") == 0,
        f"more than {MAX_ROWS} rows": pl.col("rows_kept") > MAX_ROWS,
        "no reading in the whole record": ~pl.col("observed"),
        "no HospAdmTime": pl.col("HospAdmTime").is_null(),
    }
    for number, (reason, excluded) in enumerate(exclusions.items()):
        if cohort == "paper" or number == 0:
            included = samples.filter(~excluded.fill_null(True))
            report.count(f"{reason}, excluded", len(samples) - len(included), "samples")
            samples = included
    return samples
