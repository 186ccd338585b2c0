"""Do the edges of a fitted imputer say what it does: how far do filled values move without the strongest sender?

    python benchmarks/faithfulness.py planted --seeds 0 1 2
    python benchmarks/faithfulness.py lorenz --seeds 0 1 2
    python benchmarks/faithfulness.py netsim --data FOLDER --seeds 0 1 2
    python benchmarks/faithfulness.py table --data TABLE --samples 1500 --steps 200      # such as P12's or P19's folder

An imputer is fitted for a few hundred steps; of a table of samples on a random part, and other samples are asked. The
strongest sender of each receiver is found on half of the samples (or windows of a long series); in the other half the
readings of that sender are removed, or those of a random one. Movements are in standard deviations of the receiver,
mean over receivers. One JSON line for each seed, then the means.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
import polars as pl
from graph_recovery import as_table, known, regular

from raindrop import EventTable, Imputer
from raindrop.datasets.asynchronous import delayed_sensors
from raindrop.datasets.dynamics import lorenz96

SUBJECTS = 5  # of NetSim
BATCH_READINGS = 10_000


def irregular_lorenz(seed: int, steps: int = 2000) -> EventTable:
    """Lorenz-96 with ten sensors, each read at its own times, at 30 % of the steps."""
    _, step = lorenz96(10, force=10.0, dt=0.0125)
    rng = np.random.default_rng(seed)
    path = [rng.normal(size=(1, 10))]
    for _ in range(steps + 1000):
        path.append(step(path[-1]))
    series = np.concatenate(path)[-steps:]
    sensor, at = np.nonzero(rng.random((10, steps)) < 0.3)
    return as_table(at.astype(float), sensor, series[at, sensor], 10)


def netsim(folder: Path, seed: int) -> EventTable:
    """A few subjects as samples, 10 % of readings dropped."""
    frames = []
    for subject in range(SUBJECTS):
        series, _ = known(folder / f"netsim_sim3_subject_{subject}.npz")
        events = regular(series, 0.1, 100 * seed + subject).events()
        frames.append(
            events.with_columns(pl.lit(f"subject {subject}").alias("sample"), pl.col("sensor").cast(pl.String))
        )
    return EventTable.from_frames(pl.concat(frames))


def tables(options: argparse.Namespace, seed: int) -> tuple[EventTable, EventTable]:
    """What the imputer is fitted on, and what it is asked about."""
    if options.task == "table":
        whole = EventTable.read(options.data)
        order = np.random.default_rng(seed).permutation(len(whole))
        cut = min(options.samples, len(whole) * 3 // 4)
        return whole[np.sort(order[:cut])], whole[np.sort(order[cut : cut + max(50, cut // 3)])]
    if options.task == "planted":
        table = delayed_sensors(60, seed=300 + seed).table
    else:
        table = irregular_lorenz(seed) if options.task == "lorenz" else netsim(options.data, seed)
    return table, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("planted", "lorenz", "netsim", "table"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--samples", type=int, default=1500, help="of a table, to fit on; a third as many are asked")
    parser.add_argument("--hidden", type=int, default=4000, help="readings that are hidden and filled, at most")
    options = parser.parse_args()
    if options.data is None and options.task in ("netsim", "table"):
        parser.error(f"{options.task} needs --data, the folder of its files")
    training = {"train.epochs": 1, "train.min_steps": options.steps, "train.batch_readings": BATCH_READINGS}
    found = []
    for seed in options.seeds:
        used = time.process_time()
        fitted_on, asked = tables(options, seed)
        imputer = Imputer(seed=seed, config=training).fit(fitted_on)
        effects = imputer.sender_effects(asked, seed=seed, max_hidden=options.hidden)
        moved = effects.faithfulness(seed=seed)
        found.append(moved)
        line = {
            "data": options.data.name if options.task == "table" else options.task,
            "seed": seed,
            "samples": len(fitted_on),
            "sensors": len(fitted_on.sensors),
            "hidden": len(effects.error),
            "error": round(float(effects.error.mean()), 3),
            **{name: round(value, 3) for name, value in moved.items()},
            "cpu_seconds": round(time.process_time() - used, 1),
        }
        print(json.dumps(line), flush=True)
    mean = {name: [each[name] for each in found] for name in found[0]}
    print({name: f"{np.mean(x):.3f} ± {np.std(x, ddof=1) if len(x) > 1 else 0:.3f}" for name, x in mean.items()})
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most")


if __name__ == "__main__":
    main()
