"""Ten shapes of data as people have them, made by code: the same story in each, with what one command needs to read it.

24 machines, half of which are "worn": their vibration is higher, and it rises. Readings are at uneven times.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

START = dt.datetime(2024, 1, 31, 8)
MACHINES = [f"m{at:02}" for at in range(24)]


@dataclass(frozen=True)
class Shape:
    """How to write the files, what to give to `raindrop import`, and what must be in the table."""

    write: Callable[[Path], list[str]]
    """Writes files into a folder and returns the arguments of `raindrop import`, without --out."""
    samples: int = 24
    sensors: tuple[str, ...] = ("temp", "vib")
    labelled: bool = True
    notices: tuple[str, ...] = ()
    """Words that the notices must have."""


def readings() -> pl.DataFrame:
    """machine, hours, name, x: about 20 readings for each of 24 machines."""
    rng = np.random.default_rng(7)
    rows = []
    for at, machine in enumerate(MACHINES):
        worn = at % 2
        for name, mean in (("temp", 60.0), ("vib", 1.0 + 2 * worn)):
            hours = np.sort(rng.choice(np.arange(1, 96), 10, replace=False)) / 4
            hours[0] = 0.0
            values = mean + rng.normal(0, 0.3, 10) + (0.1 * worn * hours if name == "vib" else 0)
            rows += [(machine, float(h), name, round(float(v), 3)) for h, v in zip(hours, values, strict=True)]
    return pl.DataFrame(rows, schema=["machine", "hours", "name", "x"], orient="row")


def outcomes(column: str = "machine") -> pl.DataFrame:
    return pl.DataFrame({column: MACHINES, "state": ["worn" if at % 2 else "fine" for at in range(24)]})


def wide(time: pl.Expr) -> pl.DataFrame:
    frame = readings().with_columns(time.alias("when")).pivot("name", index=["machine", "when"], values="x")
    return frame.join(outcomes(), on="machine").sort("machine", "when")


def moments() -> pl.Expr:
    return pl.lit(START) + pl.duration(minutes=pl.col("hours") * 60)


def grid() -> tuple[np.ndarray, np.ndarray]:
    """(24, 96, 2) with NaN, quarters of hours; and the labels."""
    values = np.full((24, 96, 2), np.nan)
    for machine, hours, name, x in readings().iter_rows():
        values[MACHINES.index(machine), round(hours * 4), ("temp", "vib").index(name)] = x
    return values, np.arange(24) % 2


def long_csv(folder: Path) -> list[str]:
    readings().write_csv(folder / "log.csv")
    outcomes().write_csv(folder / "samples.csv")
    columns = ["--sample", "machine", "--time", "hours", "--sensor", "name", "--value", "x", "--label", "state"]
    return [str(folder / "log.csv"), str(folder / "samples.csv"), *columns]


def semicolon_csv(folder: Path) -> list[str]:
    frame = readings().join(outcomes(), on="machine")
    with open(folder / "werte.csv", "w", encoding="cp1252") as file:
        file.write("Maschine;Zeit;Größe;Wert;Zustand\n")
        for machine, hours, name, x, state in frame.iter_rows():
            moment = START + dt.timedelta(hours=hours)
            file.write(f"{machine};{moment:%d.%m.%Y %H:%M};{name};{str(x).replace('.', ',')};{state}\n")
    columns = ["--sample", "Maschine", "--time", "Zeit", "--sensor", "Größe", "--value", "Wert", "--label", "Zustand"]
    return [str(folder / "werte.csv"), *columns]


def wide_csv(folder: Path) -> list[str]:
    wide(moments().dt.strftime("%Y-%m-%d %H:%M:%S")).write_csv(folder / "wide.csv", null_value="NA")
    return [str(folder / "wide.csv"), "--wide", "--sample", "machine", "--time", "when", "--label", "state"]


def epoch_csv(folder: Path) -> list[str]:
    stamp = (moments().dt.epoch("ms")).alias("time")
    frame = readings().select(pl.col("machine").alias("sample"), stamp, pl.col("name").alias("sensor"), value="x")
    (folder / "epoch").mkdir()
    frame.write_csv(folder / "epoch" / "events.csv")
    outcomes("sample").rename({"state": "label"}).write_csv(folder / "epoch" / "samples.csv")
    return [str(folder / "epoch")]


def parquet_parts(folder: Path) -> list[str]:
    frame = readings().with_columns(moments().alias("hours"))
    frame[:200].write_parquet(folder / "part1.parquet")
    frame[200:].write_parquet(folder / "part2.parquet")
    outcomes().write_parquet(folder / "machines.parquet")
    columns = ["--sample", "machine", "--time", "hours", "--sensor", "name", "--value", "x", "--label", "state"]
    return [
        *(str(folder / f"part{n}.parquet") for n in (1, 2)),
        "--samples-file",
        str(folder / "machines.parquet"),
        *columns,
    ]


def arrays_npz(folder: Path) -> list[str]:
    values, labels = grid()
    np.savez(folder / "arrays.npz", X=values, y=labels, times=np.arange(96) / 4, sensors=np.array(["temp", "vib"]))
    return [str(folder / "arrays.npz")]


def meds_folder(folder: Path) -> list[str]:
    """Two shards; predictions after 12 hours, so half of the readings must stay outside."""
    root = folder / "meds"
    (root / "data" / "train").mkdir(parents=True)
    (root / "metadata").mkdir()
    frame = readings().select(
        pl.col("machine").str.slice(1).cast(pl.Int64).alias("subject_id"),
        moments().cast(pl.Datetime("us")).alias("time"),
        pl.col("name").alias("code"),
        pl.col("x").cast(pl.Float32).alias("numeric_value"),
        pl.lit(None, dtype=pl.String).alias("text_value"),
    )
    for at, part in enumerate((frame.filter(pl.col("subject_id") < 12), frame.filter(pl.col("subject_id") >= 12))):
        part.sort("subject_id", "time").write_parquet(root / "data" / "train" / f"{at}.parquet")
    pl.DataFrame(
        {
            "subject_id": range(24),
            "prediction_time": [START + dt.timedelta(hours=12)] * 24,
            "boolean_value": [at % 2 == 1 for at in range(24)],
        }
    ).write_parquet(folder / "labels.parquet")
    splits = ["train"] * 16 + ["tuning"] * 4 + ["held_out"] * 4
    pl.DataFrame({"subject_id": range(24), "split": splits}).write_parquet(root / "metadata" / "subject_splits.parquet")
    return [str(root), "--labels", str(folder / "labels.parquet")]


def multi_index(folder: Path) -> list[str]:
    """As pandas writes a frame with the index (instance, time)."""
    multi_index_frame().to_csv(folder / "panel.csv")
    outcomes().write_csv(folder / "panel_labels.csv")
    about = ["--samples-file", str(folder / "panel_labels.csv"), "--label", "state"]
    return [str(folder / "panel.csv"), "--wide", "--sample", "machine", "--time", "when", *about]


def multi_index_frame() -> pd.DataFrame:
    return wide(pl.col("hours")).drop("state").to_pandas().set_index(["machine", "when"])


def states_csv(folder: Path) -> list[str]:
    """A log of states beside the numbers: pump on/off, mode idle/run/clean."""
    rng = np.random.default_rng(3)
    frame = readings().with_columns(pl.col("x").cast(pl.String))
    rows = [
        (machine, float(hour), name, str(rng.choice(texts)))
        for machine in MACHINES
        for name, texts in (("pump", ["on", "off"]), ("mode", ["idle", "run", "clean"]))
        for hour in range(1, 6)
    ]
    states = pl.DataFrame(rows, schema=frame.schema, orient="row")
    log = pl.concat([frame, states]).rename({"machine": "sample", "hours": "time", "name": "sensor", "x": "value"})
    log.join(outcomes("sample").rename({"state": "label"}), on="sample").write_csv(
        folder / "states.tsv", separator="\t"
    )
    return [str(folder / "states.tsv")]


def one_series(folder: Path) -> list[str]:
    """One station for ten days, no sample column, no label."""
    rng = np.random.default_rng(5)
    hours = np.sort(rng.uniform(0, 240, 300))
    temp = 60 + np.sin(hours / 4) + rng.normal(0, 0.1, 300)
    vib = np.where(rng.random(300) < 0.5, 1 + np.cos(hours / 4), np.nan)
    stamps = [START + dt.timedelta(hours=float(hour)) for hour in hours]
    frame = pl.DataFrame({"timestamp": stamps, "temp": temp.round(3), "vib": vib.round(3)})
    frame.with_columns(pl.col("vib").fill_nan(None)).write_csv(folder / "station.csv")
    return [str(folder / "station.csv"), "--wide", "--time", "timestamp"]


SHAPES = {
    "long CSV with other names": Shape(long_csv),
    "semicolons and decimal commas": Shape(
        semicolon_csv, notices=("separated by semicolons", "decimal comma", "day first", "cp1252", "'Zustand' taken")
    ),
    "wide CSV with dates": Shape(wide_csv, notices=("'state' taken",)),
    "epoch milliseconds": Shape(epoch_csv, notices=("read as milliseconds since 1970 (the first is 2024-01-31",)),
    "Parquet in parts": Shape(parquet_parts),
    "arrays": Shape(arrays_npz),
    "MEDS": Shape(meds_folder),
    "pandas MultiIndex": Shape(multi_index),
    "on/off and states": Shape(
        states_csv,
        sensors=("mode=clean", "mode=idle", "mode=run", "pump", "temp", "vib"),
        notices=("readings of 2 sensors are text ('mode', 'pump')", "separated by tabs"),
    ),
    "one long series": Shape(one_series, samples=1, labelled=False),
}
