"""Filling, forecasting and exporting a table whole and block by block: processor time, peak memory, the same rows.

    python benchmarks/block_memory.py [--samples 20000] [--readings 100] [--block 100000]

A random table (4 sensors) is written to disk. Each step runs in a process of its own, once with bounds that make the
table small, so that it is worked on whole, and once with blocks of so many readings. Simple baselines predict, because
the memory is about the rows and not about the network. Memory is the peak above what the process has when it starts.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from raindrop import EventTable, Forecaster, Imputer

STEPS = ("impute apply", "forecast apply", "export-table parquet", "export-table wide")
RUN = """
import re, sys, time
from pathlib import Path
from raindrop import EventTable, load
from raindrop.table import blocks, parts
from raindrop.table.export import export
from raindrop.table.growing_table import write_filled
from raindrop.table.readings import write_readings
step, folder, out, block = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
blocks.LARGE, blocks.BLOCK, parts.BLOCK = (2 * block, block, block) if block else (1 << 40, 1 << 22, 1 << 22)
model = load(folder / step.split()[0]) if "apply" in step else None
table = EventTable.read(folder / "data")
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
before, began = peak(), time.process_time()
if step == "impute apply":
    write_filled(table, model.gap_blocks(table), folder=out / "filled", readings=out / "rows.parquet")
elif step == "forecast apply":
    write_readings(model.grid_blocks(table, 6.0), out / "rows.parquet")
else:
    kind = step.split()[1]
    export(table, out / ("rows.parquet" if kind == "parquet" else "rows.csv"), kind)
print(time.process_time() - began, peak() - before)
"""


def random_events(samples: int, readings: int) -> EventTable:
    """Readings of four sensors at random times within 48 hours."""
    rng = np.random.default_rng(0)
    count = np.full(samples, readings)
    return EventTable(
        time=np.sort(rng.uniform(0, 48, (samples, readings)), axis=1).ravel(),
        sensor=rng.integers(0, 4, samples * readings).astype(np.int32),
        value=rng.normal(size=samples * readings),
        start=np.cumsum(count) - count,
        count=count,
        sensors=("a", "b", "c", "d"),
        samples=pl.DataFrame({"sample": np.arange(samples).astype(str)}),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--readings", type=int, default=100)
    parser.add_argument("--block", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = random_events(given.samples, given.readings)
        table.write(folder / "data")
        Imputer("linear").fit(table[:500]).save(folder / "impute")
        Forecaster("last", horizon=24.0, cutoff=24.0).fit(table[:500]).save(folder / "forecast")
        print(f"{table}, blocks of {given.block:,} readings", flush=True)
        print("| step | processor seconds, whole | in blocks | peak MB, whole | in blocks | rows | same rows |")
        print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
        for step in STEPS:
            found = []
            for block in (0, given.block):
                out = folder / f"{step}-{block}"
                out.mkdir()
                words = [sys.executable, "-c", RUN, step, str(folder), str(out), str(block)]
                seconds, peak = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
                found.append((float(seconds), float(peak), *content(out)))
            (seconds, peak, rows, whole), (in_blocks, low_peak, _, blocks) = found
            same = "yes" if whole == blocks else "NO"
            print(
                f"| {step} | {seconds:.1f} | {in_blocks:.1f} | {peak:,.0f} | {low_peak:,.0f} | {rows:,} | {same} |",
                flush=True,
            )


def content(out: Path) -> tuple[int, list[str]]:
    """The number of rows that were written, and hashes of all of them."""
    (path,) = out.glob("rows.*")
    frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)
    hashes = [hashlib.sha256(frame.hash_rows().to_numpy().tobytes()).hexdigest()]
    return len(frame), hashes + [EventTable.read(folder).fingerprint for folder in out.glob("filled")]


if __name__ == "__main__":
    main()
