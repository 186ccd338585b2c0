"""Forecasting P12 by t-PatchGNN's protocol (ICML 2024): the first 24 hours are seen, all later readings are asked for.

    python benchmarks/forecasting.py P12_FOLDER --models raindrop no-messages last mean --splits 1 2 3 4 5
    python benchmarks/forecasting.py P12_FOLDER --picture skill.svg       # from the finished rows

All 12,000 patients, 41 variables (the admission values too), readings at exact minutes, repeated ones averaged. Values
are min-max scaled by the patients that are not in the test part; the error is the mean over the readings of a variable,
then the mean over variables. Split 1 is scikit-learn's train_test_split with random_state=42 on sorted ids (80 % for
training, whose last quarter validates); the other splits use random_state 43, 44, ... Finished rows are not run again.
The picture shows by how much the model's error is smaller than that of the last value, for each variable.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import resource
import tarfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.model_selection import train_test_split

from raindrop.estimators import Forecaster
from raindrop.models.registry import QUERY_MODELS
from raindrop.table.event_table import EventTable
from raindrop.table.readings import Readings
from raindrop.training.progress import bar

CUTOFF, HORIZON = 24.0, 24.5  # hours; the last readings are at minute 2880
BEFORE = CUTOFF - 1 / 120  # a reading at hour 24 is asked for, not seen
SOME = 50_000  # readings on which the coverage of 95 % intervals is measured
AHEAD = (0.0, 6.0, 12.0, HORIZON)  # hours after the cutoff, between which coverage is measured too


def read_events(folder: Path) -> pl.DataFrame:
    """sample, time (hours), sensor, value of all patients of sets a, b and c."""
    parts = [frame for name in "abc" for frame in _records(folder / f"set-{name}.tar.xz")]
    rows = pl.concat(parts).filter(pl.col("sensor").is_not_null() & (pl.col("sensor") != "RecordID"))
    hours, minutes = (pl.col("time").str.split(":").list.get(at).cast(pl.Float64) for at in (0, 1))
    rows = rows.with_columns(time=hours + minutes / 60, value=pl.col("value").cast(pl.Float64))
    return rows.group_by("sample", "time", "sensor").agg(pl.col("value").mean()).sort("sample", "time", "sensor")


def _records(path: Path) -> Iterator[pl.DataFrame]:
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(path.read_bytes()))) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".txt") else None
            if content is not None:
                frame = pl.read_csv(content.read(), infer_schema=False)
                frame = frame.rename({"Time": "time", "Parameter": "sensor", "Value": "value"})
                yield frame.with_columns(sample=pl.lit(Path(member.name).stem))


def split(ids: list[str], number: int) -> tuple[list[str], list[str], list[str]]:
    """Training, validation and test patients of split 1, 2, ..."""
    seen, test = train_test_split(ids, train_size=0.8, random_state=41 + number, shuffle=True)
    train, validation = train_test_split(seen, train_size=0.75, random_state=100, shuffle=False)
    return train, validation, test


def protocol_errors(truth: pl.DataFrame, predicted: np.ndarray, seen: pl.DataFrame) -> pl.DataFrame:
    """sensor, mse, mae and readings of each variable over its readings, min-max scaled by `seen`."""
    limits = seen.group_by("sensor").agg(low=pl.col("value").min(), high=pl.col("value").max())
    scaled = truth.with_columns(predicted=pl.Series(predicted)).join(limits, on="sensor", how="left")
    width = pl.when(pl.col("high") > pl.col("low")).then(pl.col("high") - pl.col("low")).otherwise(1.0)
    error = (pl.col("predicted") - pl.col("value")) / width
    each = scaled.group_by("sensor").agg(mse=(error**2).mean(), mae=error.abs().mean(), readings=pl.len())
    return each.sort("sensor")


def run(events: pl.DataFrame, number: int, model: str, config: dict[str, object], seed: int, *, on: str) -> dict:
    """Fit a model on one split and judge it on the part `on`."""
    sensors = events["sensor"].unique().sort().to_list()
    ids = events["sample"].unique().sort().to_list()
    train, validation, test = split(ids, number)
    judged = test if on == "test" else validation

    def table(chosen: list[str]) -> EventTable:
        return EventTable.from_frames(events.filter(pl.col("sample").is_in(chosen)), sensors=sensors)

    started = time.monotonic()
    settings = config | ({"model.messages": False} if model == "no-messages" else {})
    name = "raindrop" if model == "no-messages" else model
    forecaster = Forecaster(name, horizon=HORIZON, cutoff=BEFORE, config=settings, seed=seed)
    forecaster.fit(table(train), validation=table(validation))
    seconds = time.monotonic() - started
    asked = events.filter(pl.col("sample").is_in(judged) & (pl.col("time") >= CUTOFF))
    started = time.monotonic()
    readings = forecaster.readings_at(table(judged), asked.select("sample", "time", "sensor"), coverage=0.8)
    answering = time.monotonic() - started
    some = asked.sample(min(len(asked), SOME), seed=0)
    wide = forecaster.readings_at(table(judged), some.select("sample", "time", "sensor"), coverage=0.95)
    each = protocol_errors(asked, readings.value, events.filter(~pl.col("sample").is_in(test)))
    covered = covered_by_hours_ahead(asked, readings), covered_by_hours_ahead(some, wide)
    return {
        "split": number,
        "model": model,
        "config": config,
        "seed": seed,
        "on": on,
        "mse_e3": round(1e3 * float(each["mse"].mean()), 3),  # type: ignore[arg-type]
        "mae_e2": round(1e2 * float(each["mae"].mean()), 3),  # type: ignore[arg-type]
        "coverage_80": covered[0].pop("all"),
        "coverage_95": covered[1].pop("all"),
        "coverage_80_by_hours_ahead": covered[0],
        "coverage_95_by_hours_ahead": covered[1],
        "readings": len(asked),
        "training_seconds": round(seconds, 1),
        "answering_seconds": round(answering, 1),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "mae_by_sensor": {row["sensor"]: round(row["mae"], 6) for row in each.iter_rows(named=True)},
    }


def covered_by_hours_ahead(asked: pl.DataFrame, readings: Readings) -> dict[str, float]:
    """The share of true readings inside their intervals: of "all", and of those so many hours after the cutoff."""
    value, ahead = asked["value"].to_numpy(), asked["time"].to_numpy() - CUTOFF
    inside = (readings.low <= value) & (value <= readings.high)
    shares = {"all": inside.mean()}
    for start, end in pairwise(AHEAD):
        shares[f"{start:g}-{end:g}"] = inside[(ahead >= start) & (ahead < end)].mean()
    return {name: round(float(share), 4) for name, share in shares.items()}


def picture(rows: list[dict], model: str, path: Path) -> None:
    """1 - error / error of the last value, for each variable; the mean over the splits that both have."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    matplotlib.rcParams["svg.hashsalt"] = "raindrop"
    import matplotlib.pyplot as plt

    found = {(row["model"], row["split"]): row["mae_by_sensor"] for row in rows if row["on"] == "test"}
    splits = sorted({split for name, split in found if name == model and ("last", split) in found})
    if not splits:
        raise SystemExit(f"There is no split with finished rows of {model} and of last.")
    errors = [
        np.mean([[found[name, split][sensor] for sensor in found[model, splits[0]]] for split in splits], axis=0)
        for name in (model, "last")
    ]
    skill = 1 - errors[0] / np.where(errors[1] > 0, errors[1], np.nan)
    order = np.argsort(np.nan_to_num(skill))
    names = np.array(list(found[model, splits[0]]))[order]
    figure, axes = plt.subplots(figsize=(7, 7.5), layout="constrained")
    axes.barh(names, 100 * np.nan_to_num(skill[order]), color=np.where(skill[order] < 0, "tab:red", "tab:blue"))
    axes.axvline(0, color="black", linewidth=0.8)
    axes.tick_params(axis="y", labelsize=7)
    axes.margins(y=0.01)
    axes.set_xlabel("mean absolute error below that of the last value, in %")
    axes.set_title(f"P12, 24 hours to 24 hours: {model} by variable ({len(splits)} split{'s'[: len(splits) > 1]})")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with set-a.tar.xz, set-b.tar.xz and set-c.tar.xz")
    parser.add_argument("--models", nargs="*", default=[], choices=[*QUERY_MODELS, "no-messages"])
    parser.add_argument("--splits", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--config", type=json.loads, default={}, help="settings of the models, as JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--on", choices=["validation", "test"], default="test")
    parser.add_argument("--out", type=Path, default=Path("forecasting.jsonl"))
    parser.add_argument("--picture", type=Path, default=None)
    parser.add_argument("--pictured", default="raindrop", help="the model of the picture")
    options = parser.parse_args()
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    cache = options.out.with_suffix(".events.parquet")
    if not options.models:
        events = pl.DataFrame()
    elif cache.exists():
        events = pl.read_parquet(cache)
    else:
        events = read_events(options.folder)
        events.write_parquet(cache)
    jobs = [(number, model) for number in options.splits for model in options.models]
    with bar(True, len(jobs), "jobs") as update:
        for at, (number, model) in enumerate(jobs):
            wanted = (number, model, options.config, options.seed, options.on)
            if wanted not in [(r["split"], r["model"], r["config"], r["seed"], r["on"]) for r in done]:
                row = run(events, number, model, options.config, options.seed, on=options.on)
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)
                done.append(row)
            update(at + 1, [])
    if options.picture is not None:
        picture(done, options.pictured, options.picture)


if __name__ == "__main__":
    main()
