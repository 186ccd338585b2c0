"""Long samples and many sensors: what holds, how long it takes and how much memory, by model.

    python benchmarks/long_and_wide.py --models raindrop transformer --cases 1000000x3 100x1000 100x10000

A case is timestamps x sensors: 4 samples (--samples) with so many timestamps, one reading each. Each is trained for one
epoch (trees: 20 rounds) and scored in a process of its own. "cells" is the largest number that `Collator.cells` gives
for one sample; memory is the peak above the imports.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

RUN = """
import sys
import numpy as np
import polars as pl
import raindrop as rd
from raindrop.batch.collate import Collator
times, sensors, model, preset, fit = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5] == "fit"
rng, samples = np.random.default_rng(0), int(sys.argv[6])
count = np.full(samples, times)
table = rd.EventTable(
    time=np.tile(np.arange(times, dtype=np.float64), samples),
    sensor=rng.integers(0, sensors, samples * times).astype(np.int32),
    value=rng.normal(size=samples * times),
    start=np.cumsum(count) - count, count=count, sensors=tuple(f"s{at}" for at in range(sensors)),
    samples=pl.DataFrame({"sample": [str(at) for at in range(samples)], "label": [at % 2 for at in range(samples)]}),
    roles=rd.table.store.Roles(label="label"),
)
import warnings; warnings.simplefilter("ignore")
settings = {"train.epochs": 1, "train.min_steps": 0, "train.soft_targets": 0.0, "train.holdout": 0.0}
settings = {"model.rounds": 20} if model == "trees" else settings | {"train.batch_size": 2}
if fit:
    estimator = rd.Classifier(model, preset=preset, config=settings).fit(table)
    collator = Collator(table, estimator.scaler_)
    print(int(collator.cells(np.arange(1))[0]))
    print(estimator.predict_proba(table).shape)
"""


def measured(words: list[str]) -> tuple[str, float, list[str], bool]:
    """Wall and processor seconds, peak MB, what was printed, and whether it succeeded."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", RUN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = process.stdout.read().decode(), process.stderr.read().decode()  # type: ignore[union-attr]
    _, status, used = os.wait4(process.pid, 0)
    lines = (out if status == 0 else errors).strip().splitlines()
    seconds = f"{time.monotonic() - started:,.1f} | {used.ru_utime + used.ru_stime:,.1f}"
    return seconds, used.ru_maxrss / 1024, lines, status == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["raindrop"])
    parser.add_argument("--preset", default="tuned")
    parser.add_argument("--cases", nargs="+", default=["100000x3", "1000000x3", "100x1000", "100x10000"])
    parser.add_argument("--samples", default="4")
    given = parser.parse_args()
    print("| model | timestamps | sensors | million cells | seconds | processor seconds | MB | bytes per cell |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for model in given.models:
        for case in given.cases:
            times, sensors = case.split("x")
            base = measured([times, sensors, model, given.preset, "no", given.samples])[1]
            seconds, peak, lines, succeeded = measured([times, sensors, model, given.preset, "fit", given.samples])
            if not succeeded:
                print(f"| {model} | {int(times):,} | {int(sensors):,} | {' '.join(lines[-2:])[:400]} |", flush=True)
                continue
            cells, above = int(lines[0]), peak - base
            print(
                f"| {model} | {int(times):,} | {int(sensors):,} | {cells / 1e6:,.1f} | {seconds} | {above:,.0f} | "
                f"{above * 2**20 / cells:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
