"""What the graph of many sensors costs: planted edges among 200 sensors on clocks of their own.

    python benchmarks/wide_graph.py series                     # one long series, 600 readings of each sensor
    python benchmarks/wide_graph.py samples --readings 20      # 500 short samples
    python benchmarks/wide_graph.py AQI36_FOLDER               # or any other table: only its cost

Prints processor time, peak memory, and how well the planted edges are found.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
from stations import Stations

from raindrop import EventTable, sensor_graph
from raindrop.graphs.recovery import recovery

MEMORY = 8.0  # intervals after which a fluctuation has decayed to a third
STEPS = 10  # of an interval
LAG = 2  # intervals


def planted(samples: int, sensors: int, readings: int, edges: int, seed: int) -> tuple[EventTable, np.ndarray]:
    """Every fourth sensor or so follows another one, two intervals later; each is read at its own random times."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((sensors, sensors), dtype=bool)
    receivers = rng.choice(np.arange(1, sensors), edges, replace=False)
    for v in receivers:
        truth[rng.integers(v), v] = True
    length = readings * STEPS
    kept, columns = np.exp(-1 / (MEMORY * STEPS)), []
    for sample in range(samples):
        noise = rng.normal(size=(length + LAG * STEPS * 20, sensors)) * np.sqrt(1 - kept**2)
        signal = np.empty_like(noise)
        signal[0] = noise[0]
        for at in range(1, len(noise)):
            signal[at] = kept * signal[at - 1] + noise[at]
        for v in np.flatnonzero(truth.any(0)):  # senders come before their receivers
            sender = signal[:, int(np.flatnonzero(truth[:, v])[0])]
            signal[:, v] = 0.55 * signal[:, v] + np.roll(sender, LAG * STEPS)
        signal = signal[-length:]
        sensor, step = np.nonzero(rng.random((sensors, length)) < 1 / STEPS)
        when = step / STEPS + rng.uniform(0, 1 / STEPS, len(step))
        columns.append((np.full(len(step), sample), when, sensor, signal[step, sensor]))
    sample, when, sensor, value = (np.concatenate(column) for column in zip(*columns, strict=True))
    names = np.array([f"s{at:03d}" for at in range(sensors)])
    ids = np.array([f"sample {at:04d}" for at in range(samples)])
    return EventTable.from_columns(ids[sample], when, names[sensor], value, sensors=names.tolist()), truth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="series, samples, AQI-36's folder or that of a table")
    parser.add_argument("--sensors", type=int, default=200)
    parser.add_argument("--readings", type=int, default=600, help="of each sensor in a sample, about")
    parser.add_argument("--edges", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    truth = None
    if options.table in ("series", "samples"):
        number = 1 if options.table == "series" else 500
        table, truth = planted(number, options.sensors, options.readings, options.edges, options.seed)
    elif (Path(options.table) / "pm25_missing.txt").exists():
        table = Stations.read(Path(options.table)).whole_table()
    else:
        table = EventTable.read(options.table)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    used = time.process_time()
    graph = sensor_graph(table)
    line = {
        "samples": len(table),
        "sensors": len(table.sensors),
        "readings": table.num_readings,
        "cpu_seconds": round(time.process_time() - used, 1),
        "megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "megabytes_before": round(before),
        "edges": len(graph.edges()),
    }
    if truth is not None:
        line["auroc"] = round(recovery(graph.ranking("lagged"), truth).auroc, 4)
        line["right"] = int(((graph.weights > 0) & truth).sum())
    print(json.dumps(line))


if __name__ == "__main__":
    main()
