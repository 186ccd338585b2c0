"""Make files in the published layouts, and pack them."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

P12_STATICS = {"Age": 54, "Gender": 0, "Height": 170, "ICUType": 4, "Weight": 80}
P19_HEADER = (
    "HR|O2Sat|Temp|SBP|MAP|DBP|Resp|EtCO2|BaseExcess|HCO3|FiO2|pH|PaCO2|SaO2|AST|BUN|Alkalinephos|Calcium|Chloride|"
    "Creatinine|Bilirubin_direct|Glucose|Lactate|Magnesium|Phosphate|Potassium|Bilirubin_total|TroponinI|Hct|Hgb|PTT|"
    "WBC|Fibrinogen|Platelets|Age|Gender|Unit1|Unit2|HospAdmTime|ICULOS|SepsisLabel"
)
P19_COLUMNS = P19_HEADER.split("|")


def p12_record(number: int, rows: Iterable[str] = (), **statics: object) -> str:
    """The text of a P12 record: statics at 00:00, then `rows`."""
    about = {"RecordID": number, **P12_STATICS, **statics}
    lines = [f"00:00,{name},{value}" for name, value in about.items()]
    return "\n".join(["Time,Parameter,Value", *lines, *rows]) + "\n"


def p12_outcomes(*rows: str) -> str:
    """The text of a P12 table of outcomes."""
    return "\n".join(["RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death", *rows]) + "\n"


def p19_record(rows: Iterable[dict[str, object]], first_hour: int = 1, **statics: object) -> str:
    """The text of a P19 record: a row per hour."""
    lines = ["|".join(P19_COLUMNS)]
    about = {"Age": 60, "Gender": 1, "Unit1": "NaN", "Unit2": "NaN", "HospAdmTime": -2.5, "SepsisLabel": 0, **statics}
    for hour, row in enumerate(rows):
        values = {**dict.fromkeys(P19_COLUMNS, "NaN"), **about, "ICULOS": first_hour + hour, **row}
        lines.append("|".join(str(values[name]) for name in P19_COLUMNS))
    return "\n".join(lines) + "\n"


def pam_subject(runs: Iterable[tuple[int, int]], *, missing: slice = slice(0), seed: int = 0) -> str:
    """The text of a PAMAP2 subject: runs of (activity, rows) at 100 Hz; `missing` rows have no hand readings."""
    activity = np.concatenate([np.full(rows, number) for number, rows in runs])
    values = np.random.default_rng(seed).normal(size=(len(activity), 52)).round(4).astype(object)
    values[missing, 1:18] = "NaN"
    values[1::10, 0] = "NaN"
    return "".join(
        f"{8.38 + row / 100:.2f} {activity[row]} {' '.join(str(v) for v in values[row])}\n"
        for row in range(len(activity))
    )


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Write files by relative path."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def pack(folder: Path, archive: Path) -> Path:
    """Pack a folder as a zip or tar file, by the suffix of the name."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in files:
                packed.write(path, path.relative_to(folder))
    else:
        kind = {"gz": "gz", "tgz": "gz", "xz": "xz", "tar": ""}[archive.name.rsplit(".", 1)[-1]]
        with tarfile.open(archive, f"w:{kind}") as tar:
            for path in files:
                tar.add(path, path.relative_to(folder))
    return archive
