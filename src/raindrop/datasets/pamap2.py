"""PAM: PAMAP2 physical activity monitoring in windows of six seconds, with readings removed at random.

There is one `.dat` file per subject (`Protocol/subject101.dat`, 54 columns at 100 Hz). The windows follow the
paper's description; the readings of the authors' own windows are not published. See docs/data_pam.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePath
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.datasets.archives import Member, read_members, skip_repeats
from raindrop.datasets.conversion import Conversion, Report, Source, concatenate, no_files_error
from raindrop.datasets.publishers import Publication, Remote, author_splits
from raindrop.datasets.records import Records
from raindrop.errors import DataError, check_choice
from raindrop.table.event_table import EventTable
from raindrop.table.split_files import Split

Unit = Literal["hand", "chest", "ankle"]
RATE = 100
TRANSIENT = 0
ACTIVITIES = {
    1: "lying", 2: "sitting", 3: "standing", 4: "walking", 5: "running", 6: "cycling", 7: "Nordic walking",
    9: "watching TV", 10: "computer work", 11: "car driving", 12: "ascending stairs", 13: "descending stairs",
    16: "vacuum cleaning", 17: "ironing", 18: "folding laundry", 19: "house cleaning", 20: "playing soccer",
    24: "rope jumping",
}  # fmt: skip
QUANTITIES = (
    "temperature", "acc16_x", "acc16_y", "acc16_z", "acc6_x", "acc6_y", "acc6_z", "gyro_x", "gyro_y", "gyro_z",
    "mag_x", "mag_y", "mag_z", "orientation_1", "orientation_2", "orientation_3", "orientation_4",
)  # fmt: skip
UNITS: tuple[Unit, ...] = ("hand", "chest", "ankle")
COLUMNS = dict.fromkeys(
    ("time", "activity", "heart_rate", *(f"{unit}_{quantity}" for unit in UNITS for quantity in QUANTITIES)), pl.Float64
)
RECORD = re.compile(r"subject(\d+)\.dat")
LAYOUT = (
    "PAMAP2 is published as PAMAP2_Dataset/Protocol/subject101.dat to subject109.dat; "
    "give the archive, or the folder that holds them."
)
PUBLICATION = Publication(
    title="PAMAP2 physical activity monitoring (PAM)",
    files=(
        Remote(
            "https://archive.ics.uci.edu/static/public/231/pamap2+physical+activity+monitoring.zip",
            "pamap2.zip",
            sha256="76b3580bd5a804121f507717cb498c66a312ef5c774f4a78ac470e6558add352",
        ),
    ),
    splits=author_splits("PAMdata/splits/PAM_split_{}.npy"),
    licence="Creative Commons Attribution 4.0; the splits: MIT",
    page="https://archive.ics.uci.edu/dataset/231/pamap2+physical+activity+monitoring",
    megabytes=690,
    citation="Reiss, Stricker: Introducing a new benchmarked dataset for activity monitoring (ISWC 2012)",
)


def convert(
    source: Source,
    *,
    unit: Unit = "hand",
    steps: int = 600,
    overlap: float = 0.5,
    keep: float = 0.4,
    seed: int = 0,
    min_windows: int = 500,
    min_seconds: float = 600.0,
) -> Conversion:
    """PAMAP2: windows of body-worn sensors, labelled with activities; also makes five splits by subject.

    Times are seconds since the start of the window.

    Args:
        source: the published archive, or a folder with Protocol/subject101.dat to subject109.dat.
        unit: which of the three inertial units; the paper uses one, with all its 17 values.
        steps: length of a window in steps of 10 ms.
        overlap: share of a window that the next one has in common with it.
        keep: share of the readings to keep, chosen at random.
        seed: seed of that random choice; the choice for a subject is independent of the other subjects.
        min_windows: activities with fewer windows in total are left out.
        min_seconds: subjects with less time in named activities are left out.
    """
    check_choice(unit, Unit, "unit")
    stride = round(steps * (1 - overlap))
    if steps < 1 or stride < 1 or not 0 < keep <= 1:
        raise DataError(
            f"steps={steps}, overlap={overlap:g} and keep={keep:g} cannot be combined: "
            "a window has at least one step, starts at least one step after the last, and keeps some of its readings."
        )
    report = Report("PAM")
    tables: dict[int, EventTable] = {}
    for member in skip_repeats(_protocol_files(source, report), report):
        number = int(RECORD.fullmatch(member.name)[1])  # type: ignore[index]
        rows = _parse_subject(member, unit, report)
        seconds = float((rows["activity"] != TRANSIENT).sum()) / RATE
        if seconds < min_seconds:
            report.count(f"subject {number} has only {seconds:.0f} s of named activities, excluded", 1, "files")
            continue
        rng = np.random.default_rng([seed, number])
        table = _windows(rows, str(number), steps, stride, keep, rng, report)
        if table is not None:
            tables[number] = table
    if not report.read:
        raise no_files_error(source, "files of PAMAP2", LAYOUT)
    if not tables:
        raise DataError(f"No subject has a window of {steps} steps within one activity.\n{report}")
    table = _drop_rare_activities(concatenate([tables[number] for number in sorted(tables)]), min_windows, report)
    return Conversion.from_table(table, report, _splits_by_subject(table))


def _splits_by_subject(table: EventTable) -> dict[int, Split]:
    """Five random splits; none of fewer than three subjects. The published splits are of the authors' own windows."""
    if table.samples["subject"].n_unique() < 3:
        return {}
    return {number: Split.from_tables(table.split(seed=number)) for number in range(1, 6)}


def _protocol_files(source: Source, report: Report) -> Iterator[Member]:
    """The files of the protocol, without those of optional activities in a second folder under the same names."""
    for member in read_members(source, RECORD.fullmatch):
        if "Optional" in PurePath(member.path).parts:
            report.count("optional activities, not part of the protocol", 1, "files")
        else:
            yield member


def _parse_subject(member: Member, unit: Unit, report: Report) -> pl.DataFrame:
    records = Records(COLUMNS, " ", has_header=False)
    records.add(member)
    rows = records.frame()
    report.count_read("files", 1)
    report.count_read("rows", len(rows))
    known = rows["activity"].is_in([float(number) for number in (TRANSIENT, *ACTIVITIES)])
    records.reject_rows(rows, ~known, "the second column is not a known activity")
    records.reject_rows(rows, ~rows["time"].is_finite(), "the first column is not a time")
    records.reject_rows(rows, (rows["time"].diff() <= 0).fill_null(False), "the times do not ascend")
    return rows.select("time", pl.col("activity").cast(pl.Int64), *(f"{unit}_{name}" for name in QUANTITIES))


def _windows(
    rows: pl.DataFrame, subject: str, steps: int, stride: int, keep: float, rng: np.random.Generator, report: Report
) -> EventTable | None:
    """The windows of one subject, each within one activity and without a gap in time; None if there are none."""
    sensors = rows.columns[2:]
    time, activity = rows["time"].to_numpy(), rows["activity"].to_numpy()
    start = _window_starts(time, activity, steps, stride)
    inside = np.zeros(len(rows), dtype=bool)
    at = start[:, None] + np.arange(steps)  # (windows, steps)
    inside[at] = True
    named = activity != TRANSIENT
    report.count("between activities (transient)", int((~named).sum()), "rows")
    report.count("left over where an activity ends or breaks off", int((named & ~inside).sum()), "rows")
    if not len(start):
        return None
    value = rows.select(sensors).to_numpy()[at]  # (windows, steps, sensors)
    observed = ~np.isnan(value)
    kept = observed & (rng.random(value.shape, dtype=np.float32) < keep)
    report.count("NaN, not measured", int((~observed).sum()), "readings")
    report.count(f"removed at random ({1 - keep:.0%})", int(observed.sum() - kept.sum()), "readings")
    window, step, sensor = np.nonzero(kept)
    ids = pl.Series([f"{subject}-{number}" for number in range(len(start))])
    samples = pl.DataFrame(
        {
            "sample": ids,
            "activity": [ACTIVITIES[number] for number in activity[start]],
            "subject": [subject] * len(start),
            "start": time[start],
        }
    )
    events = pl.DataFrame(
        {
            "sample": ids.gather(window),
            "time": np.round(time[at[window, step]] - time[start][window], 4),
            "sensor": pl.Series(sensors).gather(sensor),
            "value": value[kept],
        }
    )
    return EventTable.from_frames(
        events, samples, label="activity", group="subject", sensors=sensors, time_unit="seconds", source="PAM"
    )


def _window_starts(
    time: NDArray[np.float64], activity: NDArray[np.int64], steps: int, stride: int
) -> NDArray[np.int64]:
    """The first row of each window: every `stride` rows of a run of one activity, as long as a window fits."""
    is_border = (np.diff(activity) != 0) | (np.diff(time) > 1.5 / RATE)
    borders = np.concatenate([[0], np.flatnonzero(is_border) + 1, [len(activity)]])
    starts = [
        np.arange(begin, end - steps + 1, stride)
        for begin, end in pairwise(borders)
        if begin < end and activity[begin] != TRANSIENT
    ]
    return np.concatenate([np.empty(0, dtype=np.int64), *starts])


def _drop_rare_activities(table: EventTable, min_windows: int, report: Report) -> EventTable:
    """Drop activities with too few windows and windows without a reading; number the rest in order."""
    counts = dict(table.samples.group_by("activity").len().iter_rows())
    rare = sorted(activity for activity, number in counts.items() if number < min_windows)
    for activity in rare:
        reason = f"'{activity}' has fewer than {min_windows:,} windows, excluded"
        report.count(reason, counts[activity], "samples")
    common = ~table.samples["activity"].is_in(rare).to_numpy()
    empty = common & (table.count == 0)
    report.count("no reading left in the window, excluded", int(empty.sum()), "samples")
    table = table[common & ~empty]
    if not len(table):
        available = ", ".join(f"{activity} {number:,}" for activity, number in sorted(counts.items()))
        raise DataError(
            f"No activity has {min_windows:,} windows (there are: {available}).\nAsk for fewer with min_windows."
        )
    number = pl.Series("sample", [str(number) for number in range(len(table))])
    return replace(table, samples=table.samples.with_columns(number))
