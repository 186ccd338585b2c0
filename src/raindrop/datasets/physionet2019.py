"""P19: PhysioNet/CinC Challenge 2019, hourly rows of 40,336 stays in intensive care, labelled for sepsis.

The published files are one `.psv` per stay (`training_setA/p000001.psv`). The default cohort is the paper's: a septic
stay ends before its first positive row, and 38,803 stays of 1 to 60 rows remain. See docs/data_p19.md.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import polars as pl

from raindrop.datasets.archives import Source, members, without_repeats
from raindrop.datasets.conversion import Conversion, Limits, Report, drop_impossible, in_order_of_number, nothing_found
from raindrop.datasets.records import Records, in_batches
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
MOST_ROWS = 60
LIMITS: Limits = {"FiO2": (0.1, 1.0), "Temp": (13.0, 46.0), "BaseExcess": (-60.0, 60.0), "HCO3": (1.0, 100.0)}
"""What cannot be: oxygen as a percentage or below nothing, a temperature of 50, a base excess of 100."""
RECORD = re.compile(r"p(\d{6})\.psv")
LAYOUT = (
    "P19 is published as training_setA and training_setB, each a folder or an archive of files such as p000001.psv; "
    "give the folder that holds both."
)


def convert(
    source: Source, *, iculos: bool = True, cohort: Cohort = "paper", limits: Limits | None = LIMITS
) -> Conversion:
    """The raw files as a table. Times are hours since the first row of a record.

    iculos: whether ICULOS, the hours in intensive care at the last row that is kept, is a static. It says how long the
    record is, which is a shortcut to the label; report with and without.
    cohort: "paper" excludes what the paper excludes; "all" keeps every record that has a row before its first positive
    one, however long.
    limits: values that cannot be, by sensor; readings outside are dropped. None keeps all.
    """
    check_choice(cohort, Cohort, "cohort")
    report = Report("P19")
    found = without_repeats(members(source, RECORD.fullmatch), report)
    tables = [_table(batch, cohort, limits, report) for batch in in_batches(found, COLUMNS, "|")]
    if not tables:
        raise nothing_found(source, "records of P19", LAYOUT)
    table = in_order_of_number(tables)
    if not len(table):
        raise DataError(f"None of the {report.read['files']:,} records belongs to the cohort.\n{LAYOUT}")
    empty = table.count == 0
    if empty.any():
        septic = int(table.samples["sepsis"].filter(pl.Series(empty)).sum())
        report.notes.append(
            f"{int(empty.sum()):,} samples of the cohort have no reading in the rows that are kept; {septic:,} of them "
            "are septic, so that having no reading gives the label away. Leave them out with table[table.count > 0]."
        )
    table = table.with_roles(statics=STATICS if iculos else STATICS[:-1])
    return Conversion.of(table, report)


def _table(batch: Records, cohort: Cohort, limits: Limits | None, report: Report) -> EventTable:
    """The readings and statics of some of the records."""
    rows = batch.frame()
    report.saw("files", len(batch.members))
    report.saw("rows", len(rows))
    batch.refuse_rows(rows, ~rows["SepsisLabel"].is_in([0.0, 1.0]), "SepsisLabel is neither 0 nor 1")
    batch.refuse_rows(rows, ~rows["ICULOS"].is_finite(), "ICULOS is not a number")
    observed = pl.any_horizontal(pl.col(SENSORS).is_not_nan())
    positive = pl.col("SepsisLabel") == 1
    rows = rows.with_columns(observed=observed, late=positive.cum_max().over("file"))
    whole = _whole(rows, batch)
    kept = rows.filter(~pl.col("late"))
    samples = whole.join(_last(kept), on="file", how="left", maintain_order="left").with_columns(
        pl.col("rows_kept").fill_null(0)
    )
    samples = _cohort(samples, cohort, report)
    kept = kept.join(samples.select("file", "sample", "first_hour"), on="file", how="inner", maintain_order="left")
    late = int(rows.join(samples, on="file", how="semi")["late"].sum())
    report.count("at or after the first positive label", late, "rows")
    report.count("of an excluded sample", len(rows) - len(kept) - late, "rows")
    events = drop_impossible(_readings(kept), limits, report)
    return EventTable.from_frames(
        events, samples.drop("file", "first_hour", "observed"), label="sepsis", sensors=SENSORS, source="P19"
    )


def _readings(kept: pl.DataFrame) -> pl.DataFrame:
    """One row per value that was observed."""
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


def _whole(rows: pl.DataFrame, batch: Records) -> pl.DataFrame:
    """What the whole record says: its label, whether anything was ever observed, its constant statics."""
    constant = STATICS[:-1]
    about = rows.group_by("file", maintain_order=True).agg(
        pl.col("SepsisLabel").max().cast(pl.Int8).alias("sepsis"),
        pl.col("observed").any(),
        pl.col("ICULOS").first().alias("first_hour"),
        pl.col("ICULOS").diff().le(0).any().alias("disordered"),
        *(pl.col(name).first().fill_nan(None) for name in constant),
    )
    if about["disordered"].any():
        at = batch.members[about.filter("disordered")["file"][0]]
        raise DataError(f"{at.where}: the hours (ICULOS) do not ascend.\nThis file is damaged; download it again.")
    record = [RECORD.fullmatch(member.name)[1] for member in batch.members]  # type: ignore[index]
    sets = [found[-1] if (found := re.findall(r"set([AB])\b", m.where)) else None for m in batch.members]
    names = pl.DataFrame(
        {
            "file": np.arange(len(record), dtype=np.int32),
            "sample": [str(int(number)) for number in record],
            "set": pl.Series(sets, dtype=pl.String),
        }
    )
    return names.join(about.drop("disordered"), on="file", how="left", maintain_order="left")


def _last(kept: pl.DataFrame) -> pl.DataFrame:
    """How many rows are kept of a record, and the hour of the last: nothing of what comes after it is told."""
    return kept.group_by("file", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("rows_kept"), pl.col("ICULOS").last()
    )


def _cohort(samples: pl.DataFrame, cohort: Cohort, report: Report) -> pl.DataFrame:
    """The samples that stay; each exclusion is counted with its reason."""
    exclusions = {
        "no row before the first positive label": pl.col("rows_kept") == 0,
        f"more than {MOST_ROWS} rows": pl.col("rows_kept") > MOST_ROWS,
        "no reading in the whole record": ~pl.col("observed"),
        "no HospAdmTime": pl.col("HospAdmTime").is_null(),
    }
    for number, (reason, excluded) in enumerate(exclusions.items()):
        if cohort == "paper" or number == 0:
            stay = samples.filter(~excluded.fill_null(True))
            report.count(f"{reason}, excluded", len(samples) - len(stay), "samples")
            samples = stay
    return samples
