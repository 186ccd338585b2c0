"""Small files in the published layouts, with the irregularities of the real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from published_layout import p12_outcomes, p12_record, p19_record, write


@pytest.fixture
def p12_files() -> dict[str, str]:
    """Five records in three sets, and their outcomes."""
    return {
        "set-a/132539.txt": p12_record(
            132539,
            [
                "00:07,HR,73",
                "00:07,Temp,35.1",
                "00:37,HR,77",
                "00:37,Weight,81",  # a static among the readings
                "48:00,HR,70",
            ],
            Height=-1,
            Gender=-1,
        ),
        "set-a/132540.txt": p12_record(
            132540,
            [
                "01:00,DiasABP,-1",  # not measured
                "01:00,DiasABP,60",
                "02:00,Urine,900",  # the same minute twice
                "02:00,Urine,30",
                "03:00,pH,735",  # impossible
                "03:00,pH,7.35",
            ],
            Weight=-1,
        ),
        "set-b/142675.txt": p12_record(142675, Height=13.0),  # no reading; a height in other units
        "set-b/142676.txt": "Time,Parameter,Value\n00:00,RecordID,142676\n00:00,HR,88\n00:00,Age,71\n00:00,Gender,1\n"
        "00:00,Height,160.5\n00:00,GCS,15\n00:00,ICUType,2\n00:00,Weight,70.8\n00:00,Weight,70.4\n01:30,GCS,14\n",
        "set-c/152871.txt": p12_record(152871, ["10:45,,1.9", "33:29,,1.7", "33:29,Na,140"]),
        "Outcomes-a.txt": p12_outcomes("132539,6,1,5,-1,0", "132540,16,8,3,-1,1"),
        "Outcomes-b.txt": p12_outcomes("142675,6,1,-1,-1,0", "142676,6,1,-1,-1,0"),
        "Outcomes-c.txt": p12_outcomes("152871,6,1,4,20,1"),
    }


@pytest.fixture
def p12_folder(tmp_path: Path, p12_files: dict[str, str]) -> Path:
    return write(tmp_path / "raw", p12_files)  # type: ignore[arg-type]


@pytest.fixture
def p19_files() -> dict[str, str]:
    """Records for every rule of the cohort."""
    calm = [{"HR": 80 + hour} for hour in range(4)]
    return {
        "training_setA/p000001.psv": p19_record(calm),
        "training_setA/p000002.psv": p19_record(  # septic from its third row; the first row is hour 5
            [{"HR": 90, "Temp": 36.5}, {"BaseExcess": -3}, {"HR": 99, "SepsisLabel": 1}, {"HR": 98, "SepsisLabel": 1}],
            first_hour=5,
        ),
        "training_setA/p000003.psv": p19_record([{"HR": 90, "SepsisLabel": 1}, {"HR": 91, "SepsisLabel": 1}]),
        "training_setA/p000004.psv": p19_record([{"HR": 70}] * 61),
        "training_setA/p000005.psv": p19_record([{"HR": 70}] * 60, Unit1=1, Unit2=0),
        "training_setB/p100006.psv": p19_record([{}] * 5),  # nothing observed
        "training_setB/p100007.psv": p19_record(calm, HospAdmTime="NaN"),
        "training_setB/p100008.psv": p19_record([{}, {"HR": 90, "SepsisLabel": 1}]),  # observed only when septic
        "training_setB/p100009.psv": p19_record([{"FiO2": 40, "HR": 0}, {"FiO2": 0.4}]),
    }


@pytest.fixture
def p19_folder(tmp_path: Path, p19_files: dict[str, str]) -> Path:
    return write(tmp_path / "raw", p19_files)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the published data; skips if there is none."""
    given = os.environ.get("RAINDROP_DATA")
    folder = Path(given) if given else Path(__file__).parents[2].parent / "shared" / "data"
    if not (folder / "p12").is_dir():
        pytest.skip(f"the published data are not at {folder}; set RAINDROP_DATA to their folder")
    return folder
