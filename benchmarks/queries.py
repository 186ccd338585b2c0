"""What filling a reading costs, as the number of readings, sensors and queries grows.

    python benchmarks/queries.py

Each row is a process of its own: one table with one sample, an untrained Raindrop with queries, seconds per training
step and to answer all queries, and the memory above that of the imports. "growth" is the time against the row before,
divided by the growth of what is varied: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

BASE = {"readings": 100_000, "sensors": 36, "queries": 4_000}
VARIED = {
    "readings": (50_000, 100_000, 200_000, 400_000, 800_000),
    "sensors": (10, 30, 100, 300, 1000),
    "queries": (1_000, 4_000, 16_000, 64_000),
}


def measure(readings: int, sensors: int, queries: int) -> dict[str, float]:
    import numpy as np
    import torch

    from raindrop.batch.gap_windows import GapWindows
    from raindrop.batch.gaps import Gaps, typical_intervals
    from raindrop.batch.scaling import Scaler
    from raindrop.batch.windows import QueryWindows, Windows
    from raindrop.models.base import DataSpec
    from raindrop.models.raindrop.queries import QueryConfig, RaindropQueries
    from raindrop.table.event_table import EventTable
    from raindrop.tasks.readings import ReadingsAt
    from raindrop.training.scoring import scores_of

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    sensor = np.arange(readings) % sensors
    time_ = np.arange(readings) // sensors + rng.uniform(0, 0.9, readings)
    names = [f"s{at:04d}" for at in range(sensors)]
    value = np.sin(time_ / 10 + sensor)
    table = EventTable.from_columns(np.full(readings, "a"), time_, np.array(names)[sensor], value, sensors=names)
    scaler, interval = Scaler.fit(table), typical_intervals(table)
    network = RaindropQueries(QueryConfig(), DataSpec(table.sensors, ReadingsAt(table.sensors)))
    windows = Windows.cut(table, float(np.median(interval)))
    training = GapWindows(table, scaler, windows, Gaps.learn(table, interval))
    network.prepare(training, None, 0)
    asked = (
        np.zeros(queries, dtype=np.int64),
        rng.integers(sensors, size=queries),
        rng.uniform(0, time_.max(), queries),
    )
    source = QueryWindows(table, scaler, float(np.median(interval)), asked)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    scores_of(network, source)
    answering = time.monotonic() - started
    batch = training.batch(np.arange(min(2, len(training))), rng=rng)
    started = time.monotonic()
    network(batch).scores.sum().backward()
    step = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "answering_seconds": round(answering, 3),
        "microseconds_per_query": round(1e6 * answering / queries, 1),
        "step_seconds": round(step, 3),
        "queries_per_step": len(batch.queries or ()),
        "megabytes": round((after - before) / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(**options.one)))
        return
    for name, values in VARIED.items():
        last = None
        for value in values:
            size = BASE | {name: value}
            command = [sys.executable, __file__, "--one", json.dumps(size)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
            row = json.loads(done.stdout)
            growth = "" if last is None else f"{row['answering_seconds'] / last[1] / (value / last[0]):.2f}"
            print(f"{name:10} {value:>9,}  {row}  growth {growth}", flush=True)
            last = (value, row["answering_seconds"])


if __name__ == "__main__":
    main()
