"""Tables larger than memory: time and peak memory of each step, from shuffled files to predictions.

    python benchmarks/out_of_core.py 2 20 --folder FOLDER

makes so many million events (50 per sample, ten sensors, two classes) as Parquet (or CSV) files in which the readings
of all samples are shuffled, and runs each step in its own process: prepare, inspect, train (one epoch, small layers),
predict (one process). Memory is the largest resident size of the process less that of one that only imports the same
modules.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

READINGS = 50  # of a sample
SENSORS = 10
FILES = 10  # for each 20 million events
IMPORTS = {
    "prepare": "import raindrop.cli.app, raindrop.table.prepare",
    "inspect": "import raindrop.cli.app, raindrop.table.overview, sklearn.ensemble",
    "train": "import raindrop.cli.app, raindrop.estimators",
    "predict": "import raindrop.cli.app, raindrop.estimators",
}
TRAIN = "--model {model} --preset {preset} --set train.epochs=1 train.batch_size=2048 train.checkpoint_minutes=60"
ONE, LAST = ["--processes", "1"], ["--duplicates", "last"]  # a few times of hundreds of millions are the same
SMALL_LAYERS = {"time_dim": 4, "receiver_dim": 4, "attention_dim": 4, "sensor_dim": 4, "hidden": 8}  # of raindrop


def make(folder: Path, millions: float, kind: str, seed: int = 0) -> None:
    """Files of readings in which every file has some readings of every sample, in random order, and the labels.

    A reading of sample i is at a time of 0 to 48 hours; sensor 3 is higher in samples of class 1.
    """
    events = round(millions * 1_000_000)
    samples, files = events // READINGS, max(FILES, round(FILES * millions / 20))
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, samples)
    folder.mkdir(parents=True)
    done = 0
    for number in range(files):
        rank = np.arange(READINGS)[number * READINGS // files : (number + 1) * READINGS // files]
        if files > READINGS:  # several files share a rank: each has a part of the samples
            share = files // READINGS
            rank = np.array([number // share])
            chosen = np.arange(samples)[number % share :: share]
        else:
            chosen = np.arange(samples)
        sample = rng.permutation(np.repeat(chosen, len(rank)))
        sensor = rng.integers(0, SENSORS, len(sample))
        hours = np.round(rng.uniform(0, 48, len(sample)), 6)
        value = rng.normal(sensor, 1.0) + 0.5 * label[sample] * (sensor == 3)
        frame = pl.DataFrame({"sample": sample, "time": hours, "sensor": sensor, "value": value})
        frame = frame.with_columns(pl.format("s{}", "sensor").alias("sensor"))
        if kind == "csv":
            frame.write_csv(folder / f"events-{number:03d}.csv")
        else:
            frame.write_parquet(folder / f"events-{number:03d}.parquet", row_group_size=1 << 20)
        done += len(frame)
    pl.DataFrame({"sample": np.arange(samples), "label": label}).write_parquet(folder / "samples.parquet")
    print(f"{done:,} events of {samples:,} samples in {files} files", flush=True)


def measured(words: list[str]) -> tuple[float, float, float]:
    """Wall time and processor time in seconds, and peak memory in MB, of a Python process."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(words[:12])}")
    return time.monotonic() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def steps(folder: Path, model: str, preset: str) -> dict[str, list[str]]:
    """The commands, by name."""
    files = sorted(str(path) for path in (folder / "raw").iterdir())
    data, run = str(folder / "data"), str(folder / "run")
    command = ["-m", "raindrop"]
    train = TRAIN.format(model=model, preset=preset).split()
    if model == "raindrop":
        train += [f"model.{name}={size}" for name, size in SMALL_LAYERS.items()]
    return {
        "prepare": [*command, "prepare", *files, "--out", data, "--label", "label", *LAST],
        "inspect": [*command, "inspect", data],
        "train": [*command, "train", data, "--out", run, *train],
        "predict": [*command, "predict", run, data, "--out", str(folder / "predictions.parquet"), *ONE],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millions", nargs="+", type=float)
    parser.add_argument("--folder", type=Path, required=True, help="for data that are deleted again")
    parser.add_argument("--model", default="raindrop")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--format", choices=["parquet", "csv"], default="parquet")
    parser.add_argument("--keep", action="store_true", help="do not delete the table and the run")
    parser.add_argument("--steps", nargs="+", default=["prepare", "inspect", "train", "predict"])
    given = parser.parse_args()
    imports = {name: measured(["-c", words])[2] for name, words in IMPORTS.items()}
    print("imports alone, MB:", {name: round(memory) for name, memory in imports.items()}, flush=True)
    print("| million events | step | seconds | processor seconds | peak MB above the imports |", flush=True)
    print("| --- | --- | --- | --- | --- |", flush=True)
    results = []
    for millions in given.millions:
        folder = given.folder / f"{millions:g}"
        make(folder / "raw", millions, given.format)
        for name, words in steps(folder, given.model, given.preset).items():
            if name in given.steps:
                seconds, processor, memory = measured(words)
                above = memory - imports[name]
                results.append({"millions": millions, "step": name, "seconds": seconds, "mb": above})
                print(f"| {millions:g} | {name} | {seconds:,.1f} | {processor:,.1f} | {above:,.0f} |", flush=True)
        size = sum(path.stat().st_size for path in (folder / "data").rglob("*") if path.is_file())
        print(f"the table takes {size / 1e6:,.0f} MB of disk", flush=True)
        shutil.rmtree(folder / "raw")
        if not given.keep:
            shutil.rmtree(folder)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
